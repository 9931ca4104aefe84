/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: report.html, one file. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "eval_report.h"

/* Text into HTML. */
static void put_text(FILE *out, const char *text)
{
	for (; *text; text++)
		if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
			fprintf(out, "&#%d;", *text);
		else
			fputc(*text, out);
}

static void put_head(FILE *out, const struct soda_eval_report *report)
{
	fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
	      "<title>soda eval</title>\n<style>body{font:15px/1.5 sans-serif;max-width:64em;"
	      "margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{padding:.15em "
	      ".7em;border-bottom:1px solid #ccc;text-align:right}td:first-child,th:first-child"
	      "{text-align:left}.note{color:#555}.bad{color:#b00}</style></head><body>\n"
	      "<h1>Disaggregated memory with SmartNIC offloading, on this machine</h1>\n",
	      out);
	fputs("<p><code>", out);
	put_text(out, report->command);
	fputs("</code></p>\n", out);
}

static void put_seconds(FILE *out, const struct soda_eval_cell *cell)
{
	if (!cell->n)
		fputs("<td class=\"bad\">none valid</td>", out);
	else
		fprintf(out, "<td title=\"%.4f to %.4f s, %u runs\">%.3f</td>", cell->seconds_min,
			cell->seconds_max, cell->n, cell->seconds);
}

static void put_times_of(FILE *out, const struct soda_eval_report *report, uint32_t graph,
			 uint32_t app)
{
	const struct soda_eval_plan *plan = report->plan;
	struct soda_eval_run run = { .graph = graph, .app = plan->apps[app], .processes = 1 };
	struct soda_eval_cell cell;

	fprintf(out, "<tr><td>%s, %s</td>", plan->graphs[graph].name, soda_eval_app_names[run.app]);
	for (uint32_t m = 0; m < plan->modes_n; m++) {
		run.mode = plan->modes[m];
		soda_eval_cell_make(report->results, plan, &run, &cell);
		put_seconds(out, &cell);
	}
	fputs("</tr>\n", out);
}

static void put_times(FILE *out, const struct soda_eval_report *report)
{
	const struct soda_eval_plan *plan = report->plan;

	fputs("<h2>Times</h2><p>Seconds, median.</p><table><tr><th></th>", out);
	for (uint32_t m = 0; m < plan->modes_n; m++)
		fprintf(out, "<th>%s</th>", soda_eval_mode_names[plan->modes[m]]);
	fputs("</tr>\n", out);
	for (uint32_t g = 0; g < plan->graphs_n; g++)
		for (uint32_t a = 0; a < plan->apps_n; a++)
			put_times_of(out, report, g, a);
	fputs("</table>\n", out);
}

int soda_eval_write_html(const struct soda_eval_report *report)
{
	FILE *out = soda_eval_create(report->plan, "report.html");

	if (!out)
		return -EIO;
	put_head(out, report);
	put_times(out, report);
	fputs("</body></html>\n", out);
	return soda_eval_finish(report->plan, "report.html", out);
}
