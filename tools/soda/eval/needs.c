/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: what a process of the capped node may have. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "soda/base/json.h"
#include "soda/eval/eval.h"

/*
 * What a process needs beside its page buffer: the runtime's tables, code, page tables and file
 * pages in use; and each thread's stack and connections.
 */
#define ALLOWANCE (8ull << 20)
#define ALLOWANCE_THREAD (1ull << 20)
/* The same if the kernel gives huge pages unasked: stacks and small heaps then use some. */
#define ALLOWANCE_HUGE (12ull << 20)

/*
 * With a store: what a process's own page buffer has beside the store, which is what both processes
 * share.  Chunks of the store are mapped without a place in the buffer, but a READ of one has a
 * place there until it is answered, and libsoda sends READs ahead of a stream only as far as it has
 * staging slots: up to SODA_PREFETCH chunks a thread, for which it takes an eighth of the buffer.
 * A buffer of the least size has none: each thread then waits for every chunk that the store lacks.
 * So it has an eighth of what a process has in other modes, where that is within these two: slots
 * for two chunks a thread, and slots for as many as libsoda ever sends ahead; more would be missing
 * in the store, and idle here.
 */
enum { AHEAD_PART = 8, AHEAD_LEAST = 2, AHEAD_MOST = 32, AHEAD_MOST_BYTES = 2 << 20 };

static bool huge_pages_unasked(void)
{
	FILE *in = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
	char line[64] = "";
	bool unasked = in && fgets(line, sizeof(line), in) && strstr(line, "[always]");

	if (in)
		fclose(in);
	return unasked;
}

static uint64_t allowance(const struct soda_eval_plan *plan)
{
	return ALLOWANCE + plan->threads * ALLOWANCE_THREAD +
	       (huge_pages_unasked() ? ALLOWANCE_HUGE : 0);
}

/* Never more than half: what is left is the store. */
static uint64_t beside_store(const struct soda_eval_plan *plan, uint64_t buffer, uint64_t least)
{
	uint64_t chunk = plan->chunk_bytes, threads = plan->threads;
	uint64_t bytes = buffer / AHEAD_PART, low = AHEAD_LEAST * AHEAD_PART * threads * chunk;
	uint64_t high = AHEAD_MOST * chunk;

	high = (high > AHEAD_MOST_BYTES ? high : AHEAD_MOST_BYTES) * AHEAD_PART * threads;
	bytes = bytes > low ? bytes : low;
	bytes = bytes < high ? bytes : high;
	bytes = bytes < buffer / 2 ? bytes : buffer / 2;
	return bytes > least ? bytes / chunk * chunk : least;
}

void soda_eval_needs_of(const struct soda_eval_plan *plan, const json_t *dram,
			struct soda_eval_needs *needs_p)
{
	struct soda_eval_needs needs = { .object_bytes = soda_json_count(dram, "object_bytes"),
					 .array_bytes = soda_json_count(dram, "array_bytes") };
	uint64_t own = needs.array_bytes, least = 5 * plan->threads * plan->chunk_bytes;

	/* The application's own arrays stay here unless they would leave the graph too little. */
	needs.arrays_fam = own * 6 > needs.object_bytes;
	own = needs.arrays_fam ? 0 : own;
	needs.buffer_bytes = (needs.object_bytes / 3 - own) / plan->chunk_bytes * plan->chunk_bytes;
	if (needs.buffer_bytes < least)
		needs.buffer_bytes = least;
	/* With a store the graph is there, and what is stored to has its part of the buffer. */
	needs.own_bytes = beside_store(plan, needs.buffer_bytes, least);
	if (needs.arrays_fam)
		needs.own_bytes += (needs.buffer_bytes - needs.own_bytes) / plan->chunk_bytes *
				   needs.array_bytes / needs.object_bytes * plan->chunk_bytes;
	needs.limit_bytes =
		plan->limit_bytes ? plan->limit_bytes : own + needs.buffer_bytes + allowance(plan);
	*needs_p = needs;
}

uint64_t soda_eval_store_bytes(const struct soda_eval_run *run, const struct soda_eval_needs *needs)
{
	uint64_t bytes;

	if (!soda_eval_mode_has(run->mode, SODA_EVAL_SHARES))
		return 0;
	bytes = run->processes * (needs->buffer_bytes - needs->own_bytes);
	return bytes > SODA_NODE_MIN ? bytes : SODA_NODE_MIN;
}

uint64_t soda_eval_warm_bytes(const struct soda_eval_run *run, const struct soda_eval_needs *needs,
			      bool first)
{
	if (!soda_eval_mode_has(run->mode, SODA_EVAL_SHARES))
		return needs->buffer_bytes;
	/* not soda_eval_store_bytes(), whose least may be more than there is */
	return first ? run->processes * needs->buffer_bytes -
			       (run->processes - 1) * needs->own_bytes
		     : needs->own_bytes;
}
