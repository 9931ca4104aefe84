/* SPDX-License-Identifier: BSD-3-Clause */
/* What `soda run` and the library that it loads into a program must see alike. */
#ifndef SODA_BASE_RUN_H
#define SODA_BASE_RUN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Whether a program can have a library loaded into it, asked before `soda run` tries, or before a
 * program that runs so becomes another one.
 */
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

/*
 * What `soda run --report` learns of a program while it runs: counters, looked at now and then, in
 * memory that the program shares with `soda`.  So they outlive the program, however it ends.
 * When the array is full every other sample goes, and samples come half as often.
 */
enum { SODA_RUN_SAMPLES = 1024, SODA_RUN_SAMPLES_MAGIC = 0x534f5253 };

struct soda_run_sample {
	uint64_t
		at_ns; /* since the runtime's start; one that is not after the one before is none */
	uint64_t reserved, resident, buffer;			   /* bytes */
	uint64_t faults, zero_fills, fetched, written, stalled_ns; /* since the start */
};

struct soda_run_samples {
	uint32_t magic; /* set by `soda` */
	_Atomic uint32_t n;
	struct soda_run_sample samples[SODA_RUN_SAMPLES];
};

#endif
