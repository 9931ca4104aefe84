/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The static cache: ranges that a program or a rule has chosen are loaded once, and stay until the
 * last region that asked for them closes.  Nothing is predicted or evicted: a READ inside of a
 * loaded range is a hit.  A range is loaded as a whole or not at all.
 *
 * Each range is a memfd, sealed against every change once it is loaded, so that a
 * client on the same machine can map the range and read it without a request; over verbs a client
 * does the same by a key.  READs of all other clients are answered from one mapping of the agent's.
 * Ranges of a READ_ONLY file, named by (file id, generation), are shared by all clients.  Ranges of
 * another region are that region's own, and frozen: the agent refuses WRITEs to them.
 *
 * Threads: any.  add blocks while the range is loaded, also where another thread loads it.
 */
#ifndef SODA_DPU_STATIC_CACHE_H
#define SODA_DPU_STATIC_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/cache/dynamic/prefetch.h"
#include "dpu_agent/base/blocks.h"
#include "transport/api/service.h"

struct soda_static;
struct soda_static_range;

/* The ranges of one region. Zeroed is empty. */
struct soda_static_set {
	struct soda_static_range **ranges; /* guarded by the cache's lock */
	uint32_t n;
	_Atomic uint32_t seen; /* n, to be looked at without the lock */
};

/* Read [offset, offset + bytes) of the region that `source` stands for. 0 or negative errno. */
typedef int (*soda_static_load)(void *source, uint64_t offset, uint8_t *memory, uint64_t bytes);

struct soda_static_stats {
	uint64_t capacity, used; /* bytes */
	uint64_t ranges;
	uint64_t bytes_loaded; /* so far: preload traffic */
	uint64_t loads_failed, refused;
	uint64_t shared; /* adds that found their range loaded */
	uint64_t hits, bytes_hit;
};

/* Called with a range's memory before the range is loaded (there), and before the memory is freed.
 */
typedef void (*soda_static_told)(void *memory, uint64_t bytes, bool there);

/* told: or NULL. 0 or -ENOMEM. */
int soda_static_create(uint64_t capacity, soda_static_told told, struct soda_static **cache_p);
/* The caller has cleared every set. NULL is a no-op. */
void soda_static_destroy(struct soda_static *cache);

/*
 * Put [offset, offset + bytes), whole pages inside the owner, into the set, once.  The range is
 * loaded unless it is part of a loaded range of the same owner; where another thread is loading it
 * and fails, this one loads it anew.  *range_p is valid as long as the range is in the set.
 * -ENOSPC: over the capacity, nothing is loaded, why says the sizes; -EINVAL; -ENOMEM; an error of
 * load.
 */
int soda_static_add(struct soda_static *cache, struct soda_static_set *set,
		    const struct soda_owner_name *owner, uint64_t offset, uint64_t bytes,
		    soda_static_load load, void *source, struct soda_static_range **range_p,
		    struct soda_why *why);
/*
 * Take the ranges inside [offset, offset + bytes) out.  -EBUSY: one lies across its
 * edge; nothing is taken out.  How many, else.
 */
int soda_static_remove(struct soda_static *cache, struct soda_static_set *set, uint64_t offset,
		       uint64_t bytes);
/* Take all ranges out: the region closes. */
void soda_static_clear(struct soda_static *cache, struct soda_static_set *set);

/* Where a READ is answered from, or NULL. *range_p is the caller's, for release. */
const uint8_t *soda_static_acquire(struct soda_static *cache, struct soda_static_set *set,
				   uint64_t offset, uint32_t bytes,
				   struct soda_static_range **range_p);
/* The same reference, as the hold of an answer: its put releases it. */
struct soda_hold *soda_static_hold(struct soda_static_range *range);
void soda_static_release(struct soda_static *cache, struct soda_static_range *range);
/* Whether a WRITE would change a range of the set. */
bool soda_static_frozen(struct soda_static *cache, const struct soda_static_set *set,
			uint64_t offset, uint64_t bytes);

/* For a client that maps the range, or reads it by a key: the sealed memfd, and which part of the
 * owner it holds. */
void soda_static_share(const struct soda_static_range *range, struct soda_share *share_p);

void soda_static_stats(struct soda_static *cache, struct soda_static_stats *stats_p);

/* Whether an object's name matches one of the patterns (fnmatch(3)), separated by commas. */
bool soda_static_rule(const char *patterns, const char *name);

#endif
