/* SPDX-License-Identifier: BSD-3-Clause */
/* The runtime's statistics: gathered, as JSON text, and for `soda stat`. */
#ifndef SODA_HOST_STATS_H
#define SODA_HOST_STATS_H

#include <stddef.h>

#include "soda.h"

/* For soda_get_stats(): what a thread has seen done is counted (soda_handler_await). */
void soda_stats_gather(struct soda_stats *out);
/* Write {"soda_stats": {...}} and a zero byte to out. Returns the length, at most bytes - 1. */
size_t soda_stats_json(char *out, size_t bytes);

/*
 * stat_socket.c: the abstract UNIX socket "soda/stat/<pid>", to which `soda stat PID` connects.  It
 * answers each connection of the same user or root with one JSON object.
 */

/* Open the socket; a failure is logged, and the runtime goes on without one. */
void soda_stat_socket_start(void);
void soda_stat_socket_stop(void);
/* The descriptor, to poll for POLLIN; -1: there is none. */
int soda_stat_socket_fd(void);
/* Accept one connection and answer it. */
void soda_stat_socket_serve(void);

#endif
