/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads against each other and against eviction: no store is lost, one fetch
 * serves all who wait for it, objects come and go while others are in use, and a
 * process ends while its threads fault.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, WRITERS = 4, ROUNDS = 8000 };

static struct world world;

static struct soda_config config(unsigned threads)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.threads = threads;
	return cfg;
}

/* Writers: each owns every WRITERS-th word and remembers what it must be. */
struct writers {
	uint64_t *fam;
	size_t n;
	uint32_t *counts; /* local: how often the owner has stored to the word */
};

static void race_eviction(void *arg, unsigned thread)
{
	struct writers *w = arg;
	struct dice d = { .state = thread + 1 };

	pin_to_processor(thread);
	for (int i = 0; i < ROUNDS; i++) {
		size_t word = dice_roll(&d) % (w->n / WRITERS) * WRITERS + thread;
		uint64_t now = w->fam[word];

		CHECK(now == mix(word, w->counts[word]) || (now == 0 && !w->counts[word]),
		      "word %zu after %u stores: %llx", word, w->counts[word],
		      (unsigned long long)now);
		w->fam[word] = mix(word, ++w->counts[word]);
		/* a second store soon after: into a chunk that is perhaps being written back */
		if (i % 3 == 0)
			w->fam[word] = mix(word, ++w->counts[word]);
	}
}

static void child_writers(const void *arg)
{
	struct writers w = { .n = 256 * CHUNK_WORDS };
	struct soda_config cfg = config(WRITERS);
	struct soda_stats st;
	char text[32];

	set_buffer(&cfg, smallest_buffer(cfg) + 8 * CHUNK, text);
	start(&cfg);
	w.fam = alloc_checked(w.n * 8);
	w.counts = calloc(w.n, sizeof(*w.counts));
	run_threads(WRITERS, race_eviction, &w);
	for (size_t i = 0; i < w.n; i++)
		CHECK(w.fam[i] == (w.counts[i] ? mix(i, w.counts[i]) : 0),
		      "word %zu after %u stores: %llx", i, w.counts[i],
		      (unsigned long long)w.fam[i]);
	st = stats_now();
	CHECK(st.evicted_dirty > 1000, "only %llu chunks written back: nothing was tested",
	      (unsigned long long)st.evicted_dirty);
	free(w.counts);
	soda_free(w.fam);
}

static void test_writers_race_eviction(void **state)
{
	expect_passes(child_writers, NULL);
}

/*
 * soda_sync while others store: what was stored before the call is on the server. An object that is
 * a file shows what is there. Every word says how often it has been stored to.
 */
static atomic_bool stop;

struct synced {
	uint64_t *fam;
	size_t n;
	_Atomic uint32_t *counts; /* stores to each word; released after the store */
	uint32_t *before;	  /* at the call */
	uint64_t *file;
	int fd;
	unsigned syncs;
	uint64_t stored; /* words that a sync had to bring */
};

static uint64_t word_of(size_t i, uint32_t stores)
{
	return (uint64_t)stores << 32 | (uint32_t)i;
}

static void sync_and_look(struct synced *s)
{
	size_t bytes = s->n * 8;

	for (size_t i = 0; i < s->n; i++)
		s->before[i] = atomic_load_explicit(&s->counts[i], memory_order_acquire);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(pread(s->fd, s->file, bytes, 0), (ssize_t)bytes);
	for (size_t i = 0; i < s->n; i++) {
		uint32_t stores = (uint32_t)(s->file[i] >> 32);

		CHECK(stores >= s->before[i] && (!stores || s->file[i] == word_of(i, stores)),
		      "word %zu was stored to %u times before soda_sync, the file has %llx", i,
		      s->before[i], (unsigned long long)s->file[i]);
		s->stored += s->before[i] != 0;
	}
	s->syncs++;
}

