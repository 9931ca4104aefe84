/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control calls of a client for its regions, and paging's hooks for the life of a client.
 * Each body from a client is decoded and checked here or in the function that it is passed to.
 */
#include "dpu_agent/paging/paging.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "client/call.h"
#include "dpu_agent/paging/forward.h"
#include "dpu_agent/paging/sealed_files.h"
#include "dpu_agent/paging/turns.h"
#include "dpu_agent/paging/upstream.h"
#include "dpu_agent/session/tenants.h"
#include "wire/field.h"
#include "wire/pool.h"

#define REGIONS_BYTES (65536 * sizeof(struct soda_paging_region *))

/* Calls */

/* Until when to wait for the server, as pthread_cond_timedwait() on session->changed wants it. */
static struct timespec patience(struct soda_session *s)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += soda_paging(s)->opt->timeout_ms / 1000 + 1;
	return until;
}

/* What a call waits for of a region. */
enum awaited {
	WRITTEN,  /* the WRITEs that were listed before are on the server */
	NOT_SENT, /* none of its WRITEs is posted */
	IDLE,	  /* nobody commits it, or discards a part of it */
	LET_GO,	  /* no request holds it */
};

static bool is_awaited_locked(struct soda_session *s, const struct soda_paging_region *r,
			      enum awaited what, uint64_t mark)
{
	switch (what) {
	case WRITTEN:
		return soda_writes_before_locked(s, r, mark);
	case NOT_SENT:
		return soda_writes_posted_locked(s, r) || (r->committing && r->placing);
	case IDLE:
		return r->committing;
	default:
		return r->holds;
	}
}

/* 0; -ETIMEDOUT; -ECONNRESET: the session has broken. */
static int await_region(struct soda_session *s, struct soda_paging_region *r, enum awaited what)
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
 * Wait until the WRITEs listed before are on the server. As await_region; or the error of a loss,
 * which the call is to report: if the client does not get the answer, the next SYNC reports it
 * again.
 */
