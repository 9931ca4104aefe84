/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages that the program has closed to itself (mprotect) while they hold data that the server has
 * not.  The thread that writes back reads the program's pages; where that fails it reads them past
 * their protection, by /proc/self/mem, because the data are still to be written back.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_CLOSED_PAGES_H
#define SODA_HOST_CLOSED_PAGES_H

#include <stddef.h>

/* From now on a failed read of fabric memory (base/guard.h) is an error, not a signal. Negative
 * errno. */
int soda_closed_start(void);
void soda_closed_stop(void);

/*
 * A copy of [from, from + bytes), readable or not, in memory of its own, until
 * soda_closed_free. NULL: out of memory, or the kernel has no /proc/self/mem for it. AS.
 */
void *soda_closed_copy(const void *from, size_t bytes);
void soda_closed_free(void *copy, size_t bytes);

#endif
