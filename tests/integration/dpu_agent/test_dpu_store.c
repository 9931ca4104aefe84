/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The node's store with real programs: a server, an agent with --store, and programs that read one
 * file through it.  The oracle: every word is the file's; what the server sends is one copy.
 */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"

enum {
	CHUNK = 65536,
	WORDS = CHUNK / 8,
	SMALL = 192,
	LARGE = 640 /* chunks of a file */,
	TEAM = 4
};

static struct world world;
static _Atomic int *over, *ready; /* shared with the programs */

static const char *const names[] = { "small", "large" };
static const size_t chunks_of[] = { SMALL, LARGE };

/* The last chunk is short by some words. */
static size_t words_of(int file)
{
	return chunks_of[file] * WORDS - 700;
}

static void write_file(int file, uint64_t round)
{
	size_t n = words_of(file);
	uint64_t *data = malloc(n * 8);

	for (size_t i = 0; i < n; i++)
		data[i] = mix(i, round);
	world_write_file(&world, names[file], data, n * 8);
	free(data);
}

static void up(const char *store)
{
	char options[64];

	snprintf(options, sizeof(options), "--store=%s", store);
	setenv("SODA_TEST_AGENT", options, 1);
	setenv("SODA_TEST_AGENT_SHM", "1", 1);
	world_open(&world, WORLD_TCP, NULL);
	write_file(0, 3);
	write_file(1, 3);
	atomic_store(over, 0);
	atomic_store(ready, 0);
}

static uint64_t stat_of(const char *name)
{
	return peer_stat_of(world.address, name);
}

/* Programs */

struct job {
	int mode; /* enum soda_mode */
	int file;
	int programs, rounds; /* rounds 0: until it is over */
	bool in_order;
	bool counted;	    /* nothing goes wrong: what it has mapped is what it has read */
	size_t keep;	    /* chunks, from the file's first on, that go into the static cache */
	size_t chunks_most; /* at the end the store's memory may have so many; 0: any number */
	unsigned kill_ms;   /* so long after they have met the first is killed; 0: it is not */
	void (*run)(const struct job *job, unsigned number);
	const char *faults; /* what the connections do meanwhile: transport/fault/rules.h */
};

static void start_for(const struct job *job)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char address[400];

	snprintf(address, sizeof(address), job->faults ? "fault+%s?%s" : "%s", world.address,
		 job->faults);
	cfg.server = address;
	cfg.buffer = "3M";
	cfg.threads = 2;
	cfg.mode = job->mode;
	cfg.fault_timeout_ms = 50000;
	start(&cfg);
}

static const uint64_t *open_file(const struct job *job)
{
	const uint64_t *data;
	size_t bytes;

	start_for(job);
	data = soda_alloc_file(names[job->file], 0, SODA_READ_ONLY, &bytes);
	CHECK(data, "%s", soda_last_error());
	CHECK_EQ(bytes, words_of(job->file) * 8);
	return data;
}

static void check_chunk(const uint64_t *data, int file, size_t chunk, uint64_t round)
{
	size_t end = (chunk + 1) * WORDS < words_of(file) ? (chunk + 1) * WORDS : words_of(file);

	for (size_t i = chunk * WORDS; i < end; i++)
		CHECK(data[i] == mix(i, round), "word %zu: %llx", i, (unsigned long long)data[i]);
}

/* Of this process, by what the kernel calls it. */
static int store_fd(const char *wanted)
{
	char path[32], name[64];

	for (int fd = 3; fd < 65536; fd++) { /* the library moves its own up */
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, name, sizeof(name) - 1);
		name[n > 0 ? n : 0] = 0;
		if (!strcmp(name, wanted))
			return fd;
	}
	return -1;
}

#define DATA_NAME "/memfd:soda-store (deleted)"
#define MAP_NAME "/memfd:soda-store-map (deleted)"
#define DATA_FD store_fd(DATA_NAME)
#define MAP_FD store_fd(MAP_NAME)
/* A shell's line that fails if it has inherited one of them. */
#define LIST_DESCRIPTORS "! ls -l /proc/self/fd | grep -q soda-store"

static size_t memory_of(int fd)
{
	struct stat st;

	CHECK_EQ(fstat(fd, &st), 0);
	return (size_t)st.st_blocks * 512;
}

static void meet(int programs)
{
	atomic_fetch_add(ready, 1);
	while (atomic_load(ready) < programs)
		sleep_ms(1);
}

static int advise(const uint64_t *data, size_t first, size_t n, int advice)
{
	return soda_advise((void *)(uintptr_t)(data + first * WORDS), n * CHUNK, advice);
}