static int await_stored(struct soda_session *s, struct soda_paging_region *r)
{
	int ret = await_region(s, r, WRITTEN);

	pthread_mutex_lock(&s->lock);
	if (ret == 0 && r->lost) {
		ret = soda_pager(s)->said.err = r->lost;
		soda_pager(s)->said.region = r;
		soda_pager(s)->said.joined = s->joined;
		r->lost = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

void soda_paging_heard(struct soda_session *s)
{
	struct soda_paging_region *r;

	pthread_mutex_lock(&s->lock);
	r = soda_pager(s)->said.region;
	soda_pager(s)->said.region = NULL;
	if (r && !r->lost && soda_pager(s)->said.joined == s->joined)
		s->untold--;
	else if (r && !r->lost)
		r->lost = soda_pager(s)->said.err;
	pthread_mutex_unlock(&s->lock);
}

/*
 * To the server all tenants of this agent are one: the names of what they publish begin there with
 * the tenant's, and a '/', which is in no tenant's name.  out has SODA_WIRE_MAX_NAME bytes.
 * Returns how many, or -EINVAL: it becomes too long.
 */
static int name_of_tenant(const struct soda_session *s, const char *name, size_t bytes, char *out,
			  struct soda_why *why)
{
	size_t before = s->tenant && bytes ? strlen(s->tenant->name) + 1 : 0;

	if (before + bytes > SODA_WIRE_MAX_NAME) {
		snprintf(why->text, sizeof(why->text),
			 "a published name has at most %zu bytes, beside the name of tenant %s",
			 SODA_WIRE_MAX_NAME - before, s->tenant->name);
		return -EINVAL;
	}
	if (before) {
		memcpy(out, s->tenant->name, before - 1);
		out[before - 1] = '/';
	}
	memcpy(out + before, name, bytes);
	return (int)(before + bytes);
}

static int open_upstream(struct soda_session *s, const struct soda_wire_open *open,
			 const char *name, struct soda_wire_opened *opened_p, struct soda_why *why)
{
	struct soda_wire_open said = *open;
	char text[SODA_WIRE_MAX_NAME];
	int bytes;

	if (!s->tenant || !(open->flags & SODA_WIRE_PUBLISHED))
		return soda_upstream_open(s, open, name, opened_p, why);
	bytes = name_of_tenant(s, name, open->name_bytes, text, why);
	if (bytes < 0)
		return bytes;
	said.name_bytes = (uint16_t)bytes;
	return soda_upstream_open(s, &said, text, opened_p, why);
}

static int open_region(struct soda_session *s, const void *body, size_t bytes,
		       struct soda_reply *reply)
{
	struct soda_wire_opened opened;
	struct soda_wire_open open;
	uint64_t ended = soda_sessions_ended(s->all);
	const char *name;
	bool taken;
	int ret = soda_wire_get_open(body, bytes, &open, &name);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&s->lock);
	taken = soda_region_find_locked(s, open.region_id);
	pthread_mutex_unlock(&s->lock);
	if (taken) {
		snprintf(reply->why.text, sizeof(reply->why.text), "region id %u is in use",
			 open.region_id);
		return -EBUSY;
	}
	ret = open_upstream(s, &open, name, &opened, &reply->why);
	if ((ret == -EBUSY || ret == -ENOSPC || ret == -EDQUOT) &&
	    soda_sessions_await_leaving(s, ended)) {
		reply->why = (struct soda_why){ "" };
		ret = open_upstream(s, &open, name, &opened, &reply->why);
	}
	if (ret < 0)
		return ret;
	soda_wire_put_opened(reply->body, &opened);
	reply->bytes = SODA_WIRE_OPENED_BYTES;
	return 0;
}

static void set_closing(struct soda_session *s, struct soda_paging_region *r, bool closing)
{
	pthread_mutex_lock(&s->lock);
	r->closing = closing;
	pthread_mutex_unlock(&s->lock);
	if (!closing && soda_paging(s)->async)
		soda_forward_writes(s);
}

/* Sealed files */

/* Nobody else commits it, or discards a part of it, from now on. As await_region. */
static int seize(struct soda_session *s, struct soda_paging_region *r)
{
	int ret;
	bool mine;

	do {
		ret = await_region(s, r, IDLE);
		pthread_mutex_lock(&s->lock);
		mine = ret == 0 && !r->committing;
		r->committing = r->committing || mine;
		pthread_mutex_unlock(&s->lock);
	} while (ret == 0 && !mine);
	return ret;
}

static void let_go(struct soda_session *s, struct soda_paging_region *r)
{
	pthread_mutex_lock(&s->lock);
	r->committing = false;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* A commit (sealed_files.h) of what is on the server. */
static int commit(struct soda_session *s, struct soda_paging_region *r, struct soda_why *why)
{
	int ret = seize(s, r);

	if (ret < 0)
		return ret;
	set_closing(s, r, true);
	ret = await_region(s, r, NOT_SENT);
	if (ret == 0)
		ret = soda_sealed_files_commit(s, r, why);
	set_closing(s, r, false);
	let_go(s, r);
	return ret;
}

/* The region is closed whatever becomes of the commit, unless the connection was lost. */
static int commit_last(struct soda_session *s, struct soda_paging_region *r, struct soda_why *why)
{
	int ret = commit(s, r, why);

	if (ret == 0 || soda_call_lost(ret))
		return ret;
	pthread_mutex_lock(&s->lock);
	s->untold += !soda_region_untold_locked(s, r);
	r->lost = r->lost ? r->lost : ret;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/*
 * Send CLOSE to the server: of a file after all of its WRITEs.  Of another region, whose content is
 * of no use any more, no WRITEs are posted meanwhile; but they are dropped only when the server has
 * closed it, because if the server does not, the client still has the region.
 */
static int close_upstream(struct soda_session *s, struct soda_paging_region *r,
			  const struct iovec *body, struct soda_why *why)
{
	bool file = r->flags & SODA_WIRE_WRITABLE;
	int ret;

	if (!file)
		set_closing(s, r, true);
	ret = await_region(s, r, file ? WRITTEN : NOT_SENT);
	if (ret == 0 && soda_sealed_files_commits(r))
		ret = commit_last(s, r, why);
	if (ret == 0)
		ret = soda_upstream_call(s, SODA_MSG_CLOSE, body, 1, why);
	if (ret == -EINVAL) /* the server has none: the answer of an earlier CLOSE was lost */
		ret = 0;
	if (!file && ret < 0)
		set_closing(s, r, false);
	return ret;
}

/* CLOSE. If data of a file were lost the call reports that, and the file is closed all the same. */
static int close_region(struct soda_session *s, struct soda_paging_region *r,
			const struct iovec *body, struct soda_why *why)
{
	int ret = close_upstream(s, r, body, why), lost;

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&s->lock);
	soda_pager(s)->regions[r->mr.region_id] = NULL; /* no request finds it from now on */
	pthread_mutex_unlock(&s->lock);
	soda_writes_discard(s, r, false);
	soda_writes_unkeep(s); /* another region may have its number soon */
	soda_caches_close(s, r);
	ret = await_region(s, r, LET_GO);
	if (ret < 0) {
		pthread_mutex_lock(&s->lock);
		soda_pager(s)->regions[r->mr.region_id] =
			r; /* so that the session's end frees it */
		pthread_mutex_unlock(&s->lock);
		set_closing(s, r, false);
		return ret;
	}
	pthread_mutex_lock(&s->lock);
	lost = r->flags & SODA_WIRE_WRITABLE ? r->lost : 0;
	s->untold -= soda_region_untold_locked(s, r);
	pthread_mutex_unlock(&s->lock);
	soda_caches_free(s, r);
	soda_paging_store_leave(r);
	soda_conn_unmap_region(&r->mr);
	soda_sealing_end(r->sealing, false);
	soda_quota_refund(s->tenant, r->charged);
	free(r);
	return lost;
}

static int sync_region(struct soda_session *s, struct soda_paging_region *r,
		       const struct iovec *body, struct soda_why *why)
{
	int ret = await_stored(s, r);

	if (ret < 0) {
		snprintf(why->text, sizeof(why->text),
			 "data that was acknowledged could not be written to %.120s: %s",
			 soda_session_server(s), soda_strerror(ret));
		return ret;
	}
	if (!(r->flags & SODA_WIRE_WRITABLE)) /* no file: that the server has the data is enough */
		return 0;
	return soda_sealed_files_commits(r) ? commit(s, r, why)
					    : soda_upstream_call(s, SODA_MSG_SYNC, body, 1, why);
}

/* Find and hold the client's region of that id; NULL: there is none. */
static struct soda_paging_region *hold_region(struct soda_session *s, uint16_t id,
					      struct soda_why *why)
{
	struct soda_paging_region *r;

	pthread_mutex_lock(&s->lock);
	r = soda_region_find_locked(s, id);
	if (r)
		r->holds++;
	pthread_mutex_unlock(&s->lock);
	if (!r)
		snprintf(why->text, sizeof(why->text), "there is no region %u", id);
	return r;
}

static void unhold_region(struct soda_session *s, struct soda_paging_region *r)
{
	pthread_mutex_lock(&s->lock);
	soda_region_unhold_locked(s, r);
	pthread_mutex_unlock(&s->lock);
}

/* As await_stored, but a loss stays to be reported by a SYNC. */
static int await_loadable(struct soda_session *s, struct soda_paging_region *r)
{
	int ret = await_region(s, r, WRITTEN);

	pthread_mutex_lock(&s->lock);
	if (ret == 0)
		ret = r->lost;
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/* Pass the advice on to the agent that is this one's server. */
static int pass_advice(struct soda_session *s, const struct soda_wire_advise *advise,
		       struct soda_reply *reply)
{
	uint8_t body[SODA_WIRE_ADVISE_BYTES];
	struct iovec iov = { body, sizeof(body) };
	struct soda_reply theirs = { .body = malloc(SODA_WIRE_MAX_CONTROL) };
	int ret = -ENOMEM;

	if (theirs.body) {
		soda_wire_put_advise(body, advise);
		ret = soda_upstream_pass(s, SODA_MSG_ADVISE, &iov, 1, &theirs);
		reply->why = theirs.why;
	}
	free(theirs.body); /* a key, maybe, which opens nothing to this agent's clients */
	return ret;
}

/*
 * Advice that had the result `ret` here, where the server is an agent, too: the first agent from
 * the program on that has the cache is the one that keeps the range or caches the region, and what
 * ends caching ends it in both.
 */
static int advise_server(struct soda_session *s, const struct soda_wire_advise *advise, int ret,
			 struct soda_reply *reply)
{
	struct soda_wire_advise below = *advise;

	if (!atomic_load(&soda_paging(s)->server_is_agent) || (ret && ret != -ENOTSUP))
		return ret;
	if (ret == 0 && advise->advice == SODA_WIRE_STATIC_CACHE)
		return ret;
	if (ret == 0 && advise->advice == SODA_WIRE_DYNAMIC_CACHE)
		below.advice = SODA_WIRE_NORMAL; /* it ends STATIC_CACHE, of that agent, too */
	return pass_advice(s, &below, reply);
}

/* ADVISE. First wait until WRITEs are on the server: a static cache is loaded from there. */
static int advise_region(struct soda_session *s, const void *body, size_t bytes, bool shares,
			 struct soda_reply *reply)
{
	struct soda_wire_advise advise;
	struct soda_paging_region *r;
	int ret = soda_wire_get_advise(body, bytes, &advise);

	if (ret < 0)
		return ret;
	r = hold_region(s, advise.region_id, &reply->why);
	if (!r)
		return -EINVAL;
	ret = advise.advice == SODA_WIRE_NORMAL ? 0 : await_loadable(s, r);
	if (ret == 0)
		ret = soda_caches_advise(s, r, &advise, shares, reply);
	ret = advise_server(s, &advise, ret, reply);
	unhold_region(s, r);
	return ret;
}

static int join_store(struct soda_session *s, const void *body, size_t bytes, bool shares,
		      struct soda_reply *reply)
{
	struct soda_wire_store ask;
	struct soda_paging_region *r;
	int ret = soda_wire_get_store(body, bytes, &ask);

	if (ret < 0)
		return ret;
	r = hold_region(s, ask.region_id, &reply->why);
	if (!r)
		return -EINVAL;
	ret = soda_paging_store_call(s, r, &ask, shares, reply);
	unhold_region(s, r);
	return ret;
}

/* Of a sealed region: it is noted that the range is zeros; to a file's server nothing else is. */
static int discard_sealed(struct soda_session *s, struct soda_paging_region *r,
			  const struct soda_wire_discard *d, const struct iovec *body,
			  struct soda_why *why)
{
	bool file = soda_sealed_files_commits(r);
	int ret = file ? seize(s, r) : 0;

	if (ret < 0)
		return ret;
	soda_sealing_discard_begin(r->sealing);
	if (!file)
		ret = soda_upstream_call(s, SODA_MSG_DISCARD, body, 1, why);
	if (!soda_sealing_discard_end(r->sealing, d->offset, d->bytes, ret == 0) && file)
		ret = -ENOMEM;
	if (file)
		let_go(s, r);
	return ret;
}

/*
 * DISCARD of a held region, after the WRITEs that were accepted before.  Cached entries are dropped
 * before and after, because a fetch may read old content in between.
 */
static int discard_held(struct soda_session *s, struct soda_paging_region *r,
			const struct soda_wire_discard *d, const struct iovec *body,
			struct soda_why *why)
{
	int ret = soda_wire_check_discard(d, r->bytes);

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
	ret = r->sealing ? discard_sealed(s, r, d, body, why)
			 : soda_upstream_call(s, SODA_MSG_DISCARD, body, 1, why);
	soda_caches_written(r, d->offset, d->bytes);
	return ret;
}

static int discard_region(struct soda_session *s, const void *body, size_t bytes,
			  struct soda_why *why)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct soda_wire_discard d;
	struct soda_paging_region *r;
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

/*
 * PUBLISH of a held region, when its WRITEs are on the server.  The client that has the name may be
 * one that ends: then once more after its end, as with OPEN.
 */
static int publish_held(struct soda_session *s, struct soda_paging_region *r,
			const struct iovec *body, struct soda_reply *reply)
{
	uint64_t ended = soda_sessions_ended(s->all);
	int ret;

	if (r->sealing) {
		snprintf(reply->why.text, sizeof(reply->why.text),
			 "the DPU agent seals what programs write (--seal), so nobody else could "
			 "read it");
		return -ENOTSUP;
	}
	ret = await_loadable(s, r);
	if (ret < 0)
		return ret;
	ret = soda_upstream_ask(s, SODA_MSG_PUBLISH, body, 1, reply->body, SODA_WIRE_OPENED_BYTES,
				&reply->why);
	if (ret == -EEXIST && soda_sessions_await_leaving(s, ended)) {
		reply->why = (struct soda_why){ "" };
		ret = soda_upstream_ask(s, SODA_MSG_PUBLISH, body, 1, reply->body,
					SODA_WIRE_OPENED_BYTES, &reply->why);
	}
	if (ret == 0)
		reply->bytes = SODA_WIRE_OPENED_BYTES;
	return ret;
}

static int publish_region(struct soda_session *s, const uint8_t *body, size_t bytes,
			  struct soda_reply *reply)
{
	uint8_t said[SODA_WIRE_REGION_BYTES + SODA_WIRE_MAX_NAME];
	struct iovec iov = { said, SODA_WIRE_REGION_BYTES };
	struct soda_paging_region *r;
	int ret;

	if (bytes < SODA_WIRE_REGION_BYTES || bytes > sizeof(said))
		return -EPROTO;
	memcpy(said, body, SODA_WIRE_REGION_BYTES);
	ret = name_of_tenant(s, (const char *)body + SODA_WIRE_REGION_BYTES,
			     bytes - SODA_WIRE_REGION_BYTES, (char *)said + SODA_WIRE_REGION_BYTES,
			     &reply->why);
	if (ret < 0)
		return ret;
	iov.iov_len += (size_t)ret;
	r = hold_region(s, (uint16_t)(body[0] | body[1] << 8), &reply->why);
	if (!r)
		return -EINVAL;
	ret = publish_held(s, r, &iov, reply);
	unhold_region(s, r);
	return ret;
}

/* What is loaded of the region from now on is not counted as asked for by its program. */
static void tell_of_rule(struct soda_session *s, uint16_t id)
{
	struct soda_paging_region *r;

	pthread_mutex_lock(&s->lock);
	r = soda_region_find_locked(s, id);
	if (r)
		atomic_store_explicit(&r->cache.ruled, true, memory_order_relaxed);
	pthread_mutex_unlock(&s->lock);
}

/*
 * NAME.  The answer carries the advice that the operator's rules have for objects of this name: the
 * rules of this agent, or else those of an agent that is its server.
 */
static int name_region(struct soda_session *s, uint16_t id, const struct iovec *body,
		       struct soda_reply *reply)
{
	const char *name = (const char *)body->iov_base + SODA_WIRE_REGION_BYTES;
	uint8_t advice = soda_caches_rule(&soda_paging(s)->caches, name,
					  body->iov_len - SODA_WIRE_REGION_BYTES);
	int ret = soda_upstream_pass(s, SODA_MSG_NAME, body, 1, reply);

	if (ret == 0 && reply->bytes > sizeof(advice))
		ret = -EPROTO;
	if (ret == 0 && reply->bytes && advice == SODA_WIRE_NORMAL)
		advice = reply->body[0];
	if (ret == 0 && advice != SODA_WIRE_NORMAL) {
		tell_of_rule(s, id);
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
	struct soda_paging_region *r;
	uint16_t id;

	if (bytes < SODA_WIRE_REGION_BYTES ||
	    (type != SODA_MSG_NAME && bytes > SODA_WIRE_REGION_BYTES))
		return -EPROTO;
	id = (uint16_t)(body[0] | body[1] << 8);
	pthread_mutex_lock(&s->lock);
	r = soda_region_find_locked(s, id);
	pthread_mutex_unlock(&s->lock);
	if (!r) {
		snprintf(why->text, sizeof(why->text), "there is no region %u", id);
		return -EINVAL;
	}
	if (type == SODA_MSG_CLOSE)
		return close_region(s, r, &iov, why);
	if (type == SODA_MSG_SYNC)
		return sync_region(s, r, &iov, why);
	return name_region(s, id, &iov, reply);
}

/* Wait until all WRITEs are on the server. False: not in time, or the session has broken. */
static bool await_written(struct soda_session *s)
{
	struct timespec until = patience(s);
	bool written;

	pthread_mutex_lock(&s->lock);
	while (s->up && soda_pager(s)->writes.first)
		if (pthread_cond_timedwait(&s->changed, &s->lock, &until))
			break;
	written = s->up && !soda_pager(s)->writes.first;
	pthread_mutex_unlock(&s->lock);
	return written;
}

/* WRITTEN: how far the client's WRITEs are. Does not wait. */
static int say_written(struct soda_session *s, size_t bytes, struct soda_reply *reply)
{
	struct soda_wire_written w;

	if (bytes)
		return -EPROTO;
	pthread_mutex_lock(&s->lock);
	w = (struct soda_wire_written){ .next = soda_pager(s)->writes.seq,
					.oldest = soda_pager(s)->writes.first
							  ? soda_pager(s)->writes.first->seq
							  : soda_pager(s)->writes.seq,
					.lost = soda_pager(s)->writes.lost };
	pthread_mutex_unlock(&s->lock);
	soda_wire_put_written(reply->body, &w);
	reply->bytes = SODA_WIRE_WRITTEN_BYTES;
	return 0;
}

/* The size that the client knows of a file that is sealed here. */
static uint64_t size_of(struct soda_session *s, const struct soda_wire_listed *l)
{
	struct soda_paging_region *r;
	uint64_t bytes;

	pthread_mutex_lock(&s->lock);
	r = soda_region_find_locked(s, l->region_id);
	bytes = r && l->flags & SODA_WIRE_SEALED_BY_AGENT ? r->bytes : l->bytes;
	pthread_mutex_unlock(&s->lock);
	return bytes;
}

/* That a region is sealed is this agent's affair. */
static void hide_sealing(struct soda_session *s, struct soda_reply *reply)
{
	struct soda_wire_listed l;

	for (size_t at = 0; at + SODA_WIRE_LISTED_BYTES <= reply->bytes;
	     at += SODA_WIRE_LISTED_BYTES) {
		soda_wire_get_listed(reply->body + at, &l);
		l.bytes = size_of(s, &l);
		l.flags &= ~(SODA_WIRE_SEALED | SODA_WIRE_SEALED_BY_AGENT);
		soda_wire_put_listed(reply->body + at, &l);
	}
}

/* LIST, by an agent whose server this one is. The server's list is this agent's. */
static int list_regions(struct soda_session *s, const void *body, size_t bytes,
			struct soda_reply *reply)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	int ret;

	if (bytes != SODA_WIRE_REGION_BYTES)
		return -EPROTO;
	ret = soda_upstream_pass(s, SODA_MSG_LIST, &iov, 1, reply);
	if (ret == 0 && soda_paging(s)->sealer.on)
		hide_sealing(s, reply);
	return ret;
}

/* For a client without pages, which has no connection there: whether our server has a pool. */
static int ask_members(struct soda_session *s, struct soda_reply *reply)
{
	const struct soda_dpu_server *place = soda_session_place(s);
	int timeout_ms = (int)soda_paging(s)->opt->timeout_ms;
	struct soda_wire_welcome w;
	struct soda_conn *conn;
	int ret = soda_conn_join_as(place->address, place->identity, timeout_ms, &conn, &w,
				    &reply->why);

	if (ret)
		return ret;
	if (w.agent & SODA_WIRE_AGENT_POOL)
		ret = soda_call_members(conn, (char *)reply->body, SODA_MEMBERS_TEXT_MAX + 1,
					timeout_ms, &reply->why);
	else
		reply->body[0] = 0;
	soda_conn_leave(conn, timeout_ms);
	return ret;
}

/*
 * Which servers the pool has: that of the session first, and those that are listed.  Nothing: there
 * is one server alone.
 */
static int say_members(struct soda_session *s, const struct iovec *body, struct soda_reply *reply)
{
	struct soda_dpu_servers *servers = &s->all->servers;
	struct soda_members members;
	int ret = 0;

	if (!servers->pool && !s->tool)
		return atomic_load(&s->member)
			       ? soda_upstream_pass(s, SODA_MSG_POOL, body, 1, reply)
			       : 0;
	if (servers->pool) {
		soda_dpu_servers_list(servers, soda_session_place(s), &members);
		soda_members_list(&members, (char *)reply->body);
	} else {
		ret = ask_members(s, reply);
	}
	reply->bytes = ret ? 0 : strlen((char *)reply->body);
	return ret;
}

/* As the agent would open the file: it may be a sealed one. */
static int ask_content(struct soda_session *s, const uint8_t *body, size_t bytes,
		       struct soda_reply *reply)
{
	enum { AT = SODA_WIRE_TELL_BYTES, END = AT + SODA_WIRE_OPEN_BYTES };
	uint8_t text[END + SODA_WIRE_MAX_NAME];
	struct iovec iov = { text, bytes };
	struct soda_wire_open open;
	const char *name;

	if (bytes < END || bytes > sizeof(text))
		return -EPROTO;
	memcpy(text, body, bytes);
	if (soda_paging(s)->sealer.files &&
	    soda_wire_get_open(body + AT, bytes - AT, &open, &name) == 0) {
		open.flags |= SODA_WIRE_SEALED_BY_AGENT;
		soda_wire_put_open(text + AT, &open);
	}
	return soda_upstream_pass(s, SODA_MSG_POOL, &iov, 1, reply);
}

/*
 * POOL: what a program says of itself is for the member, and so is the answer.  What an operator
 * wants of a server is not passed on: the agent has its own rights there, and not the operator's.
 */
static int call_pool(struct soda_session *s, const void *body, size_t bytes,
		     struct soda_reply *reply)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct soda_wire_tell tell;
	int ret = soda_wire_get_tell(body, bytes, &tell);

	if (ret < 0)
		return ret;
	if (tell.ask == SODA_WIRE_POOL_MEMBERS)
		return say_members(s, &iov, reply);
	if (tell.ask == SODA_WIRE_POOL_CONTENT)
		return ask_content(s, body, bytes, reply);
	if (tell.ask == SODA_WIRE_POOL_TELL)
		return soda_upstream_pass(s, SODA_MSG_POOL, &iov, 1, reply);
	snprintf(reply->why.text, sizeof(reply->why.text),
		 "a DPU agent drains no server: ask %.150s itself", soda_session_server(s));
	return -ENOTSUP;
}

/*
 * The client's next token, bound to its tenant, on the control connection to the server: by the key
 * that the next agent will have, which may have been rotated since this session has connected.
 */
struct passing {
	struct soda_session *s;
	uint32_t held;
	struct soda_wire_token token;
};

/*
 * The agent's own key, as its file has it now: by an older one a token is wrong, and who shows it
 * would be told that it is forgotten.  0; -EIO: it cannot be read now, and the client asks again.
 */
static int own_key(struct soda_server *server, struct soda_why *why)
{
	int ret = soda_identity_refresh(&server->identity);

	if (ret)
		snprintf(why->text, sizeof(why->text),
			 "the agent cannot read its own key, by which tokens are bound: %s",
			 soda_strerror(ret));
	return ret ? -EIO : 0;
}

static int fetch_token(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		       struct soda_why *why)
{
	struct passing *p = arg;
	struct soda_server *server = &soda_pager(p->s)->server;
	int ret = soda_call_token(server, control, p->held, &p->token, timeout_ms, why);

	if (ret == 0) /* one call at a time, and no HELLO meanwhile */
		ret = own_key(server, why);
	return ret < 0 ? ret
		       : soda_token_bind(p->token.token, server->identity.key, p->s->tenant->name,
					 server->hello.client_id);
}

/* Note it, and wrap it for the client. */
static int hand_token(struct passing *p, struct soda_reply *reply)
{
	struct soda_session *s = p->s;
	int ret = soda_random(p->token.nonce, sizeof(p->token.nonce));

	pthread_mutex_lock(&s->lock);
	soda_tokens_note(&s->tokens, p->held, p->token.number, soda_now_ms(), p->token.left_ms,
			 p->token.token);
	if (ret == 0)
		ret = soda_token_wrap(p->token.token, s->key, p->token.nonce);
	pthread_mutex_unlock(&s->lock);
	if (ret < 0)
		return ret;
	soda_wire_put_token(reply->body, &p->token);
	reply->bytes = SODA_WIRE_TOKEN_ANSWER_BYTES;
	return 0;
}

int soda_paging_token(struct soda_session *s, const void *body, size_t bytes,
		      struct soda_reply *reply)
{
	struct passing p = { .s = s };
	int ret;

	if (bytes != SODA_WIRE_TOKEN_ASK_BYTES)
		return -EPROTO;
	if (s->tool || !s->tenant || !soda_pager(s)->server.proves) {
		snprintf(reply->why.text, sizeof(reply->why.text), "there are no tokens here: %s",
			 s->tenant ? "the memory server has no tenants"
				   : "this agent has no tenants");
		return -ENOTSUP;
	}
	p.held = soda_wire_get_u32(body);
	ret = soda_call_once(&soda_pager(s)->server, fetch_token, &p,
			     (int)soda_paging(s)->opt->timeout_ms, &reply->why);
	if (ret == 0)
		ret = hand_token(&p, reply);
	soda_wipe(&p.token, sizeof(p.token));
	return ret;
}

/* Without pages one may ask which servers there are, and nothing else. */
static bool tool_may(enum soda_msg type, const void *body, size_t bytes)
{
	struct soda_wire_tell tell;

	return type == SODA_MSG_POOL && soda_wire_get_tell(body, bytes, &tell) == 0 &&
	       tell.ask == SODA_WIRE_POOL_MEMBERS;
}

static int call(struct soda_session *s, void *state, enum soda_msg type, const void *body,
		size_t bytes, bool shares, struct soda_reply *reply)
{
	if (s->tool && !tool_may(type, body, bytes))
		return soda_services_refuse(reply, -EPROTO,
					    "paging: this client has said that it has no pages");
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
	case SODA_MSG_PUBLISH:
		return publish_region(s, body, bytes, reply);
	case SODA_MSG_STORE:
		return join_store(s, body, bytes, shares, reply);
	case SODA_MSG_WRITTEN:
		return say_written(s, bytes, reply);
	case SODA_MSG_LIST:
		return list_regions(s, body, bytes, reply);
	case SODA_MSG_POOL:
		return call_pool(s, body, bytes, reply);
	default:
		return -EPROTO;
	}
}

/* The client's life */

/* Before the first request: no path of one makes a cipher's context. */
static int make_engines(struct soda_pager *p)
{
	int ret = 0;

	for (unsigned i = 0; i < p->channels_n && !ret; i++)
		ret = soda_seal_engine_new(&p->channels[i].engine);
	return ret;
}

static void free_state(struct soda_pager *p)
{
	for (unsigned i = 0; i < p->channels_n; i++) {
		soda_seal_engine_free(p->channels[i].engine);
		soda_channel_destroy(&p->channels[i]);
	}
	soda_writes_destroy(&p->writes);
	munmap(p->regions, REGIONS_BYTES);
	free(p->channels);
}

static int created(void *arg, struct soda_session *s, void *state)
{
	struct soda_paging *paging = arg;
	struct soda_pager *p = state;

	p->channels = calloc(paging->channels + 2 + SODA_PREFETCH_WORKERS, sizeof(*p->channels));
	/* not populated: pages of it come when they are touched */
	p->regions = mmap(NULL, REGIONS_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!p->channels || p->regions == MAP_FAILED ||
	    soda_allotment_prepare(&paging->gates.reads, s->info.tenant) < 0 ||
	    soda_writes_init(&p->writes, &paging->writes, s->info.tenant) < 0) {
		if (p->regions != MAP_FAILED)
			munmap(p->regions, REGIONS_BYTES);
		free(p->channels);
		return -ENOMEM;
	}
	p->paging = paging;
	p->queue_end = &p->queue;
	p->gate_end = &p->gate;
	p->channels_n = paging->channels + 1 + paging->sealer.files +
			(soda_caches_fetch(&paging->caches) ? SODA_PREFETCH_WORKERS : 0);
	soda_upstream_init(s);
	for (unsigned i = 0; i < p->channels_n; i++)
		soda_channel_init(&p->channels[i], s);
	if (paging->sealer.on && make_engines(p) < 0) {
		free_state(p);
		return -ENOMEM;
	}
	return 0;
}

static void destroyed(struct soda_session *s, void *state)
{
	struct soda_pager *p = state;

	soda_schedule_leave(s);
	soda_writes_unkeep(s);
	soda_upstream_forget_regions(s, !s->leaving);
	free_state(p);
}

/*
 * Whether the client's regions are there: the client that we are on the server is the one that the
 * HELLO names, and the server knows it.  An attempt before this one, whose answer the client did
 * not get, may have made us a new client.  stayed: the session was up before this HELLO.
 */
static bool is_known(const struct soda_pager *p, const struct soda_wire_hello *hello, bool stayed)
{
	return hello->client_id && p->server.welcome.client_id == hello->client_id &&
	       (stayed || p->server.welcome.known);
}

/* Set the HELLO for the server: the client's, with the id, secret and epoch that we have there. */
static void introduce(struct soda_session *s, const struct soda_wire_hello *hello,
		      const struct soda_peer_info *info)
{
	struct soda_pager *p = soda_pager(s);
	const struct soda_wire_hello before = p->server.hello;
	struct soda_wire_hello *to = &p->server.hello;

	*to = *hello;
	to->magic = SODA_WIRE_MAGIC;
	to->features = (soda_wire_agents(hello) + 1) << SODA_FEATURE_AGENTS_SHIFT |
		       (uint32_t)atomic_load(&s->member) << SODA_FEATURE_MEMBER_SHIFT |
		       (p->paging->sealer.on ? SODA_FEATURE_SEALING : 0);
	to->epoch = before.epoch;
	if (before.client_id) {
		to->client_id = before.client_id;
		to->secret = before.secret;
	}
	if (info->local) {
		to->uid = info->uid;
		to->gid = info->gid;
		to->pid = (uint32_t)info->pid;
	}
}

/*
 * A client's chunks have the size that it said first: what it has here is counted in them.  No
 * program changes it while it runs.
 */
static int check_chunks(const struct soda_session *s, const struct soda_wire_hello *before,
			const struct soda_wire_hello *hello, struct soda_why *why)
{
	if (!before->client_id || before->chunk_bytes == hello->chunk_bytes)
		return 0;
	snprintf(why->text, sizeof(why->text),
		 "client %016llx has chunks of %u bytes, and says %u: it comes back with the chunk "
		 "size that it has begun with, or as a new client",
		 (unsigned long long)s->id, before->chunk_bytes, hello->chunk_bytes);
	return -EINVAL;
}

/*
 * The client shows the token that an agent before this one has passed on: as the server has made
 * it, we show that.
 */
static int adopt(struct soda_session *s, const struct soda_wire_hello *hello, struct soda_why *why)
{
	struct soda_server *server = &soda_pager(s)->server;
	int ret;

	if (!s->adopts)
		return 0;
	s->adopts = false;
	ret = own_key(server, why);
	if (ret)
		return ret;
	memcpy(server->token.bytes, s->tokens.at[0].token, sizeof(server->token.bytes));
	ret = soda_token_bind(server->token.bytes, server->identity.key, s->tenant->name,
			      hello->client_id);
	server->adopts = ret == 0;
	return ret;
}

static bool is_up(struct soda_session *s)
{
	bool up;

	pthread_mutex_lock(&s->lock);
	up = s->up;
	pthread_mutex_unlock(&s->lock);
	return up;
}

/* The place that a new client lacks there may be one's that ends: then once more after its end. */
static int connect_upstream(struct soda_session *s, struct soda_why *why)
{
	uint64_t ended = soda_sessions_ended(s->all);
	int ret = soda_upstream_connect(s, why);

	if (ret == -EBUSY && soda_sessions_await_leaving(s, ended)) {
		*why = (struct soda_why){ "" };
		ret = soda_upstream_connect(s, why);
	}
	return ret;
}

static int connected(struct soda_session *s, void *state, const struct soda_wire_hello *hello,
		     const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		     struct soda_why *why)
{
	struct soda_pager *p = state;
	bool stayed = is_up(s);
	int ret = 0;

	if (s->tool)
		return 0;
	ret = check_chunks(s, &p->server.hello, hello, why);
	if (ret < 0)
		return ret;
	p->orphan_since_ms = 0; /* the client is there, even if the server cannot be reached */
	if (!stayed) {
		introduce(s, hello, info);
		ret = adopt(s, hello, why);
		if (ret == 0)
			ret = connect_upstream(s, why);
	}
	if (ret < 0)
		return ret;
	*welcome = p->server.welcome;
	welcome->known = is_known(p, hello, stayed);
	return 0;
}

static void set_left(struct soda_session *s, bool left)
{
	pthread_mutex_lock(&s->lock);
	s->left = left;
	pthread_mutex_unlock(&s->lock);
}

/* A client that leaves has its files as it has stored to them. */
static void commit_files(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);
	struct soda_why why = { "" };

	for (unsigned id = 0; id < p->regions_end; id++) {
		struct soda_paging_region *r = hold_region(s, (uint16_t)id, &why);
		int ret;

		if (!r)
			continue;
		why.text[0] = 0;
		ret = soda_sealed_files_commits(r) ? commit(s, r, &why) : 0;
		unhold_region(s, r);
		if (ret < 0)
			soda_log_error("client %016llx has left, and a file of it keeps what was "
				       "committed last: %s",
				       (unsigned long long)s->id,
				       why.text[0] ? why.text : soda_strerror(ret));
	}
}

