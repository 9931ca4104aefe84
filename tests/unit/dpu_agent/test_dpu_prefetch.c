/* SPDX-License-Identifier: BSD-3-Clause */
/* The prefetcher: owners, failed fetches, and its threads. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpu_agent/cache/policy/plugin.h"
#include "unit/fakes/dpu_sim.h"

enum { CHUNKS = 16, ENTRY = CHUNKS * SIM_PAGE, SLOTS = 64 };

/* Owners. */

static struct soda_prefetch *p;
static unsigned per_server; /* 0 */
static uint32_t slots = SLOTS;

static void make(uint32_t max_owners, bool always)
{
	struct soda_prefetch_options opt = { .cache_bytes = slots * (uint64_t)ENTRY,
					     .entry_bytes = ENTRY,
					     .max_owners = max_owners,
					     .always = always,
					     .per_server = per_server };

	assert_int_equal(soda_prefetch_create(&opt, NULL, NULL, &p), 0);
}

static struct soda_owner_name file(uint64_t id, uint64_t generation)
{
	return (struct soda_owner_name){ .file = true, .id = { id, generation }, .bytes = 1 << 20 };
}

static uint32_t opened(const struct soda_owner_name *name)
{
	uint32_t owner;

	assert_int_equal(soda_prefetch_open(p, name, &owner), 0);
	return owner;
}

/* Put an entry into the cache the way the workers do. */
static void fetch(uint32_t owner)
{
	struct soda_cache_ref ref;
	struct soda_fill *f;
	int fetched = 0;

	for (uint32_t i = 0; i < 3; i++)
		soda_prefetch_read(p, owner, i * SIM_PAGE, SIM_PAGE, NULL, NULL, &ref);
	soda_prefetch_step(p);
	while ((f = soda_prefetch_take(p))) {
		assert_int_equal(f->owner, owner);
		soda_prefetch_filled(p, f, 0);
		fetched++;
	}
	assert_true(fetched > 0);
}

/* Which pages of the second entry are fetched when the first one's are read in order. */
static uint32_t fetched_of_second(uint32_t owner, const struct soda_wire_residency *near)
{
	struct soda_cache_ref ref;
	struct soda_fill *f;
	uint32_t pages = 0;

	for (uint64_t i = 0; i < 4; i++) {
		struct soda_recent_residency residency = { .at = i * SIM_PAGE,
							   .chunk_bytes = SIM_PAGE };

		residency.near.after = near->after >> i;
		soda_prefetch_read(p, owner, i * SIM_PAGE, SIM_PAGE, &residency, NULL, &ref);
	}
	soda_prefetch_step(p);
	while ((f = soda_prefetch_take(p))) {
		for (uint32_t k = 0; k < f->runs_n && f->offset == ENTRY; k++)
			for (uint32_t at = 0; at < f->runs[k].bytes; at += SIM_PAGE)
				pages |= 1u << ((f->runs[k].at + at) / SIM_PAGE);
		soda_prefetch_filled(p, f, 0);
	}
	return pages;
}

static void what_the_client_has_is_left_out(void **state)
{
	/* pages 3 and 4 of the second entry, as seen from the first page */
	struct soda_wire_residency near = { .after = 3ull << (ENTRY / SIM_PAGE + 2) };
	uint32_t whole = (1u << ENTRY / SIM_PAGE) - 1;
	struct soda_owner_name a = file(5, 1), b = file(6, 1);
	uint32_t owner;

	make(0, true);
	owner = opened(&a);
	assert_int_equal(fetched_of_second(owner, &near), whole & ~0x18u);
	soda_prefetch_close(p, owner, true);
	soda_prefetch_destroy(p);
	/* of two clients one may want what the other one has */
	make(0, true);
	owner = opened(&b);
	assert_int_equal(opened(&b), owner);
	assert_int_equal(fetched_of_second(owner, &near), whole);
	soda_prefetch_close(p, owner, true);
	soda_prefetch_close(p, owner, true);
	soda_prefetch_destroy(p);
}

