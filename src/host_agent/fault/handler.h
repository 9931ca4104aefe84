/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handler mode: one thread reads the faults from the descriptor and serves them
 * all, without ever waiting for one of them.  Faults raised inside system calls
 * are served too, where the kernel lets us (soda_uffd_info.user_only).
 */
#ifndef SODA_HOST_FAULT_HANDLER_H
#define SODA_HOST_FAULT_HANDLER_H

/* Start and end the thread. Negative errno. */
int soda_handler_start(void);
void soda_handler_stop(void);

#endif