/* The client has said BYE: pass that on when its WRITEs into files are on the server. */
static void leave(struct soda_session *s, void *state)
{
	struct soda_why why;

	if (s->tool)
		return;
	soda_session_expel(s, true, true);
	soda_writes_discard(s, NULL, false);
	if (!await_written(s))
		return; /* the keeper's hands go on with it (idle) */
	if (soda_paging(s)->sealer.files)
		commit_files(s);
	set_left(s, true); /* before the call: the server closes our connections after it */
	if (soda_upstream_call(s, SODA_MSG_BYE, NULL, 0, &why) < 0)
		set_left(s, false);
}

/*
 * Post WRITEs that wait although none is under way: when it was their turn there was no memory, and
 * no answer will come that makes it their turn again.  Posting on an idle connection does not wait.
 */
static void post_left(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);

	if (!atomic_load(&p->channels[p->paging->channels].under_way) && soda_writes_unwritten(s))
		soda_forward_writes(s);
}

static void tick(struct soda_session *s, void *state)
{
	struct soda_task *ended;

	pthread_mutex_lock(&s->lock);
	ended = soda_gate_take_ended_locked(s);
	pthread_mutex_unlock(&s->lock);
	soda_forward_drop_tasks(ended);
	soda_writes_resume(s);
	if (!is_up(s))
		return;
	if (soda_upstream_stuck(s))
		soda_server_report(&soda_pager(s)->server, -ETIMEDOUT);
	else if (soda_paging(s)->async)
		post_left(s);
}

