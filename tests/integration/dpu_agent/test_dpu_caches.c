/* SPDX-License-Identifier: BSD-3-Clause */
/* The agent's caches with real programs: what is read right, and from where. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"

enum { CHUNK = 65536, WORDS = CHUNK / 8, CHUNKS = 128, BYTES = CHUNK * CHUNKS };

/* Caching for all, of eight entries of four chunks: smaller than what is read. */
#define SMALL "--adaptive=no --cache-bytes=2M --entry-bytes=256K"
/* All that is read fits. */
#define LARGE "--adaptive=no --cache-bytes=64M"

static struct world world;

static void up(const char *options)
{
	setenv("SODA_TEST_AGENT", options, 1);
	world_open(&world, WORLD_TCP, NULL);
}

static uint64_t stat_of(const char *name)
{
	return peer_stat_of(world.address, name);
}

static void begin(void)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.buffer = "2M";
	cfg.threads = 2;
	start(&cfg);
}

static uint64_t *filled(void)
{
	uint64_t *fam;

	begin();
	fam = alloc_checked(BYTES);
	for (size_t i = 0; i < CHUNKS * WORDS; i++)
		fam[i] = mix(i, 0);
	CHECK_EQ(soda_advise(fam, BYTES, SODA_COLD), 0);
	return fam;
}

static void check_all(const uint64_t *fam, uint64_t round)
{
	for (size_t i = 0; i < CHUNKS * WORDS; i++)
		CHECK(fam[i] == mix(i, round), "word %zu: %llx", i, (unsigned long long)fam[i]);
}

/* Reads and stores in any order: what is read is what was stored last. */
static void child_stores(const void *arg)
{
	struct dice dice = { *(const uint64_t *)arg };
	static uint64_t last[CHUNKS];
	uint64_t *fam = filled();

	for (int i = 0; i < 20000; i++) {
		size_t chunk = dice_roll(&dice) % CHUNKS, word = chunk * WORDS + 7;

		if (dice_roll(&dice) % 3 == 0)
			fam[word] = last[chunk] = mix(i, 1);
		else
			CHECK(fam[word] == (last[chunk] ? last[chunk] : mix(word, 0)),
			      "chunk %zu: %llx", chunk, (unsigned long long)fam[word]);
		if (dice_roll(&dice) % 500 == 0)
			CHECK_EQ(soda_sync(NULL, 0), 0);
	}
	for (size_t chunk = 0; chunk < CHUNKS; chunk++) {
		size_t word = chunk * WORDS + 7;

		CHECK_EQ(fam[word], last[chunk] ? last[chunk] : mix(word, 0));
		CHECK_EQ(fam[word + 1], mix(word + 1, 0));
	}
}

static void test_stores_are_never_hidden(void **state)
{
	static const char *const options[] = { SMALL, LARGE, SMALL " --policy=random",
					       LARGE " --async=no",
					       SMALL " --async=no --aggregate=no" };

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		uint64_t seed = 0x5eed + i;

		up(options[i]);
		print_message("agent %s, seed %llu\n", options[i], (unsigned long long)seed);
		expect_passes(child_stores, &seed);
		assert_true(stat_of("cache_hits") > 0);
		assert_true(stat_of("cache_writes") > 0);
		peer_await_none(world.address, "cache_entries"); /* gone with their client */
		world_close(&world);
	}
}

static void child_file(const void *arg)
{
	size_t bytes;
	uint64_t *fam;

	begin();
	fam = soda_alloc_file("data", 0, SODA_READ_ONLY, &bytes);
	CHECK(fam, "%s", soda_last_error());
	CHECK_EQ(bytes, BYTES);
	check_all(fam, 3);
}

/* The second process finds what the first has read, as long as the server has the file loaded. */
static void test_processes_share_a_file(void **state)
{
	uint64_t *data = malloc(BYTES), before;
	struct soda_mr mr;
	struct peer keeps;

	for (size_t i = 0; i < CHUNKS * WORDS; i++)
		data[i] = mix(i, 3);
	up(LARGE);
	world_write_file(&world, "data", data, BYTES);
	assert_int_equal(peer_join(&keeps, world.address), 0);
	assert_int_equal(peer_open(&keeps, 1, "data", 0, SODA_READ_ONLY, &mr, NULL), 0);
	expect_passes(child_file, NULL);
	before = stat_of("net_demand_bytes") + stat_of("net_prefetch_bytes");
	assert_true(before >= BYTES);
	expect_passes(child_file, NULL);
	assert_true(stat_of("net_demand_bytes") + stat_of("net_prefetch_bytes") - before <
		    BYTES / 20);
	peer_leave(&keeps);
	world_close(&world);
	free(data);
}

