/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two agents, one behind the other, with real programs:
 *
 *   programs -- shm --> agent of the node, with a store -- tcp --> agent with caches of its own,
 *   as on a DPU -- tcp --> memory server
 *
 * The oracle: every word is the file's, or what was stored last, whichever process dies; and what
 * soda_sync() has promised is on the server.
 */
#include <grp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"

enum { CHUNK = 65536, WORDS = CHUNK / 8, CHUNKS = 160, TEAM = 3, FILE_ROUND = 90 };

#define NODE "--store=64M"
#define DPU "--aggregate --cache-bytes=32M --entry-bytes=256K --static-rule=kept*"

static struct world world;
static _Atomic int *step, *over; /* shared with the programs */

/* The last chunk is short. */
static const size_t words = (size_t)CHUNKS * WORDS - 700;
#define FILE_BYTES ((words * 8 + 4095) / 4096 * 4096) /* whole pages */

static void write_file(void)
{
	uint64_t *data = malloc(words * 8);

	for (size_t i = 0; i < words; i++)
		data[i] = mix(i, FILE_ROUND);
	world_write_file(&world, "file", data, words * 8);
	free(data);
}

/* shm: how programs reach the agent of the node, instead of tcp. */
static void up(const char *node, bool shm, const char *dpu)
{
	setenv("SODA_TEST_AGENT", node, 1);
	setenv("SODA_TEST_AGENT_BELOW", dpu, 1);
	if (shm)
		setenv("SODA_TEST_AGENT_SHM", "1", 1);
	else
		unsetenv("SODA_TEST_AGENT_SHM");
	world_open(&world, WORLD_TCP, NULL);
	write_file();
	atomic_store(step, 0);
	atomic_store(over, 0);
}

static uint64_t of_node(const char *name)
{
	return peer_stat_of(world.address, name);
}

static uint64_t of_dpu(const char *name)
{
	return peer_stat_of(world.below_address, name);
}

/* Of the clients that the agent has. */
static uint64_t sum_of_clients(const char *address, const char *name)
{
	struct peer tool;
	uint64_t sum;

	CHECK_EQ(peer_ask(&tool, address), 0);
	sum = peer_stat_sum(&tool, "client_list", name);
	peer_leave(&tool);
	return sum;
}

/* Programs */

struct job {
	int mode; /* enum soda_mode */
	int programs;
	void (*run)(const struct job *job, int number);
};

static const int modes[] = { SODA_MODE_INLINE, SODA_MODE_HANDLER };

static void begin(const struct job *job)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.buffer = "3M";
	cfg.threads = 2;
	cfg.mode = job->mode;
	cfg.fault_timeout_ms = 60000;
	start(&cfg);
}

static const uint64_t *open_file(void)
{
	size_t bytes = 0;
	const uint64_t *data = soda_alloc_file("file", 0, SODA_READ_ONLY, &bytes);

	CHECK(data, "%s", soda_last_error());
	CHECK_EQ(bytes, words * 8);
	return data;
}

static void check(const uint64_t *data, size_t from, size_t to, uint64_t round)
{
	for (size_t i = from; i < to; i++)
		CHECK(data[i] == mix(i, round), "word %zu of round %llu: %llx", i,
		      (unsigned long long)round, (unsigned long long)data[i]);
}

static void fill(uint64_t *data, uint64_t round)
{
	for (size_t i = 0; i < words; i++)
		data[i] = mix(i, round);
}

static void sync_checked(void)
{
	CHECK(soda_sync(NULL, 0) == 0, "%s", soda_last_error());
}

static void await_step(int n)
{
	while (atomic_load(step) < n)
		sleep_ms(1);
}

static void meet(int n)
{
	atomic_fetch_add(step, 1);
	await_step(n);
}

/* Each of the team is a process of its own: libsoda starts once in each. */
static void child_team(const void *arg)
{
	const struct job *job = arg;
	int failed = 0, status;
	pid_t pids[TEAM];

	for (int i = 0; i < job->programs; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		job->run(job, i);
		exit(0);
	}
	for (int i = 0; i < job->programs; i++)
		failed += waitpid(pids[i], &status, 0) < 0 || status;
	CHECK_EQ(failed, 0);
}

