/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process does to itself while it has fabric memory, which stays what it was. */
#include "lib/harness.h"
#include "lib/itself.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 128, LAPS = 3 };

static struct world world;

static void does(bool (*step)(void))
{
	uint64_t *fam = patterned_object(world.address, "2M", 2, CHUNKS * CHUNK);

	CHECK(step());
	for (unsigned lap = 0; lap < LAPS; lap++)
		for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 64) {
			CHECK_EQ(fam[i], mix(i, lap));
			fam[i] = mix(i, lap + 1);
		}
}

static void child_limits(const void *arg)
{
	does(lower_limits);
}

static void child_identity(const void *arg)
{
	does(change_identity);
}

static void child_filter(const void *arg)
{
	does(forbid_calls);
}

/*
 * May: limits and identity | lowers each of its limits (files, file sizes, threads, locked
 * memory, addresses) | served
 */
static void test_limits(void **state)
{
	expect_passes(child_limits, NULL);
}

/*
 * May: limits and identity | becomes another user in another root directory, which nobody
 * may trace | served
 */
static void test_identity(void **state)
{
	expect_passes(child_identity, NULL);
}

/*
 * May: limits and identity | forbids itself files, sockets, threads and programs by a filter
 * of system calls | served
 */
static void test_filter(void **state)
{
	expect_passes(child_filter, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_filter),
	};

	return WORLD_RUN("itself", &world, false, tests);
}
