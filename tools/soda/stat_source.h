/* SPDX-License-Identifier: BSD-3-Clause */
/* Where `soda stat` gets counters from: a program of this machine, or a server. */
#ifndef SODA_STAT_SOURCE_H
#define SODA_STAT_SOURCE_H

#include <jansson.h>

/*
 * target: a process id, or the address of a server.  A new reference, or NULL after a
 * message on stderr.  Waits for at most timeout_ms.
 */
json_t *soda_stat_read(const char *target, int timeout_ms);

#endif
