/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the TCP transport share. */
#ifndef SODA_TCP_H
#define SODA_TCP_H

#include "transport/api/transport_impl.h"

#define SODA_TCP_PREFIX "tcp://"

/* HOST:PORT or [V6]:PORT, split; host may be empty where one listens. 0, -EINVAL. */
int soda_tcp_split(const char *rest, char host[256], char port[8], struct soda_why *why);

/* No Nagle, no pacing congestion control, and a dead peer is noticed. Failures are ignored. */
void soda_tcp_tune(int fd);

/* A data connection on a connected socket that has said HELLO; owns fd. -ENOMEM. */
int soda_tcp_data_create(int fd, const char *rest, const struct soda_conn_options *opt,
			 struct soda_conn **conn_p);

#endif
