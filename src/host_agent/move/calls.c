/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/calls.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "client/call.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/fetch.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/stripe.h"
#include "host_agent/object/unacked.h"

/* A control call for an object: soda_call_fn, with the object's own argument. */
typedef int region_fn(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		      int timeout_ms, struct soda_why *why);

struct region_call {
	region_fn *fn;
	struct soda_region *r;
	void *arg;
};

static int call_for_region(struct soda_conn *c, void *arg, bool again, int timeout_ms,
			   struct soda_why *why)
{
	struct region_call *call = arg;

	return call->fn(c, call->r, call->arg, again, soda_calls_patience_for(call->r, timeout_ms),
			why);
}

int soda_calls_patience(int timeout_ms)
{
	return soda_redundant() && timeout_ms > SODA_SILENT_MS ? SODA_SILENT_MS : timeout_ms;
}

int soda_calls_patience_for(const struct soda_region *r, int timeout_ms)
{
	return r->file ? timeout_ms : soda_calls_patience(timeout_ms);
}

static int fault_timeout(void)
{
	return (int)soda_agent.settings.fault_timeout_ms;
}

/* With redundancy there is time for one more attempt. */
static int patience(const struct soda_region *r)
{
	return soda_redundant() && !r->file ? 2 * soda_calls_patience(fault_timeout())
					    : fault_timeout();
}

/* Make the call, again on the next connection if one fails, within the fault time-out. */
static int with_control(region_fn *fn, struct soda_region *r, void *arg, struct soda_why *why)
{
	struct region_call call = { fn, r, arg };

	return soda_call_persist(&r->link->server, call_for_region, &call, patience(r), why);
}

static int region_call(struct soda_conn *c, enum soda_msg type, const struct soda_region *r,
		       int timeout_ms, struct soda_why *why)
{
	uint8_t id[2] = { (uint8_t)r->id, (uint8_t)(r->id >> 8) };
	struct iovec body = { id, sizeof(id) };

	return soda_conn_call(c, type, &body, 1, NULL, 0, NULL, timeout_ms, why);
}

int soda_calls_open_on(struct soda_conn *control, const struct soda_region *r, struct soda_mr *mr_p,
		       struct soda_wire_opened *opened_p, int timeout_ms, struct soda_why *why)
{
	struct soda_wire_open open = {
		.region_id = r->id,
		.name_bytes = (uint16_t)(r->file ? strlen(r->file) : 0),
		.flags = r->flags | (r->sealed_file ? SODA_WIRE_SEALED : 0),
		.bytes = r->sealed_file ? r->file_bytes : r->bytes,
		.mark = r->mark,
		.again = r->marked,
	};
	int ret = soda_conn_open_region(control, &open, r->file, opened_p, mr_p, timeout_ms, why);

	if (!ret && r->sealed_file && opened_p->bytes == r->file_bytes)
		opened_p->bytes = r->bytes;
	return ret;
}

int soda_calls_close_unknown(struct soda_conn *control, const struct soda_region *r, int timeout_ms,
			     struct soda_why *why)
{
	uint8_t id[2] = { (uint8_t)r->id, (uint8_t)(r->id >> 8) };
	struct iovec body = { id, sizeof(id) };
	int ret = soda_conn_call(control, SODA_MSG_CLOSE, &body, 1, NULL, 0, NULL, timeout_ms, why);

	return soda_call_lost(ret) ? ret : 0;
}

/*
 * By the mark a server tells whether another program has written the file, when the object comes
 * back to it.
 */
static int choose_mark(struct soda_region *r)
{
	if (!(r->flags & SODA_WRITABLE) || r->mark)
		return 0;
	if (getrandom(&r->mark, sizeof(r->mark), 0) != sizeof(r->mark))
		return -EIO;
	r->mark |= 1; /* not 0 */
	return 0;
}

int soda_calls_open_once(struct soda_conn *control, struct soda_region *r, int timeout_ms,
			 struct soda_why *why)
{
	struct soda_wire_opened opened;
	struct soda_mr mr;
	int ret = choose_mark(r);

	if (!ret && r->asked)
		ret = soda_calls_close_unknown(control, r, timeout_ms, why);
	if (ret)
		return ret;
	r->asked = true;
	ret = soda_calls_open_on(control, r, &mr, &opened, timeout_ms, why);
	if (soda_call_lost(ret))
		return ret;
	r->asked = false;
	if (ret)
		return ret;
	r->meeting = soda_link_meeting(r->link);
	r->marked = r->mark;
	r->mr = mr;
	r->bytes = opened.bytes;
	r->file_id = opened.file_id;
	r->generation = opened.generation;
	return 0;
}

