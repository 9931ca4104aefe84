/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads of memory that its owner may close at any moment (mprotect).  A look before the read would
 * come too early, and copying by a system call costs twice as much as memcpy(): so the read is just
 * made, and whoever has the process's SIGSEGV ends it where it fails.  Without such a handler the
 * signal does what it always does.  All AS; a guard costs some ten nanoseconds.
 */
#ifndef SODA_GUARD_H
#define SODA_GUARD_H

#include <stddef.h>

/*
 * fn(arg), which takes no lock and leaves nothing half done that matters: it may end anywhere. 0;
 * -EFAULT: it met memory that may not be read.  SIGSEGV must not be blocked.
 */
int soda_guard_call(void (*fn)(void *arg), void *arg);

/* memcpy, whose source may be closed. 0; -EFAULT: some of it was copied. */
int soda_guard_copy(void *to, const void *from, size_t bytes);

/*
 * For the handler of SIGSEGV, with its third argument: does not return if the thread is inside
 * soda_guard_call.
 */
void soda_guard_escape(const void *context);

#endif
