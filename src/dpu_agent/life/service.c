/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What transports call.  Every body from a peer is decoded and checked here or in the
 * function that it goes to; what is refused is counted, logged at most ten times a second,
 * and answered with a reason.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/failure.h"
#include "base/log.h"
#include "dpu_agent/base/counters.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/paging/forward.h"
#include "dpu_agent/paging/upstream.h"
#include "soda.h"

enum { NOTES_A_SECOND = 10 };

/* A peer may provoke as many of these as it likes: most of them go unlogged. */
static bool may_note(void)
{
	static _Atomic uint64_t second;
	static _Atomic unsigned notes;
	uint64_t now = soda_dpu_now_ms() / 1000;

	if (atomic_exchange_explicit(&second, now, memory_order_relaxed) != now)
		atomic_store_explicit(&notes, 0, memory_order_relaxed);
	return atomic_fetch_add_explicit(&notes, 1, memory_order_relaxed) < NOTES_A_SECOND;
}

/* A sentence for the peer, whatever failed. */
static int explained(int ret, struct soda_why *why)
{
	if (ret && !*why->text)
		snprintf(why->text, sizeof(why->text), "%s", soda_strerror(ret));
	return ret;
}

static int hello(void *svc, struct soda_peer *peer, const struct soda_wire_hello *said,
		 const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		 void **client_p, struct soda_why *why)
{
	int ret;

	*why = (struct soda_why){ "" };
	ret = soda_session_hello(svc, peer, said, info, welcome, client_p, why);
	if (explained(ret, why) == 0)
		return 0;
	soda_count_add(SODA_COUNT_hellos_refused, 1);
	if (may_note())
		soda_log_info("%s: refused: %s", info->address, why->text);
	return ret;
}

/* How long the server may take, from now on; for session->changed. */
static struct timespec patience(const struct soda_session *s)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += s->dpu->opt->timeout_ms / 1000 + 1;
	return until;
}

/* What a call waits for of a region. */
enum awaited {
	WRITTEN,  /* the WRITEs of now are on the server; others may follow without an end */
	NOT_SENT, /* none of its WRITEs is on its way */
	LET_GO,	  /* no request holds it */
};

static bool is_awaited_locked(const struct soda_session *s, const struct soda_region *r,
			      enum awaited what, uint64_t mark)
{
	switch (what) {
	case WRITTEN:
		return soda_writes_before_locked(s, r, mark);
	case NOT_SENT:
		return soda_writes_posted_locked(s, r);
	default:
		return r->holds;
	}
}

