/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The members of a pool of memory servers, from a list that the user gives:
 * tcp://a:7001,tcp://b:7001.  One address is a pool of one.
 */
#ifndef SODA_POOL_MEMBERS_H
#define SODA_POOL_MEMBERS_H

#include <stdint.h>

#include "base/limits.h"
#include "transport/api/transport.h"

/* Longest list: bytes without its end. */
enum { SODA_MEMBERS_TEXT_MAX = SODA_MEMBERS_MAX * (SODA_ADDRESS_MAX + 1) };

struct soda_members {
	uint32_t n;
	char address[SODA_MEMBERS_MAX][SODA_ADDRESS_MAX + 1];
};

/*
 * Take the list apart.  -EINVAL, with the reason in *why: an empty place, an address that is too
 * long, the same address twice, or more than SODA_MEMBERS_MAX; of a list of several also an address
 * without a transport (tcp://).
 */
int soda_members_parse(const char *list, struct soda_members *out, struct soda_why *why);

#endif
