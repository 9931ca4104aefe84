/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handler mode: one thread reads the faults from the descriptor and serves them
 * all, without ever waiting for one of them.  Faults raised inside system calls
 * are served too, where the kernel lets us (soda_uffd_info.user_only).
 */
#ifndef SODA_HOST_FAULT_HANDLER_H
#define SODA_HOST_FAULT_HANDLER_H

#include <stdbool.h>
#include <stddef.h>

/* Start and end the thread. Negative errno. */
int soda_handler_start(void);
void soda_handler_stop(void);

/*
 * A page that cannot be had is made to fail, for a moment, or while its chunk is LOST.  Its mapping
 * becomes as it was, with nothing in it, for a chunk that nobody else brings meanwhile.  Negative
 * errno. AS.
 */
int soda_handler_clear(char *addr, size_t bytes, int prot);

/* Before Linux 6.6: there are, or were, pages that another mapping makes fail. */
bool soda_handler_mapped_over(void);

#endif
