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

/* Install the handler. Negative errno. */
int soda_inline_start(void);
void soda_inline_stop(void);

#endif
