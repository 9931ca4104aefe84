/* SPDX-License-Identifier: BSD-3-Clause */
/* report.html: what came of it, beside the paper's values. */
#include <math.h>
#include <stdio.h>

#include "eval_html.h"

/* How many runs were tried, and how many count. */
static void put_counts(FILE *out, const struct soda_eval_report *report)
{
	const json_t *run;
	uint64_t all = json_array_size(report->results->runs), valid = 0;
	size_t i;

	json_array_foreach(report->results->runs, i, run) valid +=
		json_is_true(json_object_get(run, "valid"));
	fputs("<p>", out);
	soda_eval_html_count(out, all);
	if (valid == all)
		fputs(" runs, all of them valid, every result verified.</p>\n", out);
	else
		fprintf(out,
			" runs, <span class=\"bad\">%llu of them not valid</span> (see the end); "
			"the result of every other one verified.</p>\n",
			(unsigned long long)(all - valid));
}

static bool was_measured(const struct soda_eval_report *report, enum soda_eval_mode mode)
{
	for (uint32_t i = 0; i < report->plan->modes_n; i++)
		if (report->plan->modes[i] == mode)
			return true;
	return false;
}

/* From the least application to the most; false: nothing was measured.  first: of the figure. */
static bool put_row(FILE *out, const struct soda_eval_report *report,
		    const struct soda_eval_figure *figure, enum soda_eval_mode mode,
		    const char *paper, bool first)
{
	double least, most;

	if (!was_measured(report, mode))
		return false;
	soda_eval_figure_range(report, figure, mode, &least, &most);
	if (isnan(least))
		return false;
	fputs("<tr><td>", out);
	if (first) {
		fprintf(out, "<a href=\"#%s\">", figure->id);
		soda_eval_html_text(out, figure->title);
		fputs("</a><small>", out);
		soda_eval_html_text(out, figure->axis);
		fputs("</small>", out);
	}
	fputs("</td><td class=\"left nowrap\">", out);
	soda_eval_html_mode(out, mode);
	fprintf(out, "</td><td class=\"nowrap\">%.2f&#8211;%.2f</td><td class=\"left\">", least,
		most);
	soda_eval_html_text(out, paper);
	fputs("</td></tr>\n", out);
	return true;
}

static void put_figure(FILE *out, const struct soda_eval_report *report,
		       const struct soda_eval_figure *figure)
{
	bool first = true;

	if (!figure->paper[0].text)
		for (int i = 0; i < SODA_EVAL_MODES; i++) {
			enum soda_eval_mode mode = (enum soda_eval_mode)i;

			if (soda_eval_in(mode, figure->series) &&
			    put_row(out, report, figure, mode, "", first))
				first = false;
		}
	for (int i = 0; figure->paper[i].text; i++)
		if (put_row(out, report, figure, figure->paper[i].mode, figure->paper[i].text,
			    first))
			first = false;
}

void soda_eval_html_summary(FILE *out, const struct soda_eval_report *report)
{
	put_counts(out, report);
	fputs("<p>From the application with the least to the one with the most:</p>\n"
	      "<div class=\"scroll\"><table><tr><th></th><th class=\"left\">mode</th>"
	      "<th>here</th><th class=\"left\">the paper</th></tr>\n",
	      out);
	for (int i = 0; i < SODA_EVAL_FIGURES; i++)
		put_figure(out, report, &soda_eval_figures[i]);
	fputs("</table></div>\n", out);
}
