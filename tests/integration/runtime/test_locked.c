/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that locks its memory: fabric memory goes and comes all the same, with the right
 * content, an object that takes an old one's addresses is of zeros, and signals get through.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 192, SECONDS = 100 };

/* How the program asks for it. */
struct way {
	bool raw;   /* past what libsoda may have wrapped */
	bool first; /* before the runtime starts */
	bool ranges;
	int flags;
};

static struct world world;
static volatile sig_atomic_t ticks;

static void tick(int sig)
{
	ticks++;
}

static void lock_all(const struct way *w)
{
	int ret = w->raw ? (int)syscall(SYS_mlockall, w->flags) : mlockall(w->flags);

	CHECK(!ret, "mlockall: %s", strerror(errno));
}

/* Every third chunk: the ranges that are dropped together are locked in part. It may fail. */
static void lock_some(char *fam)
{
	for (int i = 0; i < CHUNKS; i += 3)
		mlock2(fam + i * CHUNK + CHUNK / 2, CHUNK, MLOCK_ONFAULT);
}

static void check_all(uint64_t *fam, uint64_t round)
{
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 61) {
		CHECK(fam[i] == mix(i, round), "word %zu: %llx", i, (unsigned long long)fam[i]);
		fam[i] = mix(i, round + 1);
	}
}

static void check_signals(void)
{
	int before = ticks;
	double end = now_seconds() + 20;

	while (ticks == before && now_seconds() < end)
		;
	CHECK(ticks != before, "no SIGALRM came");
}

static void child_locks(const void *arg)
{
	const struct itimerval often = { { 0, 10000 }, { 0, 10000 } };
	const struct way *w = arg;
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *fam, *next;

	if (w->first)
		lock_all(w);
	cfg.server = world.address;
	cfg.buffer = "4M"; /* a third of it */
	start(&cfg);
	signal(SIGALRM, tick);
	fam = alloc_checked(CHUNKS * CHUNK);
	if (w->ranges)
		lock_some((char *)fam);
	else if (!w->first)
		lock_all(w);
	setitimer(ITIMER_REAL, &often, NULL);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 61)
		fam[i] = mix(i, 0);
	for (uint64_t round = 0; round < 4; round++)
		check_all(fam, round);
	if (w->ranges)
		lock_some((char *)fam);
	check_all(fam, 4);
	CHECK_EQ(soda_advise(fam + 8 * CHUNK_WORDS, 40 * CHUNK, SODA_DISCARD), 0);
	for (size_t i = 8 * CHUNK_WORDS; i < 48 * CHUNK_WORDS; i += 61)
		CHECK(fam[i] == 0, "word %zu of what was discarded: %llx", i,
		      (unsigned long long)fam[i]);
	check_signals();
	CHECK(stats_now().resident_peak_bytes <= 4 << 20, "over the buffer");
	soda_free(fam);
	for (int k = 0; k < 3; k++) { /* one of them lies where it was */
		next = alloc_checked(CHUNKS * CHUNK);
		for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += 61)
			CHECK(next[i] == 0, "word %zu of a new object: %llx", i,
			      (unsigned long long)next[i]);
		memset(next, 1 + k, CHUNKS * CHUNK);
		soda_free(next);
	}
	/* what others have of this program's is let go of, or is not locked */
	signal(SIGALRM, SIG_IGN);
}

static void run(const struct way *w)
{
	struct trial t = { .child = child_locks, .arg = w, .seconds = SECONDS };
	struct rlimit limit;
	struct outcome out;

	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (geteuid() != 0 && limit.rlim_cur != RLIM_INFINITY && !w->ranges) {
		printf("SKIP: an ordinary user's locked memory is limited (ulimit -l)\n");
		skip();
	}
	world_open(&world, WORLD_DEFAULT, NULL);
	trial_run(&t, &out);
	world_close(&world);
	expect_quiet_success(&out);
}

/* May: memory | locks all memory by mlockall() | served; FAM is not locked */
static void test_all(void **state)
{
	run(&(struct way){ .flags = MCL_CURRENT | MCL_FUTURE });
}

static void test_all_raw(void **state)
{
#ifdef __SANITIZE_ADDRESS__
	puts("SKIP: past the wrapper, all of AddressSanitizer's tables would be filled: terabytes");
	skip();
#endif
	run(&(struct way){ .flags = MCL_CURRENT, .raw = true });
}

static void test_all_on_fault(void **state)
{
	run(&(struct way){ .flags = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT });
}

static void test_future(void **state)
{
	run(&(struct way){ .flags = MCL_CURRENT | MCL_FUTURE, .first = true });
}

static void test_ranges(void **state)
{
	run(&(struct way){ .ranges = true });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),    cmocka_unit_test(test_all_raw),
		cmocka_unit_test(test_future), cmocka_unit_test(test_all_on_fault),
		cmocka_unit_test(test_ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
