/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Server, DPU agent (or two) and a program that pages, over verbs, in the guest: every byte
 * that is looked at checked, and no data copied in the agent.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"

enum {
	CHUNK = 65536,
	WORDS = CHUNK / 8,
	CHUNKS = 64,
	BYTES = CHUNK * CHUNKS,
	STEP = 64, /* words between those that are looked at: 512 bytes */
	LIMIT_S = 150,
};

static struct world world;

static void up(const char *options)
{
	setenv("SODA_TEST_AGENT", options, 1);
	world_open(&world, WORLD_VERBS, NULL);
	assert_int_equal(strncmp(world.address, "verbs://", 8), 0);
}

/* By a process of its own: one that forks must not have used verbs itself. */
static uint64_t stat_at(const char *address, const char *name)
{
	static uint64_t *value;
	struct peer tool;
	int status = 0;
	pid_t pid;

	if (!value)
		value = shared_memory(sizeof(*value));
	*value = UINT64_MAX;
	pid = fork();
	if (pid == 0) {
		if (peer_ask(&tool, address) == 0)
			*value = peer_stat(&tool, name);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(*value != UINT64_MAX);
	return *value;
}

static uint64_t stat_of(const char *name)
{
	return stat_at(world.address, name);
}

static void begin_at(const char *address)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char text[32];

	cfg.server = address;
	cfg.threads = 1;
	cfg.fault_timeout_ms = 60000;
	cfg.connect_timeout_ms = 30000;
	set_buffer(&cfg, smallest_buffer(cfg) + 8 * CHUNK, text);
	start(&cfg);
}

static void begin(void)
{
	begin_at(world.address);
}

static void store(uint64_t *fam, uint64_t round)
{
	for (size_t i = 0; i < CHUNKS * WORDS; i += STEP)
		fam[i] = mix(i, round);
}

static void check(const uint64_t *fam, uint64_t round)
{
	for (size_t i = 0; i < CHUNKS * WORDS; i += STEP) {
		CHECK(fam[i] == mix(i, round), "word %zu: %llx", i, (unsigned long long)fam[i]);
		CHECK(fam[i + 1] == 0, "word %zu", i + 1);
	}
}

static void child_paging(const void *arg)
{
	struct dice d = { .state = 7 };
	uint64_t *fam;

	begin();
	fam = alloc_checked(BYTES);
	for (uint64_t round = 1; round <= (getenv("SODA_TEST_BRIEF") ? 1 : 2); round++) {
		store(fam, round);
		check(fam, round);
		for (int n = 0; n < 100; n++) {
			size_t i = dice_roll(&d) % (CHUNKS * WORDS / STEP) * STEP;

			CHECK(fam[i] == mix(i, round), "word %zu", i);
		}
	}
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK(stats_now().bytes_fetched > 0 && stats_now().bytes_written_back > 0,
	      "nothing travelled");
	CHECK_EQ(stats_now().reconnects, 0);
	CHECK_EQ(soda_shutdown(), 0);
}

static void page_through(const char *options)
{
	struct outcome out;

	up(options);
	trial_run(&(struct trial){ .child = child_paging, .seconds = LIMIT_S }, &out);
	expect_quiet_success(&out);
	assert_true(stat_of("client_reads") > 0);
	assert_true(stat_of("client_writes") > 0);
	/* from the network into the buffer that it is sent from, both ways */
	assert_int_equal(stat_of("copied_bytes"), 0);
}

static void test_base(void **state)
{
	page_through("--base --answer=send");
	world_close(&world);
}

static void test_async(void **state)
{
	page_through("--dynamic=no");
	world_close(&world);
}

/* Caching for all, of entries of four chunks: smaller than what is read. */
static void test_dynamic(void **state)
{
	page_through("--adaptive=no --cache-bytes=2M --entry-bytes=256K");
	assert_true(stat_of("cache_hits") + stat_of("cache_late_hits") > 0);
	world_close(&world);
}