static void child_scan(const void *arg)
{
	uint64_t *fam = filled();

	if (arg)
		CHECK_EQ(soda_advise(fam, BYTES, *(const int *)arg), 0);
	check_all(fam, 0);
	check_all(fam, 0);
}

static void test_no_cache_is_heeded(void **state)
{
	const int advice = SODA_NO_CACHE;

	up(SMALL);
	expect_passes(child_scan, &advice);
	assert_int_equal(stat_of("cache_hits") + stat_of("cache_late_hits"), 0);
	assert_int_equal(stat_of("net_prefetch_bytes"), 0);
	expect_passes(child_scan, NULL);
	assert_true(stat_of("cache_hits") + stat_of("cache_late_hits") > 0);
	world_close(&world);
}

static void test_dynamic_cache_is_heeded(void **state)
{
	const int advice = SODA_DYNAMIC_CACHE;

	/* The switch would not turn it on for a server that is as near as the agent. */
	up("--cache-bytes=2M --entry-bytes=256K");
	expect_passes(child_scan, &advice);
	assert_true(stat_of("cache_hits") + stat_of("cache_late_hits") > CHUNKS / 2);
	world_close(&world);
}

/*
 * What a graph application asks for: its vertices in order, and for each of them lists of
 * neighbours here and there, some of which are long enough to look like streams.  Two programs on
 * the same files, and the cache holds a twelfth of them.
 */

enum { VERTEX_BYTES = 8 << 20, EDGE_BYTES = 48 << 20, STEPS = 1024, GRAPH_ENTRY = 256 << 10 };

#define GRAPH_CACHE "--cache-bytes=4M --entry-bytes=256K "

static const uint64_t *graph_part(const char *name)
{
	const int advice =
		SODA_DYNAMIC_CACHE; /* whatever the model says of a server that is near */
	size_t bytes;
	uint64_t *part = soda_alloc_file(name, 0, SODA_READ_ONLY, &bytes);

	CHECK(part, "%s", soda_last_error());
	CHECK_EQ(soda_advise(part, bytes, advice), 0);
	return part;
}

static void child_graph(const void *arg)
{
	struct dice dice = { *(const uint64_t *)arg };
	const uint64_t *vertices, *edges;

	begin();
	vertices = graph_part("vertices");
	edges = graph_part("edges");
	for (size_t i = 0; i < STEPS; i++) {
		size_t vertex = i * (VERTEX_BYTES / STEPS / 8);

		CHECK_EQ(vertices[vertex], mix(vertex, 5));
		for (int list = 0; list < 2; list++) {
			size_t chunk = dice_roll(&dice) % (EDGE_BYTES / CHUNK - 3);

			for (size_t k = 0; k <= dice_roll(&dice) % 3; k++)
				CHECK_EQ(edges[(chunk + k) * WORDS + 9],
					 mix((chunk + k) * WORDS + 9, 6));
		}
	}
}

