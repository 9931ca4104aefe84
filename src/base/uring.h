/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Begin and end of an io_uring ring, as liburing does it, in a way that ThreadSanitizer can follow.
 *
 * liburing maps and unmaps rings by system calls of its own, which ThreadSanitizer does not see:
 * when a thread gets its ring at the address of one that another thread has given up, every use of
 * the new ring looks like a race with the last use of the old one.  Here each end comes before
 * every later beginning.  In a build without ThreadSanitizer nothing is done beside liburing's
 * work.
 *
 * A ring belongs to the thread that began it.
 */
#ifndef SODA_BASE_URING_H
#define SODA_BASE_URING_H

#include <liburing.h>

/* io_uring_queue_init_params(3): 0, or a negative errno and no ring.  *params: in flags, out what
 * the kernel offers. */
int soda_uring_begin(struct io_uring *ring, unsigned entries, struct io_uring_params *params);

/*
 * Cancel all that is under way, and wait until nothing of it uses the program's memory any more,
 * for five seconds at most; what it was is not told.  For a ring that has failed.  0; -EINVAL: the
 * kernel is older than 6.0; -ETIME, and other errors of the kernel's.
 */
int soda_uring_cancel_all(struct io_uring *ring);

/* io_uring_queue_exit(3); nothing may be under way. */
void soda_uring_end(struct io_uring *ring);

#endif
