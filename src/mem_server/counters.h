/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the server counts.  One table: a new counter is one line here, and it
 * appears in the statistics.  Counters only grow; what goes up and down (memory,
 * clients, regions) is asked of its owner when the statistics are written.
 *
 * Each thread adds to a shard of its own, so that data workers share no cache line.
 */
#ifndef SODA_MEM_SERVER_COUNTERS_H
#define SODA_MEM_SERVER_COUNTERS_H

#include <stdint.h>

#define SODA_COUNTERS(X)                                                                           \
	X(reads)	  /* READs served */                                                       \
	X(writes)	  /* WRITEs stored */                                                      \
	X(bytes_read)	  /* sent to clients */                                                    \
	X(bytes_written)  /* received from clients */                                              \
	X(requests_bad)	  /* READs and WRITEs outside a region or its access */                    \
	X(peers_rejected) /* bad HELLO, bad frame */                                               \
	X(hellos_refused) /* unknown secret, old epoch, uid, limits */                             \
	X(clients_opened)                                                                          \
	X(clients_returned) /* reconnections that found their regions */                           \
	X(clients_expired)  /* freed after the grace time */                                       \
	X(regions_opened)                                                                          \
	X(opens_refused)                                                                           \
	X(calls_refused) /* other control requests */                                              \
	X(files_loaded)                                                                            \
	X(bytes_loaded) /* from files */                                                           \
	X(files_shared) /* opens that found the file in memory */                                  \
	X(syncs)                                                                                   \
	X(syncs_failed)                                                                            \
	X(bytes_synced) /* to files */

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

#endif