static void keep(const struct job *job, const uint64_t *data)
{
	if (job->keep)
		CHECK(!advise(data, 0, job->keep, SODA_STATIC_CACHE), "%s", soda_last_error());
}

/* What soda_get_stats() says of the store. */
static void check_stats(const struct job *job)
{
	struct soda_stats s = stats_now();

	CHECK(s.store_maps > 0, "the file is not in the store");
	CHECK_EQ(s.store_object_bytes, (words_of(job->file) * 8 + 4095) / 4096 * 4096);
	CHECK(s.store_bytes_mapped <= s.store_maps * CHUNK, "%llu bytes",
	      (unsigned long long)s.store_bytes_mapped);
	CHECK(s.store_bytes_asked <= s.store_asks * CHUNK, "%llu bytes",
	      (unsigned long long)s.store_bytes_asked);
	if (!job->counted)
		return;
	CHECK(s.store_bytes_mapped >= words_of(job->file) * 8, "%llu bytes",
	      (unsigned long long)s.store_bytes_mapped);
	CHECK_EQ(s.bytes_fetched, 0);
}

static void read_all(const struct job *job, unsigned number)
{
	struct dice dice = { .state = 77 + number };
	const uint64_t *data = open_file(job);
	size_t n = chunks_of[job->file];

	meet(job->programs);
	keep(job, data);
	for (int round = 0; job->rounds ? round < job->rounds : !atomic_load(over); round++)
		for (size_t i = 0; i < n; i++)
			check_chunk(data, job->file, job->in_order ? i : dice_roll(&dice) % n, 3);
	for (size_t i = 0; i < n; i++)
		check_chunk(data, job->file, i, 3);
	check_stats(job);
	if (job->chunks_most)
		CHECK(memory_of(DATA_FD) <= job->chunks_most * CHUNK, "%zu bytes are in memory",
		      memory_of(DATA_FD));
	soda_free((void *)(uintptr_t)data);
	CHECK_EQ(stats_now().store_object_bytes, 0);
	CHECK_EQ(soda_shutdown(), 0);
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
		job->run(job, (unsigned)i);
		exit(0);
	}
	if (job->kill_ms) {
		while (atomic_load(ready) < job->programs)
			sleep_ms(1);
		sleep_ms(job->kill_ms);
		kill(pids[0], SIGKILL);
	}
	for (int i = 0; i < job->programs; i++)
		failed += waitpid(pids[i], &status, 0) < 0 || (status && !(job->kill_ms && !i));
	CHECK_EQ(failed, 0);
}

static const int modes[] = { SODA_MODE_INLINE, SODA_MODE_HANDLER };

/* One copy: what two programs read together comes from the server once. */
static void test_one_copy(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct job job = { .mode = modes[i % 2],
				   .programs = 2,
				   .rounds = 1,
				   .counted = true,
				   .in_order = i / 2,
				   .run = read_all };

		up("64M");
		expect_passes(child_team, &job);
		assert_int_equal(stat_of("store_fills"), SMALL);
		assert_int_equal(stat_of("store_evictions"), 0);
		assert_int_equal(stat_of("net_demand_bytes"),
				 (words_of(0) * 8 + 4095) / 4096 * 4096);
		assert_int_equal(peer_stat_of(world.server_address, "bytes_read"),
				 stat_of("net_demand_bytes"));
		peer_await_none(world.address, "store_members");
		world_close(&world);
	}
}

/* An object that the first program has made, and frees while the others read it. */
static void publish(const struct job *job)
{
	size_t n = words_of(job->file);
	uint64_t *data;

	start_for(job);
	data = alloc_checked(n * 8);
	for (size_t i = 0; i < n; i++)
		data[i] = mix(i, 3);
	CHECK(soda_publish(data, names[job->file]) == 0, "%s", soda_last_error());
	meet(job->programs);
	for (size_t i = 0; i < chunks_of[job->file]; i++)
		check_chunk(data, job->file, i, 3);
	CHECK_EQ(stats_now().store_maps, 0);
	soda_free(data);
}

static void read_published(const struct job *job, unsigned number)
{
	const uint64_t *data;
	size_t bytes;

	if (!number) {
		publish(job);
		return;
	}
	while (!atomic_load(ready))
		sleep_ms(1);
	start_for(job);
	data = soda_open_published(names[job->file], &bytes);
	CHECK(data, "%s", soda_last_error());
	CHECK_EQ(bytes, words_of(job->file) * 8);
	meet(job->programs);
	for (int round = 0; round < job->rounds; round++)
		for (size_t i = 0; i < chunks_of[job->file]; i++)
			check_chunk(data, job->file, i, 3);
	CHECK(stats_now().store_maps > 0, "the object is not in the store");
	CHECK_EQ(touch_signal((volatile uint64_t *)(uintptr_t)&data[5], true), SIGSEGV);
}

