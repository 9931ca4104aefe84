/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_CLOCK_H
#define LIGRA_CLOCK_H

#include <time.h>

static inline double clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
