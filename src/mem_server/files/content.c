/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem_server/files/content.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wait.h"
#include "mem_server/base/counters.h"
#include "trust/crypto.h"
#include "wire/sealed_file.h"

enum {
	AT_ONCE = 1 << 20, /* bytes of a small file */
	PIECE = 1 << 20,   /* bytes between two looks at whether it is still wanted */
	KNOWN = 256,	   /* results that are remembered */
	JOBS_MAX = 64,	   /* who asks for more is told to ask again */
	LOW_PRIORITY = 10, /* setpriority(2) */
};

/* The first bytes of one version of a file. */
struct key {
	struct soda_file_version version;
	uint64_t bytes;
};

struct known {
	struct key key;
	uint8_t hash[SODA_WIRE_HASH_BYTES];
};

/* One to compute: of memory, whose file has a reference for it, or of a file's descriptor. */
struct job {
	struct job *next;
	struct key key;
	struct soda_file *file; /* NULL: fd */
	int fd;
};

struct soda_contents {
	struct soda_files *files;
	pthread_mutex_t lock; /* a leaf; guards all below */
	pthread_cond_t changed;
	pthread_t thread;
	bool runs;
	_Atomic bool stopping;
	struct job *jobs; /* the first is being computed */
	unsigned jobs_n;
	struct known known[KNOWN];
	unsigned known_n; /* that there ever were; a later one takes the place of the oldest */
};

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool same_key(const struct key *a, const struct key *b)
{
	return a->version.dev == b->version.dev && a->version.ino == b->version.ino &&
	       a->version.size == b->version.size &&
	       same_time(&a->version.mtime, &b->version.mtime) &&
	       same_time(&a->version.ctime, &b->version.ctime) && a->bytes == b->bytes;
}

static struct key key_of(const struct stat *st, uint64_t bytes)
{
	return (struct key){
		.version = { st->st_dev, st->st_ino, (uint64_t)st->st_size, st->st_mtim,
			     st->st_ctim },
		.bytes = bytes ? bytes : (uint64_t)st->st_size,
	};
}

static struct key key_of_file(const struct soda_file *file)
{
	return (struct key){ file->version, file->bytes };
}

/* What is remembered. */

static const struct known *find_locked(const struct soda_contents *c, const struct key *key)
{
	unsigned n = c->known_n < KNOWN ? c->known_n : KNOWN;

	for (unsigned i = 0; i < n; i++)
		if (same_key(&c->known[i].key, key))
			return &c->known[i];
	return NULL;
}

static void remember(struct soda_contents *c, const struct job *job, const uint8_t *hash)
{
	struct known *k;

	pthread_mutex_lock(&c->lock);
	if (job->file) {
		memcpy(job->file->hash, hash, sizeof(job->file->hash));
		job->file->hashed = true;
	}
	if (!find_locked(c, &job->key)) {
		k = &c->known[c->known_n++ % KNOWN];
		k->key = job->key;
		memcpy(k->hash, hash, sizeof(k->hash));
		if (c->known_n == 2 * KNOWN) /* all places have been taken, as before */
			c->known_n = KNOWN;
	}
	pthread_mutex_unlock(&c->lock);
	soda_count_add(SODA_COUNT_files_hashed, 1);
	soda_count_add(SODA_COUNT_bytes_hashed, job->key.bytes);
}

/* Computing. */

/* The next bytes, in the file's memory or in `buffer`. NULL: they cannot be read. */
static const void *piece(const struct job *job, uint64_t at, size_t bytes, void *buffer)
{
	char *to = buffer;

	if (job->file)
		return job->file->memory.map + at;
	for (size_t had = 0; had < bytes;) {
		ssize_t n = pread(job->fd, to + had, bytes - had, (off_t)(at + had));

		if (n <= 0)
			return NULL;
		had += (size_t)n;
	}
	return buffer;
}

static bool unwanted(struct soda_contents *c, const struct job *job)
{
	return atomic_load(&c->stopping) || (job->file && !soda_file_in_use(c->files, job->file));
}

