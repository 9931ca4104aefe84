/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the agent counts: daemon/counters.h.
 *
 * client_*: between programs and agent.  net_*: between agent and server, by kind.
 */
#ifndef SODA_DPU_AGENT_COUNTERS_H
#define SODA_DPU_AGENT_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/counters.h"

#define SODA_COUNTERS(X)                                                                           \
	X(client_reads, NONE, "READs answered")                                                    \
	X(client_read_bytes, BYTES, "data sent to programs")                                       \
	X(client_writes, NONE, "WRITEs taken")                                                     \
	X(client_write_bytes, BYTES, "data taken from programs")                                   \
	X(net_demand, NONE, "READs at the server that a program waits for")                        \
	X(net_demand_bytes, BYTES, "data read from the server because a program waits for it")     \
	X(net_prefetch, NONE, "READs at the server ahead of any program, for the dynamic cache")   \
	X(net_prefetch_bytes, BYTES, "data read ahead of any program")                             \
	X(net_preload, NONE, "READs at the server for the static cache")                           \
	X(net_preload_bytes, BYTES, "data read for the static cache")                              \
	X(net_writeback, NONE, "WRITEs at the server")                                             \
	X(net_writeback_bytes, BYTES, "data written to the server")                                \
	X(batches, NONE, "doorbells rung at the server")                                           \
	X(batched_requests, NONE, "requests of programs in all batches")                           \
	X(reads_merged, NONE, "READs that travelled with a neighbour")                             \
	X(writes_merged, NONE, "WRITEs that travelled with a neighbour")                           \
	X(writes_replaced, NONE,                                                                   \
	  "WRITEs replaced by a newer one of the same range, and never sent")                      \
	X(writes_accepted, NONE, "WRITEs acknowledged before the server had them")                 \
	X(writes_delayed, NONE, "WRITEs not acknowledged at once, because the budget was full")    \
	X(writes_recalled, NONE, "WRITEs to a member of a pool whose data another one had before") \
	X(writes_recalled_bytes, BYTES, "data of WRITEs that the program sent for another member") \
	X(writes_encoded, NONE,                                                                    \
	  "WRITEs of parity, computed from data that other members had before")                    \
	X(writes_encoded_bytes, BYTES, "parity that was computed")                                 \
	X(writes_lost, NONE, "WRITEs acknowledged that could not be written")                      \
	X(writes_lost_bytes, BYTES, "data acknowledged that could not be written")                 \
	X(reads_owned, NONE, "READs answered from data that was not on the server yet")            \
	X(reads_waited, NONE, "READs that waited until unwritten data was on the server")          \
	X(requests_bad, NONE, "requests outside of a region or against its access")                \
	X(peers_rejected, NONE, "connections closed for a bad HELLO or a bad frame")               \
	X(hellos_refused, NONE, "HELLOs refused")                                                  \
	X(calls_refused, NONE, "control requests refused")                                         \
	X(clients_opened, NONE, "clients that came")                                               \
	X(clients_returned, NONE, "clients that reconnected")                                      \
	X(upstream_failures, NONE, "sessions whose connections to the server were lost")           \
	X(copied_bytes, BYTES, "payload that had to be copied within the agent")

enum { SODA_COUNTERS(SODA_COUNTER_NAME) SODA_COUNTERS_N };

enum {
	SODA_BATCH_SIZES,
	SODA_TIMES_READ, /* of a program's READ, from its arrival to its answer */
	SODA_TIMES_WRITE,
	SODA_DISTRIBUTIONS_N
};

/* A batch of so many requests has been sent. */
static inline void soda_count_batch(unsigned requests)
{
	soda_count_record(SODA_BATCH_SIZES, requests);
	soda_count_add(SODA_COUNT_batches, 1);
	soda_count_add(SODA_COUNT_batched_requests, requests);
}

/* A program's READ or WRITE is about to be answered, ns after it arrived. */
static inline void soda_count_request(bool write, uint32_t bytes, uint64_t ns)
{
	soda_count_add(write ? SODA_COUNT_client_writes : SODA_COUNT_client_reads, 1);
	soda_count_add(write ? SODA_COUNT_client_write_bytes : SODA_COUNT_client_read_bytes, bytes);
	soda_count_record(write ? SODA_TIMES_WRITE : SODA_TIMES_READ, ns);
}

/* A READ that programs wait for, or a WRITE, goes to the server. */
static inline void soda_count_transfer(bool write, uint32_t bytes)
{
	soda_count_add(write ? SODA_COUNT_net_writeback : SODA_COUNT_net_demand, 1);
	soda_count_add(write ? SODA_COUNT_net_writeback_bytes : SODA_COUNT_net_demand_bytes, bytes);
}

#endif
