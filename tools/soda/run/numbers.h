/* SPDX-License-Identifier: BSD-3-Clause */
/* What `soda run --report` has seen of a program, as JSON (format soda-run; tools/report reads it).
 */
#ifndef SODA_TOOL_RUN_NUMBERS_H
#define SODA_TOOL_RUN_NUMBERS_H

#include <limits.h>

#include "base/run_samples.h"

/* The file that goes with a page: .json in the place of .html, or after the whole name. */
void soda_run_numbers_name(const char *page, char path[PATH_MAX]);

/* 0, or -1 with one line on standard error. */
int soda_run_numbers_write(const char *path, char *const *argv, int status,
			   const struct soda_run_samples *samples);

#endif
