/* SPDX-License-Identifier: BSD-3-Clause */
/* report.html: its tables. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/conf.h"
#include "eval_html.h"

static uint64_t number(const json_t *from, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(from, key));
}

static const char *text_of(const json_t *from, const char *key)
{
	const char *text = json_string_value(json_object_get(from, key));

	return text ? text : "";
}

void soda_eval_html_graphs(FILE *out, const struct soda_eval_report *report)
{
	const struct soda_eval_plan *plan = report->plan;

	fputs("<h2>Table II: the graphs</h2>\n<table><tr><th>graph</th><th>vertices</th>"
	      "<th>directed edges</th><th>vertex data</th><th>edge data</th></tr>\n",
	      out);
	for (uint32_t i = 0; i < plan->graphs_n; i++) {
		const struct soda_eval_graph *g = &plan->graphs[i];
		char vertex[16], edge[16];

		fprintf(out, "<tr><td>%s</td><td>", g->name);
		soda_eval_html_count(out, g->vertices);
		fputs("</td><td>", out);
		soda_eval_html_count(out, g->edges);
		fprintf(out, "</td><td>%s</td><td>%s</td></tr>\n",
			soda_format_size(g->vertex_bytes, vertex),
			soda_format_size(g->edge_bytes, edge));
	}
	fputs("</table>\n<p class=\"note\">The paper's graphs are real ones; generated ones stand "
	      "in for them here unless files were given.</p>\n",
	      out);
}

static void put_seconds(FILE *out, const struct soda_eval_cell *cell)
{
	if (cell->n == 0) {
		fputs(cell->invalid ? "<td class=\"bad\">none valid</td>" : "<td>&#8211;</td>",
		      out);
		return;
	}
	fprintf(out, "<td>%.3g", cell->seconds);
	if (cell->n > 1)
		fprintf(out, "<small>%.3g&#8211;%.3g</small>", cell->seconds_min,
			cell->seconds_max);
	fputs("</td>", out);
}

/* The times of some modes, and how many runs they are of: the least and the most of a kind. */
struct times {
	uint32_t processes, modes_n;
	enum soda_eval_mode modes[SODA_EVAL_MODES];
	uint32_t least[SODA_EVAL_MODES], most[SODA_EVAL_MODES];
};

static void put_times_of(FILE *out, const struct soda_eval_report *report, struct soda_eval_run run,
			 struct times *times)
{
	const struct soda_eval_plan *plan = report->plan;
	struct soda_eval_cell cell;

	fputs("<tr><td>", out);
	if (plan->graphs_n > 1)
		fprintf(out, "%s, ", plan->graphs[run.graph].name);
	fprintf(out, "%s</td>", soda_eval_app_names[run.app]);
	for (uint32_t m = 0; m < times->modes_n; m++) {
		run.mode = times->modes[m];
		soda_eval_cell_make(report->results, plan, &run, &cell);
		put_seconds(out, &cell);
		times->least[m] = cell.n < times->least[m] ? cell.n : times->least[m];
		times->most[m] = cell.n > times->most[m] ? cell.n : times->most[m];
	}
	fputs("</tr>\n", out);
}

static void put_runs(FILE *out, const struct times *times)
{
	fputs("<tr class=\"note\"><td class=\"nowrap\">runs of each</td>", out);
	for (uint32_t m = 0; m < times->modes_n; m++)
		if (times->least[m] == times->most[m])
			fprintf(out, "<td>%u</td>", times->most[m]);
		else
			fprintf(out, "<td>%u&#8211;%u</td>", times->least[m], times->most[m]);
	fputs("</tr>\n", out);
}

static void add_mode(const struct soda_eval_report *report, enum soda_eval_mode mode,
		     struct times *times)
{
	const struct soda_eval_plan *plan = report->plan;
	struct soda_eval_run run = { .mode = mode, .processes = times->processes };
	bool tried = false;

	for (run.graph = 0; run.graph < plan->graphs_n; run.graph++)
		for (uint32_t a = 0; a < plan->apps_n; a++) {
			struct soda_eval_cell cell;

			run.app = plan->apps[a];
			soda_eval_cell_make(report->results, plan, &run, &cell);
			tried |= cell.n || cell.invalid;
		}
	if (tried) {
		times->least[times->modes_n] = SODA_EVAL_REPEAT_MAX;
		times->modes[times->modes_n++] = mode;
	}
}

static void put_times(FILE *out, const struct soda_eval_report *report, uint32_t processes)
{
	const struct soda_eval_plan *plan = report->plan;
	struct soda_eval_run run = { .processes = processes };
	struct times times = { .processes = processes };

	for (uint32_t m = 0; m < plan->modes_n; m++)
		add_mode(report, plan->modes[m], &times);
	fputs("<div class=\"scroll\"><table class=\"dense\"><tr><th></th>", out);
	for (uint32_t m = 0; m < times.modes_n; m++)
		fprintf(out, "<th>%s</th>", soda_eval_mode_names[times.modes[m]]);
	fputs("</tr>\n", out);
	for (run.graph = 0; run.graph < plan->graphs_n; run.graph++)
		for (uint32_t a = 0; a < plan->apps_n; a++) {
			run.app = plan->apps[a];
			put_times_of(out, report, run, &times);
		}
	put_runs(out, &times);
	fputs("</table></div>\n", out);
}

void soda_eval_html_times(FILE *out, const struct soda_eval_report *report)
{
	fputs("<h2>Times</h2>\n<p>Seconds, medians; below them the least and the most.</p>\n", out);
	put_times(out, report, 1);
	if (!report->plan->background)
		return;
	fputs("<p>Beside a background BFS:</p>\n", out);
	put_times(out, report, 2);
}

/* The counts of node or agent against the interface's, of valid runs. */
void soda_eval_html_interface(FILE *out, const struct soda_eval_report *report)
{
	double least = NAN, most = NAN;
	const json_t *run;
	uint32_t n = 0;
	size_t i;

	json_array_foreach(report->results->runs, i, run)
	{
		double counted = (double)number(json_object_get(run, "traffic"), "total");
		double carried = (double)number(run, "interface_bytes");

		if (!json_is_true(json_object_get(run, "valid")) || counted <= 0 || carried <= 0)
			continue;
		least = fmin(least, carried / counted);
		most = fmax(most, carried / counted);
		n++;
	}
	if (!n)
		return;
	fprintf(out,
		"<h2>Counts against the interface</h2>\n<p>Bytes that the interface of the memory "
		"server carried, headers and control included, over the bytes of data that node or "
		"agent counted, in %u runs: %.3f to %.3f%s.</p>\n",
		n, least, most,
		most <= 1.03 && least >= 0.97 ? "" : " <b>(more than 3 % apart)</b>");
}

void soda_eval_html_invalid(FILE *out, const struct soda_eval_report *report)
{
	const json_t *run;
	bool begun = false;
	size_t i;

	json_array_foreach(report->results->runs, i, run)
	{
		if (json_is_true(json_object_get(run, "valid")))
			continue;
		if (!begun)
			fprintf(out,
				"<h2>Runs that do not count</h2>\n<p>The same command tries them "
				"again.</p>\n<ul>\n");
		begun = true;
		fprintf(out, "<li>%s, %s in %s%s: ", text_of(run, "graph"), text_of(run, "app"),
			text_of(run, "mode"), number(run, "processes") > 1 ? " beside a BFS" : "");
		soda_eval_html_text(out, text_of(run, "why_invalid"));
		fputs("</li>\n", out);
	}
	if (begun)
		fputs("</ul>\n", out);
}
