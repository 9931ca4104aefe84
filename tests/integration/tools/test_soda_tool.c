/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program `soda` from outside: what it prints, what it refuses, how it ends.
 * The benchmark runs small here: its results' form is checked, not its speed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool.h"

#define RUN(...)                                                                                   \
	assert_int_equal(program_run(SODA, (const char *const[]){ __VA_ARGS__, NULL }, &run), 0)

/* One memory under test: every field there, and no more resident than allowed. */
static void check_side(const json_t *side, uint64_t buffer, uint64_t chunk)
{
	static const char *const counts[] = { "faults", "local_refaults", "prefetched",
					      "prefetch_useless", "metadata_bytes" };
	static const char *const rates[] = {
		"gb_per_s",	    "gb_per_s_min",	"gb_per_s_max",	       "touched_gb_per_s",
		"us_per_fault_p50", "us_per_fault_p99", "cpu_s_per_gb_client", "seconds"
	};

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		count(side, counts[i]);
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		positive(side, rates[i]);
	assert_true(json_is_real(json_object_get(side, "cpu_s_per_gb_server")));
	assert_true(count(side, "bytes_fetched") >= chunk);
	assert_in_range(count(side, "resident_peak_bytes"), chunk, buffer);
}

static void check_fault_json(const char *pattern, bool writes)
{
	const uint64_t size = 16u << 20, chunk = 65536;
	json_t *out = answer();
	const json_t *floor = json_object_get(out, "floor");

	assert_string_equal(json_string_value(json_object_get(out, "pattern")), pattern);
	assert_int_equal(count(out, "threads"), 1);
	assert_int_equal(count(out, "size"), size);
	assert_int_equal(count(out, "chunk"), chunk);
	uint64_t buffer = count(out, "buffer");
	assert_true(buffer <= size / 3);
	assert_non_null(floor);
	check_side(out, buffer, chunk);
	check_side(floor, buffer, chunk);
	positive(out, "ratio_gb_per_s");
	positive(out, "ratio_cpu");
	assert_true((count(out, "bytes_written_back") > 0) == writes);
	assert_true((count(floor, "bytes_written_back") > 0) == writes);
	json_decref(out);
}

static void test_fault_seq(void **state)
{
	RUN("bench", "fault", "seq", "--size", "16M", "--passes", "1", "--rounds", "1", "--floor",
	    "--json");
	check_fault_json("seq", false);
	json_t *out = answer();

	/* FIFO keeps nothing of a sequential pass */
	assert_int_equal(count(json_object_get(out, "floor"), "fetches"), 256);
	json_decref(out);
}

static void test_fault_rand(void **state)
{
	RUN("bench", "fault", "--pattern", "rand", "--size", "16M", "--passes", "1", "--rounds",
	    "1", "--floor", "--json");
	check_fault_json("rand", false);
}

static void test_fault_rmw(void **state)
{
	RUN("bench", "fault", "rmw", "--size", "16M", "--passes", "1", "--rounds", "1", "--floor",
	    "--json");
	check_fault_json("rmw", true);
}

static void test_fault_zipf(void **state)
{
	RUN("bench", "fault", "zipf", "--size", "16M", "--passes", "1", "--rounds", "1", "--floor",
	    "--json");
	check_fault_json("zipf", false);
}

/* Threads, an unaligned end, every word; seq touches what it says. */
static void test_fault_threads_and_touch(void **state)
{
	RUN("bench", "fault", "seq", "--threads", "3", "--touch", "all", "--size", "10000003",
	    "--chunk", "16K", "--buffer", "1/2", "--rounds", "1", "--floor", "--json");
	json_t *out = answer();

	assert_int_equal(count(out, "size"), 10000000);
	/* Threads do not pass in step, so a pass may find what the one before it left: half at
	 * most. */
	assert_in_range(count(json_object_get(out, "floor"), "fetches"), 611 - 611 / 2, 611);
	json_decref(out);
}

static void test_fault_shm(void **state)
{
	RUN("bench", "fault", "rmw", "--transport", "shm", "--size", "16M", "--rounds", "1",
	    "--floor", "--json");
	json_t *out = answer();

	assert_string_equal(json_string_value(json_object_get(out, "transport")), "shm");
	json_decref(out);
}

