/* SPDX-License-Identifier: BSD-3-Clause */
/* OUT/runs.jsonl. */
#include "soda/eval/results.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int complain(const char *path, int err)
{
	fprintf(stderr, "soda eval: %s: %s\n", path, strerror(-err));
	return err;
}

static void take_in(struct soda_eval_results *results, const json_t *line)
{
	json_t *run = json_object_get(line, "run"), *graph = json_object_get(line, "graph");
	json_t *command = json_object_get(line, "command");

	if (command)
		json_array_append(results->commands, command);
	if (run) {
		json_array_append(results->runs, run);
		results->found += json_is_true(json_object_get(run, "valid"));
	}
	if (graph)
		json_object_set(results->graphs, json_string_value(json_object_get(graph, "name")),
				graph);
}

/* Compare the first line, the setting, with the plan's. */
static int compare_setting(struct soda_eval_plan *plan, const json_t *theirs,
			   enum soda_eval_begin begin)
{
	json_t *ours;
	int err;

	if (theirs && begin == SODA_EVAL_LOOK)
		soda_eval_plan_adopt(plan, theirs);
	ours = soda_eval_plan_setting(plan);
	err = json_equal(theirs, ours) ? 0 : -EEXIST;
	json_decref(ours);
	return err;
}

/* Take in one line; *good_p: it is well-formed. */
static int read_line(struct soda_eval_results *results, struct soda_eval_plan *plan,
		     const char *text, enum soda_eval_begin begin, bool first, bool *good_p)
{
	json_t *line = json_loads(text, 0, NULL);
	int err = 0;

	*good_p = line && text[strlen(text) - 1] == '\n';
	if (*good_p && first) {
		err = compare_setting(plan, json_object_get(line, "setting"), begin);
	} else if (*good_p) {
		take_in(results, line);
	}
	json_decref(line);
	return err;
}

/* Take in all lines; *end_p: where the last complete one ends. */
static int read_lines(struct soda_eval_results *results, struct soda_eval_plan *plan, FILE *in,
		      enum soda_eval_begin begin, long *end_p)
{
	bool first = true, good = true;
	char *text = NULL;
	size_t bytes = 0;
	int err = 0;

	*end_p = 0;
	while (!err && good && getline(&text, &bytes, in) > 0) {
		err = read_line(results, plan, text, begin, first, &good);
		if (good)
			*end_p = ftell(in);
		first = false;
	}
	free(text);
	return err;
}

static bool is_text(const json_t *run, const char *key, const char *text)
{
	const char *found = json_string_value(json_object_get(run, key));

	return found && strcmp(found, text) == 0;
}

/* A graph of the same name must be the same graph. */
static int compare_graphs(const struct soda_eval_results *results,
			  const struct soda_eval_plan *plan)
{
	for (uint32_t i = 0; i < plan->graphs_n; i++) {
		const json_t *theirs = json_object_get(results->graphs, plan->graphs[i].name);

		if (theirs && !is_text(theirs, "spec", plan->graphs[i].spec))
			return -EEXIST;
	}
	return 0;
}

static int read_all(struct soda_eval_results *results, struct soda_eval_plan *plan,
		    enum soda_eval_begin begin)
{
	FILE *in = fopen(results->path, "r");
	long end;
	int err;

	if (!in)
		return errno == ENOENT && begin != SODA_EVAL_LOOK ? 0
								  : complain(results->path, -errno);
	err = read_lines(results, plan, in, begin, &end);
	fclose(in);
	if (!err)
		err = compare_graphs(results, plan);
	if (err == -EEXIST)
		fprintf(stderr,
			"soda eval: %s has the results of another setting (threads, memory, "
			"chunks, caches, link...), or of another graph of the same name: repeat "
			"those options, name another folder with --out, or drop them with "
			"--fresh\n",
			results->path);
	/* Half a line is what an interruption leaves. */
	if (!err && begin != SODA_EVAL_LOOK && truncate(results->path, end))
		err = complain(results->path, -errno);
	return err;
}

static int write_line(struct soda_eval_results *results, const char *kind, const json_t *what)
{
	FILE *out = fopen(results->path, "a");
	json_t *line = json_pack("{sO}", kind, what);
	int err = out && line ? 0 : -errno;

	if (out && (json_dumpf(line, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) ||
		    fputc('\n', out) == EOF || fflush(out) || fdatasync(fileno(out))))
		err = errno ? -errno : -EIO;
	if (out && fclose(out) && !err)
		err = -errno;
	json_decref(line);
	return err ? complain(results->path, err) : 0;
}

int soda_eval_results_open(struct soda_eval_results *results, struct soda_eval_plan *plan,
			   enum soda_eval_begin begin)
{
	json_t *setting;
	struct stat st;
	int err;

	memset(results, 0, sizeof(*results));
	snprintf(results->path, sizeof(results->path), "%s/runs.jsonl", plan->out);
	results->commands = json_array();
	results->graphs = json_object();
	results->runs = json_array();
	if (begin == SODA_EVAL_FRESH && unlink(results->path) && errno != ENOENT)
		return complain(results->path, -errno);
	err = read_all(results, plan, begin);
	if (err || (stat(results->path, &st) == 0 && st.st_size > 0))
		return err;
	setting = soda_eval_plan_setting(plan);
	err = write_line(results, "setting", setting);
	json_decref(setting);
	return err;
}

int soda_eval_results_add(struct soda_eval_results *results, const char *kind, json_t *what)
{
	json_t *line = json_pack("{sO}", kind, what);
	int err = write_line(results, kind, what);

	take_in(results, line);
	json_decref(line);
	json_decref(what);
	return err;
}

static bool is_of(const json_t *found, const struct soda_eval_plan *plan,
		  const struct soda_eval_run *run)
{
	return is_text(found, "graph", plan->graphs[run->graph].name) &&
	       is_text(found, "app", soda_eval_app_names[run->app]) &&
	       is_text(found, "mode", soda_eval_mode_names[run->mode]) &&
	       json_integer_value(json_object_get(found, "processes")) == run->processes &&
	       json_integer_value(json_object_get(found, "repetition")) == run->repetition;
}

/* If there are several results of one run the last one counts. */
json_t *soda_eval_results_find(const struct soda_eval_results *results,
			       const struct soda_eval_plan *plan, const struct soda_eval_run *run)
{
	json_t *found, *last = NULL;
	size_t i;

	json_array_foreach(results->runs, i, found) if (is_of(found, plan, run)) last = found;
	return last && json_is_true(json_object_get(last, "valid")) ? last : NULL;
}

void soda_eval_results_close(struct soda_eval_results *results)
{
	json_decref(results->commands);
	json_decref(results->graphs);
	json_decref(results->runs);
}
