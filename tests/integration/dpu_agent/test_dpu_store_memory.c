/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whose memory the node's store is: the agent and the programs are in memory cgroups of their own
 * (version 1 or 2, whichever is here), and the kernel says what each group pays for.  And what
 * happens where there is no memory: at the agent's start, and when it has none for a chunk.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"
#include "soda/stage/cgroup.h"
#include "soda/stage/footprint.h"

enum { CHUNK = 65536, WORDS = CHUNK / 8, CHUNKS = 640, TEAM = 2, THREADS = 2 };

/*
 * SLACK: what the kernel counts late, and the queues between agent and program. A program's group
 * has less than the file, but for a sanitizer's own memory.
 */
#define MIB ((size_t)1 << 20)
#define SLACK (2 * MIB)
#define FILE_BYTES (CHUNKS * (size_t)CHUNK)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PROGRAM_LIMIT (1024 * MIB)
#else
#define PROGRAM_LIMIT (FILE_BYTES - 8 * MIB)
#endif

static struct world world;
static struct soda_cgroup agents;	  /* the group of the agent */
static _Atomic int *over, *ready, *going; /* shared with the programs */

/* Groups */

static bool groups_here(void)
{
	struct soda_cgroup trial;

	if (soda_cgroup_open_memory(64 * MIB, true, getpid(), &trial))
		return false;
	soda_cgroup_close(&trial);
	return true;
}

static void need_groups(void)
{
	if (groups_here())
		return;
	puts("SKIP: no memory cgroup can be made here");
	skip();
}

static int put_into(const struct soda_cgroup *group, pid_t pid)
{
	char path[768];
	FILE *out;
	int ret;

	snprintf(path, sizeof(path), "%s/cgroup.procs", group->dir);
	out = fopen(path, "w");
	if (!out)
		return -errno;
	ret = fprintf(out, "%ld", (long)pid) < 0 ? -1 : 0;
	return fclose(out) || ret ? -1 : 0;
}

static size_t value_of(const struct soda_cgroup *group, const char *file)
{
	char path[768];
	size_t value = 0;
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", group->dir, file);
	in = fopen(path, "r");
	if (in && fscanf(in, "%zu", &value) != 1)
		value = 0;
	if (in)
		fclose(in);
	return value;
}

/* Shared memory that the group pays for: memfds', tmpfs's. Both versions call it so. */
static size_t shmem_of(const struct soda_cgroup *group)
{
	unsigned long long value, found = 0;
	char path[768], key[64];
	FILE *in;

	snprintf(path, sizeof(path), "%s/memory.stat", group->dir);
	in = fopen(path, "r");
	while (in && fscanf(in, "%63s %llu", key, &value) == 2)
		if (!strcmp(key, "shmem"))
			found = value;
	if (in)
		fclose(in);
	return (size_t)found;
}

/* The world */

static void write_file(void)
{
	uint64_t *data = malloc(FILE_BYTES);

	for (size_t i = 0; i < FILE_BYTES / 8; i++)
		data[i] = mix(i, 3);
	world_write_file(&world, "file", data, FILE_BYTES);
	free(data);
}

static void up(const char *store)
{
	char options[64];

	snprintf(options, sizeof(options), "--store=%s", store);
	setenv("SODA_TEST_AGENT", options, 1);
	setenv("SODA_TEST_AGENT_SHM", "1", 1);
	world_open(&world, WORLD_TCP, NULL);
	write_file();
	atomic_store(over, 0);
	atomic_store(ready, 0);
	atomic_store(going, 0);
}

static void up_in_group(const char *store)
{
	assert_int_equal(soda_cgroup_open_memory(1024 * MIB, true, getpid(), &agents), 0);
	up(store);
	assert_int_equal(put_into(&agents, world.agent.pid), 0);
}

static void down(void)
{
	world_close(&world);
	soda_cgroup_close(&agents);
}

