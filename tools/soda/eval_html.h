/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of report.html. */
#ifndef SODA_EVAL_HTML_H
#define SODA_EVAL_HTML_H

#include "eval_figure.h"

/* Text, with what HTML would take for its own in its other form. */
void soda_eval_html_text(FILE *out, const char *text);
/* A count with its thousands apart. */
void soda_eval_html_count(FILE *out, uint64_t count);
/* A mode's name beside its colour. */
void soda_eval_html_mode(FILE *out, enum soda_eval_mode mode);
/* What was measured, on what, how: eval_html_setting.c. */
void soda_eval_html_setting(FILE *out, const struct soda_eval_report *report);
/* What came of it, beside the paper's values: eval_html_summary.c. */
void soda_eval_html_summary(FILE *out, const struct soda_eval_report *report);
/* Table II, times, what was not valid: eval_html_table.c. */
void soda_eval_html_graphs(FILE *out, const struct soda_eval_report *report);
void soda_eval_html_times(FILE *out, const struct soda_eval_report *report);
void soda_eval_html_interface(FILE *out, const struct soda_eval_report *report);
void soda_eval_html_invalid(FILE *out, const struct soda_eval_report *report);
/* eval_html_figure.c */
void soda_eval_html_figure(FILE *out, const struct soda_eval_report *report,
			   const struct soda_eval_figure *figure);

#endif
