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

/*
 * We are connected to the agent of that number now (soda_wire_welcome.agent).  If it is another
 * agent than before, unacknowledged chunks become LOST, or dirty where they are resident.
 */
void soda_recover_unacked(uint32_t agent);

/*
 * A server is met that has none of our objects: each is to be opened anew, and chunk by chunk it is
 * decided what of it is still there, as session.h says.
 */
void soda_recover_anew(struct soda_link *link);
/*
 * Open what the server that is met does not have, however many attempts that takes: where one is
 * broken off the next one, as the same client, goes on with the objects that it had not come to.
 * An object that the server refuses is not fetched and not written back, which is logged and does
 * not fail the others; it is asked for again (soda_recover_look).  Errors of the connection.
 */
int soda_recover_regions(struct soda_conn *control, struct soda_why *why);

/*
 * The keeper's tick: chunks that were in use for longer than a recovery could wait are looked at
 * again, and their objects are good again with the last of them.  And now and then the server is
 * asked whether it takes what it has refused: if so the connections are made anew, and the object
 * has its place then.
 */
void soda_recover_look(struct soda_link *link);
/* The chunks' object goes. soda_regions_lock held. */
void soda_recover_forget(uint32_t first, uint32_t n);

#endif