static bool has(uint32_t owner)
{
	struct soda_cache_ref ref;

	/* behind what was read before the fetch */
	if (soda_prefetch_read(p, owner, 5 * SIM_PAGE, SIM_PAGE, NULL, NULL, &ref) !=
	    SODA_CACHE_HIT)
		return false;
	soda_cache_release(soda_prefetch_cache(p), ref.slot);
	return true;
}

static void files_are_shared_and_linger(void **state)
{
	struct soda_owner_name a = file(5, 1), newer = file(5, 2), elsewhere = a;
	uint32_t one_owner, other, third;

	make(0, true);
	one_owner = opened(&a);
	assert_int_equal(opened(&a), one_owner);
	other = opened(&newer);
	assert_int_not_equal(other, one_owner);
	elsewhere.server = 1; /* numbers of files are each server's own */
	third = opened(&elsewhere);
	assert_int_not_equal(third, one_owner);
	fetch(one_owner);
	soda_prefetch_close(p, one_owner, false);
	assert_true(has(one_owner));
	soda_prefetch_close(p, one_owner, false);
	/* The next process finds it; another generation does not. */
	assert_int_equal(opened(&a), one_owner);
	assert_true(has(one_owner));
	assert_false(has(other));
	assert_false(has(third));
	soda_prefetch_close(p, one_owner, true);
	soda_prefetch_close(p, other, true);
	soda_prefetch_close(p, third, true);
	assert_false(has(opened(&a)));
	soda_prefetch_destroy(p);
}

static void regions_go_with_their_client(void **state)
{
	struct soda_owner_name a = { .id = { 7, 1 }, .bytes = 1 << 20 }, b = a;
	uint32_t mine, yours;

	make(0, true);
	b.id[0] = 8;
	mine = opened(&a);
	yours = opened(&b);
	assert_int_not_equal(mine, yours);
	fetch(mine);
	fetch(yours);
	soda_prefetch_close(p, mine, false);
	/* The id is used again, what it stood for is gone. */
	b.id[0] = 9;
	assert_int_equal(opened(&b), mine);
	assert_false(has(mine));
	assert_true(has(yours));
	soda_prefetch_destroy(p);
}

static void the_table_of_owners_is_bounded(void **state)
{
	struct soda_owner_name a = file(1, 1), b = file(2, 1), c = file(3, 1);
	uint32_t first, none;

	make(2, true);
	first = opened(&a);
	opened(&b);
	assert_int_equal(soda_prefetch_open(p, &c, &none), -ENOSPC);
	fetch(first);
	soda_prefetch_close(p, first, false);
	assert_int_equal(opened(&c), first); /* in the place of what nobody has open */
	assert_false(has(first));
	c.bytes = 0;
	assert_int_equal(soda_prefetch_open(p, &c, &none), -EINVAL);
	soda_prefetch_destroy(p);
}

static void a_fetch_of_a_closed_owner_ends_well(void **state)
{
	struct soda_owner_name a = { .id = { 7, 1 }, .bytes = 1 << 20 };
	struct soda_cache_ref ref;
	struct soda_fill *f;
	uint32_t owner;

	make(0, true);
	owner = opened(&a);
	for (uint32_t i = 0; i < 3; i++)
		soda_prefetch_read(p, owner, i * SIM_PAGE, SIM_PAGE, NULL, NULL, &ref);
	soda_prefetch_step(p);
	f = soda_prefetch_take(p);
	assert_non_null(f);
	assert_true(soda_prefetch_wanted(p, f));
	soda_prefetch_close(p, owner, false);
	assert_null(soda_prefetch_take(p)); /* nothing more of it */
	assert_false(soda_prefetch_wanted(p, f));
	assert_int_equal(opened(&a), owner);
	assert_false(soda_prefetch_wanted(p, f)); /* of another owner that has its id */
	soda_prefetch_filled(p, f, 0);
	assert_false(has(owner));
	soda_cache_check(soda_prefetch_cache(p));
	soda_prefetch_destroy(p);
}

