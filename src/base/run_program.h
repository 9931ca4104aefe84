/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a program can have a library loaded into it, before `soda run` tries, or a program that
 * runs so becomes it.
 */
#ifndef SODA_COMMON_RUN_PROGRAM_H
#define SODA_COMMON_RUN_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

struct soda_run_refusal {
	int status; /* exit status: 126 cannot be run so, 127 not found */
	bool runs;  /* it can be run, but without the library */
	char text[1400];
};

/*
 * Find the program as the shell does and look at it, and at its interpreter where it is
 * a script.  0 with its path, or -1 with the reason.
 */
int soda_run_check(const char *name, char *path, size_t path_bytes, struct soda_run_refusal *why);

#endif
