/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forks of the process that has fabric memory, and the thread, "soda-forks", that answers its
 * children (child.h) from what it has, or has kept (views.h).  The thread starts with the first
 * fork, and lives as long as the process.
 *
 * Order at a fork: signals blocked; soda_regions_lock; gate closed, view made; fork; gate opened;
 * soda_regions_unlock; signals as before.  It happens in the handler of pthread_atfork() that this
 * library registers first, and which so is the last one before the fork.
 */
#ifndef SODA_HOST_SERVE_H
#define SODA_HOST_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/object/region.h"

/*
 * Content of chunks goes: of those that a child may ask for, keep it first.  The chunks are an
 * object's that no other thread frees.  Only of chunks that are neither BUSY nor FETCHING by the
 * caller. Any thread, with or without api_lock.
 */
void soda_forks_keep(uint32_t first, uint32_t n);

/*
 * In the child, called by life/start.c once what is the parent's alone is closed.  false: the child
 * has no fabric memory, and its addresses are to be closed.
 */
bool soda_forks_in_child(void);

/* Set by life/start.c before there is a fork: what a child does first. */
extern void (*soda_forks_child)(void);

#endif
