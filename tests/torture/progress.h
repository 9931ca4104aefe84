/* SPDX-License-Identifier: BSD-3-Clause */
/* Where programs of the campaign stand, in a file that the conductor maps (stage.py, Progress). */
#ifndef SODA_TORTURE_PROGRESS_H
#define SODA_TORTURE_PROGRESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { THREADS_MAX = 8, ENDED = 255 };

/* The conductor reads it, and writes `calm`. */
struct progress {
	_Atomic uint32_t calm;	/* all faults are over */
	_Atomic uint32_t state; /* enum state */
	struct {
		_Atomic uint64_t ops, steps;
		_Atomic uint32_t doing; /* of ops, or ENDED */
		uint32_t pad;
	} threads[THREADS_MAX + 1]; /* the last one: main */
};

enum state { STARTING, RUNNING, FINISHING, DONE };

/* A file of so many bytes, made if need be, mapped. What cannot be had is the program's end. */
void *map_file(const char *path, size_t bytes);

#endif