static void go_round(void *arg)
{
	struct soda_paging *paging = arg;

	soda_sealer_expire(&paging->sealer, soda_now_ms());
}

static void broken(struct soda_session *s, void *state)
{
	soda_upstream_disconnect(s);
}

/*
 * The session's WRITEs cannot be brought to the server: drop them, and let the client learn that
 * when it comes back. s->life is held, so that no HELLO is answered meanwhile.
 */
static void give_up(struct soda_session *s)
{
	if (soda_writes_acknowledged(s)) {
		pthread_mutex_lock(&s->all->lock);
		s->all->lost++;
		pthread_mutex_unlock(&s->all->lock);
		soda_session_bury(s);
	}
	soda_writes_discard(s, NULL, true);
}

/*
 * Whether neither the client nor the server is connected, and no HELLO is under way.  Not of a
 * broken session, whose connections the keeper has to take down first.
 */
static bool is_abandoned(struct soda_session *s)
{
	bool abandoned;

	pthread_mutex_lock(&s->lock);
	/* 1: the caller */
	abandoned = !s->up && !s->broken && !s->peers && s->busy <= 1;
	pthread_mutex_unlock(&s->lock);
	return abandoned;
}

/* Whether the grace time is over since the first failed attempt to reconnect. s->life is held. */
static bool patience_is_over(struct soda_session *s)
{
	struct soda_pager *p = soda_pager(s);
	uint64_t now = soda_now_ms();

	if (!p->orphan_since_ms)
		p->orphan_since_ms = now;
	return now > p->orphan_since_ms + p->paging->opt->grace_ms;
}

