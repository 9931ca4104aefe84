/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a daemon that data of READs and WRITEs lie in.  verbs registers what it is told
 * of when a request first uses it, once for a device, so that data travel straight into and
 * out of it; of memory that nobody has told it of it copies, and counts that (soda_payload_copy).
 * Other transports do not need it.
 *
 * A large range is cut into parts of SODA_MEMORY_PART from its beginning, registered
 * each by itself; data that lie in two of them are copied.
 */
#ifndef SODA_MEMORY_H
#define SODA_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SODA_MEMORY_PART (16ull << 20)

/* It may be used from now on. 0; -ENOMEM: not told, it is copied. Any thread. */
int soda_memory_add(void *memory, uint64_t bytes);
/* No request uses it any more. What was not added is no mistake. Any thread. */
void soda_memory_remove(void *memory, uint64_t bytes);
/* Whether there is any. AS. */
bool soda_memory_any(void);

/*
 * memcpy, counted: the one function by which a transport's listening side, and in a daemon that
 * of verbs that connects, copies data of READs and WRITEs.
 */
void soda_payload_copy(void *to, const void *from, size_t bytes);
/* How much it has copied in this process. */
uint64_t soda_payload_copied(void);

/* For the transport that registers memory: */

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
