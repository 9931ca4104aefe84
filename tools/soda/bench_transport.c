/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench transport`: options, and the tables. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_daemon.h"
#include "bench_transport.h"
#include "soda.h"
#include "tool.h"

enum { LIST_MAX = 16, ADDRESS_MAX = 128 };

struct options {
	char *listen, *sizes, *depths;
	uint64_t ms;
	bool perftest, json;
};

#define AT(field) offsetof(struct options, field)

static const struct soda_option option_table[] = {
	{ .name = "listen",
	  .letter = 'l',
	  .type = SODA_OPT_STRING,
	  .offset = AT(listen),
	  .arg = "ADDRESS,...",
	  .help = "Where the memory servers listen that the benchmark starts, one after the other."
		  " Default: tcp on the loopback, and shm. For RDMA: verbs://HOST:0, HOST an"
		  " address of an RDMA device." },
	{ .name = "sizes",
	  .letter = 's',
	  .type = SODA_OPT_STRING,
	  .offset = AT(sizes),
	  .arg = "BYTES,...",
	  .def = "4096,65536,1048576",
	  .help = "Bytes of a request, whole pages of 4096, at most 4194304." },
	{ .name = "depths",
	  .letter = 'd',
	  .type = SODA_OPT_STRING,
	  .offset = AT(depths),
	  .arg = "N,...",
	  .def = "1,8",
	  .help = "Requests that are under way at a time, at most 256." },
	{ .name = "time",
	  .letter = 't',
	  .type = SODA_OPT_TIME_MS,
	  .offset = AT(ms),
	  .arg = "TIME",
	  .def = "500ms",
	  .min = 1,
	  .max = 600000,
	  .help = "How long each is measured." },
	{ .name = "perftest",
	  .type = SODA_OPT_BOOL,
	  .offset = AT(perftest),
	  .def = "yes",
	  .help = "On verbs, the same with ib_read_bw, ib_read_lat and their like for writes, just"
		  " after, where they are installed (Debian: perftest)." },
	{ .name = "json",
	  .letter = 'j',
	  .type = SODA_OPT_BOOL,
	  .offset = AT(json),
	  .def = "no",
	  .help = "Print JSON." },
};

static const struct soda_conf conf = {
	.program = "soda-bench-transport",
	.summary = "measure READ and WRITE on each transport",
	.args = "",
	.description = "Bandwidth and latency of requests from one connection to a memory server of"
		       " its own, by size and by how many are under way, without page faults. On"
		       " shm requests are copies out of and into the server's memory.\n\nGB are"
		       " 10^9 bytes. A row's median and p99 are of one request at a time. CPU is"
		       " that of this process, polling included. perftest's bandwidth at depth 1"
		       " is not asked for: its latency is.",
	.epilogue = ".SH EXIT STATUS\n0 success, 1 failure, 2 wrong usage.\n"
		    ".SH EXAMPLES\n.nf\nsoda bench transport \\-\\-listen"
		    " verbs://10.9.0.1:0,tcp://10.9.0.1:0\n.fi\n"
		    ".SH SEE ALSO\n.BR soda (1),\n.BR soda\\-bench\\-fault (1),\n"
		    ".BR soda\\-mem\\-server (1)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

struct plan {
	char listen[LIST_MAX][ADDRESS_MAX];
	uint32_t sizes[LIST_MAX], depths[LIST_MAX];
	unsigned listen_n, sizes_n, depths_n;
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

static int make_plan(const struct options *opt, struct plan *plan)
{
	char both[ADDRESS_MAX];

	snprintf(both, sizeof(both), "tcp://127.0.0.1:0,shm://@soda-bench-%ld", (long)getpid());
	if (parse_numbers(opt->sizes, SODA_WIRE_MAX_DATA, SODA_WIRE_PAGE, plan->sizes,
			  &plan->sizes_n))
		return complain("--sizes: numbers of bytes, whole pages, at most 4194304");
	if (parse_numbers(opt->depths, 256, 1, plan->depths, &plan->depths_n))
		return complain("--depths: numbers from 1 to 256");
	if (parse_addresses(opt->listen && *opt->listen ? opt->listen : both, plan))
		return complain("--listen: addresses, separated by commas");
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

static double gb_a_second(const struct soda_transport_point *p,
			  const struct soda_transport_result *r)
{
	return r->seconds > 0 ? (double)r->requests * p->bytes / 1e9 / r->seconds : 0;
}

static void print_row(const char *transport, const struct soda_transport_point *p,
		      const struct soda_transport_result *r, double theirs)
{
	double gb = (double)r->requests * p->bytes / 1e9, rate = gb_a_second(p, r);

	printf("%-8s %-5s %8u %5u %8.3f", transport, p->write ? "WRITE" : "READ", p->bytes,
	       p->depth, rate);
	if (p->depth == 1)
		printf(" %9.1f %9.1f", r->median_us, r->p99_us);
	else
		printf(" %9s %9s", "-", "-");
	printf(" %9.2f", gb > 0 ? r->cpu_seconds / gb : 0);
	if (theirs > 0 && p->depth == 1)
		printf("  perftest %.1f us, %.2f of it", theirs, r->median_us / theirs);
	else if (theirs > 0)
		printf("  perftest %.3f GB/s, %.2f of it", theirs, rate / theirs);
	putchar('\n');
	fflush(stdout);
}

static json_t *row(const char *transport, const struct soda_transport_point *p,
		   const struct soda_transport_result *r, double theirs)
{
	json_t *o =
		json_pack("{s:s, s:s, s:i, s:i, s:I, s:f, s:f, s:f}", "transport", transport,
			  "request", p->write ? "WRITE" : "READ", "bytes", (int)p->bytes, "depth",
			  (int)p->depth, "requests", (json_int_t)r->requests, "seconds", r->seconds,
			  "cpu_seconds", r->cpu_seconds, "gb_a_second", gb_a_second(p, r));

	if (p->depth == 1) {
		json_object_set_new(o, "median_us", json_real(r->median_us));
		json_object_set_new(o, "p99_us", json_real(r->p99_us));
	}
	if (theirs > 0)
		json_object_set_new(o, p->depth == 1 ? "perftest_us" : "perftest_gb_a_second",
				    json_real(theirs));
	return o;
}

/* perftest is to take about as long: it wants a number of requests. */
static uint64_t bounded(uint64_t requests)
{
	return requests < 100 ? 100 : requests > 1000000 ? 1000000 : requests;
}

static int measure_point(struct soda_transport_link *l, const struct options *opt,
			 const char *address, const struct soda_transport_point *p, json_t *rows)
{
	double seconds = (double)opt->ms / 1000, theirs = -1;
	struct soda_transport_result r;
	char transport[16], host[ADDRESS_MAX];
	int ret;

	snprintf(transport, sizeof(transport), "%.*s", (int)strcspn(address, ":"), address);
	ret = soda_transport_measure(l, p, seconds, &r);
	if (ret) {
		fprintf(stderr, "soda bench transport: %s: %s\n", address, strerror(-ret));
		return ret;
	}
	if (opt->perftest && verbs_host(address, host))
		theirs = soda_perftest(host, p, (uint32_t)bounded(r.requests));
	if (rows)
		json_array_append_new(rows, row(transport, p, &r, theirs));
	else
		print_row(transport, p, &r, theirs);
	return 0;
}

static int measure_all(struct soda_transport_link *l, const struct options *opt,
		       const struct plan *plan, const char *address, json_t *rows)
{
	struct soda_transport_point p;
	int ret = 0;

	for (int write = 0; write < 2; write++)
		for (unsigned s = 0; s < plan->sizes_n; s++)
			for (unsigned d = 0; d < plan->depths_n && !ret; d++) {
				p = (struct soda_transport_point){ write, plan->sizes[s],
								   plan->depths[d] };
				ret = measure_point(l, opt, address, &p, rows);
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

static int run_one(const struct options *opt, const struct plan *plan, const char *listen,
		   json_t *rows)
{
	const char *const args[] = { "--listen",    listen,    "--capacity", "256M",
				     "--log-level", "warning", NULL };
	struct soda_bench_daemon server = { 0 };
	struct soda_transport_link l = { 0 };
	struct soda_why why = { "" };
	int ret = soda_bench_daemon_start(&server, &soda_bench_mem_server, args, NULL, NULL);

	if (ret)
		return ret;
	ret = soda_transport_link_open(&l, server.address, largest(plan->sizes, plan->sizes_n),
				       largest(plan->depths, plan->depths_n), &why);
	if (ret)
		fprintf(stderr, "soda bench transport: %s\n",
			*why.text ? why.text : strerror(-ret));
	else
		ret = measure_all(&l, opt, plan, server.address, rows);
	soda_transport_link_close(&l);
	soda_bench_daemon_stop(&server);
	return ret;
}

static int run(const struct options *opt)
{
	struct plan plan = { 0 };
	json_t *rows;
	int ret = make_plan(opt, &plan);

	if (ret)
		return SODA_EXIT_USAGE;
	rows = opt->json ? json_array() : NULL;
	if (!opt->json)
		printf("%-8s %-5s %8s %5s %8s %9s %9s %9s\n", "", "", "bytes", "depth", "GB/s",
		       "median us", "p99 us", "CPU-s/GB");
	for (unsigned i = 0; i < plan.listen_n && !ret; i++)
		ret = run_one(opt, &plan, plan.listen[i], rows);
	if (rows && !ret) {
		json_dumpf(rows, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
		putchar('\n');
	}
	json_decref(rows);
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
