/* SPDX-License-Identifier: BSD-3-Clause */
/* A sentence for the user that travels up with a negative errno. */
#ifndef LIGRA_ERROR_H
#define LIGRA_ERROR_H

struct error {
	char text[512];
};

/* Write the sentence and return -code, so that `return error_set(...)` reads well. */
int error_set(struct error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
