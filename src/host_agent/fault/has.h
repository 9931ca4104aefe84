/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What this process has around a chunk that it asks for: told to an agent that fetches ahead of
 * us, so that it leaves out what we would not ask it for.
 */
#ifndef SODA_HOST_HAS_H
#define SODA_HOST_HAS_H

#include "host_agent/object/region.h"

/*
 * A look at the states of 128 chunks, 2 KiB of the chunk table, without a lock: what
 * changes meanwhile makes it a worse hint.  AS.
 */
void soda_has_around(const struct soda_region *r, uint32_t id, struct soda_wire_has *has_p);

#endif
