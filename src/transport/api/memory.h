/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon's memory that holds data of READs and WRITEs.  The daemon tells of it here; verbs
 * registers a part when a request first uses it, once for a device, so that data travel straight
 * into and out of it.  Data in memory that the daemon has not told of are copied, and the copy is
 * counted (soda_payload_copy).  Other transports do not use this.
 *
 * A large range is cut into parts of SODA_MEMORY_PART from its beginning, registered
 * each by itself; data that lie in two of them are copied.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_MEMORY_H
#define SODA_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SODA_MEMORY_PART (16ull << 20)

/* Requests may use the memory from now on. 0; -ENOMEM: not added, data are copied. Any thread. */
int soda_memory_add(void *memory, uint64_t bytes);
/* No request uses the memory any more. A no-op where it was not added. Any thread. */
void soda_memory_remove(void *memory, uint64_t bytes);
/* Whether any memory was added. AS. */
bool soda_memory_any(void);

/*
 * memcpy, counted: the one function by which a transport's listening side, and in a daemon that
 * of verbs that connects, copies data of READs and WRITEs.
 */
void soda_payload_copy(void *to, const void *from, size_t bytes);
/* Bytes that soda_payload_copy() has copied in this process. */
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
