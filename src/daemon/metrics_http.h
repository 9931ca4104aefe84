/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics over HTTP, for Prometheus: GET /metrics, and GET /healthz, which is
 * 200 "ok" or, when the daemon is about to end, 503 "draining".
 *
 * One thread of low priority, libmicrohttpd's own, serves all requests.  There are at most
 * SODA_METRICS_CONNECTIONS_MAX connections: one more ends the oldest, so that slow peers cannot
 * keep others out.  Every answer closes its connection, and the statistics are collected at most
 * once in SODA_METRICS_FRESH_MS, however many peers ask.  A build without libmicrohttpd has no
 * endpoint: -ENOTSUP.
 */
#ifndef SODA_DAEMON_METRICS_HTTP_H
#define SODA_DAEMON_METRICS_HTTP_H

#include <stdbool.h>

#include "base/conf/conf.h"
#include "daemon/metrics.h"

struct soda_metrics_http;

/* What the endpoint serves; copied. The endpoint's thread calls the walk. */
struct soda_metrics_source {
	const char *prefix; /* as in soda_metrics_prometheus */
	soda_metrics_walk *walk;
	void *arg;
	const _Atomic bool *draining; /* the daemon has been told to end */
	const char *certificates;     /* a directory (trust/tls.h): https; NULL: http */
	bool local_only;	      /* http beyond this machine is refused */
};

/*
 * Make a listening, non-blocking socket.  address: "PORT" or ":PORT" (127.0.0.1),
 * "HOST:PORT", "[IPV6]:PORT"; port 0 picks one.  where_p: "127.0.0.1:9401", with the
 * real port.  0; -EINVAL, -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EMFILE; err says which.
 */
int soda_metrics_listen(const char *address, int *fd_p, char where_p[96],
			struct soda_conf_error *err);

/*
 * Start the endpoint.  address: as in soda_metrics_listen.  The caller has blocked the signals that
 * the daemon waits for.  0; the errors of soda_metrics_listen and of reading certificates, -ENOMEM,
 * -EAGAIN, -ENOTSUP; -EACCES: of local_only.
 */
int soda_metrics_http_start(const char *address, const struct soda_metrics_source *source,
			    struct soda_metrics_http **http_p, struct soda_conf_error *err);
/*
 * Read the certificates again, for connections from now on; those under way are closed.  With an
 * error nothing changes, but of -EAGAIN: there is no endpoint any more.  Nothing happens without
 * certificates, or with http NULL.
 */
int soda_metrics_http_reload(struct soda_metrics_http *http, struct soda_conf_error *err);
/* "http://127.0.0.1:9401/metrics", with the real port; valid until stop. */
const char *soda_metrics_http_url(const struct soda_metrics_http *http);
/* Close the connections, end the thread, free. http may be NULL. */
void soda_metrics_http_stop(struct soda_metrics_http *http);

#endif
