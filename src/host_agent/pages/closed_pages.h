/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages that the program has closed to itself (mprotect) while they hold data that the server has
 * not.  Whoever writes back reads the program's pages, and where that fails reads them past their
 * protection: only the pages are closed, the data are as good as ever.
 */
#ifndef SODA_HOST_CLOSED_PAGES_H
#define SODA_HOST_CLOSED_PAGES_H

#include <stddef.h>

/* Failed reads (base/guard.h) of fabric memory are errors from now on. Negative errno. */
int soda_closed_start(void);
void soda_closed_stop(void);

/*
 * A copy of [from, from + bytes), whatever may be done with that, in memory of its own, until
 * soda_closed_free. NULL: out of memory, or the kernel has no /proc/self/mem for it. AS.
 */
void *soda_closed_copy(const void *from, size_t bytes);
void soda_closed_free(void *copy, size_t bytes);

#endif
