/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters of this process, gathered, and as JSON text. */
/* The runtime's statistics, and who may ask for them. */
#ifndef SODA_HOST_STATS_H
#define SODA_HOST_STATS_H

#include <stddef.h>

#include "soda.h"

void soda_stats_gather(struct soda_stats *out);
/* {"soda_stats": {...}}; the length, cut to bytes - 1. */
size_t soda_stats_json(char *out, size_t bytes);

/*
 * stat_socket.c, where `soda stat PID` asks: an abstract UNIX socket "soda/stat/<pid>" that answers
 * each connection of the same user or root with one JSON object.
 */

/* Open it; a failure is logged and costs no more than the answer. */
void soda_stat_socket_start(void);
void soda_stat_socket_stop(void);
/* To poll for POLLIN; -1: none. */
int soda_stat_socket_fd(void);
/* Answer one connection. */
void soda_stat_socket_serve(void);

#endif
