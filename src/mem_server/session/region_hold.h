/* SPDX-License-Identifier: BSD-3-Clause */
/* The slot of a region: for region.c only.  See the picture in region.h. */
#ifndef SODA_MEM_SERVER_REGION_HOLD_H
#define SODA_MEM_SERVER_REGION_HOLD_H

#include "mem_server/session/region.h"

/* The region, or NULL. Holder of the set's control lock. */
struct soda_region *soda_region_slot_get(const struct soda_region_slot *slot);
void soda_region_slot_open(struct soda_region_slot *slot, struct soda_region *region);
/* Let no hold begin, and await those that there are. 0, -EBUSY after close_ms (still closed). */
int soda_region_slot_close(struct soda_region_set *set, struct soda_region_slot *slot);

#endif
