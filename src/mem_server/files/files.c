/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening: find the file, choose the object's size, charge for it, then join a copy that is in
 * memory, or put the file into the list of those in use and load it.
 *
 * Writing back: a unit's dirty byte is cleared before its data are read, so that a later WRITE sets
 * the byte again.  After a failure, also of fdatasync, all bytes that this sync has cleared are set
 * again, because the kernel may have dropped the data.  The first sync of a file that was loaded
 * asks for the disk although nothing is dirty: a server before this one may have ended between its
 * write and its fdatasync, and what was loaded then is only in the kernel's page cache.
 */
#include "mem_server/files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/log.h"
#include "base/wait.h"
#include "mem_server/base/counters.h"
#include "mem_server/files/beneath.h"
#include "mem_server/files/file_io.h"
#include "mem_server/files/journal.h"
#include "mem_server/files/mark.h"
#include "mem_server/files/published.h"
#include "wire/sealed_file.h"

#define LOAD_TRIES 3
#define LOAD_BYTES (1u << 20) /* longest read */
#define SYNC_BYTES (1u << 20) /* longest write */

int soda_files_init(struct soda_files *files, struct soda_store *store, const char *directory)
{
	struct timespec now;

	*files = (struct soda_files){ .store = store, .dir = -1 };
	if (directory) {
		files->dir = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (files->dir < 0)
			return -errno;
	}
	pthread_mutex_init(&files->lock, NULL);
	pthread_cond_init(&files->loaded, NULL);
	/* From the time, so that no generation of an earlier instance is used again. */
	clock_gettime(CLOCK_REALTIME, &now);
	files->generation = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return 0;
}

/* Loading */

static void set_version(struct soda_file_version *version, const struct stat *st)
{
	*version = (struct soda_file_version){ st->st_dev, st->st_ino, (uint64_t)st->st_size,
					       st->st_mtim, st->st_ctim };
}

