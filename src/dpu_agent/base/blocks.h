/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for the data of requests.  Data are received into a block and sent from
 * the same block, without a copy.  A block counts its references; free blocks are kept for
 * reuse, by size, the last used first.
 */
#ifndef SODA_DPU_AGENT_BLOCKS_H
#define SODA_DPU_AGENT_BLOCKS_H

#include <stdatomic.h>
#include <stdint.h>

/* Keeps the memory alive from which an answer is sent (soda_span.hold), until put is called. */
struct soda_hold {
	void (*put)(struct soda_hold *hold);
};

struct soda_block {
	struct soda_hold hold; /* puts one reference */
	_Atomic uint32_t refs;
	uint32_t bytes; /* a power of two */
	uint8_t *memory;
	struct soda_block *next; /* while it is free */
	/*
	 * The getter's: called with `of` when the last reference has gone, by the thread that had
	 * it, with whatever locks; set before there is another reference.  NULL: nothing.
	 */
	void (*ended)(void *of, uint32_t bytes);
	void *of;
};

/*
 * A block of at least that many bytes (at most SODA_WIRE_MAX_DATA), with one reference. NULL: no
 * memory.
 */
struct soda_block *soda_block_get(uint32_t bytes);
/* n references more. */
void soda_block_ref(struct soda_block *block, uint32_t n);
/* One reference less. */
void soda_block_put(struct soda_block *block);

/* Memory of all blocks, used and free ones. */
uint64_t soda_blocks_bytes(void);
/* At the end of the program: free the free ones. */
void soda_blocks_free(void);

#endif