/* In peace */

static void read_file(const struct job *job, int number)
{
	const uint64_t *data;

	begin(job);
	data = open_file();
	CHECK_EQ(sum_of_clients(world.address, "by_agent"), 0);
	CHECK(sum_of_clients(world.below_address, "by_agent") > 0, "the program is not there");
	meet(job->programs);
	check(data, 0, words, FILE_ROUND);
	CHECK(stats_now().store_maps > 0, "the file is not in the store");
}

/* One copy on the node of what several programs read, and one that the DPU's agent sends. */
static void test_reads(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i], .programs = 3, .run = read_file };

		up(NODE, true, DPU);
		expect_passes(child_team, &job);
		assert_int_equal(of_node("server_is_agent"), 1);
		assert_int_equal(of_dpu("server_is_agent"), 0);
		assert_int_equal(of_node("store_fills"), CHUNKS);
		assert_int_equal(of_node("net_demand_bytes") + of_node("net_prefetch_bytes"),
				 FILE_BYTES);
		assert_true(of_dpu("client_reads") > 0);
		world_close(&world);
	}
}

static void child_stores(const void *arg)
{
	uint64_t *data, *file;

	begin(arg);
	data = alloc_checked(words * 8);
	file = soda_alloc_file("out", words * 8, SODA_WRITABLE | SODA_CREATE, NULL);
	CHECK(file, "%s", soda_last_error());
	for (uint64_t round = 1; round <= 3; round++) {
		fill(data, round);
		fill(file, round + 10);
		check(data, 0, words, round);
		sync_checked();
		check(file, 0, words, round + 10);
	}
	CHECK_EQ(soda_advise(data, CHUNK * 8, SODA_DISCARD), 0);
	for (size_t i = 0; i < 8 * WORDS; i++)
		CHECK(data[i] == 0, "word %zu", i);
	check(data, 8 * WORDS, words, 3);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_stores(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i] };
		uint64_t *file;

		up(NODE, true, DPU);
		expect_passes(child_stores, &job);
		file = (uint64_t *)world_read_file(&world, "out", words * 8);
		for (size_t k = 0; k < words; k++)
			assert_int_equal(file[k], mix(k, 13));
		free(file);
		assert_true(of_node("writes_accepted") > 0);
		assert_int_equal(of_dpu("writes_accepted"), 0); /* none early */
		world_close(&world);
	}
}

/* An object that the first program publishes, and that the others open by its name. */
static void publish_or_read(const struct job *job, int number)
{
	uint64_t *data;
	size_t bytes = 0;

	begin(job);
	if (number == 0) {
		data = alloc_checked(words * 8);
		fill(data, 5);
		CHECK(soda_publish(data, "index") == 0, "%s", soda_last_error());
		meet(job->programs);
		soda_free(data);
		return;
	}
	await_step(1);
	data = (uint64_t *)(uintptr_t)soda_open_published("index", &bytes);
	CHECK(data, "%s", soda_last_error());
	CHECK_EQ(bytes, words * 8);
	meet(job->programs);
	check(data, 0, words, 5);
	CHECK(stats_now().store_maps > 0, "the object is not in the store");
}

static void test_published(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i], .programs = 3, .run = publish_or_read };

		up(NODE, true, DPU);
		expect_passes(child_team, &job);
		assert_int_equal(of_node("store_fills"), CHUNKS);
		world_close(&world);
	}
}

/* Caching: the first agent from the program on that has the cache keeps the range. */

static void child_is_ruled(const void *arg)
{
	const uint64_t *data;

	begin(arg);
	data = open_file();
	CHECK(soda_set_name((void *)(uintptr_t)data, "kept: all of it") == 0, "%s",
	      soda_last_error());
	check(data, 0, words, FILE_ROUND);
	meet(1);
	await_step(2);
}

static void expect_kept_on_node(const void *arg)
{
	for (int i = 0; i < LOOKS && !atomic_load(step); i++)
		sleep_ms(10);
	assert_int_equal(of_node("store_pinned_bytes"), FILE_BYTES);
	assert_int_equal(of_dpu("static_used_bytes"), 0);
	atomic_store(step, 2);
}

