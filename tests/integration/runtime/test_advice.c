/* SPDX-License-Identifier: BSD-3-Clause */
/* soda_advise, soda_prefetch and soda_sync: what each promises, by counters and content. */
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 64 };

static struct world world;

/* A started runtime and an object of CHUNKS chunks with known content. */
static uint64_t *filled(const char *buffer)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *fam;

	cfg.server = world.address;
	cfg.buffer = buffer;
	cfg.threads = 2;
	start(&cfg);
	fam = alloc_checked(CHUNKS * CHUNK);
	/* so that all that is fetched ahead was asked for */
	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_RANDOM), 0);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i++)
		fam[i] = mix(i, 0);
	return fam;
}

static void check_words(const uint64_t *fam, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		CHECK(fam[i] == mix(i, 0), "word %zu: %llx", i, (unsigned long long)fam[i]);
}

static void child_cold(const void *arg)
{
	uint64_t *fam = filled("32M");
	struct soda_stats before = stats_now(), after;

	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_COLD), 0);
	after = stats_now();
	CHECK(before.resident_bytes >= CHUNKS * CHUNK, "%llu",
	      (unsigned long long)before.resident_bytes);
	CHECK(after.resident_bytes + CHUNKS * CHUNK <= before.resident_bytes, "%llu still resident",
	      (unsigned long long)after.resident_bytes);
	check_words(fam, 0, CHUNKS * CHUNK_WORDS);
	CHECK_EQ(stats_now().fetches - after.fetches, CHUNKS);
}

static void test_cold_evicts_and_keeps(void **state)
{
	expect_passes(child_cold, NULL);
}

/* DISCARD: whole chunks inside the range and no others, wherever the data was. */
static void child_discard(const void *arg)
{
	uint64_t *fam = filled("32M");
	size_t first = 10 * CHUNK_WORDS - 5, last = 20 * CHUNK_WORDS + 7;

	CHECK_EQ(soda_advise(fam, 12 * CHUNK, SODA_COLD), 0); /* some of it is remote */
	CHECK_EQ(soda_advise(fam + first, (last - first) * 8, SODA_DISCARD), 0);
	check_words(fam, 0, 10 * CHUNK_WORDS);
	for (size_t i = 10 * CHUNK_WORDS; i < 20 * CHUNK_WORDS; i++)
		CHECK(fam[i] == 0, "word %zu: %llx", i, (unsigned long long)fam[i]);
	check_words(fam, 20 * CHUNK_WORDS, CHUNKS * CHUNK_WORDS);
	fam[15 * CHUNK_WORDS] = 1;
	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_COLD), 0);
	CHECK_EQ(fam[15 * CHUNK_WORDS], 1);
	CHECK_EQ(fam[15 * CHUNK_WORDS + 1], 0);
	CHECK_EQ(fam[16 * CHUNK_WORDS], 0);
}

static void test_discard_zeroes_whole_chunks(void **state)
{
	expect_passes(child_discard, NULL);
}

/* Use other chunks, often enough for any policy to let the rest go. */
static void sweep(const volatile uint64_t *fam, size_t from_chunk, size_t to_chunk)
{
	for (int round = 0; round < 3; round++)
		for (size_t c = from_chunk; c < to_chunk; c++)
			(void)fam[c * CHUNK_WORDS];
}

static void child_pin(const void *arg)
{
	enum { PINNED = 8 };
	uint64_t *fam = filled("2M");
	struct soda_stats before;

	CHECK_EQ(soda_advise(fam, PINNED * CHUNK, SODA_PIN), 0);
	CHECK_EQ(soda_advise(fam, PINNED * CHUNK, SODA_PIN), 0); /* pins do not count */
	CHECK_EQ(stats_now().pinned_bytes, PINNED * CHUNK);
	sweep(fam, PINNED, CHUNKS);
	before = stats_now();
	check_words(fam, 0, PINNED * CHUNK_WORDS);
	CHECK_EQ(stats_now().faults, before.faults);
	CHECK_EQ(soda_advise(fam, PINNED * CHUNK, SODA_UNPIN), 0);
	CHECK_EQ(stats_now().pinned_bytes, 0);
	sweep(fam, PINNED, CHUNKS);
	before = stats_now();
	check_words(fam, 0, CHUNKS * CHUNK_WORDS);
	CHECK(stats_now().fetches > before.fetches, "nothing was evicted after UNPIN");
}

