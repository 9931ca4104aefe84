/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: one run. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "soda/base/json.h"
#include "soda/base/source.h"
#include "soda/eval/app.h"
#include "soda/eval/eval.h"

#define WHO "soda eval"

enum { BACKGROUND_REPEAT = 1000000 };

/* Counters of an agent, as its statistics and the results call them. */
static const char *const counters[][2] = {
	{ "net_demand_bytes", "on_demand" },
	{ "net_prefetch_bytes", "prefetch" },
	{ "net_writeback_bytes", "write_back" },
	{ "net_preload_bytes", "preload" },
	{ "cache_hits", "hits" },
	{ "cache_late_hits", "late_hits" },
	{ "cache_misses", "misses" },
	{ "cache_useless_bytes", "useless_bytes" },
	{ "cache_switched_off", "switched_off" },
	{ "store_hits", "store_hits" },
	{ "store_waits", "store_waits" },
	{ "store_fills", "store_fills" },
};

enum { KINDS = 4, STORE_FILLS = 11, COUNTERS = sizeof(counters) / sizeof(counters[0]) };

/* One run under way. */
struct scene {
	struct soda_eval_stage *stage;
	const struct soda_eval_plan *plan;
	const struct soda_eval_run *run;
	const struct soda_eval_graph *graph;
	const struct soda_eval_needs *needs; /* NULL: the first in local memory */
	char json[128], log[128], background_log[128], result[PATH_MAX + 16];
	struct soda_eval_app apps[2]; /* the application; what runs beside it */
	struct soda_eval_readahead disk;
	uint64_t peak_bytes, oom_kills, background_fetched;
	uint32_t readahead_kib;
	char why[256]; /* why the run is invalid; "": it is valid */
};

/* Numbers that are read before a run and after it. */
struct readings {
	uint64_t agent_cpu_ns, server_cpu_ns, background_fetched, counters[COUNTERS];
	unsigned background_runs; /* searches that it has finished */
	struct soda_bench_link_bytes link;
};

static void __attribute__((format(printf, 2, 3))) invalid(struct scene *s, const char *fmt, ...)
{
	va_list args;

	if (s->why[0])
		return;
	va_start(args, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, args);
	va_end(args);
}

static bool has_agent(const struct scene *s)
{
	return soda_eval_mode_has(s->run->mode, SODA_EVAL_THROUGH_AGENT);
}

static bool is_disk(const struct scene *s)
{
	return soda_eval_mode_has(s->run->mode, SODA_EVAL_ON_DISK);
}

static bool is_fabric(const struct scene *s)
{
	return has_agent(s) || s->run->mode == SODA_EVAL_MEMSERVER;
}

static bool shares(const struct scene *s)
{
	return soda_eval_mode_has(s->run->mode, SODA_EVAL_SHARES);
}

static int read_agent(struct scene *s, struct readings *out)
{
	json_t *stats;

	if (!has_agent(s))
		return 0;
	stats = soda_stat_ask(WHO, s->stage->agent.address);
	for (int i = 0; i < COUNTERS; i++)
		out->counters[i] = soda_json_count(stats, counters[i][0]);
	json_decref(stats);
	return stats ? 0 : -EIO;
}

static void read_background(struct scene *s, struct readings *out)
{
	const json_t *counts;
	char pid[16], line[160];
	json_t *stats;

	if (s->apps[1].pid <= 0)
		return;
	soda_eval_last_line(s->background_log, line, sizeof(line));
	if (sscanf(line, "bfs: run %u of", &out->background_runs) != 1)
		out->background_runs = 0;
	if (!is_fabric(s))
		return;
	snprintf(pid, sizeof(pid), "%ld", (long)s->apps[1].pid);
	stats = soda_stat_ask(WHO, pid);
	counts = json_object_get(stats, "soda_stats");
	out->background_fetched = soda_json_count(counts, "bytes_fetched") +
				  soda_json_count(counts, "bytes_written_back");
	json_decref(stats);
	if (!stats)
		invalid(s, "the background BFS does not answer");
}