/* Read from `from` on, in order, until something is wanted ahead of that; or not. */
static void read_on(uint32_t owner, uint32_t from, uint32_t pages)
{
	struct soda_cache_ref ref;

	for (uint32_t i = from; i < from + pages; i++) {
		if (soda_prefetch_read(p, owner, i * (uint64_t)SIM_PAGE, SIM_PAGE, NULL, NULL,
				       &ref) == SODA_CACHE_HIT)
			soda_cache_release(soda_prefetch_cache(p), ref.slot);
		soda_prefetch_step(p);
	}
}

/*
 * A server does not answer: of it no more is under way than its number, nor waits, and what is
 * wanted of another one is taken before what has waited longer.
 * Promise R7.
 */
static void a_silent_server_has_its_number(void **state)
{
	struct soda_owner_name a = { .id = { 1, 1 }, .at = 1, .bytes = 64 << 20 };
	struct soda_owner_name b = { .id = { 2, 1 }, .at = 2, .bytes = 64 << 20 };
	struct soda_fill *silent[2], *f;
	struct soda_prefetch_stats stats;
	uint32_t of_a, of_b, n = 0;

	per_server = 2;
	make(0, true);
	per_server = 0;
	of_a = opened(&a);
	of_b = opened(&b);
	read_on(of_a, 0, 16 * CHUNKS);
	for (int i = 0; i < 2; i++) {
		silent[i] = soda_prefetch_take(p);
		assert_non_null(silent[i]);
		assert_int_equal(silent[i]->owner, of_a);
	}
	read_on(of_a, 16 * CHUNKS, 16 * CHUNKS);
	assert_null(soda_prefetch_take(p)); /* others of it wait */
	soda_prefetch_stats(p, &stats);
	assert_true(stats.wanted > 2 && stats.wanted <= 2 + SODA_FILLS_QUEUED);
	read_on(of_b, 0, 16 * CHUNKS);
	for (; (f = soda_prefetch_take(p)); n++) {
		assert_int_equal(f->owner, of_b);
		soda_prefetch_filled(p, f, 0);
	}
	assert_true(n > 2);
	soda_prefetch_filled(p, silent[0], 0);
	f = soda_prefetch_take(p);
	assert_int_equal(f->owner, of_a);
	soda_prefetch_filled(p, f, 0);
	soda_prefetch_filled(p, silent[1], 0);
	soda_prefetch_stop(p);
	soda_prefetch_close(p, of_a, true);
	soda_prefetch_close(p, of_b, true);
	soda_prefetch_destroy(p);
}

static void never_done(struct soda_cache_waiter *w, int status, const struct soda_cache_ref *ref)
{
	if (!status)
		soda_cache_release(soda_prefetch_cache(p), ref->slot);
}

static void note_fetched(void *arg, const struct soda_owner_stats *owner)
{
	*(uint64_t *)arg = owner->bytes_fetched;
}

/*
 * A server has its number under way: a READ of an entry that is not even next there does not wait.
 * It is not fetched a second time, and paid back.
 */
static void a_read_passes_what_waits(void **state)
{
	struct soda_owner_name a = { .id = { 1, 1 }, .at = 1, .bytes = 64 << 20 };
	struct soda_cache_waiter next = { .done = never_done }, behind = next;
	struct soda_fill *busy[2], *f;
	struct soda_cache_ref ref;
	uint64_t at, before, after;
	uint32_t owner;

	per_server = 2;
	make(0, true);
	per_server = 0;
	owner = opened(&a);
	read_on(owner, 0, 16 * CHUNKS);
	busy[0] = soda_prefetch_take(p);
	busy[1] = soda_prefetch_take(p);
	assert_null(soda_prefetch_take(p));
	at = busy[1]->offset + ENTRY;
	soda_prefetch_each(p, note_fetched, &before);
	assert_int_equal(soda_prefetch_read(p, owner, at, SIM_PAGE, NULL, &next, &ref),
			 SODA_CACHE_LATE);
	assert_int_equal(
		soda_prefetch_read(p, owner, at + ENTRY + SIM_PAGE, SIM_PAGE, NULL, &behind, &ref),
		SODA_CACHE_MISS);
	soda_prefetch_filled(p, busy[0], 0);
	soda_prefetch_filled(p, busy[1], 0);
	f = soda_prefetch_take(p);
	assert_int_equal(f->offset, at);
	assert_int_equal(f->bytes, ENTRY);
	soda_prefetch_filled(p, f, 0);
	f = soda_prefetch_take(p);
	assert_int_equal(f->offset, at + ENTRY);
	assert_int_equal(f->bytes, ENTRY - SIM_PAGE);
	assert_int_equal(f->runs_n, 2);
	soda_prefetch_each(p, note_fetched, &after);
	assert_int_equal(before - after, SIM_PAGE);
	soda_prefetch_filled(p, f, 0);
	soda_prefetch_stop(p);
	soda_prefetch_close(p, owner, true);
	soda_cache_check(soda_prefetch_cache(p));
	soda_prefetch_destroy(p);
}

