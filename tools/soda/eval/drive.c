/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: from plan to report, in the child of soda_bench_guard_run(). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "soda/base/tool.h"
#include "soda/eval/results.h"

/* Needed only to see whether there are cgroups. */
#define TRIAL_BYTES (64ull << 20)

void soda_eval_drive_prepare(struct soda_eval_drive *drive)
{
	if (soda_eval_readahead_find(drive->plan->out, &drive->disk))
		drive->disk.path[0] = 0;
	soda_cgroup_sweep();
}

void soda_eval_drive_clean(void *arg, const struct soda_bench_guarded *guarded)
{
	const struct soda_eval_drive *drive = arg;
	struct soda_eval_readahead now;

	if (!soda_eval_readahead_find(drive->plan->out, &now) &&
	    now.before_kib != drive->disk.before_kib)
		soda_eval_readahead_restore(&drive->disk);
	soda_cgroup_remove(guarded->owner);
}

/* Whether there are memory cgroups for us, as a sentence. */
static bool try_cap(pid_t owner, char *sentence, size_t bytes)
{
	struct soda_cgroup cap;
	int err = soda_cgroup_open_memory(TRIAL_BYTES, false, owner, &cap);

	if (!err) {
		snprintf(sentence, bytes, "by a memory cgroup of version %d, page cache included",
			 cap.version);
		soda_cgroup_close(&cap);
		return true;
	}
	snprintf(sentence, bytes,
		 "not at all: %s; page buffers are limited all the same, but ssd has the whole "
		 "page cache",
		 err == -ENOENT ? "no memory cgroup on this machine"
				: "making a memory cgroup needs root or a delegated group "
				  "(systemd-run --user --scope -p Delegate=yes)");
	fprintf(stderr, "soda eval: memory is capped %s\n", sentence);
	return false;
}

/* Make the graph if its files are not there; called when a run needs it. */
static int have_graph(const struct soda_eval_plan *plan, struct soda_eval_results *results,
		      struct soda_eval_graph *graph, bool *made)
{
	int err = *made ? 0 : soda_eval_graph_prepare(plan, graph);

	if (!err && !*made && !json_object_get(results->graphs, graph->name))
		err = soda_eval_results_add(results, "graph", soda_eval_graph_describe(graph));
	*made = !err;
	return err;
}

/* How many runs are left from the i-th on, and how long they may take, of a set of modes. */
static uint32_t count_left(const struct soda_eval_plan *plan,
			   const struct soda_eval_results *results, uint32_t i, unsigned modes,
			   double *seconds_p)
{
	uint32_t n = 0;

	*seconds_p = 0;
	for (; i < plan->runs_n; i++)
		if ((modes >> plan->runs[i].mode & 1) &&
		    !soda_eval_results_find(results, plan, &plan->runs[i])) {
			*seconds_p += soda_eval_progress_guess(results, plan, &plan->runs[i]);
			n++;
		}
	return n;
}

/* Print how many runs there are to do, mode by mode. */
static void say_plan(const struct soda_eval_plan *plan, const struct soda_eval_results *results)
{
	char text[SODA_EVAL_DURATION_BYTES];
	double seconds;
	uint32_t n = count_left(plan, results, 0, ~0u, &seconds);

	soda_eval_progress_format(seconds, text);
	fprintf(stderr, "soda eval: %u of %u runs to do, perhaps %s without making graphs:\n", n,
		plan->runs_n, text);
	for (uint32_t m = 0; m < plan->modes_n; m++) {
		n = count_left(plan, results, 0, 1u << plan->modes[m], &seconds);
		soda_eval_progress_format(seconds, text);
		if (n)
			fprintf(stderr, "soda eval:   %-10s %3u runs, %s\n",
				soda_eval_mode_names[plan->modes[m]], n, text);
	}
}