static int read_all(struct scene *s, struct readings *out)
{
	int err;

	memset(out, 0, sizeof(*out));
	err = read_agent(s, out);
	read_background(s, out);
	if (!err && s->plan->link.rate[0])
		err = soda_bench_link_read(&s->plan->link, &out->link);
	out->agent_cpu_ns = has_agent(s) ? soda_bench_daemon_cpu_ns(&s->stage->agent) : 0;
	out->server_cpu_ns = soda_bench_daemon_cpu_ns(&s->stage->server);
	return err;
}

static uint64_t warm_bytes(const struct scene *s, bool first)
{
	if (s->needs)
		return soda_eval_warm_bytes(s->run, s->needs, first);
	return (s->graph->vertex_bytes + s->graph->edge_bytes) / 3;
}

static const char *memory_of(const struct scene *s)
{
	if (is_fabric(s))
		return "served";
	if (s->run->mode == SODA_EVAL_SSD_ADVICE)
		return "mmap-advised";
	return is_disk(s) ? "mmap" : "dram";
}

/* Of a process's page buffer; with a store the graph lies there. */
static uint64_t buffer_bytes(const struct scene *s)
{
	return shares(s) ? s->needs->own_bytes : s->needs->buffer_bytes;
}

/* first: no other process of the run has started before. */
static void describe_app(const struct scene *s, bool first, struct soda_eval_app_how *how)
{
	bool fabric = is_fabric(s);

	*how = (struct soda_eval_app_how){
		.app = soda_eval_app_names[s->run->app],
		.graph = fabric ? s->graph->name : s->graph->path,
		.memory = memory_of(s),
		.arrays = fabric && s->needs->arrays_fam ? "fam" : "dram",
		.json = s->json,
		.result = s->result,
		.log = s->log,
		.server = s->run->mode == SODA_EVAL_MEMSERVER ? s->stage->server.address : NULL,
		.dpu = has_agent(s) ? s->stage->agent.address : NULL,
		.buffer_bytes = fabric ? buffer_bytes(s) : 0,
		.chunk_bytes = fabric ? s->plan->chunk_bytes : 0,
		.warm_bytes = warm_bytes(s, first),
		.threads = s->plan->threads,
		.iterations = s->plan->iterations,
		.cache_edges = s->run->mode == SODA_EVAL_DYNAMIC,
		.from_first = s->graph->generated,
		.cap = s->stage->cap.version ? &s->stage->cap : NULL,
	};
}

/* Start breadth-first searches, over and over, beside the run; returns when the first runs. */
static int start_background(struct scene *s)
{
	struct soda_eval_app_how how;
	int err;

	describe_app(s, true, &how);
	how.app = "bfs";
	how.json = how.result = NULL;
	how.log = s->background_log;
	how.repeat = BACKGROUND_REPEAT;
	err = soda_eval_app_start(&how, &s->apps[1]);
	if (err)
		return err;
	err = soda_eval_app_await_text(&s->apps[1], s->background_log, "bfs: run 1 of",
				       s->plan->timeout_ms);
	if (err)
		invalid(s, "the background BFS %s",
			err == -ETIMEDOUT ? "did not get going" : "ended");
	return 0;
}

static void say_end(struct scene *s, int err)
{
	char line[160];
	int status = s->apps[0].status;

	soda_eval_last_line(s->log, line, sizeof(line));
	if (err == -ETIMEDOUT)
		invalid(s, "still running after %u s", s->plan->timeout_ms / 1000);
	else if (err == -ECHILD)
		invalid(s, "the background BFS ended");
	else if (WIFSIGNALED(status))
		invalid(s, "ended by signal %d (%s)", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		invalid(s, "exit status %d: %s", WEXITSTATUS(status), line);
}

static int run_app(struct scene *s)
{
	struct soda_eval_app_how how;
	int err;

	describe_app(s, s->run->processes == 1, &how);
	err = soda_eval_app_start(&how, &s->apps[0]);
	if (err)
		return err;
	err = soda_eval_app_await(s->apps, s->run->processes, shares(s) ? s->stage->agent.pid : 0,
				  s->plan->timeout_ms, &s->peak_bytes);
	say_end(s, err);
	return 0;
}

/* Drop cached file pages, and set the readahead: Linux's default, or this disk's own. */
static void prepare_disk(struct scene *s)
{
	static const char *const suffixes[] = { ".idx", ".adj", ".in.idx", ".in.adj" };
	char path[PATH_MAX + 16];

	if (!is_disk(s))
		return;
	if (!soda_eval_readahead_find(s->plan->work, &s->disk))
		s->readahead_kib =
			soda_eval_readahead_set(&s->disk, s->run->mode == SODA_EVAL_SSD_READAHEAD
								  ? s->disk.before_kib
								  : SODA_EVAL_READAHEAD_KIB);
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", s->graph->path, suffixes[i]);
		soda_eval_drop_cached(path);
	}
}

