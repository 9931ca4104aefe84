/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `soda run --report` learns of a program while it runs: counters, looked at now and then, in
 * memory that the program shares with `soda`.  So they outlive the program, however it ends.
 * When it is full every other one goes, and they come half as often.
 */
#ifndef SODA_COMMON_RUN_SAMPLES_H
#define SODA_COMMON_RUN_SAMPLES_H

#include <stdatomic.h>
#include <stdint.h>

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