/* One copy of it for those that open it, be there room for all of it or not. */
static void test_published(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct job job = { .mode = modes[i % 2],
				   .file = i / 2,
				   .programs = 3,
				   .rounds = 2,
				   .run = read_published };

		up(i / 2 ? "16M" : "64M");
		expect_passes(child_team, &job);
		if (i / 2)
			assert_true(stat_of("store_evictions") >= LARGE - 256);
		else
			assert_int_equal(stat_of("store_fills"), SMALL);
		peer_await_none(world.address, "store_members");
		world_close(&world);
	}
}

/* A store that has less room than the file: chunks go while others read them. */
static void test_eviction(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct job job = { .mode = modes[i % 2],
				   .file = 1,
				   .programs = 3,
				   .rounds = 2,
				   .in_order = i / 2,
				   .run = read_all };

		up("16M");
		expect_passes(child_team, &job);
		assert_true(stat_of("store_evictions") >= LARGE - 256);
		assert_true(stat_of("store_used_bytes") <= stat_of("store_capacity_bytes"));
		assert_int_equal(stat_of("store_fills_failed"), 0);
		peer_await_none(world.address, "store_members");
		world_close(&world);
	}
}

/* A program is killed while it fills chunks that others wait for. */
static void test_a_program_is_killed(void **state)
{
	for (unsigned i = 0; i < 6; i++) {
		struct job job = { .mode = modes[i % 2],
				   .file = 1,
				   .programs = 3,
				   .rounds = 2,
				   .in_order = i / 3,
				   .keep = i % 3 * 40,
				   .kill_ms = 2 + 7 * i,
				   .run = read_all };

		up("16M");
		expect_passes(child_team, &job);
		peer_await_none(world.address, "store_members");
		peer_await_none(world.address, "store_pinned_bytes");
		assert_true(stat_of("store_used_bytes") <= stat_of("store_capacity_bytes"));
		world_close(&world);
	}
}

/*
 * A program loses its connections, and the agent has ended its session before it is back: it has a
 * place in the store again, so that what others read is read once, and what it had kept is kept.
 */
static void child_is_cut(const void *arg)
{
	const struct job *job = arg;
	struct job cut = *job;
	char file[96], faults[300];
	const uint64_t *data;

	snprintf(file, sizeof(file), "%s/cut", world.dir);
	snprintf(faults, sizeof(faults), "do=cut&on=read&once=%s&do=delay&on=connect&ms=300", file);
	cut.faults = faults;
	data = open_file(&cut);
	keep(job, data);
	for (size_t i = 0; i < SMALL; i++) {
		if (i == SMALL / 3)
			close(open(file, O_WRONLY | O_CREAT, 0600));
		check_chunk(data, 0, i, 3);
	}
	CHECK(access(file, F_OK), "no connection was cut");
	CHECK_EQ(stats_now().reconnects, 1);
	CHECK_EQ(peer_stat_at(world.address, "store_pinned_bytes"), job->keep * CHUNK);
}

static void test_a_program_is_cut(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i], .keep = 8 };
		struct trial t = { .child = child_is_cut, .arg = &job };
		struct outcome out;

		up("64M");
		trial_run(&t, &out);
		assert_int_equal(stat_of("store_fills"), SMALL);
		world_close_noisy(&world);
		expect_exit(&out, 0);
	}
}

/*
 * The agent is killed: what is mapped stays, and what is missing comes by the next one, which has
 * no part in that store.  Beside what the agent has left each program puts as much there as a page
 * buffer of 48 chunks makes it, with what its two threads may need.
 */
static void kill_agent(const void *arg)
{
	const struct job *job = arg;

	for (int i = 0; i < LOOKS && atomic_load(ready) < job->programs; i++)
		sleep_ms(10);
	for (int i = 0; i < 3; i++) {
		sleep_ms(60 + 40 * (unsigned)i);
		world_kill_agent(&world);
		sleep_ms(20);
		world_restart_agent(&world);
	}
	sleep_ms(200);
	atomic_store(over, 1);
}

