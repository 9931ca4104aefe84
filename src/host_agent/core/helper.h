/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's own threads: with signals blocked (so that no handler of the program runs in
 * them), a name, and on the NUMA node of the network device.
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_HOST_HELPER_H
#define SODA_HOST_HELPER_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "transport/api/transport.h"

/* Start a thread that calls run(arg). 0, -ENOMEM, or the error of pthread_create. */
int soda_helper_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg);

/*
 * An API call blocks signals while it holds a lock that a fault takes, too: else a signal handler
 * of the program could fault on FAM in this thread and wait for that lock for ever.
 */
void soda_signals_block(sigset_t *saved);
/*
 * Asynchronous cancellation arrives as signal 32, which the C library's sigfillset() leaves out:
 * a thread that is cancelled where it has a chunk or a lock would keep it for ever.
 */
static inline void soda_signals_block_cancel(sigset_t *set)
{
	*(unsigned long *)set |= 1ul << 31;
}
void soda_signals_restore(const sigset_t *saved);
/* Set any mask by a system call, past pthread_sigmask, which libsoda and `soda run` replace. AS. */
void soda_signals_swap(const sigset_t *mask, sigset_t *saved);

/*
 * Placement (placement.c): the library's threads run, and its staging slots lie, on the NUMA node
 * that the settings name, or on that of the network device in use, as sysfs tells.  Without such a
 * device (loopback, shm), or with one node, nothing is bound, and the log says so.
 *
 * soda_numa_detect finds the node, by the control connection. Once, at start, before there are
 * threads.
 */
void soda_numa_detect(const struct soda_conn *control);
/* Bind the calling thread to that node. */
void soda_numa_run_here(void);
/* Place the pages of that memory that were not touched yet on that node. */
void soda_numa_place(void *addr, size_t bytes);

#endif
