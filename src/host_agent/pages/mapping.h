/* SPDX-License-Identifier: BSD-3-Clause */
/* The mappings behind the reserved addresses: made, made to fail, made anew. */
#ifndef SODA_HOST_MAPPING_H
#define SODA_HOST_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Of a new mapping: a child must never read zeros here, and a huge page never stand in for 4 KiB.
 * Not 0: errno says why not.
 */
int soda_mapping_prepare(void *addr, uint64_t bytes);
/* Addresses as they were at the start, with nothing in them. Negative errno. AS. */
int soda_mapping_anew(void *addr, size_t bytes, int prot);

/*
 * Before Linux 6.6, and where the kernel keeps a mark of its own on the page: a mapping whose every
 * touch is SIGBUS.  What may be stored to is writable in it, or a store would be SIGSEGV.
 * Without memory or descriptors for that the process ends.
 */
void soda_mapping_fail(char *page, int prot);
/* There are, or were, pages that another mapping makes fail. */
bool soda_mapping_any_failing(void);
/*
 * A page that cannot be had is made to fail, for a moment, or while its chunk is LOST.  Its mapping
 * becomes as it was, with nothing in it, for a chunk that nobody else brings meanwhile.  Negative
 * errno. AS.
 */
int soda_mapping_clear(char *addr, size_t bytes, int prot);

#endif
