/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval`: what a process of the capped node may have. */
#include <stdio.h>
#include <string.h>

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
	needs.own_bytes = least;
	if (needs.arrays_fam)
		needs.own_bytes += (needs.buffer_bytes - least) / plan->chunk_bytes *
				   needs.array_bytes / needs.object_bytes * plan->chunk_bytes;
	needs.limit_bytes =
		plan->limit_bytes ? plan->limit_bytes : own + needs.buffer_bytes + allowance(plan);
	*needs_p = needs;
}
