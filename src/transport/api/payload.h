/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one function by which a transport's listening side, and in a daemon that of verbs that
 * connects, copies data of READs and WRITEs.
 */
#ifndef SODA_PAYLOAD_H
#define SODA_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

/* memcpy, counted. */
void soda_payload_copy(void *to, const void *from, size_t bytes);
/* How much it has copied in this process. */
uint64_t soda_payload_copied(void);

#endif
