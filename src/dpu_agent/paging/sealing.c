/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/sealing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "dpu_agent/base/options.h"
#include "dpu_agent/paging/paging.h"

#define PENDING (1ull << 63)
#define ZERO (1ull << 62)
#define MAGIC 0x536f64615365616cull

enum { PAGE = 4096, FORMAT = 2, NAME = 40, AWAIT_MS = 5000 };

struct block {
	uint8_t tag[SODA_SEAL_TAG];
	uint64_t version;
};

enum { PER_PAGE = PAGE / sizeof(struct block) };

/* The file's first page; pages of PER_PAGE blocks follow. */
struct head {
	uint64_t magic, format, bytes; /* of the region */
	uint64_t orphaned;	       /* blocks without a version are lost, not zeros */
	_Atomic uint64_t versions;     /* that were drawn: each by one encryption */
	uint8_t key[SODA_KEY_BYTES];
	uint64_t cipher; /* an agent that finds another one faster goes on with this one */
};

struct soda_sealing {
	struct soda_sealing *next_live; /* guarded by the sealer's lock */
	struct soda_sealer *sealer;
	struct soda_sealing *next; /* while it is parked */
	uint64_t parked_ms;	   /* since when it is */
	uint64_t client;
	uint16_t region;
	int fd;
	struct head *head;
	uint64_t map_bytes, blocks;
	struct soda_seal_key key;
	pthread_mutex_t lock;
	uint8_t *filled;    /* a bit for each page that has memory; guarded by lock, and so below */
	uint64_t metadata;  /* bytes */
	uint64_t disturbed; /* the version when a DISCARD began or ended last */
	unsigned discards;  /* under way */
	bool told;	    /* that blocks are lost with the agent before this one */
};

/* The directory */

static int refuse_dir(const char *path, const char *text)
{
	soda_log_error("--seal-state %s: %s", path, text);
	return -EINVAL;
}

/* Keys never lie on a disk, and nobody else reads them. */
static int open_dir(struct soda_sealer *sealer, const char *path)
{
	struct statfs fs;
	struct stat st;

	sealer->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (sealer->dir < 0) {
		soda_log_error("--seal-state %s: %s", path, soda_strerror(-errno));
		return -EINVAL;
	}
	if (fstatfs(sealer->dir, &fs) || fs.f_type != TMPFS_MAGIC)
		return refuse_dir(path, "keys lie there, so it must be on a tmpfs, as /run is");
	if (fstat(sealer->dir, &st) || st.st_uid != geteuid() || st.st_mode & 077)
		return refuse_dir(path, "keys lie there, so it must belong to the user of the agent"
					", with mode 0700");
	if (flock(sealer->dir, LOCK_EX | LOCK_NB))
		return refuse_dir(path, "another agent uses it: each needs one of its own");
	return 0;
}

int soda_sealer_start(struct soda_sealer *sealer, const struct soda_dpu_options *opt)
{
	struct soda_conf_error err = { "" };
	const char *cipher = "";
	int ret;

	*sealer = (struct soda_sealer){ .on = opt->seal,
					.dir = -1,
					.limit = opt->seal_memory,
					.keep_ms = opt->seal_keep_ms,
					.started_ms = soda_now_ms() };
	pthread_mutex_init(&sealer->lock, NULL);
	sealer->parked_end = &sealer->parked;
	if (!opt->seal)
		return 0;
	if (opt->base || !opt->async) {
		soda_log_error("--seal needs --async, and is not for --base");
		return -EINVAL;
	}
	ret = soda_seal_ready(&cipher, &err);
	if (ret < 0) {
		soda_log_error("--seal: %s", err.text);
		return ret;
	}
	if (opt->seal_state && *opt->seal_state)
		ret = open_dir(sealer, opt->seal_state);
	if (ret == 0)
		soda_log_info("sealing with %s; %s", cipher,
			      sealer->dir < 0 ? "without --seal-state what is sealed is lost, with "
						"SIGBUS, if this agent dies"
					      : "the next agent finds the keys in --seal-state");
	return ret;
}

