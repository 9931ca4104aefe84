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
#include "dpu_agent/paging/sealing_impl.h"

#define MAGIC 0x536f64615365616cull

enum { PAGE = 4096, FORMAT = 3, NAME = 40, AWAIT_MS = 5000 };
enum { PER_PAGE = PAGE / sizeof(struct soda_sealing_block) };
enum { KEYS = SODA_SEALING_LIVES * sizeof(struct soda_seal_key) };
_Static_assert(KEYS <= (int)PAGE, "they have one page");

/* The directory */

static int refuse_dir(const char *path, const char *text)
{
	soda_log_error("--seal-state %s: %s", path, text);
	return -EINVAL;
}

/* Keys lie in memory, if that is not swapped, and nobody else reads them. Made where it is not. */
static int open_dir(struct soda_sealer *sealer, const char *path)
{
	struct statfs fs;
	struct stat st;

	if (!mkdir(path, 0700))
		soda_log_info("--seal-state %s: made", path);
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
	if (!opt->seal && opt->seal_key_file && *opt->seal_key_file) {
		soda_log_error("--seal-key-file is the key of an agent that seals: give it --seal");
		return -EINVAL;
	}
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
	if (opt->seal_key_file && *opt->seal_key_file) {
		ret = soda_sealed_key_read(opt->seal_key_file, &sealer->file_key, &err);
		if (ret < 0) {
			soda_log_error("--seal-key-file %s", err.text);
			return ret;
		}
		soda_secret_hide(&sealer->file_key, sizeof(sealer->file_key));
		sealer->files = true;
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

static uint64_t blocks_of_bytes(uint64_t bytes)
{
	return bytes / SODA_SEAL_BLOCK + (bytes % SODA_SEAL_BLOCK != 0);
}

static uint64_t entry_pages(uint64_t blocks)
{
	return (blocks + PER_PAGE - 1) / PER_PAGE;
}

/* What is to be sealed, or was by an agent before this one. */
struct wanted {
	uint64_t client;
	uint16_t region;
	uint64_t bytes; /* whole pages; of a file without header and table */
	bool known;	/* by the server: an agent before this one has opened it */
	bool file;
};

/* Of the state; the next agent needs what a file had when it was opened. */
static uint64_t state_bytes(const struct soda_sealer *sealer, const struct wanted *w)
{
	uint64_t pages = 1 + entry_pages(blocks_of_bytes(w->bytes));
	struct soda_sealed_layout layout;

	if (w->file && sealer->dir >= 0 && !soda_sealed_layout(w->bytes, &layout))
		pages += 1 + layout.table_pages;
	return pages * PAGE;
}

/*
 * The part of --seal-memory that is taken: the state, and in the agent's own memory keys, and the
 * table that a file has.
 */
static uint64_t cost(const struct soda_sealer *sealer, const struct wanted *w)
{
	uint64_t bytes = state_bytes(sealer, w) + PAGE;
	struct soda_sealed_layout layout;

	if (w->file && !soda_sealed_layout(w->bytes, &layout))
		bytes += layout.table_pages * PAGE;
	return bytes;
}

static int make_file(const struct soda_sealer *sealer, const char *name, bool known)
{
	int fd;

	if (sealer->dir < 0 && known)
		return -ENOENT;
	if (sealer->dir >= 0 && !known)
		unlinkat(sealer->dir, name, 0);
	fd = sealer->dir < 0 ? memfd_create("soda-sealing", MFD_CLOEXEC)
			     : openat(sealer->dir, name,
				      known ? O_RDWR | O_CLOEXEC | O_NOFOLLOW
					    : O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
				      0600);
	return fd < 0 ? -errno : fd;
}

static void free_sealing(struct soda_sealing *s)
{
	if (s->keys) {
		soda_wipe(s->keys, KEYS);
		munmap(s->keys, KEYS);
	}
	if (s->file)
		soda_sealed_file_end(s->file);
	free(s->file);
	free(s->changed);
	if (s->head)
		munmap(s->head, s->map_bytes);
	if (s->fd >= 0)
		close(s->fd);
	pthread_mutex_destroy(&s->lock);
	free(s->filled);
	free(s);
}

static bool is_filled(const struct soda_sealing *s, uint64_t page)
{
	return s->filled[page / 8] >> page % 8 & 1;
}

static void note_filled(struct soda_sealing *s, uint64_t page)
{
	s->filled[page / 8] |= (uint8_t)(1u << page % 8);
	s->metadata += PAGE;
	atomic_fetch_add_explicit(&s->sealer->metadata, PAGE, memory_order_relaxed);
}

/* The page of the table has memory from now on: a store there would else be a SIGBUS of ours. */
static int fill_page(struct soda_sealing *s, uint64_t page)
{
	if (is_filled(s, page))
		return 0;
	if (fallocate(s->fd, 0, (off_t)(page * PAGE), PAGE))
		return -errno;
	note_filled(s, page);
	return 0;
}

/*
 * Which pages an earlier agent has filled: reading the others would give them memory.  One that was
 * left out would be a table of zeros, and what it tells of were zeros to who reads it: an error.
 */
static int find_filled(struct soda_sealing *s)
{
	off_t at = 0, end = (off_t)s->map_bytes;

	while (at < end) {
		off_t hole;

		at = lseek(s->fd, at, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : -errno; /* ENXIO: there are no more */
		hole = lseek(s->fd, at, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		for (off_t page = at / PAGE; page < hole / PAGE; page++)
			note_filled(s, (uint64_t)page);
		at = hole;
	}
	return 0;
}

static int map_file(struct soda_sealing *s, const struct wanted *w, bool known)
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
	soda_secret_lock(s->head, sizeof(*s->head));
	ret = known ? find_filled(s) : 0;
	if (ret == 0)
		ret = fill_page(s, 0);
	if (ret == 0 && known &&
	    (s->head->magic != MAGIC || s->head->format != FORMAT || s->head->bytes != w->bytes ||
	     !s->head->file != !w->file || s->head->cipher >= SODA_SEAL_CIPHERS ||
	     !soda_seal_has((uint32_t)s->head->cipher)))
		ret = -ENOENT;
	return ret;
}

static void fill_head(struct soda_sealing *s, const struct wanted *w, bool orphaned)
{
	s->head->bytes = w->bytes;
	s->head->file = w->file;
	s->head->cipher = soda_seal_fastest();
	s->head->format = FORMAT;
	s->head->orphaned = orphaned;
	s->head->magic = MAGIC;
}

static struct soda_sealing_block *entry(const struct soda_sealing *s, uint64_t i)
{
	char *page = (char *)s->head + (1 + i / PER_PAGE) * PAGE;

	return (struct soda_sealing_block *)page + i % PER_PAGE;
}

/* Lives by which no block is sealed any more leave their places. Nobody else has s yet. */
static void reclaim_lives(struct soda_sealing *s)
{
	bool seen[SODA_SEALING_LIVES] = { false };

	for (uint64_t i = 0; i < s->blocks; i++) {
		uint64_t life;

		if (!is_filled(s, 1 + i / PER_PAGE)) {
			i += PER_PAGE - 1 - i % PER_PAGE;
			continue;
		}
		life = soda_sealing_life(entry(s, i)->version);
		if (life < SODA_SEALING_LIVES)
			seen[life] = true;
	}
	for (int i = 0; i < SODA_SEALING_LIVES; i++)
		if (!seen[i])
			soda_wipe(&s->head->lives[i], sizeof(s->head->lives[i]));
}

static int free_life(const struct soda_sealing *s)
{
	int i = 0;

	while (i < SODA_SEALING_LIVES && s->head->lives[i].used)
		i++;
	return i;
}

static void take_key(struct soda_sealing *s, uint32_t life)
{
	struct soda_seal_key *key = &s->keys[life];

	key->serial = soda_seal_serial();
	memcpy(key->key, s->head->lives[life].key, sizeof(key->key));
	key->cipher = (enum soda_seal_cipher)s->head->cipher;
}

/* From now on: with a key that nothing was ever sealed with. -ENOENT: there were too many lives. */
static int begin_life(struct soda_sealing *s)
{
	int life = free_life(s), ret;

	if (life == SODA_SEALING_LIVES) {
		reclaim_lives(s);
		life = free_life(s);
	}
	if (life == SODA_SEALING_LIVES) {
		soda_log_error("client %016llx: region %u has blocks of %d agents, and there is no "
			       "room for the key of one more: all of it is lost",
			       (unsigned long long)s->client, s->region, SODA_SEALING_LIVES);
		return -ENOENT;
	}
	s->keys = soda_secret_new(KEYS);
	if (!s->keys)
		return -ENOMEM;
	ret = soda_random(s->head->lives[life].key, sizeof(s->head->lives[life].key));
	if (ret < 0)
		return ret;
	s->head->lives[life].used = 1;
	s->life = (uint32_t)life;
	for (uint32_t i = 0; i < SODA_SEALING_LIVES; i++)
		if (s->head->lives[i].used)
			take_key(s, i);
	return 0;
}

/* NULL: of no agent that has left its key. */
static const struct soda_seal_key *key_of(const struct soda_sealing *s, uint64_t version)
{
	uint64_t life = soda_sealing_life(version);

	return life < SODA_SEALING_LIVES && s->keys[life].serial ? &s->keys[life] : NULL;
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

static void add_new(struct soda_sealer *sealer, struct soda_sealing *s)
{
	pthread_mutex_lock(&sealer->lock);
	add_live_locked(sealer, s);
	pthread_mutex_unlock(&sealer->lock);
}

static void remove_live(struct soda_sealer *sealer, const struct soda_sealing *s)
{
	pthread_mutex_lock(&sealer->lock);
	remove_live_locked(sealer, s);
	pthread_mutex_unlock(&sealer->lock);
}

/* found: the state that an agent before this one has made; -ENOENT: there is none. */
static int make(struct soda_sealer *sealer, const struct wanted *w, bool found,
		struct soda_sealing **s_p)
{
	struct soda_sealing *s = calloc(1, sizeof(*s));
	char name[NAME];
	int ret;

	if (!s)
		return -ENOMEM;
	*s = (struct soda_sealing){
		.sealer = sealer, .client = w->client, .region = w->region, .fd = -1
	};
	pthread_mutex_init(&s->lock, NULL);
	s->blocks = blocks_of_bytes(w->bytes);
	s->map_bytes = state_bytes(sealer, w);
	s->reserved = cost(sealer, w);
	s->filled = calloc(1, s->map_bytes / PAGE / 8 + 1);
	name_of(w->client, w->region, name);
	add_new(sealer, s);
	ret = s->fd = s->filled ? make_file(sealer, name, found) : -ENOMEM;
	if (ret >= 0)
		ret = map_file(s, w, found);
	if (ret == 0 && !found)
		fill_head(s, w, w->known);
	if (ret == 0)
		ret = begin_life(s);
	if (ret < 0) {
		remove_live(sealer, s);
		atomic_fetch_sub(&sealer->metadata, s->metadata);
		free_sealing(s);
		return ret;
	}
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
	soda_wipe(s->head->lives, sizeof(s->head->lives));
	if (sealer->dir >= 0)
		unlinkat(sealer->dir, name, 0);
}

/* s is neither live nor parked. The sealer's lock is not held. */
static void destroy(struct soda_sealing *s)
{
	struct soda_sealer *sealer = s->sealer;

	pthread_mutex_lock(&sealer->lock);
	sealer->reserved -= s->reserved;
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

/* Whether so many bytes fit once all that is parked has gone. */
static bool can_fit_locked(const struct soda_sealer *sealer, uint64_t bytes)
{
	uint64_t stays = sealer->reserved;

	for (const struct soda_sealing *s = sealer->parked; s; s = s->next)
		stays -= s->reserved;
	return bytes <= sealer->limit && stays <= sealer->limit - bytes;
}

/*
 * Room for a table, for which what is parked longest may go.  Who asks for what does not fit costs
 * nobody anything.
 */
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
		else if (can_fit_locked(sealer, bytes))
			oldest = forget_parked_locked(sealer);
		pthread_mutex_unlock(&sealer->lock);
		if (oldest)
			destroy(oldest);
	} while (!fits && oldest);
	if (!fits)
		snprintf(
			why->text, sizeof(why->text),
			"no room for the versions and tags of a sealed region, %llu bytes of %llu: "
			"give the agent more --seal-memory",
			(unsigned long long)bytes, (unsigned long long)sealer->limit);
	return fits ? 0 : -ENOMEM;
}

static int make_or_find(struct soda_sealer *sealer, const struct wanted *w,
			struct soda_sealing **s_p)
{
	int ret = -ENOENT;

	if (w->known && sealer->dir >= 0)
		ret = make(sealer, w, true, s_p);
	if (ret == -ENOENT)
		ret = make(sealer, w, false, s_p);
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

static int begin(struct soda_sealer *sealer, const struct wanted *w, struct soda_sealing **s_p,
		 struct soda_why *why)
{
	uint64_t bytes = cost(sealer, w);
	struct soda_sealing *parked = w->known ? await_parked(sealer, w->client, w->region)
					       : take_parked(sealer, w->client, w->region);
	int ret;

	if (parked && w->known && parked->head->bytes == w->bytes &&
	    !parked->head->file == !w->file) {
		*s_p = parked;
		return 0;
	}
	if (parked)
		forget_live(parked);
	ret = reserve(sealer, bytes, why);
	if (ret < 0)
		return ret;
	ret = make_or_find(sealer, w, s_p);
	if (ret < 0) {
		pthread_mutex_lock(&sealer->lock);
		sealer->reserved -= bytes;
		pthread_mutex_unlock(&sealer->lock);
		snprintf(why->text, sizeof(why->text),
			 "no memory for the versions and tags of a sealed region: %s",
			 soda_strerror(ret));
	}
	return ret;
}

int soda_sealing_begin(struct soda_sealer *sealer, uint64_t client, uint16_t region, uint64_t bytes,
		       bool known, struct soda_sealing **s_p, struct soda_why *why)
{
	const struct wanted w = {
		.client = client, .region = region, .bytes = bytes, .known = known
	};

	return begin(sealer, &w, s_p, why);
}

/* Files */

/* Page of the part behind the entries, which has what the file had. */
static uint8_t *kept_page(const struct soda_sealing *s, uint64_t page)
{
	return (uint8_t *)s->head + (1 + entry_pages(s->blocks) + page) * PAGE;
}

static bool is_zeros(const uint8_t *page)
{
	return !page[0] && !memcmp(page, page + 1, PAGE - 1);
}

static int keep_page(struct soda_sealing *s, uint64_t page, const uint8_t *from)
{
	int ret;

	if (is_zeros(from))
		return 0;
	pthread_mutex_lock(&s->lock);
	ret = fill_page(s, 1 + entry_pages(s->blocks) + page);
	pthread_mutex_unlock(&s->lock);
	if (ret == 0)
		memcpy(kept_page(s, page), from, PAGE);
	return ret;
}

/* For the next agent. */
static int keep_file(struct soda_sealing *s, const uint8_t *header)
{
	int ret = s->sealer->dir < 0 ? 0 : keep_page(s, 0, header);

	for (uint64_t i = 0; s->sealer->dir >= 0 && i < s->file->layout.table_pages && !ret; i++)
		ret = keep_page(s, 1 + i, s->file->table + i * PAGE);
	return ret;
}

/* The file's table is the region's from now on, and *f is void. */
static int take_file(struct soda_sealing *s, struct soda_sealed_file *f)
{
	uint64_t bytes = f->layout.table_pages * PAGE;

	s->file = calloc(1, sizeof(*s->file));
	s->changed = calloc(1, f->layout.table_pages);
	if (!s->file || !s->changed)
		return -ENOMEM;
	*s->file = *f;
	memset(f, 0, sizeof(*f));
	s->metadata += bytes;
	atomic_fetch_add(&s->sealer->metadata, bytes);
	return 0;
}

static void note_changed_locked(struct soda_sealing *s, uint64_t block)
{
	if (s->changed)
		s->changed[block / SODA_SEALED_ENTRIES] = 1;
}

/* This life's key, which has sealed nothing yet; the next owner of the file can derive it. */
static int set_file_key(struct soda_sealing *s)
{
	struct soda_sealing_life *life = &s->head->lives[s->life];
	struct soda_seal_key *key = &s->keys[s->life];
	int ret = soda_sealed_file_new_key(&s->sealer->file_key, s->file, life->salt, key);

	if (ret < 0)
		return ret;
	memcpy(life->key, key->key, sizeof(life->key));
	s->head->cipher = key->cipher;
	return 0;
}

int soda_sealing_give_table(struct soda_sealing *s, struct soda_sealed_file *f)
{
	int ret = f->layout.blocks == s->blocks ? take_file(s, f) : -EINVAL;

	if (ret == 0)
		s->head->orphaned = false;
	soda_sealed_file_end(f);
	return ret;
}

void soda_sealing_note_end(struct soda_sealing *s)
{
	struct soda_sealing_seen *seen;
	struct soda_sealer *sealer;

	if (!s || !s->file || !s->confirmed)
		return;
	sealer = s->sealer;
	pthread_mutex_lock(&sealer->lock);
	seen = &sealer->seen[sealer->seen_next++ % SODA_SEALING_SEEN];
	memcpy(seen->salt, s->file->header.salt, sizeof(seen->salt));
	seen->commits = s->confirmed;
	pthread_mutex_unlock(&sealer->lock);
}

/* Whether it is not older than what was seen in it; then that is of no use any more. */
static bool is_as_seen(struct soda_sealer *sealer, const struct soda_sealed_header *h)
{
	bool newer = true;

	pthread_mutex_lock(&sealer->lock);
	for (unsigned i = 0; i < SODA_SEALING_SEEN; i++) {
		struct soda_sealing_seen *seen = &sealer->seen[i];

		if (!seen->commits || memcmp(seen->salt, h->salt, sizeof(seen->salt)))
			continue;
		newer = newer && h->commits >= seen->commits;
		if (h->commits >= seen->commits)
			seen->commits = 0;
	}
	pthread_mutex_unlock(&sealer->lock);
	return newer;
}

static int begin_file(struct soda_sealer *sealer, const struct wanted *w,
		      struct soda_sealed_file *f, const uint8_t *header, struct soda_sealing **s_p,
		      struct soda_why *why)
{
	struct soda_sealing *s;
	int ret = begin(sealer, w, &s, why);

	if (ret < 0)
		return ret;
	ret = take_file(s, f);
	if (ret == 0)
		ret = set_file_key(s);
	if (ret == 0)
		ret = keep_file(s, header);
	if (ret == 0) {
		s->head->commits = s->confirmed = s->file->header.commits;
		*s_p = s;
		return 0;
	}
	snprintf(why->text, sizeof(why->text), "no memory for the table of a sealed file: %s",
		 soda_strerror(ret));
	forget_live(s);
	return ret;
}

int soda_sealing_begin_file(struct soda_sealer *sealer, uint64_t client, uint16_t region,
			    struct soda_sealed_file *f, const uint8_t *header,
			    struct soda_sealing **s_p, struct soda_why *why)
{
	const struct wanted w = {
		.client = client,
		.region = region,
		.bytes = f->layout.blocks * PAGE,
		.file = true,
	};
	int ret = -EBADMSG;

	if (is_as_seen(sealer, &f->header))
		ret = begin_file(sealer, &w, f, header, s_p, why);
	else
		snprintf(why->text, sizeof(why->text),
			 "the file was brought back from earlier while a program had it open");
	soda_sealed_file_end(f);
	return ret;
}

/* Header and table that the agent before this one has kept. */
static int recall_file(struct soda_sealing *s)
{
	struct soda_conf_error ignored = { "" };
	struct soda_sealed_file f;
	int ret = soda_sealed_file_begin(&s->sealer->file_key, kept_page(s, 0), &f, &ignored);

	if (ret < 0)
		return ret;
	ret = f.layout.blocks == s->blocks ? 0 : -EBADMSG;
	for (uint64_t i = 0; ret == 0 && i < f.layout.table_pages; i++)
		if (is_filled(s, 1 + entry_pages(s->blocks) + 1 + i))
			memcpy(f.table + i * PAGE, kept_page(s, 1 + i), PAGE);
	if (ret == 0)
		ret = soda_sealed_file_check(&s->sealer->file_key, &f, &ignored);
	if (ret == 0)
		ret = take_file(s, &f);
	if (ret == 0)
		ret = set_file_key(s);
	if (ret == 0) {
		s->confirmed = s->file->header.commits;
		s->file->header.commits = s->head->commits;
		memset(s->changed, 1, s->file->layout.table_pages);
	}
	soda_sealed_file_end(&f);
	return ret;
}

int soda_sealing_find_file(struct soda_sealer *sealer, uint64_t client, uint16_t region,
			   uint64_t bytes, struct soda_sealing **s_p, struct soda_why *why)
{
	const struct wanted w = {
		.client = client, .region = region, .bytes = bytes, .known = true, .file = true
	};
	int ret = begin(sealer, &w, s_p, why);

	/* parked, it has its table; of an agent that has left no state it is orphaned */
	if (ret < 0 || (*s_p)->file || (*s_p)->head->orphaned)
		return ret;
	if (recall_file(*s_p) < 0)
		(*s_p)->head->orphaned = true; /* what was kept is no whole table */
	return 0;
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
	soda_wipe(&sealer->file_key, sizeof(sealer->file_key));
	pthread_mutex_destroy(&sealer->lock);
}

/* The table; the region's lock is held */

struct soda_sealing_block soda_sealing_load_locked(const struct soda_sealing *s, uint64_t i)
{
	uint64_t page = 1 + i / PER_PAGE;

	if (is_filled(s, page))
		return *entry(s, i);
	return (struct soda_sealing_block){ .version = 0 };
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

static uint64_t pending_version(const struct soda_transfer *t, uint64_t i)
{
	return (t->version + i) | (uint64_t)t->region->sealing->life << SEAL_LIFE_SHIFT |
	       SEAL_PENDING;
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
	for (uint64_t i = 0; i < n && t->version + n <= SEAL_NUMBER; i++) {
		entry(s, first + i)->version = pending_version(t, i);
		note_changed_locked(s, first + i);
	}
	pthread_mutex_unlock(&s->lock);
	if (t->version + n > SEAL_NUMBER)
		return -EIO;
	for (uint64_t i = 0; i < n; i++) {
		size_t at = i * SODA_SEAL_BLOCK;
		struct soda_sealing_block b = { .version = pending_version(t, i) };

		if (soda_seal_block(engine, &s->keys[s->life], (uint32_t)(first + i),
				    t->version + i, t->memory + at, t->sealed->memory + at, b.tag))
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
		t->racing = soda_sealing_load_locked(s, first + i).version & SEAL_PENDING;
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

/* Of a file a block that the server has refused stays PENDING: no commit is made with it. */
static void settle_write(struct soda_transfer *t, int status)
{
	struct soda_sealing *s = t->region->sealing;
	uint64_t first = first_block(t), n = s->file && status ? 0 : blocks_of(t);

	soda_sealing_release(t);
	pthread_mutex_lock(&s->lock);
	s->refused = s->refused || status;
	for (uint64_t i = 0; i < n; i++) {
		struct soda_sealing_block *b = entry(s, first + i);

		if (b->version == pending_version(t, i))
			b->version &= ~SEAL_PENDING;
	}
	pthread_mutex_unlock(&s->lock);
}

static bool has_changed_locked(const struct soda_sealing *s, const struct soda_transfer *t,
			       const struct soda_sealing_block *b)
{
	return t->racing || b->version & SEAL_PENDING || (b->version & SEAL_NUMBER) > t->version ||
	       s->disturbed > t->version || s->discards;
}

/* A block that nobody has written since the file was opened. */
static int open_as_found(struct soda_seal_engine *engine, const struct soda_sealing *s,
			 uint32_t number, uint8_t *at)
{
	struct soda_sealed_entry e =
		soda_sealed_get_entry(s->file->table + number * (uint64_t)SODA_SEALED_ENTRY);
	const struct soda_seal_key *key;

	if (!e.version) {
		memset(at, 0, SODA_SEAL_BLOCK);
		return 0;
	}
	key = soda_sealed_file_key(s->file, e.salt);
	return key ? soda_open_block(engine, key, number, e.version, at, e.tag, at) : -EBADMSG;
}

/* One block of a READ, in place. 0, -EAGAIN, -EIO. */
static int open_one(struct soda_seal_engine *engine, struct soda_transfer *t, uint64_t i)
{
	struct soda_sealing *s = t->region->sealing;
	uint8_t *at = t->memory + i * SODA_SEAL_BLOCK;
	uint32_t number = (uint32_t)(first_block(t) + i);
	const struct soda_seal_key *key;
	struct soda_sealing_block b;
	bool changed;

	pthread_mutex_lock(&s->lock);
	b = soda_sealing_load_locked(s, number);
	changed = has_changed_locked(s, t, &b);
	pthread_mutex_unlock(&s->lock);
	if (b.version == SEAL_ZERO || (!b.version && !s->head->orphaned && !s->file)) {
		memset(at, 0, SODA_SEAL_BLOCK);
		return 0;
	}
	if (!b.version && s->file && !open_as_found(engine, s, number, at))
		return 0;
	key = b.version ? key_of(s, b.version) : NULL;
	if (key && !soda_open_block(engine, key, number, b.version & SEAL_NUMBER, at, b.tag, at))
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
		settle_write(t, status);
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
	struct soda_sealing_block b;
	bool told;

	pthread_mutex_lock(&s->lock);
	b = soda_sealing_load_locked(s, number);
	told = s->told;
	s->told = told || !b.version;
	pthread_mutex_unlock(&s->lock);
	if (b.version || s->file)
		soda_log_error("client %016llx: block %llu of region %u on %s is not what was sent "
			       "there: it was changed, and the program gets SIGBUS",
			       (unsigned long long)client, (unsigned long long)number, s->region,
			       server);
	else if (!told)
		soda_log_error(
			"client %016llx: region %u on %s was sealed with keys that are gone, "
			"with the agent that had them (--seal-state keeps them), or while the "
			"client was away (--seal-keep, --seal-memory): what was not written "
			"since is lost, SIGBUS",
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

bool soda_sealing_discard_end(struct soda_sealing *s, uint64_t offset, uint64_t bytes, bool done)
{
	uint64_t first = offset / SODA_SEAL_BLOCK, n = bytes / SODA_SEAL_BLOCK;
	bool marks = s->head->orphaned || s->file; /* without a version it is not zeros there */

	if (done && marks && fill_range(s, first, n) < 0)
		done = false; /* then it stays what it was */
	pthread_mutex_lock(&s->lock);
	for (uint64_t i = first; done && i < first + n; i++)
		if (marks || soda_sealing_load_locked(s, i).version) {
			*entry(s, i) =
				(struct soda_sealing_block){ .version = marks ? SEAL_ZERO : 0 };
			note_changed_locked(s, i);
		}
	disturb_locked(s);
	s->discards--;
	pthread_mutex_unlock(&s->lock);
	return done;
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
