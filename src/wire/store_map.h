/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The map of a file in the node's store: one memfd that the agent and the processes of one user
 * have mapped, beside the memfds with the file's data.
 *
 *   | head | words | touched | member 0 | member 1 | ... |       each from a page's beginning on
 *
 * words     one for each chunk of the file, written by the agent alone (and, once no agent answers
 *           for it any more, by the processes): its state, and a generation that grows with each
 *           eviction.  READY: all pages of the chunk are in the memfd.
 * touched   one byte for each chunk, set by a process that maps it (enum soda_store_touch), cleared
 *           by the agent that looks for what to evict.
 * members   for each process that has joined: the chunks, + 1, that its threads have mapped last;
 *           SODA_STORE_LAST of each of SODA_STORE_RINGS threads.  Nothing of them is evicted as
 *           long as there is anything else.
 *
 * A process notes a chunk in its ring, then looks at the word; the agent makes the word EMPTY, then
 * looks at the rings.  All four accesses are sequentially consistent: either the agent sees that
 * the chunk is held, or the process that the chunk is not READY.
 *
 * The agent takes no decision about its own memory from words: it keeps states of its own.
 */
#ifndef SODA_WIRE_STORE_MAP_H
#define SODA_WIRE_STORE_MAP_H

#include <stdatomic.h>
#include <stdint.h>

#include "wire/wire.h"

#ifdef SODA_SIMULATION /* whose stores have few chunks */
enum { SODA_STORE_MEMBERS = 64, SODA_STORE_RINGS = 256, SODA_STORE_LAST = 4 };
#else
enum { SODA_STORE_MEMBERS = 64, SODA_STORE_RINGS = 64, SODA_STORE_LAST = 16 };
#endif

/* A word's state, in its low bits, and one generation. */
enum soda_store_state {
	SODA_STORE_EMPTY = 0,
	SODA_STORE_FILLING = 1,
	SODA_STORE_READY = 2,
};
#define SODA_STORE_STATE 3u
#define SODA_STORE_GENERATION 4u

/*
 * How a process came to a chunk: by itself, or PASSED it with a stream, whose READs ahead may have
 * brought it.  Other values are taken for TOUCHED, the only one that older processes set; an older
 * agent takes each for it.
 */
enum soda_store_touch {
	SODA_STORE_UNTOUCHED = 0,
	SODA_STORE_TOUCHED = 1,
	SODA_STORE_PASSED = 2,
};

#define SODA_STORE_MAGIC 0x4e444f53u /* "SODN" */

/* Constant from before the first process maps it. */
struct soda_store_map {
	uint32_t magic, chunk_bytes, chunks, zero;
	uint64_t file_id, generation;
};

static inline uint64_t soda_store_pages(uint64_t bytes)
{
	return (bytes + SODA_WIRE_PAGE - 1) / SODA_WIRE_PAGE * SODA_WIRE_PAGE;
}

static inline uint64_t soda_store_touched_at(uint32_t chunks)
{
	return SODA_WIRE_PAGE + soda_store_pages(chunks * (uint64_t)sizeof(uint32_t));
}

static inline uint64_t soda_store_members_at(uint32_t chunks)
{
	return soda_store_touched_at(chunks) + soda_store_pages(chunks);
}

static inline uint64_t soda_store_map_bytes(uint32_t chunks)
{
	return soda_store_members_at(chunks) + SODA_STORE_MEMBERS * (uint64_t)SODA_WIRE_PAGE;
}

static inline _Atomic uint32_t *soda_store_words(struct soda_store_map *map)
{
	return (_Atomic uint32_t *)((char *)map + SODA_WIRE_PAGE);
}

static inline _Atomic uint8_t *soda_store_touched(struct soda_store_map *map, uint32_t chunks)
{
	return (_Atomic uint8_t *)map + soda_store_touched_at(chunks);
}

/* The member's rings, one behind the other. */
static inline _Atomic uint32_t *soda_store_member(struct soda_store_map *map, uint32_t chunks,
						  uint32_t member)
{
	return (_Atomic uint32_t *)((char *)map + soda_store_members_at(chunks) +
				    member * (uint64_t)SODA_WIRE_PAGE);
}
_Static_assert(SODA_STORE_RINGS *SODA_STORE_LAST * sizeof(uint32_t) == SODA_WIRE_PAGE, "a page");

#endif