/* Owners of servers 1 to n. */
static void open_many(uint32_t *owners, uint16_t n)
{
	for (uint16_t at = 1; at <= n; at++) {
		struct soda_owner_name name = { .id = { at, 1 }, .at = at, .bytes = 64 << 20 };

		owners[at - 1] = opened(&name);
	}
}

static void close_many(const uint32_t *owners, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++)
		soda_prefetch_close(p, owners[i], true);
}

/*
 * Nine servers of ten do not answer, and the cache has few slots: what waits for those gives way,
 * so that reading ahead at the tenth goes on.
 * Promise R7.
 */
static void silent_servers_leave_slots(void **state)
{
	enum { SERVERS = 10, FEW = 3 * SERVERS };
	uint32_t owners[SERVERS], n = 0, taken = 0;
	struct soda_fill *silent[SERVERS * 2], *f;

	slots = FEW;
	per_server = 2;
	make(0, true);
	per_server = 0;
	slots = SLOTS;
	open_many(owners, SERVERS);
	for (uint32_t at = 0; at < 64 * CHUNKS; at += CHUNKS)
		for (uint32_t i = 0; i < SERVERS - 1; i++) {
			read_on(owners[i], at, CHUNKS);
			while ((f = soda_prefetch_take(p)))
				silent[taken++] = f;
		}
	assert_int_equal(taken, 2 * (SERVERS - 1));
	for (uint32_t i = 0; i < 64 * CHUNKS; i++) {
		read_on(owners[SERVERS - 1], i, 1);
		while ((f = soda_prefetch_take(p))) {
			assert_int_equal(f->owner, owners[SERVERS - 1]);
			soda_prefetch_filled(p, f, 0);
			n++;
		}
	}
	assert_true(n > 32);
	while (taken)
		soda_prefetch_filled(p, silent[--taken], 0);
	soda_prefetch_stop(p);
	close_many(owners, SERVERS);
	soda_cache_check(soda_prefetch_cache(p));
	soda_prefetch_destroy(p);
}

/* How many entries of the owner are in the cache. */
static uint32_t entries_of(uint32_t owner)
{
	uint32_t n = 0;

	for (uint64_t i = 0; i < 16 * SLOTS; i++) {
		const struct soda_cache_key key = { .owner = owner, .entry = i };

		n += soda_cache_find(soda_prefetch_cache(p), &key) != SODA_CACHE_NONE;
	}
	return n;
}

/* The same, and all that is wanted is fetched. */
static void stream(uint32_t owner, uint32_t from, uint32_t entries)
{
	struct soda_fill *f;

	for (uint32_t i = from * CHUNKS; i < (from + entries) * CHUNKS; i++) {
		read_on(owner, i, 1);
		while ((f = soda_prefetch_take(p)))
			soda_prefetch_filled(p, f, 0);
	}
}

/*
 * A tenant streams far more than the cache holds: what another one has within its part stays, as
 * long as it has something open; with more than that, the least of it.
 * Promise S6.
 */
