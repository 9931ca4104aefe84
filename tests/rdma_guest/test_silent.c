/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client whose machine vanishes without a word, over the cable of `job`, which loses every
 * packet from one moment on: the server notices, unpins what the client could reach, and frees
 * it after the grace time.  And a server whose machine does: a READ ends in time.
 */
#include <signal.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/proc.h"

enum { CHUNK = 65536, CHUNKS = 64, LIMIT_S = 300 };

#define VERBS "verbs://10.8.0.2:7001"

static struct server server;

static unsigned long pinned_kib(void)
{
	unsigned long kib = 0;
	char line[256];
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/status", server.pid);
	f = fopen(line, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmPin: %lu", &kib);
	fclose(f);
	return kib;
}

static void cable(const char *how)
{
	char command[128];

	for (int end = 0; end < 2; end++) {
		snprintf(command, sizeof(command), "tc qdisc change dev v%d root netem %s", end,
			 how);
		assert_int_equal(system(command), 0); /* NOLINT: a constant */
	}
}

static void child(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *words;

	cfg.server = VERBS;
	cfg.threads = 1;
	cfg.connect_timeout_ms = 60000;
	cfg.fault_timeout_ms = 120000;
	start(&cfg);
	words = alloc_checked((size_t)CHUNKS * CHUNK);
	for (size_t i = 0; i < (size_t)CHUNKS * CHUNK / 8; i += 512)
		words[i] = i;
	CHECK_EQ(soda_sync(words, (size_t)CHUNKS * CHUNK), 0);
	turn_pass();
	turn_await();
	_exit(0);
}

/* How often it was looked, until there is none of it; LOOKS: it stayed. */
static int await_none(struct peer *watcher, const char *stat)
{
	int looks = 0;

	while (looks < LOOKS && (stat ? peer_stat(watcher, stat) : pinned_kib()) != 0) {
		sleep_ms(10);
		looks++;
	}
	return looks;
}

static void during(const void *arg)
{
	struct peer watcher;
	unsigned long calls_kib;
	double begin;
	int looks;

	if (!turn_await())
		return;
	assert_int_equal(peer_ask(&watcher, server.address), 0);
	calls_kib = pinned_kib();
	assert_true(calls_kib > CHUNKS * CHUNK / 1024);
	assert_int_equal(peer_stat(&watcher, "regions"), 1);
	/* an idle client whose machine is there stays, for several looks at it */
	sleep_ms(12000);
	assert_int_equal(pinned_kib(), calls_kib);
	cable("loss 100%");
	begin = now_seconds();
	looks = await_none(&watcher, NULL);
	print_message("pinned: %lu KiB, %.1f s after the machine vanished\n", pinned_kib(),
		      now_seconds() - begin);
	if (looks == LOOKS)
		print_error("%s", server_log(&server));
	assert_in_range(looks, 0, LOOKS - 1);
	assert_in_range(await_none(&watcher, "regions"), 0, LOOKS - 1);
	assert_non_null(strstr(server_log(&server), "does not answer any more"));
	cable("delay 1ms");
	peer_vanish(&watcher);
	turn_pass();
}

static void start_server(void)
{
	assert_int_equal(SERVER_START(&server, "--listen", "tcp://127.0.0.1:0", "--listen", VERBS,
				      "--capacity", "256M", "--grace", "1s", "--drain", "1s",
				      "--log-level", "debug"),
			 0);
}

static void run(void (*child_fn)(const void *arg), void (*during_fn)(const void *arg))
{
	struct outcome out;

	start_server();
	trial_run(&(struct trial){ .child = child_fn, .during = during_fn, .seconds = LIMIT_S },
		  &out);
	expect_exit(&out, 0);
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

static void test_silent(void **state)
{
	run(child, during);
}

/* The other way round: soft RoCE sends a READ again for ever, the fault time-out ends it. */
static void child_reads(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *words;

	cfg.server = VERBS;
	cfg.threads = 1;
	cfg.connect_timeout_ms = 2000;
	cfg.fault_timeout_ms = 4000;
	start(&cfg);
	words = alloc_checked((size_t)CHUNKS * CHUNK);
	words[0] = 1;
	CHECK_EQ(soda_advise(words, (size_t)CHUNKS * CHUNK, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	CHECK_EQ(touch_signal(&words[0], false), SIGBUS);
	turn_pass();
	turn_await();
	_exit(0);
}

static void during_reads(const void *arg)
{
	if (!turn_await())
		return;
	cable("loss 100%");
	turn_pass();
	turn_await();
	cable("delay 1ms");
	turn_pass();
}

static void test_silent_server(void **state)
{
	run(child_reads, during_reads);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_silent),
					    cmocka_unit_test(test_silent_server) };

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("a machine that vanishes", tests, NULL, NULL);
}