/* The same, of a file that others may look at: they compare dev and ino, which are constant. */
static void move_version(struct soda_file_version *version, const struct stat *st)
{
	version->size = (uint64_t)st->st_size;
	version->mtime = st->st_mtim;
	version->ctime = st->st_ctim;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_same_version(const struct soda_file_version *a, const struct soda_file_version *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       is_same_time(&a->mtime, &b->mtime) && is_same_time(&a->ctime, &b->ctime);
}

uint64_t soda_file_id(const struct soda_file *file)
{
	const struct soda_file_version *v = &file->version;
	const uint64_t parts[] = { v->dev,
				   v->ino,
				   v->size,
				   (uint64_t)v->mtime.tv_sec,
				   (uint64_t)v->mtime.tv_nsec,
				   (uint64_t)v->ctime.tv_sec,
				   (uint64_t)v->ctime.tv_nsec };
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, bytes in a fixed order */

	if (file->published)
		return file->published->id;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		for (unsigned shift = 0; shift < 64; shift += 8)
			hash = (hash ^ (parts[i] >> shift & 0xff)) * 0x100000001b3u;
	return hash ? hash : 1;
}

struct load {
	uint64_t at, end;
};

static bool next_to_load(void *arg, uint64_t *offset_p, uint32_t *bytes_p)
{
	struct load *load = arg;
	uint64_t left = load->end - load->at;

	*offset_p = load->at;
	*bytes_p = (uint32_t)(left < LOAD_BYTES ? left : LOAD_BYTES);
	load->at += *bytes_p;
	return left;
}

static int read_contents(struct soda_file *file, int fd, uint64_t bytes,
			 const struct soda_file_request *req, struct soda_why *why)
{
	struct load load = { 0, bytes };
	const struct soda_file_io io = {
		.fd = fd, .memory = file->memory.map, .next = next_to_load, .arg = &load
	};
	struct soda_file_version now;
	struct stat st;
	int r = soda_file_io_run(&io);

	/* First whether the file has changed: that is also why its end may have come early. */
	if (fstat(fd, &st))
		return -errno;
	set_version(&now, &st);
	if (!is_same_version(&now, &file->version))
		return -EAGAIN;
	if (r) {
		soda_server_why(why, "%s: cannot read: %s", req->name, soda_strerror(r));
		return -EIO;
	}
	soda_count_add(SODA_COUNT_files_loaded, 1);
	soda_count_add(SODA_COUNT_bytes_loaded, bytes);
	return 0;
}

/* Make the file as long as the object, with its blocks reserved where the file system can. */
static int extend(struct soda_file *file, int fd, const struct soda_file_request *req,
		  struct soda_why *why)
{
	off_t old = (off_t)file->version.size, new = (off_t)file->bytes;
	struct stat st;
	int r = fallocate(fd, 0, old, new - old) ? -errno : 0;

	if (r == -EOPNOTSUPP)
		r = ftruncate(fd, new) ? -errno : 0;
	if (!r)
		r = fstat(fd, &st) ? -errno : 0;
	if (!r) {
		move_version(&file->version, &st);
		return 0;
	}
	if (ftruncate(fd, old))
		soda_log_warning("%s: cannot take back its extension: %s", req->name,
				 soda_strerror(errno));
	soda_server_why(why, "%s: cannot extend the file: %s", req->name, soda_strerror(r));
	return r == -EDQUOT ? -ENOSPC : r;
}

/*
 * A sealed file: begin a new one, of its whole size; bring one to the end of a sync that a server
 * has not lived to end.  0; -EBUSY; errors of writing.
 */
static int prepare_sealed(struct soda_file *file, int fd, const struct soda_file_request *req,
			  struct soda_why *why)
{
	bool whole = file->version.size == file->bytes && !file->made;
	struct stat st;
	int r = 0;

	if (!whole && file->mode != SODA_WIRE_WRITABLE) {
		soda_server_why(
			why,
			"%s: its server ended while it was written back: a program opens it "
			"WRITABLE first",
			req->name);
		return -EBUSY;
	}
	if (file->made)
		r = soda_journal_make(fd);
	else if (!whole)
		r = soda_journal_recover(fd, file->bytes);
	if (!r)
		r = fstat(fd, &st) ? -errno : 0;
	if (r) {
		soda_server_why(why, "%s: cannot be prepared: %s", req->name, soda_strerror(r));
		return r == -EDQUOT ? -ENOSPC : r;
	}
	move_version(&file->version, &st);
	return 0;
}

/*
 * Whether the file is still as it was before this thread claimed it: in between another client may
 * have written to it and closed it, or the file may have lost its name, so that nobody would find
 * later what is written to it.  0; -EAGAIN: it has changed.
 */
static int look_again(const struct soda_file *file, int fd)
{
	struct soda_file_version now;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	set_version(&now, &st);
	if (!is_same_version(&now, &file->version) ||
	    (file->mode == SODA_WIRE_WRITABLE && !st.st_nlink))
		return -EAGAIN;
	return 0;
}

/* The file has been prepared for its writer: what changes it from now on does so through a sync. */
static int settle_mark(struct soda_file *file, int fd)
{
	struct stat st;

	soda_mark_settle(fd, file->mark);
	if (fstat(fd, &st))
		return -errno;
	file->version.ctime = st.st_ctim;
	return 0;
}

/*
 * Fill a claimed file: reserve its memory, extend the file where it is WRITABLE and shorter than
 * the object, read it.  0; -EAGAIN: the file changed meanwhile; errors of soda_files_open.  On
 * failure the file has its old size.
 */
static int load_file(struct soda_files *files, struct soda_file *file, int fd,
		     const struct soda_file_request *req, struct soda_why *why)
{
	bool shared = file->mode == SODA_WIRE_READ_ONLY;
	const struct soda_memory_options opt = {
		.bytes = file->bytes,
		.dirty_map = file->mode == SODA_WIRE_WRITABLE,
		.freezes = shared,
		.populate = req->populate || shared, /* who joins later may need the descriptor */
	};
	uint64_t old;
	int r = look_again(file, fd);

	if (!r)
		r = soda_memory_create(files->store, &opt, &file->memory, why);
	if (!r && file->mode == SODA_WIRE_WRITABLE)
		r = soda_mark_take(fd, req, &file->mark, why);
	if (!r && file->sealed)
		r = prepare_sealed(file, fd, req, why);
	if (r)
		return r;
	old = file->version.size;
	if (file->mode == SODA_WIRE_WRITABLE && file->bytes > old)
		r = extend(file, fd, req, why);
	if (!r && file->mode == SODA_WIRE_WRITABLE)
		r = settle_mark(file, fd);
	if (!r)
		r = read_contents(file, fd, old < file->bytes ? old : file->bytes, req, why);
	if (!r && shared)
		r = soda_memory_freeze(&file->memory, why);
	if (r && file->version.size > old && ftruncate(fd, (off_t)old))
		soda_log_warning("%s: cannot take back its extension: %s", req->name,
				 soda_strerror(errno));
	return r;
}

/* Opening */

static bool same_file(const struct soda_file_version *a, const struct soda_file_version *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

/* The same of a sealed file, which is never another one. *made_p: it is to be made. */
static int choose_sealed_bytes(const struct soda_file_request *req, int fd, uint64_t size,
			       uint64_t *bytes_p, bool *made_p, struct soda_why *why)
{
	uint64_t total;
	int r = soda_journal_look(fd, size, req->name, &total, why);

	if (r)
		return r;
	*made_p = !total;
	if (total && req->bytes && req->bytes != total) {
		soda_server_why(why,
				"%s: is sealed, as an object of another size, which cannot be "
				"changed: open it with 0 bytes, for all of it",
				req->name);
		return -EFBIG;
	}
	*bytes_p = total ? total : req->bytes;
	if (*bytes_p && (total || req->flags & SODA_WIRE_WRITABLE))
		return 0;
	soda_server_why(why, "%s: the file is empty", req->name);
	return -EINVAL;
}

/* A sealed file is not handed out as if it were any file. */
static int refuse_sealed(const struct soda_file_request *req, int fd, uint64_t size,
			 struct soda_why *why)
{
	uint8_t begin[SODA_SEALED_MAGIC_BYTES];

	if (size < sizeof(begin) || pread(fd, begin, sizeof(begin), 0) != (ssize_t)sizeof(begin) ||
	    soda_sealed_kind(begin) == SODA_SEALED_NOT)
		return 0;
	soda_server_why(why,
			"%s: is sealed: a program opens it WRITABLE with SODA_SEAL=1 and its key "
			"(SODA_SEAL_KEY_FILE), and soda seal cat prints it",
			req->name);
	return -EINVAL;
}

/* The object's size: as requested, else the file's. */
static int choose_plain_bytes(const struct soda_file_request *req, uint64_t size, uint64_t *bytes_p,
			      struct soda_why *why)
{
	char wanted[16], has[16];

	if (!req->bytes && !size) {
		soda_server_why(why, "%s: the file is empty", req->name);
		return -EINVAL;
	}
	if (req->bytes > size && !(req->flags & SODA_WIRE_WRITABLE)) {
		soda_server_why(why, "%s: %s wanted, but the file has %s", req->name,
				soda_format_size(req->bytes, wanted), soda_format_size(size, has));
		return -EFBIG;
	}
	*bytes_p = req->bytes ? req->bytes : size;
	return 0;
}

static int choose_bytes(const struct soda_file_request *req, int fd, uint64_t size,
			uint64_t *bytes_p, bool *made_p, struct soda_why *why)
{
	int r;

	*made_p = false;
	if (req->flags & SODA_WIRE_SEALED)
		return choose_sealed_bytes(req, fd, size, bytes_p, made_p, why);
	r = refuse_sealed(req, fd, size, why);
	return r ? r : choose_plain_bytes(req, size, bytes_p, why);
}

static int dir_of(const struct soda_files *files, const struct soda_file_request *req)
{
	return req->dir ? *req->dir : files->dir;
}

/* A descriptor of the file; *created_p: the file was created now. */
static int open_file(struct soda_files *files, const struct soda_file_request *req, bool *created_p,
		     struct soda_why *why)
{
	int mode = req->flags & SODA_WIRE_WRITABLE ? O_RDWR : O_RDONLY, fd;
	int dir = dir_of(files, req);

	*created_p = false;
	if (dir < 0) {
		soda_server_why(why, "the server exports no directory: start it with --export");
		return -EACCES;
	}
	fd = soda_beneath_open(dir, req->name, mode, req->user, why);
	if (fd != -ENOENT || !(req->flags & SODA_WIRE_CREATE))
		return fd;
	fd = soda_beneath_open(dir, req->name, mode | O_CREAT | O_EXCL, req->user, why);
	if (fd == -EEXIST) /* another client was faster */
		return soda_beneath_open(dir, req->name, mode, req->user, why);
	*created_p = fd >= 0;
	return fd;
}

int soda_files_find(struct soda_files *files, const struct soda_file_request *req,
		    struct soda_why *why)
{
	struct soda_file_request reads = *req;
	bool created;

	reads.flags = SODA_WIRE_READ_ONLY;
	return open_file(files, &reads, &created, why);
}

/* A copy of the same contents that is loaded or being loaded. */
static struct soda_file *find_shared_locked(struct soda_files *files, const struct soda_file *like)
{
	for (struct soda_file *at = files->in_use; at; at = at->next)
		if (at->mode == SODA_WIRE_READ_ONLY && !at->published &&
		    at->state != SODA_FILE_FAILED && at->bytes == like->bytes &&
		    is_same_version(&at->version, &like->version))
			return at;
	return NULL;
}

/* A use of the same file that excludes `wanted`, as one of them writes; or NULL. */
static const struct soda_file *find_rival_locked(const struct soda_files *files,
						 const struct soda_file *wanted)
{
	for (const struct soda_file *at = files->in_use; at; at = at->next)
		if (!at->published && same_file(&at->version, &wanted->version) &&
		    (at->mode == SODA_WIRE_WRITABLE || wanted->mode == SODA_WIRE_WRITABLE))
			return at;
	return NULL;
}

static void unlink_locked(struct soda_files *files, struct soda_file *file)
{
	struct soda_file **at = &files->in_use;

	while (*at && *at != file)
		at = &(*at)->next;
	if (*at)
		*at = file->next;
}

/* account: the cost of the memory is refunded to it; or NULL. */
static void destroy(struct soda_files *files, struct soda_file *file, struct soda_account *account)
{
	if (file->memory.map)
		soda_memory_destroy(files->store, &file->memory, account);
	if (file->fd >= 0)
		close(file->fd);
	pthread_mutex_destroy(&file->sync_lock);
	soda_published_free(file->published);
	free(file);
}

/* Drop one reference; the last one frees the memory. account: as in destroy. */
static void put(struct soda_files *files, struct soda_file *file, struct soda_account *account)
{
	bool last;

	pthread_mutex_lock(&files->lock);
	last = !--file->refs;
	if (last)
		unlink_locked(files, file);
	pthread_mutex_unlock(&files->lock);
	if (last)
		destroy(files, file, account);
}

void soda_file_hold(struct soda_files *files, struct soda_file *file)
{
	pthread_mutex_lock(&files->lock);
	file->refs++;
	pthread_mutex_unlock(&files->lock);
}

void soda_file_drop(struct soda_files *files, struct soda_file *file)
{
	put(files, file, NULL);
}

bool soda_file_in_use(struct soda_files *files, struct soda_file *file)
{
	bool used;

	pthread_mutex_lock(&files->lock);
	used = file->refs > 1;
	pthread_mutex_unlock(&files->lock);
	return used;
}

/* Wait for another thread's load of a file that this one shares. */
static int join(struct soda_files *files, struct soda_file *file, struct soda_why *why)
{
	struct soda_wait wait;
	int r;

	soda_wait_begin(&wait, "another client's load of a file");
	pthread_mutex_lock(&files->lock);
	while (file->state == SODA_FILE_LOADING)
		soda_wait_turn(&wait, &files->loaded, &files->lock);
	r = file->error;
	pthread_mutex_unlock(&files->lock);
	soda_wait_end(&wait);
	if (!r) {
		soda_count_add(SODA_COUNT_files_shared, 1);
		return 0;
	}
	soda_server_why(why, "another client's load of the same file failed");
	put(files, file, NULL);
	return r;
}

/* This thread's load has ended with r: tell threads that wait in join(). */
static void finish(struct soda_files *files, struct soda_file *file, int r)
{
	pthread_mutex_lock(&files->lock);
	file->state = r ? SODA_FILE_FAILED : SODA_FILE_READY;
	file->error = r;
	file->generation = ++files->generation;
	if (!r && file->mode == SODA_WIRE_PRIVATE)
		unlink_locked(files, file);
	pthread_cond_broadcast(&files->loaded);
	pthread_mutex_unlock(&files->lock);
	if (r)
		put(files, file, NULL);
}

/* Put the file into the list, or find one to share (*shared_p, with a reference). 0, -EBUSY. */
static int claim(struct soda_files *files, struct soda_file *file, const char *name,
		 struct soda_file **shared_p, struct soda_why *why)
{
	const struct soda_file *rival;
	struct soda_wait wait;
	int r = 0;

	soda_wait_begin(&wait, "a file that was made in vain to be removed");
	pthread_mutex_lock(&files->lock);
	while ((rival = find_rival_locked(files, file)) && rival->state == SODA_FILE_REMOVING)
		soda_wait_turn(&wait, &files->loaded, &files->lock);
	*shared_p = file->mode == SODA_WIRE_READ_ONLY ? find_shared_locked(files, file) : NULL;
	if (*shared_p) {
		(*shared_p)->refs++;
	} else if (rival) {
		r = -EBUSY;
	} else {
		file->next = files->in_use;
		files->in_use = file;
	}
	pthread_mutex_unlock(&files->lock);
	soda_wait_end(&wait);
	if (r)
		soda_server_why(why,
				file->mode == SODA_WIRE_WRITABLE
					? "%s: in use, and a writer must be alone"
					: "%s: open for writing",
				name);
	return r;
}

static struct soda_file *create(const struct soda_file_request *req, int fd, const struct stat *st,
				uint64_t bytes)
{
	struct soda_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	set_version(&file->version, st);
	file->mode = req->flags & (SODA_WIRE_READ_ONLY | SODA_WIRE_PRIVATE | SODA_WIRE_WRITABLE);
	file->sealed = req->flags & SODA_WIRE_SEALED;
	file->bytes = bytes;
	file->memory.fd = -1;
	file->fd = -1;
	file->refs = 1;
	if (file->mode == SODA_WIRE_WRITABLE) {
		file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (file->fd < 0) {
			free(file);
			return NULL;
		}
	}
	pthread_mutex_init(&file->sync_lock, NULL);
	return file;
}

/* The account has been charged for `file`: share a copy in memory, or load it. */
static int share_or_load(struct soda_files *files, const struct soda_file_request *req, int fd,
			 struct soda_file *file, struct soda_file **file_p, struct soda_why *why)
{
	struct soda_file *shared;
	int r = claim(files, file, req->name, &shared, why);

	if (r || shared) {
		destroy(files, file, NULL);
		r = r ? r : join(files, shared, why);
		if (!r)
			*file_p = shared;
		return r;
	}
	r = load_file(files, file, fd, req, why);
	if (!r)
		*file_p = file;
	finish(files, file, r);
	return r;
}

/* One attempt with an open descriptor. -EAGAIN: the file has changed meanwhile. */
static int open_once(struct soda_files *files, const struct soda_file_request *req, int fd,
		     struct soda_file **file_p, struct soda_why *why)
{
	struct soda_file *file;
	struct stat st;
	uint64_t bytes = 0, cost;
	bool made = false;
	int r = fstat(fd, &st) ? -errno
			       : choose_bytes(req, fd, (uint64_t)st.st_size, &bytes, &made, why);

	if (r)
		return r;
	cost = soda_store_cost(files->store, bytes, req->flags & SODA_WIRE_WRITABLE);
	r = soda_account_charge(files->store, req->account, cost, why);
	if (r)
		return r;
	file = create(req, fd, &st, bytes);
	if (file)
		file->made = made;
	r = file ? share_or_load(files, req, fd, file, file_p, why) : -ENOMEM;
	if (r)
		soda_account_refund(files->store, req->account, cost);
	return r;
}

/*
 * Remove a file that was created for an open that has failed, unless another client uses it
 * meanwhile. While that goes on the file is in the list as REMOVING, so that no client begins to
 * use it.
 */
static void take_back(struct soda_files *files, int dir, const char *name, int fd)
{
	struct soda_file made = { .mode = SODA_WIRE_WRITABLE, .state = SODA_FILE_REMOVING };
	struct stat st;
	bool used;

	if (fstat(fd, &st))
		return;
	set_version(&made.version, &st);
	pthread_mutex_lock(&files->lock);
	used = find_rival_locked(files, &made);
	if (!used) {
		made.next = files->in_use;
		files->in_use = &made;
	}
	pthread_mutex_unlock(&files->lock);
	if (used)
		return;
	soda_beneath_remove(dir, name, fd);
	pthread_mutex_lock(&files->lock);
	unlink_locked(files, &made);
	pthread_cond_broadcast(&files->loaded);
	pthread_mutex_unlock(&files->lock);
}

/* One attempt, from the name on, which may be another file's at each attempt. */
static int open_named(struct soda_files *files, const struct soda_file_request *req,
		      struct soda_file **file_p, struct soda_why *why)
{
	bool created;
	int fd = open_file(files, req, &created, why), r;

	if (fd < 0)
		return fd;
	r = open_once(files, req, fd, file_p, why);
	if (created && r)
		take_back(files, dir_of(files, req), req->name, fd);
	else if (created)
		soda_beneath_settle(dir_of(files, req), req->name);
	close(fd);
	return r;
}

int soda_files_open(struct soda_files *files, const struct soda_file_request *req,
		    struct soda_file **file_p, struct soda_why *why)
{
	int r = -EAGAIN;

	for (int i = 0; i < LOAD_TRIES && r == -EAGAIN; i++)
		r = open_named(files, req, file_p, why);
	if (r == -EAGAIN) {
		soda_server_why(why, "%s: keeps changing while it is loaded", req->name);
		r = -EBUSY;
	}
	return r;
}

void soda_files_close(struct soda_files *files, struct soda_file *file,
		      struct soda_account *account)
{
	uint64_t cost = file->memory.backing_bytes + file->memory.dirty_bytes;

	/*
	 * A copy of one client is charged until no process has it; of a shared copy each client is
	 * charged while it has the file open.
	 */
	if (file->mode != SODA_WIRE_READ_ONLY) {
		put(files, file, account);
		return;
	}
	put(files, file, NULL);
	if (account)
		soda_account_refund(files->store, account, cost);
}

/* Writing back */

struct sync {
	struct soda_file *file;
	uint8_t *taken; /* one a unit: cleared by this sync */
	uint64_t units;
	uint64_t at;
	uint64_t bytes;
};

/* Clear the dirty bytes and remember which were set. Returns how many. */
static uint64_t take_dirty(struct sync *sync)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < sync->units; i++) {
		/*
		 * acquire: pairs with the release of soda_region_release(), after the data's store
		 */
		sync->taken[i] =
			!!__atomic_exchange_n(&sync->file->memory.dirty[i], 0, __ATOMIC_ACQ_REL);
		n += sync->taken[i];
	}
	return n;
}

