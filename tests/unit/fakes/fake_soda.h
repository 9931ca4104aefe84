/* SPDX-License-Identifier: BSD-3-Clause */
/* soda.h on the heap, for tests of programs that use it: what it was asked for, and failures. */
#ifndef FAKE_SODA_H
#define FAKE_SODA_H

#include <soda.h>

struct fake_soda {
	unsigned threads;    /* of the last soda_init() */
	int allocs_left;     /* this many succeed, the next fails with ENOSPC; -1: all succeed */
	unsigned live;	     /* objects that are not freed */
	int init_result;     /* of soda_init() */
	unsigned sequential; /* calls of soda_advise() with SODA_SEQUENTIAL */
	unsigned prefetches; /* calls of soda_prefetch() */
};
extern struct fake_soda fake_soda;

#endif