static void child_static(const void *arg)
{
	uint64_t *fam;

	begin();
	fam = alloc_checked(BYTES);
	store(fam, 1);
	CHECK_EQ(soda_advise(fam, BYTES, SODA_RANDOM), 0);
	CHECK_EQ(soda_advise(fam, BYTES / 2, SODA_STATIC_CACHE), 0);
	CHECK_EQ(soda_advise(fam, BYTES, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	for (size_t i = 0; i < CHUNKS / 2 * WORDS; i += STEP)
		CHECK(fam[i] == mix(i, 1), "word %zu", i);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	CHECK_EQ(touch_signal(&fam[5], true), SIGSEGV); /* frozen */
	CHECK_EQ(soda_advise(fam, BYTES, SODA_NO_CACHE), 0);
	store(fam, 2);
	check(fam, 2);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_static(const void *arg)
{
	uint64_t demand, reads;

	if (!turn_await())
		return;
	assert_int_equal(stat_of("static_used_bytes"), BYTES / 2);
	demand = stat_of("net_demand_bytes");
	reads = stat_of("client_reads");
	turn_pass();
	if (!turn_await())
		return;
	/* none of it came from the server, and of none of it does the agent know */
	assert_int_equal(stat_of("net_demand_bytes"), demand);
	assert_int_equal(stat_of("client_reads"), reads);
	assert_int_equal(stat_of("copied_bytes"), 0);
	turn_pass();
}

static void test_static(void **state)
{
	struct outcome out;

	up("--dynamic=no");
	trial_run(&(struct trial){ .child = child_static,
				   .during = during_static,
				   .seconds = LIMIT_S },
		  &out);
	expect_quiet_success(&out);
	world_close(&world);
}

static void child_restart(const void *arg)
{
	uint64_t *fam;

	begin();
	fam = alloc_checked(BYTES);
	store(fam, 1);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	turn_pass(); /* it is killed while we read */
	for (int n = 0; n < 20000 && !stats_now().reconnects; n++)
		check(fam, 1);
	CHECK(turn_await(), "the parent is gone");
	CHECK(stats_now().reconnects > 0, "no connection was lost: nothing was tested");
	store(fam, 2);
	check(fam, 2);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_restart(const void *arg)
{
	if (!turn_await())
		return;
	usleep(100000);
	world_kill_agent(&world);
	world_restart_agent(&world);
	turn_pass();
}

/* The agent is killed under load: what was synchronised is there, over new connections. */
static void test_restart(void **state)
{
	struct outcome out;

	up("--dynamic=no");
	trial_run(&(struct trial){ .child = child_restart,
				   .during = during_restart,
				   .seconds = LIMIT_S },
		  &out);
	expect_exit(&out, 0);
	world_close_noisy(&world);
}

#define CUT "?do=cut&after=20&count=1"

/* Queue pairs that end under load, those to the static cache among them: arg, or the agent's. */
static void child_cut(const void *arg)
{
	uint64_t *fam;

	begin_at(arg);
	fam = alloc_checked(BYTES);
	store(fam, 1);
	CHECK_EQ(soda_advise(fam, BYTES / 2, SODA_STATIC_CACHE), 0);
	for (int n = 0; n < 3; n++)
		check(fam, 1);
	CHECK_EQ(soda_advise(fam, BYTES, SODA_NO_CACHE), 0);
	for (uint64_t round = 2; round < 4; round++) {
		store(fam, round);
		check(fam, round);
	}
	CHECK(stats_now().reconnects > 0, "no connection was lost: nothing was tested");
	CHECK_EQ(soda_shutdown(), 0);
}

static void cut_under(const char *address)
{
	struct outcome out;

	trial_run(&(struct trial){ .child = child_cut, .arg = address, .seconds = LIMIT_S }, &out);
	expect_exit(&out, 0);
	assert_int_equal(stat_of("copied_bytes"), 0);
	world_close_noisy(&world);
}

/* Between the program and the agent. */
static void test_cut(void **state)
{
	char address[384];

	up("--dynamic=no");
	snprintf(address, sizeof(address), "fault+%s" CUT, world.address);
	cut_under(address);
}

/* Between the agent and the server. */
static void test_cut_upstream(void **state)
{
	setenv("SODA_TEST_AGENT_FAULT", CUT, 1);
	up("--dynamic=no");
	unsetenv("SODA_TEST_AGENT_FAULT");
	cut_under(world.address);
}

/*
 * An agent with a store on shm, whose server is an agent on verbs, which is killed: nothing is
 * lost, nothing of the file comes twice, and the second agent copies nothing.
 */
static void child_stacked(const void *arg)
{
	const uint64_t *file;
	uint64_t *fam;

	begin();
	fam = alloc_checked(BYTES);
	file = soda_alloc_file("file", 0, SODA_READ_ONLY, NULL);
	CHECK(file, "%s", soda_last_error());
	for (uint64_t round = 1; round <= 2; round++) {
		store(fam, round);
		CHECK_EQ(soda_sync(NULL, 0), 0);
		turn_pass();
		CHECK(turn_await(), "the parent is gone");
		check(fam, round);
		check(file, 3);
	}
	CHECK(stats_now().store_maps > 0, "the file is not in the store");
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_stacked(const void *arg)
{
	if (!turn_await())
		return;
	turn_pass();
	if (!turn_await())
		return;
	assert_int_equal(stat_of("server_is_agent"), 1);
	assert_int_equal(stat_at(world.below_address, "copied_bytes"), 0);
	assert_true(stat_at(world.below_address, "client_writes") > 0);
	world_kill_below(&world);
	world_restart_below(&world);
	turn_pass();
}

static void test_stacked(void **state)
{
	uint64_t *file = calloc(1, BYTES);
	struct outcome out;

	setenv("SODA_TEST_AGENT_BELOW", "--dynamic=no", 1);
	setenv("SODA_TEST_AGENT_SHM", "1", 1);
	setenv("SODA_TEST_AGENT", "--store=16M --dynamic=no", 1);
	world_open(&world, WORLD_VERBS, NULL);
	assert_int_equal(strncmp(world.below_address, "verbs://", 8), 0);
	assert_int_equal(strncmp(world.address, "shm://", 6), 0);
	store(file, 3);
	world_write_file(&world, "file", file, BYTES);
	free(file);
	trial_run(&(struct trial){ .child = child_stacked,
				   .during = during_stacked,
				   .seconds = LIMIT_S },
		  &out);
	expect_exit(&out, 0);
	assert_int_equal(stat_of("store_fills"), CHUNKS);
	unsetenv("SODA_TEST_AGENT_BELOW");
	unsetenv("SODA_TEST_AGENT_SHM");
	world_close_noisy(&world);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_base),	     cmocka_unit_test(test_async),
		cmocka_unit_test(test_dynamic),	     cmocka_unit_test(test_static),
		cmocka_unit_test(test_restart),	     cmocka_unit_test(test_cut),
		cmocka_unit_test(test_cut_upstream), cmocka_unit_test(test_stacked),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("the DPU agent over verbs", tests, NULL, NULL);
}
