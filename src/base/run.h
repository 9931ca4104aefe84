/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by `soda run` and libsoda-run.so, the library that it loads into a program. */
#ifndef SODA_BASE_RUN_H
#define SODA_BASE_RUN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Why a library cannot be loaded into a program; found out before `soda run` starts the program, or
 * before a program under `soda run` becomes another one (exec).
 */
struct soda_run_refusal {
	int status; /* exit status for `soda run`: 126: cannot be run with it, 127: not found */
	bool runs;  /* the program can be run without the library */
	char text[1400];
};

/*
 * Find the program as a shell does, and check it, or, if it is a script, its interpreter.  0 with
 * its path, or -1 with the reason.
 */
int soda_run_check(const char *name, char *path, size_t path_bytes, struct soda_run_refusal *why);

/*
 * `soda run --report`: samples of counters that the program's runtime takes now and then, in memory
 * that it shares with `soda`, so that they outlive the program, however it ends. When the array is
 * full every other sample is dropped, and samples are taken half as often.
 */
enum { SODA_RUN_SAMPLES = 1024, SODA_RUN_SAMPLES_MAGIC = 0x534f5253 };

struct soda_run_sample {
	/*
	 * Since the runtime's start.  A sample that is not later than the one before does not
	 * count.
	 */
	uint64_t at_ns;
	uint64_t reserved, resident, buffer;			   /* bytes */
	uint64_t faults, zero_fills, fetched, written, stalled_ns; /* since the start */
};

struct soda_run_samples {
	uint32_t magic; /* set by `soda` */
	_Atomic uint32_t n;
	struct soda_run_sample samples[SODA_RUN_SAMPLES];
};

/*
 * Libraries of others that libsoda loads must find what they have allocated also while no server
 * can be reached: between soda_run_local(1) and soda_run_local(-1) nothing that the thread
 * allocates lies in fabric memory.  libsoda-run sets the function; elsewhere it is NULL.
 */
extern void (*soda_run_local_hook)(int step);
static inline void soda_run_local(int step)
{
	if (soda_run_local_hook)
		soda_run_local_hook(step);
}

#endif
