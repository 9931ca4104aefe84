/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inline mode: userfaultfd raises SIGBUS in the faulting thread, whose handler
 * serves the fault and returns to the instruction.  No thread is woken.
 *
 * SIGBUS belongs to the library then.  The program's own action for it, set by
 * sigaction or signal, is kept aside and gets the signals that are not ours; and
 * no thread can block SIGBUS, because a fault that is blocked kills the process.
 */
#ifndef SODA_HOST_FAULT_INLINE_H
#define SODA_HOST_FAULT_INLINE_H

#include <signal.h>

/* Install the handler. Negative errno. */
int soda_inline_start(void);
void soda_inline_stop(void);
/* Hand a SIGBUS to the program's own action, or die of it. From the handler only. */
void soda_inline_chain(int sig, siginfo_t *info, void *context);

#endif