static void test_the_agent_is_killed(void **state)
{
	for (int i = 0; i < 4; i++) {
		struct job job = { .mode = modes[i % 2],
				   .file = 1,
				   .programs = 2,
				   .in_order = i / 2,
				   .keep = 24,
				   .chunks_most = 256 + 2 * (64 + 2 * 16) + 8,
				   .run = read_all };
		struct trial t = { .child = child_team, .during = kill_agent, .arg = &job };
		struct outcome out;

		up("16M");
		trial_run(&t, &out);
		world_close_noisy(&world);
		expect_exit(&out, 0);
	}
}

/*
 * Four programs want the first chunks of the file kept, and read all of it through a store of less
 * room: what they want comes from the server once, and stays until the last of them has no use
 * for it.
 */
enum { KEPT = 64 };

static void check_kept(const uint64_t *data)
{
	uint64_t before = stats_now().fetches;

	for (size_t i = 0; i < KEPT; i++)
		check_chunk(data, 1, i, 3);
	CHECK_EQ(stats_now().fetches, before); /* it was there */
}

static void press(const uint64_t *data, unsigned seed)
{
	struct dice dice = { .state = seed };

	for (size_t i = 0; i < LARGE; i++)
		check_chunk(data, 1, i, 3);
	for (size_t i = 0; i < LARGE; i++)
		check_chunk(data, 1, dice_roll(&dice) % LARGE, 3);
}

static void await_pins(uint64_t n)
{
	for (int i = 0; i < LOOKS && peer_stat_at(world.address, "store_pins") != n; i++)
		sleep_ms(10);
	CHECK_EQ(peer_stat_at(world.address, "store_pins"), n);
	CHECK_EQ(peer_stat_at(world.address, "store_pinned_bytes"), KEPT * CHUNK);
}

static void keep_and_press(const struct job *job, unsigned number)
{
	const uint64_t *data = open_file(job);

	meet(job->programs);
	keep(job, data);
	meet(2 * job->programs);
	check_kept(data);
	press(data, number);
	check_kept(data);
	CHECK_EQ(touch_signal((volatile uint64_t *)(uintptr_t)&data[5], true), SIGSEGV);
	if (number == 0)
		await_pins((uint64_t)job->programs);
	meet(3 * job->programs);
	if (number == 1)
		CHECK_EQ(advise(data, 0, KEPT, SODA_NO_CACHE), 0);
	if (number == 2)
		soda_free((void *)(uintptr_t)data);
	if (number == 3)
		_exit(0);
	if (number)
		return;
	await_pins(1);
	press(data, 9);
	check_kept(data);
	CHECK_EQ(advise(data, KEPT / 2, KEPT, SODA_STATIC_CACHE), -EBUSY);
	CHECK_EQ(advise(data, KEPT, 65, SODA_STATIC_CACHE),
		 -ENOSPC); /* half of the store has 128 */
	CHECK(strstr(soda_last_error(), "--store"), "%s", soda_last_error());
	CHECK_EQ(advise(data, KEPT, 64, SODA_STATIC_CACHE), 0);
	CHECK_EQ(advise(data, KEPT, 64, SODA_DYNAMIC_CACHE), 0);
	await_pins(1);
	check_kept(data);
}

static void test_static_range(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i],
				   .file = 1,
				   .programs = 4,
				   .keep = KEPT,
				   .run = keep_and_press };

		up("16M");
		expect_passes(child_team, &job);
		assert_in_range(stat_of("net_preload_bytes"), KEPT * CHUNK, 2 * KEPT * CHUNK);
		assert_int_equal(stat_of("store_pins_refused"), 1);
		assert_int_equal(stat_of("static_ranges"), 0);
		peer_await_none(world.address, "store_members");
		assert_int_equal(stat_of("store_pins"), 0);
		assert_int_equal(stat_of("store_pinned_bytes"), 0);
		world_close(&world);
	}
}

/*
 * What the agent reads ahead goes into the store: the first program finds most of the file there,
 * one that reads it after it finds all, and nothing comes from the server twice.
 */
static void follow(const struct job *job, unsigned number)
{
	const uint64_t *data = open_file(job);
	uint64_t asked;

	/* all have it open before one of them is done: else the server may forget it in between */
	atomic_fetch_add(ready, 1);
	for (int i = 0; i < LOOKS * 10 && atomic_load(ready) < job->programs; i++)
		sleep_ms(1);
	for (int i = 0; i < LOOKS * 10 && number == 2 && atomic_load(over) < 2; i++)
		sleep_ms(1);
	for (size_t i = 0; i < SMALL; i++)
		check_chunk(data, 0, i, 3);
	asked = stats_now().fetches + stats_now().prefetched;
	atomic_fetch_add(over, 1);
	if (number == 2)
		CHECK_EQ(asked, 0);
}

