/* SPDX-License-Identifier: BSD-3-Clause */
/* What the server counts: daemon/counters.h. */
#ifndef SODA_MEM_SERVER_COUNTERS_H
#define SODA_MEM_SERVER_COUNTERS_H

#include "daemon/counters.h"

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
	X(clients_adopted, NONE, "reconnections by a token, after an agent's death")               \
	X(clients_expired, NONE, "clients freed after the grace time")                             \
	X(regions_opened, NONE, "regions opened")                                                  \
	X(bytes_discarded, BYTES, "memory of regions given back to the system for DISCARDs")       \
	X(opens_refused, NONE, "regions refused: capacity, quota, names, access")                  \
	X(calls_refused, NONE, "other control requests refused")                                   \
	X(files_loaded, NONE, "files loaded into memory")                                          \
	X(bytes_loaded, BYTES, "data loaded from files")                                           \
	X(files_shared, NONE, "opens that found the file, or the published object, in memory")     \
	X(files_hashed, NONE,                                                                      \
	  "files whose content was hashed, to be compared with other servers'")                    \
	X(bytes_hashed, BYTES, "data of files that were hashed")                                   \
	X(objects_published, NONE, "regions that their clients have published")                    \
	X(syncs, NONE, "write-backs to files")                                                     \
	X(syncs_failed, NONE, "write-backs to files that failed")                                  \
	X(bytes_synced, BYTES, "data written to files")

enum { SODA_COUNTERS(SODA_COUNTER_NAME) SODA_COUNTERS_N };

/* How long requests took, from the header to the last byte. */
enum { SODA_TIMES_READ, SODA_TIMES_WRITE, SODA_DISTRIBUTIONS_N };

#endif
