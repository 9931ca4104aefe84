/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mappings behind the reserved addresses: made, made to fail, made anew.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_MAPPING_H
#define SODA_HOST_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Prepare a new mapping: a forked child must never read zeros from it, and the kernel must never
 * put a huge page where one page is missing.  Not 0: errno says why not.
 */
int soda_mapping_prepare(void *addr, uint64_t bytes);
/* Map the addresses as they were at the start, without pages. Negative errno. AS. */
int soda_mapping_anew(void *addr, size_t bytes, int prot);

/*
 * Replace the page by a mapping whose every touch is SIGBUS: for kernels before 6.6, which cannot
 * poison a page, and where the kernel keeps a mark of its own on it.  prot is the object's, because
 * a store to a read-only mapping would be SIGSEGV.  Without memory or descriptors the process ends.
 */
void soda_mapping_fail(char *page, int prot);
/* Whether soda_mapping_fail() has replaced any page since the start. */
bool soda_mapping_any_failing(void);
/*
 * Handler mode: pages of chunks that can be had again are being made to fail for a moment, by
 * poison or so; and whether any was.
 */
void soda_mapping_mark(void);
bool soda_mapping_any_marked(void);
/*
 * Pages that cannot be had are made to fail, for a moment, or while their chunk is LOST.  Map them
 * again as they were at the start, without pages; the caller owns the chunk, so that no other
 * thread installs it meanwhile.  Negative errno. AS.
 */
int soda_mapping_clear(char *addr, size_t bytes, int prot);

/*
 * closed_pages.c: pages that the program has closed to itself (mprotect) while they hold data that
 * the server has not.  The thread that writes back reads the program's pages; where that fails it
 * reads them past their protection, by /proc/self/mem, because the data are still to be written
 * back.
 */

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
