/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of cached entries: states, references, late hits, writes, owners. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dpu_agent/cache/dynamic/dynamic_cache.h"
#include "unit/fakes/dpu_sim.h"

enum { ENTRY = 64 << 10, PAGE = 4096, SLOTS = 4 };

static struct soda_cache *cache;
static const struct soda_cache_run whole = { 0, ENTRY };

static int set_up(void **state)
{
	return soda_cache_create(SLOTS * ENTRY, ENTRY, &cache);
}

static int tear_down(void **state)
{
	soda_cache_check(cache);
	soda_cache_destroy(cache);
	return 0;
}

static uint32_t begin(uint32_t owner, uint64_t entry, uint32_t bytes)
{
	struct soda_cache_key key = { owner, entry };
	uint32_t slot = soda_cache_reclaim(cache);
	uint8_t *memory;

	assert_int_not_equal(slot, SODA_CACHE_NONE);
	assert_int_equal(soda_cache_fill_begin(cache, slot, &key,
					       &(struct soda_cache_run){ 0, bytes }, 1, &memory),
			 0);
	memset(memory, (int)(owner * 16 + entry), bytes);
	return slot;
}

static uint32_t fill(uint32_t owner, uint64_t entry)
{
	uint32_t slot = begin(owner, entry, ENTRY);

	soda_cache_fill_end(cache, slot, 0);
	return slot;
}

static enum soda_cache_answer ask(uint32_t owner, uint64_t offset, uint32_t bytes)
{
	struct soda_cache_ref ref;
	enum soda_cache_answer answer = soda_cache_acquire(cache, owner, offset, bytes, NULL, &ref);

	if (answer == SODA_CACHE_HIT) {
		assert_int_equal(ref.memory[0], owner * 16 + offset / ENTRY);
		assert_int_equal(ref.memory[bytes - 1], owner * 16 + offset / ENTRY);
		soda_cache_release(cache, ref.slot);
	}
	return answer;
}

static struct soda_cache_counts counts(void)
{
	struct soda_cache_counts c;

	soda_cache_count(cache, &c);
	return c;
}

static void refuses_bad_sizes(void **state)
{
	struct soda_cache *none = NULL;

	assert_int_equal(soda_cache_create(1 << 20, 96 << 10, &none), -EINVAL);
	assert_int_equal(soda_cache_create(1 << 20, 32 << 10, &none), -EINVAL);
	assert_int_equal(soda_cache_create(64 << 20, 8 << 20, &none), -EINVAL);
	assert_int_equal(soda_cache_create(ENTRY, ENTRY, &none), -EINVAL);
	assert_int_equal(soda_cache_create(0, 0, &none), -EINVAL);
	assert_null(none);
}

static void finds_what_was_filled(void **state)
{
	uint64_t bytes;
	uint8_t *arena = soda_cache_arena(cache, &bytes);

	assert_true(bytes >= SLOTS * ENTRY);
	assert_int_equal((uintptr_t)arena % (2 << 20), 0);
	assert_int_equal(ask(1, ENTRY, PAGE), SODA_CACHE_MISS);
	fill(1, 1);
	assert_int_equal(ask(1, ENTRY, PAGE), SODA_CACHE_HIT);
	assert_int_equal(ask(1, 2 * ENTRY - PAGE, PAGE), SODA_CACHE_HIT);
	assert_int_equal(ask(1, ENTRY, ENTRY), SODA_CACHE_HIT);
	assert_int_equal(ask(2, ENTRY, PAGE), SODA_CACHE_MISS);
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_MISS);
	assert_int_equal(counts().hits, 3);
	assert_int_equal(counts().bytes_hit, 2 * PAGE + ENTRY);
	assert_int_equal(counts().misses, 3);
}