static int digest_all(struct soda_contents *c, const struct job *job, struct soda_digest *digest,
		      void *buffer)
{
	int r = 0;

	for (uint64_t at = 0; at < job->key.bytes && !r; at += PIECE) {
		uint64_t left = job->key.bytes - at;
		size_t n = left < PIECE ? (size_t)left : PIECE;
		const void *data = unwanted(c, job) ? NULL : piece(job, at, n, buffer);

		r = data ? soda_digest_add(digest, data, n) : -ECANCELED;
	}
	return r;
}

/* Whether the file is still as it was when the job began; its memory never changes. */
static bool unchanged(const struct job *job)
{
	struct key now;
	struct stat st;

	if (job->file)
		return true;
	if (fstat(job->fd, &st))
		return false;
	now = key_of(&st, job->key.bytes);
	return same_key(&now, &job->key);
}

/* 0; -ECANCELED: nobody waits for it, or the file changes, or cannot be read: ask again. */
static int compute(struct soda_contents *c, const struct job *job)
{
	uint8_t hash[SODA_WIRE_HASH_BYTES];
	void *buffer = job->file ? NULL : malloc(PIECE);
	struct soda_digest *digest;
	int r = job->file || buffer ? soda_digest_begin(&digest) : -ENOMEM;

	if (!r) {
		r = digest_all(c, job, digest, buffer);
		if (soda_digest_end(digest, r ? NULL : hash) && !r)
			r = -EIO;
	}
	free(buffer);
	if (!r && !unchanged(job))
		r = -ECANCELED;
	if (!r)
		remember(c, job, hash);
	return r;
}

static void end_job(struct soda_contents *c, const struct job *job)
{
	if (job->file)
		soda_file_drop(c->files, job->file);
	else
		close(job->fd);
}

