/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Placement on a machine of three NUMA nodes, the last of them without a processor, whose
 * network device hangs from the bus of SODA_TEST_NIC_NODE: where the kernel says that pages
 * are (/proc/PID/numa_maps, move_pages(2)), not where they were asked for.
 */
#include <ctype.h>
#include <dirent.h>
#include <numaif.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/proc.h"

enum {
	NODES = 3,
	CHUNK = 65536,
	CHUNKS = 128,
	LIMIT_S = 240,
	PAGE = 4096,
};

/* Pages of the mappings that were picked, by node. */
struct pages {
	unsigned long at[NODES], all, mappings;
};

static int nic_node(void)
{
	return atoi(getenv("SODA_TEST_NIC_NODE"));
}

/* numa_maps: "7f0000000000 prefer:1 anon=16 dirty=16 N1=16 kernelpagesize_kB=4" */
static void count_line(char *line, struct pages *p)
{
	unsigned node;
	unsigned long n;
	char *word;

	p->mappings++;
	for (word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
		if (sscanf(word, "N%u=%lu", &node, &n) != 2)
			continue;
		CHECK(node < NODES, "node %u", node);
		p->at[node] += n;
		p->all += n;
	}
}

/* The mappings of a process whose line has this text. */
static struct pages count(pid_t pid, const char *text)
{
	struct pages p = { .all = 0 };
	char line[1024];
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/numa_maps", pid);
	f = fopen(line, "re");
	CHECK(f, "no numa_maps");
	while (fgets(line, sizeof(line), f))
		if (strstr(line, text))
			count_line(line, &p);
	fclose(f);
	return p;
}

static unsigned long end_of(unsigned long begin)
{
	unsigned long from, to, end = 0;
	char line[1024];
	FILE *f = fopen("/proc/self/maps", "re");

	CHECK(f, "no maps");
	while (!end && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from == begin)
			end = to;
	fclose(f);
	return end;
}

/* Page by page, by the kernel's other interface. */
static void check_pages(const char *policy, int node)
{
	unsigned long at, end;
	char line[1024];
	FILE *f = fopen("/proc/self/numa_maps", "re");
	size_t n = 0;

	CHECK(f, "no numa_maps");
	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, policy) || sscanf(line, "%lx", &at) != 1)
			continue;
		for (end = end_of(at); at < end; at += PAGE) {
			void *page = (void *)at;
			int status = -1;

			CHECK_EQ(move_pages(0, 1, &page, NULL, &status, 0), 0);
			if (status == -ENOENT || status == -EFAULT) /* never touched */
				continue;
			CHECK_EQ(status, node);
			n++;
		}
	}
	fclose(f);
	CHECK(n > 0, "no page was found");
}

static unsigned long pinned_pages(void)
{
	unsigned long kib = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	CHECK(f, "no status");
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmPin: %lu", &kib);
	fclose(f);
	return kib * 1024 / PAGE;
}

/* The library's own threads have only this processor, or if it is < 0 more than one. */
static void check_threads(int processor)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	int found = 0;

	CHECK(dir, "no tasks");
	while ((e = readdir(dir))) {
		char path[300], text[64] = "", line[256];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		f = isdigit(e->d_name[0]) ? fopen(path, "re") : NULL;
		while (f && fgets(line, sizeof(line), f)) {
			/* the holder of a descriptor only waits, wherever it began */
			if (!strncmp(line, "Name:\tsoda-", 11) && !strstr(line, "soda-holder"))
				found++, text[0] = '-';
			if (text[0] && sscanf(line, "Cpus_allowed_list: %63s", text) == 1)
				CHECK(processor < 0 ? strchr(text, '-') != NULL
						    : text[0] == '0' + processor && !text[1],
				      "it may run on %s", text);
		}
		if (f)
			fclose(f);
	}
	closedir(dir);
	CHECK(found >= 2, "%d threads of the library", found);
}

static struct server server;

static void serve(const char *transport, const char *nodes)
{
	char listen[64];

	snprintf(listen, sizeof(listen), "%s://10.9.0.1:0", transport);
	assert_int_equal(SERVER_START(&server, "--listen", listen, "--capacity", "256M",
				      "--numa-node", nodes),
			 0);
}

static int end(void **state)
{
	int status = server.pid ? server_stop(&server) : 0, complaints = server_complaints(&server);

	server_forget(&server);
	server = (struct server){ 0 };
	return status || complaints;
}

/* A program with FAM, all of which has been written. */
static void begin(const char *node, uint32_t threads)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *words;
	char text[32];

	setenv("SODA_NUMA_NODE", node, 1);
	cfg.server = server.address;
	cfg.threads = threads;
	cfg.fault_timeout_ms = 120000;
	cfg.connect_timeout_ms = 60000;
	set_buffer(&cfg, smallest_buffer(cfg) + 8 * CHUNK, text);
	start(&cfg);
	words = alloc_checked((size_t)CHUNKS * CHUNK);
	for (size_t i = 0; i < (size_t)CHUNKS * CHUNK / 8; i += 512)
		words[i] = mix(i, 1);
	for (size_t i = 0; i < (size_t)CHUNKS * CHUNK / 8; i += 512)
		CHECK(words[i] == mix(i, 1), "word %zu: %llx", i, (unsigned long long)words[i]);
	CHECK_EQ(soda_sync(words, (size_t)CHUNKS * CHUNK), 0);
}