static uint64_t stat_of(const char *name)
{
	return peer_stat_of(world.address, name);
}

/* The agent, in its log. */
static void says_once(const char *words)
{
	const char *found = strstr(server_log(&world.agent), words);

	assert_non_null(found);
	assert_null(strstr(found + 1, words));
}

/* Programs */

struct job {
	bool grouped;	    /* each in a memory cgroup of its own */
	bool awaited;	    /* begin to read when the parent says so */
	int rounds;	    /* 0: until it is over */
	size_t least, most; /* at the end the group pays for so much shared memory */
};

static const uint64_t *open_file(void)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	const uint64_t *data;
	size_t bytes;

	cfg.server = world.address;
	cfg.buffer = "3M";
	cfg.threads = THREADS;
	cfg.fault_timeout_ms = 50000;
	start(&cfg);
	data = soda_alloc_file("file", 0, SODA_READ_ONLY, &bytes);
	CHECK(data, "%s", soda_last_error());
	CHECK_EQ(bytes, FILE_BYTES);
	return data;
}

static void check_chunk(const uint64_t *data, size_t chunk)
{
	for (size_t i = chunk * WORDS; i < (chunk + 1) * WORDS; i++)
		CHECK(data[i] == mix(i, 3), "word %zu: %llx", i, (unsigned long long)data[i]);
}

static void read_all(const struct job *job, unsigned number)
{
	struct dice dice = { .state = 77 + number };
	struct soda_cgroup own = { 0 };
	const uint64_t *data;

	if (job->grouped) {
		CHECK_EQ(soda_cgroup_open_memory(PROGRAM_LIMIT, false, getpid(), &own), 0);
		CHECK_EQ(soda_cgroup_enter(&own), 0);
	}
	data = open_file();
	atomic_fetch_add(ready, 1);
	while (job->awaited ? !atomic_load(going) : atomic_load(ready) < TEAM)
		sleep_ms(1);
	for (int round = 0; job->rounds ? round < job->rounds : !atomic_load(over); round++)
		for (size_t i = 0; i < CHUNKS; i++)
			check_chunk(data, dice_roll(&dice) % CHUNKS);
	for (size_t i = 0; i < CHUNKS; i++)
		check_chunk(data, i);
	CHECK(stats_now().store_maps > 0, "the file is not in the store");
	if (job->grouped) {
		size_t paid = shmem_of(&own);

		CHECK(paid >= job->least && paid <= job->most,
		      "the program's group pays for %zu bytes", paid);
	}
	CHECK_EQ(soda_shutdown(), 0);
}

/* Each of the team is a process of its own: libsoda starts once in each. */
static void child_team(const void *arg)
{
	int failed = 0, status;
	pid_t pids[TEAM];

	for (unsigned i = 0; i < TEAM; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		read_all(arg, i);
		exit(0);
	}
	for (int i = 0; i < TEAM; i++) {
		failed += waitpid(pids[i], &status, 0) < 0 || status;
		soda_cgroup_remove(pids[i]);
	}
	CHECK_EQ(failed, 0);
}

/* What all programs read is the agent's group's, and nobody else's. */
static void test_the_agent_pays(void **state)
{
	struct job job = { .grouped = true, .rounds = 1, .most = SLACK };
	size_t paid;

	need_groups();
	up_in_group("64M");
	expect_passes(child_team, &job);
	peer_await_none(world.address, "store_members");
	paid = shmem_of(&agents);
	assert_int_equal(stat_of("store_used_bytes"), FILE_BYTES);
	assert_in_range(paid, FILE_BYTES - SLACK, FILE_BYTES + SLACK);
	down();
}

/*
 * The agent dies.  What it has left stays its group's; what a program puts there itself from then
 * on is the program's group's, and as much as its page buffer and its threads' last chunks are.
 */
enum { STORE = 16 << 20 };
static size_t paid_after;

