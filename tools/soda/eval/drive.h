/* SPDX-License-Identifier: BSD-3-Clause */
/* The runs one after the other, and what becomes of them. */
#ifndef SODA_EVAL_DRIVE_H
#define SODA_EVAL_DRIVE_H

#include "soda/eval/eval.h"
#include "soda/eval/readahead.h"
#include "soda/eval/results.h"
#include "soda/stage/guard.h"

struct soda_eval_drive {
	struct soda_eval_plan *plan;
	const char *command; /* as it was typed */
	enum soda_eval_begin begin;
	struct soda_eval_readahead disk; /* as it was before */
};

/* Before soda_bench_guard_run: what has to be known to clean up. */
void soda_eval_drive_prepare(struct soda_eval_drive *drive);
/* For soda_bench_guard_run; arg is the drive. */
int soda_eval_drive_run(void *arg, const struct soda_bench_guarded *guarded);
void soda_eval_drive_clean(void *arg, const struct soda_bench_guarded *guarded);

#endif