static void test_read_ahead(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i], .programs = 3, .run = follow };

		up("64M --adaptive=no");
		expect_passes(child_team, &job);
		assert_int_equal(stat_of("store_fills"), SMALL);
		assert_int_equal(stat_of("net_demand_bytes") + stat_of("net_prefetch_bytes"),
				 stat_of("store_filled_bytes"));
		assert_int_equal(peer_stat_of(world.server_address, "bytes_read"),
				 stat_of("store_filled_bytes"));
		assert_true(stat_of("store_ahead") > 0);
		assert_int_equal(stat_of("store_ahead_bytes"), stat_of("net_prefetch_bytes"));
		assert_int_equal(stat_of("store_ahead_used_bytes"), stat_of("store_ahead_bytes"));
		assert_int_equal(stat_of("store_useless"), 0);
		assert_int_equal(stat_of("cache_fills"), 0); /* nothing beside the store */
		peer_await_none(world.address, "store_members");
		world_close(&world);
	}
}

/* A store of less room than the file, and random reads: what is of no use is bounded. */
static void test_read_ahead_has_a_budget(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i],
				   .file = 1,
				   .programs = 3,
				   .rounds = 3,
				   .keep = 16,
				   .run = read_all };
		uint64_t asked;

		up("16M --prefetch-limit=budget --entry-bytes=256K");
		expect_passes(child_team, &job);
		asked = stat_of("net_demand_bytes") + stat_of("store_ahead_used_bytes");
		assert_true(stat_of("store_useless_bytes") <= asked * 3 / 100 + 8 * (256 << 10));
		/* a program that closes the file ends what is being read ahead of it, a MiB */
		assert_true(stat_of("store_fills_failed") <= 3 * ((1 << 20) / CHUNK));
		assert_true(stat_of("store_used_bytes") <= stat_of("store_capacity_bytes"));
		peer_await_none(world.address, "store_members");
		world_close(&world);
	}
}

/* A rule of the operator's keeps an object that is named so, for all its programs. */
static void child_is_ruled(const void *arg)
{
	const struct job *job = arg;
	const uint64_t *data = open_file(job);

	CHECK_EQ(soda_set_name((void *)(uintptr_t)data, "kept: all of it"), 0);
	CHECK_EQ(peer_stat_at(world.address, "store_pins"), 1);
	for (size_t i = 0; i < SMALL; i++)
		check_chunk(data, 0, i, 3);
	CHECK_EQ(stats_now().fetches, 0);
}

static void test_static_rule(void **state)
{
	struct job job = { .mode = SODA_MODE_INLINE };

	up("64M --static-rule=kept*");
	expect_passes(child_is_ruled, &job);
	assert_int_equal(stat_of("store_fills"), SMALL);
	assert_int_equal(stat_of("cache_ruled_bytes"), stat_of("store_filled_bytes"));
	assert_int_equal(stat_of("net_preload_bytes"), stat_of("store_filled_bytes"));
	assert_int_equal(stat_of("net_demand_bytes"), 0);
	world_close(&world);
}

/* What the object is to the program: as any file that is READ_ONLY, but that it cannot be pinned.
 */
static void child_uses(const void *arg)
{
	const struct job *job = arg;
	const uint64_t *data = open_file(job), *again;
	size_t bytes = words_of(job->file) * 8;

	CHECK_EQ(touch_signal((volatile uint64_t *)(uintptr_t)&data[5], true), SIGSEGV);
	CHECK_EQ(soda_advise((void *)(uintptr_t)data, bytes, SODA_PIN), -ENOTSUP);
	CHECK(strstr(soda_last_error(), "STATIC_CACHE"), "%s", soda_last_error());
	CHECK_EQ(soda_advise((void *)(uintptr_t)data, bytes, SODA_WILLNEED), 0);
	CHECK_EQ(soda_advise((void *)(uintptr_t)data, bytes, SODA_COLD), 0);
	check_chunk(data, job->file, 0, 3);
	again = soda_alloc_file(names[job->file], 0, SODA_READ_ONLY, NULL);
	CHECK(again && again != data, "%s", soda_last_error());
	for (size_t i = 0; i < chunks_of[job->file]; i++)
		check_chunk(again, job->file, i, 3);
	soda_free((void *)(uintptr_t)data);
	CHECK_EQ(touch_signal((volatile uint64_t *)(uintptr_t)&data[5], false), SIGSEGV);
	check_chunk(again, job->file, 7, 3);
	/* the addresses of an object that was shared are those of an ordinary one now */
	for (int i = 0; i < 40; i++) {
		uint64_t *fam = alloc_checked(bytes);

		CHECK_EQ(fam[9], 0);
		fam[9] = 1;
		soda_free(fam);
	}
	CHECK(stats_now().resident_bytes <= 3 << 20, "chunks of the store count in the buffer");
}

