/* SPDX-License-Identifier: BSD-3-Clause */
/* report.html: a figure, and its numbers beside the paper's. */
#include <math.h>
#include <stdio.h>

#include "eval_html.h"

/* The file, inside of this one. */
static bool put_image(FILE *out, const struct soda_eval_report *report, const char *id)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned char three[3];
	char path[PATH_MAX + 64];
	FILE *in;
	size_t n;

	snprintf(path, sizeof(path), "%s/figures/%s.svg", report->plan->out, id);
	in = fopen(path, "rb");
	if (!in)
		return false;
	fprintf(out, "<p><img alt=\"%s\" src=\"data:image/svg+xml;base64,", id);
	while ((n = fread(three, 1, 3, in)) > 0) {
		unsigned bits = (unsigned)three[0] << 16 | (n > 1 ? three[1] << 8 : 0) |
				(n > 2 ? three[2] : 0);

		fputc(digits[bits >> 18], out);
		fputc(digits[bits >> 12 & 63], out);
		fputc(n > 1 ? digits[bits >> 6 & 63] : '=', out);
		fputc(n > 2 ? digits[bits & 63] : '=', out);
	}
	fputs("\"></p>\n", out);
	fclose(in);
	return true;
}

static const char *claim_of(const struct soda_eval_figure *figure, enum soda_eval_mode mode)
{
	for (int i = 0; figure->paper[i].text; i++)
		if (figure->paper[i].mode == mode)
			return figure->paper[i].text;
	return "";
}

/* The median, and below it the spread, if there is one. */
static void put_bar(FILE *out, const struct soda_eval_bar *bar)
{
	if (isnan(bar->value)) {
		fputs("<td>&#8211;</td>", out);
		return;
	}
	fprintf(out, "<td>%.2f", bar->value);
	if (bar->max > bar->min)
		fprintf(out, "<small>%.2f&#8211;%.2f</small>", bar->min, bar->max);
	fputs("</td>", out);
}

/* A mode: a number for each application, and what the paper says. */
static void put_row(FILE *out, const struct soda_eval_report *report,
		    const struct soda_eval_figure *figure, enum soda_eval_mode mode)
{
	const struct soda_eval_plan *plan = report->plan;
	struct soda_eval_run kind = { .mode = mode };

	fputs("<tr><td class=\"nowrap\">", out);
	soda_eval_html_mode(out, mode);
	fputs("</td>", out);
	for (kind.graph = 0; kind.graph < plan->graphs_n; kind.graph++)
		for (uint32_t a = 0; a < plan->apps_n; a++) {
			struct soda_eval_bar bar;

			kind.app = plan->apps[a];
			bar = soda_eval_figure_bar(report, figure, &kind);
			put_bar(out, &bar);
		}
	fputs("<td class=\"left\">", out);
	soda_eval_html_text(out, claim_of(figure, mode));
	fputs("</td></tr>\n", out);
}

static void put_head(FILE *out, const struct soda_eval_plan *plan)
{
	fputs("<div class=\"scroll\"><table><tr><th></th>", out);
	for (uint32_t g = 0; g < plan->graphs_n; g++)
		for (uint32_t a = 0; a < plan->apps_n; a++) {
			fputs("<th>", out);
			if (plan->graphs_n > 1)
				fprintf(out, "%s<br>", plan->graphs[g].name);
			fprintf(out, "%s</th>", soda_eval_app_names[plan->apps[a]]);
		}
	fputs("<th class=\"left\">the paper</th></tr>\n", out);
}

void soda_eval_html_figure(FILE *out, const struct soda_eval_report *report,
			   const struct soda_eval_figure *figure)
{
	enum soda_eval_mode modes[SODA_EVAL_MODES];
	uint32_t n = soda_eval_figure_series(report, figure, modes);

	fprintf(out, "<h2 id=\"%s\">", figure->id);
	soda_eval_html_text(out, figure->title);
	fputs("</h2>\n<p>", out);
	soda_eval_html_text(out, figure->text);
	fputs("</p>\n", out);
	if (!soda_eval_figure_has_bars(report, figure)) {
		fputs("<p class=\"note\">Not measured here.</p>\n", out);
		return;
	}
	if (!report->no_figures[0] && !put_image(out, report, figure->id))
		fputs("<p class=\"bad\">The figure is missing.</p>\n", out);
	put_head(out, report->plan);
	for (uint32_t i = 0; i < n; i++)
		put_row(out, report, figure, modes[i]);
	fputs("</table></div>\n", out);
}