static int open_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		     int timeout_ms, struct soda_why *why)
{
	return soda_calls_open_once(c, r, timeout_ms, why);
}

static int close_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		      int timeout_ms, struct soda_why *why)
{
	int ret = region_call(c, SODA_MSG_CLOSE, r, timeout_ms, why);

	/* -EINVAL: no such region; an unanswered CLOSE closed it, or the server has started anew */
	return ret == -EINVAL ? 0 : ret;
}

int soda_calls_sync_once(struct soda_region *r, uint32_t breaks, struct soda_why *why)
{
	struct soda_server *server = &r->link->server;
	struct soda_conn *control;
	sigset_t saved;
	bool lost;
	int ret;

	soda_signals_block(&saved);
	control = soda_server_acquire(server);
	ret = !control || breaks != soda_server_breaks(server) ? -ENOTCONN : 0;
	if (!ret) {
		soda_unacked_begin(r->first, r->chunks);
		ret = region_call(control, SODA_MSG_SYNC, r, fault_timeout(), why);
		soda_unacked_end(r->first, r->chunks, !ret);
	}
	lost = ret && control && breaks == soda_server_breaks(server) && soda_call_lost(ret);
	if (lost) /* before the release: it is this connection that has failed, not the next one */
		soda_server_report(server, ret);
	soda_server_release(server);
	if (lost)
		soda_server_await_break(server, breaks);
	soda_signals_restore(&saved);
	return ret;
}

static int sync_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		     int timeout_ms, struct soda_why *why)
{
	int ret;

	soda_unacked_begin(r->first, r->chunks);
	ret = region_call(c, SODA_MSG_SYNC, r, timeout_ms, why);
	soda_unacked_end(r->first, r->chunks, !ret);
	return ret;
}

static int name_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		     int timeout_ms, struct soda_why *why)
{
	uint8_t id[2] = { (uint8_t)r->id, (uint8_t)(r->id >> 8) }, advice = SODA_NORMAL;
	struct iovec body[2] = { { id, sizeof(id) }, { r->name, strlen(r->name) } };
	size_t bytes = 0;
	int ret = soda_conn_call(c, SODA_MSG_NAME, body, 2, &advice, sizeof(advice), &bytes,
				 timeout_ms, why);

	if (!ret && bytes == sizeof(advice))
		*(int *)arg = advice;
	return ret;
}

struct advising {
	struct soda_wire_advise *advise;
	struct soda_static_map **map_p;
	uint32_t losses; /* freeze_call's */
	uint32_t breaks; /* soda_server_breaks() when the last call was made */
	bool asked;	 /* a call was made */
};

static int advise_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		       int timeout_ms, struct soda_why *why)
{
	struct advising *a = arg;

	a->breaks = soda_server_breaks(&r->link->server);
	a->asked = true;
	return soda_conn_advise(c, a->advise, a->map_p, timeout_ms, why);
}

/* While this thread has the control connection, losses cannot change: only a HELLO changes them. */
static int freeze_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		       int timeout_ms, struct soda_why *why)
{
	struct advising *a = arg;

	return soda_unacked_losses() == a->losses ? advise_call(c, r, arg, again, timeout_ms, why)
						  : -EAGAIN;
}

static void unmap(void *arg)
{
	struct soda_region *r = arg;

	soda_conn_unmap_region(&r->mr);
}

/*
 * The object is freed here, and the server could not be told: the keeper closes its region later.
 */
static void close_later(struct soda_link *link, uint16_t id)
{
	soda_region_id_keep(id, link->index);
	atomic_store(&link->unclosed, true);
}

void soda_calls_forget_closes(struct soda_link *link)
{
	atomic_store(&link->unclosed, false);
	soda_region_ids_release(link->index);
}

/* Close a region that was kept for closing; a refusal is logged, and not tried again. */
static int close_one(struct soda_conn *control, uint16_t id)
{
	struct soda_region r = { .id = id };
	struct soda_why why = { "" };
	int ret = close_call(control, &r, NULL, true, fault_timeout(), &why);

	if (soda_call_lost(ret))
		return ret;
	if (ret)
		soda_log_error("an object is freed here, but %s keeps it until the program ends: "
			       "%s",
			       soda_conn_peer(control),
			       why.text[0] ? why.text : soda_strerror(ret));
	soda_region_id_release(id);
	return 0;
}

