/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench heap`: options, the table, JSON. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/bench/heap/heap.h"
#include "soda/bench/worker/worker.h"

enum { SIZES_MAX = 16, THREADS_MAX = 64, PARTS = 3 };

struct options {
	char *sizes, *threads;
	uint64_t ms, size;
	uint32_t rounds;
	bool json;
};

static const struct soda_option option_table[] = {
	OPTION("sizes", 's', STRING, sizes, .arg = "BYTES,...",
	       .def = "16,64,256,1024,4096,16384,65536,262144,1048576",
	       .help = "alloc: sizes of the blocks, from 8 to 1048576."),
	OPTION("threads", 'n', STRING, threads, .arg = "N,...", .def = "1,2",
	       .help = "alloc: threads that allocate at once, at most 64."),
	OPTION("time", 't', TIME_MS, ms, .arg = "TIME", .def = "20ms", .min = 1, .max = 60000,
	       .help = "alloc: how long each allocator runs in a round."),
	OPTION("size", 0, SIZE, size, .arg = "SIZE", .def = "128M", .min = 1 << 20,
	       .max = 1ull << 36, .help = "fit: how much is sorted. The program uses twice that."),
	OPTION("rounds", 'r', UINT, rounds, .arg = "N", .def = "9", .min = 1,
	       .max = SODA_BENCH_ROUNDS_MAX, .help = "Rounds; the results are medians."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object on standard output."),
};

static const struct soda_conf conf = {
	.program = "soda bench heap",
	.summary = "measure the heap, and programs that run on it",
	.args = "[PART]...",
	.description = "What fabric memory costs where all of it is resident. Each PART compares "
		       "two sides that take turns in the same run; a ratio is the median of the "
		       "rounds' ratios.\n\n"
		       "alloc: soda_malloc with a store to the block, and soda_free, beside "
		       "jemalloc with its own memory: the same code, configured alike. Each thread "
		       "replaces its blocks, up to 16 MiB of them, a few at a time.\n\n"
		       "start: soda run -- true beside true.\n\n"
		       "fit: a program that sorts numbers by radix, under soda run with a page "
		       "buffer that all of it fits in, beside the same program by itself.\n\n"
		       "Default: all three.",
	.epilogue = ".SH EXIT STATUS\n0 success, 1 failure, 2 wrong usage.\n"
		    ".SH EXAMPLES\n.nf\nsoda bench heap alloc \\-\\-sizes 64,4096 \\-\\-json\n.fi\n"
		    ".SH SEE ALSO\n.BR soda (1),\n.BR soda\\-bench\\-fault (1),\n"
		    ".BR soda\\-run (1),\n.BR soda_malloc (3)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static int parse_numbers(const char *text, uint32_t min, uint32_t max, uint32_t *list,
			 unsigned *n_p)
{
	char *end;

	for (*n_p = 0; *n_p < SIZES_MAX; text = end + 1) {
		unsigned long value = strtoul(text, &end, 10);

		if (end == text || value < min || value > max || (*end && *end != ','))
			return -EINVAL;
		list[(*n_p)++] = (uint32_t)value;
		if (!*end)
			return 0;
	}
	return -EINVAL;
}

static int complain(const char *what)
{
	fprintf(stderr, "soda bench heap: %s\n", what);
	return -EINVAL;
}

struct plan {
	struct soda_heap_point points[SIZES_MAX * SIZES_MAX];
	unsigned n;
	bool parts[PARTS];
};

static const char *const part_names[PARTS] = { "alloc", "start", "fit" };

static int choose_parts(const char **names, int n, struct plan *plan)
{
	char text[160];

	for (int i = 0; i < PARTS; i++)
		plan->parts[i] = n == 0;
	for (int i = 0; i < n; i++) {
		int part = 0;

		while (part < PARTS && strcmp(names[i], part_names[part]) != 0)
			part++;
		if (part == PARTS) {
			snprintf(text, sizeof(text),
				 "no part '%.80s': there are alloc, start and fit", names[i]);
			return complain(text);
		}
		plan->parts[part] = true;
	}
	return 0;
}

static int make_plan(const struct options *opt, const char **parts, int n, struct plan *plan)
{
	uint32_t sizes[SIZES_MAX], threads[SIZES_MAX];
	unsigned sizes_n, threads_n;

	if (parse_numbers(opt->sizes, 8, 1 << 20, sizes, &sizes_n))
		return complain("--sizes: numbers of bytes from 8 to 1048576, at most 16 of them");
	if (parse_numbers(opt->threads, 1, THREADS_MAX, threads, &threads_n))
		return complain("--threads: numbers from 1 to 64, at most 16 of them");
	for (unsigned t = 0; t < threads_n; t++)
		for (unsigned s = 0; s < sizes_n; s++)
			plan->points[plan->n++] = (struct soda_heap_point){ sizes[s], threads[t] };
	return choose_parts(parts, n, plan);
}

/* Each part adds its results to the JSON object if there is one, else prints a table. */
static int part_alloc(const struct options *opt, const struct plan *plan, json_t *out)
{
	struct soda_heap_cost costs[SIZES_MAX * SIZES_MAX];
	int err = soda_heap_measure(plan->points, plan->n, opt->rounds, (uint32_t)opt->ms, costs);
	json_t *rows = out && !err ? json_array() : NULL;

	if (err)
		return err;
	if (!out)
		printf("%10s %8s %10s %12s %7s\n", "bytes", "threads", "ns a pair", "jemalloc's",
		       "ratio");
	for (unsigned i = 0; i < plan->n; i++) {
		const struct soda_heap_point *p = &plan->points[i];
		const struct soda_heap_cost *c = &costs[i];

		if (rows)
			json_array_append_new(
				rows, json_pack("{s:i, s:i, s:f, s:f, s:f}", "bytes", (int)p->bytes,
						"threads", (int)p->threads, "ns", c->ns,
						"ns_jemalloc", c->plain_ns, "ratio", c->ratio));
		else
			printf("%10u %8u %10.1f %12.1f %7.2f\n", p->bytes, p->threads, c->ns,
			       c->plain_ns, c->ratio);
	}
	return rows ? json_object_set_new(out, "alloc", rows) : 0;
}

static int part_start(const struct options *opt, const struct plan *plan, json_t *out)
{
	struct soda_heap_pair p;
	int err = soda_heap_start(opt->rounds, &p);

	if (err)
		return err;
	if (out)
		return json_object_set_new(out, "start",
					   json_pack("{s:f, s:f, s:f}", "ms", p.s * 1e3, "ms_plain",
						     p.plain_s * 1e3, "ms_more", p.more_s * 1e3));
	printf("true: %.2f ms, soda run -- true: %.2f ms, %.2f ms more\n", p.plain_s * 1e3,
	       p.s * 1e3, p.more_s * 1e3);
	return 0;
}

static int part_fit(const struct options *opt, const struct plan *plan, json_t *out)
{
	struct soda_heap_pair p;
	int err = soda_heap_fit(opt->size, opt->rounds, &p);

	if (err)
		return err;
	if (out)
		return json_object_set_new(out, "fit",
					   json_pack("{s:I, s:f, s:f, s:f}", "size",
						     (json_int_t)opt->size, "seconds", p.s,
						     "seconds_plain", p.plain_s, "ratio", p.ratio));
	printf("sorting: %.3f s, under soda run %.3f s, ratio %.3f\n", p.plain_s, p.s, p.ratio);
	return 0;
}

static int run(const struct options *opt, const char **names, int n)
{
	static int (*const parts[PARTS])(const struct options *, const struct plan *,
					 json_t *) = { part_alloc, part_start, part_fit };
	struct plan plan = { .n = 0 };
	json_t *out;
	int err = make_plan(opt, names, n, &plan);

	if (err)
		return SODA_EXIT_USAGE;
	out = opt->json ? json_pack("{s:s, s:i}", "bench", "heap", "rounds", (int)opt->rounds)
			: NULL;
	for (int i = 0; i < PARTS && !err; i++) {
		if (plan.parts[i])
			err = parts[i](opt, &plan, out);
		fflush(stdout);
	}
	if (out && !err)
		err = soda_json_print(out);
	else
		json_decref(out);
	return err || fflush(stdout) ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

int soda_command_bench_heap(int argc, char **argv)
{
	struct options opt = { 0 };
	const char *names[PARTS];
	int n = soda_tool_options(&conf, argc, argv, &opt, names, PARTS);
	int code = n < 0 ? SODA_EXIT_USAGE : run(&opt, names, n);

	soda_conf_free(&conf, &opt);
	return code;
}
