/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench transport`: options, and the tables. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/numa/numa_node.h"
#include "soda.h"
#include "soda/base/tool.h"
#include "soda/bench/transport/transport.h"
#include "soda/stage/daemon.h"
#include "soda/stage/patience.h"

enum { LIST_MAX = 16, ADDRESS_MAX = 128, ROUNDS_MAX = 99 };

struct options {
	char *listen, *server, *sizes, *depths, *numa;
	uint64_t ms;
	uint32_t rounds;
	bool perftest, json;
};

static const struct soda_option option_table[] = {
	OPTION("listen", 'l', STRING, listen, .arg = "ADDRESS,...",
	       .help = "Where the memory servers listen that the benchmark starts, one after the "
		       "other. Default: tcp on the loopback, and shm. For RDMA: verbs://HOST:0, "
		       "HOST an address of an RDMA device."),
	OPTION("server", 'S', STRING, server, .arg = "ADDRESS,...",
	       .help = "Memory servers that somebody else has started, on this machine or another "
		       "one, to measure instead, one after the other. Each needs 64 MiB of free "
		       "memory, and is left as it was. --numa and --perftest need servers of the "
		       "benchmark's own."),
	OPTION("sizes", 's', STRING, sizes, .arg = "BYTES,...", .def = "4096,65536,1048576",
	       .help = "Bytes of a request, whole pages of 4096, at most 4194304."),
	OPTION("depths", 'd', STRING, depths, .arg = "N,...", .def = "1,8",
	       .help = "Requests that are under way at a time, at most 256."),
	OPTION("time", 't', TIME_MS, ms, .arg = "TIME", .def = "500ms", .min = 1, .max = 600000,
	       .help = "How long each is measured."),
	OPTION("rounds", 'r', UINT, rounds, .arg = "N", .def = "1", .min = 1, .max = ROUNDS_MAX,
	       .help = "How often; the medians are shown. perftest runs in between."),
	OPTION("numa", 0, STRING, numa, .arg = "NODES", .def = "all",
	       .help = "After all else, the same with this process and its buffers on one NUMA "
		       "node and the server's memory on another, for each pair of these (0,2); "
		       "all; or off."),
	OPTION("perftest", 0, BOOL, perftest, .def = "yes",
	       .help = "On verbs, the same with ib_read_bw, ib_read_lat and their like, just "
		       "after, where they are installed (Debian: perftest)."),
	OPTION("json", 'j', BOOL, json, .def = "no", .help = "Print JSON."),
};

static const struct soda_conf conf = {
	.program = "soda-bench-transport",
	.summary = "measure READ, WRITE and SEND on each transport",
	.args = "",
	.description = "Bandwidth and latency of requests from one connection to a memory server, "
		       "of its own or by --server, by size and by how many are under way, without "
		       "page faults. On "
		       "shm requests are copies out of and into the server's memory. A SEND is a "
		       "message of the control plane, at most 64 KiB, that the server sends back; "
		       "its time is half of there and back, its bandwidth one way's, and a depth "
		       "is a number of clients with one under way each, at most 64.\n\n"
		       "GB are 10^9 bytes. A row's median and p99 are of one request at a time. "
		       "CPU is that of this process, polling included. perftest's bandwidth at "
		       "depth 1 is not asked for: its latency is.",
	.epilogue = SODA_PATIENCE_MAN ".SH EXIT STATUS\n0 success, 1 failure, 2 wrong usage.\n"
				      ".SH EXAMPLES\n.nf\nsoda bench transport \\-\\-listen"
				      " verbs://10.9.0.1:0,tcp://10.9.0.1:0\n"
				      "soda bench transport \\-\\-server verbs://mem1:7100\n.fi\n"
				      ".SH SEE ALSO\n.BR soda (1),\n.BR soda\\-bench\\-fault (1),\n"
				      ".BR soda\\-mem\\-server (1)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

struct plan {
	char listen[LIST_MAX][ADDRESS_MAX]; /* or of servers that are there */
	uint32_t sizes[LIST_MAX], depths[LIST_MAX];
	unsigned listen_n, sizes_n, depths_n;
};

struct bench {
	const struct options *opt;
	const struct plan *plan;
	struct soda_nodes nodes; /* to sweep over; more than one, or none */
	json_t *rows;		 /* NULL: text */
	const char *address;	 /* of the server that runs */
	struct soda_transport_place place;
	struct soda_transport_link link;
};

static int complain(const char *why)
{
	fprintf(stderr, "soda bench transport: %s\n", why);
	return -EINVAL;
}

static int parse_numbers(const char *text, uint32_t max, uint32_t unit, uint32_t *list,
			 unsigned *n_p)
{
	char *end;

	for (*n_p = 0; *n_p < LIST_MAX; text = end + 1) {
		unsigned long value = strtoul(text, &end, 10);

		if (end == text || value == 0 || value > max || value % unit ||
		    (*end && *end != ','))
			return -EINVAL;
		list[(*n_p)++] = (uint32_t)value;
		if (!*end)
			return 0;
	}
	return -EINVAL;
}

static int parse_addresses(const char *text, struct plan *plan)
{
	const char *comma;

	for (plan->listen_n = 0; plan->listen_n < LIST_MAX; text = comma + 1) {
		int n;

		comma = strchr(text, ',');
		n = comma ? (int)(comma - text) : (int)strlen(text);
		if (n == 0 || n >= ADDRESS_MAX)
			return -EINVAL;
		snprintf(plan->listen[plan->listen_n++], ADDRESS_MAX, "%.*s", n, text);
		if (!comma)
			return 0;
	}
	return -EINVAL;
}

static bool said(const char *text)
{
	return text && *text;
}

static int make_plan(const struct options *opt, struct plan *plan)
{
	char both[ADDRESS_MAX];

	snprintf(both, sizeof(both), "tcp://127.0.0.1:0,shm://@soda-bench-%ld", (long)getpid());
	if (parse_numbers(opt->sizes, SODA_WIRE_MAX_DATA, SODA_WIRE_PAGE, plan->sizes,
			  &plan->sizes_n))
		return complain("--sizes: numbers of bytes, whole pages, at most 4194304");
	if (parse_numbers(opt->depths, 256, 1, plan->depths, &plan->depths_n))
		return complain("--depths: numbers from 1 to 256");
	if (said(opt->listen) && said(opt->server))
		return complain("--listen is of servers that the benchmark starts, --server of "
				"others: one of them");
	if (said(opt->server))
		return parse_addresses(opt->server, plan)
			       ? complain("--server: addresses, separated by commas")
			       : 0;
	if (parse_addresses(said(opt->listen) ? opt->listen : both, plan))
		return complain("--listen: addresses, separated by commas");
	return 0;
}

static int choose_nodes(const struct options *opt, struct soda_nodes *nodes_p)
{
	bool all = !opt->numa || !*opt->numa || !strcmp(opt->numa, "all");
	struct soda_conf_error err;
	int ret = soda_nodes_parse(all ? "off" : opt->numa, nodes_p, &err);

	if (all)
		soda_nodes_present(nodes_p);
	if (ret) {
		fprintf(stderr, "soda bench transport: --numa: %s\n", err.text);
		return ret;
	}
	if (said(opt->server) && nodes_p->n && !all) {
		complain("--numa places servers of the benchmark's own: not with --server");
		return -EINVAL;
	}
	if ((nodes_p->n == 1 && all) || said(opt->server)) /* nothing to compare */
		nodes_p->n = 0;
	return 0;
}

/* The host of verbs://HOST:PORT. False: another transport. */
static bool verbs_host(const char *address, char host[ADDRESS_MAX])
{
	const char *prefix = "verbs://", *at = address + strlen(prefix), *colon;

	if (strncmp(address, prefix, strlen(prefix)))
		return false;
	colon = strrchr(at, ':');
	if (!colon)
		return false;
	if (*at == '[')
		snprintf(host, ADDRESS_MAX, "%.*s", (int)(colon - at - 2), at + 1);
	else
		snprintf(host, ADDRESS_MAX, "%.*s", (int)(colon - at), at);
	return true;
}

/* perftest is to take about as long: it wants a number of requests. */
static uint64_t bounded(uint64_t requests)
{
	return requests < 100 ? 100 : requests > 1000000 ? 1000000 : requests;
}

/* Orders results by rate, for the median. */
static int compare_results(const void *a, const void *b)
{
	const struct soda_transport_result *x = a, *y = b;
	double p = (double)x->requests / x->seconds, q = (double)y->requests / y->seconds;

	return p < q ? -1 : p > q;
}

static int compare_numbers(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static int measure_once(struct bench *b, const struct soda_transport_point *p,
			struct soda_transport_result *r)
{
	double seconds = (double)b->opt->ms / 1000;
	struct soda_why why = { "" };
	int ret;

	if (p->request == SODA_TRANSPORT_SEND)
		ret = soda_transport_send(b->address, p, seconds, r, &why);
	else
		ret = soda_transport_measure(&b->link, p, seconds, r);
	if (ret)
		fprintf(stderr, "soda bench transport: %s: %s\n", b->address,
			*why.text ? why.text : strerror(-ret));
	return ret;
}

/* Rounds of SODA and perftest in turns, so that both meet the same state of the machine. */
static int measure_point(struct bench *b, const struct soda_transport_point *p)
{
	struct soda_transport_result r[ROUNDS_MAX];
	double theirs[ROUNDS_MAX] = { -1 };
	unsigned rounds = b->opt->rounds, found = 0;
	char host[ADDRESS_MAX];
	bool beside = b->opt->perftest && !said(b->opt->server) && b->place.server_node < 0 &&
		      verbs_host(b->address, host);

	for (unsigned i = 0; i < rounds; i++) {
		int ret = measure_once(b, p, &r[i]);

		if (ret)
			return ret;
		if (beside)
			theirs[found] = soda_perftest(host, p, (uint32_t)bounded(r[i].requests));
		found += theirs[found] > 0;
	}
	qsort(r, rounds, sizeof(r[0]), compare_results);
	qsort(theirs, found, sizeof(theirs[0]), compare_numbers);
	soda_transport_row(&b->place, p, &r[rounds / 2], found ? theirs[found / 2] : -1, b->rows);
	return 0;
}

/* Whether SEND can do it: its messages are short, and each under way takes a client of its own. */
static bool possible(const struct soda_transport_point *p)
{
	return p->request != SODA_TRANSPORT_SEND ||
	       (p->bytes <= SODA_WIRE_MAX_CONTROL && p->depth <= SODA_TRANSPORT_SENDERS_MAX);
}

static int measure_all(struct bench *b)
{
	const struct plan *plan = b->plan;
	int ret = 0;

	for (int q = 0; q < SODA_TRANSPORT_REQUESTS; q++)
		for (unsigned s = 0; s < plan->sizes_n; s++)
			for (unsigned d = 0; d < plan->depths_n && !ret; d++) {
				struct soda_transport_point p = { (enum soda_transport_request)q,
								  plan->sizes[s], plan->depths[d] };

				if (possible(&p))
					ret = measure_point(b, &p);
			}
	return ret;
}

static uint32_t largest(const uint32_t *list, unsigned n)
{
	uint32_t max = 0;

	for (unsigned i = 0; i < n; i++)
		max = list[i] > max ? list[i] : max;
	return max;
}

/* Run on this node, with buffers there from the next connection on. */
static void move_to(int node)
{
	struct soda_nodes all;

	if (node < 0)
		return;
	soda_nodes_present(&all);
	soda_nodes_run(&all);
	soda_node_run(node);
	soda_node_choose(node);
}

static int measure_server(struct bench *b)
{
	const struct plan *plan = b->plan;
	struct soda_why why = { "" };
	int ret;

	move_to(b->place.client_node);
	ret = soda_transport_link_open(&b->link, b->address, largest(plan->sizes, plan->sizes_n),
				       largest(plan->depths, plan->depths_n), &why);
	if (ret)
		fprintf(stderr, "soda bench transport: %s\n",
			*why.text ? why.text : strerror(-ret));
	else
		ret = measure_all(b);
	soda_transport_link_close(&b->link);
	return ret;
}

static void set_address(struct bench *b, const char *address)
{
	b->address = address;
	snprintf(b->place.transport, sizeof(b->place.transport), "%.*s", (int)strcspn(address, ":"),
		 address);
}

/* A server of somebody else's. */
static int run_other(struct bench *b, const char *address)
{
	set_address(b, address);
	b->place.server_node = b->place.client_node = -1;
	return measure_server(b);
}

/* A server, whose memory is on this node, or anywhere; the client on each, or anywhere. */
static int run_one(struct bench *b, const char *listen, int server_node)
{
	char node[16] = "off";
	const char *const args[] = { "--listen", listen,	"--capacity", "256M", "--log-level",
				     "warning",	 "--numa-node", node,	      NULL };
	struct soda_bench_daemon server = { 0 };
	int ret;

	if (server_node >= 0)
		snprintf(node, sizeof(node), "%d", server_node);
	ret = soda_bench_daemon_start(&server, &soda_bench_mem_server, args, NULL, NULL);
	if (ret)
		return ret;
	set_address(b, server.address);
	b->place.server_node = b->place.client_node = server_node;
	if (server_node < 0)
		ret = measure_server(b);
	for (int i = 0; server_node >= 0 && i < SODA_NODES_MAX && !ret; i++) {
		b->place.client_node = i;
		if (soda_nodes_has(&b->nodes, (unsigned)i))
			ret = measure_server(b);
	}
	soda_bench_daemon_stop(&server);
	return ret;
}

/* Each pair of nodes, after all else: where this process has been is not undone. */
static int sweep(struct bench *b)
{
	int ret = 0;

	for (unsigned i = 0; i < b->plan->listen_n; i++)
		for (int node = 0; node < SODA_NODES_MAX && !ret; node++)
			if (soda_nodes_has(&b->nodes, (unsigned)node))
				ret = run_one(b, b->plan->listen[i], node);
	return ret;
}

static int run(const struct options *opt)
{
	struct plan plan = { 0 };
	struct bench b = { .opt = opt, .plan = &plan };
	int ret = make_plan(opt, &plan);

	if (!ret)
		ret = choose_nodes(opt, &b.nodes);
	if (ret)
		return SODA_EXIT_USAGE;
	b.rows = opt->json ? json_array() : NULL;
	if (!opt->json)
		soda_transport_head();
	for (unsigned i = 0; i < plan.listen_n && !ret; i++)
		ret = said(opt->server) ? run_other(&b, plan.listen[i])
					: run_one(&b, plan.listen[i], -1);
	if (b.nodes.n && !ret)
		ret = sweep(&b);
	if (b.rows && !ret) {
		json_dumpf(b.rows, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
		putchar('\n');
	}
	json_decref(b.rows);
	return ret ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

int soda_command_bench_transport(int argc, char **argv)
{
	struct options opt = { 0 };
	int code = SODA_EXIT_USAGE;

	if (soda_tool_options(&conf, argc, argv, &opt, NULL, 0) >= 0)
		code = run(&opt);
	soda_conf_free(&conf, &opt);
	return code;
}
