/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of this process's host agent: one global, because a signal handler gets no argument.
 * soda_agent_start (life/start.h) sets the fields before any fault can happen; then they are
 * constant, unless a comment says otherwise.
 *
 * Threads
 *   application threads  take faults; in inline mode they serve them (SIGBUS handler),
 *                        drop clean chunks, collect answers
 *   handler              handler mode: serves all faults, never waits for one of them
 *   keeper               control connection, reconnection, connections for new threads,
 *                        answers to READs ahead that no thread collects, `soda stat`
 *   writeback            sends dirty chunks, drops those that are to be evicted
 *
 * Lock order: enum soda_lock_rank.
 */
#ifndef SODA_HOST_AGENT_H
#define SODA_HOST_AGENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host_agent/core/buffer.h"
#include "host_agent/core/chunk.h"
#include "host_agent/core/link.h"
#include "host_agent/core/page_ops.h"
#include "host_agent/core/replace.h"
#include "host_agent/core/settings.h"
#include "pool/pool.h"

enum soda_agent_life { SODA_LIFE_NEW, SODA_LIFE_RUNNING, SODA_LIFE_ENDED, SODA_LIFE_FORKED };

struct soda_agent {
	_Atomic uint32_t life;	   /* enum soda_agent_life */
	struct soda_lock api_lock; /* held for start, end, and changes of the table of objects */
	pid_t pid;
	struct soda_settings settings;
	/* To each member, of the settings; NULL: nobody proves anything. */
	struct soda_identity *identities[SODA_MEMBERS_MAX];
	struct soda_uffd_info uffd;
	const struct soda_page_ops *page_ops;

	/* The reserved address range, and the chunk table beside it. */
	char *base;
	uint64_t bytes;
	struct soda_chunk *table;
	uint32_t chunk_shift, block_shift;
	uint32_t processors; /* that this process may run on */
	bool may_poll;	     /* processors > 1, and SODA_POLL is not off */

	/*
	 * To the memory server, or to each member of a pool of them; synchronised in link.h.
	 * members: how many are in use; more are added with api_lock, none is taken away.
	 */
	struct soda_link links[SODA_MEMBERS_MAX];
	_Atomic uint32_t members;
	/*
	 * The pool that a DPU agent stands in front of: the agent's address, "" where there is
	 * none, and the servers.  Each link is a session with the agent for one of them.
	 */
	char agent[SODA_ADDRESS_MAX + 1];
	struct soda_members behind;
	_Atomic bool redundant;	   /* some slabs have copies, or had; changed with api_lock, once */
	struct soda_buffer buffer; /* synchronised in buffer.h */
	struct soda_replacer replacer;	     /* synchronised in replace.h */
	_Atomic uint64_t fam_bytes;	     /* span of all objects; changed with api_lock */
	_Atomic uint64_t store_object_bytes; /* of it, in the node's store: pages/shared.c */
	_Atomic uint64_t metadata_bytes;
	_Atomic uint32_t reconnects;
};

extern struct soda_agent soda_agent;

static inline uint64_t soda_chunk_bytes(void)
{
	return 1ull << soda_agent.chunk_shift;
}

/* How many memory servers the objects' slabs may lie on. AS. */
static inline uint32_t soda_members(void)
{
	/* with soda_session_publish(): the link of the last one is complete */
	return atomic_load_explicit(&soda_agent.members, memory_order_acquire);
}

static inline bool soda_agent_owns(const void *addr)
{
	return (uintptr_t)addr - (uintptr_t)soda_agent.base < soda_agent.bytes;
}

static inline uint32_t soda_chunk_of(const void *addr)
{
	return (uint32_t)(((uintptr_t)addr - (uintptr_t)soda_agent.base) >> soda_agent.chunk_shift);
}

static inline char *soda_chunk_address(uint32_t id)
{
	return soda_agent.base + ((uint64_t)id << soda_agent.chunk_shift);
}

/*
 * Which block of its chunk addr lies in. A chunk has 16 blocks, or, if it has fewer pages, as many.
 */
static inline uint32_t soda_block_of(const void *addr)
{
	uint64_t at = (uintptr_t)addr & (soda_chunk_bytes() - 1);

	return (uint32_t)(at >> soda_agent.block_shift);
}

/* The dirty mask with all blocks of a chunk. */
static inline uint32_t soda_blocks_all(void)
{
	uint32_t n = 1u << (soda_agent.chunk_shift - soda_agent.block_shift);

	return n == 16 ? 0xffffu : (1u << n) - 1;
}

/* Set and read the calling thread's text for soda_last_error(). */
void soda_explain(const struct soda_why *why);
const char *soda_explained(void);

#endif