/* A client that has gone has left WRITEs, and the server is not connected. */
static void reconnect(struct soda_session *s)
{
	struct soda_why why = { "" };
	int ret;

	pthread_mutex_lock(&s->life);
	ret = is_abandoned(s) ? soda_upstream_reconnect(s, &why) : 0;
	if (ret < 0 && (ret == -ESTALE || patience_is_over(s)) && is_abandoned(s))
		give_up(s);
	pthread_mutex_unlock(&s->life);
}

static bool has_regions(struct soda_session *s)
{
	const struct soda_pager *p = soda_pager(s);
	bool has = false;

	pthread_mutex_lock(&s->lock);
	for (unsigned id = 0; id < p->regions_end && !has; id++)
		has = p->regions[id];
	pthread_mutex_unlock(&s->lock);
	return has;
}

static bool idle(struct soda_session *s, void *state, bool stopping)
{
	bool up, leaving;

	pthread_mutex_lock(&s->lock);
	up = s->up;
	leaving = s->leaving;
	pthread_mutex_unlock(&s->lock);
	if (stopping) {
		pthread_mutex_lock(&s->life);
		give_up(s);
		pthread_mutex_unlock(&s->life);
	}
	if (leaving) /* what is no file is of no use without the client */
		soda_writes_discard(s, NULL, false);
	if (!soda_writes_unwritten(s))
		return !has_regions(s) || !soda_session_awaits(s);
	if (up)
		soda_forward_writes(s);
	else
		reconnect(s);
	return false;
}