static void expect_kept_on_dpu(const void *arg)
{
	for (int i = 0; i < LOOKS && !atomic_load(step); i++)
		sleep_ms(10);
	assert_int_equal(of_node("store_pinned_bytes"), 0);
	assert_true(of_dpu("static_used_bytes") >= words * 8);
	atomic_store(step, 2);
}

/* A rule of the second agent's, for a program that knows the first one only. */
static void test_rule_of_the_second(void **state)
{
	const struct job job = { .mode = SODA_MODE_INLINE };

	for (int i = 0; i < 2; i++) {
		struct trial t = { .child = child_is_ruled,
				   .during = i ? expect_kept_on_dpu : expect_kept_on_node,
				   .arg = &job };
		struct outcome out;

		up(i ? NODE " --static=no" : NODE, true, DPU);
		trial_run(&t, &out);
		expect_quiet_success(&out);
		world_close(&world);
	}
}

static void child_advises(const void *arg)
{
	uint64_t *data;

	begin(arg);
	data = alloc_checked(words * 8);
	fill(data, 1);
	CHECK(soda_advise(data, 64 * CHUNK, SODA_STATIC_CACHE) == 0, "%s", soda_last_error());
	CHECK_EQ(peer_stat_at(world.below_address, "static_used_bytes"), 64 * CHUNK);
	check(data, 0, words, 1);
	CHECK_EQ(touch_signal((volatile uint64_t *)&data[5], true), SIGSEGV);
	CHECK(soda_advise(data, 64 * CHUNK, SODA_NO_CACHE) == 0, "%s", soda_last_error());
	CHECK_EQ(peer_stat_at(world.below_address, "static_used_bytes"), 0);
	fill(data, 2);
	check(data, 0, words, 2);
}

/* Advice that the first agent cannot follow goes to the second. */
static void test_advice_goes_on(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i] };

		up("--static=no --dynamic=no", i, DPU);
		expect_passes(child_advises, &job);
		world_close(&world);
	}
}

/* Deaths */

/*
 * The server stands still: soda_sync() does not return before it goes on.  When it has, the second
 * agent dies: it had nothing that the server did not have.
 */
static void child_syncs(const void *arg)
{
	uint64_t *data;

	begin(arg);
	data = alloc_checked(words * 8);
	fill(data, 1);
	sync_checked();
	fill(data, 2);
	data[words - 1] = 0;
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	data[words - 1] = mix(words - 1, 2); /* all else may have been brought there meanwhile */
	sync_checked();
	atomic_store(over, 1);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	check(data, 0, words, 2);
}

static void kill_dpu(void)
{
	world_kill_below(&world);
	sleep_ms(20);
	world_restart_below(&world);
}

static void stop_server_then_kill_dpu(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(world.server.pid);
	turn_pass();
	sleep_ms(300);
	atomic_store(step, atomic_load(over)); /* 1: it said so while the server stood still */
	kill(world.server.pid, SIGCONT);
	if (!turn_await())
		return;
	kill_dpu();
	turn_pass();
}

static void test_sync_is_true(void **state)
{
	struct job job = { .mode = SODA_MODE_INLINE };
	struct trial t = { .child = child_syncs, .during = stop_server_then_kill_dpu, .arg = &job };
	struct outcome out;

	up(NODE, true, DPU);
	trial_run(&t, &out);
	world_close_noisy(&world);
	expect_exit(&out, 0);
	assert_int_equal(atomic_load(step), 0);
}

/*
 * It dies again and again while a program stores, synchronises and reads, and others read the file:
 * nobody notices, because what the agent of the node has acknowledged it has until the server has.
 */
static void store_or_read(const struct job *job, int number)
{
	const uint64_t *file;
	uint64_t *data;

	begin(job);
	data = alloc_checked(words * 8);
	file = open_file();
	meet(job->programs);
	for (uint64_t round = 1; !atomic_load(over) || round < 3; round++) {
		if (number == 0) {
			fill(data, round);
			if (round % 2)
				sync_checked();
			check(data, 0, words, round);
		}
		check(file, 0, words, FILE_ROUND);
	}
	CHECK_EQ(soda_shutdown(), 0);
}