static void name_of(uint64_t client, uint16_t region, char out[NAME])
{
	snprintf(out, NAME, "%016llx-%u", (unsigned long long)client, region);
}

/* One region */

static uint64_t file_bytes(uint64_t blocks)
{
	return (1 + (blocks + PER_PAGE - 1) / PER_PAGE) * PAGE;
}

static int make_file(const struct soda_sealer *sealer, const char *name, bool known)
{
	int fd;

	if (sealer->dir < 0)
		return known ? -ENOENT : memfd_create("soda-sealing", MFD_CLOEXEC);
	if (!known)
		unlinkat(sealer->dir, name, 0);
	fd = openat(sealer->dir, name,
		    known ? O_RDWR | O_CLOEXEC | O_NOFOLLOW
			  : O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	return fd < 0 ? -errno : fd;
}

static void free_sealing(struct soda_sealing *s)
{
	soda_wipe(&s->key, sizeof(s->key));
	if (s->head)
		munmap(s->head, s->map_bytes);
	if (s->fd >= 0)
		close(s->fd);
	pthread_mutex_destroy(&s->lock);
	free(s->filled);
	free(s);
}

/* The page of the table has memory from now on: a store there would else be a SIGBUS of ours. */
static int fill_page(struct soda_sealing *s, uint64_t page)
{
	if (s->filled[page / 8] >> page % 8 & 1)
		return 0;
	if (fallocate(s->fd, 0, (off_t)(page * PAGE), PAGE))
		return -errno;
	s->filled[page / 8] |= (uint8_t)(1u << page % 8);
	s->metadata += PAGE;
	atomic_fetch_add_explicit(&s->sealer->metadata, PAGE, memory_order_relaxed);
	return 0;
}

/* Which pages an earlier agent has filled: reading the others would give them memory. */
static void find_filled(struct soda_sealing *s)
{
	off_t at = 0, end = (off_t)s->map_bytes;

	while ((at = lseek(s->fd, at, SEEK_DATA)) >= 0 && at < end) {
		off_t hole = lseek(s->fd, at, SEEK_HOLE);

		for (off_t page = at / PAGE; page < hole / PAGE; page++)
			fill_page(s, (uint64_t)page);
		at = hole;
	}
}

static int map_file(struct soda_sealing *s, bool known, uint64_t bytes)
{
	struct stat st;
	int ret;

	if (fstat(s->fd, &st))
		return -errno;
	if (known && st.st_size != (off_t)s->map_bytes)
		return -ENOENT;
	if (!known && ftruncate(s->fd, (off_t)s->map_bytes))
		return -errno;
	s->head = mmap(NULL, s->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		       s->fd, 0);
	if (s->head == MAP_FAILED) {
		s->head = NULL;
		return -ENOMEM;
	}
	madvise(s->head, s->map_bytes, MADV_DONTDUMP);
	madvise(s->head, s->map_bytes, MADV_DONTFORK);
	if (known)
		find_filled(s);
	ret = fill_page(s, 0);
	if (ret == 0 && known &&
	    (s->head->magic != MAGIC || s->head->format != FORMAT || s->head->bytes != bytes ||
	     s->head->cipher >= SODA_SEAL_CIPHERS || !soda_seal_has((uint32_t)s->head->cipher)))
		ret = -ENOENT;
	return ret;
}

static int fill_head(struct soda_sealing *s, uint64_t bytes, bool orphaned)
{
	int ret = soda_random(s->head->key, sizeof(s->head->key));

	s->head->bytes = bytes;
	s->head->cipher = soda_seal_fastest();
	s->head->format = FORMAT;
	s->head->orphaned = orphaned;
	s->head->magic = ret ? 0 : MAGIC;
	return ret;
}

/*
 * Live: a session has it, or is about to, so that its file stays.  Not those that are parked: each
 * is one or the other from its making on.
 */

static void add_live_locked(struct soda_sealer *sealer, struct soda_sealing *s)
{
	s->next_live = sealer->live;
	sealer->live = s;
}

static void remove_live_locked(struct soda_sealer *sealer, const struct soda_sealing *s)
{
	struct soda_sealing **at = &sealer->live;

	while (*at && *at != s)
		at = &(*at)->next_live;
	if (*at)
		*at = s->next_live;
}

/* A new one, whose key has a serial number of its own. */
static void add_new(struct soda_sealer *sealer, struct soda_sealing *s)
{
	pthread_mutex_lock(&sealer->lock);
	s->key.serial = ++sealer->serials;
	add_live_locked(sealer, s);
	pthread_mutex_unlock(&sealer->lock);
}

static void remove_live(struct soda_sealer *sealer, const struct soda_sealing *s)
{
	pthread_mutex_lock(&sealer->lock);
	remove_live_locked(sealer, s);
	pthread_mutex_unlock(&sealer->lock);
}

/* known: the file that an agent before this one has made; -ENOENT: there is none. */
static int make(struct soda_sealer *sealer, uint64_t client, uint16_t region, uint64_t bytes,
		bool known, bool orphaned, struct soda_sealing **s_p)
{
	struct soda_sealing *s = calloc(1, sizeof(*s));
	char name[NAME];
	int ret;

	if (!s)
		return -ENOMEM;
	*s = (struct soda_sealing){
		.sealer = sealer, .client = client, .region = region, .fd = -1
	};
	pthread_mutex_init(&s->lock, NULL);
	s->blocks = (bytes + SODA_SEAL_BLOCK - 1) / SODA_SEAL_BLOCK;
	s->map_bytes = file_bytes(s->blocks);
	s->filled = calloc(1, s->map_bytes / PAGE / 8 + 1);
	name_of(client, region, name);
	add_new(sealer, s);
	ret = s->fd = s->filled ? make_file(sealer, name, known) : -ENOMEM;
	if (ret >= 0)
		ret = map_file(s, known, bytes);
	if (ret == 0 && !known)
		ret = fill_head(s, bytes, orphaned);
	if (ret < 0) {
		remove_live(sealer, s);
		atomic_fetch_sub(&sealer->metadata, s->metadata);
		free_sealing(s);
		return ret;
	}
	memcpy(s->key.key, s->head->key, sizeof(s->key.key));
	s->key.cipher = (enum soda_seal_cipher)s->head->cipher;
	*s_p = s;
	return 0;
}

/*
 * No agent finds the key any more. With the lock by which s stopped to be live or parked, so that a
 * client that comes back at this moment has all of it or nothing.
 */
static void erase_locked(struct soda_sealing *s)
{
	const struct soda_sealer *sealer = s->sealer;
	char name[NAME];

	name_of(s->client, s->region, name);
	soda_wipe(s->head->key, sizeof(s->head->key));
	if (sealer->dir >= 0)
		unlinkat(sealer->dir, name, 0);
}

/* s is neither live nor parked. The sealer's lock is not held. */
static void destroy(struct soda_sealing *s)
{
	struct soda_sealer *sealer = s->sealer;

	pthread_mutex_lock(&sealer->lock);
	sealer->reserved -= s->map_bytes;
	pthread_mutex_unlock(&sealer->lock);
	atomic_fetch_sub(&sealer->metadata, s->metadata);
	free_sealing(s);
}

static struct soda_sealing *unpark_locked(struct soda_sealer *sealer, struct soda_sealing **at)
{
	struct soda_sealing *s = *at;

	*at = s->next;
	if (!*at)
		sealer->parked_end = at;
	s->next = NULL;
	return s;
}

/* What is parked of that region is live from now on. NULL: nothing is. */
static struct soda_sealing *take_parked(struct soda_sealer *sealer, uint64_t client,
					uint16_t region)
{
	struct soda_sealing **at = &sealer->parked, *s = NULL;

	pthread_mutex_lock(&sealer->lock);
	while (*at && ((*at)->client != client || (*at)->region != region))
		at = &(*at)->next;
	if (*at) {
		s = unpark_locked(sealer, at);
		add_live_locked(sealer, s);
	}
	pthread_mutex_unlock(&sealer->lock);
	return s;
}

static bool is_live_locked(const struct soda_sealer *sealer, uint64_t client, uint16_t region)
{
	const struct soda_sealing *at = sealer->live;

	while (at && (at->client != client || at->region != region))
		at = at->next_live;
	return at;
}

static bool is_parked_locked(const struct soda_sealer *sealer, uint64_t client, uint16_t region)
{
	const struct soda_sealing *at = sealer->parked;

	while (at && (at->client != client || at->region != region))
		at = at->next;
	return at;
}

static bool is_live(struct soda_sealer *sealer, uint64_t client, uint16_t region)
{
	bool live;

	pthread_mutex_lock(&sealer->lock);
	live = is_live_locked(sealer, client, region);
	pthread_mutex_unlock(&sealer->lock);
	return live;
}

/*
 * A client that comes back may be faster than the end of the session that it had, which parks what
 * was sealed: that is awaited.
 */
static struct soda_sealing *await_parked(struct soda_sealer *sealer, uint64_t client,
					 uint16_t region)
{
	struct soda_sealing *parked = take_parked(sealer, client, region);

	for (int ms = 0; !parked && ms < AWAIT_MS && is_live(sealer, client, region); ms++) {
		poll(NULL, 0, 1);
		parked = take_parked(sealer, client, region);
	}
	/* between the two looks it may have been parked */
	return parked ? parked : take_parked(sealer, client, region);
}

/* What is parked longest: the caller destroys it. NULL: nothing is. */
static struct soda_sealing *forget_parked_locked(struct soda_sealer *sealer)
{
	struct soda_sealing *oldest = NULL;

	if (sealer->parked) {
		oldest = unpark_locked(sealer, &sealer->parked);
		erase_locked(oldest);
	}
	return oldest;
}

/* Room for a table, for which what is parked longest may go. */
static int reserve(struct soda_sealer *sealer, uint64_t bytes, struct soda_why *why)
{
	struct soda_sealing *oldest;
	bool fits;

	do {
		pthread_mutex_lock(&sealer->lock);
		oldest = NULL;
		fits = bytes <= sealer->limit && sealer->reserved <= sealer->limit - bytes;
		if (fits)
			sealer->reserved += bytes;
		else
			oldest = forget_parked_locked(sealer);
		pthread_mutex_unlock(&sealer->lock);
		if (oldest)
			destroy(oldest);
	} while (!fits && oldest);
	if (!fits)
		snprintf(why->text, sizeof(why->text),
			 "no room for the versions and tags of a sealed region, %llu bytes: give "
			 "the agent more --seal-memory",
			 (unsigned long long)bytes);
	return fits ? 0 : -ENOMEM;
}

static int begin(struct soda_sealer *sealer, uint64_t client, uint16_t region, uint64_t bytes,
		 bool known, struct soda_sealing **s_p)
{
	int ret = -ENOENT;

	if (known && sealer->dir >= 0)
		ret = make(sealer, client, region, bytes, true, false, s_p);
	if (ret == -ENOENT)
		ret = make(sealer, client, region, bytes, false, known, s_p);
	return ret;
}

static void forget_live(struct soda_sealing *s)
{
	struct soda_sealer *sealer = s->sealer;

	pthread_mutex_lock(&sealer->lock);
	remove_live_locked(sealer, s);
	erase_locked(s);
	pthread_mutex_unlock(&sealer->lock);
	destroy(s);
}

int soda_sealing_begin(struct soda_sealer *sealer, uint64_t client, uint16_t region, uint64_t bytes,
		       bool known, struct soda_sealing **s_p, struct soda_why *why)
{
	uint64_t table = file_bytes((bytes + SODA_SEAL_BLOCK - 1) / SODA_SEAL_BLOCK);
	struct soda_sealing *parked =
		known ? await_parked(sealer, client, region) : take_parked(sealer, client, region);
	int ret;

	if (parked && known && parked->head->bytes == bytes) {
		*s_p = parked;
		return 0;
	}
	if (parked)
		forget_live(parked);
	ret = reserve(sealer, table, why);
	if (ret < 0)
		return ret;
	ret = begin(sealer, client, region, bytes, known, s_p);
	if (ret < 0) {
		pthread_mutex_lock(&sealer->lock);
		sealer->reserved -= table;
		pthread_mutex_unlock(&sealer->lock);
		snprintf(why->text, sizeof(why->text),
			 "no memory for the versions and tags of a sealed region: %s",
			 soda_strerror(ret));
	}
	return ret;
}

bool soda_sealing_exists(struct soda_sealer *sealer, uint64_t client, uint16_t region)
{
	char name[NAME];
	bool parked;

	pthread_mutex_lock(&sealer->lock);
	parked = is_parked_locked(sealer, client, region);
	pthread_mutex_unlock(&sealer->lock);
	name_of(client, region, name);
	return parked || (sealer->dir >= 0 && faccessat(sealer->dir, name, F_OK, 0) == 0);
}

void soda_sealing_end(struct soda_sealing *s, bool park)
{
	struct soda_sealer *sealer;

	if (!s)
		return;
	sealer = s->sealer;
	if (!park) {
		forget_live(s);
		return;
	}
	pthread_mutex_lock(&sealer->lock);
	remove_live_locked(sealer, s);
	s->parked_ms = soda_now_ms();
	*sealer->parked_end = s;
	sealer->parked_end = &s->next;
	pthread_mutex_unlock(&sealer->lock);
}

/* Clients that do not come back */

/* A file of an agent before this one. What has another name is not ours to remove. */
static void sweep_file(struct soda_sealer *sealer, const char *file)
{
	uint64_t client;
	uint16_t region;
	char name[NAME];

	if (sscanf(file, "%16" SCNx64 "-%5" SCNu16, &client, &region) != 2)
		return;
	name_of(client, region, name);
	pthread_mutex_lock(&sealer->lock);
	if (!strcmp(file, name) && !is_live_locked(sealer, client, region) &&
	    !is_parked_locked(sealer, client, region))
		unlinkat(sealer->dir, name, 0);
	pthread_mutex_unlock(&sealer->lock);
}

static void sweep(struct soda_sealer *sealer)
{
	int fd = openat(sealer->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		sweep_file(sealer, e->d_name);
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
}

static struct soda_sealing *expired(struct soda_sealer *sealer, uint64_t now_ms)
{
	struct soda_sealing *s = NULL;

	pthread_mutex_lock(&sealer->lock);
	if (sealer->parked && now_ms > sealer->parked->parked_ms + sealer->keep_ms)
		s = forget_parked_locked(sealer);
	pthread_mutex_unlock(&sealer->lock);
	return s;
}

void soda_sealer_expire(struct soda_sealer *sealer, uint64_t now_ms)
{
	struct soda_sealing *s;

	if (!sealer->on)
		return;
	while ((s = expired(sealer, now_ms)))
		destroy(s);
	if (sealer->dir >= 0 && !sealer->swept && now_ms > sealer->started_ms + sealer->keep_ms) {
		sweep(sealer);
		sealer->swept = true;
	}
}

/* Files stay: of clients that live on, and come back to the next agent. */
void soda_sealer_stop(struct soda_sealer *sealer)
{
	while (sealer->parked)
		destroy(unpark_locked(sealer, &sealer->parked));
	if (sealer->on && sealer->dir >= 0)
		close(sealer->dir);
	pthread_mutex_destroy(&sealer->lock);
}

/* The table; the region's lock is held */

static struct block *entry(const struct soda_sealing *s, uint64_t i)
{
	char *page = (char *)s->head + (1 + i / PER_PAGE) * PAGE;

	return (struct block *)page + i % PER_PAGE;
}

static struct block load_locked(const struct soda_sealing *s, uint64_t i)
{
	uint64_t page = 1 + i / PER_PAGE;

	if (s->filled[page / 8] >> page % 8 & 1)
		return *entry(s, i);
	return (struct block){ .version = 0 };
}

static int fill_range(struct soda_sealing *s, uint64_t first, uint64_t n)
{
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	for (uint64_t page = first / PER_PAGE; page <= (first + n - 1) / PER_PAGE && !ret; page++)
		ret = fill_page(s, page + 1);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/* Transfers */

static uint64_t first_block(const struct soda_transfer *t)
{
	return t->offset / SODA_SEAL_BLOCK;
}

static uint64_t blocks_of(const struct soda_transfer *t)
{
	return t->bytes / SODA_SEAL_BLOCK;
}

/*
 * The versions are drawn here and nowhere else, and before the encryption: whatever becomes of it,
 * they are not drawn again.
 */
static int seal(struct soda_seal_engine *engine, struct soda_transfer *t)
{
	struct soda_sealing *s = t->region->sealing;
	uint64_t first = first_block(t), n = blocks_of(t);

	/* with the lock, so that a READ that is posted meanwhile has seen them drawn and PENDING */
	pthread_mutex_lock(&s->lock);
	t->version = atomic_fetch_add_explicit(&s->head->versions, n, memory_order_relaxed) + 1;
	for (uint64_t i = 0; i < n; i++)
		entry(s, first + i)->version = (t->version + i) | PENDING;
	pthread_mutex_unlock(&s->lock);
	for (uint64_t i = 0; i < n; i++) {
		size_t at = i * SODA_SEAL_BLOCK;
		struct block b = { .version = (t->version + i) | PENDING };

		if (soda_seal_block(engine, &s->key, (uint32_t)(first + i), t->version + i,
				    t->memory + at, t->sealed->memory + at, b.tag))
			return -EIO;
		pthread_mutex_lock(&s->lock);
		*entry(s, first + i) = b;
		pthread_mutex_unlock(&s->lock);
	}
	atomic_fetch_add_explicit(&s->sealer->sealed, t->bytes, memory_order_relaxed);
	return 0;
}

static void note_read(struct soda_transfer *t)
{
	struct soda_sealing *s = t->region->sealing;
	uint64_t first = first_block(t), n = blocks_of(t);

	pthread_mutex_lock(&s->lock);
	t->version = atomic_load_explicit(&s->head->versions, memory_order_relaxed);
	t->racing = s->discards;
	for (uint64_t i = 0; i < n && !t->racing; i++)
		t->racing = load_locked(s, first + i).version & PENDING;
	pthread_mutex_unlock(&s->lock);
}

int soda_sealing_post(struct soda_seal_engine *engine, struct soda_transfer *t)
{
	int ret;

	t->damaged = 0;
	if (!t->write) {
		note_read(t);
		return 0;
	}
	ret = fill_range(t->region->sealing, first_block(t), blocks_of(t));
	if (ret < 0)
		return ret;
	t->sealed = soda_block_get(t->bytes);
	if (!t->sealed)
		return -ENOMEM;
	ret = seal(engine, t);
	if (ret < 0)
		soda_sealing_release(t);
	return ret;
}

void soda_sealing_release(struct soda_transfer *t)
{
	if (t->sealed)
		soda_block_put(t->sealed);
	t->sealed = NULL;
}

static void settle_write(struct soda_transfer *t)
{
	struct soda_sealing *s = t->region->sealing;
	uint64_t first = first_block(t), n = blocks_of(t);

	soda_sealing_release(t);
	pthread_mutex_lock(&s->lock);
	for (uint64_t i = 0; i < n; i++) {
		struct block *b = entry(s, first + i);

		if (b->version == ((t->version + i) | PENDING))
			b->version = t->version + i;
	}
	pthread_mutex_unlock(&s->lock);
}

static bool has_changed_locked(const struct soda_sealing *s, const struct soda_transfer *t,
			       const struct block *b)
{
	return t->racing || b->version & PENDING || (b->version & ~ZERO) > t->version ||
	       s->disturbed > t->version || s->discards;
}

/* One block of a READ, in place. 0, -EAGAIN, -EIO. */
static int open_one(struct soda_seal_engine *engine, struct soda_transfer *t, uint64_t i)
{
	struct soda_sealing *s = t->region->sealing;
	uint8_t *at = t->memory + i * SODA_SEAL_BLOCK;
	uint32_t number = (uint32_t)(first_block(t) + i);
	struct block b;
	bool changed;

	pthread_mutex_lock(&s->lock);
	b = load_locked(s, number);
	changed = has_changed_locked(s, t, &b);
	pthread_mutex_unlock(&s->lock);
	if (b.version == ZERO || (!b.version && !s->head->orphaned)) {
		memset(at, 0, SODA_SEAL_BLOCK);
		return 0;
	}
	if (b.version &&
	    !soda_open_block(engine, &s->key, number, b.version & ~PENDING, at, b.tag, at))
		return 0;
	if (changed)
		return -EAGAIN;
	t->damaged = number + 1ull;
	return -EIO;
}

int soda_sealing_ended(struct soda_seal_engine *engine, struct soda_transfer *t, int status)
{
	struct soda_sealing *s = t->region->sealing;
	int ret = status;

	if (t->write) {
		settle_write(t);
		return status;
	}
	for (uint64_t i = 0; i < blocks_of(t) && !ret; i++)
		ret = open_one(engine, t, i);
	if (!ret)
		atomic_fetch_add_explicit(&s->sealer->opened, t->bytes, memory_order_relaxed);
	if (t->damaged)
		atomic_fetch_add_explicit(&s->sealer->damaged, 1, memory_order_relaxed);
	return ret;
}

void soda_sealing_report(const struct soda_transfer *t, uint64_t client, const char *server)
{
	struct soda_sealing *s = t->region->sealing;
	uint64_t number = t->damaged - 1;
	struct block b;
	bool told;

	pthread_mutex_lock(&s->lock);
	b = load_locked(s, number);
	told = s->told;
	s->told = told || !b.version;
	pthread_mutex_unlock(&s->lock);
	if (b.version)
		soda_log_error("client %016llx: block %llu of region %u on %s is not what was sent "
			       "there: it was changed, and the program gets SIGBUS",
			       (unsigned long long)client, (unsigned long long)number, s->region,
			       server);
	else if (!told)
		soda_log_error("client %016llx: region %u on %s was sealed by an agent that has "
			       "ended, and its keys with it: what was not written since is lost, "
			       "SIGBUS; --seal-state keeps them",
			       (unsigned long long)client, s->region, server);
}

/* DISCARD */

static void disturb_locked(struct soda_sealing *s)
{
	s->disturbed = atomic_fetch_add(&s->head->versions, 1) + 1;
}

void soda_sealing_discard_begin(struct soda_sealing *s)
{
	pthread_mutex_lock(&s->lock);
	disturb_locked(s);
	s->discards++;
	pthread_mutex_unlock(&s->lock);
}

void soda_sealing_discard_end(struct soda_sealing *s, uint64_t offset, uint64_t bytes, bool done)
{
	uint64_t first = offset / SODA_SEAL_BLOCK, n = bytes / SODA_SEAL_BLOCK;
	bool orphaned = s->head->orphaned;

	if (done && orphaned && fill_range(s, first, n) < 0)
		done = false; /* then it stays lost, which is no zeros and no content */
	pthread_mutex_lock(&s->lock);
	for (uint64_t i = first; done && i < first + n; i++)
		if (orphaned || load_locked(s, i).version)
			*entry(s, i) = (struct block){ .version = orphaned ? ZERO : 0 };
	disturb_locked(s);
	s->discards--;
	pthread_mutex_unlock(&s->lock);
}

void soda_sealer_walk(struct soda_sealer *sealer, struct soda_metrics *m)
{
	static const struct soda_metric counts[] = {
		{ .key = "sealed_bytes", .help = "data encrypted", .unit = SODA_UNIT_BYTES },
		{ .key = "opened_bytes", .help = "data decrypted", .unit = SODA_UNIT_BYTES },
		{ .key = "seal_damaged", .help = "reads of blocks that are not what was sent" },
	};

	soda_metrics_say_flag(m, "seal", "whether what programs write is sealed", sealer->on);
	if (!sealer->on)
		return;
	soda_metrics_number(m, &counts[0], atomic_load(&sealer->sealed));
	soda_metrics_number(m, &counts[1], atomic_load(&sealer->opened));
	soda_metrics_number(m, &counts[2], atomic_load(&sealer->damaged));
	soda_metrics_say_size(m, "seal_metadata_bytes", "memory of versions and tags",
			      atomic_load(&sealer->metadata));
}