static void test_pin_holds_until_unpin(void **state)
{
	expect_passes(child_pin, NULL);
}

static void child_pin_too_much(const void *arg)
{
	uint64_t *fam = filled("2M");

	/* 32 chunks of buffer, 10 of them the smallest one's */
	CHECK_EQ(soda_advise(fam + 3 * CHUNK_WORDS, 8 * CHUNK, SODA_PIN), 0);
	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_PIN), -ENOMEM);
	CHECK(soda_last_error()[0], "no sentence");
	CHECK_EQ(stats_now().pinned_bytes, 8 * CHUNK); /* what was pinned before stays so */
	check_words(fam, 0, CHUNKS * CHUNK_WORDS);
	CHECK(stats_now().resident_peak_bytes <= 2 << 20, "over the buffer");
}

static void test_pin_beyond_the_buffer(void **state)
{
	expect_passes(child_pin_too_much, NULL);
}

/* All is pinned that may be, and staging slots have the rest, but for the least of a thread. */
static void child_pin_all(const void *arg)
{
	enum { SMALL = 4096, PAGES = 1024 };
	struct soda_config cfg = SODA_CONFIG_INIT;
	volatile uint64_t *fam;
	size_t n = 0;

	cfg.server = world.address;
	cfg.mode = *(const enum soda_mode *)arg;
	cfg.chunk_bytes = SMALL;
	cfg.buffer = "1M";
	cfg.threads = 1;
	cfg.prefetch_chunks = 64;
	start(&cfg);
	fam = alloc_checked(PAGES * SMALL);
	for (size_t i = 0; i < PAGES; i++)
		fam[i * SMALL / 8] = i;
	while (!soda_advise((char *)(uintptr_t)fam + n * SMALL, SMALL, SODA_PIN))
		n++;
	CHECK(n > 100 && n < 256, "%zu are pinned", n);
	for (size_t i = n; i < PAGES; i++)
		CHECK_EQ(fam[i * SMALL / 8], i);
}

static void test_pin_all(void **state)
{
	static const enum soda_mode modes[] = { SODA_MODE_INLINE, SODA_MODE_HANDLER };

	for (int i = 0; i < 2; i++)
		expect_passes(child_pin_all, &modes[i]);
}

static void await_prefetched(uint64_t n)
{
	double end = now_seconds() + 5;

	while (stats_now().prefetched < n && now_seconds() < end)
		sleep_ms(5);
	CHECK(stats_now().prefetched >= n, "%llu prefetched, expected %llu",
	      (unsigned long long)stats_now().prefetched, (unsigned long long)n);
}

static void child_prefetch(const void *arg)
{
	bool advise = *(const bool *)arg;
	uint64_t *fam = filled("32M");
	struct soda_stats before;
	size_t n = 16;

	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_COLD), 0);
	CHECK_EQ(advise ? soda_advise(fam, n * CHUNK, SODA_WILLNEED)
			: soda_prefetch(fam, n * CHUNK),
		 0);
	await_prefetched(n / 2); /* what is over the budget is left out */
	before = stats_now();
	check_words(fam, 0, n * CHUNK_WORDS);
	CHECK(stats_now().fetches - before.fetches <= n / 2, "%llu fetched on demand",
	      (unsigned long long)(stats_now().fetches - before.fetches));
	CHECK_EQ(stats_now().prefetch_useless, 0);
}

static void test_prefetch(void **state)
{
	expect_passes(child_prefetch, &(bool){ false });
}

