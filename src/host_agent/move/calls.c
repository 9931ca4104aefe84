/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/calls.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/link.h"
#include "host_agent/move/fetch.h"
#include "host_agent/object/owed.h"

/*
 * A control call.  again: an earlier attempt reached a connection that then failed, so that the
 * server may have done it, and only its answer is lost.
 */
typedef int call_fn(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		    int timeout_ms, struct soda_why *why);

/*
 * One attempt.  *reached_p: there was a connection, so that the server may have heard of it.
 * *still_ns_p: for so long the process did not run meanwhile, which no time-out counts.
 */
static int call_once(call_fn *fn, struct soda_region *r, void *arg, bool again, int timeout_ms,
		     bool *reached_p, uint64_t *still_ns_p, struct soda_why *why)
{
	/* again: of two calls */
	uint64_t asked_ns = (again ? 2 : 1) * (uint64_t)timeout_ms * SODA_MS_NS;
	struct soda_conn *control = soda_link_control_acquire();
	uint64_t from = soda_now_ns();
	int ret = control ? fn(control, r, arg, again, timeout_ms, why) : -ENOTCONN;

	*reached_p = control;
	*still_ns_p = soda_thread_stood_still(NULL, asked_ns, soda_now_ns() - from);
	if (control && soda_call_lost(ret)) /* locked: of this connection, and not of the next */
		soda_link_report(ret);
	soda_link_control_release();
	return ret;
}

/* Run a call, again after a reconnection if the connection failed under it, within its time. */
static int with_control(call_fn *fn, struct soda_region *r, void *arg, struct soda_why *why)
{
	int timeout_ms = (int)soda_agent.settings.fault_timeout_ms;
	uint64_t deadline = soda_now_ns() + (uint64_t)timeout_ms * SODA_MS_NS, still_ns;
	bool again = false, reached;
	int ret;

	for (;;) {
		if (soda_link_wait(deadline)) {
			snprintf(why->text, sizeof(why->text), "%.250s", soda_link_trouble());
			return -ETIMEDOUT;
		}
		ret = call_once(fn, r, arg, again, timeout_ms, &reached, &still_ns, why);
		if (!soda_call_lost(ret))
			return ret;
		deadline += still_ns;
		if (ret == -ETIMEDOUT && soda_now_ns() >= deadline)
			break;
		again = again || reached;
		poll(NULL, 0, 1);
	}
	snprintf(why->text, sizeof(why->text),
		 "%.120s has not answered within %d ms (SODA_FAULT_TIMEOUT), and is connected to "
		 "anew; ask again, or give it more time",
		 soda_link_peer(), timeout_ms);
	return ret;
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
		.flags = r->flags,
		.bytes = r->bytes,
	};

	return soda_conn_open_region(control, &open, r->file, opened_p, mr_p, timeout_ms, why);
}

int soda_calls_close_unknown(struct soda_conn *control, const struct soda_region *r, int timeout_ms,
			     struct soda_why *why)
{
	uint8_t id[2] = { (uint8_t)r->id, (uint8_t)(r->id >> 8) };
	struct iovec body = { id, sizeof(id) };
	int ret = soda_conn_call(control, SODA_MSG_CLOSE, &body, 1, NULL, 0, NULL, timeout_ms, why);

	return soda_call_lost(ret) ? ret : 0;
}

int soda_calls_open_once(struct soda_conn *control, struct soda_region *r, int timeout_ms,
			 struct soda_why *why)
{
	struct soda_wire_opened opened;
	struct soda_mr mr;
	int ret = r->asked ? soda_calls_close_unknown(control, r, timeout_ms, why) : 0;

	if (ret)
		return ret;
	r->asked = true;
	ret = soda_calls_open_on(control, r, &mr, &opened, timeout_ms, why);
	if (soda_call_lost(ret))
		return ret;
	r->asked = false;
	if (ret)
		return ret;
	r->meeting = soda_link_meeting();
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

	/* there is none: it was closed by a call whose answer was lost, or went with the server */
	return ret == -EINVAL ? 0 : ret;
}

static int sync_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		     int timeout_ms, struct soda_why *why)
{
	int ret;

	soda_owed_begin(r->first, r->chunks);
	ret = region_call(c, SODA_MSG_SYNC, r, timeout_ms, why);
	soda_owed_end(r->first, r->chunks, !ret);
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
	uint32_t breaks; /* soda_link_breaks() when it was asked last */
	bool asked;
};

static int advise_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		       int timeout_ms, struct soda_why *why)
{
	struct advising *a = arg;

	a->breaks = soda_link_breaks();
	a->asked = true;
	return soda_conn_advise(c, a->advise, a->map_p, timeout_ms, why);
}

/* Nobody meets another server or agent while the connection is ours. */
static int freeze_call(struct soda_conn *c, struct soda_region *r, void *arg, bool again,
		       int timeout_ms, struct soda_why *why)
{
	struct advising *a = arg;

	return soda_owed_losses() == a->losses ? advise_call(c, r, arg, again, timeout_ms, why)
					       : -EAGAIN;
}

static void unmap(void *arg)
{
	struct soda_region *r = arg;

	soda_conn_unmap_region(&r->mr);
}