static void test_fault_hot_and_alternate(void **state)
{
	RUN("bench", "fault", "hot", "--size", "16M", "--rounds", "1", "--floor", "--json");
	check_fault_json("hot", false);
	RUN("bench", "fault", "alternate", "--size", "16M", "--rounds", "1", "--floor", "--json");
	check_fault_json("alternate", false);
}

/* What one run recorded, another one replays: a scan's misses are a scan. */
static void test_fault_record_and_replay(void **state)
{
	char dir[] = "/tmp/soda-test-bench-XXXXXX", path[64], pattern[80];

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/trace", dir);
	snprintf(pattern, sizeof(pattern), "trace:%s", path);
	RUN("bench", "fault", "seq", "--size", "8M", "--evict", "fifo", "--prefetch", "off",
	    "--rounds", "1", "--record", path, "--json");
	json_decref(answer());
	RUN("bench", "fault", pattern, "--evict", "fifo", "--prefetch", "off", "--rounds", "1",
	    "--json");
	json_t *out = answer();

	assert_string_equal(json_string_value(json_object_get(out, "pattern")), pattern);
	assert_int_equal(count(out, "size"), 8u << 20);
	/* The filling, its stores, a warm pass and a measured one: three scans, but for what a
	 * write-back on the way keeps resident. */
	assert_in_range(count(out, "fetches"), 2 * 128, 3 * 128);
	assert_true(count(out, "bytes_written_back") > 0);
	json_decref(out);
	RUN("bench", "fault", pattern, "--floor");
	refused(2, "--floor");
	RUN("bench", "fault", pattern, "--chunk", "5000"); /* nothing is measured with it */
	refused(2, "power of two");
	RUN("bench", "fault", "--record", path);
	refused(1, "File exists");
	unlink(path);
	RUN("bench", "fault", pattern);
	refused(2, "No such file");
	rmdir(dir);
}

static void test_fault_table(void **state)
{
	RUN("bench", "fault", "--size", "8M", "--rounds", "1");
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "GB/s fetched"));
	assert_null(strstr(run.out, "floor"));
}

static void test_start(void **state)
{
	RUN("bench", "start", "--runs", "3", "--json");
	json_t *out = answer();

	positive(out, "ms_first_touch");
	positive(out, "ms_first_fetch");
	json_decref(out);
}

static void test_transport(void **state)
{
	RUN("bench", "transport", "--sizes", "4096,65536,131072", "--depths", "1,4", "--time",
	    "20ms", "--numa", "off", "--rounds", "2", "--json");
	json_t *out = answer(), *row;
	size_t i, deep = 0, sends = 0;

	/* tcp and shm: READ and WRITE of three sizes, SEND of two */
	assert_int_equal(json_array_size(out), 2 * 16);
	json_array_foreach(out, i, row)
	{
		positive(row, "gb_a_second");
		assert_true(count(row, "requests") >= count(row, "depth"));
		assert_null(json_object_get(row, "server_node"));
		deep += count(row, "depth") == 4;
		if (strcmp(json_string_value(json_object_get(row, "request")), "SEND"))
			continue;
		sends++;
		assert_true(count(row, "bytes") <= 65536);
		if (count(row, "depth") == 1)
			positive(row, "median_us");
	}
	assert_int_equal(deep, 16);
	assert_int_equal(sends, 8);
	json_decref(out);
	RUN("bench", "transport", "--numa", "1023");
	refused(2, "1023");
	RUN("bench", "transport", "--sizes", "100");
	refused(2, "whole pages");
	RUN("bench", "transport", "--depths", "0");
	refused(2, "1 to 256");
	RUN("bench", "transport", "--listen", "udp://127.0.0.1:0");
	assert_int_equal(run.status, 1);
}