static void kill_agent(const void *arg)
{
	/* What the kernel counts late may be less again a moment later: test_after_the_agent's MIB.
	 */
	for (int i = 0; i < LOOKS && shmem_of(&agents) < STORE - SLACK; i++)
		sleep_ms(10);
	world_kill_agent(&world);
	world_restart_agent(&world);
	put_into(&agents, world.agent.pid);
	sleep_ms(1000);
	paid_after = shmem_of(&agents);
	atomic_store(over, 1);
}

static void test_after_the_agent(void **state)
{
	struct job job = { .grouped = true,
			   .least = 1 * MIB,
			   .most = (64 + 16 * THREADS) * CHUNK + SLACK };
	struct trial t = { .child = child_team, .during = kill_agent, .arg = &job };
	struct outcome out;

	need_groups();
	up_in_group("16M");
	trial_run(&t, &out);
	world_close_noisy(&world);
	soda_cgroup_close(&agents);
	expect_exit(&out, 0);
	assert_in_range(paid_after, STORE - SLACK - MIB, STORE + SLACK);
}

/*
 * The budget, at every moment: programs read a file in order, at random, and a few chunks often,
 * and store to memory of their own beside that.  BESIDE: what programs may put there themselves.
 */
enum {
	BUDGET = 16 << 20,
	BESIDE = 1 << 20,
	OWN_BYTES = 8 << 20,
	PATTERNS = 3,
	WATCH_MS = 4000,
	WATCH_MOST_MS = 90000, /* a case has CASE_SECONDS */
};
static uint64_t most_blocks, looks;

static uint64_t blocks_of(const char *name)
{
	uint64_t bytes = 0;

	assert_int_equal(soda_footprint_memfds(world.agent.pid, name, &bytes), 0);
	return bytes;
}

/*
 * For WATCH_MS, and until every chunk can have been evicted once: beside other tests a look takes
 * long, and the programs do little meanwhile.
 */
static void watch_blocks(const void *arg)
{
	uint64_t begin, ms;

	for (int i = 0; i < LOOKS && atomic_load(ready) < PATTERNS; i++)
		sleep_ms(10);
	begin = soda_now_ms();
	while ((ms = soda_now_ms() - begin) < WATCH_MS ||
	       (ms < WATCH_MOST_MS && stat_of("store_evictions") <= CHUNKS)) {
		uint64_t data = blocks_of("soda-store") - blocks_of("soda-store-map");

		most_blocks = data > most_blocks ? data : most_blocks;
		looks++;
		sleep_ms(1);
	}
	atomic_store(over, 1);
}

static size_t next_of(unsigned pattern, struct dice *dice, size_t i)
{
	switch (pattern) {
	case 0:
		return i % CHUNKS;
	case 1:
		return dice_roll(dice) % CHUNKS;
	default:
		return dice_roll(dice) % (dice_roll(dice) % CHUNKS + 1);
	}
}

static void read_and_store(unsigned pattern)
{
	struct dice dice = { .state = 99 + pattern };
	const uint64_t *data = open_file();
	uint64_t *own = soda_alloc(OWN_BYTES, 0);

	CHECK(own, "%s", soda_last_error());
	atomic_fetch_add(ready, 1);
	for (size_t i = 0; !atomic_load(over); i++) {
		size_t at = next_of(pattern, &dice, i) * WORDS + dice_roll(&dice) % WORDS;

		CHECK(data[at] == mix(at, 3), "word %zu: %llx", at, (unsigned long long)data[at]);
		own[dice_roll(&dice) % (OWN_BYTES / 8)] = i;
	}
	CHECK(stats_now().store_maps > 0, "the file is not in the store");
	CHECK_EQ(soda_shutdown(), 0);
}

static void child_patterns(const void *arg)
{
	pid_t pids[PATTERNS];
	int status = -1;

	for (unsigned i = 0; i < PATTERNS; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		read_and_store(i);
		exit(0);
	}
	for (int i = 0; i < PATTERNS; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && !status, "pattern %d: status %#x",
		      i, (unsigned)status);
}

