/* SPDX-License-Identifier: BSD-3-Clause */
/* What soda_free() leaves: it goes out of the page buffer, and back to the server's system. */
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heap_case.h"

/* What is freed leaves the page buffer by itself: it is discarded, and never written back. */
static void child_decay(const void *arg)
{
	struct soda_config cfg = heap_config(32 * MIB);
	char *p;

	start(&cfg);
	p = soda_malloc(24 * MIB);
	CHECK(p);
	memset(p, 1, 24 * MIB);
	CHECK(stats_now().resident_bytes >= 24 * MIB);
	soda_free(p);
	for (double end = now_seconds() + 50; stats_now().resident_bytes > 8 * MIB;) {
		CHECK(now_seconds() < end, "%llu bytes are resident still",
		      (unsigned long long)stats_now().resident_bytes);
		sleep_ms(20);
	}
	CHECK_EQ(stats_now().evicted_dirty, 0);
}

static void test_decay(void **state)
{
	expect_passes(child_decay, NULL);
}

/*
 * Blocks that come and go within a second, before what was freed is discarded: they are cut from
 * that, also where the freed blocks have become one extent, and not from pages that are new.
 */
static void child_reused(const void *arg)
{
	enum { BLOCKS = 1024, BLOCK = 16 << 10 };
	struct soda_config cfg = heap_config(64 * MIB);
	static char *p[BLOCKS];
	uint64_t first = 0;

	start(&cfg);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < BLOCKS; i++) {
			p[i] = soda_malloc(BLOCK);
			CHECK(p[i], "%s", soda_last_error());
			p[i][0] = 1;
		}
		for (int i = 0; i < BLOCKS; i++)
			soda_free(p[i]);
		first = round ? first : stats_now().fam_bytes;
		CHECK(stats_now().fam_bytes <= 2 * first, "the heap has %llu bytes in round %d",
		      (unsigned long long)stats_now().fam_bytes, round);
	}
}

static void test_reused(void **state)
{
	expect_passes(child_reused, NULL);
}

/* Of the memory server's process: its own. */
static size_t server_private(void)
{
	char path[64], line[128];
	unsigned long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)heap_world.server.pid);
	f = fopen(path, "r");
	CHECK(f);
	while (fgets(line, sizeof(line), f) && sscanf(line, "RssAnon: %lu", &kib) != 1)
		;
	fclose(f);
	return (size_t)kib << 10;
}

/* And what it shares with its clients. */
static size_t server_memory(void)
{
	size_t bytes = server_private();
	char path[300], target[64];
	struct dirent *at;
	struct stat st;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)heap_world.server.pid);
	dir = opendir(path);
	CHECK(dir);
	while ((at = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), at->d_name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = 0;
		if (strstr(target, "soda-region") && !fstatat(dirfd(dir), at->d_name, &st, 0))
			bytes += (size_t)st.st_blocks * 512;
	}
	closedir(dir);
	return bytes;
}

/* What is freed leaves the server, too, and what comes there later stays. */
static void child_given_back(const void *arg)
{
	struct soda_config cfg = heap_config(8 * MIB);
	struct block b;
	size_t before, full;

	start(&cfg);
	CHECK(soda_malloc(100)); /* the server has mapped what it maps for any heap */
	for (double end = now_seconds() + 50; server_memory() > 40 * MIB; sleep_ms(20))
		CHECK(now_seconds() < end, "a client that has gone left its memory");
	before = server_memory();
	heap_fill(&b, 64 * MIB, 3);
	CHECK(soda_sync(b.words, 64 * MIB) == 0);
	full = server_memory();
	CHECK(full >= before + 60 * MIB, "%zu and %zu bytes: nothing is tested", before, full);
	soda_free(b.words);
	/* 16 MiB of the heap's second object were never given out, and lie there since its OPEN; 4
	   for what the server itself takes and gives back meanwhile */
	for (double end = now_seconds() + 50; server_memory() > before + 20 * MIB;) {
		CHECK(now_seconds() < end, "the server holds %zu bytes still", server_memory());
		sleep_ms(50);
	}
	for (unsigned i = 0; i < 3; i++) {
		heap_fill(&b, 48 * MIB, i);
		heap_verify(&b, b.n);
		soda_free(b.words);
	}
	b.words = soda_calloc(64, MIB);
	CHECK(b.words);
	for (size_t i = 0; i < 64 * (MIB / 8); i++)
		CHECK(b.words[i] == 0);
}

