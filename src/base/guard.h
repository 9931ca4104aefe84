/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads of memory that the program may close at any moment (mprotect).  A check before the read
 * would come too early, and copying by a system call costs twice as much as memcpy(): so the read
 * is made, and if it fails the handler of SIGSEGV calls soda_guard_escape(), which ends it. Without
 * such a handler the process ends.  All functions are async-signal-safe; a guard costs some ten
 * nanoseconds.
 */
#ifndef SODA_BASE_GUARD_H
#define SODA_BASE_GUARD_H

#include <setjmp.h>
#include <stddef.h>

/*
 * Call fn(arg).  0; -EFAULT: fn met memory that may not be read, and was ended there: so it may
 * take no lock, and what it leaves half done must not matter.  SIGSEGV must not be blocked.
 */
int soda_guard_call(void (*fn)(void *arg), void *arg);

/*
 * The same, with the caller's place for the registers to go back to, which is not on the stack: 200
 * bytes of that, where a signal's handler seals.  One thread at a time uses a place.
 */
struct soda_guard_place {
	sigjmp_buf here;
};
int soda_guard_call_at(struct soda_guard_place *at, void (*fn)(void *arg), void *arg);

/* memcpy() from memory that may be closed. 0; -EFAULT: only some of it was copied. */
int soda_guard_copy(void *to, const void *from, size_t bytes);

/*
 * For the handler of SIGSEGV, with its third argument: does not return if the thread is inside
 * soda_guard_call.
 */
void soda_guard_escape(const void *context);

#endif
