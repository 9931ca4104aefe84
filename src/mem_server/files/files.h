/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of the export directory as memory, and who may use which.
 *
 *   READ_ONLY   one copy in memory for all who open the same contents, kept while
 *               in use, sealed against writing
 *   PRIVATE     a copy of its own; the file is in use only while it is loaded
 *   WRITABLE    one user and nobody else; dirty data goes back with soda_file_sync
 *
 * What a file's contents are is told by device, inode, size and mtime.  A file
 * that changes while it is loaded is loaded again.
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
	struct soda_file *in_use; /* guarded by lock */
	uint64_t generation;	  /* guarded by lock: of the last load */
};

enum soda_file_state {
	SODA_FILE_LOADING,
	SODA_FILE_READY,
	SODA_FILE_FAILED,
	SODA_FILE_REMOVING, /* made for an open that failed: whoever wants it waits until it is gone
			     */
};

/* What tells one version of a file from another. */
struct soda_file_version {
	dev_t dev;
	ino_t ino;
	uint64_t size;
	struct timespec mtime;
};

/* One use of a file: a READ_ONLY one may have many regions. */
struct soda_file {
	struct soda_file *next;
	/*
	 * dev and ino are constant: others compare them from the claim on.  size and mtime change
	 * while a WRITABLE file is extended by its load, and are nobody else's before that is over.
	 */
	struct soda_file_version version;
	uint64_t bytes; /* of the object */
	uint64_t generation;
	unsigned mode; /* SODA_WIRE_READ_ONLY, SODA_WIRE_PRIVATE or SODA_WIRE_WRITABLE */
	enum soda_file_state state; /* guarded by the files' lock */
	int error;		    /* likewise: why FAILED */
	unsigned refs;		    /* likewise */
	struct soda_memory memory;
	int fd;			   /* WRITABLE: to write back; else -1 */
	pthread_mutex_t sync_lock; /* one sync at a time; taken before all others */
};

struct soda_file_request {
	const char *name; /* checked: not empty, terminated, relative, without ".." */
	uint64_t bytes;	  /* 0: the file's size */
	unsigned flags;	  /* as in soda.h, checked */
	bool populate;
	struct soda_account *account;	   /* is charged */
	const struct soda_file_user *user; /* whose permissions decide; NULL: the server's */
};

/* directory NULL: no exports. 0 or negative errno of opening it. */
int soda_files_init(struct soda_files *files, struct soda_store *store, const char *directory);

/*
 * Open and load.  Blocks.  0; -ENOENT, -EACCES, -EBUSY, -EFBIG, -EINVAL (empty),
 * -ENOSPC, -EDQUOT, -ENOMEM, -EIO, why filled.  On success the account is charged
 * soda_file_cost, and the caller ends with soda_files_close.
 */
int soda_files_open(struct soda_files *files, const struct soda_file_request *req,
		    struct soda_file **file_p, struct soda_why *why);
/* What is dirty and not synced is lost. */
void soda_files_close(struct soda_files *files, struct soda_file *file,
		      struct soda_account *account);

/*
 * Write the dirty 64 KiB pieces of a WRITABLE file back and await stable storage.
 * 0; -ENOSPC, -EIO, ...: everything that was dirty still is.  Any thread.
 */
int soda_file_sync(struct soda_file *file, struct soda_why *why);

/* Not 0; the same for the same device, inode, size and mtime, in every instance of the server. */
uint64_t soda_file_id(const struct soda_file *file);

#endif