static void a_request_over_two_entries_is_never_cached(void **state)
{
	fill(1, 0);
	fill(1, 1);
	assert_int_equal(ask(1, ENTRY - PAGE, 2 * PAGE), SODA_CACHE_MISS);
	assert_int_equal(ask(1, 0, 2 * ENTRY), SODA_CACHE_MISS);
	assert_int_equal(counts().bypassed, 2);
}

static void an_end_shorter_than_an_entry(void **state)
{
	uint32_t slot = begin(1, 0, 3 * PAGE);

	soda_cache_fill_end(cache, slot, 0);
	assert_int_equal(ask(1, 2 * PAGE, PAGE), SODA_CACHE_HIT);
	assert_int_equal(ask(1, 3 * PAGE, PAGE), SODA_CACHE_MISS);
	assert_int_equal(counts().bytes_filled, 3 * PAGE);
}

/* ENTRY is 16 pages: a page is four of its 64ths. */
static void parts_of_an_entry(void **state)
{
	struct soda_cache_run runs[SODA_CACHE_RUNS_MAX];
	struct soda_cache_key key = { 1, 0 };
	uint32_t slot, n;
	uint8_t *memory;

	assert_int_equal(soda_cache_plan(cache, ENTRY, SODA_CACHE_WHOLE, runs), 1);
	assert_int_equal(runs[0].at, 0);
	assert_int_equal(runs[0].bytes, ENTRY);
	/* Pages 1, 2 and 15, of the last of which the owner has none. */
	assert_int_equal(soda_cache_plan(cache, ENTRY, 0x10ull | 0x800 | 1ull << 63, runs), 2);
	assert_int_equal(runs[0].at, PAGE);
	assert_int_equal(runs[0].bytes, 2 * PAGE);
	assert_int_equal(runs[1].at, 15 * PAGE);
	assert_int_equal(soda_cache_plan(cache, 15 * PAGE, 0x10ull | 1ull << 63, runs), 1);
	assert_int_equal(runs[0].at, PAGE);
	assert_int_equal(soda_cache_plan(cache, 3 * PAGE, 1ull << 63, runs), 1);
	assert_int_equal(runs[0].at, 2 * PAGE);
	assert_int_equal(runs[0].bytes, PAGE);
	/* Every other page is eight runs, and no more. */
	assert_int_equal(soda_cache_plan(cache, ENTRY, 0x0f0f0f0f0f0f0f0full, runs), 8);

	slot = soda_cache_reclaim(cache);
	n = soda_cache_plan(cache, ENTRY, 0x10ull | 0x800 | 1ull << 63, runs);
	assert_int_equal(soda_cache_fill_begin(cache, slot, &key, runs, n, &memory), 0);
	memset(memory, 16, ENTRY);
	soda_cache_fill_end(cache, slot, 0);
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_MISS);
	assert_int_equal(ask(1, PAGE, 2 * PAGE), SODA_CACHE_HIT);
	assert_int_equal(ask(1, 2 * PAGE, 2 * PAGE), SODA_CACHE_MISS);
	assert_int_equal(ask(1, 15 * PAGE, PAGE), SODA_CACHE_HIT);
	assert_int_equal(counts().bytes_filled, 3 * PAGE);
	assert_int_equal(soda_cache_evict(cache, slot), 0);
	assert_int_equal(counts().bytes_useless, 0);
}

/* With 64 sectors there may be 32 runs: the smallest gaps are read as well. */
static void too_many_parts(void **state)
{
	struct soda_cache_run runs[SODA_CACHE_RUNS_MAX];
	struct soda_cache *big;

	assert_int_equal(soda_cache_create(4 << 20, 1 << 20, &big), 0);
	assert_int_equal(soda_cache_plan(big, 1 << 20, 0x5555000000000055ull, runs), 8);
	for (uint32_t i = 1; i < 8; i++)
		assert_true(runs[i].at > runs[i - 1].at + runs[i - 1].bytes);
	/* The large gap stays. */
	for (uint32_t i = 0; i < 8; i++)
		assert_true(runs[i].at + runs[i].bytes <= 7 << 14 || runs[i].at >= 48 << 14);
	soda_cache_destroy(big);
}

