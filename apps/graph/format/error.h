/* SPDX-License-Identifier: BSD-3-Clause */
/* A sentence for the user that travels up with a negative errno. */
#ifndef SODA_GRAPH_ERROR_H
#define SODA_GRAPH_ERROR_H

struct soda_graph_error {
	char text[512];
};

/* Write the sentence and return -code, so that `return soda_graph_fail(...)` reads well. */
int soda_graph_fail(struct soda_graph_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
