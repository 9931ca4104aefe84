/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where `soda stat PID` asks: an abstract UNIX socket "soda/stat/<pid>" that
 * answers each connection of the same user or root with one JSON object.
 */
#ifndef SODA_HOST_STAT_SOCKET_H
#define SODA_HOST_STAT_SOCKET_H

/* Open it; a failure is logged and costs no more than the answer. */
void soda_stat_socket_start(void);
void soda_stat_socket_stop(void);
/* To poll for POLLIN; -1: none. */
int soda_stat_socket_fd(void);
/* Answer one connection. */
void soda_stat_socket_serve(void);

#endif
