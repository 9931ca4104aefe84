/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kept chunks: those that were to be evicted, and must not be dropped, though they cannot be
 * written now.  They are memory beside the page buffer, so that other chunks have its room.  There
 * are two reasons:
 *
 * Unacknowledged: the DPU agent has acknowledged the chunk's WRITE, and the memory server has not
 * (object/unacked.h).  Such a chunk is never dropped, so the agent's death loses nothing:
 * recover.c makes it dirty, and it is written back to the next agent as any dirty chunk is.  How
 * the whole of it works is in docs/internals/dpu-agent.md, "An agent's death".
 *
 *   CLEAN, in the policy's lists, unacknowledged, to be evicted
 *     -> kept: CLEAN, in no list of the policy; its credit goes back to the page buffer
 *     -> the server has it: BUSY, dropped
 *     -> or a thread has stored to it, holds it or pins it: in the lists again, with a credit
 *     -> or its object is freed, or its range discarded
 *
 * They are at most SODA_AGENT_KEEP and a quarter of the buffer.  Where there is no room for another
 * one the chunk stays in the buffer, and in the policy's lists, until the server has it.
 *
 * Refused: the chunk is dirty, and the server does not open its object any more (pool/recover.h).
 *
 *   DIRTY, in the policy's lists, its object is refused, to be evicted
 *     -> kept: DIRTY, in no list of the policy; its credit goes back to the page buffer
 *     -> the server has taken the object: in the lists again, with a credit
 *     -> or its object is freed, or its range discarded
 *
 * All that is kept is then at most as large as the buffer; what is beyond that stays in the buffer.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_KEPT_H
#define SODA_HOST_KEPT_H

#include <stdbool.h>
#include <stdint.h>

/* Reserve a bit for each chunk. -ENOMEM.  undo: unmap them, which were for that many chunks. */
int soda_kept_start(void);
void soda_kept_undo(uint64_t chunks);

/*
 * Keep a BUSY chunk that is to be evicted and is unacknowledged; it is CLEAN afterwards.  True: it
 * is kept, and a credit has come back.  False: there was no room, so it is in the policy's lists.
 * AS.
 */
bool soda_kept_add(uint32_t id);
/* The same for n chunks: ids of kept ones are taken out of the array. How many were kept. AS. */
int soda_kept_add_some(uint32_t *ids, int *n_p);
/* Whether there is room for another one; where there is none the keeper is told to hurry. AS. */
bool soda_kept_room(void);
/* Whether the chunk's object is refused, and there is room for another such chunk. AS. */
bool soda_kept_takes_refused(uint32_t id);
/*
 * Keep those of n BUSY chunks that are dirty, as their objects are refused; their ids are taken out
 * of the array.  One whose object has just been taken is in the policy's lists again.  How many
 * were kept. AS.
 */
int soda_kept_add_refused(uint32_t *ids, int *n_p);
/*
 * The server has taken the object that it had refused, and r->refused says so: none of the object's
 * chunks is kept any more.  Waits for a thread that has one BUSY.
 */
struct soda_region;
void soda_kept_return(struct soda_region *r);
/* The BUSY chunk's pages are dropped: if it was kept it is kept no longer. AS. */
void soda_kept_forget(uint32_t id);
bool soda_kept_has(uint32_t id);

/* A fault waits for a credit: if chunks are kept, the keeper shall ask the agent at once. AS. */
void soda_kept_hurry(void);
/* Whether the keeper shall ask the agent again soon. */
bool soda_kept_pressing(void);
/*
 * Drop the kept chunks that the server has by now.  The keeper calls this; written: the server has
 * got some since the last time, and who waits for a credit may find chunks to evict.
 */
void soda_kept_look(bool written);

/* Memory that the bits and the list take. */
uint64_t soda_kept_bytes(void);

#endif
