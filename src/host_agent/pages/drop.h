/* SPDX-License-Identifier: BSD-3-Clause */
/* Resident chunks lose their pages. */
#ifndef SODA_HOST_DROP_H
#define SODA_HOST_DROP_H

#include <stdbool.h>
#include <stdint.h>

enum { SODA_DROP_MAX = 32 };

/*
 * Drop up to SODA_DROP_MAX chunks that the caller has made BUSY and taken out of the policy's
 * lists: their pages go, waiters are woken, credits come back.  ids is sorted in place. Returns how
 * many were dropped; those that the kernel refuses become CLEAN again.  One that it lets go of in
 * part counts as dropped, as its pages are the server's. AS.
 */
int soda_drop_chunks(uint32_t *ids, int n);

/*
 * The kernel has refused to drop pages, which stay in memory; the first time it is logged.
 * partly: of a chunk that is no longer resident, with the server's content. AS.
 */
void soda_drop_refused(int err, bool partly);
/* Whether chunks that are not resident may have pages of old content. AS. */
bool soda_drop_left_pages(void);

#endif
