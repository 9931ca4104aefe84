/* SPDX-License-Identifier: BSD-3-Clause */
/* Run an application as often as asked, measured. */
#ifndef LIGRA_RUN_H
#define LIGRA_RUN_H

#include "ligra/result.h"

/* The run of median time. */
struct measured {
	double seconds, cpu_seconds;
	unsigned rounds;
	uint64_t faults, bytes_fetched, bytes_written_back;
	uint64_t prefetched, prefetch_useless; /* chunks */
	uint64_t pss_bytes;		       /* after it, the most of all runs */
};

/*
 * r_p: app and params are set; receives the result of the last run, its array
 * in `arrays`, where the application's other arrays lie, too.  The caller frees
 * it with mem_free().  0 or an error of an allocation.
 */
int run_app(const struct graph *g, struct mem *arrays, unsigned repeat, struct result *r_p,
	    struct measured *median_p, struct soda_graph_error *err);

#endif
