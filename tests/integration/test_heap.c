/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soda_malloc() and its family: as the C library's, on memory that does not fit into the page
 * buffer, and without touching the program's own allocator.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { MIB = 1 << 20 };

static struct world world;

static struct soda_config config(size_t more)
{
	static char text[32];
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.threads = 4;
	set_buffer(&cfg, smallest_buffer(cfg) + more, text);
	return cfg;
}

/* A block of the heap that knows its own content. */
struct block {
	uint64_t *words;
	size_t n;
	uint64_t key;
};

static void fill(struct block *b, size_t bytes, uint64_t key)
{
	b->words = soda_malloc(bytes);
	CHECK(b->words, "%s", soda_last_error());
	CHECK((uintptr_t)b->words % 16 == 0 || bytes < 16);
	b->n = bytes / 8;
	b->key = key;
	for (size_t i = 0; i < b->n; i++)
		b->words[i] = mix(i, key);
}

static void verify(const struct block *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK(b->words[i] == mix(i, b->key), "block %llu, word %zu: %llx",
		      (unsigned long long)b->key, i, (unsigned long long)b->words[i]);
}

static size_t some_size(struct dice *d)
{
	uint64_t shift = dice_roll(d) % 13; /* 16 bytes to 128 KiB */

	return (16u << shift) + dice_roll(d) % (16u << shift);
}

/* Blocks of all sizes, allocated, resized and freed in any order; more than the buffer holds. */
static void churn(struct block *blocks, size_t n, unsigned seed, unsigned rounds)
{
	struct dice d = { .state = seed + 1 };

	for (unsigned i = 0; i < rounds; i++) {
		struct block *b = &blocks[dice_roll(&d) % n];
		size_t bytes;

		if (!b->words) {
			fill(b, some_size(&d), ((uint64_t)seed << 32) + i);
			continue;
		}
		verify(b, b->n);
		if (dice_roll(&d) % 2) {
			soda_free(b->words);
			b->words = NULL;
			continue;
		}
		bytes = some_size(&d);
		b->words = soda_realloc(b->words, bytes);
		CHECK(b->words);
		verify(b, b->n < bytes / 8 ? b->n : bytes / 8);
		for (size_t w = b->n; w < bytes / 8; w++)
			b->words[w] = mix(w, b->key);
		b->n = bytes / 8;
	}
	for (size_t i = 0; i < n; i++) {
		if (blocks[i].words)
			verify(&blocks[i], blocks[i].n);
		soda_free(blocks[i].words);
	}
}

static void child_churn(const void *arg)
{
	enum { N = 600 };
	struct soda_config cfg = config(4 * MIB);
	struct block *blocks = calloc(N, sizeof(*blocks));
	struct soda_stats st;

	start(&cfg);
	churn(blocks, N, 1, 6000);
	st = stats_now();
	CHECK(st.evicted_dirty + st.evicted_clean > 0, "nothing was evicted: nothing was tested");
	CHECK(st.resident_peak_bytes <= st.buffer_bytes);
	free(blocks);
}

static void test_churn(void **state)
{
	expect_passes(child_churn, NULL);
}

static void one_of_many(void *arg, unsigned thread)
{
	enum { N = 100 };
	struct block *blocks = calloc(N, sizeof(*blocks));

	churn(blocks, N, thread + 10, 1200);
	free(blocks);
}

static void child_threads(const void *arg)
{
	struct soda_config cfg = config(4 * MIB);

	start(&cfg);
	run_threads(4, one_of_many, NULL);
	run_threads(4, one_of_many, NULL); /* again: the threads before have ended */
	CHECK_EQ(soda_shutdown(), 0);
	CHECK(!soda_malloc(1) && errno == ESHUTDOWN);
}

static void test_threads(void **state)
{
	expect_passes(child_threads, NULL);
}

