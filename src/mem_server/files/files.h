/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of the export directory, as memory.
 *
 *   READ_ONLY   all who open the same contents share one copy in memory, which is kept while it is
 *               in use, and sealed against writing
 *   PRIVATE     each open loads a copy of its own; the file is in use only while it is loaded
 *   WRITABLE    only one open at a time; soda_file_sync writes dirty data back
 *
 * A sealed file (wire/sealed_file.h) is opened as such only, and its size includes its header and
 * table.
 *
 * The same device, inode, size, mtime and ctime mean the same contents: mtime alone can be set back
 * by who rewrites a file.  A file that changes while it is loaded is loaded again.
 *
 * An object that a client has published (published.h) is a READ_ONLY file that lies in no
 * directory.
 */
#ifndef SODA_MEM_SERVER_FILES_H
#define SODA_MEM_SERVER_FILES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "mem_server/files/beneath.h"
#include "mem_server/store/store.h"

struct soda_files {
	struct soda_store *store;
	int dir;	      /* set before start, then constant; -1: nothing is exported */
	pthread_mutex_t lock; /* taken before the store's */
	pthread_cond_t loaded;
	struct soda_file *in_use;	/* list; guarded by lock */
	uint64_t generation;		/* number of the last load; guarded by lock */
	struct soda_contents *contents; /* content.h; NULL: nobody has asked; guarded by lock */
	bool ending;			/* likewise: there will be none */
};

enum soda_file_state {
	SODA_FILE_LOADING,
	SODA_FILE_READY,
	SODA_FILE_FAILED,
	SODA_FILE_REMOVING, /* created by an open that failed, and being removed; others wait for
			       that */
};

/* Tells one version of a file from another. */
struct soda_file_version {
	dev_t dev;
	ino_t ino;
	uint64_t size;
	struct timespec mtime, ctime;
};

/* A file in memory: of one region, or, READ_ONLY, of several. */
struct soda_file {
	struct soda_file *next;
	/*
	 * dev and ino are constant, and other threads compare them as soon as the file is in the
	 * list.  The rest changes while the load of a WRITABLE file extends it; no other thread
	 * reads that before it is over.
	 */
	struct soda_file_version version;
	bool hashed; /* content.h has the hash; guarded by its lock */
	uint8_t hash[32];
	uint64_t bytes; /* of the object */
	uint64_t generation;
	unsigned mode; /* SODA_WIRE_READ_ONLY, SODA_WIRE_PRIVATE or SODA_WIRE_WRITABLE */
	enum soda_file_state state;	  /* guarded by the files' lock */
	int error;			  /* likewise; why it is FAILED */
	unsigned refs;			  /* likewise */
	struct soda_published *published; /* NULL: a file of the directory; constant */
	struct soda_memory memory;
	bool sealed;		   /* wire/sealed_file.h; constant */
	bool made;		   /* likewise, a new one; constant */
	bool journal;		   /* the file has one, and may be half changed; sync_lock */
	uint64_t mark;		   /* mark.h; constant once it is loaded */
	bool settled;		   /* what was loaded is on the disk, not only cached; sync_lock */
	int fd;			   /* to write a WRITABLE file back; else -1 */
	pthread_mutex_t sync_lock; /* held by a sync, one at a time; taken before the files' lock */
};

struct soda_file_request {
	const char *name; /* checked: not empty, terminated, relative, without ".." */
	uint64_t bytes;	  /* 0: the file's size */
	unsigned flags; /* SODA_WIRE_READ_ONLY and so on, checked; SODA_WIRE_SEALED: a sealed file,
			   which nothing else opens */
	bool populate;	/* as soda_memory_options.populate */
	uint64_t mark;	/* of a WRITABLE one: mark.h; 0: anything */
	bool again;	/* the file must have it already */
	struct soda_account *account;	   /* charged for the memory */
	const struct soda_file_user *user; /* whose permissions decide; NULL: the server's */
	/* A directory beside that of the server, open; NULL: that of the server. */
	const int *dir;
};

/* directory: whose files may be opened; NULL: none. 0 or negative errno of opening it. */
int soda_files_init(struct soda_files *files, struct soda_store *store, const char *directory);

/*
 * Open a file and load it, or share a copy that is loaded.  Blocks.  0; -ENOENT, -EACCES, -EBUSY,
 * -EFBIG, -EINVAL (empty), -ENOSPC, -EDQUOT, -ENOMEM, -EIO, -ESTALE (again: somebody else may have
 * written it), with why.  On success the account is charged soda_store_cost() of the object, until
 * soda_files_close.
 */
int soda_files_open(struct soda_files *files, const struct soda_file_request *req,
		    struct soda_file **file_p, struct soda_why *why);
/*
 * End one use of the file. Dirty data that were not synced are lost.  account: what was charged for
 * it; NULL: nothing was.
 */
void soda_files_close(struct soda_files *files, struct soda_file *file,
		      struct soda_account *account);

/*
 * For content.h.  hold: one use more of an open file, until drop; in_use: whether there is another
 * one than that.  find: a descriptor of the file to read it, or an error of soda_files_open().
 */
void soda_file_hold(struct soda_files *files, struct soda_file *file);
void soda_file_drop(struct soda_files *files, struct soda_file *file);
bool soda_file_in_use(struct soda_files *files, struct soda_file *file);
int soda_files_find(struct soda_files *files, const struct soda_file_request *req,
		    struct soda_why *why);

/*
 * Write the dirty 64 KiB pieces of a WRITABLE file back and await stable storage.
 * 0; -ENOSPC, -EIO, ...: everything that was dirty still is.  Any thread.
 */
int soda_file_sync(struct soda_file *file, struct soda_why *why);

/*
 * A hash of the file's version: the same for the same contents in every instance of the server; of
 * a published object a random number.  Never 0.
 */
uint64_t soda_file_id(const struct soda_file *file);

#endif