static void say(const struct soda_eval_plan *plan, const struct soda_eval_results *results,
		uint32_t i, const json_t *result)
{
	const struct soda_eval_run *run = &plan->runs[i];
	const char *why = json_string_value(json_object_get(result, "why_invalid"));
	char text[SODA_EVAL_DURATION_BYTES];
	double seconds;

	fprintf(stderr, "soda eval: %u of %u: %s, %s in %s%s: ", i + 1, plan->runs_n,
		plan->graphs[run->graph].name, soda_eval_app_names[run->app],
		soda_eval_mode_names[run->mode], run->processes > 1 ? " beside a BFS" : "");
	if (why)
		fprintf(stderr, "INVALID: %s", why);
	else
		fprintf(stderr, "%.3f s, verified (%.1f s in all)",
			json_number_value(json_object_get(result, "seconds")),
			json_number_value(json_object_get(result, "wall_seconds")));
	count_left(plan, results, i + 1, ~0u, &seconds);
	soda_eval_progress_format(seconds, text);
	fprintf(stderr, i + 1 < plan->runs_n ? "; about %s left\n" : "\n", text);
}

/* The first run in local memory of the same graph and application. */
static const json_t *first_dram(const struct soda_eval_plan *plan,
				const struct soda_eval_results *results,
				const struct soda_eval_run *run)
{
	struct soda_eval_run dram = {
		.graph = run->graph, .app = run->app, .processes = 1, .mode = SODA_EVAL_DRAM
	};
	const json_t *found = NULL;

	for (; dram.repetition < plan->repeat && !found; dram.repetition++)
		found = soda_eval_results_find(results, plan, &dram);
	return found;
}

static int do_run(struct soda_eval_stage *stage, struct soda_eval_results *results, uint32_t i)
{
	const struct soda_eval_plan *plan = stage->plan;
	const struct soda_eval_run *run = &plan->runs[i];
	const json_t *dram = first_dram(plan, results, run);
	struct soda_eval_needs needs;
	double begin = (double)soda_now_ns() / 1e9;
	json_t *result;
	int err;

	if (!dram && run->mode != SODA_EVAL_DRAM) /* which has been told */
		return 0;
	if (dram)
		soda_eval_needs_of(plan, dram, &needs);
	err = soda_eval_run_do(stage, run, dram ? &needs : NULL, &result);
	if (err)
		return err;
	json_object_set_new(result, "wall_seconds", json_real((double)soda_now_ns() / 1e9 - begin));
	err = soda_eval_results_add(results, "run", json_incref(result));
	say(plan, results, i, result);
	json_decref(result);
	return err;
}

static int do_runs(struct soda_eval_stage *stage, struct soda_eval_plan *plan,
		   struct soda_eval_results *results)
{
	bool made[SODA_EVAL_GRAPHS_MAX] = { false }, open = false;
	int err = 0;

	for (uint32_t i = 0; i < plan->runs_n && !err; i++) {
		uint32_t graph = plan->runs[i].graph;

		if (soda_eval_results_find(results, plan, &plan->runs[i]))
			continue;
		err = have_graph(plan, results, &plan->graphs[graph], &made[graph]);
		if (!err && !open) {
			open = true;
			err = soda_eval_stage_open(stage);
		}
		if (!err)
			err = do_run(stage, results, i);
	}
	if (open)
		soda_eval_stage_close(stage);
	return err;
}

static uint32_t count_missing(const struct soda_eval_plan *plan,
			      const struct soda_eval_results *results)
{
	uint32_t missing = 0;

	for (uint32_t i = 0; i < plan->runs_n; i++)
		missing += !soda_eval_results_find(results, plan, &plan->runs[i]);
	return missing;
}

/* Text, date and machine of the last command that ran something. */
static json_t *last_command(const struct soda_eval_results *results)
{
	size_t n = json_array_size(results->commands);

	return n ? json_array_get(results->commands, n - 1) : NULL;
}

static int write_numbers(const struct soda_eval_report *report)
{
	int err = soda_eval_write_json(report);

	return err ? err : soda_eval_write_csv(report);
}

/* Make the page of results.json; where that cannot be made here the numbers remain. */
static int make_page(const struct soda_eval_plan *plan, bool wanted)
{
	char json[PATH_MAX + 16], page[PATH_MAX + 16];
	int err;

	snprintf(json, sizeof(json), "%s/results.json", plan->out);
	snprintf(page, sizeof(page), "%s/report.html", plan->out);
	fflush(stdout);
	err = soda_report_make("soda eval", json, page);
	return err == -ENOENT && !wanted ? 0 : err;
}