static void child_contract(const void *arg)
{
	struct soda_config cfg = config(4 * MIB);
	unsigned char *p, *q;

	start(&cfg);
	/* zeros, also where something lay before */
	p = soda_malloc(3 * MIB);
	CHECK(p);
	memset(p, 0xa5, 3 * MIB);
	soda_free(p);
	p = soda_calloc(3, MIB);
	for (size_t i = 0; i < 3 * MIB; i++)
		CHECK(p[i] == 0);
	q = soda_calloc(7, 9);
	for (size_t i = 0; i < 63; i++)
		CHECK(q[i] == 0);
	soda_free(q);
	errno = 0;
	CHECK(!soda_calloc(SIZE_MAX / 2, 3) && errno == ENOMEM);
	CHECK(!soda_malloc(SIZE_MAX / 4) && (errno == ENOMEM || errno == ENOSPC));
	CHECK(soda_last_error()[0]);
	for (size_t a = 1; a <= 8 * MIB; a *= 2) {
		q = soda_aligned_alloc(a, 100);
		CHECK(q && (uintptr_t)q % a == 0);
		soda_free(q);
	}
	CHECK(!soda_aligned_alloc(48, 100) && errno == EINVAL);
	CHECK(!soda_aligned_alloc(0, 100) && errno == EINVAL);
	/* a block keeps its beginning when it grows and when it shrinks */
	memset(p, 0x5a, 3 * MIB);
	p = soda_realloc(p, 9 * MIB);
	for (size_t i = 0; i < 3 * MIB; i++)
		CHECK(p[i] == 0x5a);
	p = soda_realloc(p, 5);
	CHECK(p && p[4] == 0x5a);
	CHECK(!soda_realloc(p, 0));
	q = soda_realloc(NULL, 10);
	CHECK(q);
	/* parts of the heap are ranges like others, but no objects */
	CHECK_EQ(soda_sync(q, 10), 0);
	CHECK_EQ(soda_advise(q, 10, SODA_PIN), 0);
	CHECK_EQ(soda_advise(q, 10, SODA_UNPIN), 0);
	CHECK_EQ(soda_prefetch(q, 10), 0);
	CHECK_EQ(soda_set_name(q, "x"), -EINVAL);
	errno = 77;
	CHECK_EQ(soda_try_free(q), 0);
	CHECK_EQ(errno, 77);
	/* objects are no blocks, and nothing else is */
	p = soda_alloc(10, 0);
	CHECK(p && !soda_realloc(p, 20) && errno == EINVAL);
	CHECK(!soda_realloc(&cfg, 20) && errno == EINVAL);
	soda_free(p);
	q = soda_malloc(0);
	CHECK(q);
	soda_free(q);
}

static void test_contract(void **state)
{
	expect_passes(child_contract, NULL);
}

static pthread_barrier_t together;

static void *outlive(void *arg)
{
	void *p = soda_malloc(100), *q = soda_malloc(100);

	CHECK(p && q);
	soda_free(p); /* into this thread's cache, for its next call */
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	errno = 0;
	CHECK(!soda_malloc(100) && errno == ESHUTDOWN);
	CHECK_EQ(soda_try_free(q), -EINVAL); /* there is no object any more */
	return NULL;
}

/* Threads with blocks to give out learn of the end, too. */
static void child_shutdown(const void *arg)
{
	struct soda_config cfg = config(4 * MIB);
	pthread_t threads[2];

	start(&cfg);
	pthread_barrier_init(&together, NULL, 3);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, outlive, NULL), 0);
	pthread_barrier_wait(&together);
	CHECK_EQ(soda_shutdown(), 0);
	pthread_barrier_wait(&together);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static void test_shutdown(void **state)
{
	expect_passes(child_shutdown, NULL);
}

/* What is freed leaves the page buffer by itself: it is discarded, and never written back. */
static void child_decay(const void *arg)
{
	struct soda_config cfg = config(32 * MIB);
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

/* Of the memory server's process: its own. */
static size_t server_private(void)
{
	char path[64], line[128];
	unsigned long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)world.server.pid);
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

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)world.server.pid);
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
	struct soda_config cfg = config(8 * MIB);
	struct block b;
	size_t before, full;

	start(&cfg);
	CHECK(soda_malloc(100)); /* the server has mapped what it maps for any heap */
	for (double end = now_seconds() + 50; server_memory() > 40 * MIB; sleep_ms(20))
		CHECK(now_seconds() < end, "a client that has gone left its memory");
	before = server_memory();
	fill(&b, 64 * MIB, 3);
	CHECK(soda_sync(b.words, 64 * MIB) == 0);
	full = server_memory();
	CHECK(full >= before + 60 * MIB, "%zu and %zu bytes: nothing is tested", before, full);
	soda_free(b.words);
	for (double end = now_seconds() + 50; server_memory() > before + 16 * MIB;) {
		CHECK(now_seconds() < end, "the server holds %zu bytes still", server_memory());
		sleep_ms(50);
	}
	for (unsigned i = 0; i < 3; i++) {
		fill(&b, 48 * MIB, i);
		verify(&b, b.n);
		soda_free(b.words);
	}
	b.words = soda_calloc(64, MIB);
	CHECK(b.words);
	for (size_t i = 0; i < 64 * (MIB / 8); i++)
		CHECK(b.words[i] == 0);
}