static void test_willneed(void **state)
{
	expect_passes(child_prefetch, &(bool){ true });
}

/* Every other chunk, last first, of two objects; and nothing at all if one range is nowhere. */
static void child_prefetchv(const void *arg)
{
	enum { N = 8 };
	uint64_t *fam = filled("32M"), *other = alloc_checked(N * CHUNK);
	struct iovec ranges[N + 1];
	struct soda_stats before;

	for (size_t i = 0; i < N; i++)
		other[i * CHUNK_WORDS] = mix(i, 1);
	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_COLD), 0);
	CHECK_EQ(soda_advise(other, N * CHUNK, SODA_COLD), 0);
	CHECK_EQ(soda_advise(other, N * CHUNK, SODA_RANDOM), 0);
	for (size_t i = 0; i < N; i++)
		ranges[i] = (struct iovec){ (i % 2 ? fam : other) + (N - 1 - i) * CHUNK_WORDS, 8 };
	ranges[N] = (struct iovec){ &ranges, 8 };
	before = stats_now();
	CHECK_EQ(soda_prefetchv(ranges, N + 1), -EINVAL);
	CHECK_EQ(stats_now().prefetched, before.prefetched);
	CHECK_EQ(soda_prefetchv(ranges, 0), 0);
	CHECK_EQ(soda_prefetchv(ranges, N), 0);
	await_prefetched(before.prefetched + N);
	for (size_t i = 0; i < N / 2; i++) {
		CHECK_EQ(fam[2 * i * CHUNK_WORDS], mix(2 * i * CHUNK_WORDS, 0));
		CHECK_EQ(other[(2 * i + 1) * CHUNK_WORDS], mix(2 * i + 1, 1));
	}
	CHECK_EQ(stats_now().fetches, before.fetches);
	CHECK_EQ(stats_now().prefetched, before.prefetched + N);
}

static void test_prefetchv(void **state)
{
	expect_passes(child_prefetchv, NULL);
}

/* A sequential reader is run ahead of, and one with RANDOM is not. */
static void child_streams(const void *arg)
{
	const int *advice = arg;
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *fam, prefetched;

	cfg.server = world.address;
	cfg.buffer = "2M";
	start(&cfg);
	fam = alloc_checked(CHUNKS * CHUNK);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i++)
		fam[i] = mix(i, 0);
	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_COLD), 0);
	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, *advice), 0);
	prefetched = stats_now().prefetched;
	check_words(fam, 0, CHUNKS * CHUNK_WORDS);
	prefetched = stats_now().prefetched - prefetched;
	if (*advice == SODA_RANDOM)
		CHECK_EQ(prefetched, 0);
	else
		CHECK(prefetched > CHUNKS / 4, "%llu prefetched", (unsigned long long)prefetched);
}

static void test_streams(void **state)
{
	static const int advice[] = { SODA_NORMAL, SODA_SEQUENTIAL, SODA_RANDOM };

	for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++)
		expect_passes(child_streams, &advice[i]);
}

/* What is clean after a sync is dropped without being sent again. */
static void child_sync(const void *arg)
{
	uint64_t *fam = filled("32M");
	uint64_t sent;

	CHECK_EQ(soda_sync(fam, CHUNKS * CHUNK), 0);
	sent = stats_now().bytes_written_back;
	CHECK(sent >= CHUNKS * CHUNK, "%llu", (unsigned long long)sent);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_COLD), 0);
	CHECK_EQ(stats_now().bytes_written_back, sent);
	check_words(fam, 0, CHUNKS * CHUNK_WORDS);
	fam[0] = 1;
	CHECK_EQ(soda_sync(fam, 8), 0);
	CHECK(stats_now().bytes_written_back - sent <= CHUNK, "%llu for one word",
	      (unsigned long long)(stats_now().bytes_written_back - sent));
	CHECK(stats_now().bytes_written_back > sent, "the store was not sent");
}

