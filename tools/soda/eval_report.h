/* SPDX-License-Identifier: BSD-3-Clause */
/* The files that `soda eval` ends with. */
#ifndef SODA_EVAL_REPORT_H
#define SODA_EVAL_REPORT_H

#include "eval_results.h"

/* What all of them are made of. */
struct soda_eval_report {
	const struct soda_eval_plan *plan;
	const struct soda_eval_results *results;
	const char *cap; /* how memory was capped, a sentence */
	const json_t *machine;
	char no_figures[256]; /* why there are none; "": there are */
};

/* Each 0, or negative errno after a message. */
int soda_eval_write_json(const struct soda_eval_report *report); /* OUT/results.json */
int soda_eval_write_csv(const struct soda_eval_report *report);	 /* OUT/results.csv */
int soda_eval_write_html(const struct soda_eval_report *report); /* OUT/report.html */

/* Open OUT/name for writing; NULL after a message. */
FILE *soda_eval_create(const struct soda_eval_plan *plan, const char *name);
/* Close it; 0 or negative errno after a message. */
int soda_eval_finish(const struct soda_eval_plan *plan, const char *name, FILE *out);

#endif