static void test_given_back(void **state)
{
	const char *transport = getenv("SODA_TEST_TRANSPORT");

	if (transport && !strcmp(transport, "verbs"))
		skip(); /* the adapter holds the pages */
	expect_passes(child_given_back, NULL);
}

/* A DISCARD without an answer: the session is made anew before the range is used again. */
static void child_discard_lost(const void *arg)
{
	struct soda_config cfg = config(4 * MIB);
	char address[384], sign[128];
	struct block b;

	snprintf(sign, sizeof(sign), "%s/discard", world.dir);
	snprintf(address, sizeof(address), "fault+%s?do=cut&on=call&once=%s", world.address, sign);
	cfg.server = address;
	start(&cfg);
	for (unsigned i = 1; i <= 2; i++) {
		FILE *f;

		fill(&b, 40 * MIB, i);
		f = fopen(sign, "w");
		CHECK(f && !fclose(f));
		soda_free(b.words);
		for (double end = now_seconds() + 50; stats_now().reconnects < i; sleep_ms(10))
			CHECK(now_seconds() < end, "no call was lost");
		fill(&b, 40 * MIB, i + 10);
		verify(&b, b.n);
		soda_free(b.words);
	}
}

/* The server gets it when nobody waits for it any more. */
static void child_discard_late(const void *arg)
{
	struct soda_config cfg = config(4 * MIB);
	struct block b;

	cfg.fault_timeout_ms = 1000;
	start(&cfg);
	fill(&b, 40 * MIB, 1);
	CHECK_EQ(soda_sync(b.words, 40 * MIB), 0); /* no write-back is awaited first */
	CHECK_EQ(kill(world.server.pid, SIGSTOP), 0);
	soda_free(b.words);
	sleep_ms(3000); /* discarded after a second, given up after another */
	CHECK_EQ(kill(world.server.pid, SIGCONT), 0);
	for (double end = now_seconds() + 50; !stats_now().reconnects; sleep_ms(10))
		CHECK(now_seconds() < end, "no call was late");
	fill(&b, 40 * MIB, 2);
	verify(&b, b.n);
}

static void test_discard_lost(void **state)
{
	expect_passes(child_discard_lost, NULL);
	expect_passes(child_discard_late, NULL);
}

/* The hooks of a growing heap allocate nothing: the program's malloc may be what calls them. */
static void child_hooks(const void *arg)
{
	struct soda_config cfg = config(4 * MIB);
	size_t before;

	start(&cfg);
	CHECK(soda_malloc(100) && soda_malloc(20 * MIB));
	before = mallinfo2().uordblks;
	for (int i = 0; i < 4; i++) /* each in a region of its own */
		CHECK(soda_malloc((size_t)(40 << i) * MIB), "%s", soda_last_error());
	CHECK_EQ(mallinfo2().uordblks, before);
}

static void test_hooks(void **state)
{
	expect_passes(child_hooks, NULL);
}

static int by_number(const void *a, const void *b)
{
	uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;

	return x < y ? -1 : x > y;
}

/* In how many pieces of 64 KiB they lie. */
static size_t pieces(char *const *blocks, size_t n)
{
	uintptr_t *at = calloc(n, sizeof(*at));
	size_t different = 0;

	for (size_t i = 0; i < n; i++)
		at[i] = (uintptr_t)blocks[i] >> 16;
	qsort(at, n, sizeof(*at), by_number);
	for (size_t i = 0; i < n; i++)
		different += !i || at[i] != at[i - 1];
	free(at);
	return different;
}

/* Blocks of one time lie together, whatever their sizes are. */
static void child_age(const void *arg)
{
	static const size_t sizes[] = { 24, 700, 100, 1500, 48, 300 }; /* 445 bytes on average */
	enum { N = 60000, SOME = 1000 };
	struct soda_config cfg = config(40 * MIB);
	char **blocks = calloc(N, sizeof(*blocks));

	start(&cfg);
	for (size_t i = 0; i < N; i++)
		CHECK((blocks[i] = soda_malloc(sizes[i % 6])));
	for (size_t i = 0; i < N; i += SOME) {
		size_t n = pieces(blocks + i, SOME);
		CHECK(n <= 20, "%zu blocks of one time in %zu pieces", (size_t)SOME, n);
	}
	free(blocks);
}

static void test_age(void **state)
{
	expect_passes(child_age, NULL);
}