static void give_back(const struct sync *sync)
{
	for (uint64_t i = 0; i < sync->units; i++)
		if (sync->taken[i])
			__atomic_store_n(&sync->file->memory.dirty[i], 1, __ATOMIC_RELEASE);
}

/* The next run of dirty units, cut off at the object's end, where the file ends. */
static bool next_dirty(void *arg, uint64_t *offset_p, uint32_t *bytes_p)
{
	struct sync *sync = arg;
	uint64_t first, end;

	while (sync->at < sync->units && !sync->taken[sync->at])
		sync->at++;
	if (sync->at == sync->units)
		return false;
	first = sync->at;
	while (sync->at < sync->units && sync->taken[sync->at] &&
	       sync->at - first < SYNC_BYTES / SODA_DIRTY_UNIT)
		sync->at++;
	end = sync->at * SODA_DIRTY_UNIT;
	if (end > sync->file->bytes)
		end = sync->file->bytes;
	*offset_p = first * SODA_DIRTY_UNIT;
	*bytes_p = (uint32_t)(end - *offset_p);
	sync->bytes += *bytes_p;
	return true;
}

/*
 * Of a sealed file: first a journal of all that is dirty.  A sync before this one may have left its
 * own, and the file half changed.
 */
static int write_journal(struct sync *sync)
{
	struct soda_file *file = sync->file;
	struct soda_journal_range *ranges = calloc(sync->units, sizeof(*ranges));
	uint64_t n = 0;
	uint32_t bytes;
	int r = ranges ? 0 : -ENOMEM;

	if (!r && file->journal)
		r = soda_journal_recover(file->fd, file->bytes);
	if (!r)
		file->journal = false;
	while (!r && next_dirty(sync, &ranges[n].offset, &bytes))
		ranges[n++].bytes = bytes;
	if (!r)
		r = soda_journal_write(file->fd, file->bytes, file->memory.map, ranges, n);
	if (!r)
		file->journal = true;
	free(ranges);
	sync->at = sync->bytes = 0;
	return r;
}

