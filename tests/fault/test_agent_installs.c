/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A DPU agent on this machine that installs pages is killed and started anew, again
 * and again, under threads that read and write four times what the buffer holds.  The
 * oracle: no wrong word, no hang; a chunk that was half installed is fetched again.
 */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, WORDS = CHUNK / 8, CHUNKS = 256, ROUNDS = 8, THREADS_MAX = 4 };

struct plan {
	unsigned threads;
	bool stores;
	bool stops;	   /* it stands still for longer than anybody waits, and goes on */
	const char *agent; /* its options */
};

static struct world world;
static _Atomic int *over; /* shared: the parent has done its worst */

struct work {
	const struct plan *plan;
	uint64_t *fam;
	uint32_t *rounds; /* of each word: how often it was stored to */
	_Atomic uint64_t checks;
};

/* Each thread has every n-th word of a chunk: chunks are everybody's. */
static void look_and_store(void *arg, unsigned thread)
{
	struct work *w = arg;
	struct dice d = { .state = 77 + thread };
	uint64_t n = 0;

	while (!atomic_load(over) || n < 1000) {
		size_t word = dice_roll(&d) % (CHUNKS * WORDS / THREADS_MAX) * THREADS_MAX + thread;

		CHECK(w->fam[word] == mix(word, w->rounds[word]), "word %zu, round %u: %llx", word,
		      w->rounds[word], (unsigned long long)w->fam[word]);
		if (w->plan->stores && n % 4 == 0)
			w->fam[word] = mix(word, ++w->rounds[word]);
		n++;
	}
	atomic_fetch_add(&w->checks, n);
}

/* Of words that are mix(i, 0). */
static uint64_t *object(const struct plan *plan)
{
	uint64_t *fam;

	if (!plan->stores) {
		fam = soda_alloc_file("words", 0, SODA_READ_ONLY, NULL);
		CHECK(fam, "%s", soda_last_error());
		return fam;
	}
	fam = alloc_checked(CHUNKS * CHUNK);
	for (size_t i = 0; i < CHUNKS * WORDS; i++)
		fam[i] = mix(i, 0);
	return fam;
}

static void child_works(const void *arg)
{
	struct work w = { .plan = arg };
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct soda_stats st;
	size_t wrong = 0;

	cfg.server = world.address;
	cfg.buffer = "4M";
	cfg.threads = w.plan->threads;
	if (w.plan->stops) {
		cfg.fault_timeout_ms = 400;
		cfg.on_error = SODA_ON_ERROR_WAIT;
	}
	start(&cfg);
	w.rounds = calloc(CHUNKS * WORDS, sizeof(*w.rounds));
	w.fam = object(w.plan);
	turn_pass();
	run_threads(w.plan->threads, look_and_store, &w);
	for (size_t i = 0; i < CHUNKS * WORDS; i++)
		wrong += w.fam[i] != mix(i, w.rounds[i]);
	CHECK_EQ(wrong, 0);
	st = stats_now();
	CHECK(st.reconnects >= 1, "%llu reconnections: nothing was tested",
	      (unsigned long long)st.reconnects);
	if (getenv("SODA_MECHANISMS"))
		CHECK_EQ(st.installed, 0);
	else
		CHECK(st.installed > 100, "the agent installed %llu chunks",
		      (unsigned long long)st.installed);
	free(w.rounds);
	soda_free(w.fam);
}

static void kill_and_restart(const void *arg)
{
	if (!turn_await())
		return;
	for (unsigned i = 0; i < ROUNDS; i++) {
		sleep_ms(60 + 37 * i);
		world_kill_agent(&world);
		sleep_ms(i * 11);
		world_restart_agent(&world);
	}
	sleep_ms(200);
	atomic_store(over, 1);
}

/* In the middle of an install, now and then: what it may yet store to is asked for again. */
static void stop_and_continue(const void *arg)
{
	enum { STOPS = 2 };

	if (!turn_await())
		return;
	for (unsigned i = 0; i < STOPS; i++) {
		sleep_ms(100 + 37 * i);
		process_halt(world.agent.pid);
		sleep_ms(5000);
		kill(world.agent.pid, SIGCONT);
	}
	sleep_ms(500);
	atomic_store(over, 1);
}

static void write_file(void)
{
	uint64_t *words = malloc(CHUNKS * CHUNK);

	for (size_t i = 0; i < CHUNKS * WORDS; i++)
		words[i] = mix(i, 0);
	world_write_file(&world, "words", words, CHUNKS * CHUNK);
	free(words);
}

static void run(const struct plan *plan)
{
	struct trial t = { .child = child_works,
			   .during = plan->stops ? stop_and_continue : kill_and_restart,
			   .arg = plan };
	struct outcome out;

	setenv("SODA_TEST_AGENT", plan->agent, 1);
	setenv("SODA_TEST_AGENT_SHM", "1", 1);
	over = shared_memory(sizeof(*over));
	world_open(&world, WORLD_TCP, NULL);
	write_file();
	trial_run(&t, &out);
	world_close_noisy(&world);
	expect_exit(&out, 0);
}

static void test_loads_1_thread(void **state)
{
	run(&(struct plan){ .threads = 1, .agent = "" });
}

static void test_loads_4_threads(void **state)
{
	run(&(struct plan){ .threads = 4, .agent = "" });
}

/* Without async a write is acknowledged when the server has it: the agent's death loses none. */
static void test_stores_1_thread(void **state)
{
	run(&(struct plan){ .threads = 1, .stores = true, .agent = "--async=no" });
}

static void test_stores_4_threads(void **state)
{
	run(&(struct plan){ .threads = 4, .stores = true, .agent = "--async=no" });
}

static void test_stores_base(void **state)
{
	run(&(struct plan){ .threads = 4, .stores = true, .agent = "--base" });
}

static void test_stops_loads(void **state)
{
	run(&(struct plan){ .threads = 4, .stops = true, .agent = "" });
}

static void test_stops_stores(void **state)
{
	run(&(struct plan){ .threads = 4, .stops = true, .stores = true, .agent = "--async=no" });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loads_1_thread),	cmocka_unit_test(test_loads_4_threads),
		cmocka_unit_test(test_stores_1_thread), cmocka_unit_test(test_stores_4_threads),
		cmocka_unit_test(test_stores_base),	cmocka_unit_test(test_stops_loads),
		cmocka_unit_test(test_stops_stores),
	};

	world_has_silent_servers();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
