/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda eval --paper`: what the paper used, and whether this machine has it. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "soda/eval/eval.h"

enum { THREADS = 24 };

#define NODE_BYTES (16ull << 30)
#define CACHE_BYTES (1ull << 30)
#define CHUNK_BYTES (64u << 10)

static uint32_t complain_about_machine(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct soda_cgroup cap;
	uint32_t n = 0;
	int err;

	if (processors < THREADS && ++n)
		fprintf(stderr, "soda eval: --paper: %d processors are needed, here are %ld\n",
			THREADS, processors);
	/* the node's, and as much again and more for the memory server */
	if (memory < 3 * NODE_BYTES && ++n)
		fprintf(stderr,
			"soda eval: --paper: %llu GiB of memory are needed, a node of 16 GiB and "
			"a memory server for three times as much, here are %llu\n",
			3 * NODE_BYTES >> 30, (unsigned long long)memory >> 30);
	err = soda_cgroup_open_memory(NODE_BYTES, false, getpid(), &cap);
	if (!err)
		soda_cgroup_close(&cap);
	else if (++n)
		fprintf(stderr, "soda eval: --paper: a node of 16 GiB needs a memory cgroup: %s\n",
			err == -ENOENT ? "this machine has none"
				       : "run as root, or in a delegated group");
	return n;
}

int soda_eval_paper_plan(struct soda_eval_plan *plan)
{
	uint32_t missing = complain_about_machine();

	if (!plan->graphs_n) {
		missing++;
		fprintf(stderr, "soda eval: --paper: its graphs are not part of this program: name "
				"them with --graph\n");
	}
	plan->threads = THREADS;
	plan->chunk_bytes = CHUNK_BYTES;
	plan->cache_bytes = CACHE_BYTES;
	plan->limit_bytes = NODE_BYTES;
	return missing ? -ENOTSUP : 0;
}
