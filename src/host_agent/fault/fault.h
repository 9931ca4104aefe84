/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One page fault, from the chunk's state to a resident page (fault.c, AS), and the two ways in
 * which faults arrive:
 *
 * inline.c, inline mode: userfaultfd raises SIGBUS in the faulting thread, whose handler serves the
 * fault and returns to the instruction.  No thread is woken.  SIGBUS belongs to the library then.
 * The program's own action for it, set by sigaction or signal, is kept aside and gets the signals
 * that are not ours; and no thread can block SIGBUS, because a fault that is blocked kills the
 * process.
 *
 * handler.c, handler mode: one thread reads the faults from the descriptor and serves them all,
 * without ever waiting for one of them.  Faults raised inside system calls are served too, where
 * the kernel lets us (soda_uffd_info.user_only).
 */
#ifndef SODA_HOST_FAULT_H
#define SODA_HOST_FAULT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "host_agent/core/thread.h"
#include "host_agent/object/region.h"

struct soda_fault {
	struct soda_region *region;
	uint32_t id;	/* of the chunk */
	uint32_t block; /* in the chunk */
	bool store;	/* false also where the machine does not tell */
	bool counted;	/* in the statistics */
	int error;	/* of a FAILED step */
	/* Signals that may come in while it waits for the server, holding nothing; NULL: as is. */
	const sigset_t *mask;
};

enum soda_fault_step {
	SODA_STEP_DONE,	   /* the instruction can go on */
	SODA_STEP_FETCH,   /* the chunk is FETCHING and ours, with a credit: fetch it */
	SODA_STEP_JOIN,	   /* somebody else is at it: wait, then step again */
	SODA_STEP_ROOM,	   /* no credit: wait, then step again */
	SODA_STEP_DOWN,	   /* no server: wait, then step again */
	SODA_STEP_LOST,	   /* its content is gone */
	SODA_STEP_FAILED,  /* the kernel refused: `error` */
	SODA_STEP_FOREIGN, /* not in an object */
};

/* Describe a fault at an address of ours; false: no object there. */
bool soda_fault_describe(struct soda_fault *f, const void *addr, bool store);

/* As far as it goes without waiting. */
enum soda_fault_step soda_fault_step(struct soda_thread *t, struct soda_fault *f);

/* A FETCH or JOIN step: see whether the thread reads a stream, and run ahead of it. */
void soda_fault_run_ahead(struct soda_thread *t, const struct soda_fault *f);

/*
 * All of it, waiting as needed, for at most the fault time-out.  0; -EFAULT: not
 * in an object; -EIO: content lost; -ETIMEDOUT and others; the error is logged.
 */
int soda_fault_serve(struct soda_thread *t, struct soda_fault *f);

/* Log that a fault ends in an error, and count it; aborts where on_error says so. */
void soda_fault_fail(struct soda_thread *t, const struct soda_fault *f, int err);

/* PIN, and system calls on FAM: make the chunk resident by the same path. */
int soda_fault_touch(struct soda_thread *t, struct soda_region *r, uint32_t id);

/* Told the chunk of each fault on a missing page; set before the runtime starts, or NULL. AS. */
extern void (*soda_fault_seen)(uint32_t id);

/* How many last chunks of a thread are kept from eviction. */
uint32_t soda_fault_keep(void);

/* Install the handler of SIGBUS. Negative errno. */
int soda_inline_start(void);
void soda_inline_stop(void);

/* Start and end the thread of handler mode. Negative errno. */
int soda_handler_start(void);
void soda_handler_stop(void);

#endif
