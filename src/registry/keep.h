/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A server's key in its pool's registry, kept by a thread: made anew when the lease has ended,
 * written when what it says changes, removed at the end.  While etcd is away nothing else of the
 * server's waits; the log says so once, and once that the key is there again.
 */
#ifndef SODA_REGISTRY_KEEP_H
#define SODA_REGISTRY_KEEP_H

#include "registry/registry.h"

struct soda_registry_keeper;

/*
 * name, login: copied, and read here.  describe: the thread calls it a few times a second with arg,
 * to fill the member in, which has zeros.  Nothing is waited for.  0, or an error of
 * soda_etcd_open() or of starting a thread, with *why.  Signals that the caller has blocked are
 * blocked in the thread.
 */
int soda_registry_keep_start(const struct soda_registry_name *name,
			     const struct soda_registry_login *login,
			     void (*describe)(void *arg, struct soda_registry_member *member),
			     void *arg, struct soda_registry_keeper **keeper_p,
			     struct soda_why *why);
/*
 * Remove the key, and end the thread: within SODA_REGISTRY_LEAVE_MS and a second.  Where etcd does
 * not answer the key goes with its lease.  NULL is fine.
 */
void soda_registry_keep_stop(struct soda_registry_keeper *keeper);

#endif
