/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The counters of a daemon.  The daemon's own header (base/counters.h) has one table of key, unit
 * and meaning (SODA_COUNTERS), from which the names of the counters and their descriptions are
 * made: a new counter is one line there, and it appears in the statistics.  Counters only grow; a
 * quantity that goes up and down is asked of its owner when the statistics are written.
 *
 * Each thread adds to a shard of its own, so that data workers share no cache line.  Any thread,
 * lock-free.
 */
#ifndef SODA_DAEMON_COUNTERS_H
#define SODA_DAEMON_COUNTERS_H

#include <stdint.h>

#include "daemon/metrics.h"

enum { SODA_COUNTERS_MAX = 64, SODA_DISTRIBUTIONS_MAX = 3 };

/*
 * For a table X(name, unit, help): an entry of the enumeration of names, and of the descriptions.
 */
#define SODA_COUNTER_NAME(name, unit, what) SODA_COUNT_##name,
#define SODA_COUNTER_METRIC(name, of, what) { .key = #name, .help = what, .unit = SODA_UNIT_##of },

void soda_count_add(unsigned counter, uint64_t n);
uint64_t soda_count_get(unsigned counter);
/* Record one value of a distribution, such as how long a request took. */
void soda_count_record(unsigned distribution, uint64_t value);

/* Say all n counters, or distributions, to m. */
void soda_counters_walk(struct soda_metrics *m, const struct soda_metric *counters, unsigned n);
void soda_distributions_walk(struct soda_metrics *m, const struct soda_metric *distributions,
			     unsigned n);

#endif
