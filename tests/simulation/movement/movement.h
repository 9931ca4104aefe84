/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One seed of movement: producers and consumers with the real libsoda-move, an agent with its
 * service movement, and what goes wrong.
 *
 *   main.c      the seed's settings, its course, its end
 *   programs.c  producers and consumers, and what is right
 *   faults.c    faults: when, which, how long
 *   source.c    what the agent's kernel says of programs: their memory, and whether they live
 *   absent.c    what is no part of this simulation
 */
#ifndef SODA_SIM_MOVEMENT_H
#define SODA_SIM_MOVEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../fibers.h"
#include "../nodes.h"

/* Each program is a process: two of them produce, two consume. */
enum { MOVE_PRODUCERS = 2, MOVE_CONSUMERS = 2, MOVE_PROGRAMS = MOVE_PRODUCERS + MOVE_CONSUMERS };

static inline enum sim_process move_process(unsigned program)
{
	return program ? (enum sim_process)(SIM_SERVER + program - 1) : SIM_HOST;
}

struct move_plan {
	uint64_t seed;
	unsigned producers, consumers; /* of each at least one producer */
	unsigned steps;		       /* lists of a producer, until all is calm */
	unsigned faults;
	unsigned slow, stalls; /* sim_run's */
	bool shares;	       /* the agent is on the programs' machine */
	bool far[MOVE_PROGRAMS];
	bool readable;	    /* the agent may read the producers' memory */
	unsigned slow_read; /* of 10,000 parts that it reads, so many take seconds */
	bool tight;	    /* there is not memory enough for all buffers at a time */
	struct sim_agent_settings agent;
};
extern struct move_plan move_plan;

/* From now on programs come to their end, and nothing has an excuse. */
extern bool move_calm;

/* programs.c */

/* A program begins, for the first time or again. */
void move_begin(unsigned program);
/* It was killed. */
void move_killed(unsigned program);
/* All have come to their end. */
bool move_all_ended(void);

/* faults.c */

void *move_faults_main(void *arg);
void move_boot_agent(void);
/* All is as it should be; what follows of earlier faults is over when this returns. */
void move_settle(void);
/* Something that began then may have failed because of a fault. */
bool move_excused(uint64_t began_ns);
/* Somebody is killed, or ends: others may notice. */
void move_disturb(void);

/* source.c */

extern const struct soda_source_ops move_source_ops;
/* The process begins a life of its own, with a number. */
void move_source_begin(enum sim_process p);
void move_source_killed(enum sim_process p);
/* Memory of programs is not there any more, or is again; whole pages. */
void move_source_unmap(void *at, size_t bytes);
void move_source_map(void *at, size_t bytes);

#endif