/*
 * By shm the program stores to the server's pages itself, and pages that it made would be charged
 * to its own memory cgroup: they stay allocated, after the free and while they are used again.
 */
static void child_kept(const void *arg)
{
	struct soda_config cfg = heap_config(8 * MIB);
	struct block b;
	size_t full;

	start(&cfg);
	heap_fill(&b, 64 * MIB, 3);
	CHECK(soda_sync(b.words, 64 * MIB) == 0);
	full = server_memory();
	CHECK(full >= 64 * MIB);
	for (unsigned i = 0; i < 2; i++) {
		soda_free(b.words);
		for (double end = now_seconds() + 50; stats_now().resident_bytes > 2 * MIB;) {
			CHECK(now_seconds() < end, "what was freed is resident still");
			sleep_ms(20);
		}
		for (double end = now_seconds() + 1.5; now_seconds() < end; sleep_ms(20))
			CHECK(server_memory() >= full, "the server has %zu bytes of %zu",
			      server_memory(), full);
		heap_fill(&b, 64 * MIB, i);
		heap_verify(&b, b.n);
	}
}

static void test_given_back(void **state)
{
	const char *transport = getenv("SODA_TEST_TRANSPORT");

	if (transport && !strcmp(transport, "shm")) {
		expect_passes(child_kept, NULL);
		return;
	}
	if (transport && !strcmp(transport, "verbs")) {
		puts("SKIP: an RDMA adapter holds the pages of the server");
		skip();
	}
	expect_passes(child_given_back, NULL);
}

/* A DISCARD without an answer: the session is made anew before the range is used again. */
static void child_discard_lost(const void *arg)
{
	struct soda_config cfg = heap_config(4 * MIB);
	char address[384], sign[128];
	struct block b;

	snprintf(sign, sizeof(sign), "%s/discard", heap_world.dir);
	snprintf(address, sizeof(address), "fault+%s?do=cut&on=call&once=%s", heap_world.address,
		 sign);
	cfg.server = address;
	start(&cfg);
	for (unsigned i = 1; i <= 2; i++) {
		FILE *f;

		heap_fill(&b, 40 * MIB, i);
		f = fopen(sign, "w");
		CHECK(f && !fclose(f));
		soda_free(b.words);
		for (double end = now_seconds() + 50; stats_now().reconnects < i; sleep_ms(10))
			CHECK(now_seconds() < end, "no call was lost");
		heap_fill(&b, 40 * MIB, i + 10);
		heap_verify(&b, b.n);
		soda_free(b.words);
	}
}

static _Atomic bool given_up; /* the log says that the server does not answer */

static void listens(int level, const char *text, void *arg)
{
	if (strstr(text, "lost the memory server"))
		given_up = true;
}

/* The server gets it when nobody waits for it any more. */
static void child_discard_late(const void *arg)
{
	struct soda_config cfg = heap_config(4 * MIB);
	struct block b;

	cfg.fault_timeout_ms = 2000;
	cfg.log = listens;
	start(&cfg);
	heap_fill(&b, 40 * MIB, 1);
	CHECK_EQ(soda_sync(b.words, 40 * MIB), 0); /* no write-back is awaited first */
	process_halt(heap_world.server.pid);
	soda_free(b.words);
	for (double end = now_seconds() + 50; !given_up; sleep_ms(10))
		CHECK(now_seconds() < end, "nobody has given the call up");
	CHECK_EQ(kill(heap_world.server.pid, SIGCONT), 0);
	for (double end = now_seconds() + 50; !stats_now().reconnects; sleep_ms(10))
		CHECK(now_seconds() < end, "no call was late");
	heap_fill(&b, 40 * MIB, 2);
	heap_verify(&b, b.n);
}

static void test_discard_lost(void **state)
{
	expect_passes(child_discard_lost, NULL);
	expect_passes(child_discard_late, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decay),
		cmocka_unit_test(test_reused),
		cmocka_unit_test(test_given_back),
		cmocka_unit_test(test_discard_lost),
	};

	return heap_run("heap_freed", tests, sizeof(tests) / sizeof(tests[0]));
}
