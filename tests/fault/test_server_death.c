/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server is killed, stopped, and comes back as another instance.  The oracle:
 * no wrong byte and never zeros, no hang, the signal or error that was promised
 * in the time that was promised, and a line that says why.
 */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 128, RESIDENT = 4 };

static struct world world;

/* An object of which the first chunks are resident and dirty and the last ones never written. */
struct object {
	uint64_t *words;
	size_t remote; /* a chunk that is only on the server */
	size_t blank;  /* one that was never touched */
};

static struct object prepared(unsigned timeout_ms, unsigned on_error)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct object o = { .remote = CHUNKS / 2, .blank = CHUNKS };

	cfg.server = world.address;
	cfg.buffer = "2M";
	cfg.threads = 1;
	cfg.prefetch_chunks = SODA_OFF;
	cfg.fault_timeout_ms = timeout_ms;
	cfg.on_error = on_error;
	start(&cfg);
	o.words = alloc_checked((CHUNKS + 8) * CHUNK);
	for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i++)
		o.words[i] = mix(i, 0);
	CHECK_EQ(soda_advise(o.words, CHUNKS * CHUNK, SODA_COLD), 0);
	for (size_t c = 0; c < RESIDENT; c++)
		o.words[c * CHUNK_WORDS] = mix(c * CHUNK_WORDS, 1);
	return o;
}

static void check_resident(const struct object *o)
{
	for (size_t c = 0; c < RESIDENT; c++) {
		CHECK_EQ(o->words[c * CHUNK_WORDS], mix(c * CHUNK_WORDS, 1));
		CHECK_EQ(o->words[c * CHUNK_WORDS + 1], mix(c * CHUNK_WORDS + 1, 0));
	}
}

/* The word's touch ends as `sig` between the two times. */
static void check_touch(uint64_t *word, int sig, double least_s, double most_s)
{
	double begin = now_seconds(), took;
	int got = touch_signal(word, false);

	took = now_seconds() - begin;
	CHECK(got == sig, "signal %d, expected %d", got, sig);
	CHECK(took >= least_s && took <= most_s, "after %.2f s, expected %.1f to %.1f", took,
	      least_s, most_s);
}

static void kill_server(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&world);
	turn_pass();
}

/* What the parent does is noticed when a connection breaks, which takes a moment. */
static void let_parent_act(void)
{
	turn_pass();
	turn_await();
	sleep_ms(200);
}

/* Memory of a server that stands still can be read all the same, without asking it. */
static bool direct(void)
{
	return !strncmp(world.address, "shm:", 4);
}

static void run(void (*child)(const void *arg), void (*during)(const void *arg),
		struct outcome *out)
{
	struct trial t = { .child = child, .during = during };

	world_open(&world, WORLD_DEFAULT, NULL);
	trial_run(&t, out);
	world_close_noisy(&world);
}

/* Killed for good. */

static void child_fault_fails(const void *arg)
{
	struct object o = prepared(1000, 0);

	let_parent_act();
	check_touch(&o.words[o.remote * CHUNK_WORDS], SIGBUS, 0.5, 4);
	check_resident(&o);
	check_touch(&o.words[o.blank * CHUNK_WORDS], 0, 0, 0.5);
	CHECK_EQ(o.words[o.blank * CHUNK_WORDS], 0);
}

static void test_fault_ends_as_sigbus(void **state)
{
	struct outcome out;

	run(child_fault_fails, kill_server, &out);
	expect_exit(&out, 0);
	expect_says(&out, world.address);
}

static void child_dies(const void *arg)
{
	struct object o = prepared(1000, 0);

	let_parent_act();
	(void)*(volatile uint64_t *)&o.words[o.remote * CHUNK_WORDS];
}

static void test_without_handler_it_kills(void **state)
{
	struct outcome out;

	run(child_dies, kill_server, &out);
	expect_signal(&out, SIGBUS);
	expect_says(&out, world.address);
}

static void child_aborts(const void *arg)
{
	struct object o = prepared(1000, SODA_ON_ERROR_ABORT);

	let_parent_act();
	(void)*(volatile uint64_t *)&o.words[o.remote * CHUNK_WORDS];
}

static void test_abort(void **state)
{
	struct outcome out;

	run(child_aborts, kill_server, &out);
	expect_signal(&out, SIGABRT);
	expect_says(&out, world.address);
}

/* A program that waits for its server can be ended: its signals are not held up. */
static void child_is_ended(const void *arg)
{
	struct object o = prepared(20000, 0);

	let_parent_act();
	alarm(1);
	(void)*(volatile uint64_t *)&o.words[o.remote * CHUNK_WORDS];
}

static void test_signal_while_waiting(void **state)
{
	struct outcome out;

	run(child_is_ended, kill_server, &out);
	expect_signal(&out, SIGALRM);
}