static void store_or_sync(void *arg, unsigned thread)
{
	struct synced *s = arg;
	double end = now_seconds() + 1;

	if (thread) {
		for (uint32_t round = 1; !atomic_load(&stop); round++)
			for (size_t i = thread; i < s->n; i += 512) {
				s->fam[i] = word_of(i, round);
				atomic_store_explicit(&s->counts[i], round, memory_order_release);
			}
		return;
	}
	while (now_seconds() < end || !s->stored)
		sync_and_look(s);
	atomic_store(&stop, true);
}

static void child_sync(const void *arg)
{
	struct synced s = { .n = 64 * CHUNK_WORDS };
	struct soda_config cfg = config(WRITERS);
	char text[32], path[128];

	set_buffer(&cfg, smallest_buffer(cfg) + 4 * CHUNK, text);
	start(&cfg);
	s.fam = soda_alloc_file("synced", s.n * 8, SODA_WRITABLE | SODA_CREATE, NULL);
	CHECK(s.fam != NULL, "soda_alloc_file: %s", soda_last_error());
	snprintf(path, sizeof(path), "%s/synced", world.export_dir);
	s.fd = open(path, O_RDONLY);
	s.counts = calloc(s.n, sizeof(*s.counts));
	s.before = calloc(s.n, sizeof(*s.before));
	s.file = malloc(s.n * 8);
	CHECK(s.fd >= 0 && s.counts && s.before && s.file);
	run_threads(WRITERS, store_or_sync, &s);
	CHECK_EQ(soda_advise(s.fam, s.n * 8, SODA_COLD), 0);
	for (size_t i = 0; i < s.n; i++)
		CHECK_EQ(s.fam[i], s.counts[i] ? word_of(i, s.counts[i]) : 0);
	close(s.fd);
	free((void *)s.counts);
	free(s.before);
	free(s.file);
	soda_free(s.fam);
}

static void test_stores_during_sync(void **state)
{
	expect_passes(child_sync, NULL);
}

/* Equal faults. */
struct meeting {
	uint64_t *fam;
	size_t chunks;
	unsigned threads;
	pthread_barrier_t barrier;
};

static void fault_together(void *arg, unsigned thread)
{
	struct meeting *m = arg;

	for (size_t c = 0; c < m->chunks; c++) {
		size_t word = c * CHUNK_WORDS + thread * 100;

		pthread_barrier_wait(&m->barrier);
		CHECK_EQ(m->fam[word], mix(word, 5));
	}
}

static void child_equal(const void *arg)
{
	struct meeting m = { .chunks = 100, .threads = *(const unsigned *)arg };
	struct soda_config cfg = config(m.threads);
	struct soda_stats before, after;

	cfg.buffer = "32M";
	cfg.prefetch_chunks = SODA_OFF;
	start(&cfg);
	pthread_barrier_init(&m.barrier, NULL, m.threads);
	m.fam = alloc_checked(m.chunks * CHUNK);
	for (size_t i = 0; i < m.chunks * CHUNK_WORDS; i++)
		m.fam[i] = mix(i, 5);
	CHECK_EQ(soda_advise(m.fam, m.chunks * CHUNK, SODA_COLD), 0);
	before = stats_now();
	run_threads(m.threads, fault_together, &m);
	after = stats_now();
	CHECK_EQ(after.fetches - before.fetches, m.chunks);
	CHECK_EQ(after.bytes_fetched - before.bytes_fetched, m.chunks * CHUNK);
	soda_free(m.fam);
}

static void test_equal_faults_fetch_once(void **state)
{
	for (unsigned threads = 2; threads <= 8; threads *= 2)
		expect_passes(child_equal, &threads);
}

