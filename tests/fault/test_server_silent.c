/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server stands still, alone or with the program: connections stay open and nothing answers.
 * The oracle is that of test_server_death.c.
 */
#include <signal.h>
#include <unistd.h>

#include "struck.h"

/* Memory of a server that stands still can be read all the same, without asking it. */
static bool direct(void)
{
	return !strncmp(struck_world.address, "shm:", 4);
}

static void stop_for_a_while(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(struck_world.server.pid);
	turn_pass();
	sleep_ms(2500);
	kill(struck_world.server.pid, SIGCONT);
	turn_pass();
}

static void child_waits(const void *arg)
{
	struct object o = struck_object(500, SODA_ON_ERROR_WAIT);
	size_t word = o.remote * CHUNK_WORDS;

	let_parent_act();
	check_held_touch(&o.words[word], mix(word, 0), direct() ? 0 : 1.5, 20);
	for (size_t i = RESIDENT * CHUNK_WORDS; i < CHUNKS * CHUNK_WORDS; i++)
		CHECK_EQ(o.words[i], mix(i, 0));
	check_resident(&o);
}

static void test_wait(void **state)
{
	struct outcome out;

	struck_run_held(child_waits, stop_for_a_while, &out);
	expect_exit(&out, 0);
}

static void stop_until_told(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(struck_world.server.pid);
	turn_pass();
	turn_await();
	kill(struck_world.server.pid, SIGCONT);
	turn_pass();
}

/* A touch that failed is no verdict on the page: soon a later one is served. */
static void check_comes(uint64_t *word, uint64_t want)
{
	double end = now_seconds() + 20;
	int got;

	do {
		got = touch_signal(word, false);
	} while (got && now_seconds() < end);
	CHECK_EQ(got, 0);
	CHECK_EQ(*word, want);
}

static void child_hung_server(const void *arg)
{
	struct object o = struck_object(700, 0);
	size_t word = o.remote * CHUNK_WORDS;

	let_parent_act();
	check_touch(&o.words[word], direct() ? 0 : SIGBUS, direct() ? 0 : 0.4, 10);
	turn_pass();
	turn_await(); /* it goes on, and has all of it */
	check_comes(&o.words[word], mix(word, 0));
	check_comes(&o.words[word + CHUNK_WORDS / 2], mix(word + CHUNK_WORDS / 2, 0));
	for (size_t i = (o.remote + 1) * CHUNK_WORDS; i < CHUNKS * CHUNK_WORDS; i++)
		CHECK_EQ(o.words[i], mix(i, 0));
	check_resident(&o);
	CHECK_EQ(soda_sync(NULL, 0), 0);
}

static void test_hung_server(void **state)
{
	struct outcome out;

	struck_run(child_hung_server, stop_until_told, &out);
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

	struck_run(child_hung_server_of_handler, stop_until_told, &out);
	expect_exit(&out, 0);
}

/* With what kernels before 6.6 have. */
static void child_hung_server_of_plain_handler(const void *arg)
{
	setenv("SODA_MECHANISMS", "copy", 1);
	child_hung_server_of_handler(arg);
}

static void test_hung_server_of_plain_handler(void **state)
{
	struct outcome out;

	struck_run(child_hung_server_of_plain_handler, stop_until_told, &out);
	expect_exit(&out, 0);
}

/* Both stand still in the middle of a fault, as in a container that is paused: that does not count.
 */

static void stop_both(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(struck_world.server.pid);
	turn_pass();
	sleep_ms(400); /* it touches */
	if (child_stop())
		sleep_ms(2500);
	child_continue();
	sleep_ms(50);
	kill(struck_world.server.pid, SIGCONT);
}

static void child_stands_still(const void *arg)
{
	struct object o = struck_object(1500, 0);
	size_t word = o.remote * CHUNK_WORDS;

	let_parent_act();
	check_held_touch(&o.words[word], mix(word, 0), direct() ? 0 : 2, 10);
}

static void test_standing_still(void **state)
{
	struct outcome out;

	struck_run_held(child_stands_still, stop_both, &out);
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

	struck_run_held(child_stands_still_with_handler, stop_both, &out);
	expect_quiet_success(&out);
}

/*
 * The program ends while the server stands still, and has not quite ended when that goes on and
 * takes its goodbye: it does not come back as a client that the server has forgotten.
 */

static void linger(void)
{
	sleep_ms(4000); /* the server goes on after less, and the keeper would find it */
}

static void child_ends_slowly(const void *arg)
{
	CHECK_EQ(atexit(linger), 0); /* first of all: called last */
	struck_object(1500, 0);
	let_parent_act();
}

static void test_ends_slowly(void **state)
{
	struct outcome out;

	struck_run(child_ends_slowly, stop_for_a_while, &out);
	expect_quiet_success(&out);
}

/* It never goes on; freeing and ending take their time, and no more. */

static void stop_for_good(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(struck_world.server.pid);
	turn_pass();
	turn_await(); /* the child's end */
	kill(struck_world.server.pid, SIGCONT);
}

static void child_frees_what_is_sent(const void *arg)
{
	struct object o = struck_object(500, 0);

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

	world_open(&struck_world, WORLD_DEFAULT, NULL);
	trial_run(&t, &out);
	world_close_noisy(&struck_world);
	expect_exit(&out, 0);
	assert_true(out.seconds < 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_hung_server),
		cmocka_unit_test(test_hung_server_of_handler),
		cmocka_unit_test(test_hung_server_of_plain_handler),
		cmocka_unit_test(test_standing_still),
		cmocka_unit_test(test_standing_still_with_handler),
		cmocka_unit_test(test_ends_slowly),
		cmocka_unit_test(test_free_of_silent_server),
	};

	return cmocka_run_group_tests_name("server_silent", tests, NULL, NULL);
}
