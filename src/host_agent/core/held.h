/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chunks that stay resident because the kernel or another process is about to use them, and takes
 * no fault: soda_hold(), and `soda run` for the length of a call.  Holders are counted here,
 * because the chunk's own count (soda_chunk_hold) goes no higher than 63.  A held chunk counts as
 * pinned in the page buffer.
 *
 * Any thread; not async-signal-safe.
 */
#ifndef SODA_HOST_HELD_H
#define SODA_HOST_HELD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How many chunks may be held: a tenth of the page buffer, and no fewer than one instruction may
 * need.
 */
uint32_t soda_held_allowance(void);
/*
 * Count one more holder of the chunk, which is not evicted until the last of them has given it
 * back; it may not be resident yet.  false: it is not held, and others are that are all of the
 * allowance, or one of `share` equal parts of it; a buffer that can be widened has been.
 */
bool soda_held_take(uint32_t id, uint32_t share);
/* Nothing happens where nobody holds the chunk. */
void soda_held_give(uint32_t id);
/* These chunks are no object's any more: nobody holds them. */
void soda_held_forget(uint32_t first, uint32_t n);
/* How many chunks are held; and whether this one is. */
uint32_t soda_held_chunks(void);
bool soda_held_has(uint32_t id);

#endif
