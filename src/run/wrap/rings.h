/* SPDX-License-Identifier: BSD-3-Clause */
/* io_submit() and io_uring, where a program asks for them by syscall(). */
#ifndef SODA_RUN_RINGS_H
#define SODA_RUN_RINGS_H

#include "run/core/run.h"

/*
 * Carry the system call out; a: its six arguments.  True: *result_p is what syscall() returns, with
 * errno.  False: it is not one of these, or the kernel may have it as it is.
 */
bool run_ring_call(long number, long *a, const void *caller, long *result_p);

#endif