static void child_fork(const void *arg)
{
	struct soda_config cfg = config(4 * MIB);
	char *p;
	int status;
	pid_t pid;

	start(&cfg);
	p = soda_malloc(100);
	CHECK(p);
	strcpy(p, "mine");
	pid = fork();
	if (pid == 0)
		_exit(!soda_malloc(100) && errno == ENOTSUP && soda_try_free(p) == -ENOTSUP ? 0
											    : 1);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0, "status %x", (unsigned)status);
	CHECK(!strcmp(p, "mine"));
	soda_free(p);
}

static void test_fork(void **state)
{
	expect_passes(child_fork, NULL);
}

static const char *owner(void *function)
{
	Dl_info info;

	CHECK(dladdr(function, &info));
	return info.dli_fname;
}

/* The program's malloc is what it was: the C library's, or a sanitizer's; so is libsoda's own. */
static void child_own_malloc(const void *arg)
{
	static const char *const hidden[] = { "mallocx", "mallctl", "je_malloc", "soda_je_malloc",
					      "malloc_conf" };
	struct soda_config cfg = config(4 * MIB);
	void *lib = dlopen(owner((void *)soda_malloc), RTLD_NOW | RTLD_NOLOAD);
	char *mine = malloc(64 * MIB), *fam;

	CHECK(lib && mine);
	CHECK(dlsym(RTLD_DEFAULT, "malloc") && dlsym(RTLD_DEFAULT, "free"));
	CHECK(!strstr(owner(dlsym(RTLD_DEFAULT, "malloc")), "libsoda"));
	CHECK(!strstr(owner(dlsym(RTLD_DEFAULT, "free")), "libsoda"));
	CHECK(owner(dlsym(RTLD_DEFAULT, "malloc")) == owner(dlsym(lib, "malloc")));
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		CHECK(!dlsym(lib, hidden[i]), "libsoda exports %s", hidden[i]);
	start(&cfg);
	fam = soda_malloc(100);
	CHECK(fam);
	CHECK_EQ(soda_try_free(mine), -EINVAL); /* not in FAM */
	free(mine);
	soda_free(fam);
	dlclose(lib);
}

static void test_own_malloc(void **state)
{
	expect_passes(child_own_malloc, NULL);
}

/* The server's capacity ends: an error, and the heap goes on. */
static void child_full(const void *arg)
{
	struct soda_config cfg = config(4 * MIB);
	void *p;

	start(&cfg);
	errno = 0;
	CHECK(!soda_malloc(64ull << 40));
	CHECK_EQ(errno, ENOMEM);
	CHECK(strstr(soda_last_error(), "capacity"), "%s", soda_last_error());
	CHECK(!soda_malloc(SIZE_MAX / 4)); /* another reason */
	/* small ones, by the shortest way, until the last region is used up */
	while (soda_malloc(14 * 1024))
		CHECK(strlen(soda_last_error()) > 10);
	CHECK_EQ(errno, ENOMEM);
	CHECK(strstr(soda_last_error(), "capacity"), "%s", soda_last_error());
	p = soda_malloc(8);
	CHECK(p);
	memset(p, 1, 8);
	soda_free(p);
}

static void test_full(void **state)
{
	expect_passes(child_full, NULL);
}

static void child_probe(const void *arg)
{
	setenv("SODA_SERVER", "nowhere", 1);
	_exit(!soda_malloc(1) && errno == ENOTSUP ? 77 : 0);
}

static int setup(void **state)
{
	world_open(&world, WORLD_DEFAULT, NULL);
	return 0;
}

static int teardown(void **state)
{
	world_close(&world);
	return 0;
}

/* Known before any case: without a server it fails for another reason where there is a heap. */
static bool have_heap(void)
{
	struct trial probe = { .child = child_probe };
	struct outcome out;

	trial_run(&probe, &out);
	return !(WIFEXITED(out.status) && WEXITSTATUS(out.status) == 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contract),   cmocka_unit_test(test_churn),
		cmocka_unit_test(test_threads),	   cmocka_unit_test(test_shutdown),
		cmocka_unit_test(test_decay),	   cmocka_unit_test(test_fork),
		cmocka_unit_test(test_full),	   cmocka_unit_test(test_own_malloc),
		cmocka_unit_test(test_given_back), cmocka_unit_test(test_discard_lost),
		cmocka_unit_test(test_hooks),	   cmocka_unit_test(test_age),
	};

	if (!have_heap()) {
		puts("SKIP: this libsoda has no heap: it was built without jemalloc");
		return 77;
	}
	return cmocka_run_group_tests_name("heap", tests, setup, teardown);
}
