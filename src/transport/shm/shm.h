/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the shm transport share. */
#ifndef SODA_SHM_H
#define SODA_SHM_H

#include <sys/socket.h>
#include <sys/un.h>

#include "transport/api/transport_impl.h"

#define SODA_SHM_PREFIX "shm://"

/* /PATH or @NAME as a socket address. 0, -EINVAL. */
int soda_shm_address(const char *rest, struct sockaddr_un *addr_p, socklen_t *bytes_p,
		     struct soda_why *why);

/* A data connection on a connected socket that has said HELLO; owns fd. -ENOMEM. */
int soda_shm_data_create(int fd, const char *rest, const struct soda_conn_options *opt,
			 struct soda_conn **conn_p);

/*
 * The same to a two-sided daemon, with the queue that came with its answer; owns both
 * descriptors. -ENOMEM; -EPROTO and why: that is no queue.
 */
int soda_shm_client_create(int fd, int queue_fd, const char *rest,
			   const struct soda_conn_options *opt, struct soda_conn **conn_p,
			   struct soda_why *why);

#endif