/* Servers that are there already, and stay as they were. */
static void test_transport_elsewhere(void **state)
{
	struct server servers[2];
	char both[sizeof(servers[0].address) * 2];
	json_t *out, *row;
	size_t i;

	for (i = 0; i < 2; i++)
		assert_int_equal(SERVER_START(&servers[i], "--capacity", "128M"), 0);
	snprintf(both, sizeof(both), "%s,%s", servers[0].address, servers[1].address);
	RUN("bench", "transport", "--server", both, "--sizes", "4096", "--depths", "2", "--time",
	    "10ms", "--json");
	out = answer();
	assert_int_equal(json_array_size(out), 6);
	json_array_foreach(out, i, row)
	{
		positive(row, "gb_a_second");
		assert_null(json_object_get(row, "server_node"));
	}
	json_decref(out);
	for (i = 0; i < 2; i++) {
		RUN("stat", servers[i].address, "--json");
		out = answer();
		assert_int_equal(count(out, "used_bytes"), 0);
		json_decref(out);
		assert_int_equal(server_stop(&servers[i]), 0);
		server_forget(&servers[i]);
	}
	RUN("bench", "transport", "--server", servers[0].address, "--json");
	refused(1, servers[0].address);
	RUN("bench", "transport", "--server", "tcp://127.0.0.1:1", "--listen", "tcp://127.0.0.1:0");
	refused(2, "one of them");
	RUN("bench", "transport", "--server", "tcp://127.0.0.1:1", "--numa", "0");
	refused(2, "--numa");
	RUN("bench", "transport", "--server", ",");
	refused(2, "--server: addresses");
}

/* Each pair of nodes: here at least the one with itself. */
static void test_transport_nodes(void **state)
{
	json_t *out, *row;
	size_t i, placed = 0;

	if (access("/sys/devices/system/node/node0", F_OK)) {
		print_message("SKIP: there is no NUMA here\n");
		skip();
	}
	RUN("bench", "transport", "--sizes", "4096", "--depths", "1", "--time", "10ms", "--listen",
	    "tcp://127.0.0.1:0", "--numa", "0", "--json");
	out = answer();
	assert_int_equal(json_array_size(out), 6);
	json_array_foreach(out, i, row)
	{
		if (!json_object_get(row, "server_node"))
			continue;
		placed++;
		assert_int_equal(count(row, "client_node"), 0);
		assert_int_equal(count(row, "server_node"), 0);
	}
	assert_int_equal(placed, 3);
	json_decref(out);
}

static void test_bad_commands(void **state)
{
	RUN("nonsense");
	refused(2, "no command 'nonsense'");
	assert_non_null(strstr(run.err, "stat"));
	assert_int_equal(program_run(SODA, (const char *const[]){ NULL }, &run), 0);
	refused(2, "Usage: soda");
	RUN("bench");
	refused(2, "Usage: soda bench");
	RUN("bench", "nonsense");
	refused(2, "no benchmark 'nonsense'");
	RUN("--version");
	assert_int_equal(run.status, 0);
	assert_string_equal(run.out, "soda " SODA_VERSION "\n");
}

static void test_bad_options(void **state)
{
	RUN("bench", "fault", "--nonsense");
	refused(2, "nonsense");
	RUN("bench", "fault", "backwards");
	refused(2, "backwards");
	RUN("bench", "fault", "seq", "more");
	refused(2, "more");
	RUN("bench", "fault", "--chunk", "5000");
	refused(2, "power of two");
	RUN("bench", "fault", "--buffer", "4/3");
	refused(2, "--buffer");
	RUN("bench", "fault", "--buffer", "half");
	refused(2, "--buffer");
	RUN("bench", "fault", "--buffer", "1K");
	refused(2, "--buffer");
	RUN("bench", "fault", "--threads", "0");
	refused(2, "threads");
	RUN("bench", "fault", "--size", "64K", "--threads", "2");
	refused(2, "--size");
}

/* Where 0 cannot be done it is refused: it is no other word for the default. */
static void test_zero_is_no_default(void **state)
{
	static const char *const all[][6] = {
		{ "bench", "fault", "seq", "--poll", "0" },
		{ "bench", "fault", "seq", "--prefetch", "0" },
		{ "bench", "fault", "seq", "--poll",
		  "20000" }, /* nor more than the library takes */
		{ "bench", "fault", "seq", "--prefetch", "257" },
		{ "bench", "dpu", "seq", "--dpu-cpu", "0" },
		{ "eval", "--threads", "0", "nowhere" },
		{ "eval", "--memory", "0", "nowhere" },
		{ "eval", "--agent-cache", "0", "nowhere" },
		{ "graph", "gen", "--vertices", "0", "nowhere" },
		{ "graph", "gen", "--edges", "0", "nowhere" },
		{ "graph", "gen", "--scale", "0", "nowhere" },
		{ "run", "--threshold", "0", "true" },
		{ "stat", "--interval", "0", "nowhere" },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		assert_int_equal(program_run(SODA, all[i], &run), 0);
		if (run.status != 2 || !*run.err)
			fail_msg("%s %s %s: status %d, says: %s", all[i][0], all[i][1], all[i][2],
				 run.status, run.err);
	}
	RUN("bench", "fault", "seq", "--poll", "0");
	refused(2, "poll: 0 is out of range: at least 1, at most 10000, or off");
}