static void test_what_a_program_may_do(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i] };

		up("64M");
		expect_passes(child_uses, &job);
		assert_int_equal(stat_of("store_fills"), SMALL);
		world_close(&world);
	}
}

/*
 * Pages that are gone from the store's memory, though nobody has evicted them, come back: here a
 * program punches a hole itself.
 */
static void child_punches(const void *arg)
{
	const struct job *job = arg;
	const uint64_t *data = open_file(job);
	const uint32_t zero = 0;

	for (size_t i = 0; i < SMALL; i++)
		check_chunk(data, 0, i, 3);
	for (size_t i = 0; i < SMALL; i += 10) /* the word says that nothing is there */
		CHECK_EQ(pwrite(MAP_FD, &zero, 4, (off_t)(4096 + 4 * i)), 4);
	for (size_t i = 0; i < SMALL; i += 5)
		CHECK_EQ(fallocate(DATA_FD, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   (off_t)(i * CHUNK + 8192), 12288),
			 0);
	for (size_t i = 0; i < SMALL; i++)
		check_chunk(data, 0, i, 3);
}

static void test_holes_are_mended(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i] };

		up("64M");
		expect_passes(child_punches, &job);
		assert_int_equal(stat_of("store_fills"), SMALL);
		world_close(&world);
	}
}

/* Another file of that name: what was opened before stays what it was. */
static void child_sees_change(const void *arg)
{
	const struct job *job = arg;
	const uint64_t *data = open_file(job), *next;

	for (size_t i = 0; i < SMALL / 2; i++)
		check_chunk(data, 0, i, 3);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	next = soda_alloc_file(names[0], 0, SODA_READ_ONLY, NULL);
	CHECK(next, "%s", soda_last_error());
	for (size_t i = 0; i < SMALL; i++) {
		check_chunk(data, 0, i, 3);
		check_chunk(next, 0, i, 4);
	}
}

static void change_file(const void *arg)
{
	if (!turn_await())
		return;
	sleep_ms(20); /* another modification time, whatever the clock's grain */
	write_file(0, 4);
	turn_pass();
}

static void test_the_file_changes(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i] };
		struct trial t = { .child = child_sees_change, .during = change_file, .arg = &job };
		struct outcome out;

		up("64M");
		trial_run(&t, &out);
		assert_int_equal(stat_of("store_fills"), 2 * SMALL);
		world_close(&world);
		expect_quiet_success(&out);
	}
}

/*
 * The child of a fork has no part in the store: no descriptors of it, whatever it becomes, and the
 * content as a copy from its parent; nothing of what it does reaches the parent, another thread of
 * which reads on meanwhile.
 */
static _Atomic bool forks_end;

/* LeakSanitizer takes the test harness's memory for leaks in such a child, whose threads are gone.
 */
#ifdef __SANITIZE_ADDRESS__
#define END_IN_ORDER() _exit(0)
#else
#define END_IN_ORDER() exit(0)
#endif

static void end_child(const uint64_t *data, int how)
{
	CHECK_EQ(store_fd(DATA_NAME), -1);
	CHECK_EQ(store_fd(MAP_NAME), -1);
	check_chunk(data, 1, 5, 3);
	errno = 0;
	CHECK(!soda_alloc_file(names[0], 0, SODA_READ_ONLY, NULL), "it has fabric memory");
	CHECK_EQ(errno, ENOTSUP);
	if (how == 0)
		END_IN_ORDER();
	if (how == 1)
		kill(getpid(), SIGKILL);
	if (how == 2)
		execl("/bin/sh", "sh", "-c", LIST_DESCRIPTORS, NULL);
	_exit(how == 3 ? 0 : 98);
}

static void fork_one(const uint64_t *data, int how)
{
	int status = -1;
	pid_t pid = fork();

	CHECK(pid >= 0, "%s", strerror(errno));
	if (!pid)
		end_child(data, how);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, how == 1 ? SIGKILL : 0);
}

