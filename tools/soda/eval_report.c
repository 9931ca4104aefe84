/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: report.html, one file. */
#include <errno.h>
#include <stdio.h>

#include "eval_html.h"

static const char style[] =
	"body{font:15px/1.5 sans-serif;max-width:68em;margin:2em auto;padding:0 1em}"
	"table{border-collapse:collapse;margin:1em 0}"
	"td,th{padding:.15em .7em;border-bottom:1px solid #ccc;text-align:right}"
	"td:first-child,th:first-child,.left{text-align:left}"
	"img{max-width:100%}.note{color:#555}.bad{color:#b00}code{overflow-wrap:anywhere}";

void soda_eval_html_text(FILE *out, const char *text)
{
	for (; *text; text++)
		if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
			fprintf(out, "&#%d;", *text);
		else
			fputc(*text, out);
}

int soda_eval_write_html(const struct soda_eval_report *report)
{
	FILE *out = soda_eval_create(report->plan, "report.html");

	if (!out)
		return -EIO;
	fprintf(out,
		"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
		"<title>soda eval</title>\n<style>%s</style></head><body>\n"
		"<h1>Disaggregated memory with SmartNIC offloading, on this machine</h1>\n",
		style);
	soda_eval_html_setting(out, report);
	soda_eval_html_graphs(out, report);
	soda_eval_html_times(out, report);
	for (int i = 0; i < SODA_EVAL_FIGURES; i++)
		soda_eval_html_figure(out, report, &soda_eval_figures[i]);
	soda_eval_html_interface(out, report);
	soda_eval_html_invalid(out, report);
	fputs("</body></html>\n", out);
	return soda_eval_finish(report->plan, "report.html", out);
}
