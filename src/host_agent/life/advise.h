/* SPDX-License-Identifier: BSD-3-Clause */
/* What soda_advise() and soda_prefetch() do, on a checked range of one object. */
#ifndef SODA_HOST_ADVISE_H
#define SODA_HOST_ADVISE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "host_agent/object/region.h"

/* Errors of soda_advise(). */
int soda_advise_range(struct soda_region *r, char *addr, size_t bytes, int advice,
		      struct soda_why *why);
/*
 * DISCARD of what nobody uses before the call returns: the server gives its memory back, too, if
 * it can.  May wait as long as a fault.  Errors of DISCARD.
 */
int soda_advise_purge(struct soda_region *r, char *addr, size_t bytes);
/*
 * Ask for what is remote in n ranges, each inside one object, as far as the budget goes. Never
 * waits.
 */
void soda_advise_willneed(const struct iovec *ranges, int n);
/* As COLD of chunks first .. last, pinned ones too. 0, or an error: not all was written back. */
int soda_advise_vacate(uint32_t first, uint32_t last);

#endif