/* By a system call of the program's own, of which libsoda does not learn: no pages all the same. */
static void fork_silently(const uint64_t *data)
{
	int status = -1;
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (!pid)
		_exit(touch_signal((volatile uint64_t *)(uintptr_t)&data[5], false) != SIGSEGV);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static void forks_and_reads(void *arg, unsigned index)
{
	struct dice dice = { .state = 5 };

	if (index) {
		while (!atomic_load(&forks_end))
			check_chunk(arg, 1, dice_roll(&dice) % LARGE, 3);
		return;
	}
	for (int i = 0; i < 24; i++) {
		fork_one(arg, i % 4);
		fork_silently(arg);
		CHECK_EQ(system(LIST_DESCRIPTORS), 0); /* by posix_spawn(), or as that does */
	}
	atomic_store(&forks_end, true);
}

static void child_forks(const void *arg)
{
	const uint64_t *data = open_file(arg);

	check_chunk(data, 1, 0, 3);
	run_threads(2, forks_and_reads, (void *)(uintptr_t)data);
	CHECK(stats_now().store_maps > 0, "the file is not in the store");
	for (size_t i = 0; i < LARGE; i++)
		check_chunk(data, 1, i, 3);
	CHECK_EQ(memory_of(DATA_FD) <= 16 << 20, true);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_forks(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i], .file = 1 };

		up("16M");
		expect_passes(child_forks, &job);
		peer_await_none(world.address, "store_members");
		world_close(&world);
	}
}

/*
 * The server comes back with another file of that name: what is not there is an error, and what is
 * there stays.
 */
static void child_loses_the_file(const void *arg)
{
	const struct job *job = arg;
	const uint64_t *data = open_file(job);

	for (size_t i = 0; i < SMALL / 2; i++)
		check_chunk(data, 0, i, 3);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	for (size_t i = SMALL - 3; i < SMALL; i++) /* no READ ahead was on its way */
		CHECK_EQ(touch_signal((volatile uint64_t *)(uintptr_t)&data[i * WORDS], false),
			 SIGBUS);
	for (size_t i = 0; i < SMALL / 2; i++)
		check_chunk(data, 0, i, 3);
	sleep_ms(400); /* longer than a page fails that may be had again */
	CHECK_EQ(touch_signal((volatile uint64_t *)(uintptr_t)&data[(SMALL - 1) * WORDS], false),
		 SIGBUS);
	soda_free((void *)(uintptr_t)data);
}

static void replace_file(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&world);
	sleep_ms(20); /* another modification time, whatever the clock's grain */
	write_file(0, 4);
	world_restart(&world);
	turn_pass();
}

static void test_the_server_has_another_file(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i] };
		struct trial t = { .child = child_loses_the_file,
				   .during = replace_file,
				   .arg = &job };
		struct outcome out;

		up("64M");
		trial_run(&t, &out);
		world_close_noisy(&world);
		expect_exit(&out, 0);
	}
}

/*
 * The server comes back with the same file: to the agent it is another one, so the program's map is
 * that of a file which nobody reads any more. What is missing it puts there itself, and says so.
 */
static void child_goes_on(const void *arg)
{
	const struct job *job = arg;
	const uint64_t *data;

	setenv("SODA_LOG", "info", 1);
	data = open_file(job);
	for (size_t i = 0; i < SMALL / 2; i++)
		check_chunk(data, 0, i, 3);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	for (size_t i = 0; i < SMALL; i++)
		check_chunk(data, 0, i, 3);
	CHECK(stats_now().bytes_fetched >= SMALL / 3 * CHUNK, "%llu bytes came as data",
	      (unsigned long long)stats_now().bytes_fetched);
	soda_free((void *)(uintptr_t)data);
}

static void restart_server(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&world);
	world_restart(&world);
	turn_pass();
}

static void test_the_server_has_the_same_file(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i] };
		struct trial t = { .child = child_goes_on, .during = restart_server, .arg = &job };
		struct outcome out;

		up("64M");
		trial_run(&t, &out);
		world_close_noisy(&world);
		expect_exit(&out, 0);
		expect_says(&out, "the agent does not keep all of it in its store any more");
	}
}

/* Another user's programs have a store of their own: what one has read is not there for them. */
static void read_as_users(const struct job *job, unsigned number)
{
	const uid_t nobody = 65534;

	if (number % 2)
		CHECK(!setgroups(0, NULL) && !setgid(nobody) && !setuid(nobody), "%s",
		      strerror(errno));
	read_all(job, number);
}

static void test_users_are_apart(void **state)
{
	struct job job = {
		.mode = SODA_MODE_INLINE, .programs = 4, .rounds = 1, .run = read_as_users
	};

	if (geteuid()) {
		puts("SKIP: only root can become another user");
		skip();
	}
	up("64M --allow-other");
	assert_return_code(chmod(world.dir, 0755), errno);
	assert_return_code(chmod(strchr(world.address, '/') + 2, 0777), errno);
	expect_passes(child_team, &job);
	assert_int_equal(stat_of("store_objects"), 2);
	assert_int_equal(stat_of("store_fills"), 2 * SMALL);
	world_close(&world);
}