static void test_sync_cleans(void **state)
{
	expect_passes(child_sync, NULL);
}

static void child_bad_ranges(const void *arg)
{
	uint64_t *fam = filled("32M"), local;

	CHECK_EQ(soda_advise(&local, 8, SODA_COLD), -EINVAL);
	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK + 1, SODA_COLD), -EINVAL);
	CHECK_EQ(soda_advise(fam, SIZE_MAX, SODA_COLD), -EINVAL);
	CHECK_EQ(soda_advise(fam, CHUNK, 99), -EINVAL);
	CHECK_EQ(soda_advise(fam, CHUNK, -1), -EINVAL);
	CHECK_EQ(soda_sync(&local, 8), -EINVAL);
	CHECK_EQ(soda_sync(fam, CHUNKS * CHUNK + 1), -EINVAL);
	CHECK_EQ(soda_prefetch(&local, 8), -EINVAL);
	CHECK_EQ(soda_prefetch(fam + 1, CHUNKS * CHUNK), -EINVAL);
	for (int advice = SODA_STATIC_CACHE; !arg && advice <= SODA_NO_CACHE; advice++)
		CHECK_EQ(soda_advise(fam, CHUNK, advice), -ENOTSUP);
	check_words(fam, 0, CHUNKS * CHUNK_WORDS);
}

static void test_bad_ranges(void **state)
{
	expect_passes(child_bad_ranges, getenv("SODA_TEST_AGENT"));
}

/*
 * What is held stays, whatever else is used, and system calls read it, in either mode; and where it
 * has been given back it goes as before.
 */
static void child_hold(const void *arg)
{
	uint64_t *fam = filled("2M"), *mine = fam + CHUNK_WORDS / 2;
	static uint64_t copy[CHUNK_WORDS];
	int fd = memfd_create("copy", MFD_CLOEXEC);
	struct soda_stats before;

	CHECK(fd >= 0);
	CHECK_EQ(soda_hold(mine, CHUNK), 0); /* the halves of two chunks */
	CHECK_EQ(soda_hold(mine, CHUNK), 0); /* no other chunks, so that is no more */
	CHECK_EQ(soda_hold(fam, 0), 0);
	CHECK_EQ(stats_now().pinned_bytes, 2 * CHUNK);
	for (int i = 0; i < 4; i++)
		sweep(fam, 2, CHUNKS);
	CHECK_EQ(soda_advise(fam, CHUNKS * CHUNK, SODA_COLD), 0);
	before = stats_now();
	CHECK_EQ(pwrite(fd, mine, CHUNK, 0), CHUNK);
	CHECK_EQ(pread(fd, copy, CHUNK, 0), CHUNK);
	for (size_t i = 0; i < CHUNK_WORDS; i++)
		CHECK(copy[i] == mix(CHUNK_WORDS / 2 + i, 0), "word %zu", i);
	CHECK_EQ(soda_unhold(mine, CHUNK), 0);
	for (int i = 0; i < 4; i++)
		sweep(fam, 2, CHUNKS);
	check_words(fam, 0, 2 * CHUNK_WORDS); /* still there: one holder is left */
	CHECK_EQ(soda_unhold(mine, CHUNK), 0);
	CHECK_EQ(stats_now().pinned_bytes, 0);
	for (int i = 0; i < 4; i++)
		sweep(fam, 2, CHUNKS);
	before = stats_now();
	check_words(fam, 0, 2 * CHUNK_WORDS);
	CHECK(stats_now().fetches > before.fetches);
	close(fd);
}

static void test_held_for_system_calls(void **state)
{
	expect_passes(child_hold, NULL);
}

/*
 * An object at the addresses of another one, which was freed while it was held, is held anew.
 * others: the thread has had other chunks in between, and so remembers none of the first object.
 */
