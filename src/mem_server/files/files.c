/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening a file: find it, see what it is, charge for it, then join a copy that is
 * in memory or claim the file and load it.  Loading is in file_load.c, writing back
 * in file_sync.c.
 */
#include "mem_server/files/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/wait.h"
#include "mem_server/base/counters.h"
#include "mem_server/files/beneath.h"
#include "mem_server/files/file_load.h"
#include "soda.h"

#define LOAD_TRIES 3

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
	/* Generations of an earlier instance do not come again. */
	clock_gettime(CLOCK_REALTIME, &now);
	files->generation = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return 0;
}

static bool same_file(const struct soda_file_version *a, const struct soda_file_version *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

/* The object's size: what was asked for, against what the file has. */
static int choose_bytes(const struct soda_file_request *req, uint64_t size, uint64_t *bytes_p,
			struct soda_why *why)
{
	char wanted[16], has[16];

	if (!req->bytes && !size) {
		soda_server_why(why, "%s: the file is empty", req->name);
		return -EINVAL;
	}
	if (req->bytes > size && !(req->flags & SODA_WRITABLE)) {
		soda_server_why(why, "%s: %s wanted, but the file has %s", req->name,
				soda_format_size(req->bytes, wanted), soda_format_size(size, has));
		return -EFBIG;
	}
	*bytes_p = req->bytes ? req->bytes : size;
	return 0;
}

/* The file's descriptor; *created_p tells that it was made now. */
static int open_file(struct soda_files *files, const struct soda_file_request *req, bool *created_p,
		     struct soda_why *why)
{
	int mode = req->flags & SODA_WRITABLE ? O_RDWR : O_RDONLY, fd;

	*created_p = false;
	if (files->dir < 0) {
		soda_server_why(why, "the server exports no directory: start it with --export");
		return -EACCES;
	}
	fd = soda_beneath_open(files->dir, req->name, mode, req->user, why);
	if (fd != -ENOENT || !(req->flags & SODA_CREATE))
		return fd;
	fd = soda_beneath_open(files->dir, req->name, mode | O_CREAT | O_EXCL, req->user, why);
	if (fd == -EEXIST) /* another client was faster */
		return soda_beneath_open(files->dir, req->name, mode, req->user, why);
	*created_p = fd >= 0;
	return fd;
}

/* A copy of the same contents that is loaded or being loaded. */
static struct soda_file *find_shared_locked(struct soda_files *files, const struct soda_file *like)
{
	for (struct soda_file *at = files->in_use; at; at = at->next)
		if (at->mode == SODA_READ_ONLY && at->state != SODA_FILE_FAILED &&
		    at->bytes == like->bytes &&
		    soda_file_version_equal(&at->version, &like->version))
			return at;
	return NULL;
}

/* One writer and nobody else. Who is in the way, or NULL. */
static const struct soda_file *find_rival_locked(const struct soda_files *files,
						 const struct soda_file *wanted)
{
	for (const struct soda_file *at = files->in_use; at; at = at->next)
		if (same_file(&at->version, &wanted->version) &&
		    (at->mode == SODA_WRITABLE || wanted->mode == SODA_WRITABLE))
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

/* account: is refunded what the memory cost; or NULL. */
static void destroy(struct soda_files *files, struct soda_file *file, struct soda_account *account)
{
	if (file->memory.map)
		soda_memory_destroy(files->store, &file->memory, account);
	if (file->fd >= 0)
		close(file->fd);
	pthread_mutex_destroy(&file->sync_lock);
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

/* Await another thread's load. */
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

/* End of a load that this thread began: tell those who wait. */
static void finish(struct soda_files *files, struct soda_file *file, int r)
{
	pthread_mutex_lock(&files->lock);
	file->state = r ? SODA_FILE_FAILED : SODA_FILE_READY;
	file->error = r;
	file->generation = ++files->generation;
	if (!r && file->mode == SODA_PRIVATE)
		unlink_locked(files, file);
	pthread_cond_broadcast(&files->loaded);
	pthread_mutex_unlock(&files->lock);
	if (r)
		put(files, file, NULL);
}

/* Enter the file into the table, or find the one to join. 0, -EBUSY. */
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
	*shared_p = file->mode == SODA_READ_ONLY ? find_shared_locked(files, file) : NULL;
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
				file->mode == SODA_WRITABLE
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
	soda_file_version_set(&file->version, st);
	file->mode = req->flags & (SODA_READ_ONLY | SODA_PRIVATE | SODA_WRITABLE);
	file->bytes = bytes;
	file->memory.fd = -1;
	file->fd = -1;
	file->refs = 1;
	if (file->mode == SODA_WRITABLE) {
		file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (file->fd < 0) {
			free(file);
			return NULL;
		}
	}
	pthread_mutex_init(&file->sync_lock, NULL);
	return file;
}

/* From here on: a file of the right size, charged for. */
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
	r = soda_file_load(files, file, fd, req, why);
	if (!r)
		*file_p = file;
	finish(files, file, r);
	return r;
}

/* One attempt with an open file. -EAGAIN: it changed meanwhile. */
static int open_once(struct soda_files *files, const struct soda_file_request *req, int fd,
		     struct soda_file **file_p, struct soda_why *why)
{
	struct soda_file *file;
	struct stat st;
	uint64_t bytes = 0, cost;
	int r = fstat(fd, &st) ? -errno : choose_bytes(req, (uint64_t)st.st_size, &bytes, why);

	if (r)
		return r;
	cost = soda_store_cost(files->store, bytes, req->flags & SODA_WRITABLE);
	r = soda_account_charge(files->store, req->account, cost, why);
	if (r)
		return r;
	file = create(req, fd, &st, bytes);
	r = file ? share_or_load(files, req, fd, file, file_p, why) : -ENOMEM;
	if (r)
		soda_account_refund(files->store, req->account, cost);
	return r;
}

/*
 * A file that was made in vain goes, unless somebody else has found it meanwhile.  It is claimed
 * for that, so that nobody begins to use what is about to lose its name.
 */
static void take_back(struct soda_files *files, const char *name, int fd)
{
	struct soda_file made = { .mode = SODA_WRITABLE, .state = SODA_FILE_REMOVING };
	struct stat st;
	bool used;

	if (fstat(fd, &st))
		return;
	soda_file_version_set(&made.version, &st);
	pthread_mutex_lock(&files->lock);
	used = find_rival_locked(files, &made);
	if (!used) {
		made.next = files->in_use;
		files->in_use = &made;
	}
	pthread_mutex_unlock(&files->lock);
	if (used)
		return;
	soda_beneath_remove(files->dir, name, fd);
	pthread_mutex_lock(&files->lock);
	unlink_locked(files, &made);
	pthread_cond_broadcast(&files->loaded);
	pthread_mutex_unlock(&files->lock);
}

/* From the name on, which may be another file's at the next attempt. */
static int open_named(struct soda_files *files, const struct soda_file_request *req,
		      struct soda_file **file_p, struct soda_why *why)
{
	bool created;
	int fd = open_file(files, req, &created, why), r;

	if (fd < 0)
		return fd;
	r = open_once(files, req, fd, file_p, why);
	if (created && r)
		take_back(files, req->name, fd);
	else if (created)
		soda_beneath_settle(files->dir, req->name);
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

	/* The one user of a copy pays until it is gone; of several each pays as long as it is open.
	 */
	if (file->mode != SODA_READ_ONLY) {
		put(files, file, account);
		return;
	}
	put(files, file, NULL);
	soda_account_refund(files->store, account, cost);
}
