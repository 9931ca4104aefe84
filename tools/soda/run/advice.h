/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Advice for a user of `soda run`, by the numbers of a run that has ended.  A table of rules, each
 * with its condition, decides; advice.c has it.
 */
#ifndef SODA_TOOL_RUN_ADVICE_H
#define SODA_TOOL_RUN_ADVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run: sums over all of its processes. */
struct soda_run_facts {
	uint64_t waited_ns;		   /* in faults, all threads together */
	uint64_t threads_ns;		   /* their time: soda_run_threads_ns() */
	uint64_t data;			   /* bytes of fabric memory, at most; 0: none was used */
	uint64_t fetched, written, buffer; /* bytes */
	uint64_t local; /* the most that one process was seen to have beside the buffer */
	uint64_t threshold;
	uint64_t demanded, ahead, useless; /* chunks: waited for; fetched ahead; of these in vain */
	uint64_t chunk_bytes;
	uint64_t fetch_p50_ns;
	bool small_blocks; /* --threshold auto */
	bool handler;	   /* SODA_MODE=handler */
	bool remote;	   /* a server on another machine has the data, without an agent */
};

/*
 * How long threads worked or waited, of a process that lived so long, used so much processor time,
 * and in which so many threads waited so long in faults: never less than waited_ns.  The time of
 * one thread is the process's life.  The time of several, which may have been there for a part of
 * it only, is no more than their lives, and no more than what they are known to have done.
 */
uint64_t soda_run_threads_ns(uint64_t lived_ns, uint64_t cpu_ns, uint64_t waited_ns,
			     uint32_t threads);

enum { SODA_RUN_ADVICE_MAX = 2, SODA_RUN_ADVICE_TEXT = 320 };

struct soda_run_advice {
	const char *rule; /* its name, for programs */
	char text[SODA_RUN_ADVICE_TEXT];
};

/* At least one sentence, at most SODA_RUN_ADVICE_MAX; returns how many. */
size_t soda_run_advise(const struct soda_run_facts *facts,
		       struct soda_run_advice out[SODA_RUN_ADVICE_MAX]);

#endif
