/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of --stats: how long the program took, how long it waited, and what to change. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/conf/conf.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/run/advice.h"
#include "soda/run/results.h"

enum { WIDTH = 96 }; /* of a line of text, at most */

/* The bytes that were touched; not all that the heap has reserved for them. */
static uint64_t data_of(const struct soda_tree_row *row)
{
	uint64_t touched = row->zero_fills * row->chunk_bytes;

	return touched && touched < row->reserved_peak ? touched : row->reserved_peak;
}

static void add(struct soda_run_facts *f, const struct soda_tree_row *row)
{
	f->waited_ns += row->stalled_ns;
	f->threads_ns +=
		soda_run_threads_ns(row->lived_ns, row->cpu_ns, row->stalled_ns, row->threads);
	f->data += data_of(row);
	f->fetched += row->fetched;
	f->written += row->sent;
	/* the limit goes down with what is freed, where it is a fraction */
	f->buffer += row->buffer > row->resident_peak ? row->buffer : row->resident_peak;
	f->local = row->local_peak > f->local ? row->local_peak : f->local;
	f->demanded += row->demanded;
	f->ahead += row->ahead;
	f->useless += row->useless;
	f->chunk_bytes = row->chunk_bytes > f->chunk_bytes ? row->chunk_bytes : f->chunk_bytes;
	f->fetch_p50_ns = row->fetch_p50_ns > f->fetch_p50_ns ? row->fetch_p50_ns : f->fetch_p50_ns;
}

static bool starts(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

static bool is_remote(void)
{
	const char *server = getenv("SODA_SERVER"), *dpu = getenv("SODA_DPU");

	if (!server || (dpu && *dpu))
		return false;
	return starts(server, "verbs://") ||
	       (starts(server, "tcp://") && !starts(server, "tcp://127.") &&
		!starts(server, "tcp://localhost:"));
}

/* The largest process that has ended, where none had fabric memory, which could count here, too. */
static uint64_t largest(void)
{
	struct rusage u;

	return getrusage(RUSAGE_CHILDREN, &u) ? 0 : (uint64_t)u.ru_maxrss * 1024;
}

static void gather(const struct soda_run_end *end, struct soda_run_facts *f)
{
	const struct soda_tree *tree = end->tree;
	const char *mode = getenv("SODA_MODE");

	*f = (struct soda_run_facts){
		.threshold = end->threshold,
		.small_blocks = end->local != 0,
		.handler = mode && !strcmp(mode, "handler"),
		.remote = is_remote(),
	};
	for (uint32_t i = 0; i < soda_run_rows(tree); i++)
		add(f, &tree->rows[i]);
	if (tree->budget)
		f->buffer = (uint64_t)tree->budget;
	if (!soda_run_rows(tree))
		f->local = largest();
}

static double times(uint64_t bytes, uint64_t data)
{
	return data ? (double)bytes / (double)data : 0;
}

static double share_pct(const struct soda_run_facts *f)
{
	return f->threads_ns ? 100 * (double)f->waited_ns / (double)f->threads_ns : 0;
}

void soda_run_summary(const struct soda_run_end *end)
{
	struct soda_run_advice advice[SODA_RUN_ADVICE_MAX];
	struct soda_run_facts f;
	char data[16], fetched[16], written[16];
	size_t n;

	gather(end, &f);
	if (!f.data && end->quiet)
		return;
	fprintf(stderr, "  took       %8.3f s", (double)end->took_ns / 1e9);
	if (f.data)
		fprintf(stderr,
			"  threads waited %.3f s for far memory, %.0f %% of their time\n"
			"  traffic    fetched %.1f times the data (%s of %s), written back %.1f "
			"times (%s)",
			(double)f.waited_ns / 1e9, share_pct(&f), times(f.fetched, f.data),
			soda_format_size(f.fetched, fetched), soda_format_size(f.data, data),
			times(f.written, f.data), soda_format_size(f.written, written));
	fputc('\n', stderr);
	n = soda_run_advise(&f, advice);
	for (size_t i = 0; i < n; i++) {
		fputs("  advice     ", stderr);
		soda_tool_wrap(stderr, advice[i].text, (unsigned)strlen("  advice     "), WIDTH);
	}
}

/* The same as JSON. */

static json_t *process_of(const struct soda_tree_row *row)
{
	json_t *out = json_object();
	char name[sizeof(row->program) + 1];

	snprintf(name, sizeof(name), "%.*s", (int)sizeof(row->program), row->program);
	soda_json_set_count(out, "pid", (uint64_t)row->pid);
	json_object_set_new(out, "program", soda_json_text_of(name));
	json_object_set_new(out, "ended", json_boolean(atomic_load(&row->written) == 2));
	soda_json_set_count(out, "lived_ns", row->lived_ns);
	soda_json_set_count(out, "cpu_ns", row->cpu_ns);
	soda_json_set_count(out, "stalled_ns", row->stalled_ns);
	soda_json_set_count(out, "threads", row->threads);
	soda_json_set_count(out, "data_bytes", data_of(row));
	soda_json_set_count(out, "reserved_bytes", row->reserved_peak);
	soda_json_set_count(out, "resident_bytes", row->resident_peak);
	soda_json_set_count(out, "local_bytes", row->local_peak);
	soda_json_set_count(out, "fetched_bytes", row->fetched);
	soda_json_set_count(out, "written_bytes", row->sent);
	soda_json_set_count(out, "faults", row->faults);
	soda_json_set_count(out, "zero_fills", row->zero_fills);
	soda_json_set_count(out, "fetches", row->demanded);
	soda_json_set_count(out, "prefetched", row->ahead);
	soda_json_set_count(out, "prefetch_useless", row->useless);
	soda_json_set_count(out, "fetch_p50_ns", row->fetch_p50_ns);
	return out;
}

static json_t *advice_of(const struct soda_run_facts *f)
{
	struct soda_run_advice advice[SODA_RUN_ADVICE_MAX];
	size_t n = soda_run_advise(f, advice);
	json_t *out = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(
			out, json_pack("{ss ss}", "rule", advice[i].rule, "text", advice[i].text));
	return out;
}

void soda_run_summary_json(const struct soda_run_end *end)
{
	json_t *all = json_pack("{ss si}", "format", "soda-run-stats", "version", 1);
	json_t *processes = json_array();
	struct soda_run_facts f;

	gather(end, &f);
	for (uint32_t i = 0; i < soda_run_rows(end->tree); i++)
		json_array_append_new(processes, process_of(&end->tree->rows[i]));
	json_object_set_new(all, "command", soda_json_command(end->argv));
	json_object_set_new(all, "status", json_integer(end->status));
	soda_json_set_count(all, "took_ns", end->took_ns);
	soda_json_set_count(all, "waited_ns", f.waited_ns);
	soda_json_set_real(all, "waited_pct", share_pct(&f));
	soda_json_set_count(all, "data_bytes", f.data);
	soda_json_set_count(all, "fetched_bytes", f.fetched);
	soda_json_set_count(all, "written_bytes", f.written);
	soda_json_set_count(all, "buffer_bytes", f.buffer);
	soda_json_set_count(all, "local_bytes", f.local);
	json_object_set_new(all, "advice", advice_of(&f));
	json_object_set_new(all, "processes", processes);
	json_dumpf(all, stderr, JSON_COMPACT | JSON_REAL_PRECISION(6));
	fputc('\n', stderr);
	json_decref(all);
}