static void one_entry_has_one_slot(void **state)
{
	struct soda_cache_key key = { 1, 7 };
	uint32_t slot = fill(1, 7), other = soda_cache_reclaim(cache);
	uint8_t *memory;

	assert_int_equal(soda_cache_find(cache, &key), slot);
	assert_int_equal(soda_cache_fill_begin(cache, other, &key, &whole, 1, &memory), -EEXIST);
	key.owner = 2;
	assert_int_equal(soda_cache_find(cache, &key), SODA_CACHE_NONE);
	assert_int_equal(soda_cache_fill_begin(cache, other, &key, &whole, 1, &memory), 0);
	soda_cache_fill_end(cache, other, 0);
}

static void what_is_used_stays(void **state)
{
	struct soda_cache_ref ref, again;
	uint32_t slot = begin(1, 0, ENTRY);

	assert_int_equal(soda_cache_evict(cache, slot), -EBUSY); /* being filled */
	soda_cache_fill_end(cache, slot, 0);
	assert_int_equal(soda_cache_acquire(cache, 1, 0, PAGE, NULL, &ref), SODA_CACHE_HIT);
	assert_true(ref.first);
	assert_int_equal(soda_cache_acquire(cache, 1, 0, PAGE, NULL, &again), SODA_CACHE_HIT);
	assert_false(again.first);
	assert_int_equal(soda_cache_evict(cache, slot), -EBUSY);
	soda_cache_release(cache, slot);
	assert_false(soda_cache_evictable(cache, slot));
	assert_int_equal(soda_cache_evict(cache, slot), -EBUSY);
	soda_cache_release(cache, slot);
	assert_true(soda_cache_evictable(cache, slot));
	assert_int_equal(soda_cache_evict(cache, slot), 0);
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_MISS);
	assert_int_equal(soda_cache_evict(cache, slot), -EBUSY); /* empty */
	assert_false(soda_cache_evictable(cache, SLOTS));
	assert_int_equal(counts().evictions, 1);
}

struct late {
	struct soda_cache_waiter w;
	int status, calls;
	uint8_t byte;
	uint32_t slot;
};

static void woken(struct soda_cache_waiter *w, int status, const struct soda_cache_ref *ref)
{
	struct late *late = (struct late *)w;

	late->calls++;
	late->status = status;
	if (!status) {
		late->byte = ref->memory[0];
		late->slot = ref->slot;
	}
}

static void wait_for(struct late *late, uint32_t owner, uint64_t offset)
{
	struct soda_cache_ref ref;

	*late = (struct late){ .w.done = woken };
	assert_int_equal(soda_cache_acquire(cache, owner, offset, PAGE, &late->w, &ref),
			 SODA_CACHE_LATE);
}

static void late_hits_get_the_bytes_and_a_reference(void **state)
{
	uint32_t slot = begin(1, 2, ENTRY);
	struct late a, b;

	assert_int_equal(ask(1, 2 * ENTRY, PAGE), SODA_CACHE_MISS); /* does not want to wait */
	wait_for(&a, 1, 2 * ENTRY);
	wait_for(&b, 1, 3 * ENTRY - PAGE);
	assert_int_equal(a.calls, 0);
	soda_cache_fill_end(cache, slot, 0);
	assert_int_equal(a.calls, 1);
	assert_int_equal(b.calls, 1);
	assert_int_equal(a.status, 0);
	assert_int_equal(a.byte, 16 + 2);
	assert_int_equal(soda_cache_evict(cache, slot), -EBUSY);
	soda_cache_release(cache, a.slot);
	soda_cache_release(cache, b.slot);
	assert_int_equal(soda_cache_evict(cache, slot), 0);
	assert_int_equal(counts().late_hits, 2);
	assert_int_equal(counts().useless, 0);
}