/*
 * There the pages of the files are shared memory, of which a capped process may not have so much.
 */
static void warn_of_memory(const struct soda_eval_plan *plan)
{
	for (uint32_t i = 0; i < plan->modes_n; i++)
		if (soda_eval_mode_has(plan->modes[i], SODA_EVAL_ON_DISK) &&
		    soda_eval_readahead_none(plan->out))
			fprintf(stderr,
				"soda eval: %s is in memory (tmpfs), so that mode %s has no disk "
				"and its runs may not count: name a folder of a disk with --out, "
				"or leave it out of --modes\n",
				plan->out, soda_eval_mode_names[plan->modes[i]]);
}

/* The variables of the environment that change what programs and daemons do: they inherit them. */
static json_t *environment(void)
{
	json_t *all = json_object();
	char name[64];

	for (char **at = environ; *at; at++) {
		size_t n = strcspn(*at, "=");

		if (strncmp(*at, "SODA_", 5) || n >= sizeof(name) || !(*at)[n])
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)n, *at);
		json_object_set_new(all, name, json_string(*at + n + 1));
	}
	return all;
}

/* Files, page and table of all that is in the folder, this command's and earlier ones'. */
static int report_all(const struct soda_eval_drive *drive, const struct soda_eval_results *results)
{
	json_t *command = last_command(results);
	const char *cap = json_string_value(json_object_get(command, "memory_cap"));
	struct soda_eval_plan all = *drive->plan;
	struct soda_eval_report report = { .plan = &all,
					   .results = results,
					   .cap = cap ? cap : "in a way that is not known",
					   .machine = json_object_get(command, "machine") };
	int err;

	soda_eval_plan_widen(&all, results);
	err = write_numbers(&report);
	if (!err)
		err = make_page(drive->plan, drive->begin == SODA_EVAL_LOOK);
	soda_eval_table(stdout, &report);
	return fflush(stdout) && !err ? -EIO : err;
}

/* Run what has no valid result yet. */
static int run_missing(const struct soda_eval_drive *drive,
		       const struct soda_bench_guarded *guarded, struct soda_eval_results *results)
{
	struct soda_eval_stage stage = { .plan = drive->plan,
					 .dir = guarded->dir,
					 .owner = guarded->owner };
	char cap[256];
	int err;

	if (results->found)
		fprintf(stderr, "soda eval: going on after %u runs\n", results->found);
	if (!count_missing(drive->plan, results))
		return 0;
	stage.capped = try_cap(guarded->owner, cap, sizeof(cap));
	warn_of_memory(drive->plan);
	err = soda_eval_results_add(results, "command",
				    json_pack("{ss so ss so}", "text", drive->command,
					      "environment", environment(), "memory_cap", cap,
					      "machine", soda_machine_describe()));
	say_plan(drive->plan, results);
	soda_eval_verify_forget(drive->plan);
	err = err ? err : do_runs(&stage, drive->plan, results);
	soda_eval_verify_forget(drive->plan);
	return err;
}

int soda_eval_drive_run(void *arg, const struct soda_bench_guarded *guarded)
{
	const struct soda_eval_drive *drive = arg;
	struct soda_eval_plan *plan = drive->plan;
	struct soda_eval_results results;
	uint32_t missing = 0;
	int err = soda_eval_results_open(&results, plan, drive->begin);
	bool usage = err == -EEXIST || err == -ENOENT;

	if (!err && drive->begin != SODA_EVAL_LOOK)
		err = run_missing(drive, guarded, &results);
	if (!err)
		err = report_all(drive, &results);
	if (!err)
		missing = count_missing(plan, &results);
	if (missing)
		fprintf(stderr,
			"soda eval: %u of %u runs are invalid; the same command tries them again\n",
			missing, plan->runs_n);
	soda_eval_results_close(&results);
	if (usage)
		return SODA_EXIT_USAGE;
	return err || missing ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}
