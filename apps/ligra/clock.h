/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_CLOCK_H
#define LIGRA_CLOCK_H

#include <sys/resource.h>
#include <time.h>

static inline double clock_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Of all threads of this process, user and system. */
static inline double clock_cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

#endif
