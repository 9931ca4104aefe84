/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects that have joined the node's store of a DPU agent on this machine: their addresses are
 * mappings of the store's memfds, registered with userfaultfd, and a chunk is here when the store
 * has it.  wire/store_map.h is the map that process and agent share.
 *
 * The chunks of such an object are SHARED (core/chunk.h): the page buffer, its policy and its
 * credits do not know them.  While a request for one is under way it is FETCHING, with a credit, as
 * any other; the answer makes it SHARED again and gives the credit back.
 *
 * An agent that has no store for the object any more, as it is another one than before, or that has
 * no memory for a chunk, sends the data: then the process puts them into the memfd itself, and
 * evicts what it has put there beyond the size of its page buffer.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_SHARED_H
#define SODA_HOST_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/thread.h"
#include "host_agent/object/region.h"
#include "host_agent/pages/install.h"
#include "transport/api/transport.h"
#include "wire/store_map.h"
#include "wire/wire.h"

/* What the agent has passed: descriptors, each -1 or the owner's to close. */
struct soda_shared_memory {
	struct soda_wire_stored stored;
	int map_fd;
	int *parts; /* stored.parts of them, from malloc(); or NULL */
};

void soda_shared_close(struct soda_shared_memory *memory);

/*
 * Map an object's addresses, which no thread touches yet, on this memory, and set r->shared, which
 * owns `memory` from then on.  Negative errno, and why: the addresses are as they were.
 */
int soda_shared_attach(struct soda_region *r, struct soda_shared_memory *memory,
		       struct soda_why *why);
/* Whether the agent is the one whose store the object has joined, as its welcome on that link says.
 */
bool soda_shared_knows(const struct soda_region *r, const struct soda_link *link);
/*
 * That agent has given the process a place again, and no READ is under way.  map_fd, which is
 * taken: of the map.  If it is another one the agent's store has the file anew, and is not used.
 */
void soda_shared_rejoined(struct soda_region *r, const struct soda_wire_stored *stored, int map_fd);
/*
 * Nobody touches the object any more: unmap it from the store, and leave its addresses without
 * access or pages.  Not 0: something may lie there still, they are used up.
 */
int soda_shared_detach(struct soda_region *r);
/*
 * A page of the object was made to fail (soda_page_ops.poison, soda_mapping_fail): it is a missing
 * one again.  The caller has its chunk FETCHING.  Negative errno: it fails for good. AS.
 */
int soda_shared_revive(const struct soda_region *r, char *page);
/* The object's addresses are unmapped already, at the runtime's end: give the rest back. */
void soda_shared_forget(struct soda_region *r);
/* In the child of a fork, which has the descriptors and none of the mappings. */
void soda_shared_forked(const struct soda_region *r);

/*
 * A thread has touched the chunk: note that, and map its pages if the store has them. 0; -ENOENT:
 * it does not, ask the agent; other errors of the pager.  again: the same fault has waited for the
 * chunk, and what the answer has mapped is not mapped once more.  AS.
 */
int soda_shared_touch(struct soda_thread *t, struct soda_region *r, uint32_t id,
		      enum soda_store_touch how, bool again);
/*
 * Whether the agent is to send the chunk's data, although it has the chunk: pages of it are gone
 * from the memfd that it has not evicted, or its word is wrong, as the last answer has shown. AS.
 */
bool soda_shared_mends(const struct soda_region *r, uint32_t id);
/* Whether nobody has brought the chunk, as far as the map says. AS. */
bool soda_shared_lacks(const struct soda_region *r, uint32_t id);
/* Whether somebody is bringing it. AS. */
bool soda_shared_fills(const struct soda_region *r, uint32_t id);
/*
 * The agent has answered: map the chunk's pages.  data: NULL; or the chunk's content, from an agent
 * that does not keep it, which is put where it is missing. As soda_shared_touch. AS.
 */
int soda_shared_arrived(struct soda_thread *t, struct soda_region *r, const struct soda_install *in,
			const void *data);

#endif
