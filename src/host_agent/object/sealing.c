/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/object/sealing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/guard.h"
#include "base/log.h"
#include "host_agent/core/agent.h"
#include "trust/sealed_file.h"

struct block {
	uint8_t tag[SODA_SEAL_TAG];
	uint64_t version; /* 0: never sent */
};
_Static_assert(sizeof(struct block) == 24, "0.6 % of what was written");

/* What a sealed file has beside its table. */
struct sealed {
	struct soda_sealed_file file;
	struct soda_seal_key key; /* of this open */
	uint8_t salt[SODA_SEALED_OPEN_SALT];
	_Atomic uint32_t held;
	_Atomic uint32_t pending_n;
	_Atomic bool committing, spoiled;
	struct soda_sealing_commits commits;
	_Atomic uint64_t *pending; /* a bit for each chunk */
	_Atomic uint64_t *changed; /* a bit for each page of the table */
};

/* A mapping of its own: this, a bit for each page of `blocks` that was written, `blocks`. */
struct soda_sealing {
	struct soda_seal_key key;
	uint64_t bytes;		/* of the mapping */
	_Atomic uint64_t pages; /* of `blocks`, that were written */
	_Atomic uint64_t *written;
	struct block *blocks;
	struct sealed *sealed; /* a file, which has neither `written` nor `blocks`; NULL: none */
};

enum { STATIONS = SODA_MEMBERS_MAX * (SODA_SEALING_CHANNELS + 1) };

_Atomic bool soda_sealing_started;

/* Made by soda_sealing_start, then constant. */
static struct soda_seal_engine *engines[STATIONS];
/* One of each station: in zero pages until it is used.  Never unmapped. */
static struct soda_guard_place *guards;
static char *slots;

/* In a page of its own (soda_secret_map). */
static struct secrets {
	uint8_t root[SODA_KEY_BYTES];
	struct soda_sealed_key file_key; /* of sealed files; api_lock */
	bool file_key_there;
} * secrets;

static _Atomic uint64_t versions; /* that were drawn: each by one encryption */

static struct {
	_Atomic uint64_t free; /* a bit for each place that is free */
	_Atomic uint32_t n;    /* places, free and taken */
} pool;