static void a_tenant_keeps_its_part(void **state)
{
	struct soda_owner_name a = { .id = { 1, 1 }, .bytes = 64 << 20, .holder = { 1, 2 } };
	struct soda_owner_name b = { .id = { 2, 1 }, .bytes = 64 << 20, .holder = { 2, 2 } };
	struct soda_owner_name c = { .id = { 3, 1 }, .bytes = 64 << 20, .holder = { 2, 2 } };
	const uint32_t kept = soda_shares_kept(SLOTS, 2);
	uint32_t of_a, of_b, of_c, n;

	make(0, true);
	of_a = opened(&a);
	of_b = opened(&b);
	stream(of_b, 0, kept / 2);
	n = entries_of(of_b);
	assert_in_range(n, 1, kept);
	stream(of_a, 0, 4 * SLOTS);
	assert_int_equal(entries_of(of_b), n);
	assert_int_equal(entries_of(of_a), SLOTS - n);
	/* the other one gets more, whatever the first has, and keeps it up to its part */
	stream(of_b, 2 * kept, 2 * kept);
	assert_true(entries_of(of_b) > n);
	n = entries_of(of_b) < kept ? entries_of(of_b) : kept;
	stream(of_a, 4 * SLOTS, 4 * SLOTS);
	assert_int_equal(entries_of(of_b), n);
	/* another region of its does not cost the tenant what is open nowhere any more */
	of_c = opened(&c);
	soda_prefetch_close(p, of_b, true);
	assert_int_equal(entries_of(of_b), 0);
	stream(of_a, 0, 2 * SLOTS);
	assert_int_equal(entries_of(of_a), SLOTS);
	soda_prefetch_close(p, of_c, true);
	soda_prefetch_close(p, of_a, true);
	soda_cache_check(soda_prefetch_cache(p));
	soda_prefetch_destroy(p);
}

static void a_failed_fetch_makes_a_pause(void **state)
{
	struct soda_owner_name a = { .id = { 7, 1 }, .bytes = 64 << 20 };
	struct soda_prefetch_stats s;
	struct soda_cache_ref ref;
	struct soda_fill *f;
	uint32_t owner;

	make(0, true);
	owner = opened(&a);
	for (uint32_t i = 0; i < 200; i++) {
		soda_prefetch_read(p, owner, i * SIM_PAGE, SIM_PAGE, NULL, NULL, &ref);
		soda_prefetch_step(p);
		while ((f = soda_prefetch_take(p)))
			soda_prefetch_filled(p, f, -EIO);
	}
	soda_prefetch_stats(p, &s);
	assert_in_range(s.cache.fills_failed, 1, 4);
	soda_prefetch_destroy(p);
}

/* A fetch of a server that fails makes no pause for another one. */
static void a_pause_is_one_servers(void **state)
{
	uint32_t owners[2], n = 0;
	struct soda_fill *f;

	make(0, true);
	open_many(owners, 2);
	for (uint32_t i = 0; i < 8 * CHUNKS; i++) {
		read_on(owners[0], i, 1);
		while ((f = soda_prefetch_take(p)))
			soda_prefetch_filled(p, f, f->owner == owners[0] ? -EIO : 0);
		read_on(owners[1], i, 1);
		while ((f = soda_prefetch_take(p))) {
			n += f->owner == owners[1];
			soda_prefetch_filled(p, f, 0);
		}
	}
	assert_true(n >= 7);
	close_many(owners, 2);
	soda_prefetch_destroy(p);
}

/* Threads: workers fetch, clients read, one comes and goes. */

enum { CLIENTS = 2, READS = 20000, ENOUGH = 1000, FILE_ENTRIES = 256 };

static _Atomic uint32_t hits, wrong;

static void fill_now(void *arg, struct soda_fill *fill)
{
	for (uint32_t k = 0; k < fill->runs_n; k++)
		for (uint32_t at = 0; at < fill->runs[k].bytes; at += SIM_PAGE) {
			uint64_t word = fill->offset + fill->runs[k].at + at;

			memcpy(fill->memory + fill->runs[k].at + at, &word, sizeof(word));
		}
	soda_prefetch_filled(p, fill, fill->offset % (37 * ENTRY) ? 0 : -EIO);
}

struct late {
	struct soda_cache_waiter w;
	uint64_t offset;
	_Atomic int done;
};