/* Dirty data that cannot be sent stays, and soda_sync says so. */
static void child_sync_fails(const void *arg)
{
	struct object o = prepared(1000, 0);
	int ret;

	let_parent_act();
	ret = soda_sync(NULL, 0);
	CHECK(ret == -EIO || ret == -ETIMEDOUT || ret == -ENOTCONN, "%s", strerror(-ret));
	CHECK(soda_last_error()[0], "no sentence");
	check_resident(&o);
	ret = soda_advise(o.words, RESIDENT * CHUNK, SODA_COLD);
	CHECK(ret < 0, "COLD of dirty data without a server: %d", ret);
	check_resident(&o);
}

static void test_sync_reports(void **state)
{
	struct outcome out;

	run(child_sync_fails, kill_server, &out);
	expect_exit(&out, 0);
}

/* Stopped, so that connections stay open and nothing answers. */

static void stop_for_a_while(const void *arg)
{
	if (!turn_await())
		return;
	kill(world.server.pid, SIGSTOP);
	turn_pass();
	sleep_ms(2500);
	kill(world.server.pid, SIGCONT);
	turn_pass();
}

static void child_waits(const void *arg)
{
	struct object o = prepared(500, SODA_ON_ERROR_WAIT);
	size_t word = o.remote * CHUNK_WORDS;

	let_parent_act();
	check_touch(&o.words[word], 0, direct() ? 0 : 1.5, 20);
	CHECK_EQ(o.words[word], mix(word, 0));
	for (size_t i = RESIDENT * CHUNK_WORDS; i < CHUNKS * CHUNK_WORDS; i++)
		CHECK_EQ(o.words[i], mix(i, 0));
	check_resident(&o);
}

static void test_wait(void **state)
{
	struct outcome out;

	run(child_waits, stop_for_a_while, &out);
	expect_exit(&out, 0);
}

static void child_hung_server(const void *arg)
{
	struct object o = prepared(700, 0);
	size_t word = o.remote * CHUNK_WORDS;

	let_parent_act();
	check_touch(&o.words[word], direct() ? 0 : SIGBUS, direct() ? 0 : 0.4, 2.4);
	turn_await(); /* it goes on */
	for (size_t i = (o.remote + 1) * CHUNK_WORDS; i < CHUNKS * CHUNK_WORDS; i++)
		CHECK_EQ(o.words[i], mix(i, 0));
	check_resident(&o);
	CHECK_EQ(soda_sync(NULL, 0), 0);
}

static void test_hung_server(void **state)
{
	struct outcome out;

	run(child_hung_server, stop_for_a_while, &out);
	expect_exit(&out, 0);
}

static void child_hung_server_of_handler(const void *arg)
{
	setenv("SODA_MODE", "handler", 1);
	child_hung_server(arg);
}

static void test_hung_server_of_handler(void **state)
{
	struct outcome out;

	run(child_hung_server_of_handler, stop_for_a_while, &out);
	expect_exit(&out, 0);
}

/* Both stand still in the middle of a fault, as in a container that is paused: that does not count.
 */

static void stop_both(const void *arg)
{
	if (!turn_await())
		return;
	kill(world.server.pid, SIGSTOP);
	turn_pass();
	sleep_ms(400); /* it touches */
	if (child_stop())
		sleep_ms(2500);
	child_continue();
	sleep_ms(50);
	kill(world.server.pid, SIGCONT);
}

static void child_stands_still(const void *arg)
{
	struct object o = prepared(1500, 0);
	size_t word = o.remote * CHUNK_WORDS;

	let_parent_act();
	check_touch(&o.words[word], 0, direct() ? 0 : 2, 10);
	CHECK_EQ(o.words[word], mix(word, 0));
}

static void test_standing_still(void **state)
{
	struct outcome out;

	run(child_stands_still, stop_both, &out);
	expect_quiet_success(&out);
}

static void child_stands_still_with_handler(const void *arg)
{
	setenv("SODA_MODE", "handler", 1);
	child_stands_still(arg);
}

static void test_standing_still_with_handler(void **state)
{
	struct outcome out;

	run(child_stands_still_with_handler, stop_both, &out);
	expect_quiet_success(&out);
}

/* It never goes on; freeing and ending take their time, and no more. */

static void stop_for_good(const void *arg)
{
	if (!turn_await())
		return;
	kill(world.server.pid, SIGSTOP);
	turn_pass();
	turn_await(); /* the child's end */
	kill(world.server.pid, SIGCONT);
}

static void child_frees_what_is_sent(const void *arg)
{
	struct object o = prepared(500, 0);

	let_parent_act();
	CHECK_EQ(soda_sync(NULL, 0), direct() ? 0 : -ETIMEDOUT);
	soda_free(o.words);
	soda_shutdown();
}

static void test_free_of_silent_server(void **state)
{
	struct trial t = { .child = child_frees_what_is_sent,
			   .during = stop_for_good,
			   .seconds = 30 };
	struct outcome out;

	world_open(&world, WORLD_DEFAULT, NULL);
	trial_run(&t, &out);
	world_close_noisy(&world);
	expect_exit(&out, 0);
	assert_true(out.seconds < 20);
}

