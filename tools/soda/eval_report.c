/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: report.html, one file. */
#include <errno.h>
#include <stdio.h>

#include "eval_html.h"

static const char style[] =
	"body{font:15px/1.55 system-ui,sans-serif;max-width:66em;margin:2em auto;padding:0 1em;"
	"color:#222}"
	"h1{font-size:1.7em;line-height:1.25}h2{margin-top:2em;border-bottom:2px solid #eee}"
	"table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}"
	"td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right;vertical-align:top}"
	"th{border-bottom-color:#888;vertical-align:bottom}"
	"td:first-child,th:first-child,.left{text-align:left}"
	"small{display:block;color:#777;white-space:nowrap}.nowrap{white-space:nowrap}"
	".dense{font-size:.9em}.dense td,.dense th{padding:.2em .5em}"
	"a{color:inherit}"
	"i{display:inline-block;width:.8em;height:.8em;margin-right:.5em;border-radius:2px}"
	".scroll{overflow-x:auto}img{max-width:100%}.note{color:#666}.bad{color:#b00}"
	"code{overflow-wrap:anywhere;background:#f4f4f4;padding:.1em .3em}li{margin:.3em 0}";

void soda_eval_html_text(FILE *out, const char *text)
{
	for (; *text; text++)
		if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
			fprintf(out, "&#%d;", *text);
		else
			fputc(*text, out);
}

void soda_eval_html_count(FILE *out, uint64_t count)
{
	if (count >= 1000) {
		soda_eval_html_count(out, count / 1000);
		fprintf(out, "&#8239;%03u", (unsigned)(count % 1000));
	} else {
		fprintf(out, "%u", (unsigned)count);
	}
}

void soda_eval_html_mode(FILE *out, enum soda_eval_mode mode)
{
	fprintf(out, "<i style=\"background:%s\"></i>%s", soda_eval_mode_colours[mode],
		soda_eval_mode_names[mode]);
}

int soda_eval_write_html(const struct soda_eval_report *report)
{
	FILE *out = soda_eval_create(report->plan, "report.html");

	if (!out)
		return -EIO;
	fprintf(out,
		"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
		"<title>soda eval</title>\n<style>%s</style></head><body>\n"
		"<h1>Disaggregated memory with SmartNIC offloading: the paper&#39;s evaluation, on "
		"this machine</h1>\n",
		style);
	soda_eval_html_summary(out, report);
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