static int prepare(struct scene *s)
{
	bool capped = s->run->mode != SODA_EVAL_DRAM && s->stage->capped;
	int err = 0;

	snprintf(s->json, sizeof(s->json), "%s/app.json", s->stage->dir);
	snprintf(s->result, sizeof(s->result), "%s/app.result", s->plan->work);
	snprintf(s->log, sizeof(s->log), "%s/app.log", s->stage->dir);
	snprintf(s->background_log, sizeof(s->background_log), "%s/background.log", s->stage->dir);
	unlink(s->json); /* what an earlier run left */
	unlink(s->background_log);
	prepare_disk(s);
	if (has_agent(s))
		err = soda_eval_agent_start(s->stage, s->run, s->needs);
	if (!err && capped)
		err = soda_cgroup_open_memory(s->needs->limit_bytes * s->run->processes, false,
					      s->stage->owner, &s->stage->cap);
	if (!err && s->run->processes == 2)
		err = start_background(s);
	return err;
}

static void end(struct scene *s)
{
	soda_eval_app_end(&s->apps[0]);
	soda_eval_app_end(&s->apps[1]);
	s->oom_kills = soda_cgroup_oom_kills(&s->stage->cap);
	soda_cgroup_close(&s->stage->cap);
	soda_bench_daemon_stop(&s->stage->agent);
	soda_eval_readahead_restore(&s->disk);
}

static void judge_memory(struct scene *s, json_t *out)
{
	uint64_t own = soda_json_count(out, "pss_bytes");
	uint64_t limit = s->needs ? s->needs->limit_bytes * s->run->processes : 0;
	bool capped = s->run->mode != SODA_EVAL_DRAM && s->stage->capped;

	/* A short run may end between two looks; it looks at itself after each repetition. */
	s->peak_bytes = s->peak_bytes > own ? s->peak_bytes : own;
	soda_json_set_count(out, "memory_peak_bytes", s->peak_bytes);
	soda_json_set_count(out, "memory_limit_bytes", s->run->mode == SODA_EVAL_DRAM ? 0 : limit);
	soda_json_set_count(out, "oom_kills", s->oom_kills);
	json_object_set_new(out, "capped", json_boolean(capped));
	if (s->oom_kills) { /* whatever else it says: this is why */
		s->why[0] = 0;
		invalid(s, "%llu killed by the memory limit", (unsigned long long)s->oom_kills);
	}
	if (s->run->mode != SODA_EVAL_DRAM && s->peak_bytes > limit)
		invalid(s, "memory of %llu bytes is over the limit of %llu",
			(unsigned long long)s->peak_bytes, (unsigned long long)limit);
}