/* Everything that is pinned lies on this node, and nothing that was placed elsewhere. */
static void check_staging(int node)
{
	unsigned long pinned = pinned_pages();
	struct pages p;
	char policy[16];

	snprintf(policy, sizeof(policy), "prefer:%d ", node);
	p = count(getpid(), policy);
	fprintf(stdout, "pinned %lu pages; placed %lu in %lu mappings, of them %lu on node %d\n",
		pinned, p.all, p.mappings, p.at[node], node);
	CHECK(pinned > 0 || strncmp(server.address, "verbs", 5), "nothing is pinned");
	CHECK(p.all > 0 && p.all >= pinned, "%lu placed, %lu pinned", p.all, pinned);
	CHECK_EQ(p.at[node], p.all);
	check_pages(policy, node);
}

static void child_near(const void *arg)
{
	begin("auto", 2);
	check_staging(nic_node());
	check_threads(nic_node());
	CHECK_EQ(soda_shutdown(), 0);
}

static void child_chosen(const void *arg)
{
	begin("2", 2);
	check_staging(2);
	check_threads(-1); /* it has no processor */
	CHECK_EQ(soda_shutdown(), 0);
}

static void child_off(const void *arg)
{
	begin("off", 2);
	CHECK_EQ(count(getpid(), "prefer:").mappings, 0);
	CHECK_EQ(soda_shutdown(), 0);
}

static void child_no_such_node(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	setenv("SODA_NUMA_NODE", "7", 1);
	cfg.server = server.address;
	CHECK(soda_init(&cfg) < 0, "node 7 was taken");
	CHECK(strstr(soda_last_error(), "SODA_NUMA_NODE") &&
		      strstr(soda_last_error(), "no NUMA node 7") &&
		      strstr(soda_last_error(), "0,1,2"),
	      "%s", soda_last_error());
}

static void run(void (*child)(const void *arg), const void *arg, struct outcome *out)
{
	trial_run(&(struct trial){ .child = child, .arg = arg, .seconds = LIMIT_S }, out);
}

/* Where a program's buffers lie, on both transports. */
static void program_on(const char *transport)
{
	struct outcome out;

	serve(transport, "off");
	run(child_near, NULL, &out);
	expect_quiet_success(&out);
	run(child_chosen, NULL, &out);
	expect_quiet_success(&out);
	run(child_off, NULL, &out);
	expect_quiet_success(&out);
	run(child_no_such_node, NULL, &out);
	expect_exit(&out, 0);
}

static void test_program_verbs(void **state)
{
	program_on("verbs");
}

static void test_program_tcp(void **state)
{
	program_on("tcp");
}

/* The server's regions, while a program has them: arg is a node, or -1 for all in turn. */
static void child_server(const void *arg)
{
	int node = *(const int *)arg;
	struct pages p;
	char policy[16];

	begin("off", 1);
	snprintf(policy, sizeof(policy), node < 0 ? "interleave:" : "bind:%d ", node);
	p = count(server.pid, policy);
	fprintf(stdout, "server: %lu pages %s: %lu, %lu, %lu\n", p.all, policy, p.at[0], p.at[1],
		p.at[2]);
	CHECK(p.all >= (unsigned long)CHUNKS * CHUNK / PAGE, "%lu pages", p.all);
	for (int i = 0; i < NODES; i++)
		CHECK(node < 0 ? p.at[i] >= p.all / 8 : p.at[i] == (i == node ? p.all : 0),
		      "node %d has %lu of %lu", i, p.at[i], p.all);
	CHECK_EQ(soda_shutdown(), 0);
}

static void server_on(const char *transport, const char *nodes, int node)
{
	struct outcome out;

	serve(transport, nodes);
	run(child_server, &node, &out);
	expect_quiet_success(&out);
	end(NULL);
}

static void test_server_verbs(void **state)
{
	server_on("verbs", "2", 2);
	server_on("verbs", "interleave", -1);
}

static void test_server_tcp(void **state)
{
	server_on("tcp", "1", 1);
	server_on("tcp", "0,1,2", -1);
}

static void test_server_no_such_node(void **state)
{
	struct program p;

	assert_int_equal(program_run("src/mem_server/soda-mem-server",
				     (const char *const[]){ "--numa-node", "0,3", NULL }, &p),
			 0);
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "no NUMA node 0,3"));
	assert_non_null(strstr(p.err, "0,1,2"));
}

/* An agent's memory comes from its node first. */
static void test_agent(void **state)
{
	struct server agent;
	struct pages p;

	serve("tcp", "off");
	assert_int_equal(agent_start(&agent, (const char *const[]){ "--listen", "tcp://127.0.0.1:0",
								    "--server", server.address,
								    "--numa-node", "2", NULL }),
			 0);
	p = count(agent.pid, "prefer:2");
	assert_true(p.mappings > 0 && p.at[2] > 0);
	assert_int_equal(server_stop(&agent), 0);
	server_forget(&agent);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_program_verbs, end),
		cmocka_unit_test_teardown(test_program_tcp, end),
		cmocka_unit_test_teardown(test_server_verbs, end),
		cmocka_unit_test_teardown(test_server_tcp, end),
		cmocka_unit_test(test_server_no_such_node),
		cmocka_unit_test_teardown(test_agent, end),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("NUMA", tests, NULL, NULL);
}