/* 0; -ETIMEDOUT; -ECONNRESET: the session has broken. */
static int await_region(struct soda_session *s, struct soda_region *r, enum awaited what)
{
	struct timespec until = patience(s);
	uint64_t mark;
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	mark = soda_writes_mark_locked(s);
	while (ret == 0 && s->up && is_awaited_locked(s, r, what, mark))
		ret = -pthread_cond_timedwait(&s->changed, &s->lock, &until);
	if (ret == 0 && is_awaited_locked(s, r, what, mark))
		ret = -ECONNRESET;
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/*
 * Until the WRITEs of now are on the server. As await_region; or what was lost: it is told now, and
 * once more if the client does not hear it.
 */
static int await_stored(struct soda_session *s, struct soda_region *r)
{
	int ret = await_region(s, r, WRITTEN);

	pthread_mutex_lock(&s->lock);
	if (ret == 0 && r->lost) {
		ret = s->said.err = r->lost;
		s->said.region = r;
		s->said.joined = s->joined;
		r->lost = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/* A client that asks for more on the same connection has heard the answer to its last call. */
static void hear(struct soda_session *s)
{
	struct soda_region *r;

	pthread_mutex_lock(&s->lock);
	r = s->said.region;
	s->said.region = NULL;
	if (r && !r->lost && s->said.joined == s->joined)
		s->untold--;
	else if (r && !r->lost)
		r->lost = s->said.err;
	pthread_mutex_unlock(&s->lock);
}

static int open_region(struct soda_session *s, const void *body, size_t bytes,
		       struct soda_reply *reply)
{
	struct soda_wire_opened opened;
	struct soda_wire_open open;
	uint64_t ended = soda_sessions_ended(&s->dpu->sessions);
	const char *name;
	bool taken;
	int ret = soda_wire_get_open(body, bytes, &open, &name);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&s->lock);
	taken = soda_session_region_locked(s, open.region_id);
	pthread_mutex_unlock(&s->lock);
	if (taken) {
		snprintf(reply->why.text, sizeof(reply->why.text), "region id %u is in use",
			 open.region_id);
		return -EBUSY;
	}
	ret = soda_upstream_open(s, &open, name, &opened, &reply->why);
	if ((ret == -EBUSY || ret == -ENOSPC) && soda_sessions_await_leaving(s, ended)) {
		reply->why = (struct soda_why){ "" };
		ret = soda_upstream_open(s, &open, name, &opened, &reply->why);
	}
	if (ret < 0)
		return ret;
	soda_wire_put_opened(reply->body, &opened);
	reply->bytes = SODA_WIRE_OPENED_BYTES;
	return 0;
}

static void set_closing(struct soda_session *s, struct soda_region *r, bool closing)
{
	pthread_mutex_lock(&s->lock);
	r->closing = closing;
	pthread_mutex_unlock(&s->lock);
	if (!closing && s->dpu->async)
		soda_forward_writes(s);
}

/*
 * CLOSE, to the server.  A file has all of its WRITEs first.  Those of other regions go with them:
 * no more are posted, but none is dropped before the server has closed it, because if it does not,
 * the client still has the region.
 */
static int close_upstream(struct soda_session *s, struct soda_region *r, const struct iovec *body,
			  struct soda_why *why)
{
	bool file = r->flags & SODA_WRITABLE;
	int ret;

	if (!file)
		set_closing(s, r, true);
	ret = await_region(s, r, file ? WRITTEN : NOT_SENT);
	if (ret == 0)
		ret = soda_upstream_call(s, SODA_MSG_CLOSE, body, 1, NULL, 0, NULL, why);
	if (ret == -EINVAL) /* the server has none: the answer of an earlier CLOSE was lost */
		ret = 0;
	if (!file && ret < 0)
		set_closing(s, r, false);
	return ret;
}

/* What was lost of a file is told now; it is closed all the same. */
static int close_region(struct soda_session *s, struct soda_region *r, const struct iovec *body,
			struct soda_why *why)
{
	int ret = close_upstream(s, r, body, why), lost;

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&s->lock);
	s->regions[r->mr.region_id] = NULL; /* no request finds it from now on */
	pthread_mutex_unlock(&s->lock);
	soda_writes_discard(s, r, false);
	soda_caches_close(s, r);
	ret = await_region(s, r, LET_GO);
	if (ret < 0) {
		pthread_mutex_lock(&s->lock);
		s->regions[r->mr.region_id] = r; /* the session's end frees it */
		pthread_mutex_unlock(&s->lock);
		set_closing(s, r, false);
		return ret;
	}
	pthread_mutex_lock(&s->lock);
	lost = r->flags & SODA_WRITABLE ? r->lost : 0;
	s->untold -= soda_region_untold_locked(s, r);
	pthread_mutex_unlock(&s->lock);
	soda_caches_free(s, r);
	soda_conn_unmap_region(&r->mr);
	free(r);
	return lost;
}

static int sync_region(struct soda_session *s, struct soda_region *r, const struct iovec *body,
		       struct soda_why *why)
{
	int ret = await_stored(s, r);

	if (ret < 0) {
		snprintf(why->text, sizeof(why->text),
			 "data that was acknowledged could not be written to %s: %s",
			 s->dpu->opt->server, soda_strerror(ret));
		return ret;
	}
	if (!(r->flags & SODA_WRITABLE)) /* no file: the server has it, and that is all */
		return 0;
	return soda_upstream_call(s, SODA_MSG_SYNC, body, 1, NULL, 0, NULL, why);
}

/* NULL: there is none of the client's. */
static struct soda_region *hold_region(struct soda_session *s, uint16_t id, struct soda_why *why)
{
	struct soda_region *r;

	pthread_mutex_lock(&s->lock);
	r = soda_session_region_locked(s, id);
	if (r)
		r->holds++;
	pthread_mutex_unlock(&s->lock);
	if (!r)
		snprintf(why->text, sizeof(why->text), "there is no region %u", id);
	return r;
}

static void unhold_region(struct soda_session *s, struct soda_region *r)
{
	pthread_mutex_lock(&s->lock);
	soda_region_unhold_locked(s, r);
	pthread_mutex_unlock(&s->lock);
}

/* As await_stored, but it is for a SYNC to tell what was lost. */
static int await_loadable(struct soda_session *s, struct soda_region *r)
{
	int ret = await_region(s, r, WRITTEN);

	pthread_mutex_lock(&s->lock);
	if (ret == 0)
		ret = r->lost;
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/* What was written into it is on the server first: it would be loaded without. */
static int advise_region(struct soda_session *s, const void *body, size_t bytes, bool shares,
			 struct soda_reply *reply)
{
	struct soda_wire_advise advise;
	struct soda_region *r;
	int ret = soda_wire_get_advise(body, bytes, &advise);

	if (ret < 0)
		return ret;
	r = hold_region(s, advise.region_id, &reply->why);
	if (!r)
		return -EINVAL;
	ret = advise.advice == SODA_NORMAL ? 0 : await_loadable(s, r);
	if (ret == 0)
		ret = soda_caches_advise(s, r, &advise, shares, reply);
	unhold_region(s, r);
	return ret;
}

/*
 * What was accepted before is on the server first, and what is cached is hidden before and
 * after: a fetch may have read old content in between.
 */
static int discard_held(struct soda_session *s, struct soda_region *r,
			const struct soda_wire_discard *d, const struct iovec *body,
			struct soda_why *why)
{
	int ret = soda_wire_check_discard(d, r->mr.bytes);

	if (ret == 0 && soda_caches_frozen(r, d->offset, d->bytes)) {
		snprintf(why->text, sizeof(why->text),
			 "a part of the range is in the static cache");
		ret = -EACCES;
	}
	if (ret == 0)
		ret = await_region(s, r, WRITTEN);
	if (ret < 0)
		return ret;
	soda_caches_written(r, d->offset, d->bytes);
	ret = soda_upstream_call(s, SODA_MSG_DISCARD, body, 1, NULL, 0, NULL, why);
	soda_caches_written(r, d->offset, d->bytes);
	return ret;
}

static int discard_region(struct soda_session *s, const void *body, size_t bytes,
			  struct soda_why *why)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct soda_wire_discard d;
	struct soda_region *r;
	int ret = soda_wire_get_discard(body, bytes, &d);

	if (ret < 0)
		return ret;
	r = hold_region(s, d.region_id, why);
	if (!r)
		return -EINVAL;
	ret = discard_held(s, r, &d, &iov, why);
	unhold_region(s, r);
	return ret;
}

/* The answer carries what the operator's rules say of objects of this name. */
static int name_region(struct soda_session *s, const struct iovec *body, struct soda_reply *reply)
{
	const char *name = (const char *)body->iov_base + SODA_WIRE_REGION_BYTES;
	int ret = soda_upstream_call(s, SODA_MSG_NAME, body, 1, NULL, 0, NULL, &reply->why);
	uint8_t advice = soda_caches_rule(s->dpu, name, body->iov_len - SODA_WIRE_REGION_BYTES);

	if (ret == 0 && advice != SODA_NORMAL) {
		reply->body[0] = advice;
		reply->bytes = sizeof(advice);
	}
	return ret;
}

/* CLOSE, SYNC and NAME begin with a region id. */
static int call_region(struct soda_session *s, enum soda_msg type, const uint8_t *body,
		       size_t bytes, struct soda_reply *reply)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct soda_why *why = &reply->why;
	struct soda_region *r;
	uint16_t id;

	if (bytes < SODA_WIRE_REGION_BYTES ||
	    (type != SODA_MSG_NAME && bytes > SODA_WIRE_REGION_BYTES))
		return -EPROTO;
	id = (uint16_t)(body[0] | body[1] << 8);
	pthread_mutex_lock(&s->lock);
	r = soda_session_region_locked(s, id);
	pthread_mutex_unlock(&s->lock);
	if (!r) {
		snprintf(why->text, sizeof(why->text), "there is no region %u", id);
		return -EINVAL;
	}
	if (type == SODA_MSG_CLOSE)
		return close_region(s, r, &iov, why);
	if (type == SODA_MSG_SYNC)
		return sync_region(s, r, &iov, why);
	return name_region(s, &iov, reply);
}