/* Objects come and go beside one that is in use. */
static void come_and_go(void *arg, unsigned thread)
{
	struct dice d = { .state = thread + 1 };
	double end = now_seconds() + 1.5;
	uint64_t *kept = arg;

	while (now_seconds() < end) {
		size_t n = dice_roll(&d) % (20 * CHUNK_WORDS) + 1;
		uint64_t *mine;

		if (thread % 2 == 0) { /* one of those who use the lasting object */
			for (int i = 0; i < 100; i++) {
				size_t word = dice_roll(&d) % (64 * CHUNK_WORDS);

				CHECK_EQ(kept[word], mix(word, 9));
			}
			continue;
		}
		mine = alloc_checked(n * 8);
		for (size_t i = 0; i < n; i += 300) {
			CHECK(mine[i] == 0, "word %zu of a new object: %llx", i,
			      (unsigned long long)mine[i]);
			mine[i] = mix(i, thread);
		}
		for (size_t i = 0; i < n; i += 300)
			CHECK_EQ(mine[i], mix(i, thread));
		soda_free(mine);
	}
}

static void child_come_and_go(const void *arg)
{
	struct soda_config cfg = config(4);
	uint64_t *kept;
	char text[32];

	set_buffer(&cfg, smallest_buffer(cfg) + 16 * CHUNK, text);
	start(&cfg);
	kept = alloc_checked(64 * CHUNK);
	for (size_t i = 0; i < 64 * CHUNK_WORDS; i++)
		kept[i] = mix(i, 9);
	run_threads(4, come_and_go, kept);
	CHECK_EQ(stats_now().fam_bytes, 64 * CHUNK);
	soda_free(kept);
	CHECK_EQ(stats_now().fam_bytes, 0);
	CHECK(stats_now().resident_bytes <= 4 * CHUNK, "more than the staging of four threads");
}

static void test_free_under_load(void **state)
{
	expect_passes(child_come_and_go, NULL);
}

/* The ends of a process, with threads that fault for ever. */
enum ending { END_EXIT, END_RETURN, END_QUICK };

struct end_case {
	enum ending ending;
	unsigned after_ms;
};

static void *fault_for_ever(void *arg)
{
	struct dice d = { .state = (uintptr_t)&d };
	volatile uint64_t *fam = arg;

	for (;;)
		fam[dice_roll(&d) % (128 * CHUNK_WORDS)] = 1;
	return NULL;
}

static void child_ends(const void *arg)
{
	const struct end_case *c = arg;
	struct soda_config cfg = config(4);
	pthread_t thread;
	char text[32];
	void *fam;

	set_buffer(&cfg, smallest_buffer(cfg) + 8 * CHUNK, text);
	start(&cfg);
	fam = alloc_checked(128 * CHUNK);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&thread, NULL, fault_for_ever, fam), 0);
	sleep_ms(c->after_ms);
	if (c->ending == END_EXIT)
		exit(7);
	if (c->ending == END_QUICK)
		_exit(7);
}

/* May: ends | calls exit() while other threads fault | it ends */
static void test_exit_under_load(void **state)
{
	struct trial t = { .child = child_ends, .seconds = 120 };
	struct outcome out;

	for (unsigned i = 0; i < 20; i++) {
		struct end_case c = { .ending = END_EXIT, .after_ms = i * 3 };

		t.arg = &c;
		trial_run(&t, &out);
		expect_exit(&out, 7);
		assert_string_equal(out.err, "");
	}
}

/* May: ends | returns from main(), or calls _exit(), while other threads fault | it ends */
static void test_return_and_quick_exit_under_load(void **state)
{
	struct end_case c = { .ending = END_RETURN, .after_ms = 20 };
	struct trial t = { .child = child_ends, .arg = &c, .seconds = 120 };
	struct outcome out;

	trial_run(&t, &out);
	expect_quiet_success(&out);
	c.ending = END_QUICK;
	trial_run(&t, &out);
	expect_exit(&out, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writers_race_eviction),
		cmocka_unit_test(test_stores_during_sync),
		cmocka_unit_test(test_equal_faults_fetch_once),
		cmocka_unit_test(test_free_under_load),
		cmocka_unit_test(test_exit_under_load),
		cmocka_unit_test(test_return_and_quick_exit_under_load),
	};

	return WORLD_RUN("threads", &world, false, tests);
}
