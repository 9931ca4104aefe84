/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A producer's areas: memory that it computes in (soda_move_alloc()), and that the agent has made
 * and mapped, so that a list of pieces in it is copied without a system call, for each
 * user's producers.  The producer can write there at any time: what lies there is data, and one
 * word (struct soda_move_area_tail), which is loaded once.
 *
 * Threads: changed by the client's calls alone, with the movement's lock (tickets.h); an area that
 * a ticket names stays.
 */
#ifndef SODA_DPU_AGENT_MOVEMENT_AREAS_H
#define SODA_DPU_AGENT_MOVEMENT_AREAS_H

#include "dpu_agent/movement/buffers.h"

struct soda_area {
	uint8_t *memory; /* NULL: there is none of this number */
	int fd;
	uint64_t bytes;	 /* of the data, in whole pages */
	uint32_t tenant; /* whose share it is of */
};

struct soda_areas {
	struct soda_area at[SODA_MOVE_AREAS];
};

/*
 * Make an area of so many bytes, counted against the budget as the tenant's; it is not in the table
 * yet.  -EINVAL: no such size; -ENOSPC: over the budget; -ENOMEM; -ENOTSUP. why is set.
 */
int soda_area_make(struct soda_buffers *all, uint64_t bytes, uint32_t tenant,
		   struct soda_area *area_p, struct soda_why *why);
/* memory NULL: nothing. */
void soda_area_unmake(struct soda_buffers *all, struct soda_area *area);

/*
 * Have `from` of those pieces of a checked list that lie in areas be an address of the agent's.
 * *used_p: which areas they are in, a bit for each; *bytes_p: how many bytes they copy.  -EINVAL:
 * there is no such area, or a piece ends behind it: *what_p (a constant) says which.
 */
int soda_areas_resolve(const struct soda_areas *areas, struct soda_wire_piece *pieces, size_t n,
		       uint64_t *used_p, uint64_t *bytes_p, const char **what_p);
/* Whether the producer has kept what lies in these as it was, up to now. */
bool soda_areas_stand(const struct soda_areas *areas, uint64_t used);

#endif
