/* SPDX-License-Identifier: BSD-3-Clause */
/* Replacement: the lists under random operations; who is never taken, and who moves on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "host_agent/core/replace.h"

enum { TABLE = 1 << 16 };

static struct soda_chunk table[TABLE];
static struct soda_replacer r;
static uint64_t rng;

static uint32_t draw(uint32_t n)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((rng >> 33) % n);
}

static void begin(const struct soda_policy *policy, uint64_t capacity, uint64_t seed)
{
	memset(table, 0, sizeof(table));
	soda_replace_init(&r, policy, table, capacity);
	rng = seed;
}

/* As the evictor: what is clean goes, held and pinned ones stay. */
static enum soda_take droppable(void *arg, uint32_t id)
{
	return soda_chunk_droppable(table[id].word) ? SODA_TAKE_DROP : SODA_TAKE_NO;
}

static uint32_t resident(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r.shards; i++)
		n += r.shard[i].resident;
	return n;
}

static void held_and_pinned_stay(void **state)
{
	static const struct soda_policy *const policies[] = { &soda_policy_fifo,
							      &soda_policy_ghost };
	enum { N = 2000 };

	for (int p = 0; p < 2; p++) {
		uint32_t ids[32], gone = 0;
		int idle = 0;

		begin(policies[p], N, 1);
		for (uint32_t id = 0; id < N; id++) {
			table[id].word = SODA_CHUNK_CLEAN;
			if (id % 5 == 0)
				table[id].word |= id % 2 ? SODA_CW_PINNED : SODA_CW_HOLD_ONE;
			soda_replace_insert(&r, id);
		}
		/* However they lie, a call that finds nothing moves on. */
		while (gone < N - N / 5 && idle < N) {
			int n = soda_replace_take(&r, ids, 32, droppable, NULL);

			idle = n ? 0 : idle + 1;
			for (int i = 0; i < n; i++) {
				assert_true(ids[i] % 5 != 0 && table[ids[i]].list == 0);
				table[ids[i]].word = SODA_CHUNK_REMOTE;
			}
			gone += (uint32_t)n;
		}
		assert_int_equal(gone, N - N / 5);
		for (int i = 0; i < 100; i++)
			assert_int_equal(soda_replace_take(&r, ids, 32, droppable, NULL), 0);
		assert_int_equal(resident(), N / 5);
		soda_replace_check(&r);
	}
}

/* The fullest shard has nothing to give: the others are asked. */
static void held_shard_falls_through(void **state)
{
	enum { N = 4096 };
	uint32_t ids[8], most = 0, full = 0, taken = 0, here = 0;

	begin(&soda_policy_ghost, N, 1);
	assert_true(r.shards > 1);
	for (uint32_t id = 0; id < N; id++) {
		table[id].word = SODA_CHUNK_CLEAN;
		soda_replace_insert(&r, id);
	}
	for (uint32_t i = 0; i < r.shards; i++)
		if (r.shard[i].resident > most) {
			most = r.shard[i].resident;
			full = i;
		}
	for (int l = 1; l < SODA_REPLACE_LISTS; l++)
		for (uint32_t id = r.shard[full].head[l]; id != SODA_NO_CHUNK;
		     id = table[id].next) {
			table[id].word |= SODA_CW_HOLD_ONE;
			here++;
		}
	assert_int_equal(here, most);
	/* Down to the held ones: no call comes back with empty hands before. */
	for (int n; (n = soda_replace_take(&r, ids, 8, droppable, NULL)) > 0;) {
		for (int i = 0; i < n; i++)
			assert_false(table[ids[i]].word & SODA_CW_HOLD);
		taken += (uint32_t)n;
	}
	assert_int_equal(taken, N - most);
	soda_replace_check(&r);
}

/* What is dealt with otherwise, by queueing it, is offered again only after the others. */
static enum soda_take keep_all(void *arg, uint32_t id)
{
	(*(uint32_t *)arg)++;
	table[id].word |= SODA_CW_QUEUED;
	return SODA_TAKE_KEEP;
}

static void kept_ones_move_on(void **state)
{
	uint32_t ids[32], asked = 0;

	begin(&soda_policy_fifo, 100, 1);
	for (uint32_t id = 0; id < 100; id++) {
		table[id].word = SODA_CHUNK_DIRTY;
		soda_replace_insert(&r, id);
	}
	assert_int_equal(soda_replace_take(&r, ids, 32, keep_all, &asked), 0);
	assert_int_equal(asked, 64); /* max + 32: no more under the lock */
	for (uint32_t id = 0; id < 100; id++)
		assert_int_equal(!!(table[id].word & SODA_CW_QUEUED), id < 64);
	assert_int_equal(soda_replace_take(&r, ids, 4, keep_all, &asked), 0);
	for (uint32_t id = 64; id < 100; id++)
		assert_true(table[id].word & SODA_CW_QUEUED);
}

static enum soda_take whatever(void *arg, uint32_t id)
{
	return (enum soda_take)draw(3);
}

static void random_operations(uint64_t seed, const struct soda_policy *policy, uint32_t chunks)
{
	static bool there[TABLE];
	uint32_t n = 0, ids[32];

	memset(there, 0, sizeof(there));
	begin(policy, chunks, seed);
	for (int i = 0; i < 20000; i++) {
		uint32_t id = draw(2 * chunks), op = draw(16);

		if (op < 9 && !there[id]) {
			there[id] = true;
			n++;
			soda_replace_insert(&r, id);
		} else if (op < 11) {
			n -= there[id];
			there[id] = false;
			soda_replace_remove(&r, id); /* of one that is away: nothing */
		} else if (op < 15) {
			int max = 1 + (int)draw(32);
			int k = soda_replace_take(&r, ids, max, whatever, NULL);

			assert_in_range(k, 0, max);
			for (; k > 0; k--, n--) {
				assert_true(there[ids[k - 1]]);
				there[ids[k - 1]] = false;
			}
		} else {
			soda_replace_resize(&r, 1 + draw(2 * chunks));
		}
		assert_int_equal(resident(), n);
		if (i % 64 == 0)
			soda_replace_check(&r);
	}
	for (uint32_t id = 0; id < 2 * chunks; id++)
		assert_int_equal(table[id].list != 0, there[id]);
}

static void invariants(void **state)
{
	const char *given = getenv("SODA_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);

	print_message("SODA_TEST_SEED=%llu\n", (unsigned long long)seed);
	for (uint32_t i = 0; i < 4; i++) {
		random_operations(seed + i, &soda_policy_fifo, i & 1 ? 100 : 5000);
		random_operations(seed + i, &soda_policy_ghost, i & 1 ? 100 : 5000);
	}
}

static void by_name(void **state)
{
	struct soda_why why;

	assert_ptr_equal(soda_policy_find("fifo", &why), &soda_policy_fifo);
	assert_ptr_equal(soda_policy_find("ghost", &why), &soda_policy_ghost);
	assert_null(soda_policy_find("lru", &why));
	assert_non_null(strstr(why.text, "there is no 'lru'; there are: ghost, fifo"));
	assert_null(soda_policy_find("", &why));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(held_and_pinned_stay),
		cmocka_unit_test(held_shard_falls_through),
		cmocka_unit_test(kept_ones_move_on),
		cmocka_unit_test(invariants),
		cmocka_unit_test(by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
