/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sigaction, signal, sigprocmask and pthread_sigmask as the program sees them while SIGBUS, or
 * SIGSEGV, is the library's: its action for that signal is kept aside.  SIGBUS is never blocked,
 * neither by a mask nor while another handler runs; SIGSEGV is never blocked by a mask, and the
 * library itself blocks all but these two.  These four, and their older names (sigset, sighold,
 * sigblock, sysv_signal and the like), are exported in place of the C library's, and do what those
 * do in all other cases.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_SIGNALS_H
#define SODA_HOST_SIGNALS_H

#include <signal.h>

/* The library takes SIGBUS or SIGSEGV: the action in force becomes the program's, kept aside. */
int soda_signals_take(int sig, const struct sigaction *ours);
/* The program's action, or the default, is put in force. AS. */
void soda_signals_give_back(int sig);
/*
 * Hand the signal to the program's own action, with the mask that it would have, less SIGBUS and
 * SIGSEGV; or end the process by it.  From the handler only.
 */
void soda_signals_chain(int sig, siginfo_t *info, void *context);

#endif