static void check(const struct soda_cache_ref *ref, uint64_t offset)
{
	uint64_t word;

	memcpy(&word, ref->memory, sizeof(word));
	atomic_fetch_add(word == offset ? &hits : &wrong, 1);
	soda_cache_release(soda_prefetch_cache(p), ref->slot);
}

static void late_done(struct soda_cache_waiter *w, int status, const struct soda_cache_ref *ref)
{
	struct late *late = (struct late *)w;

	if (!status)
		check(ref, late->offset);
	atomic_store(&late->done, 1);
}

static void read_one(uint32_t owner, uint64_t offset)
{
	struct late late = { .w.done = late_done, .offset = offset };
	struct soda_cache_ref ref;

	switch (soda_prefetch_read(p, owner, offset, SIM_PAGE, NULL, &late.w, &ref)) {
	case SODA_CACHE_HIT:
		check(&ref, offset);
		break;
	case SODA_CACHE_LATE:
		while (!atomic_load(&late.done))
			sched_yield();
		break;
	case SODA_CACHE_MISS:
		break;
	}
}

static void *client(void *arg)
{
	struct soda_owner_name shared = { .file = true,
					  .id = { 1, 1 },
					  .bytes = FILE_ENTRIES * (uint64_t)ENTRY };
	uint64_t dice = *(uint64_t *)arg;
	uint32_t owner = opened(&shared);
	uint64_t at = 0;

	for (int i = 0; i < READS || atomic_load(&hits) < ENOUGH; i++) {
		if (roll(&dice) % 256 == 0)
			at = roll(&dice) % (FILE_ENTRIES * CHUNKS);
		read_one(owner, at % (FILE_ENTRIES * CHUNKS) * SIM_PAGE);
		at++;
		if (i % 64 == 0) /* the workers want a processor, too */
			sched_yield();
	}
	soda_prefetch_close(p, owner, false);
	return NULL;
}

static void *passers_by(void *arg)
{
	uint64_t dice = *(uint64_t *)arg;

	for (uint32_t i = 0; i < 300; i++) {
		struct soda_owner_name mine = { .id = { 2, i }, .bytes = 8 * ENTRY };
		uint32_t owner = opened(&mine);

		for (uint64_t at = 0; at < 40; at++)
			read_one(owner, at * SIM_PAGE);
		soda_cache_written(soda_prefetch_cache(p), owner, roll(&dice) % 8 * ENTRY,
				   SIM_PAGE);
		soda_prefetch_close(p, owner, i % 2);
	}
	return NULL;
}

/* Servers that do not answer until they are let, which block the threads that ask them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static uint32_t asleep, answered; /* fetches that wait for these servers; of the other one */
static bool let;

static void fill_of_many(void *arg, struct soda_fill *fill)
{
	const uint32_t *lively = arg;

	pthread_mutex_lock(&lock);
	if (fill->owner == *lively)
		answered++;
	else
		asleep++;
	pthread_cond_broadcast(&moved);
	while (fill->owner != *lively && !let)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
	soda_prefetch_filled(p, fill, 0);
}

