/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread with a table of descriptors of its own, in which the userfaultfd is the only one.
 *
 * When the last descriptor of a userfaultfd goes the kernel takes its faults away, without a word:
 * a missing page is then a page of zeros.  A program can close ours past the C library
 * (close_range(2) by number, say); with this thread the faults stay, the next one finds that the
 * descriptor is gone, and ends the process (soda_fds_end).
 */
#ifndef SODA_HOST_HOLDER_H
#define SODA_HOST_HOLDER_H

/*
 * Start it, and wait until it has the descriptor.  0; an error of soda_helper_start(), or the
 * kernel's: then a program that closes the descriptor is noticed by the keeper only.
 */
int soda_holder_start(int fd);
/* Before the descriptor is closed.  Nothing where it does not run, as in the child of a fork. */
void soda_holder_stop(void);

#endif
