/* SPDX-License-Identifier: BSD-3-Clause */
/* A writer of statistics that calls a function at everything that the walk says. */
#ifndef SODA_TESTS_FAKE_METRICS_H
#define SODA_TESTS_FAKE_METRICS_H

#include "daemon/metrics.h"

/* How many times said was called. */
unsigned fake_metrics_walk(soda_metrics_walk *walk, void *arg, void (*said)(void));

#endif