/* What the library refuses is passed on, not lost with the process that asked. */
static void test_refusals(void **state)
{
	RUN("bench", "fault", "--size", "16M", "--server", "tcp://127.0.0.1:1");
	refused(1, "127.0.0.1:1");
	RUN("bench", "fault", "--size", "16M", "--server", "carrier-pigeon");
	refused(1, "carrier-pigeon");
	RUN("bench", "fault", "--size", "16M", "--evict", "nonsense");
	refused(1, "nonsense");
	RUN("bench", "fault", "--size", "16M", "--buffer", "64K");
	refused(1, "buffer");
}

static void test_stat_server(void **state)
{
	struct server server;

	assert_int_equal(SERVER_START(&server, "--capacity", "32M"), 0);
	RUN("stat", "--json", server.address);
	json_t *out = answer();
	assert_int_equal(count(out, "capacity_bytes"), 32u << 20);
	json_decref(out);
	RUN("stat", server.address);
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "(32 MiB)"));
	/* nobody has read anything; JSON has all */
	assert_non_null(strstr(run.out, "\nall 0, without --all: Requests\n"));
	assert_null(strstr(run.out, "bytes_written"));
	assert_non_null(strstr(run.out, "\nsyncs_failed "));
	RUN("stat", "--all", server.address);
	assert_null(strstr(run.out, "all 0"));
	assert_non_null(strstr(run.out, "\nbytes_written "));
	assert_int_equal(server_stop(&server), 0);
	assert_int_equal(server_complaints(&server), 0);
	RUN("stat", server.address);
	refused(1, "Connection refused");
	server_forget(&server);
}

/* A child of the benchmark uses SODA: ask it while it runs. */
static void test_stat_program(void **state)
{
	char path[64], child[32] = "";
	pid_t bench = fork();

	if (bench == 0) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(126);
		setenv("SODA_LOG", "error", 1);
		execl(build_path(SODA), "soda", "bench", "fault", "--size", "16M", "--rounds",
		      "1000", (char *)NULL);
		_exit(127);
	}
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", bench, bench);
	bool found = false;
	for (int i = 0; i < LOOKS && !found; i++, usleep(10000)) {
		FILE *f = fopen(path, "r");

		while (f && !found && fscanf(f, "%31s", child) == 1) {
			RUN("stat", "--json", child);
			found = run.status == 0;
		}
		if (f)
			fclose(f);
	}
	assert_true(found);
	json_t *out = answer();
	count(json_object_get(out, "soda_stats"), "faults");
	json_decref(out);
	/* who asks for the parent, as `$!` of a shell names it, is told of the child */
	snprintf(child, sizeof(child), "%d", bench);
	found = false;
	for (int i = 0; i < LOOKS && !found; i++, usleep(10000)) {
		RUN("stat", child);
		found = strstr(run.err, "does not use SODA, but its child") != NULL;
	}
	assert_true(found);
	kill(bench, SIGTERM);
	waitpid(bench, NULL, 0);
}

static void test_stat_refusals(void **state)
{
	char self[16];

	RUN("stat", "4194303"); /* the largest that there can be, and hardly is */
	refused(1, "no process 4194303");
	snprintf(self, sizeof(self), "%d", getpid());
	RUN("stat", self);
	refused(1, "does not use SODA");
	RUN("stat", "tcp://127.0.0.1:1");
	refused(1, "Connection refused");
	RUN("stat", "nonsense");
	refused(1, "neither a process id nor an address");
	RUN("stat", "99999999999999999999");
	refused(1, "no process");
	RUN("stat");
	refused(2, "whose counters");
	RUN("stat", "--interval", "never", "1");
	refused(2, "interval");
}

