/* SPDX-License-Identifier: BSD-3-Clause */
/* http.c: an HTTP client of raw sockets: what it sends is exactly what the test wants to send. */
#ifndef SODA_TEST_SCRAPE_H
#define SODA_TEST_SCRAPE_H

#include <stdbool.h>
#include <stddef.h>

enum { HTTP_TIMEOUT_MS = 60000, HTTP_ANSWER_MAX = 1 << 20 };

/* "http://127.0.0.1:PORT/..." in a text: the port of the first; 0: there is none. */
unsigned http_find_port(const char *text);
/* A connection to 127.0.0.1. A descriptor, or -errno. */
int http_connect(unsigned port);
/*
 * Send these bytes, close the sending side if half_close, and receive up to the end of
 * the connection.  Returns the status of the answer, 0 when it ended without one, or
 * -ETIMEDOUT.  The whole answer, terminated, is in a static buffer.
 */
int http_raw(unsigned port, const void *request, size_t bytes, int half_close,
	     const char **answer_p);
/* GET path. As http_raw; *body_p: what follows the head. */
int http_get(unsigned port, const char *path, const char **body_p);

/* promcheck.c: whether a text is in the Prometheus exposition format, as strictly as its own tools
 * ask. */

/*
 * The whole of it: HELP and TYPE before the samples of a family, which stand
 * together; names, labels, escapes and values well formed; no series twice;
 * counters named _total; histograms cumulative, with +Inf, _sum and _count that agree.
 * Returns the number of samples, or -1 after a line on standard error that says where and what.
 */
int prom_check(const char *text);

/* The value of the series with exactly this name and these labels ("a{b=\"c\"}"). False: none. */
bool prom_value(const char *text, const char *series, double *value_p);

/* scraped.c, with <cmocka.h>: each fails the running test where something is wrong. */

/* What is served at http://127.0.0.1:PORT/metrics now, and is well formed; until the next call. */
const char *scraped(unsigned port);
/* The value of a series in it. */
double scraped_value(const char *text, const char *series);

#endif
