/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the cache would hold of one owner if caching were on: ids, no data.  A
 * table of four ways with random replacement, as large as the cache has slots, or
 * a bit an entry where the owner is not larger than that.
 *
 * A ghost reckons as if the owner had the cache for itself; what sharing the cache costs is
 * measured once caching is on (model.h).  Locks: the caller's.
 */
#ifndef SODA_DPU_GHOST_H
#define SODA_DPU_GHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soda_ghost;

/* entries: of the owner. NULL: no memory. */
struct soda_ghost *soda_ghost_create(uint32_t slots, uint64_t entries, uint64_t seed);
/* NULL is a no-op. */
void soda_ghost_destroy(struct soda_ghost *ghost);
/* Bytes of memory that a ghost of these sizes takes. */
size_t soda_ghost_bytes(uint32_t slots, uint64_t entries);

bool soda_ghost_has(const struct soda_ghost *ghost, uint64_t entry);
/* Add an entry that the ghost does not have; another entry may be forgotten for it. */
void soda_ghost_insert(struct soda_ghost *ghost, uint64_t entry);
uint32_t soda_ghost_count(const struct soda_ghost *ghost);
void soda_ghost_clear(struct soda_ghost *ghost);

#endif