/* For soda_call_once: close all regions that were kept for closing. */
static int close_kept(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		      struct soda_why *why)
{
	struct soda_link *link = arg;
	int ret = 0;

	atomic_store(&link->unclosed, false);
	for (uint32_t id = 1; !ret && id < SODA_REGIONS_MAX; id++)
		if (soda_region_id_is_kept_by((uint16_t)id, link->index))
			ret = close_one(control, (uint16_t)id);
	if (ret)
		atomic_store(&link->unclosed, true);
	return ret;
}

void soda_calls_close_late(struct soda_link *link)
{
	struct soda_why ignored;

	if (atomic_load(&link->unclosed))
		soda_call_once(&link->server, close_kept, link, fault_timeout(), &ignored);
}

int soda_calls_open_region(struct soda_region *r, struct soda_why *why)
{
	int ret = with_control(open_call, r, NULL, why);

	if (ret && r->asked)
		close_later(r->link, r->id);
	return ret;
}

int soda_calls_close_region(struct soda_region *r, struct soda_why *why)
{
	sigset_t saved;
	int ret = -ENOTCONN;

	if (soda_server_up(&r->link->server))
		ret = with_control(close_call, r, NULL, why);
	if (soda_call_lost(ret))
		close_later(r->link, r->id);
	soda_signals_block(&saved);
	soda_channels_exclusive(r->link, unmap, r);
	soda_signals_restore(&saved);
	return soda_call_lost(ret) ? 0 : ret;
}

int soda_calls_sync_region(struct soda_region *r, struct soda_why *why)
{
	return with_control(sync_call, r, NULL, why);
}

/* The name is for those who operate the servers: one that is away does not get it. */
static int name_copies(struct soda_region *r, int *advice_p, struct soda_why *why)
{
	int ret = 0;

	for (uint32_t k = 0; k < SODA_COPY_PLACES && !ret; k++) {
		struct soda_region *copy = r->copy[k];

		if (!copy)
			continue;
		memcpy(copy->name, r->name, sizeof(copy->name));
		if (!soda_server_up(&copy->link->server))
			continue;
		ret = with_control(name_call, copy, advice_p, why);
		ret = soda_call_lost(ret) ? 0 : ret;
	}
	return ret;
}

int soda_calls_name_region(struct soda_region *r, int *advice_p, struct soda_why *why)
{
	*advice_p = SODA_NORMAL;
	if (soda_copies(r))
		return name_copies(r, advice_p, why);
	return with_control(name_call, r, advice_p, why);
}

struct publishing {
	const char *name;
	uint32_t losses;
	struct soda_wire_opened *opened;
	bool *asked;
};

/* As freeze_call: while this thread has the control connection, losses cannot change. */
static int publish_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
			int timeout_ms, struct soda_why *why)
{
	struct publishing *p = arg;
	uint8_t id[2] = { (uint8_t)r->id, (uint8_t)(r->id >> 8) }, reply[SODA_WIRE_OPENED_BYTES];
	struct iovec body[2] = { { id, sizeof(id) },
				 { (void *)(uintptr_t)p->name, strlen(p->name) } };
	size_t bytes = 0;
	int ret;

	if (soda_unacked_losses() != p->losses)
		return -EAGAIN;
	*p->asked = true;
	ret = soda_conn_call(c, SODA_MSG_PUBLISH, body, 2, reply, sizeof(reply), &bytes, timeout_ms,
			     why);
	if (ret == -EMSGSIZE || (!ret && soda_wire_get_opened(reply, bytes, p->opened)))
		ret = -EPROTO;
	return ret;
}

int soda_calls_publish_region(struct soda_region *r, const char *name, uint32_t losses,
			      struct soda_wire_opened *opened_p, bool *asked_p,
			      struct soda_why *why)
{
	struct publishing p = { name, losses, opened_p, asked_p };

	return with_control(publish_call, r, &p, why);
}

struct joining {
	uint16_t part;
	const struct soda_region *as;
	struct soda_wire_stored *stored;
	int *fd;
};

int soda_calls_join_store_on(struct soda_conn *c, struct soda_region *r, uint16_t part,
			     const struct soda_region *as, struct soda_wire_stored *stored_p,
			     int *fd_p, int timeout_ms, struct soda_why *why)
{
	struct soda_wire_store ask = { .region_id = r->id, .part = part };

	if (as)
		ask.as = (struct soda_wire_origin){
			.client_id = atomic_load(&as->link->client_id),
			.secret = atomic_load(&as->link->secret),
			.region_id = as->id,
		};
	if (!(r->link->server.welcome.agent & SODA_WIRE_AGENT_STORES))
		return -ENOTSUP;
	return soda_conn_store(c, &ask, r->span, stored_p, fd_p, timeout_ms, why);
}

