/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the server counts.  One table of key, unit and meaning: a new counter is one
 * line here, and it appears in the statistics.  Counters only grow; what goes up and down (memory,
 * clients, regions) is asked of its owner when the statistics are written.
 *
 * Each thread adds to a shard of its own, so that data workers share no cache line.
 */
#ifndef SODA_MEM_SERVER_COUNTERS_H
#define SODA_MEM_SERVER_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/metrics.h"

#define SODA_COUNTERS(X)                                                                           \
	X(reads, NONE, "READs served")                                                             \
	X(writes, NONE, "WRITEs stored")                                                           \
	X(bytes_read, BYTES, "data sent to clients")                                               \
	X(bytes_written, BYTES, "data received from clients")                                      \
	X(requests_bad, NONE, "READs and WRITEs outside of a region or against its access")        \
	X(peers_rejected, NONE, "connections closed for a bad HELLO or a bad frame")               \
	X(hellos_refused, NONE, "HELLOs refused: secret, epoch, user, limits")                     \
	X(clients_opened, NONE, "clients that came")                                               \
	X(clients_returned, NONE, "reconnections that found their regions")                        \
	X(clients_expired, NONE, "clients freed after the grace time")                             \
	X(regions_opened, NONE, "regions opened")                                                  \
	X(bytes_discarded, BYTES, "memory of regions given back to the system for DISCARDs")       \
	X(opens_refused, NONE, "regions refused: capacity, quota, names, access")                  \
	X(calls_refused, NONE, "other control requests refused")                                   \
	X(files_loaded, NONE, "files loaded into memory")                                          \
	X(bytes_loaded, BYTES, "data loaded from files")                                           \
	X(files_shared, NONE, "opens that found the file in memory")                               \
	X(syncs, NONE, "write-backs to files")                                                     \
	X(syncs_failed, NONE, "write-backs to files that failed")                                  \
	X(bytes_synced, BYTES, "data written to files")

enum soda_counter {
#define X(name, unit, help) SODA_COUNT_##name,
	SODA_COUNTERS(X)
#undef X
		SODA_COUNTERS_N
};

extern const struct soda_metric soda_counter_metrics[SODA_COUNTERS_N];

/* Any thread, lock-free. */
void soda_count_add(enum soda_counter counter, uint64_t n);
uint64_t soda_count_get(enum soda_counter counter);

/* How long a READ or a WRITE took, from its header to its last byte. Any thread, lock-free. */
void soda_count_service_time(bool write, uint64_t ns);
/* All of them so far, added to *into. */
void soda_count_service_times(bool write, struct soda_histogram *into);

#endif
