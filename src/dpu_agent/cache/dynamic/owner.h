/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owners of cached entries, by their dense ids.  Files that no region has open any
 * more linger until their place is needed, the one that was closed first before the others.
 * Locks: the caller's, for all of it.
 */
#ifndef SODA_DPU_OWNER_H
#define SODA_DPU_OWNER_H

#include "dpu_agent/cache/dynamic/ghost.h"
#include "dpu_agent/cache/dynamic/prefetch.h"

struct soda_owner {
	struct soda_owner_stats s; /* ghosts and on are filled in when asked */
	uint32_t id;
	uint64_t serial; /* no other owner has had it, as others may have had the id */
	uint64_t closed; /* when, in closings; while it lingers */
	uint64_t entries;
	struct soda_ghost *ghost; /* NULL: none yet */
	void *view;		  /* for the ops of a view, as long as regions are open */
	uint64_t untold;	  /* of a view: bytes fetched that the model has not been told of */
};

struct soda_owners {
	struct soda_owner **table; /* by id */
	uint32_t max, used;	   /* ids below used have been given out */
	uint32_t *spare, spares;   /* ids to be given out again */
	uint64_t closings, serials;
};

/* 0 or -ENOMEM. */
int soda_owners_init(struct soda_owners *owners, uint32_t max);
void soda_owners_destroy(struct soda_owners *owners);

/* NULL: no such owner. */
static inline struct soda_owner *soda_owner_get(const struct soda_owners *owners, uint32_t id)
{
	return id < owners->used ? owners->table[id] : NULL;
}

/* A file's owner, open or lingering; NULL: unknown. */
struct soda_owner *soda_owner_find(const struct soda_owners *owners,
				   const struct soda_owner_name *name);
/* The one to be removed when a new one finds no place: lingering; NULL: all are in use. */
struct soda_owner *soda_owner_lingering(const struct soda_owners *owners);
/* -ENOSPC: no id is left; -ENOMEM. */
int soda_owner_add(struct soda_owners *owners, const struct soda_owner_name *name, uint64_t entries,
		   struct soda_owner **owner_p);
void soda_owner_remove(struct soda_owners *owners, struct soda_owner *owner);

#endif