static void kill_dpu_often(const void *arg)
{
	const struct job *job = arg;

	for (int i = 0; i < LOOKS && atomic_load(step) < job->programs; i++)
		sleep_ms(10);
	for (int i = 0; i < 4; i++) {
		sleep_ms(40 + 70 * (unsigned)i);
		kill_dpu();
	}
	sleep_ms(100);
	atomic_store(over, 1);
}

static void test_second_agent_dies(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i], .programs = 2, .run = store_or_read };
		struct trial t = { .child = child_team, .during = kill_dpu_often, .arg = &job };
		struct outcome out;

		up("--store=8M", true, DPU);
		trial_run(&t, &out);
		world_close_noisy(&world);
		expect_exit(&out, 0);
	}
}

/*
 * The agent of the node dies, and then both: what was synchronised is there, what is of the file
 * stays mapped or comes by the next agent.
 */
enum { DEATHS = 4 };

static void child_outlives(const void *arg)
{
	const uint64_t *file;
	uint64_t *data;

	begin(arg);
	data = alloc_checked(words * 8);
	file = open_file();
	check(file, 0, words / 2, FILE_ROUND);
	for (uint64_t round = 1; round <= DEATHS; round++) {
		fill(data, round);
		sync_checked();
		turn_pass();
		CHECK(turn_await(), "the parent is gone");
		check(data, 0, words, round);
		check(file, 0, words, FILE_ROUND);
	}
	CHECK(stats_now().reconnects > 0, "the agent of the node was not lost");
	CHECK_EQ(soda_shutdown(), 0);
}

static void kill_agents(const void *arg)
{
	for (int i = 0; i < DEATHS && turn_await(); i++) {
		if (i % 2)
			world_kill_below(&world);
		world_kill_agent(&world);
		if (i % 2)
			world_restart_below(&world);
		world_restart_agent(&world);
		turn_pass();
	}
}

static void test_agents_die(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i] };
		struct trial t = { .child = child_outlives, .during = kill_agents, .arg = &job };
		struct outcome out;

		up("--store=8M", true, DPU);
		trial_run(&t, &out);
		world_close_noisy(&world);
		expect_exit(&out, 0);
	}
}

/*
 * Of what the agent of the node seals the second one knows nothing, also when it was started anew
 * and learns from the server what is sealed there.
 */
static void test_sealed_before(void **state)
{
	struct job job = { .mode = SODA_MODE_INLINE };
	struct trial t = { .child = child_syncs, .during = stop_server_then_kill_dpu, .arg = &job };
	struct outcome out;

	up("--seal", true, DPU);
	trial_run(&t, &out);
	world_close_noisy(&world);
	expect_exit(&out, 0);
}

/* Another instance of the server, behind both: an unchanged file goes on, what was lost is said. */
static void child_meets_new_server(const void *arg)
{
	const uint64_t *file;
	uint64_t *data;

	begin(arg);
	data = alloc_checked(words * 8);
	file = open_file();
	fill(data, 1);
	sync_checked();
	check(file, 0, words / 2, FILE_ROUND);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	check(file, 0, words, FILE_ROUND);
	CHECK_EQ(touch_signal((volatile uint64_t *)&data[0], false), SIGBUS);
	CHECK_EQ(soda_sync(NULL, 0), -EIO);
	soda_free(data);
	data = alloc_checked(words * 8);
	fill(data, 2);
	sync_checked();
	check(data, 0, words, 2);
	CHECK_EQ(soda_shutdown(), 0);
}

static void restart_server(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&world);
	world_restart(&world);
	turn_pass();
}

static void test_server_is_restarted(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i] };
		struct trial t = { .child = child_meets_new_server,
				   .during = restart_server,
				   .arg = &job };
		struct outcome out;

		up(NODE, true, DPU);
		trial_run(&t, &out);
		world_close_noisy(&world);
		expect_exit(&out, 0);
	}
}

/* Refused */

struct refusal {
	const char *address;
	const char *says;
};

static void child_is_refused(const void *arg)
{
	const struct refusal *r = arg;
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = r->address;
	CHECK(soda_init(&cfg) < 0, "it is not refused");
	CHECK(strstr(soda_last_error(), r->says), "%s", soda_last_error());
}

