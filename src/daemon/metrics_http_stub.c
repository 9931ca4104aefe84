/* SPDX-License-Identifier: BSD-3-Clause */
/* metrics_http.h in a build without libmicrohttpd. */
#include <errno.h>

#include "daemon/metrics_http.h"

int soda_metrics_http_start(const char *address, const struct soda_metrics_source *source,
			    struct soda_metrics_http **http_p, struct soda_conf_error *err)
{
	return soda_conf_fail(err, -ENOTSUP,
			      "metrics: this build has no HTTP server: build it with libmicrohttpd"
			      " (-Dmetrics=enabled), or leave the option out");
}

const char *soda_metrics_http_url(const struct soda_metrics_http *http)
{
	return "";
}

void soda_metrics_http_stop(struct soda_metrics_http *http)
{
}

int soda_metrics_http_reload(struct soda_metrics_http *http, struct soda_conf_error *err)
{
	return 0;
}