/* Until *sum is n: a limit of time is meson's. */
static void await_sum(const uint32_t *sum, uint32_t n)
{
	pthread_mutex_lock(&lock);
	while (*sum < n)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

static void read_only(uint32_t owner, uint32_t from, uint32_t pages)
{
	struct soda_cache_ref ref;

	for (uint32_t i = from; i < from + pages; i++)
		if (soda_prefetch_read(p, owner, i * (uint64_t)SIM_PAGE, SIM_PAGE, NULL, NULL,
				       &ref) == SODA_CACHE_HIT)
			soda_cache_release(soda_prefetch_cache(p), ref.slot);
}

/*
 * Nine servers of ten do not answer, and each keeps two threads: there are others for the tenth.
 * Promise R7.
 */
static void silent_servers_leave_workers(void **state)
{
	enum { SERVERS = 10 };
	static const struct soda_prefetch_ops ops = { .fill = fill_of_many };
	uint32_t owners[SERVERS];
	struct soda_prefetch_options opt = { .cache_bytes = 4 * SLOTS * (uint64_t)ENTRY,
					     .entry_bytes = ENTRY,
					     .always = true,
					     .per_server = 2 };

	assert_int_equal(soda_prefetch_create(&opt, &ops, &owners[SERVERS - 1], &p), 0);
	open_many(owners, SERVERS);
	assert_int_equal(soda_prefetch_start(p, 4, SODA_PREFETCH_WORKERS_MAX), 0);
	for (uint32_t i = 0; i < SERVERS - 1; i++) {
		read_only(owners[i], 0, 8 * CHUNKS);
		await_sum(&asleep, 2 * (i + 1));
	}
	for (uint32_t i = 0; i < 16; i++) {
		read_only(owners[SERVERS - 1], i * CHUNKS, CHUNKS);
		await_sum(&answered, i + 1);
	}
	pthread_mutex_lock(&lock);
	assert_int_equal(asleep, 2 * (SERVERS - 1));
	let = true;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
	soda_prefetch_stop(p);
	close_many(owners, SERVERS);
	soda_cache_check(soda_prefetch_cache(p));
	soda_prefetch_destroy(p);
}

static void threads(void **state)
{
	static const struct soda_prefetch_ops ops = { .fill = fill_now };
	struct soda_prefetch_options opt = { .cache_bytes = SLOTS * (uint64_t)ENTRY,
					     .entry_bytes = ENTRY,
					     .always = true };
	uint64_t dice = seed_of(), seeds[CLIENTS + 1];
	struct soda_prefetch_stats s;
	pthread_t t[CLIENTS + 1];

	assert_int_equal(soda_prefetch_create(&opt, &ops, NULL, &p), 0);
	assert_int_equal(soda_prefetch_start(p, 2, 2), 0);
	for (int i = 0; i <= CLIENTS; i++) {
		seeds[i] = roll(&dice) | 1;
		assert_int_equal(
			pthread_create(&t[i], NULL, i < CLIENTS ? client : passers_by, &seeds[i]),
			0);
	}
	for (int i = 0; i <= CLIENTS; i++)
		pthread_join(t[i], NULL);
	soda_prefetch_stop(p);
	soda_prefetch_stop(p);
	soda_prefetch_stats(p, &s);
	assert_int_equal(atomic_load(&wrong), 0);
	assert_int_equal(s.nonsense, 0);
	assert_int_equal(s.wanted, s.cache.fills);
	soda_cache_check(soda_prefetch_cache(p));
	soda_prefetch_destroy(p);
}

/* They hear that it is over whatever they are just doing. */
static void workers_end(void **state)
{
	enum { ROUNDS = 300 };
	static const struct soda_prefetch_ops ops = { .fill = fill_now };
	struct soda_prefetch_options opt = { .cache_bytes = SLOTS * (uint64_t)ENTRY,
					     .entry_bytes = ENTRY };

	for (int i = 0; i < ROUNDS; i++) {
		assert_int_equal(soda_prefetch_create(&opt, &ops, NULL, &p), 0);
		assert_int_equal(soda_prefetch_start(p, 2, 2), 0);
		for (int k = 0; k < i % 8; k++)
			sched_yield();
		soda_prefetch_stop(p);
		soda_prefetch_destroy(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_client_has_is_left_out),
		cmocka_unit_test(files_are_shared_and_linger),
		cmocka_unit_test(regions_go_with_their_client),
		cmocka_unit_test(the_table_of_owners_is_bounded),
		cmocka_unit_test(a_fetch_of_a_closed_owner_ends_well),
		cmocka_unit_test(a_silent_server_has_its_number),
		cmocka_unit_test(a_read_passes_what_waits),
		cmocka_unit_test(silent_servers_leave_slots),
		cmocka_unit_test(a_tenant_keeps_its_part),
		cmocka_unit_test(a_failed_fetch_makes_a_pause),
		cmocka_unit_test(a_pause_is_one_servers),
		cmocka_unit_test(silent_servers_leave_workers),
		cmocka_unit_test(threads),
		cmocka_unit_test(workers_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