/* This process as a program that uses SODA, with an answer for whoever asks; the child that gives
 * it. */
static pid_t answer_with(const char *json)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int n = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "soda/stat/%d", getpid());
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;
	socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	pid_t child;

	assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
	assert_int_equal(listen(fd, 4), 0);
	child = fork();
	if (child) {
		close(fd);
		return child;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while ((peer = accept(fd, NULL, NULL)) >= 0) {
		(void)!send(peer, json, strlen(json), MSG_NOSIGNAL);
		close(peer);
	}
	_exit(0);
}

/* What a terminal would obey: control characters, of one byte and of two (U+0080 to U+009F); DEL is
 * none: JSON may have it as it is. */
static void assert_harmless(const char *text)
{
	for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
		bool control = (*at < 0x20 && *at != '\n') ||
			       (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0);

		if (control)
			print_error("byte %02x in: %s\n", *at, (const char *)at + 1);
		assert_false(control);
	}
}

/* Names and reasons come from others, and must not reach the terminal as they are. */
static void test_stat_is_printable(void **state)
{
	pid_t program = answer_with(
		"{\"program\":\"soda-mem-server\",\"version\":\"1\\u001b[31m\\u009b2J\\u007f\","
		"\"key\\u001b]0;title\\u0007\":1,\"clients\":1,\"client_list\":[{\"id\":\"a\\nb\","
		"\"address\":\"x\\u001b[2J\",\"times\\u001bc\":{\"buckets\":[],\"count\":1}}],"
		"\"name\":\"Gr\\u00fc\\u00dfe\"}");
	char self[16];

	snprintf(self, sizeof(self), "%d", getpid());
	RUN("stat", self);
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "1?[31m?2J?"));
	assert_non_null(strstr(run.out, "Gr\u00fc\u00dfe"));
	assert_non_null(strstr(run.out, "a?b"));
	assert_harmless(run.out);
	RUN("stat", "--json", self);
	json_decref(answer());
	assert_harmless(run.out);
	RUN("top", "--once", "--interval", "50ms", self);
	assert_int_equal(run.status, 0);
	assert_harmless(run.out);
	kill(program, SIGKILL);
	waitpid(program, NULL, 0);
}

/* Every page is there and says its name. */
static void test_man(void **state)
{
	RUN("--man");
	assert_non_null(strstr(run.out, ".SH NAME"));
	RUN("bench", "fault", "--man");
	assert_non_null(strstr(run.out, "soda\\-bench\\-fault"));
	RUN("bench", "start", "--man");
	assert_non_null(strstr(run.out, "soda\\-bench\\-start"));
	RUN("stat", "--man");
	assert_non_null(strstr(run.out, "soda\\-stat"));
	RUN("bench", "--help");
	assert_non_null(strstr(run.out, "SODA_BENCH_PATIENCE"));
	static const char *const patient[] = { "dpu", "fault", "transport" };
	for (size_t i = 0; i < sizeof(patient) / sizeof(*patient); i++) {
		RUN("bench", patient[i], "--man");
		assert_non_null(strstr(run.out, "SODA_BENCH_PATIENCE"));
	}
	RUN("bench", "fault", "--help");
	assert_non_null(strstr(run.out, "--floor"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fault_seq),
		cmocka_unit_test(test_fault_rand),
		cmocka_unit_test(test_fault_rmw),
		cmocka_unit_test(test_fault_zipf),
		cmocka_unit_test(test_fault_threads_and_touch),
		cmocka_unit_test(test_fault_shm),
		cmocka_unit_test(test_fault_hot_and_alternate),
		cmocka_unit_test(test_fault_record_and_replay),
		cmocka_unit_test(test_fault_table),
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_transport),
		cmocka_unit_test(test_transport_elsewhere),
		cmocka_unit_test(test_transport_nodes),
		cmocka_unit_test(test_bad_commands),
		cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_zero_is_no_default),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_stat_server),
		cmocka_unit_test(test_stat_program),
		cmocka_unit_test(test_stat_refusals),
		cmocka_unit_test(test_stat_is_printable),
		cmocka_unit_test(test_man),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
