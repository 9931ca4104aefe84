/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h, for the transport that registers memory. */
#ifndef SODA_MEMORY_IMPL_H
#define SODA_MEMORY_IMPL_H

#include <pthread.h>

#include "transport/api/memory.h"

struct soda_memory_part {
	uint8_t *memory;
	uint64_t bytes;
	void *keys; /* the transport's; NULL: none */
};

/* Guards the parts: read to look, write to change them or their keys. A leaf. */
extern pthread_rwlock_t soda_memory_lock;

/* The part that these bytes lie in; NULL: none. The lock is held. */
struct soda_memory_part *soda_memory_find_locked(const void *memory, uint64_t bytes);
/* Every part. The lock is held for writing. */
void soda_memory_each_locked(void (*each)(struct soda_memory_part *part, void *arg), void *arg);
/* What ends the keys of a part; set once, before there are any. */
void soda_memory_set_forget(void (*forget)(struct soda_memory_part *part));

#endif
