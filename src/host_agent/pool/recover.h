/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Objects across a reconnection: decides of each chunk whether its content still exists, and opens
 * the objects' regions on a server that does not have them.  The keeper calls soda_recover_unacked,
 * _anew and _regions while the session is not UP and all data connections are closed.
 */
#ifndef SODA_HOST_RECOVER_H
#define SODA_HOST_RECOVER_H

#include <stdbool.h>

#include "host_agent/object/region.h"
#include "transport/api/transport.h"

/*
 * We are connected to the agent of that number now (soda_wire_welcome.agent).  If it is another
 * agent than before, unacknowledged chunks, all of which are resident, become dirty.
 */
void soda_recover_unacked(uint32_t agent);
/*
 * The server has refused WRITEs that the agent had acknowledged: unacknowledged chunks become dirty
 * and are sent again.  The session is UP.
 */
void soda_recover_refused(void);

/*
 * A server was met that has none of our objects: soda_recover_regions() will open each anew and
 * decide of each chunk what becomes of it (session.h).
 */
void soda_recover_anew(struct soda_link *link);
/*
 * Open the objects of that server's which it does not have.  If the connection fails on the way,
 * the next call, with the next connection, goes on with the objects that were not opened yet.  An
 * object that the server refuses is neither fetched nor written back from then on; that is logged,
 * the other objects go on, and soda_recover_look() asks again.  0, or an error of the connection.
 */
int soda_recover_regions(struct soda_link *link, struct soda_conn *control, struct soda_why *why);

/*
 * The keeper, at each tick: decide of chunks that were in use for longer than a recovery could
 * wait; with the last of an object's the object can be fetched again.  And now and then ask the
 * server whether it opens an object that it has refused: if so the connections are broken, and the
 * recovery that follows opens the object.
 */
void soda_recover_look(struct soda_link *link);
/* The chunks' object is being freed: they are not decided of any more. soda_regions_lock held. */
void soda_recover_forget(uint32_t first, uint32_t n);

/*
 * A READ_ONLY file on a pool: no server has its content, err; or, 0, one has it again.
 * soda_regions_lock held.
 */
void soda_recover_set_refused(struct soda_region *r, int err);

#endif
