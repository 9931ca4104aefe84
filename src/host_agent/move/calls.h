/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on the control connection for one object. */
#ifndef SODA_HOST_CALLS_H
#define SODA_HOST_CALLS_H

#include <stdint.h>

#include "host_agent/object/region.h"
#include "transport/api/transport.h"

/* One attempt to OPEN the object's region on this connection; nothing is noted. */
int soda_calls_open_on(struct soda_conn *control, const struct soda_region *r, struct soda_mr *mr_p,
		       struct soda_wire_opened *opened_p, int timeout_ms, struct soda_why *why);
/* The server's, of an OPEN that nobody relies on. Errors of the connection alone. */
int soda_calls_close_unknown(struct soda_conn *control, const struct soda_region *r, int timeout_ms,
			     struct soda_why *why);
/*
 * Open the object's region on the server and fill r->mr, bytes, file_id, generation.  One that may
 * be open already, with nothing in it that anybody knows of (r->asked), is closed first.
 */
int soda_calls_open_once(struct soda_conn *control, struct soda_region *r, int timeout_ms,
			 struct soda_why *why);

/*
 * Control calls for an object; they outlast a reconnection, within the fault time-out.  One that is
 * not answered within it is -ETIMEDOUT, and costs all connections: they are made anew, because the
 * server does nothing of the old ones after that.
 */
int soda_calls_open_region(struct soda_region *r, struct soda_why *why);
/* 0 also where nobody answers: the server is told when it is there again.  Else it keeps it. */
int soda_calls_close_region(struct soda_region *r, struct soda_why *why);
int soda_calls_sync_region(struct soda_region *r, struct soda_why *why);
/*
 * DISCARD of chunks that nobody fetches or writes back before this returns.  Never twice, and
 * best effort: a server that refuses is not asked again for the region.  When it returns the
 * server has done it, or never will after a WRITE that follows.  A server that does not answer
 * within the time of a fault loses its connections.
 */
void soda_calls_discard(struct soda_region *r, uint32_t first, uint32_t n);
/* *advice_p: what the operator's rules say of the object, or SODA_NORMAL. */
int soda_calls_name_region(struct soda_region *r, int *advice_p, struct soda_why *why);
/*
 * SODA_STATIC_CACHE, for what was synced since soda_unacked_losses() was that number.  As
 * soda_conn_advise; -EAGAIN: it is another one, so that the server may lack some of it.  The
 * server was not asked.
 */
int soda_calls_freeze_region(struct soda_region *r, struct soda_wire_advise *advise,
			     uint32_t losses, struct soda_static_map **map_p, struct soda_why *why);
/* Other advice. As soda_conn_advise. */
int soda_calls_advise_region(struct soda_region *r, struct soda_wire_advise *advise,
			     struct soda_static_map **map_p, struct soda_why *why);

/* The keeper tells the server of objects that were freed while nobody could tell it. */
void soda_calls_close_late(struct soda_link *link);
/* The server that is met has none of them. */
void soda_calls_forget_closes(struct soda_link *link);

#endif
