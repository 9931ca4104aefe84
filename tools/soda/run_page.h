/* SPDX-License-Identifier: BSD-3-Clause */
/* The page of `soda run --report`: a table, and a picture that gnuplot draws. */
#ifndef SODA_TOOL_RUN_PAGE_H
#define SODA_TOOL_RUN_PAGE_H

#include "common/run_samples.h"

/* 0, or -1 with one line on standard error. */
int soda_run_page_write(const char *path, char *const *argv, int status,
			const struct soda_run_samples *samples);

#endif