static void second_program(const void *arg)
{
	const uint64_t seed = *(const uint64_t *)arg + 1;
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		child_graph(&seed);
		exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void write_part(const char *name, size_t bytes, uint64_t round)
{
	uint64_t *data = malloc(bytes);

	assert_non_null(data);
	for (size_t i = 0; i < bytes / 8; i++)
		data[i] = mix(i, round);
	world_write_file(&world, name, data, bytes);
	free(data);
}

/*
 * The server's account, but for what was on its way ahead when the programs ended: a READ that the
 * agent has counted may end with its connection, and one more may have begun meanwhile.
 */
static void check_sent(uint64_t counted)
{
	const uint64_t under_way = 2 * GRAPH_ENTRY; /* the prefetcher has two threads */
	uint64_t sent = 0;
	struct peer tool;

	assert_int_equal(peer_ask(&tool, world.server_address), 0);
	for (int i = 0; i < LOOKS && sent + under_way < counted; i++, usleep(10000))
		sent = peer_stat(&tool, "bytes_read");
	peer_leave(&tool);
	assert_in_range(sent, counted - under_way, counted + under_way);
}

/* What the agent has asked the server for, in what programs have asked the agent for. */
static double graph_traffic(const char *options, uint64_t *ahead_p, uint64_t *unpaid_p)
{
	uint64_t seed = 0x5eed, asked, sent, allowed;
	const struct trial t = { child_graph, second_program, &seed, 0 };
	struct outcome out;

	up(options);
	write_part("vertices", VERTEX_BYTES, 5);
	write_part("edges", EDGE_BYTES, 6);
	trial_run(&t, &out);
	expect_quiet_success(&out);
	asked = stat_of("client_read_bytes");
	*ahead_p = stat_of("net_prefetch_bytes");
	*unpaid_p = stat_of("cache_prefetches_unpaid");
	sent = stat_of("net_demand_bytes") + *ahead_p;
	check_sent(sent);
	world_close(&world);
	/* the start-up allowance: SODA_BUDGET_POOL entries */
	allowed = 8ull * GRAPH_ENTRY;
	print_message("agent %s: %.3f of what was asked, %.3f with the allowance; %llu MiB ahead, "
		      "%llu fetches were not paid\n",
		      options, (double)sent / (double)asked,
		      ((double)sent - (double)allowed) / (double)asked,
		      (unsigned long long)*ahead_p >> 20, (unsigned long long)*unpaid_p);
	return ((double)sent - (double)allowed) / (double)asked;
}

static void test_traffic_of_a_graph(void **state)
{
	static const char *const bounded[] = {
		GRAPH_CACHE,
		GRAPH_CACHE "--prefetch-limit=budget",
		GRAPH_CACHE "--prefetch-limit=budget --policy=random",
	};
	uint64_t ahead, unpaid;

	for (size_t i = 0; i < sizeof(bounded) / sizeof(bounded[0]); i++) {
		assert_true(graph_traffic(bounded[i], &ahead, &unpaid) <= 1.03);
		assert_true(ahead > 0 && unpaid > 0);
	}
	/* that this is a case for it at all */
	assert_true(graph_traffic(GRAPH_CACHE "--prefetch-limit=model --policy=random", &ahead,
				  &unpaid) > 1.2);
	assert_int_equal(unpaid, 0);
}

/* The static cache. */

static void child_static(const void *arg)
{
	uint64_t *fam = filled(), fetched;

	/* Nothing is fetched ahead, over the range's end. */
	CHECK_EQ(soda_advise(fam, BYTES, SODA_RANDOM), 0);
	fam[5] = mix(5, 9); /* dirty: it is written back first */
	CHECK_EQ(soda_advise(fam, BYTES / 2, SODA_STATIC_CACHE), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	CHECK_EQ(soda_advise(fam, BYTES, SODA_COLD), 0);
	fetched = stats_now().bytes_fetched;
	CHECK_EQ(fam[5], mix(5, 9));
	for (size_t i = 6; i < CHUNKS / 2 * WORDS; i++)
		CHECK(fam[i] == mix(i, 0), "word %zu: %llx", i, (unsigned long long)fam[i]);
	CHECK(stats_now().bytes_fetched > fetched, "nothing was fetched");
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	/* Frozen: also where it is resident. The other half is as before. */
	CHECK_EQ(touch_signal(&fam[5], true), SIGSEGV);
	CHECK_EQ(touch_signal(&fam[CHUNKS / 2 * WORDS - 1], true), SIGSEGV);
	CHECK_EQ(touch_signal(&fam[CHUNKS / 2 * WORDS], true), 0);
	/* A scan runs ahead beyond its end, and into it. */
	for (size_t i = CHUNKS / 4; i < CHUNKS; i++)
		CHECK_EQ(fam[i * WORDS + 1], mix(i * WORDS + 1, 0));
	for (size_t i = CHUNKS; i-- > CHUNKS / 4;)
		CHECK_EQ(fam[i * WORDS + 1], mix(i * WORDS + 1, 0));
	CHECK_EQ(soda_advise(fam, CHUNK, SODA_DISCARD), -EACCES);
	CHECK_EQ(soda_advise(fam, CHUNK, SODA_NO_CACHE), -EBUSY);
	CHECK_EQ(soda_advise(fam, BYTES / 2, SODA_STATIC_CACHE), 0); /* again: nothing to do */
	CHECK_EQ(soda_advise(fam + WORDS, BYTES / 2, SODA_STATIC_CACHE), -EBUSY);
	CHECK_EQ(soda_advise(fam, BYTES, SODA_NO_CACHE), 0);
	for (size_t i = 0; i < CHUNKS * WORDS; i += WORDS)
		fam[i] = mix(i, 4);
	CHECK_EQ(soda_advise(fam, BYTES, SODA_COLD), 0);
	for (size_t i = 0; i < CHUNKS * WORDS; i += WORDS)
		CHECK_EQ(fam[i], mix(i, 4));
	CHECK_EQ(fam[5], mix(5, 9));
}

static uint64_t demand_before, reads_before;

static void during_static(const void *arg)
{
	if (!turn_await())
		return;
	assert_int_equal(stat_of("static_used_bytes"), BYTES / 2);
	assert_int_equal(stat_of("static_loaded_bytes"), BYTES / 2);
	assert_int_equal(stat_of("net_preload_bytes"), BYTES / 2);
	demand_before = stat_of("net_demand_bytes");
	reads_before = stat_of("client_reads");
	turn_pass();
	if (!turn_await())
		return;
	/* None of it came from the server; on shared memory the agent was not even asked. */
	assert_int_equal(stat_of("net_demand_bytes"), demand_before);
	if (arg)
		assert_int_equal(stat_of("client_reads"), reads_before);
	else
		assert_true(stat_of("client_reads") >= reads_before + CHUNKS / 2);
	turn_pass();
}

static void test_static_range(void **state)
{
	for (int shm = 0; shm < 2; shm++) {
		const struct trial t = { .child = child_static,
					 .during = during_static,
					 .arg = shm ? &world : NULL };
		struct outcome out;

		if (shm)
			setenv("SODA_TEST_AGENT_SHM", "1", 1);
		up("--dynamic=no");
		unsetenv("SODA_TEST_AGENT_SHM");
		trial_run(&t, &out);
		expect_quiet_success(&out);
		peer_await_none(world.address, "static_used_bytes");
		world_close(&world);
	}
}

static void child_too_much(const void *arg)
{
	uint64_t *fam = filled();

	CHECK_EQ(soda_advise(fam, BYTES, SODA_STATIC_CACHE), -ENOSPC);
	CHECK(strstr(soda_last_error(), "8 MiB wanted, but only 4 MiB of 4 MiB"), "%s",
	      soda_last_error());
	fam[0] = 1; /* nothing is frozen */
	CHECK_EQ(soda_advise(fam, BYTES / 2, SODA_STATIC_CACHE), 0);
	CHECK_EQ(fam[0], 1);
}

static void test_static_over_capacity(void **state)
{
	up("--static-bytes=4M");
	expect_passes(child_too_much, NULL);
	assert_int_equal(stat_of("static_refused"), 1);
	peer_await_none(world.address, "static_used_bytes");
	world_close(&world);
	up("--static=no");
	world_close(&world);
}

static void child_rule(const void *arg)
{
	uint64_t *fam = filled();

	CHECK_EQ(soda_set_name(fam, "ranks"), 0);
	fam[0] = 1;
	CHECK_EQ(soda_set_name(fam, "edges of g"), 0);
	CHECK_EQ(touch_signal(&fam[1], true), SIGSEGV);
	CHECK_EQ(fam[0], 1);
	for (size_t i = 1; i < CHUNKS * WORDS; i++)
		CHECK_EQ(fam[i], mix(i, 0));
}

static void child_asks(const void *arg)
{
	uint64_t *fam = filled();

	CHECK_EQ(soda_advise(fam, BYTES / 2, SODA_STATIC_CACHE), 0);
	check_all(fam, 0);
}

static void test_rules(void **state)
{
	up("--static-rule=edges*,x --dynamic=no");
	expect_passes(child_rule, NULL);
	assert_int_equal(stat_of("static_loaded_bytes"), BYTES);
	world_close(&world);
	/*
	 * No program has asked for that: it costs the pool of what is fetched ahead.  What the
	 * program then reads of it makes up for what the pool owes, not for what it had.
	 */
	up("--static-rule=edges*,x --entry-bytes=64K");
	expect_passes(child_rule, NULL);
	assert_int_equal(stat_of("cache_ruled_bytes"), BYTES);
	assert_true(stat_of("cache_budget_pool_bytes") < 8 * 65536);
	assert_true(stat_of("cache_budget_owed_bytes") < BYTES / 2);
	world_close(&world);
	up("--entry-bytes=64K");
	expect_passes(child_asks, NULL);
	assert_int_equal(stat_of("static_loaded_bytes"), BYTES / 2);
	assert_int_equal(stat_of("cache_ruled_bytes"), 0);
	assert_int_equal(stat_of("cache_budget_owed_bytes"), 0);
	world_close(&world);
}

/*
 * The agent's memory, mapped here, is the agent's: what a program has read of it must not come to
 * count as its own, which its page buffer bounds.
 */
static void child_mapped(const void *arg)
{
	enum { LARGE_BYTES = 64 << 20, MOST = 8 << 20 };
	size_t words = LARGE_BYTES / 8, peak = 0;
	uint64_t *fam;

	begin();
	fam = alloc_checked(LARGE_BYTES);
	for (size_t i = 0; i < words; i += 512)
		fam[i] = mix(i, 0);
	CHECK_EQ(soda_advise(fam, LARGE_BYTES, SODA_STATIC_CACHE), 0);
	for (size_t i = 0; i < words; i += 512) {
		CHECK_EQ(fam[i], mix(i, 0));
		if (i % (words / 32) == 0) {
			size_t now = smaps_mapped(getpid(), "memfd:soda-static");

			peak = now > peak ? now : peak;
		}
	}
	CHECK(peak > 0, "nothing of the static cache was mapped");
	CHECK(peak <= MOST, "%zu bytes of the static cache mapped", peak);
}

static void test_static_is_let_go(void **state)
{
	setenv("SODA_TEST_AGENT_SHM", "1", 1);
	up("--dynamic=no");
	expect_passes(child_mapped, NULL);
	unsetenv("SODA_TEST_AGENT_SHM");
	world_close(&world);
}

/* A static range outlives its agent: the next one loads it again. */
static void child_restart(const void *arg)
{
	uint64_t *fam = filled();

	CHECK_EQ(soda_sync(fam, BYTES), 0); /* what the agent has not brought there dies with it */
	CHECK_EQ(soda_advise(fam, BYTES / 2, SODA_STATIC_CACHE), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	check_all(fam, 0);
	CHECK_EQ(touch_signal(&fam[5], true), SIGSEGV);
	CHECK_EQ(touch_signal(&fam[BYTES / 8 - 1], true), 0);
}

static void during_restart(const void *arg)
{
	if (!turn_await())
		return;
	world_kill_agent(&world);
	world_restart_agent(&world);
	for (int i = 0; i < LOOKS && stat_of("static_loaded_bytes") < BYTES / 2; i++)
		usleep(10000);
	assert_int_equal(stat_of("static_loaded_bytes"), BYTES / 2);
	turn_pass();
}

static void test_static_after_a_restart(void **state)
{
	const struct trial t = { .child = child_restart, .during = during_restart };
	struct outcome out;

	up("--dynamic=no");
	trial_run(&t, &out);
	expect_exit(&out, 0);
	world_close_noisy(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stores_are_never_hidden),
		cmocka_unit_test(test_processes_share_a_file),
		cmocka_unit_test(test_no_cache_is_heeded),
		cmocka_unit_test(test_dynamic_cache_is_heeded),
		cmocka_unit_test(test_traffic_of_a_graph),
		cmocka_unit_test(test_static_range),
		cmocka_unit_test(test_static_over_capacity),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_static_is_let_go),
		cmocka_unit_test(test_static_after_a_restart),
	};

	return cmocka_run_group_tests_name("dpu caches", tests, NULL, NULL);
}