/* Wait until all that is to be written is. False: not in time, or the server is not there. */
static bool await_written(struct soda_session *s)
{
	struct timespec until = patience(s);
	bool written;

	pthread_mutex_lock(&s->lock);
	while (s->up && s->writes.first)
		if (pthread_cond_timedwait(&s->changed, &s->lock, &until))
			break;
	written = s->up && !s->writes.first;
	pthread_mutex_unlock(&s->lock);
	return written;
}

static void set_left(struct soda_session *s, bool left)
{
	pthread_mutex_lock(&s->lock);
	s->left = left;
	pthread_mutex_unlock(&s->lock);
}

/* The client leaves now: so does it from the server, if what it wrote into files can be written. */
static void leave_now(struct soda_session *s)
{
	struct soda_why why;

	if (s->tool)
		return;
	soda_session_expel(s, true, true);
	soda_writes_discard(s, NULL, false);
	if (!await_written(s))
		return;	   /* the keeper goes on */
	set_left(s, true); /* before the server closes our connections */
	if (soda_upstream_call(s, SODA_MSG_BYE, NULL, 0, NULL, 0, NULL, &why) < 0)
		set_left(s, false);
}

/* The end of the client: what it leaves behind is the keeper's to write. */
static int leave(struct soda_session *s, const uint8_t *body, size_t bytes)
{
	if (bytes > 1 || (bytes && body[0] != SODA_WIRE_BYE_LATER))
		return -EPROTO;
	pthread_mutex_lock(&s->lock);
	if (!s->leaving)
		s->leaving_since_ms = soda_dpu_now_ms();
	s->leaving = true;
	pthread_mutex_unlock(&s->lock);
	if (!bytes)
		leave_now(s);
	return 0;
}

