/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a text is in the Prometheus exposition format, as strictly as its own tools ask. */
#ifndef SODA_TEST_PROMCHECK_H
#define SODA_TEST_PROMCHECK_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The whole of it: HELP and TYPE before the samples of a family, which stand
 * together; names, labels, escapes and values well formed; no series twice;
 * counters named _total; histograms cumulative, with +Inf, _sum and _count that agree.
 * Returns the number of samples, or -1 after a line on standard error that says where and what.
 */
int prom_check(const char *text);

/* The value of the series with exactly this name and these labels ("a{b=\"c\"}"). False: none. */
bool prom_value(const char *text, const char *series, double *value_p);

#endif
