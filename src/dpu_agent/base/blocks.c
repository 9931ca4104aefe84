/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/base/blocks.h"

#include <pthread.h>
#include <stdlib.h>

#include "transport/api/memory.h"
#include "wire/wire.h"

enum { CLASSES = 11, SMALLEST = 4096 };

#define KEEP_BYTES (64u << 20) /* free blocks beyond it go back to the system */

static struct {
	pthread_mutex_t lock;
	struct soda_block *free[CLASSES]; /* guarded by lock */
	uint64_t free_bytes;		  /* guarded by lock */
	_Atomic uint64_t bytes;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

_Static_assert(SMALLEST << (CLASSES - 1) == SODA_WIRE_MAX_DATA, "the largest class");

static unsigned class_of(uint32_t bytes)
{
	unsigned i = 0;

	while ((uint32_t)SMALLEST << i < bytes)
		i++;
	return i;
}

static void hold_put(struct soda_hold *hold)
{
	soda_block_put((struct soda_block *)hold);
}

static struct soda_block *block_new(uint32_t bytes)
{
	struct soda_block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->bytes = bytes;
	b->hold.put = hold_put;
	b->memory = aligned_alloc(SODA_WIRE_PAGE, bytes);
	if (!b->memory) {
		free(b);
		return NULL;
	}
	soda_memory_add(b->memory, bytes); /* where that fails, data are copied */
	atomic_fetch_add_explicit(&pool.bytes, bytes, memory_order_relaxed);
	return b;
}

static void block_free(struct soda_block *b)
{
	atomic_fetch_sub_explicit(&pool.bytes, b->bytes, memory_order_relaxed);
	soda_memory_remove(b->memory, b->bytes);
	free(b->memory);
	free(b);
}

struct soda_block *soda_block_get(uint32_t bytes)
{
	unsigned i = class_of(bytes);
	struct soda_block *b;

	pthread_mutex_lock(&pool.lock);
	b = pool.free[i];
	if (b) {
		pool.free[i] = b->next;
		pool.free_bytes -= b->bytes;
	}
	pthread_mutex_unlock(&pool.lock);
	if (!b)
		b = block_new((uint32_t)SMALLEST << i);
	if (b)
		atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
	return b;
}

void soda_block_ref(struct soda_block *block, uint32_t n)
{
	atomic_fetch_add_explicit(&block->refs, n, memory_order_relaxed);
}

void soda_block_put(struct soda_block *b)
{
	/* acq_rel: the last put sees all uses of the block, and so does who takes it next */
	if (atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (b->ended)
		b->ended(b->of, b->bytes);
	b->ended = NULL;
	pthread_mutex_lock(&pool.lock);
	if (pool.free_bytes + b->bytes <= KEEP_BYTES) {
		unsigned i = class_of(b->bytes);

		b->next = pool.free[i];
		pool.free[i] = b;
		pool.free_bytes += b->bytes;
		b = NULL;
	}
	pthread_mutex_unlock(&pool.lock);
	if (b)
		block_free(b);
}

uint64_t soda_blocks_bytes(void)
{
	return atomic_load_explicit(&pool.bytes, memory_order_relaxed);
}

void soda_blocks_free(void)
{
	pthread_mutex_lock(&pool.lock);
	for (unsigned i = 0; i < CLASSES; i++) {
		while (pool.free[i]) {
			struct soda_block *b = pool.free[i];

			pool.free[i] = b->next;
			block_free(b);
		}
	}
	pool.free_bytes = 0;
	pthread_mutex_unlock(&pool.lock);
}