static int make_engine(uint32_t station)
{
	if (!guards) {
		void *p = mmap(NULL, STATIONS * sizeof(*guards), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return -ENOMEM;
		guards = p;
	}
	return engines[station] ? 0 : soda_seal_engine_new(&engines[station]);
}

/* All that the server's channels need; what is there already stays. */
int soda_sealing_add(uint32_t server, uint32_t pairs)
{
	int ret = make_engine(soda_sealing_writer(server));

	for (uint32_t i = 0; i < pairs && !ret; i++) {
		ret = make_engine(soda_sealing_channel(server, i));
		if (!ret)
			ret = make_engine(soda_sealing_channel(server, SODA_CHANNEL_PAIRS_MAX + i));
	}
	return ret;
}

static int make_engines(uint32_t pairs)
{
	int ret = 0;

	for (uint32_t k = 0; k < soda_members() && !ret; k++)
		ret = soda_sealing_add(k, pairs);
	return ret;
}

static void free_engines(void)
{
	for (int i = 0; i < STATIONS; i++) {
		soda_seal_engine_free(engines[i]);
		engines[i] = NULL;
	}
}

static bool have_secrets(void)
{
	if (!secrets)
		secrets = soda_secret_new(SODA_WIRE_PAGE);
	return secrets;
}

static int start(uint32_t pairs, struct soda_why *why)
{
	struct soda_conf_error err = { "" };
	const char *name = "";
	int ret = soda_seal_ready(&name, &err);

	if (ret) {
		snprintf(why->text, sizeof(why->text), "sealing (SODA_SEAL): %.200s", err.text);
		return ret;
	}
	ret = have_secrets() ? soda_random(secrets->root, sizeof(secrets->root)) : -ENOMEM;
	if (!ret)
		ret = make_engines(pairs);
	if (!ret && !(slots = soda_secret_map(SODA_SEALING_SLOTS_MAX * soda_chunk_bytes())))
		ret = -ENOMEM;
	if (!ret)
		soda_log_info("sealing with %s", name);
	return ret;
}

static void forget_secrets(void)
{
	if (!secrets)
		return;
	soda_secret_free(secrets, SODA_WIRE_PAGE);
	secrets = NULL;
}

/* The mappings with keys have not come along, and the engines have worked some of them out. */
void soda_sealing_forget(void)
{
	secrets = NULL;
	for (int i = 0; i < STATIONS; i++)
		soda_seal_engine_forget(engines[i]);
}

int soda_sealing_start(uint32_t pairs, struct soda_why *why)
{
	int ret;

	if (soda_sealing_on())
		return 0;
	ret = start(pairs, why);
	if (ret) {
		free_engines();
		forget_secrets();
		return ret;
	}
	/* release: pairs with the threads' finding a sealed object, which is shown later */
	atomic_store(&soda_sealing_started, true);
	return 0;
}

void soda_sealing_stop(void)
{
	forget_secrets();
	if (!soda_sealing_on())
		return;
	atomic_store(&soda_sealing_started, false);
	free_engines();
	munmap(slots, SODA_SEALING_SLOTS_MAX * soda_chunk_bytes());
	slots = NULL;
	pool.free = 0;
	pool.n = 0;
}

static uint64_t whole_pages(uint64_t bytes)
{
	return (bytes + SODA_WIRE_PAGE - 1) & ~(uint64_t)(SODA_WIRE_PAGE - 1);
}

static int derive(struct soda_seal_key *key)
{
	char info[64];
	int n = snprintf(info, sizeof(info), "soda seal object %llu",
			 (unsigned long long)(key->serial = soda_seal_serial()));

	return soda_hkdf(secrets->root, NULL, 0, info, (size_t)n, key->key);
}

int soda_sealing_begin(struct soda_region *r, uint64_t bytes, struct soda_why *why)
{
	uint64_t blocks = (bytes + SODA_SEAL_BLOCK - 1) / SODA_SEAL_BLOCK;
	uint64_t table = whole_pages(blocks * sizeof(struct block));
	uint64_t marks = whole_pages(table / SODA_WIRE_PAGE / 8 + 8);
	uint64_t all = SODA_WIRE_PAGE + marks + table;
	struct soda_sealing *s;
	int ret;

	if (blocks > UINT32_MAX) { /* a block's number is 32 bits of its nonce */
		snprintf(why->text, sizeof(why->text),
			 "a sealed object has at most 16 TiB, not %llu bytes",
			 (unsigned long long)bytes);
		return -EINVAL;
	}
	s = soda_secret_map(all);
	if (!s) {
		snprintf(why->text, sizeof(why->text),
			 "no address space for the versions and tags of a sealed object: raise the "
			 "address space limit (ulimit -v)");
		return -ENOMEM;
	}
	soda_secret_lock(s, sizeof(*s)); /* the key */
	s->bytes = all;
	s->written = (void *)((char *)s + SODA_WIRE_PAGE);
	s->blocks = (void *)((char *)s->written + marks);
	ret = derive(&s->key);
	if (ret) {
		munmap(s, all);
		return ret;
	}
	r->sealing = s;
	return 0;
}

int soda_sealing_file_key(const struct soda_sealed_key **key_p, struct soda_why *why)
{
	const char *path = soda_agent.settings.seal_key_file;
	struct soda_conf_error err = { "" };
	int ret = 0;

	if (!path) {
		snprintf(why->text, sizeof(why->text),
			 "sealing a file needs a key that outlives the program: SODA_SEAL_KEY_FILE "
			 "names none (soda seal key makes one)");
		return -EINVAL;
	}
	if (!have_secrets())
		ret = soda_conf_fail(&err, -ENOMEM, "no memory for the key");
	else if (!secrets->file_key_there)
		ret = soda_sealed_key_read(path, &secrets->file_key, &err);
	if (ret) {
		snprintf(why->text, sizeof(why->text), "SODA_SEAL_KEY_FILE: %.220s", err.text);
		return ret;
	}
	secrets->file_key_there = true;
	*key_p = &secrets->file_key;
	return 0;
}

static uint64_t bits_bytes(uint64_t n)
{
	return whole_pages(n / 8 + 8);
}

static void end_file(struct sealed *z)
{
	uint64_t chunks = z->file.layout.blocks; /* at least as many as there are */

	soda_wipe(&z->key, sizeof(z->key));
	if (z->pending)
		munmap(z->pending, bits_bytes(chunks));
	if (z->changed)
		munmap(z->changed, bits_bytes(z->file.layout.table_pages));
	soda_sealed_file_end(&z->file);
	munmap(z, whole_pages(sizeof(*z)));
}

int soda_sealing_begin_file(struct soda_region *r, struct soda_sealed_file *f, struct soda_why *why)
{
	struct soda_sealing *s = soda_secret_new(SODA_WIRE_PAGE);
	struct sealed *z = soda_secret_new(whole_pages(sizeof(*z)));
	int ret = s && z ? 0 : -ENOMEM;

	if (!ret) {
		z->file = *f;
		z->pending = soda_secret_map(bits_bytes(f->layout.blocks));
		z->changed = soda_secret_map(bits_bytes(f->layout.table_pages));
		ret = z->pending && z->changed ? 0 : -ENOMEM;
		ret = ret ? ret : soda_sealed_file_new_key(&secrets->file_key, f, z->salt, &z->key);
	}
	if (ret) {
		snprintf(why->text, sizeof(why->text), "%.100s: no memory or key for its table: %s",
			 r->file, soda_strerror(ret));
		if (s)
			munmap(s, SODA_WIRE_PAGE);
		if (z && z->file.table)
			end_file(z);
		else
			soda_sealed_file_end(f);
		return ret;
	}
	z->commits = (struct soda_sealing_commits){ r->meeting, f->header.commits };
	s->bytes = SODA_WIRE_PAGE;
	s->sealed = z;
	atomic_store(&s->pages, f->layout.table_pages);
	r->sealing = s;
	r->bytes = f->header.bytes;
	r->file_bytes = f->layout.total;
	r->data_at = f->layout.data_at;
	return 0;
}

static struct sealed *sealed_of(const struct soda_region *r)
{
	return r->sealing ? r->sealing->sealed : NULL;
}

struct soda_sealed_file *soda_sealing_file(const struct soda_region *r)
{
	return &sealed_of(r)->file;
}

struct soda_sealing_commits *soda_sealing_commits(const struct soda_region *r)
{
	return &sealed_of(r)->commits;
}

bool soda_sealing_commit_begin(struct soda_region *r)
{
	return !atomic_exchange(&sealed_of(r)->committing, true);
}

void soda_sealing_commit_end(struct soda_region *r)
{
	atomic_store(&sealed_of(r)->committing, false);
}

void soda_sealing_hold(struct soda_region *r, bool held)
{
	atomic_store(&sealed_of(r)->held, held);
}

uint32_t soda_sealing_pending(const struct soda_region *r)
{
	return atomic_load(&sealed_of(r)->pending_n);
}

bool soda_sealing_page_changed(const struct soda_region *r, uint64_t page)
{
	return atomic_load(&sealed_of(r)->changed[page / 64]) >> page % 64 & 1;
}

void soda_sealing_pages_set(struct soda_region *r, bool changed)
{
	struct sealed *z = sealed_of(r);

	for (uint64_t i = 0; i <= z->file.layout.table_pages / 64; i++)
		atomic_store(&z->changed[i], changed ? UINT64_MAX : 0);
}

/* Whether the chunk was pending. */
static bool set_pending(struct sealed *z, uint32_t chunk)
{
	uint64_t bit = 1ull << chunk % 64;

	if (atomic_fetch_or(&z->pending[chunk / 64], bit) & bit)
		return true;
	atomic_fetch_add(&z->pending_n, 1);
	return false;
}

static void clear_pending(struct sealed *z, uint32_t chunk)
{
	uint64_t bit = 1ull << chunk % 64;

	if (atomic_fetch_and(&z->pending[chunk / 64], ~bit) & bit)
		atomic_fetch_sub(&z->pending_n, 1);
}

/*
 * The chunk is pending before `held` is looked at, and a thread that holds the file looks in the
 * other order: one of the two sees the other.
 */
static int enter_pending(struct sealed *z, uint32_t chunk)
{
	bool before = set_pending(z, chunk);

	if (!atomic_load(&z->held))
		return 0;
	if (!before)
		clear_pending(z, chunk);
	return -EAGAIN;
}

void soda_sealing_arrived(struct soda_region *r, uint32_t id)
{
	clear_pending(sealed_of(r), id - r->first);
}

void soda_sealing_unsent(struct soda_region *r, uint32_t id)
{
	if (r->sealed_file && sealed_of(r))
		set_pending(sealed_of(r), id - r->first);
}

void soda_sealing_spoil(struct soda_region *r)
{
	if (r->sealed_file && sealed_of(r))
		atomic_store(&sealed_of(r)->spoiled, true);
}

bool soda_sealing_is_spoiled(const struct soda_region *r)
{
	return atomic_load(&sealed_of(r)->spoiled);
}

void soda_sealing_end(struct soda_region *r)
{
	if (!r->sealing)
		return;
	if (r->sealing->sealed)
		end_file(r->sealing->sealed);
	soda_wipe(&r->sealing->key, sizeof(r->sealing->key));
	munmap(r->sealing, r->sealing->bytes);
	r->sealing = NULL;
}

uint64_t soda_sealing_bytes(const struct soda_region *r)
{
	/* the child of a fork has neither secrets nor that mapping */
	return r->sealing && secrets ? (atomic_load(&r->sealing->pages) + 1) * SODA_WIRE_PAGE : 0;
}

static uint8_t *entry_of(const struct sealed *z, uint32_t block)
{
	return z->file.table + (uint64_t)block * SODA_SEALED_ENTRY;
}

static uint32_t first_block(const struct soda_region *r, uint32_t id)
{
	return (uint32_t)(soda_region_offset(r, id) / SODA_SEAL_BLOCK);
}

/* Pages of entries first .. last are written from now on. */
static void count_written(struct soda_sealing *s, uint32_t first, uint32_t last)
{
	uint64_t page = (uint64_t)first * sizeof(struct block) / SODA_WIRE_PAGE;
	uint64_t end = ((uint64_t)(last + 1) * sizeof(struct block) - 1) / SODA_WIRE_PAGE;

	for (; page <= end; page++) {
		uint64_t bit = 1ull << page % 64;
		_Atomic uint64_t *word = &s->written[page / 64];

		if (!(atomic_load_explicit(word, memory_order_relaxed) & bit) &&
		    !(atomic_fetch_or(word, bit) & bit))
			atomic_fetch_add(&s->pages, 1);
	}
}

/*
 * The server has no copy of the chunk, or one that does not count any more (DISCARD, a server that
 * started anew): what is not sent now is zeros.
 */
static void forget_old(struct soda_sealing *s, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		if (s->blocks[i].version)
			s->blocks[i].version = 0;
}

/* The entries of a file's blocks first .. last are written from now on; backed: as forget_old(). */
static void change_entries(struct sealed *z, uint32_t first, uint32_t n, bool backed)
{
	if (!backed)
		memset(entry_of(z, first), 0, (size_t)n * SODA_SEALED_ENTRY);
	for (uint32_t page = first / SODA_SEALED_ENTRIES;
	     page <= (first + n - 1) / SODA_SEALED_ENTRIES; page++)
		atomic_fetch_or(&z->changed[page / 64], 1ull << page % 64);
}

struct sealing_job {
	struct soda_seal_engine *engine;
	struct soda_sealing *s;
	const char *plain;
	char *sealed;
	uint32_t first, blocks;	   /* of the chunk */
	uint32_t mask, mask_shift; /* a bit for each 1 << mask_shift blocks */
	uint64_t version;	   /* the next one that is ours */
	int64_t done;		   /* bytes, or the error */
};

static bool is_masked(const struct sealing_job *job, uint32_t i)
{
	return job->mask >> (i >> job->mask_shift) & 1;
}

/* Seal a block with a version, and note that. 0, -EIO. */
static int seal_one(const struct sealing_job *job, uint32_t i, uint64_t version)
{
	struct sealed *z = job->s->sealed;
	uint32_t block = job->first + i;
	const char *plain = job->plain + (size_t)i * SODA_SEAL_BLOCK;
	char *sealed = job->sealed + (size_t)i * SODA_SEAL_BLOCK;
	uint8_t *entry;

	if (!z) {
		job->s->blocks[block].version = version;
		return soda_seal_block(job->engine, &job->s->key, block, version, plain, sealed,
				       job->s->blocks[block].tag);
	}
	if (version > SODA_SEALED_VERSION_MAX)
		return -EIO;
	entry = entry_of(z, block);
	soda_sealed_put_entry(entry, version, z->salt);
	return soda_seal_block(job->engine, &z->key, block, version, plain, sealed, entry);
}

static void run(void *arg)
{
	struct sealing_job *job = arg;

	for (uint32_t i = 0; i < job->blocks; i++) {
		if (!is_masked(job, i))
			continue;
		if (seal_one(job, i, job->version++)) {
			job->done = -EIO;
			return;
		}
		job->done += SODA_SEAL_BLOCK;
	}
}

int64_t soda_sealing_seal(uint32_t station, struct soda_region *r, uint32_t id, uint32_t mask,
			  const void *plain, void *sealed)
{
	struct soda_sealing *s = r->sealing;
	struct sealing_job job = {
		.engine = engines[station],
		.s = s,
		.plain = plain,
		.sealed = sealed,
		.first = first_block(r, id),
		.blocks = soda_region_chunk_bytes(r, id) / SODA_SEAL_BLOCK,
		.mask = mask,
		.mask_shift = soda_agent.block_shift - 12,
	};
	bool backed = soda_chunk_load(&soda_agent.table[id]) & SODA_CW_BACKED;
	int ret;

	if (!job.engine)
		return -EIO;
	if (s->sealed && (ret = enter_pending(s->sealed, id - r->first)))
		return ret;
	if (s->sealed) {
		change_entries(s->sealed, job.first, job.blocks, backed);
	} else {
		if (!backed)
			forget_old(s, job.first, job.blocks);
		count_written(s, job.first, job.first + job.blocks - 1);
	}
	/* relaxed: each draws numbers of its own, whatever the order */
	job.version = atomic_fetch_add_explicit(&versions, job.blocks, memory_order_relaxed) + 1;
	ret = soda_guard_call_at(&guards[station], run, &job);
	return ret ? ret : job.done;
}

/* 0; -EBADMSG; 1: the block has never been written. */
static int open_one(struct soda_seal_engine *engine, const struct soda_sealing *s, uint32_t block,
		    const char *sealed, char *plain)
{
	const struct sealed *z = s->sealed;
	const struct soda_seal_key *key = &s->key;
	struct soda_sealed_entry e;

	if (!z)
		e = (struct soda_sealed_entry){ s->blocks[block].tag, s->blocks[block].version,
						NULL };
	else
		e = soda_sealed_get_entry(entry_of(z, block));
	if (!e.version)
		return 1;
	if (z)
		key = memcmp(e.salt, z->salt, sizeof(z->salt))
			      ? soda_sealed_file_key(&z->file, e.salt)
			      : &z->key;
	if (!engine || !key)
		return -EBADMSG;
	return soda_open_block(engine, key, block, e.version, sealed, e.tag, plain);
}

int soda_sealing_open(uint32_t station, const struct soda_region *r, uint32_t id,
		      const void *sealed, void *plain)
{
	const struct soda_sealing *s = r->sealing;
	struct soda_seal_engine *engine = engines[station];
	uint32_t first = first_block(r, id);
	uint32_t n = soda_region_chunk_bytes(r, id) / SODA_SEAL_BLOCK;

	for (uint32_t i = 0; i < n; i++) {
		size_t at = (size_t)i * SODA_SEAL_BLOCK;
		int ret = open_one(engine, s, first + i, (const char *)sealed + at,
				   (char *)plain + at);

		if (ret < 0)
			return ret;
		if (ret)
			memset((char *)plain + at, 0, SODA_SEAL_BLOCK);
	}
	return 0;
}

void *soda_sealing_slot_take(void)
{
	uint64_t free = atomic_load(&pool.free);

	while (free) {
		uint32_t i = (uint32_t)__builtin_ctzll(free);

		/* acquire: pairs with the release of the thread that used the place before */
		if (atomic_compare_exchange_weak(&pool.free, &free, free & ~(1ull << i)))
			return slots + i * soda_chunk_bytes();
	}
	return NULL;
}

void soda_sealing_slot_give(void *slot)
{
	uint64_t i = (uint64_t)((char *)slot - slots) >> soda_agent.chunk_shift;

	atomic_fetch_or(&pool.free, 1ull << i);
}

uint32_t soda_sealing_slots_free(void)
{
	return (uint32_t)__builtin_popcountll(
		atomic_load_explicit(&pool.free, memory_order_relaxed));
}

uint32_t soda_sealing_slots(void)
{
	return atomic_load(&pool.n);
}

/* Places are 0 .. n - 1. */
bool soda_sealing_slot_add(void)
{
	uint32_t n = atomic_load(&pool.n);

	if (n == SODA_SEALING_SLOTS_MAX)
		return false;
	atomic_store(&pool.n, n + 1);
	atomic_fetch_or(&pool.free, 1ull << n);
	return true;
}

/* The last place goes, with its memory, if it is free. */
static bool remove_last(void)
{
	uint32_t n = atomic_load(&pool.n);
	uint64_t bit = 1ull << (n - 1);

	if (!(atomic_fetch_and(&pool.free, ~bit) & bit))
		return false;
	atomic_store(&pool.n, n - 1);
	if (slots)
		madvise(slots + (n - 1) * soda_chunk_bytes(), soda_chunk_bytes(), MADV_DONTNEED);
	soda_buffer_give(&soda_agent.buffer, 1);
	return true;
}

void soda_sealing_slots_remove(void)
{
	while (atomic_load(&pool.n) && remove_last())
		;
}

int64_t soda_sealing_slots_of(int64_t limit)
{
	int64_t share = limit / 16;

	if (!soda_sealing_on())
		return 0;
	return share < SODA_SEALING_SLOTS_MIN	? SODA_SEALING_SLOTS_MIN
	       : share > SODA_SEALING_SLOTS_MAX ? SODA_SEALING_SLOTS_MAX
						: share;
}

void soda_sealing_fit(int64_t limit)
{
	int64_t want = soda_sealing_slots_of(limit);

	if (!want)
		return;
	while (atomic_load(&pool.n) > want && remove_last())
		;
	while (atomic_load(&pool.n) < want && soda_buffer_take(&soda_agent.buffer))
		soda_sealing_slot_add();
}