/* Objects that are gone here, and that the server has still, as nobody could tell it. */
static _Atomic bool unclosed;

static void close_later(uint16_t id)
{
	soda_region_id_keep(id);
	atomic_store(&unclosed, true);
}

void soda_calls_forget_closes(void)
{
	atomic_store(&unclosed, false);
	soda_region_ids_release();
}

/* What the server says to it changes nothing here. */
static int close_one(struct soda_conn *control, uint16_t id)
{
	struct soda_region r = { .id = id };
	struct soda_why why = { "" };
	int ret = close_call(control, &r, NULL, true, (int)soda_agent.settings.fault_timeout_ms,
			     &why);

	if (soda_call_lost(ret))
		return ret;
	if (ret)
		soda_log_error("an object is freed here, but %s keeps it until the program ends: "
			       "%s",
			       soda_link_peer(), why.text[0] ? why.text : soda_strerror(ret));
	soda_region_id_release(id);
	return 0;
}

void soda_calls_close_late(void)
{
	struct soda_conn *control;
	int ret = 0;

	if (!atomic_load(&unclosed))
		return;
	control = soda_link_control_acquire();
	if (control)
		atomic_store(&unclosed, false);
	for (uint32_t id = 1; control && !ret && id < SODA_REGIONS_MAX; id++)
		if (soda_region_id_is_kept((uint16_t)id))
			ret = close_one(control, (uint16_t)id);
	if (ret) {
		atomic_store(&unclosed, true);
		soda_link_report(ret);
	}
	soda_link_control_release();
}

int soda_calls_open_region(struct soda_region *r, struct soda_why *why)
{
	int ret = with_control(open_call, r, NULL, why);

	if (ret && r->asked)
		close_later(r->id);
	return ret;
}

int soda_calls_close_region(struct soda_region *r, struct soda_why *why)
{
	sigset_t saved;
	int ret = -ENOTCONN;

	if (soda_link_up())
		ret = with_control(close_call, r, NULL, why);
	if (soda_call_lost(ret))
		close_later(r->id);
	soda_signals_block(&saved);
	soda_channels_exclusive(unmap, r);
	soda_signals_restore(&saved);
	return soda_call_lost(ret) ? 0 : ret;
}

int soda_calls_sync_region(struct soda_region *r, struct soda_why *why)
{
	return with_control(sync_call, r, NULL, why);
}

int soda_calls_name_region(struct soda_region *r, int *advice_p, struct soda_why *why)
{
	*advice_p = SODA_NORMAL;
	return with_control(name_call, r, advice_p, why);
}

/* Where it is not answered nothing is written any more on the connections of that time. */
static int ask_advice(call_fn *fn, struct soda_region *r, struct advising *a, struct soda_why *why)
{
	int ret = with_control(fn, r, a, why);

	if (soda_call_lost(ret) && a->asked)
		soda_link_await_break(a->breaks);
	return ret;
}

int soda_calls_advise_region(struct soda_region *r, struct soda_wire_advise *advise,
			     struct soda_static_map **map_p, struct soda_why *why)
{
	struct advising a = { .advise = advise, .map_p = map_p };

	return ask_advice(advise_call, r, &a, why);
}

int soda_calls_freeze_region(struct soda_region *r, struct soda_wire_advise *advise,
			     uint32_t losses, struct soda_static_map **map_p, struct soda_why *why)
{
	struct advising a = { .advise = advise, .map_p = map_p, .losses = losses };

	return ask_advice(freeze_call, r, &a, why);
}

static int discard_call(struct soda_conn *c, const struct soda_region *r, uint32_t first,
			uint32_t n)
{
	struct soda_wire_discard d = { .region_id = r->id, .offset = soda_region_offset(r, first) };
	uint8_t text[SODA_WIRE_DISCARD_BYTES];
	struct iovec body = { text, sizeof(text) };
	uint32_t last = first + n - 1;
	struct soda_why why;

	d.bytes = soda_region_offset(r, last) + soda_region_chunk_bytes(r, last) - d.offset;
	soda_wire_put_discard(text, &d);
	return soda_conn_call(c, SODA_MSG_DISCARD, &body, 1, NULL, 0, NULL,
			      (int)soda_agent.settings.fault_timeout_ms, &why);
}

/*
 * One that was not answered may be done at any time as long as its connection lives, and no
 * WRITE may come before it: those of later stores travel on connections of the next epoch, for
 * which the server ends this one first.
 */
void soda_calls_discard(struct soda_region *r, uint32_t first, uint32_t n)
{
	struct soda_conn *control;
	uint32_t breaks;
	sigset_t saved;
	bool lost;
	int ret = 0;

	if (atomic_load_explicit(&r->keeps, memory_order_relaxed) || atomic_load(&r->refused))
		return;
	soda_signals_block(&saved);
	control = soda_link_control_acquire();
	breaks = soda_link_breaks();
	if (control)
		ret = discard_call(control, r, first, n);
	lost = soda_call_lost(ret);
	if (lost) /* locked: of this connection, and not of the next */
		soda_link_report(ret);
	soda_link_control_release();
	if (lost)
		soda_link_await_break(breaks);
	else if (ret)
		atomic_store_explicit(&r->keeps, true, memory_order_relaxed);
	soda_signals_restore(&saved);
}
