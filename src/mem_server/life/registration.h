/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory server as a member of a pool that has a registry (registry/keep.h). */
#ifndef SODA_MEM_SERVER_REGISTRATION_H
#define SODA_MEM_SERVER_REGISTRATION_H

#include <stddef.h>

#include "mem_server/life/server.h"

/* What --pool and its options ask.  0, or -EINVAL, logged; without --pool 0. */
int soda_server_registration_check(const struct soda_server_options *opt);
/*
 * Begin to be registered, as --pool-address, or by the first of the addresses that the server
 * listens on.  0, or an error, logged; without --pool 0.  That etcd does not answer is none.
 */
int soda_server_registration_start(struct soda_mem_server *server,
				   const struct soda_server_options *opt,
				   const char *const *addresses, size_t n);
void soda_server_registration_stop(struct soda_mem_server *server);

#endif