static void test_never_over_the_budget(void **state)
{
	struct trial t = { .child = child_patterns, .during = watch_blocks };
	struct outcome out;

	most_blocks = looks = 0;
	up("16M");
	trial_run(&t, &out);
	expect_quiet_success(&out);
	print_message("%llu looks: at most %.2f MiB of %d\n", (unsigned long long)looks,
		      (double)most_blocks / MIB, BUDGET >> 20);
	assert_true(stat_of("store_evictions") > CHUNKS);
	assert_int_equal(stat_of("store_forced"), 0);
	assert_in_range(most_blocks, BUDGET / 2, BUDGET + BESIDE);
	world_close(&world);
}

/* The start: a store that can never fit is refused, one that does not fit now is a warning. */

static const char *agent_args[] = { "--listen", "tcp://127.0.0.1:0", "--server",
				    NULL,	"--store",	     NULL,
				    NULL };

static const char *const *args_with(const char *store)
{
	agent_args[3] = world.server_address;
	agent_args[5] = store;
	return agent_args;
}

static void refuses(const char *store, const char *words)
{
	struct program agent;

	CHECK_EQ(program_run("src/dpu_agent/soda-dpu-agent", args_with(store), &agent), 0);
	CHECK_EQ(agent.status, 1);
	CHECK(strstr(agent.err, words), "%s", agent.err);
}

static void starts(const char *store, const char *words)
{
	struct server agent;

	CHECK_EQ(agent_start(&agent, args_with(store)), 0);
	if (words)
		CHECK(strstr(server_log(&agent), words), "%s", server_log(&agent));
	CHECK_EQ(server_stop(&agent), 0);
	CHECK_EQ(server_complaints(&agent), words ? 1 : 0);
	server_forget(&agent);
}

static void child_asks_too_much(const void *arg)
{
	refuses("200T", "--store 200 TiB is more than the machine's memory of ");
}

