/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions across a reconnection: what of their content is still there, and where.
 * The keeper runs it while the session is DOWN and every connection is broken.
 */
#ifndef SODA_HOST_RECOVER_H
#define SODA_HOST_RECOVER_H

#include <stdbool.h>

#include "host_agent/object/region.h"
#include "transport/api/transport.h"

/* Open the object's region on the server and fill r->mr, bytes, file_id, generation. */
int soda_recover_open(struct soda_conn *control, struct soda_region *r, int timeout_ms,
		      struct soda_why *why);

/*
 * The peer is this agent now (soda_wire_welcome.agent).  Where it is another than before:
 * what that owed is LOST, or dirty where it is resident.
 */
void soda_recover_owed(uint32_t agent);

/*
 * known: the server still has our regions.  Otherwise chunk by chunk as session.h
 * says, and each region is opened anew; one that cannot be is lost as a whole,
 * which is logged and does not fail the others.  Errors of the connection.
 */
int soda_recover_regions(struct soda_conn *control, bool known, struct soda_why *why);

/*
 * The keeper's tick: chunks that were in use for longer than a recovery could wait are looked at
 * again, and their objects are good again with the last of them.
 */
void soda_recover_look(void);
/* The chunks' object goes. soda_regions_lock held. */
void soda_recover_forget(uint32_t first, uint32_t n);

#endif