/* A request goes on with its own sectors, and later ones of those need not wait. */
static void parts_are_there_before_the_whole(void **state)
{
	uint32_t slot = begin(1, 0, ENTRY);
	struct late first, both, last;

	wait_for(&first, 1, 0);
	wait_for(&both, 1, 4 * PAGE);
	both.w.sectors |= both.w.sectors << 1; /* of the fifth page and the sixth */
	wait_for(&last, 1, ENTRY - PAGE);
	soda_cache_fill_part(cache, slot, 0, 5 * PAGE);
	assert_int_equal(first.calls, 1);
	assert_int_equal(first.status, 0);
	assert_int_equal(first.byte, 16);
	assert_int_equal(both.calls, 0);
	assert_int_equal(ask(1, 4 * PAGE, PAGE), SODA_CACHE_HIT);
	assert_int_equal(ask(1, 4 * PAGE, 2 * PAGE), SODA_CACHE_MISS); /* without waiting */
	soda_cache_fill_part(cache, slot, 5 * PAGE, PAGE);
	assert_int_equal(both.calls, 1);
	assert_int_equal(soda_cache_evict(cache, slot), -EBUSY);
	soda_cache_fill_end(cache, slot, 0);
	assert_int_equal(first.calls, 1);
	assert_int_equal(last.calls, 1);
	assert_int_equal(soda_cache_evict(cache, slot), -EBUSY);
	for (int i = 0; i < 3; i++)
		soda_cache_release(cache, slot);
	assert_int_equal(soda_cache_evict(cache, slot), 0);
	assert_int_equal(counts().fills, 1);
	assert_int_equal(counts().late_hits, 3);
}

/* It does not wait for an entry that is queued behind others, which leaves out what it asks for. */
static void a_request_passes_a_line(void **state)
{
	struct soda_cache_run runs[SODA_CACHE_RUNS_MAX] = { whole };
	uint32_t slot = begin(1, 0, ENTRY), other = begin(1, 1, ENTRY);
	struct soda_cache_line line = { .stands = false, .first = other };
	struct soda_cache_ref ref;
	struct late first, late, passing = { .w.done = woken };

	soda_cache_fill_queue(cache, slot, &line);
	wait_for(&first, 1, 0); /* the line moves on */
	line.stands = true;
	wait_for(&late, 1, 0); /* where somebody waits already */
	assert_int_equal(soda_cache_acquire(cache, 1, 4 * PAGE, 2 * PAGE, &passing.w, &ref),
			 SODA_CACHE_MISS);
	assert_int_equal(passing.calls, 0);
	line.first = slot;
	wait_for(&passing, 1, 15 * PAGE); /* it is next */
	assert_int_equal(soda_cache_fill_start(cache, slot, runs, 1), 2);
	assert_int_equal(runs[0].at, 0);
	assert_int_equal(runs[0].bytes, 4 * PAGE);
	assert_int_equal(runs[1].at, 6 * PAGE);
	assert_int_equal(runs[1].bytes, 10 * PAGE);
	soda_cache_fill_end(cache, slot, 0);
	assert_int_equal(first.status, 0);
	assert_int_equal(late.status, 0);
	assert_int_equal(passing.status, 0);
	assert_int_equal(ask(1, 4 * PAGE, PAGE), SODA_CACHE_MISS);
	assert_int_equal(counts().bytes_filled, 14 * PAGE);
	for (int i = 0; i < 3; i++)
		soda_cache_release(cache, slot);
	soda_cache_fill_end(cache, other, 0);
}

/* A request that has a part of it keeps that; nobody finds it any more. */
static void a_fill_fails_after_a_part(void **state)
{
	uint32_t slot = begin(1, 0, ENTRY), n = 0;
	struct late first, last;

	wait_for(&first, 1, 0);
	wait_for(&last, 1, ENTRY - PAGE);
	soda_cache_fill_part(cache, slot, 0, PAGE);
	assert_int_equal(first.calls, 1);
	soda_cache_fill_end(cache, slot, -EIO);
	assert_int_equal(last.status, -EIO);
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_MISS);
	while (soda_cache_reclaim(cache) != SODA_CACHE_NONE)
		n++;
	assert_int_equal(n, SLOTS - 1);
	assert_int_equal(first.byte, 16);
	soda_cache_release(cache, slot);
	assert_int_equal(soda_cache_reclaim(cache), slot);
}

