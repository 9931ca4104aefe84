/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that runs seeds, each in a child of its process, which has everything mapped and
 * nothing begun:
 *
 *   PROGRAM [--seeds N] [--seed S] [--first S] [--seconds S] [--until-failure] [--quiet]
 *           [--pool] [--trace] [--watch CHUNK]
 */
#ifndef SODA_SIM_SEEDS_H
#define SODA_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

struct sim_seeds {
	const char *name;		 /* of the program */
	void (*one)(uint64_t seed);	 /* to its end; a failure is sim_fail() */
	void (*say)(void);		 /* sim_at_failure; or NULL */
	bool (*has_pool)(uint64_t seed); /* for --pool; NULL: there is no such option */
};

/* Of --watch; -1: none. */
extern long sim_watched_chunk;

/* What main() returns. */
int sim_seeds_main(int argc, char **argv, const struct sim_seeds *program);

/* memory.c: the variables of the processes, as they were at the start. */
void sim_memory_prepare(void);
void sim_memory_fresh(int process);

#endif