static void child_hold_again(const void *others)
{
	const struct rlimit small = { 3ull << 30, 3ull << 30 };
	uint64_t *fam, *before;
	int fd = memfd_create("file", MFD_CLOEXEC);

	CHECK_EQ(setrlimit(RLIMIT_AS, &small), 0); /* so that addresses come again soon */
	before = filled("2M");
	CHECK_EQ(soda_hold(before, CHUNK), 0);
	soda_free(before);
	CHECK_EQ(stats_now().pinned_bytes, 0);
	fam = alloc_checked(CHUNKS * CHUNK); /* these are the thread's last chunks then */
	if (others)
		sweep(fam, 0, CHUNKS);
	soda_free(fam);
	for (int i = 0; (fam = alloc_checked(CHUNKS * CHUNK)) != before; i++) {
		CHECK(i < 2000, "the address does not come again");
		soda_free(fam);
	}
	CHECK_EQ(soda_hold(fam, CHUNK), 0);
	fam[0] = 5;
	for (int i = 0; i < 4; i++)
		sweep(fam, 1, CHUNKS);
	CHECK_EQ(pwrite(fd, fam, CHUNK, 0), CHUNK);
	CHECK_EQ(stats_now().pinned_bytes, CHUNK);
	CHECK_EQ(soda_unhold(fam, CHUNK), 0);
	CHECK_EQ(stats_now().pinned_bytes, 0);
	soda_free(fam);
	close(fd);
}

static void test_hold_again(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("SKIP: a sanitizer needs more addresses than the test leaves\n");
	skip();
#endif
	expect_passes(child_hold_again, "");
	expect_passes(child_hold_again, NULL);
}

/* Holds have their allowance, and one that fails holds nothing. */
static void child_hold_too_much(const void *arg)
{
	uint64_t *fam = filled("32M");
	uint64_t local;

	CHECK_EQ(soda_hold(fam, CHUNKS * CHUNK), -ENOMEM);
	CHECK(strstr(soda_last_error(), "SODA_BUFFER"), "%s", soda_last_error());
	CHECK_EQ(stats_now().pinned_bytes, 0);
	CHECK_EQ(soda_hold(&local, sizeof(local)), -EINVAL);
	CHECK_EQ(soda_hold(&local, 0), -EINVAL);
	CHECK_EQ(soda_unhold(&local, sizeof(local)), -EINVAL);
	CHECK_EQ(soda_hold(fam, CHUNKS * CHUNK + 1), -EINVAL);
	CHECK_EQ(soda_unhold(fam, CHUNK), 0); /* of nothing */
	CHECK_EQ(soda_hold(fam, 25 * CHUNK), 0);
	CHECK_EQ(soda_hold(fam + 25 * CHUNK_WORDS, CHUNK), -ENOMEM);
	CHECK_EQ(soda_hold(fam + 5, 25 * CHUNK - 40), 0); /* the same ones */
	CHECK_EQ(soda_unhold(fam, 25 * CHUNK), 0);
	CHECK_EQ(stats_now().pinned_bytes, 25 * CHUNK);
	soda_free(fam);
	CHECK_EQ(soda_unhold(fam, 25 * CHUNK), 0); /* of an object that is gone */
	CHECK_EQ(stats_now().pinned_bytes, 0);
}

static void test_hold_too_much(void **state)
{
	expect_passes(child_hold_too_much, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cold_evicts_and_keeps),
		cmocka_unit_test(test_discard_zeroes_whole_chunks),
		cmocka_unit_test(test_pin_holds_until_unpin),
		cmocka_unit_test(test_pin_beyond_the_buffer),
		cmocka_unit_test(test_pin_all),
		cmocka_unit_test(test_prefetch),
		cmocka_unit_test(test_prefetchv),
		cmocka_unit_test(test_willneed),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_sync_cleans),
		cmocka_unit_test(test_bad_ranges),
		cmocka_unit_test(test_held_for_system_calls),
		cmocka_unit_test(test_hold_too_much),
		cmocka_unit_test(test_hold_again),
	};

	return WORLD_RUN("advice", &world, false, tests);
}
