/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * POST of JSON over HTTP, by libcurl, which is loaded by name with the first soda_http_open(): a
 * daemon without a registry does not have it and the dozens of libraries below it.  http_stub.c:
 * builds without libcurl's headers.
 */
#ifndef SODA_REGISTRY_HTTP_H
#define SODA_REGISTRY_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "transport/api/transport.h"

struct soda_http; /* connections are kept; one thread at a time */

struct soda_http_answer {
	long status;
	char *body; /* for the caller's soda_wiping_free(); NULL: empty */
	size_t bytes;
};

/* PEM files, or NULL: the certificates that are believed of a server; and who we are to it. */
struct soda_http_tls {
	const char *ca, *cert, *key;
};

/* -ENOTSUP: there is no libcurl; -ENOMEM; with *why. */
int soda_http_open(const struct soda_http_tls *tls, struct soda_http **http_p,
		   struct soda_why *why);
/*
 * token: of a header Authorization, or NULL.  0, whatever the status; -ECANCELED (soda_http_stop);
 * -EIO, with *why: no answer within timeout_ms, or a longer one than SODA_REGISTRY_ANSWER_MAX.
 */
int soda_http_post(struct soda_http *http, const char *url, const char *token, const char *body,
		   int timeout_ms, struct soda_http_answer *answer_p, struct soda_why *why);
/*
 * The same where the answer is a stream of lines: each, ended, and without its newline, goes to
 * `line` as soon as it is there, in this thread, until that returns false, the answer ends, or
 * timeout_ms are over: 0.  A line has at most SODA_REGISTRY_ANSWER_MAX bytes.
 */
int soda_http_stream(struct soda_http *http, const char *url, const char *token, const char *body,
		     int timeout_ms, bool (*line)(void *arg, const char *text), void *arg,
		     struct soda_why *why);
/* Any thread: the call under way, and those that follow, are given up at once; false: no more. */
void soda_http_stop(struct soda_http *http, bool stop);
void soda_http_close(struct soda_http *http); /* NULL is fine */

#endif