static int write_stats(struct soda_session *s, size_t bytes, struct soda_reply *reply)
{
	long n = bytes ? -EPROTO
		       : soda_metrics_json(soda_dpu_walk, s->dpu, (char *)reply->body,
					   SODA_WIRE_MAX_CONTROL);

	if (n < 0)
		return (int)n;
	reply->bytes = (size_t)n;
	return 0;
}

/* Without waiting. */
static int say_written(struct soda_session *s, size_t bytes, struct soda_reply *reply)
{
	struct soda_wire_written w;

	if (bytes)
		return -EPROTO;
	pthread_mutex_lock(&s->lock);
	w = (struct soda_wire_written){ .next = s->writes.seq,
					.oldest = s->writes.first ? s->writes.first->seq
								  : s->writes.seq,
					.lost = s->writes.lost };
	pthread_mutex_unlock(&s->lock);
	soda_wire_put_written(reply->body, &w);
	reply->bytes = SODA_WIRE_WRITTEN_BYTES;
	return 0;
}

static int dispatch(struct soda_session *s, enum soda_msg type, const void *body, size_t bytes,
		    bool shares, struct soda_reply *reply)
{
	if (type == SODA_MSG_STATS)
		return write_stats(s, bytes, reply);
	if (type == SODA_MSG_PING) {
		memmove(reply->body, body, bytes);
		reply->bytes = bytes;
		return 0;
	}
	if (type == SODA_MSG_BYE)
		return leave(s, body, bytes);
	if (s->tool)
		return -EPROTO;
	switch (type) {
	case SODA_MSG_OPEN:
		return open_region(s, body, bytes, reply);
	case SODA_MSG_CLOSE:
	case SODA_MSG_SYNC:
	case SODA_MSG_NAME:
		return call_region(s, type, body, bytes, reply);
	case SODA_MSG_ADVISE:
		return advise_region(s, body, bytes, shares, reply);
	case SODA_MSG_DISCARD:
		return discard_region(s, body, bytes, &reply->why);
	case SODA_MSG_WRITTEN:
		return say_written(s, bytes, reply);
	default:
		return -EPROTO;
	}
}

static int call(void *client, enum soda_msg type, const void *body, size_t bytes, bool shares,
		struct soda_reply *reply)
{
	struct soda_session *s = client;
	int ret;

	reply->bytes = 0;
	reply->share = (struct soda_share){ .fd = -1 };
	reply->why = (struct soda_why){ "" };
	hear(s);
	ret = dispatch(s, type, body, bytes, shares, reply);
	if (ret == 0)
		return 0;
	/* The server's connection, not the peer's: the peer is to come back, not to take it for a
	   refusal. */
	if (soda_call_lost(ret)) {
		soda_session_break(s, ret);
		soda_session_expel(s, false, false);
	}
	explained(ret, &reply->why);
	soda_count_add(SODA_COUNT_calls_refused, 1);
	if (may_note())
		soda_log_info("client %016llx: request %d refused: %s", (unsigned long long)s->id,
			      (int)type, reply->why.text);
	return ret;
}

static int reserve(void *client, struct soda_peer *peer, uint16_t region_id, uint64_t page_offset,
		   uint32_t size, struct soda_span *span)
{
	return soda_writes_reserve(client, peer, region_id, page_offset, size, span);
}

static void release(void *client, bool write, const struct soda_span *span, bool landed)
{
	if (write)
		soda_writes_unreserve(client, span->hold, span->bytes);
	else
		soda_forward_sent(client, span);
}

static void request(void *client, struct soda_request *rq)
{
	soda_forward_request(client, rq);
}

static void doorbell(void *client, struct soda_peer *peer)
{
	soda_forward_doorbell(client);
}

static void gone(void *client, struct soda_peer *peer)
{
	soda_session_gone(client, peer);
}

static void rejected(void *svc, const char *address, const char *why)
{
	soda_count_add(SODA_COUNT_peers_rejected, 1);
	if (may_note())
		soda_log_info("%s: connection closed: %s", address, why);
}

const struct soda_service soda_dpu_service = {
	.hello = hello,
	.call = call,
	.release = release,
	.gone = gone,
	.rejected = rejected,
	.reserve = reserve,
	.request = request,
	.doorbell = doorbell,
};
