/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One page fault, from the chunk's state to a resident page (fault.c, async-signal-safe), and the
 * two ways in which faults arrive:
 *
 * inline.c, inline mode: userfaultfd raises SIGBUS in the faulting thread, whose signal handler
 * serves the fault and returns to the instruction.  No thread is woken.  The library takes SIGBUS
 * for itself: it keeps the program's own action, set by sigaction or signal, and hands it every
 * SIGBUS that is not such a fault.  No thread can block SIGBUS, because the kernel kills a process
 * that faults while SIGBUS is blocked.
 *
 * handler.c, handler mode: one thread reads the faults from userfaultfd's descriptor and serves all
 * of them, without ever waiting for one of them.  It also serves faults raised inside system calls,
 * where the kernel reports them (soda_uffd_info.user_only is false).
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
	bool store;	/* false also where the machine does not tell loads from stores */
	bool counted;	/* in the statistics */
	bool joined;	/* it has waited for the chunk's answer */
	int error;	/* of a FAILED step; negative errno */
	/* soda_protect_closings() before the handler read it; 0: the thread serves it itself */
	uint64_t closings;
	/*
	 * The signal mask while the thread waits for the server to be UP, and then holds no lock
	 * and no chunk; NULL: the mask stays as it is.
	 */
	const sigset_t *mask;
};

enum soda_fault_step {
	SODA_STEP_DONE,	   /* the instruction can go on */
	SODA_STEP_FETCH,   /* the caller has made the chunk FETCHING, with a credit: fetch it */
	SODA_STEP_JOIN,	   /* another thread is changing the chunk: wait, then step again */
	SODA_STEP_ROOM,	   /* the buffer has no credit left: make room, then step again */
	SODA_STEP_DOWN,	   /* the server is not UP: wait, then step again */
	SODA_STEP_LOST,	   /* the chunk's content is lost */
	SODA_STEP_FAILED,  /* the kernel did not install the page: fault.error */
	SODA_STEP_FOREIGN, /* the address is in no object any more */
};

/* Fill *f for a fault at an address in the agent's range; false: no object is there. */
bool soda_fault_describe(struct soda_fault *f, const void *addr, bool store);

/* Serve the fault as far as is possible without waiting; says what is to be done next. */
enum soda_fault_step soda_fault_step(struct soda_thread *t, struct soda_fault *f);

/*
 * After a FETCH or JOIN step, or while the chunk is BUSY: if the thread's faults follow a stream,
 * fetch ahead of them.
 */
void soda_fault_run_ahead(struct soda_thread *t, const struct soda_fault *f);

/*
 * Serve the whole fault, waiting where needed, for at most the fault time-out; where settings say
 * on_error=wait, a fault whose connection fails or that times out is tried again without end.
 * 0; -EFAULT: in no object, not logged; others are logged: -EIO: the content is lost; -ETIMEDOUT;
 * errors of the connection or of the kernel.
 */
int soda_fault_serve(struct soda_thread *t, struct soda_fault *f);

/* Log that a fault ends in an error, and count it; aborts where settings say on_error=abort. */
void soda_fault_fail(struct soda_thread *t, const struct soda_fault *f, int err);

/*
 * Make the chunk resident as a fault would that is not counted: as a load, for PIN; or as a store,
 * which leaves it dirty.
 */
int soda_fault_touch(struct soda_thread *t, struct soda_region *r, uint32_t id);
int soda_fault_dirty(struct soda_thread *t, struct soda_region *r, uint32_t id);

/*
 * Called, if not NULL, with the chunk of each fault on a missing page.  Set before the runtime
 * starts; must be async-signal-safe.
 */
extern void (*soda_fault_seen)(uint32_t id);

/* How many of the chunks that a thread touched last are kept from eviction. */
uint32_t soda_fault_keep(void);

/* Install the handler of SIGBUS. Negative errno. */
int soda_inline_start(void);
void soda_inline_stop(void);

/* Start and end the thread of handler mode. Negative errno. */
int soda_handler_start(void);
void soda_handler_stop(void);
/*
 * Wait until the statistics count the faults that the handler has in hand, because installing a
 * page lets its thread go on a moment earlier; for SODA_HANDLER_TURN_MS at most.  Returns at once
 * where no runtime runs: the child of a fork has no handler.  Any thread but the handler.
 */
void soda_handler_await(void);

#endif
