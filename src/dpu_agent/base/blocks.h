/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that requests' data lie in.  What is received into a block is sent from
 * it: nothing is copied.  Blocks are counted references; free ones are kept, by
 * size, the last used first.
 */
#ifndef SODA_DPU_AGENT_BLOCKS_H
#define SODA_DPU_AGENT_BLOCKS_H

#include <stdatomic.h>
#include <stdint.h>

/* Something that keeps memory alive which an answer is sent from: soda_span.hold. */
struct soda_hold {
	void (*put)(struct soda_hold *hold);
};

struct soda_block {
	struct soda_hold hold; /* puts one reference */
	_Atomic uint32_t refs;
	uint32_t bytes; /* a power of two */
	uint8_t *memory;
	struct soda_block *next; /* while it is free */
};

/* At least that many bytes (at most SODA_WIRE_MAX_DATA), with one reference. NULL: no memory. */
struct soda_block *soda_block_get(uint32_t bytes);
void soda_block_ref(struct soda_block *block, uint32_t n);
void soda_block_put(struct soda_block *block);

/* Of all blocks, in use and free. */
uint64_t soda_blocks_bytes(void);
/* At the end of the program: free the free ones. */
void soda_blocks_free(void);

#endif