static void expect_refused(const char *address, const char *says)
{
	const struct refusal r = { address, says };
	struct trial t = { .child = child_is_refused, .arg = &r };
	struct outcome out;

	trial_run(&t, &out);
	expect_exit(&out, 0);
}

static void start_on(struct server *agent, const char *listen, const char *server)
{
	assert_int_equal(agent_start(agent, (const char *const[]){ "--listen", listen, "--server",
								   server, NULL }),
			 0);
}

static void stop(struct server *agent)
{
	assert_int_equal(server_stop(agent), 0);
	server_forget(agent);
}

/* No client is left but who asks. */
static void expect_empty(const char *address)
{
	struct peer tool;

	assert_int_equal(peer_ask(&tool, address), 0);
	for (int i = 0; i < LOOKS && peer_stat(&tool, "clients") > 1; i++)
		usleep(10000);
	assert_int_equal(peer_stat(&tool, "clients"), 1);
	peer_leave(&tool);
}

#define ROW "2 agents stand before this one"

static void test_third_is_refused(void **state)
{
	struct server third;

	up("", false, "");
	start_on(&third, "tcp://127.0.0.1:0", world.address);
	expect_refused(third.address, ROW);
	expect_empty(world.address);
	expect_empty(world.below_address);
	stop(&third);
	world_close_noisy(&world);
}

/* An agent whose server is itself, and two whose server is the other. */
static void test_circle_is_refused(void **state)
{
	struct server one, other;
	char address[128];

	start_on(&one, "tcp://127.0.0.1:0", "tcp://127.0.0.1:1");
	memcpy(address, one.address, sizeof(address));
	stop(&one);
	start_on(&one, address, address);
	expect_refused(address, ROW);
	stop(&one);
	start_on(&other, "tcp://127.0.0.1:0", address);
	start_on(&one, address, other.address);
	expect_refused(address, ROW);
	expect_empty(address);
	expect_empty(other.address);
	stop(&one);
	stop(&other);
}

static void test_shm_between_agents_is_refused(void **state)
{
	setenv("SODA_TEST_AGENT_BELOW_SHM", "1", 1);
	up("", false, "");
	unsetenv("SODA_TEST_AGENT_BELOW_SHM");
	expect_refused(world.address, "by tcp or verbs, not by shm");
	expect_empty(world.address);
	world_close_noisy(&world);
}

/* Another user's programs have a store of their own, and the server knows whose they are. */
static void read_as_users(const struct job *job, int number)
{
	const uid_t nobody = 65534;

	if (number % 2)
		CHECK(!setgroups(0, NULL) && !setgid(nobody) && !setuid(nobody), "%s",
		      strerror(errno));
	begin(job);
	check(open_file(), 0, words, FILE_ROUND);
	CHECK(stats_now().store_maps > 0, "the file is not in the store");
	meet(job->programs);
}

static void test_users_are_apart(void **state)
{
	struct job job = { .mode = SODA_MODE_INLINE, .programs = 3, .run = read_as_users };

	if (geteuid()) {
		puts("SKIP: only root can become another user");
		skip();
	}
	up(NODE " --allow-other", true, DPU);
	assert_return_code(chmod(world.dir, 0755), errno);
	assert_return_code(chmod(strchr(world.address, '/') + 2, 0777), errno);
	expect_passes(child_team, &job);
	assert_int_equal(of_node("store_objects"), 2);
	assert_int_equal(of_node("store_fills"), 2 * CHUNKS);
	world_close(&world);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_stores),
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_rule_of_the_second),
		cmocka_unit_test(test_advice_goes_on),
		cmocka_unit_test(test_sync_is_true),
		cmocka_unit_test(test_second_agent_dies),
		cmocka_unit_test(test_agents_die),
		cmocka_unit_test(test_server_is_restarted),
		cmocka_unit_test(test_sealed_before),
		cmocka_unit_test(test_third_is_refused),
		cmocka_unit_test(test_circle_is_refused),
		cmocka_unit_test(test_shm_between_agents_is_refused),
		cmocka_unit_test(test_users_are_apart),
	};

	world_has_silent_servers();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	step = shared_memory(sizeof(*step));
	over = shared_memory(sizeof(*over));
	return cmocka_run_group_tests_name("dpu_stacked", tests, NULL, NULL);
}
