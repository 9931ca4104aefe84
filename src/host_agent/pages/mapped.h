/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An agent's static cache that is mapped here.  What is read of it gets page-table entries of
 * this process, and so counts as this node's memory (Pss), although it is the agent's.  So they
 * are let go of again, all of a mapping in one call.  The memory itself stays where it is:
 * whoever reads it again, or is reading it just then, pays a minor fault, no more.
 *
 * Each chunk that comes from there then costs such a fault, some 10 us; so this is for what an
 * agent keeps for the node, the smaller part of what is fetched.  Regions that a memory server
 * on this machine has mapped here stay: there every chunk would pay, and the memory is the
 * node's anyway.
 */
#ifndef SODA_HOST_MAPPED_H
#define SODA_HOST_MAPPED_H

#include <stdint.h>

#include "transport/api/transport.h"

/* Of each mapping; a smaller one is never let go of. */
enum { SODA_MAPPED_MOST = 4 << 20 };

/*
 * `bytes` bytes at `offset` were read in place (soda_mr_direct): see that no more than
 * SODA_MAPPED_MOST stays mapped, and what is read at once.  Under the lock that keeps mr as it
 * is; any number of threads. AS.
 */
void soda_mapped_read(const struct soda_mr *mr, uint64_t offset, uint32_t bytes);

#endif