/* Bytes between the node, or its agent, and the memory server, by kind. */
static void add_traffic(struct scene *s, json_t *out, const struct readings *a,
			const struct readings *b)
{
	uint64_t fetched = soda_json_count(out, "bytes_fetched_in_all"),
		 written = soda_json_count(out, "bytes_written_back_in_all"), total = 0;
	uint64_t background = b->background_fetched - a->background_fetched;
	json_t *traffic = json_object();

	for (int i = 0; i < COUNTERS; i++) {
		uint64_t n = b->counters[i] - a->counters[i];

		if (s->run->mode == SODA_EVAL_MEMSERVER && i == 0)
			n = fetched + background;
		else if (s->run->mode == SODA_EVAL_MEMSERVER && i == 2)
			n = written;
		total += i < KINDS ? n : 0;
		soda_json_set_count(i < KINDS ? traffic : out, counters[i][1], n);
	}
	soda_json_set_count(traffic, "total", total);
	soda_json_set_count(out, "store_bytes", soda_eval_store_bytes(s->run, s->needs));
	if (shares(s) && b->counters[STORE_FILLS] == a->counters[STORE_FILLS])
		invalid(s,
			"the processes did not share the agent's store: that takes shm and minor "
			"faults of userfaultfd for shared memory (Linux 5.14)");
	soda_json_set_count(out, "programs_bytes", fetched + written + background);
	json_object_set_new(out, "traffic", traffic);
	if (!s->plan->link.rate[0] || !is_fabric(s))
		return;
	total = b->link.from_server - a->link.from_server + b->link.to_server - a->link.to_server;
	soda_json_set_count(out, "interface_bytes", total);
}

static json_t *report(struct scene *s, const struct readings *before, const struct readings *after)
{
	json_t *out = json_load_file(s->json, 0, NULL);
	const struct soda_eval_run *run = s->run;

	if (!out) {
		out = json_object();
		invalid(s, "it wrote no results");
	}
	json_object_set_new(out, "app", json_string(soda_eval_app_names[run->app]));
	json_object_set_new(out, "graph", json_string(s->graph->name));
	json_object_set_new(out, "mode", json_string(soda_eval_mode_names[run->mode]));
	soda_json_set_count(out, "processes", run->processes);
	soda_json_set_count(out, "repetition", run->repetition);
	judge_memory(s, out);
	add_traffic(s, out, before, after);
	soda_json_set_count(out, "host_cpu_ns", s->apps[0].cpu_ns);
	soda_json_set_count(out, "agent_cpu_ns", after->agent_cpu_ns - before->agent_cpu_ns);
	soda_json_set_count(out, "server_cpu_ns", after->server_cpu_ns - before->server_cpu_ns);
	if (run->processes > 1)
		soda_json_set_count(out, "background_runs",
				    after->background_runs - before->background_runs);
	if (is_disk(s))
		soda_json_set_count(out, "readahead_kib", s->readahead_kib);
	return out;
}

static void verify(struct scene *s, json_t *out)
{
	char line[160];
	int err = -EIO;

	if (!s->why[0]) {
		err = soda_eval_verify(s->plan, s->run, s->result, s->log);
		soda_eval_last_line(s->log, line, sizeof(line));
		if (err)
			invalid(s, "%s: %s", err == -EBADMSG ? "wrong result" : "not verified",
				line);
	}
	json_object_set_new(out, "verified", json_boolean(!err));
	json_object_set_new(out, "valid", json_boolean(!s->why[0]));
	if (s->why[0])
		json_object_set_new(out, "why_invalid", json_string(s->why));
	unlink(s->result);
}

int soda_eval_run_do(struct soda_eval_stage *stage, const struct soda_eval_run *run,
		     const struct soda_eval_needs *needs, json_t **result_p)
{
	struct scene s = { .stage = stage,
			   .plan = stage->plan,
			   .run = run,
			   .graph = &stage->plan->graphs[run->graph],
			   .needs = needs };
	struct readings before, after;
	int err = prepare(&s);

	memset(&after, 0, sizeof(after));
	memset(&before, 0, sizeof(before));
	if (!err)
		err = read_all(&s, &before);
	if (!err && !s.why[0])
		err = run_app(&s);
	if (!err)
		err = read_all(&s, &after);
	end(&s);
	if (err) {
		fprintf(stderr, "soda eval: %s in %s: %s\n", soda_eval_app_names[run->app],
			soda_eval_mode_names[run->mode], strerror(-err));
		return err;
	}
	*result_p = report(&s, &before, &after);
	verify(&s, *result_p);
	return 0;
}
