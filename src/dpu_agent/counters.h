/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the agent counts.  One table: a new counter is one line here, and it appears
 * in the statistics.  Counters only grow; what goes up and down is asked of its
 * owner when the statistics are written.
 *
 * client_*: between programs and agent.  net_*: between agent and server, by kind.
 */
#ifndef SODA_DPU_AGENT_COUNTERS_H
#define SODA_DPU_AGENT_COUNTERS_H

#include <stdint.h>

#define SODA_COUNTERS(X)                                                                           \
	X(client_reads) /* answered */                                                             \
	X(client_read_bytes)                                                                       \
	X(client_writes) /* taken */                                                               \
	X(client_write_bytes)                                                                      \
	X(net_demand) /* transfers: READs for what a client waits for */                           \
	X(net_demand_bytes)                                                                        \
	X(net_prefetch) /* READs ahead of any client, for the dynamic cache */                     \
	X(net_prefetch_bytes)                                                                      \
	X(net_preload) /* READs for the static cache */                                            \
	X(net_preload_bytes)                                                                       \
	X(net_writeback) /* WRITEs */                                                              \
	X(net_writeback_bytes)                                                                     \
	X(batches)	    /* doorbells rung at the server */                                     \
	X(batched_requests) /* clients' requests in them */                                        \
	X(reads_merged)	    /* READs that travelled with a neighbour */                            \
	X(writes_merged)    /* WRITEs likewise */                                                  \
	X(writes_replaced)  /* by a newer one of the same range, and never sent */                 \
	X(writes_accepted)  /* acknowledged before the server had them */                          \
	X(writes_delayed)   /* not acknowledged at once: the budget was full */                    \
	X(writes_lost)	    /* acknowledged, and could not be written */                           \
	X(writes_lost_bytes)                                                                       \
	X(reads_owned)	  /* answered from data that is not on the server yet */                   \
	X(reads_waited)	  /* had to wait until such data was there */                              \
	X(requests_bad)	  /* outside of a region, or its access */                                 \
	X(peers_rejected) /* bad HELLO, bad frame */                                               \
	X(hellos_refused)                                                                          \
	X(calls_refused)                                                                           \
	X(clients_opened)                                                                          \
	X(clients_returned)                                                                        \
	X(upstream_failures) /* sessions whose connections to the server were lost */              \
	X(copied_bytes)	     /* payload that had to be copied within the agent */

enum soda_counter {
#define X(name) SODA_COUNT_##name,
	SODA_COUNTERS(X)
#undef X
		SODA_COUNTERS_N
};

extern const char *const soda_counter_names[SODA_COUNTERS_N];

/* Any thread, lock-free. */
void soda_count_add(enum soda_counter counter, uint64_t n);
uint64_t soda_count_get(enum soda_counter counter);

/* Powers of two from 1 to 64 and more: how many requests were in a batch. */
#define SODA_BATCH_BUCKETS 7
void soda_count_batch(unsigned requests);
uint64_t soda_count_batches(unsigned bucket);

#endif
