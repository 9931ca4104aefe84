/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sigaction, signal, sigprocmask and pthread_sigmask as the program sees them while
 * SIGBUS is the library's: its action for SIGBUS is kept aside, and SIGBUS is never
 * blocked, neither by a mask nor while another handler runs.  These four are
 * exported in place of the C library's, and do what those do in all other cases.
 */
#ifndef SODA_HOST_SIGNALS_H
#define SODA_HOST_SIGNALS_H

#include <signal.h>

/* The library takes SIGBUS: the action in force becomes the program's, kept aside. */
int soda_signals_take(int sig, const struct sigaction *ours);
/* The program's action, or the default, is put in force. AS. */
void soda_signals_give_back(int sig);
/* The program's action for SIGBUS. AS. */
void soda_signals_theirs(struct sigaction *out);

#endif