static void a_write_hides_a_part(void **state)
{
	uint32_t slot = begin(1, 0, ENTRY);
	struct late stale, other;

	wait_for(&stale, 1, PAGE);
	wait_for(&other, 1, 2 * PAGE);
	soda_cache_written(cache, 1, PAGE, PAGE);
	soda_cache_fill_part(cache, slot, 0, 4 * PAGE);
	assert_int_equal(stale.calls, 0);
	assert_int_equal(other.calls, 1);
	assert_int_equal(ask(1, PAGE, PAGE), SODA_CACHE_MISS);
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_HIT);
	soda_cache_written(cache, 1, 0, PAGE); /* here already */
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_MISS);
	soda_cache_fill_end(cache, slot, 0);
	assert_int_equal(stale.status, -ESTALE);
	assert_int_equal(ask(1, 0, 2 * PAGE), SODA_CACHE_MISS);
	soda_cache_release(cache, slot);
}

/* It comes to an entry that nobody has any more. */
static void a_part_of_a_forgotten_entry(void **state)
{
	uint32_t slot = begin(1, 0, ENTRY);
	struct late late;

	wait_for(&late, 1, 0);
	soda_cache_forget(cache, 1);
	soda_cache_fill_part(cache, slot, 0, PAGE);
	assert_int_equal(late.calls, 0);
	fill(1, 0); /* anew, elsewhere */
	soda_cache_fill_part(cache, slot, PAGE, PAGE);
	soda_cache_fill_end(cache, slot, 0);
	assert_int_equal(late.status, -ESTALE);
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_HIT);
}

static void a_failed_fill_says_so_and_frees_the_slot(void **state)
{
	uint32_t slot = begin(1, 0, ENTRY), n = 0;
	struct late a;

	wait_for(&a, 1, 0);
	soda_cache_fill_end(cache, slot, -EIO);
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.status, -EIO);
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_MISS);
	while (soda_cache_reclaim(cache) != SODA_CACHE_NONE)
		n++;
	assert_int_equal(n, SLOTS);
	assert_int_equal(counts().fills_failed, 1);
	assert_int_equal(counts().bytes_filled, 0);
	assert_int_equal(counts().useless, 0);
}

static void a_write_hides_its_sectors_only(void **state)
{
	fill(1, 0);
	fill(1, 1);
	soda_cache_written(cache, 1, ENTRY - PAGE, 2 * PAGE); /* the last and the first page */
	assert_int_equal(ask(1, ENTRY - PAGE, PAGE), SODA_CACHE_MISS);
	assert_int_equal(ask(1, ENTRY, PAGE), SODA_CACHE_MISS);
	assert_int_equal(ask(1, ENTRY - 2 * PAGE, PAGE), SODA_CACHE_HIT);
	assert_int_equal(ask(1, ENTRY + PAGE, PAGE), SODA_CACHE_HIT);
	assert_int_equal(ask(1, 0, ENTRY), SODA_CACHE_MISS);
	assert_int_equal(counts().writes, 2);
	soda_cache_written(cache, 2, 0, PAGE); /* somebody else's */
	assert_int_equal(counts().writes, 2);
}

static void an_entry_all_written_goes(void **state)
{
	struct soda_cache_ref ref;
	uint32_t slot = fill(1, 0), n = 0;

	assert_int_equal(soda_cache_acquire(cache, 1, 0, PAGE, NULL, &ref), SODA_CACHE_HIT);
	soda_cache_written(cache, 1, 0, ENTRY);
	assert_int_equal(counts().entries, 0);
	assert_int_equal(ref.memory[0], 16); /* the reader's bytes are as they were */
	fill(1, 0);			     /* in another slot */
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_HIT);
	soda_cache_release(cache, slot);
	while (soda_cache_reclaim(cache) != SODA_CACHE_NONE)
		n++;
	assert_int_equal(n, SLOTS - 1);
}

