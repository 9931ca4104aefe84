/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "registry/http.h"
#include "registry/registry.h"

int soda_http_open(const struct soda_http_tls *tls, struct soda_http **http_p, struct soda_why *why)
{
	return soda_registry_fail(why, -ENOTSUP,
				  "this build of SODA has no libcurl (libcurl4-openssl-dev), and "
				  "cannot ask etcd: give the servers' addresses");
}

int soda_http_post(struct soda_http *http, const char *url, const char *token, const char *body,
		   int timeout_ms, struct soda_http_answer *answer_p, struct soda_why *why)
{
	return -ENOTSUP;
}

int soda_http_stream(struct soda_http *http, const char *url, const char *token, const char *body,
		     int timeout_ms, bool (*line)(void *arg, const char *text), void *arg,
		     struct soda_why *why)
{
	return -ENOTSUP;
}

void soda_http_stop(struct soda_http *http, bool stop)
{
}

void soda_http_close(struct soda_http *http)
{
}