/* Everything is in its place. */
static void end_journal(struct soda_file *file)
{
	int r = soda_journal_end(file->fd, file->bytes);

	file->journal = r != 0;
	if (r) /* as good as without: what it has is in the file */
		soda_log_warning("a sealed file keeps its journal: %s", soda_strerror(r));
}

static int write_dirty(struct sync *sync)
{
	const struct soda_file_io io = { .fd = sync->file->fd,
					 .write = true,
					 .memory = sync->file->memory.map,
					 .next = next_dirty,
					 .arg = sync };
	int r = sync->file->sealed ? write_journal(sync) : 0;

	return r ? r : soda_file_io_run(&io);
}

/*
 * The kernel gives up what it could not bring to the disk, and says so once.  Of a file that is not
 * settled that may be data which were there when it was loaded: all of it is written again.
 */
static int settle(struct sync *sync)
{
	int r = fdatasync(sync->file->fd) ? -errno : 0;

	if (r && !sync->file->settled)
		memset(sync->taken, 1, sync->units);
	if (!r)
		sync->file->settled = true;
	return r;
}

static int write_back(struct sync *sync, struct soda_why *why)
{
	bool any = take_dirty(sync) > 0;
	int r = 0;

	if (!any && sync->file->settled)
		return 0;
	if (any)
		r = soda_mark_change(sync->file->fd, sync->file->mark);
	if (!r && any)
		r = write_dirty(sync);
	if (!r)
		r = settle(sync);
	if (!r && any && sync->file->sealed)
		end_journal(sync->file);
	if (!r && any)
		soda_mark_settle(sync->file->fd, sync->file->mark);
	if (!r) {
		soda_count_add(SODA_COUNT_bytes_synced, sync->bytes);
		return 0;
	}
	give_back(sync);
	soda_server_why(why, "cannot write the file back: %s", soda_strerror(r));
	return r == -EDQUOT || r == -EFBIG ? -ENOSPC : r;
}

int soda_file_sync(struct soda_file *file, struct soda_why *why)
{
	struct sync sync = {
		.file = file,
		.units = (file->bytes + SODA_DIRTY_UNIT - 1) / SODA_DIRTY_UNIT,
	};
	int r;

	sync.taken = calloc(sync.units, 1);
	if (!sync.taken) {
		soda_server_why(why, "the server is out of memory");
		return -ENOMEM;
	}
	pthread_mutex_lock(&file->sync_lock);
	r = write_back(&sync, why);
	pthread_mutex_unlock(&file->sync_lock);
	free(sync.taken);
	soda_count_add(SODA_COUNT_syncs, 1);
	soda_count_add(SODA_COUNT_syncs_failed, r != 0);
	return r;
}