static void child_has_a_limit(const void *arg)
{
	struct soda_cgroup own = { 0 };
	const size_t taken = 64 * MIB;
	void *memory;

	CHECK_EQ(soda_cgroup_open_memory(512 * MIB, true, getpid(), &own), 0);
	CHECK_EQ(soda_cgroup_enter(&own), 0);
	refuses("513M", "--store 513 MiB is more than the 512 MiB that the agent's memory cgroup");
	starts("128M", NULL);
	memory = mmap(NULL, taken, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	CHECK(memory != MAP_FAILED, "no memory");
	starts("500M", "is left for the agent now");
}

static void judge_start(void (*child)(const void *arg))
{
	struct trial t = { .child = child };
	struct outcome out;

	up("64M");
	trial_run(&t, &out);
	world_close(&world);
	soda_cgroup_sweep();
	expect_exit(&out, 0);
}

static void test_larger_than_the_machine(void **state)
{
	judge_start(child_asks_too_much);
}

static void test_larger_than_the_group(void **state)
{
	need_groups();
	judge_start(child_has_a_limit);
}

/*
 * No memory for a chunk.  The kernel mostly ends a process instead of refusing memory: what it does
 * refuse here is to make the agent's files larger than RLIMIT_FSIZE, the store's memory among them.
 */
static void cut_off(const void *arg)
{
	const struct rlimit *limit = arg;

	for (int i = 0; i < LOOKS && atomic_load(ready) < TEAM; i++)
		sleep_ms(10);
	prlimit(world.agent.pid, RLIMIT_FSIZE, limit, NULL);
	atomic_store(going, 1);
}

/* A program has as much beside the store as its page buffer, and its threads' last chunks. */
static struct job awaited = { .awaited = true,
			      .rounds = 2,
			      .most = (64 + 16 * THREADS) * CHUNK + SLACK };

static void child_awaits(const void *arg)
{
	child_team(&awaited);
}

static void test_no_memory_for_chunks(void **state)
{
	static const size_t room[] = { CHUNK, 8 * MIB + 12345 };

	awaited.grouped = groups_here();
	for (int i = 0; i < 2; i++) {
		struct rlimit limit = { room[i], RLIM_INFINITY };
		const struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
		struct trial t = { .child = child_awaits, .during = cut_off, .arg = &limit };
		struct outcome out;

		up("64M");
		trial_run(&t, &out);
		expect_exit(&out, 0);
		assert_int_equal(prlimit(world.agent.pid, RLIMIT_FSIZE, &none, NULL), 0);
		assert_true(stat_of("store_passed") >= CHUNKS - room[i] / CHUNK);
		assert_true(stat_of("store_used_bytes") <= room[i]);
		says_once("the node's store cannot keep");
		world_close_noisy(&world);
	}
}

/*
 * A group of version 1 whose kernel is told not to kill gives errors in its place: the store makes
 * do with what there is.
 */
static void write_to_group(const char *file, size_t value)
{
	char path[768];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", agents.dir, file);
	out = fopen(path, "w");
	assert_non_null(out);
	fprintf(out, "%zu", value);
	assert_int_equal(fclose(out), 0);
}

static void squeeze(const void *arg)
{
	for (int i = 0; i < LOOKS && atomic_load(ready) < TEAM; i++)
		sleep_ms(10);
	write_to_group("memory.oom_control", 1);
	write_to_group("memory.limit_in_bytes",
		       value_of(&agents, "memory.usage_in_bytes") + 24 * MIB);
	atomic_store(going, 1);
}

/* The limit goes before the kernel may kill again: a sanitizer needs memory for the agent's end. */
static void relax(void)
{
	write_to_group("memory.limit_in_bytes", 1024 * MIB);
	write_to_group("memory.oom_control", 0);
}

static void test_less_memory_than_the_store(void **state)
{
	static const struct job job = { .awaited = true, .rounds = 2 };
	struct trial t = { .child = child_team, .during = squeeze, .arg = &job };
	struct outcome out;

#ifdef __SANITIZE_ADDRESS__
	/*
	 * Where the kernel has no shared page of zeros, a look at the sanitizer's shadow takes
	 * memory, and a thread that faults in a full group waits: the agent's, for ever.
	 */
	puts("SKIP: a sanitizer's own memory would fill the agent's group, whose threads then "
	     "wait");
	skip();
#endif
	need_groups();
	up_in_group("64M");
	if (agents.version != 1) {
		world_close(&world);
		soda_cgroup_close(&agents);
		puts("SKIP: a cgroup of version 2 has no errors for memory that it does not give");
		skip();
	}
	trial_run(&t, &out);
	relax();
	expect_exit(&out, 0);
	assert_true(stat_of("store_limited") > 0);
	assert_in_range(stat_of("store_capacity_bytes"), 8 * MIB, 24 * MIB);
	says_once("the node's store goes on with");
	world_close_noisy(&world);
	soda_cgroup_close(&agents);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_less_memory_than_the_store),
		cmocka_unit_test(test_larger_than_the_machine),
		cmocka_unit_test(test_larger_than_the_group),
		cmocka_unit_test(test_no_memory_for_chunks),
		cmocka_unit_test(test_never_over_the_budget),
		cmocka_unit_test(test_the_agent_pays),
		cmocka_unit_test(test_after_the_agent),
	};

	signal(SIGXFSZ, SIG_IGN); /* of the agent's, too */
	soda_cgroup_sweep();
	over = shared_memory(sizeof(*over));
	ready = shared_memory(sizeof(*ready));
	going = shared_memory(sizeof(*going));
	return cmocka_run_group_tests_name("dpu_store_memory", tests, NULL, NULL);
}
