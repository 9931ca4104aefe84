/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the TCP transport share. */
#ifndef SODA_TCP_H
#define SODA_TCP_H

#include "transport/api/transport_impl.h"

#define SODA_TCP_PREFIX "tcp://"

extern const struct soda_transport soda_tp_tcp;

/* A data connection on a connected socket that has said HELLO; owns fd. -ENOMEM. */
int soda_tcp_data_create(int fd, const char *rest, const struct soda_conn_options *opt,
			 struct soda_conn **conn_p);

#endif