/* Back as another instance. */

static void restart_server(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&world);
	world_restart(&world);
	turn_pass();
}

static void child_new_instance(const void *arg)
{
	struct object o = prepared(15000, 0);
	uint64_t *fresh;

	let_parent_act();
	/* gone: at once, whatever the time-out; the second one too */
	check_touch(&o.words[o.remote * CHUNK_WORDS], SIGBUS, 0, 5);
	check_touch(&o.words[(o.remote + 1) * CHUNK_WORDS], SIGBUS, 0, 1);
	check_resident(&o);
	for (size_t c = 0; c < 8; c++)
		CHECK_EQ(o.words[(o.blank + c) * CHUNK_WORDS], 0);
	o.words[o.blank * CHUNK_WORDS] = 77;
	check_resident(&o);
	CHECK_EQ(o.words[o.blank * CHUNK_WORDS], 77);
	fresh = alloc_checked(64 * CHUNK);
	for (size_t i = 0; i < 64 * CHUNK_WORDS; i++)
		fresh[i] = mix(i, 3);
	for (size_t i = 0; i < 64 * CHUNK_WORDS; i++)
		CHECK_EQ(fresh[i], mix(i, 3));
	check_resident(&o); /* evicted to the new instance and back, or still here */
	CHECK_EQ(o.words[o.blank * CHUNK_WORDS], 77);
	soda_free(fresh);
}

static void test_new_instance(void **state)
{
	struct outcome out;

	run(child_new_instance, restart_server, &out);
	expect_exit(&out, 0);
	expect_says(&out, "started anew");
}

enum { FILE_BYTES = 5 << 20 };

static void make_file(uint64_t round)
{
	uint64_t *data = malloc(FILE_BYTES);

	for (size_t i = 0; i < FILE_BYTES / 8; i++)
		data[i] = mix(i, round);
	world_write_file(&world, "graph", data, FILE_BYTES);
	free(data);
}

static uint64_t *open_file(void)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *p;

	cfg.server = world.address;
	cfg.buffer = "1M";
	cfg.threads = 1;
	cfg.fault_timeout_ms = 15000;
	start(&cfg);
	p = soda_alloc_file("graph", 0, SODA_READ_ONLY, NULL);
	CHECK(p, "%s", strerror(errno));
	for (size_t i = 0; i < FILE_BYTES / 8; i++)
		CHECK_EQ(p[i], mix(i, 0));
	return p;
}

static void child_file_reopens(const void *arg)
{
	uint64_t *p = open_file();

	for (int i = 0; i < 2; i++) {
		let_parent_act();
		for (size_t w = 0; w < FILE_BYTES / 8; w++)
			CHECK_EQ(p[w], mix(w, 0));
	}
	CHECK(stats_now().reconnects >= 2, "%llu", (unsigned long long)stats_now().reconnects);
}

static void restart_twice(const void *arg)
{
	restart_server(arg);
	restart_server(arg);
}

static void test_file_reopens(void **state)
{
	struct trial t = { .child = child_file_reopens, .during = restart_twice };
	struct outcome out;

	world_open(&world, WORLD_DEFAULT, NULL);
	make_file(0);
	trial_run(&t, &out);
	world_close_noisy(&world);
	expect_exit(&out, 0);
}

static void restart_with_other_file(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&world);
	sleep_ms(20); /* another modification time */
	make_file(1);
	world_restart(&world);
	turn_pass();
}

static void child_file_changed(const void *arg)
{
	uint64_t *p = open_file();
	unsigned failed = 0;

	let_parent_act();
	for (size_t w = 0; w < FILE_BYTES / 8; w += CHUNK_WORDS)
		if (touch_signal(&p[w], false))
			failed++;
		else
			CHECK_EQ(p[w], mix(w, 0)); /* what is resident is what it was */
	CHECK(failed > 32, "only %u chunks of a file that is another one failed", failed);
}

static void test_changed_file_fails(void **state)
{
	struct trial t = { .child = child_file_changed, .during = restart_with_other_file };
	struct outcome out;

	world_open(&world, WORLD_DEFAULT, NULL);
	make_file(0);
	trial_run(&t, &out);
	world_close_noisy(&world);
	expect_exit(&out, 0);
	expect_says(&out, "graph");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fault_ends_as_sigbus),
		cmocka_unit_test(test_without_handler_it_kills),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_signal_while_waiting),
		cmocka_unit_test(test_sync_reports),
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_hung_server),
		cmocka_unit_test(test_hung_server_of_handler),
		cmocka_unit_test(test_standing_still),
		cmocka_unit_test(test_standing_still_with_handler),
		cmocka_unit_test(test_free_of_silent_server),
		cmocka_unit_test(test_new_instance),
		cmocka_unit_test(test_file_reopens),
		cmocka_unit_test(test_changed_file_fails),
	};

	return cmocka_run_group_tests_name("server_death", tests, NULL, NULL);
}
