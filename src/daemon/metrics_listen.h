/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket of the metrics endpoint. For metrics_http.c. */
#ifndef SODA_COMMON_METRICS_LISTEN_H
#define SODA_COMMON_METRICS_LISTEN_H

#include "base/conf/conf.h"

/*
 * A listening socket, which does not block.  address: "PORT" or ":PORT" (127.0.0.1),
 * "HOST:PORT", "[IPV6]:PORT"; port 0 picks one.  where_p: "127.0.0.1:9401", with the
 * real port.  0; -EINVAL, -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EMFILE; err says which.
 */
int soda_metrics_listen(const char *address, int *fd_p, char where_p[96],
			struct soda_conf_error *err);

#endif
