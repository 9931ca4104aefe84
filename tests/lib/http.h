/* SPDX-License-Identifier: BSD-3-Clause */
/* An HTTP client of raw sockets: what it sends is exactly what the test wants to send. */
#ifndef SODA_TEST_HTTP_H
#define SODA_TEST_HTTP_H

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

#endif
