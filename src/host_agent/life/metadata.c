/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/metadata.h"

#include "host_agent/core/thread.h"
#include "host_agent/move/outgoing.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/owed.h"
#include "host_agent/object/region.h"

/* The chunk table is touched in whole pages, an object's entries at a time. */
static int add(struct soda_region *r, void *arg)
{
	uint64_t page = SODA_WIRE_PAGE, *sum = arg;
	uint64_t entries = (uint64_t)r->chunks * sizeof(struct soda_chunk);

	*sum += ((entries + page - 1) & ~(page - 1)) + sizeof(*r) + soda_guess_bytes(r);
	return 0;
}

uint64_t soda_metadata_bytes(void)
{
	uint64_t sum = soda_threads_bytes() + soda_owed_bytes() + soda_outgoing_bytes() +
		       sizeof(soda_agent);

	soda_regions_lock();
	soda_regions_each(add, &sum);
	soda_regions_unlock();
	return sum;
}