static void *work(void *arg)
{
	struct soda_contents *c = arg;

	pthread_setname_np(pthread_self(), "soda-content");
	if (setpriority(PRIO_PROCESS, (id_t)gettid(), LOW_PRIORITY))
		soda_log_debug("files' contents are hashed at the server's own priority");
	pthread_mutex_lock(&c->lock);
	while (!atomic_load(&c->stopping)) {
		struct job *job = c->jobs;

		if (!job) {
			pthread_cond_wait(&c->changed, &c->lock);
			continue;
		}
		pthread_mutex_unlock(&c->lock);
		compute(c, job);
		end_job(c, job);
		pthread_mutex_lock(&c->lock);
		c->jobs = job->next;
		c->jobs_n--;
		free(job);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* The beginning and the end. */

static struct soda_contents *begin(struct soda_files *files)
{
	struct soda_contents *c;

	pthread_mutex_lock(&files->lock);
	c = files->contents;
	if (!c && !files->ending) {
		c = calloc(1, sizeof(*c));
		if (c) {
			c->files = files;
			pthread_mutex_init(&c->lock, NULL);
			pthread_cond_init(&c->changed, NULL);
			files->contents = c;
		}
	}
	pthread_mutex_unlock(&files->lock);
	return c;
}

void soda_contents_stop(struct soda_files *files)
{
	struct soda_contents *c;

	pthread_mutex_lock(&files->lock);
	files->ending = true;
	c = files->contents;
	pthread_mutex_unlock(&files->lock);
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	atomic_store(&c->stopping, true);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (c->runs)
		soda_wait_join(c->thread, "the hash of a file's content to be given up");
	for (struct job *job = c->jobs, *next; job; job = next) {
		next = job->next;
		end_job(c, job);
		free(job);
	}
	c->jobs = NULL;
}

/* Asking. */

static bool is_queued_locked(const struct soda_contents *c, const struct key *key)
{
	for (const struct job *job = c->jobs; job; job = job->next)
		if (same_key(&job->key, key))
			return true;
	return false;
}

/* Takes the job's reference or descriptor over. false: there are too many, or no memory. */
static bool queue_locked(struct soda_contents *c, const struct job *like)
{
	struct job *job, **at = &c->jobs;

	if (atomic_load(&c->stopping) || c->jobs_n == JOBS_MAX)
		return false;
	if (!c->runs && pthread_create(&c->thread, NULL, work, c))
		return false;
	c->runs = true;
	job = malloc(sizeof(*job));
	if (!job)
		return false;
	*job = *like;
	while (*at)
		at = &(*at)->next;
	*at = job;
	c->jobs_n++;
	pthread_cond_signal(&c->changed);
	return true;
}

/* true: *content_p is known. */
static bool is_known(struct soda_contents *c, const struct job *job,
		     struct soda_wire_content *content_p)
{
	const uint8_t *hash = NULL;
	const struct known *k;

	*content_p = (struct soda_wire_content){ .state = SODA_WIRE_CONTENT_COMPUTING,
						 .kind = SODA_WIRE_CONTENT_SHA256 };
	pthread_mutex_lock(&c->lock);
	if (job->file && job->file->hashed)
		hash = job->file->hash;
	else if ((k = find_locked(c, &job->key)))
		hash = k->hash;
	if (hash) {
		content_p->state = SODA_WIRE_CONTENT_KNOWN;
		content_p->file_bytes = job->key.version.size;
		memcpy(content_p->hash, hash, sizeof(content_p->hash));
	}
	pthread_mutex_unlock(&c->lock);
	return hash;
}

/* The job's reference or descriptor is taken over. */
static int ask(struct soda_contents *c, const struct job *job, struct soda_wire_content *content_p)
{
	bool taken = false;

	if (!is_known(c, job, content_p)) {
		if (job->key.bytes <= AT_ONCE) {
			if (!compute(c, job))
				is_known(c, job, content_p);
		} else {
			pthread_mutex_lock(&c->lock);
			taken = !is_queued_locked(c, &job->key) && queue_locked(c, job);
			pthread_mutex_unlock(&c->lock);
		}
	}
	if (!taken)
		end_job(c, job);
	return 0;
}

static int refuse_without(const struct soda_contents *c, struct soda_why *why)
{
	struct soda_conf_error err = { "" };

	if (!c) {
		soda_server_why(why, "the server is ending, or out of memory");
		return -ESHUTDOWN;
	}
	if (soda_crypto_ready(&err)) {
		soda_server_why(why, "contents of files are compared by SHA-256: %s", err.text);
		return -ENOTSUP;
	}
	return 0;
}

int soda_content_of_file(struct soda_files *files, struct soda_file *file,
			 struct soda_wire_content *content_p, struct soda_why *why)
{
	struct soda_contents *c = begin(files);
	int r = refuse_without(c, why);

	if (r)
		return r;
	if (file->mode != SODA_WIRE_READ_ONLY || file->published) {
		soda_server_why(why, "only a file that is open READ_ONLY has one content");
		return -EINVAL;
	}
	soda_file_hold(files, file);
	return ask(c, &(struct job){ .key = key_of_file(file), .file = file, .fd = -1 }, content_p);
}

/* For an agent that seals: it asks for bytes of the object, of which it opens all of the file. */
static uint64_t bytes_to_compare(const struct soda_file_request *req, int fd, uint64_t size)
{
	uint8_t begin[SODA_SEALED_MAGIC_BYTES];

	if (!(req->flags & SODA_WIRE_SEALED_BY_AGENT) ||
	    pread(fd, begin, sizeof(begin), 0) != (ssize_t)sizeof(begin) ||
	    soda_sealed_kind(begin) != SODA_SEALED_FILE)
		return req->bytes;
	return size;
}

int soda_content_of_name(struct soda_files *files, const struct soda_file_request *req,
			 struct soda_wire_content *content_p, struct soda_why *why)
{
	struct soda_contents *c = begin(files);
	struct job job = { .file = NULL };
	struct stat st;
	int r = refuse_without(c, why);

	if (r)
		return r;
	job.fd = soda_files_find(files, req, why);
	if (job.fd < 0)
		return job.fd;
	r = fstat(job.fd, &st) ? -errno : 0;
	if (!r && (uint64_t)st.st_size < req->bytes) {
		soda_server_why(why, "%s: has fewer bytes than asked for", req->name);
		r = -EFBIG;
	}
	if (r) {
		close(job.fd);
		return r;
	}
	job.key = key_of(&st, bytes_to_compare(req, job.fd, (uint64_t)st.st_size));
	return ask(c, &job, content_p);
}