static void a_write_during_a_fill_hides_what_was_read_before_it(void **state)
{
	uint32_t slot = begin(1, 0, ENTRY);
	struct late before, other;

	wait_for(&before, 1, 0);
	wait_for(&other, 1, PAGE);
	soda_cache_written(cache, 1, 0, PAGE);
	soda_cache_fill_end(cache, slot, 0);
	assert_int_equal(before.status, -ESTALE);
	assert_int_equal(other.status, 0);
	soda_cache_release(cache, other.slot);
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_MISS);
	assert_int_equal(ask(1, PAGE, PAGE), SODA_CACHE_HIT);
}

static void forgetting_an_owner(void **state)
{
	struct soda_cache_ref ref;
	uint32_t held = fill(1, 0), filling = begin(1, 1, ENTRY);
	struct late late;

	fill(2, 0);
	wait_for(&late, 1, ENTRY);
	assert_int_equal(soda_cache_acquire(cache, 1, 0, PAGE, NULL, &ref), SODA_CACHE_HIT);
	soda_cache_forget(cache, 1);
	assert_int_equal(ask(1, 0, PAGE), SODA_CACHE_MISS);
	assert_int_equal(ask(2, 0, PAGE), SODA_CACHE_HIT);
	assert_int_equal(ref.memory[PAGE - 1], 16);
	soda_cache_fill_end(cache, filling, 0);
	assert_int_equal(late.calls, 1);
	assert_int_equal(late.status, -ESTALE);
	assert_int_equal(ask(1, ENTRY, PAGE), SODA_CACHE_MISS);
	soda_cache_release(cache, held);
	assert_int_not_equal(soda_cache_reclaim(cache), SODA_CACHE_NONE);
	assert_int_not_equal(soda_cache_reclaim(cache), SODA_CACHE_NONE);
	assert_int_not_equal(soda_cache_reclaim(cache), SODA_CACHE_NONE);
	assert_int_equal(soda_cache_reclaim(cache), SODA_CACHE_NONE);
}

static void useless_ones_are_counted(void **state)
{
	uint32_t used = fill(1, 0), unused = fill(1, 1);

	ask(1, PAGE, PAGE);
	assert_int_equal(soda_cache_evict(cache, used), 0);
	assert_int_equal(counts().useless, 0);
	assert_int_equal(counts().bytes_useless, ENTRY - PAGE);
	assert_int_equal(soda_cache_evict(cache, unused), 0);
	assert_int_equal(counts().useless, 1);
	assert_int_equal(counts().bytes_useless, 2 * ENTRY - PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_bad_sizes),
		cmocka_unit_test_setup_teardown(finds_what_was_filled, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_request_over_two_entries_is_never_cached, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(an_end_shorter_than_an_entry, set_up, tear_down),
		cmocka_unit_test_setup_teardown(parts_of_an_entry, set_up, tear_down),
		cmocka_unit_test(too_many_parts),
		cmocka_unit_test_setup_teardown(one_entry_has_one_slot, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_used_stays, set_up, tear_down),
		cmocka_unit_test_setup_teardown(late_hits_get_the_bytes_and_a_reference, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(parts_are_there_before_the_whole, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_request_passes_a_line, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_fill_fails_after_a_part, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_write_hides_a_part, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_part_of_a_forgotten_entry, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_failed_fill_says_so_and_frees_the_slot, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_write_hides_its_sectors_only, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_entry_all_written_goes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_write_during_a_fill_hides_what_was_read_before_it,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(forgetting_an_owner, set_up, tear_down),
		cmocka_unit_test_setup_teardown(useless_ones_are_counted, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