static int join_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		     int timeout_ms, struct soda_why *why)
{
	struct joining *j = arg;

	return soda_calls_join_store_on(c, r, j->part, j->as, j->stored, j->fd, timeout_ms, why);
}

int soda_calls_join_store(struct soda_region *r, uint16_t part, const struct soda_region *as,
			  struct soda_wire_stored *stored_p, int *fd_p, struct soda_why *why)
{
	struct joining j = { part, as, stored_p, fd_p };

	return with_control(join_call, r, &j, why);
}

/*
 * If the call is not answered, wait until the connections of that time are broken: afterwards the
 * peer writes nothing into memory of ours any more.
 */
static int ask_advice(region_fn *fn, struct soda_region *r, struct advising *a,
		      struct soda_why *why)
{
	int ret = with_control(fn, r, a, why);

	if (soda_call_lost(ret) && a->asked)
		soda_server_await_break(&r->link->server, a->breaks);
	return ret;
}

int soda_calls_advise_region(struct soda_region *r, struct soda_wire_advise *advise,
			     struct soda_static_map **map_p, struct soda_why *why)
{
	struct advising a = { .advise = advise, .map_p = map_p };

	return ask_advice(advise_call, r, &a, why);
}

int soda_calls_freeze_region(struct soda_region *r, struct soda_wire_advise *advise,
			     uint32_t losses, struct soda_static_map **map_p, uint32_t *breaks_p,
			     struct soda_why *why)
{
	struct advising a = { .advise = advise, .map_p = map_p, .losses = losses };
	int ret = ask_advice(freeze_call, r, &a, why);

	if (a.asked)
		*breaks_p = a.breaks;
	return ret;
}

static int discard_call(struct soda_conn *c, const struct soda_region *r, uint32_t first,
			uint32_t n)
{
	struct soda_wire_discard d = { .region_id = r->id,
				       .offset = soda_stripe_offset_of(r, first) };
	uint8_t text[SODA_WIRE_DISCARD_BYTES];
	struct iovec body = { text, sizeof(text) };
	uint32_t last = first + n - 1;
	struct soda_why why;

	d.bytes = soda_stripe_offset_of(r, last) + soda_stripe_bytes_of(r, last) - d.offset;
	soda_wire_put_discard(text, &d);
	return soda_conn_call(c, SODA_MSG_DISCARD, &body, 1, NULL, 0, NULL,
			      soda_calls_patience(fault_timeout()), &why);
}

/*
 * The server may do an unanswered DISCARD at any time while the connection lives, also after a
 * later WRITE, whose data it would erase.  So the connections are broken: later WRITEs travel on
 * those of the next epoch, and the server ends the older epoch first.
 */
/* Of one region. */
static int discard(struct soda_region *r, uint32_t first, uint32_t n)
{
	struct soda_server *server = &r->link->server;
	struct soda_conn *control;
	uint32_t breaks;
	sigset_t saved;
	bool lost;
	int ret;

	if (atomic_load_explicit(&r->keeps, memory_order_relaxed) || atomic_load(&r->refused))
		return 0;
	soda_signals_block(&saved);
	control = soda_server_acquire(server);
	breaks = soda_server_breaks(server);
	ret = control ? discard_call(control, r, first, n) : -ENOTCONN;
	lost = control && soda_call_lost(ret);
	if (lost) /* before the release: it is this connection that has failed, not the next one */
		soda_server_report(server, ret);
	soda_server_release(server);
	if (lost)
		soda_server_await_break(server, breaks);
	else if (control && ret)
		atomic_store_explicit(&r->keeps, true, memory_order_relaxed);
	soda_signals_restore(&saved);
	return lost || !control ? ret : 0;
}

/* A copy that misses it is stale.  An error: that of the last copy. */
static int discard_copies(struct soda_region *r, uint32_t first, uint32_t n)
{
	int ret = 0;

	for (uint32_t k = 0; k < SODA_COPY_PLACES; k++) {
		struct soda_region *copy = r->copy[k];

		if (!copy || !soda_copy_is_written(soda_copies(r), k))
			continue;
		ret = discard(copy, first, n);
		if (ret && soda_copies_drop(r, k))
			ret = 0;
		if (ret)
			break;
	}
	return ret;
}

int soda_calls_discard(struct soda_region *r, uint32_t first, uint32_t n)
{
	int ret = 0;

	for (uint32_t had; n && !ret; first += had, n -= had) {
		r = soda_members() > 1 ? soda_region_of(first) : r;
		had = soda_region_has(r, first, n);
		ret = soda_copies(r) ? discard_copies(r, first, had) : discard(r, first, had);
	}
	return ret;
}
