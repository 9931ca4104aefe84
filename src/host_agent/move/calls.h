/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on the control connection for one object. */
#ifndef SODA_HOST_CALLS_H
#define SODA_HOST_CALLS_H

#include <stdint.h>

#include "host_agent/object/region.h"
#include "transport/api/transport.h"

/*
 * OPEN the object's region on this connection; changes nothing in *r. Errors of
 * soda_conn_open_region.
 */
int soda_calls_open_on(struct soda_conn *control, const struct soda_region *r, struct soda_mr *mr_p,
		       struct soda_wire_opened *opened_p, int timeout_ms, struct soda_why *why);
/*
 * CLOSE the region, which the server may have open after an OPEN whose answer did not come.  0 also
 * where the server refuses; errors of the connection.
 */
int soda_calls_close_unknown(struct soda_conn *control, const struct soda_region *r, int timeout_ms,
			     struct soda_why *why);
/*
 * Open the object's region on the server and fill r->mr, bytes, file_id, generation.  Closes it
 * first where an earlier OPEN was not answered (r->asked).
 */
int soda_calls_open_once(struct soda_conn *control, struct soda_region *r, int timeout_ms,
			 struct soda_why *why);

/*
 * Control calls for an object.  When the connection fails a call is made again on the next one,
 * within the fault time-out.  A call that is not answered by then returns -ETIMEDOUT and breaks all
 * connections, which are made anew: the server does nothing more for the old ones.
 */
int soda_calls_open_region(struct soda_region *r, struct soda_why *why);
/*
 * 0 also where the server does not answer: the keeper closes the region when the server is there
 * again. After another error the region stays open on the server.
 */
int soda_calls_close_region(struct soda_region *r, struct soda_why *why);
int soda_calls_sync_region(struct soda_region *r, struct soda_why *why);
/*
 * The same once, and on no connection that was made after soda_server_breaks() was `breaks`:
 * -ENOTCONN.  When it returns the server does nothing more for the call.
 */
int soda_calls_sync_once(struct soda_region *r, uint32_t breaks, struct soda_why *why);
/*
 * Tell the server to DISCARD chunks; no thread may fetch them or write them back before this
 * returns.  0: done, or the server keeps this region's memory and need not be asked again.
 * -ENOTCONN: there is no connection; any other error: the connection was lost, and the server may
 * have done it.  After an error the caller may ask again.  When the function returns the server has
 * done it, or will not do it after a later WRITE: if it has not answered within the time of a
 * fault, all connections are broken and made anew.
 */
int soda_calls_discard(struct soda_region *r, uint32_t first, uint32_t n);
/*
 * Tell the server r->name. *advice_p: what the server's rules advise for that name, or SODA_NORMAL.
 */
int soda_calls_name_region(struct soda_region *r, int *advice_p, struct soda_why *why);
/*
 * Advise SODA_STATIC_CACHE for an object that was synced when soda_unacked_losses() was `losses`.
 * As soda_conn_advise; -EAGAIN: the number is another one, so the server may lack data that was
 * synced; no call was made.  *breaks_p: soda_server_breaks() when the agent was asked, set if it
 * was.
 */
int soda_calls_freeze_region(struct soda_region *r, struct soda_wire_advise *advise,
			     uint32_t losses, struct soda_static_map **map_p, uint32_t *breaks_p,
			     struct soda_why *why);
/*
 * PUBLISH an object that was synced when soda_unacked_losses() was `losses`.  0; -EAGAIN: the
 * number is another one, so the server may lack data that was synced, and no call was made after
 * that; -EIO: the server has answered, or a DPU agent has not had the server's answer; -ETIMEDOUT;
 * then the server may have done it. Other errors: it has not. *asked_p becomes true with the first
 * call.
 */
int soda_calls_publish_region(struct soda_region *r, const char *name, uint32_t losses,
			      struct soda_wire_opened *opened_p, bool *asked_p,
			      struct soda_why *why);
/*
 * SODA_MSG_STORE, for an object that is open, or a copy of one, of so many bytes in whole chunks.
 * as: another copy, which has joined, or NULL.  As soda_conn_store; -ENOTSUP also where the peer
 * says in its welcome that it has no store.
 */
int soda_calls_join_store(struct soda_region *r, uint16_t part, const struct soda_region *as,
			  struct soda_wire_stored *stored_p, int *fd_p, struct soda_why *why);
/* The same on this connection, of a recovery. */
int soda_calls_join_store_on(struct soda_conn *c, struct soda_region *r, uint16_t part,
			     const struct soda_region *as, struct soda_wire_stored *stored_p,
			     int *fd_p, int timeout_ms, struct soda_why *why);
/* Any other advice. As soda_conn_advise. */
int soda_calls_advise_region(struct soda_region *r, struct soda_wire_advise *advise,
			     struct soda_static_map **map_p, struct soda_why *why);

/* The keeper: close regions whose objects were freed while the server did not answer. */
void soda_calls_close_late(struct soda_link *link);
/* The keeper: a server was met that has no region of ours, so none is to be closed. */
void soda_calls_forget_closes(struct soda_link *link);

/*
 * How long one call may take: with redundancy a server that does not answer for SODA_SILENT_MS
 * counts as away, and others have what it has.
 */
int soda_calls_patience(int timeout_ms);
/* The same of a call about the object: a file is loaded, or written back, by the call. */
int soda_calls_patience_for(const struct soda_region *r, int timeout_ms);

#endif
