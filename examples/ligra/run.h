/* SPDX-License-Identifier: BSD-3-Clause */
/* Run an application as often as asked, measured. */
#ifndef LIGRA_RUN_H
#define LIGRA_RUN_H

#include "options.h"
#include "result.h"

/* The run of median time. */
struct measured {
	double seconds;
	uint64_t faults, bytes_fetched, bytes_written_back;
	uint64_t pss_bytes; /* after it, the most of all runs */
};

/* The parts that an application reads. */
unsigned run_parts(enum app app);

/*
 * r_p: app and source are set; receives the result of the last run, its array
 * in the graph's memory.  The caller frees it with mem_free().
 * 0 or an error of an allocation.
 */
int run_app(const struct graph *g, const struct options *o, struct result *r_p,
	    struct measured *median_p, struct error *err);

#endif