/*
 * Programs under `soda run` that use files of libsoda, too: these are in the store, beside the
 * large blocks and mappings, which are each program's own.  This program itself is what runs.
 */
static char self[256];

static void fill_own(uint64_t *own, size_t words, uint64_t round)
{
	for (size_t i = 0; i < words; i++)
		own[i] = mix(i, round);
}

static int read_as_run(void)
{
	const size_t words = 1 << 20; /* more than the page buffer, with the file */
	uint64_t *own = malloc(words * 8);
	const uint64_t *data;
	size_t bytes;

	CHECK(own, "no memory");
	fill_own(own, words, 7);
	data = soda_alloc_file(names[0], 0, SODA_READ_ONLY, &bytes);
	CHECK(data, "%s", soda_last_error());
	for (size_t i = 0; i < SMALL; i++)
		check_chunk(data, 0, i, 3);
	for (size_t i = 0; i < words; i++)
		CHECK(own[i] == mix(i, 7), "word %zu", i);
	fork_one(data, 2);
	fork_silently(data);
	CHECK(stats_now().store_maps > 0, "the file is not in the store");
	CHECK(stats_now().zero_fills > 0, "malloc is not in fabric memory");
	return 0;
}

static void run_run(const struct job *job, unsigned number)
{
	setenv("SODA_DPU", world.address, 1);
	setenv("SODA_MODE", job->mode == SODA_MODE_INLINE ? "inline" : "handler", 1);
	execl(build_path("tools/soda/soda"), "soda", "run", "--mem", "4M", "--", self, "reader",
	      NULL);
	_exit(97);
}

static void test_soda_run(void **state)
{
	if (access(build_path("src/run/libsoda-run.so"), R_OK)) {
		puts("SKIP: this build has no soda run");
		skip();
	}
	for (int i = 0; i < 2; i++) {
		struct job job = { .mode = modes[i], .programs = 2, .run = run_run };

		up("64M");
		expect_passes(child_team, &job);
		assert_int_equal(stat_of("store_objects"), 1);
		assert_int_equal(stat_of("store_fills"), (words_of(0) * 8 + 16383) / 16384);
		peer_await_none(world.address, "store_members");
		world_close(&world);
	}
}

/* A program on tcp has copies of its own, beside those that share. */
static void child_alone(const void *arg)
{
	const struct job *job = arg;
	const uint64_t *data = open_file(job);

	for (size_t i = 0; i < SMALL; i++)
		check_chunk(data, 0, i, 3);
	CHECK_EQ(stats_now().store_maps, 0);
}

static void test_not_by_tcp(void **state)
{
	struct job job = { .mode = SODA_MODE_INLINE };

	up("64M");
	world_close(&world);
	unsetenv("SODA_TEST_AGENT_SHM");
	world_open(&world, WORLD_TCP, NULL);
	write_file(0, 3);
	expect_passes(child_alone, &job);
	assert_int_equal(stat_of("store_fills"), 0);
	assert_int_equal(stat_of("store_refused"), 0);
	assert_int_equal(stat_of("calls_refused"), 0);
	world_close(&world);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_copy),
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_a_program_is_killed),
		cmocka_unit_test(test_a_program_is_cut),
		cmocka_unit_test(test_the_agent_is_killed),
		cmocka_unit_test(test_static_range),
		cmocka_unit_test(test_static_rule),
		cmocka_unit_test(test_read_ahead),
		cmocka_unit_test(test_read_ahead_has_a_budget),
		cmocka_unit_test(test_what_a_program_may_do),
		cmocka_unit_test(test_holes_are_mended),
		cmocka_unit_test(test_the_file_changes),
		cmocka_unit_test(test_the_server_has_another_file),
		cmocka_unit_test(test_the_server_has_the_same_file),
		cmocka_unit_test(test_forks),
		cmocka_unit_test(test_soda_run),
		cmocka_unit_test(test_users_are_apart),
		cmocka_unit_test(test_not_by_tcp),
	};

	if (argc > 1 && !strcmp(argv[1], "reader"))
		return read_as_run();
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	over = shared_memory(sizeof(*over));
	ready = shared_memory(sizeof(*ready));
	return cmocka_run_group_tests_name("dpu_store", tests, NULL, NULL);
}
