/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of numbers that `soda eval` ends with; the page is made of the first
 * (soda/report/make.h).
 */
#ifndef SODA_EVAL_REPORT_H
#define SODA_EVAL_REPORT_H

#include "soda/eval/results.h"

/* What all of them are made of. */
struct soda_eval_report {
	const struct soda_eval_plan *plan;
	const struct soda_eval_results *results;
	const char *cap; /* how memory was capped, a sentence */
	json_t *machine; /* borrowed; NULL: nothing was run */
};

/* Each 0, or negative errno after a message. */
int soda_eval_write_json(const struct soda_eval_report *report); /* OUT/results.json */
int soda_eval_write_csv(const struct soda_eval_report *report);	 /* OUT/results.csv */

#endif
