/* SPDX-License-Identifier: BSD-3-Clause */
/* The runtime starts and ends; the size of its page buffer. */
#ifndef SODA_HOST_START_H
#define SODA_HOST_START_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/agent.h"

/*
 * Start with the given configuration, or return at once where it runs.  Called
 * with api_lock held.  Errors of soda_init().
 */
int soda_agent_start(const struct soda_config *cfg, struct soda_why *why);
/* End; the first error of writing WRITABLE files back. Takes api_lock. */
int soda_agent_stop(void);

/* The process ends: files are written back, the server told; faults are served on. */
void soda_agent_leave(void);

/* Chunks that a buffer must have for `threads` threads, staging included. */
int64_t soda_agent_minimum(uint32_t threads);
/*
 * Recompute the buffer's limit from fam_bytes; api_lock held.  first: there was no
 * object before, so that nothing is resident yet.
 */
void soda_agent_resize(bool first);

/*
 * The heap, which this folder does not know: what it does when the runtime ends.  Set with
 * api_lock held, before the heap gives out a block; NULL: there is no heap.
 */
struct soda_heap_ends {
	void (*ended_locked)(void); /* api_lock is held */
	void (*forked)(void);	    /* in the child, which is one thread */
};
extern const struct soda_heap_ends *_Atomic soda_heap_ends;

/*
 * embedded.c: the private memory server of a process for which no server is named.  That server is
 * a process of its own, not our child as wait(2) sees it, reached over shm, and it ends with us: by
 * the end-of-file on a pipe whose other end only we hold.
 */

/*
 * Start it.  program: its path, NULL to look beside the library and in the PATH.
 * address receives where it listens.  -ENOENT, -ETIMEDOUT, -EIO...
 */
int soda_embedded_start(const char *program, int timeout_ms, char *address, size_t address_bytes,
			struct soda_why *why);
/* Let it go. Idempotent; also for a fork's child. */
void soda_embedded_stop(void);

#endif
