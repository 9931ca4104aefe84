/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters of this process, gathered, and as JSON text. */
#ifndef SODA_HOST_STATS_H
#define SODA_HOST_STATS_H

#include <stddef.h>

#include "soda.h"

void soda_stats_gather(struct soda_stats *out);
/* {"soda_stats": {...}}; the length, cut to bytes - 1. */
size_t soda_stats_json(char *out, size_t bytes);

#endif
