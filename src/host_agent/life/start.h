/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and end of the runtime. */
#ifndef SODA_HOST_START_H
#define SODA_HOST_START_H

#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/agent.h"

/*
 * Start the runtime with the given configuration; nothing to do where it runs.  api_lock held.
 * Errors of soda_init().
 */
int soda_agent_start(const struct soda_config *cfg, struct soda_why *why);
/* End the runtime. 0, or the first error of writing WRITABLE files back. Takes api_lock. */
int soda_agent_stop(void);

/*
 * The process ends: write files back and tell the server; faults are still served afterwards.  It
 * may be a signal handler that has interrupted a call of the library, whose locks are not waited
 * for: what cannot be done then is left out, and a file that is not written is logged.
 */
void soda_agent_leave(void);

/*
 * What the heap (heap/heap.h) does when the runtime ends; this folder lies below it and may not
 * call it.  The heap sets this with api_lock held, before it gives out a block; NULL: there is no
 * heap.
 */
struct soda_heap_ends {
	void (*ended_locked)(void); /* api_lock is held */
	void (*forked)(void);	    /* in the child, which is one thread */
};
extern const struct soda_heap_ends *_Atomic soda_heap_ends;
/*
 * Called before the runtime ends, without locks of ours: ends a thread of what lies above libsoda
 * (`soda run`), which sets this before it starts one.  NULL: there is none.
 */
extern void (*_Atomic soda_agent_stops)(void);

/*
 * private.c: the private memory server of a process for which no server is named
 * (base/embedded.h).  It ends when we end, or, where others share it, when the last of us does.
 */

/*
 * Start the private server.  program: its path, NULL to look beside the library and in the PATH.
 * address receives where it listens.  0; -ENOENT: no program; -ETIMEDOUT, -EIO, -EPROTO: it did not
 * say within timeout_ms that it listens; errors of making pipes and processes.
 */
int soda_private_start(const char *program, int timeout_ms, char *address, size_t address_bytes,
		       struct soda_why *why);
/* Whether that is the server that this process has: nobody else's comes after it. */
bool soda_private_started(void);
/* End the private server, if there is one; in a fork's child only close our end of the pipe. */
void soda_private_stop(void);
/*
 * Set before the runtime starts by who has a server that processes share (`soda run`): where that
 * listens, and a descriptor that keeps it running; program as above.  -ENOENT: this process starts
 * one of its own. Another error, with *why: there is no server.
 */
extern int (*soda_private_shared)(const char *program, int timeout_ms, char *address,
				  size_t address_bytes, int *life_fd_p, struct soda_why *why);

#endif
