/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits of waits in tests.  While this process itself stands still (a frozen cgroup, a stopped
 * machine) its limits do, too: so does what it waits for.
 */
#ifndef SODA_TEST_LIMIT_H
#define SODA_TEST_LIMIT_H

#include <stdbool.h>
#include <sys/types.h>

/* To be asked at least so often, in milliseconds: of a longer pause no more is counted. */
enum { LIMIT_LOOK_MS = 500 };

struct limit {
	long left_ms, seen_ms;
};

void limit_begin(struct limit *l, long ms);
bool limit_over(struct limit *l);

/*
 * `what` is over its limit: say on standard error where each thread of each process below this
 * one stands, the servers beside it included (tests/lib/where). Takes 40 s at most.
 */
void limit_tell(const char *what);

#endif