/*
 * Say BYE for a client that has left; not if stopping, because the server may be silent.  Nobody
 * needs the answer: a server that stands still finds the BYE when it goes on, before the end of the
 * connection.
 */
static void gone(struct soda_session *s, void *state, bool stopping)
{
	bool leaving;

	pthread_mutex_lock(&s->lock);
	leaving = s->leaving && s->up && !s->left && !stopping;
	s->left = true; /* so that the end of our connections is no failure */
	pthread_mutex_unlock(&s->lock);
	if (leaving)
		soda_upstream_leave(s);
	soda_upstream_disconnect(s);
}

/* Start, end */

static const struct soda_agent_service service = {
	.name = "paging",
	.first = SODA_MSG_OPEN,
	.last = SODA_MSG_OK - 1,
	.tools = true,
	.state_bytes = sizeof(struct soda_pager),
	.created = created,
	.connected = connected,
	.call = call,
	.leave = leave,
	.round = go_round,
	.tick = tick,
	.broken = broken,
	.idle = idle,
	.gone = gone,
	.destroyed = destroyed,
};

static unsigned choose(uint32_t wanted, unsigned automatic)
{
	unsigned n = wanted ? wanted : automatic;

	return n ? n : 1;
}

int soda_paging_start(struct soda_paging *paging, struct soda_sessions *all, unsigned workers,
		      unsigned processors)
{
	const struct soda_dpu_options *opt = all->opt;
	unsigned half = processors / 2, completers = choose(opt->completers, half);
	int ret;

	*paging = (struct soda_paging){ .opt = opt,
					.async = opt->async && !opt->base,
					.aggregate = opt->aggregate && !opt->base };
	/* where no processor is free for a completer, handing over to it only costs its wake-up */
	paging->near = paging->async && processors < workers + completers;
	paging->channels = choose(opt->channels, paging->async && !paging->near ? half : workers);
	soda_schedule_init(&paging->schedule, opt->window);
	soda_allotment_init(&paging->gates.reads, opt->buffers / 2);
	soda_allotment_init(&paging->writes, opt->buffers / 2);
	all->regions = &soda_paging_regions;
	ret = soda_sealer_start(&paging->sealer, opt);
	if (ret == 0)
		ret = soda_caches_start(&paging->caches, opt);
	if (ret == 0)
		ret = soda_paging_store_start(paging);
	if (ret < 0)
		return ret;
	ret = soda_completers_start(&paging->completers, paging->async ? completers : 0,
				    soda_forward_collect);
	return ret < 0 ? ret : soda_services_register(&all->services, &service, paging);
}

void soda_paging_drain(struct soda_paging *paging)
{
	soda_caches_stop(&paging->caches);
}

void soda_paging_stop(struct soda_paging *paging)
{
	soda_completers_stop(&paging->completers);
	soda_caches_destroy(&paging->caches);
	soda_node_store_destroy(paging->store);
	soda_sealer_stop(&paging->sealer);
	soda_blocks_free();
	soda_allotment_destroy(&paging->writes);
	soda_allotment_destroy(&paging->gates.reads);
}
