/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soda_malloc() and its family: as the C library's, on memory that does not fit into the page
 * buffer, and without touching the program's own allocator.
 */
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap_case.h"

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
			heap_fill(b, some_size(&d), ((uint64_t)seed << 32) + i);
			continue;
		}
		heap_verify(b, b->n);
		if (dice_roll(&d) % 2) {
			soda_free(b->words);
			b->words = NULL;
			continue;
		}
		bytes = some_size(&d);
		b->words = soda_realloc(b->words, bytes);
		CHECK(b->words);
		heap_verify(b, b->n < bytes / 8 ? b->n : bytes / 8);
		for (size_t w = b->n; w < bytes / 8; w++)
			b->words[w] = mix(w, b->key);
		b->n = bytes / 8;
	}
	for (size_t i = 0; i < n; i++) {
		if (blocks[i].words)
			heap_verify(&blocks[i], blocks[i].n);
		soda_free(blocks[i].words);
	}
}

static void child_churn(const void *arg)
{
	enum { N = 600 };
	struct soda_config cfg = heap_config(4 * MIB);
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
	struct soda_config cfg = heap_config(4 * MIB);

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
	struct soda_config cfg = heap_config(4 * MIB);
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
	struct soda_config cfg = heap_config(4 * MIB);
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

/* The hooks of a growing heap allocate nothing: the program's malloc may be what calls them. */
static void child_hooks(const void *arg)
{
	struct soda_config cfg = heap_config(4 * MIB);
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
	struct soda_config cfg = heap_config(40 * MIB);
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
	struct soda_config cfg = heap_config(4 * MIB);
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
	struct soda_config cfg = heap_config(4 * MIB);
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

/*
 * Destructors of a thread's values, which come after the thread's function, and once more for each
 * value that they have set again: of keys that were made before the runtime and after it.
 */
static pthread_key_t keys[2];
static unsigned refused, served;

static void use_heap(size_t bytes, bool first_round)
{
	void *p = soda_malloc(bytes), *q;

	__atomic_add_fetch(p ? &served : &refused, 1, __ATOMIC_RELAXED);
	if (!p) {
		CHECK(!first_round, "%zu bytes: %s", bytes, soda_last_error());
		CHECK_EQ(errno, ENOMEM);
		CHECK(strstr(soda_last_error(), "thread"), "%s", soda_last_error());
		return;
	}
	CHECK_EQ(soda_sync(p, bytes), 0); /* in an object of ours */
	memset(p, 7, bytes);
	q = soda_realloc(p, 3 * bytes);
	CHECK(q && ((char *)q)[bytes - 1] == 7);
	CHECK_EQ(soda_sync(q, 3 * bytes), 0);
	soda_free(q);
}

static void at_the_end(void *value, int key)
{
	uintptr_t round = (uintptr_t)value;

	use_heap(100, round == 1);
	use_heap(100000, round == 1);
	use_heap(3 * MIB, round == 1);
	if (round < PTHREAD_DESTRUCTOR_ITERATIONS)
		pthread_setspecific(keys[key], (void *)(round + 1));
}

static void at_the_end_early(void *value)
{
	at_the_end(value, 0);
}

static void at_the_end_late(void *value)
{
	at_the_end(value, 1);
}

/* Half of them use the heap in their destructors only. */
static void one_that_ends(void *arg, unsigned thread)
{
	void *p = thread % 2 ? soda_malloc(5000) : NULL;

	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_setspecific(keys[i], (void *)1), 0);
	soda_free(p);
}

static void child_ends(const void *arg)
{
	struct soda_config cfg = heap_config(4 * MIB);

	CHECK_EQ(pthread_key_create(&keys[0], at_the_end_early), 0);
	start(&cfg);
	soda_free(soda_malloc(1));
	CHECK_EQ(pthread_key_create(&keys[1], at_the_end_late), 0);
	for (int i = 0; i < 5; i++)
		run_threads(4, one_that_ends, NULL);
	CHECK(served >= 2 * 3 * 20, "%u", served);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_ends(void **state)
{
	expect_passes(child_ends, NULL);
}

/* The server's capacity ends: an error, and the heap goes on. */
static void child_full(const void *arg)
{
	struct soda_config cfg = heap_config(4 * MIB);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contract),   cmocka_unit_test(test_churn),
		cmocka_unit_test(test_threads),	   cmocka_unit_test(test_shutdown),
		cmocka_unit_test(test_fork),	   cmocka_unit_test(test_full),
		cmocka_unit_test(test_own_malloc), cmocka_unit_test(test_hooks),
		cmocka_unit_test(test_age),	   cmocka_unit_test(test_ends),
	};

	return heap_run("heap", tests, sizeof(tests) / sizeof(tests[0]));
}
