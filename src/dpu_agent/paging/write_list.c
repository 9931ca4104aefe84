/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/write_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dpu_agent/base/counters.h"
#include "dpu_agent/paging/forward.h"
#include "pool/erasure.h"

_Static_assert((int)SODA_WIRE_CODE_DATA_MAX == (int)SODA_ERASURE_DATA_MAX &&
		       (int)SODA_WIRE_CODE_PARITY_MAX == (int)SODA_ERASURE_PARITY_MAX,
	       "what the wire lets through can be computed");

#define UNIT (64u << 10)     /* of the index: a WRITE is in the bucket of its first unit */
#define RUN_BYTES (1u << 20) /* memory for several WRITEs that continue each other */

/* Memory */

int soda_writes_init(struct soda_write_list *list, struct soda_allotment *all, uint32_t tenant)
{
	struct soda_write_charge *charge = calloc(1, sizeof(*charge));

	if (!charge || soda_allotment_prepare(all, tenant) < 0) {
		free(charge);
		return -ENOMEM;
	}
	atomic_init(&charge->refs, 1);
	charge->all = all;
	charge->tenant = tenant;
	list->charge = charge;
	return 0;
}

static void charge_put(struct soda_write_charge *charge)
{
	if (atomic_fetch_sub_explicit(&charge->refs, 1, memory_order_acq_rel) == 1)
		free(charge);
}

void soda_writes_destroy(struct soda_write_list *list)
{
	if (list->run)
		soda_block_put(list->run);
	charge_put(list->charge);
}

/* relaxed: sums order nothing */
static void reserved(struct soda_write_charge *charge, int64_t bytes)
{
	atomic_fetch_add_explicit(&charge->bytes, (uint64_t)bytes, memory_order_relaxed);
	soda_allotment_count(charge->all, charge->tenant, bytes);
}

/* Nobody has any of the block. */
static void run_ended(void *of, uint32_t bytes)
{
	struct soda_write_charge *charge = of;

	reserved(charge, -(int64_t)bytes);
	charge_put(charge);
}

static bool counts_whole(const struct soda_block *block)
{
	return block->ended == run_ended;
}

static bool may_reserve(struct soda_session *s, uint32_t size)
{
	const struct soda_write_charge *charge = soda_pager(s)->writes.charge;
	uint64_t bytes = atomic_load_explicit(&charge->bytes, memory_order_relaxed);

	/*
	 * a session without any may always; so one that waits has some, and resumes when it is
	 * given back
	 */
	if (!bytes)
		return true;
	/* twice the budget, because WRITEs that are not acknowledged yet use memory, too */
	return bytes + size <= 2 * soda_paging(s)->opt->write_budget &&
	       size <= soda_allotment_left(charge->all,
					   soda_tenant_holder(s->all->tenants, s->tenant));
}

/* A block that no WRITE lies in any more is not kept for the next one: it would count. */
static void leave_empty_run_locked(struct soda_write_list *l)
{
	/* acquire: with the release of those who have put theirs */
	if (!l->run || atomic_load_explicit(&l->run->refs, memory_order_acquire) != 1)
		return;
	soda_block_put(l->run);
	l->run = NULL;
}

/* A block for this WRITE, and for those that will continue it. NULL: no memory. */
static struct soda_block *run_get(struct soda_session *s, uint32_t bytes)
{
	struct soda_write_charge *charge = soda_pager(s)->writes.charge;
	struct soda_block *block = soda_block_get(bytes);

	if (!block)
		return NULL;
	atomic_fetch_add_explicit(&charge->refs, 1, memory_order_relaxed);
	block->ended = run_ended;
	block->of = charge;
	reserved(charge, block->bytes);
	return block;
}

/* How large the next run is: twice the one that is full, if this WRITE continues what is there. */
static uint32_t next_run(const struct soda_write_list *l, bool goes_on, uint32_t size)
{
	uint32_t bytes = goes_on && l->run->bytes < RUN_BYTES ? 2 * l->run->bytes : RUN_BYTES;

	return goes_on && size < bytes ? bytes : size;
}

/*
 * Memory directly behind the last WRITE's, if this one continues it: they can be sent as one then.
 */
static struct soda_block *place_locked(struct soda_session *s, uint16_t region_id, uint64_t offset,
				       uint32_t size, uint8_t **memory_p)
{
	struct soda_write_list *l = &soda_pager(s)->writes;
	bool goes_on = l->run && l->run_region == region_id && l->run_next == offset;

	if (!goes_on || l->run_used + size > l->run->bytes) {
		uint32_t bytes = next_run(l, goes_on, size);

		if (l->run)
			soda_block_put(l->run);
		l->run = run_get(s, may_reserve(s, bytes) ? bytes : size);
		l->run_used = 0;
		if (!l->run)
			return NULL;
	}
	*memory_p = l->run->memory + l->run_used;
	l->run_used += size;
	l->run_region = region_id;
	l->run_next = offset + size;
	soda_block_ref(l->run, 1);
	return l->run;
}

static bool has_room(struct soda_session *s, uint32_t size)
{
	bool has;

	pthread_mutex_lock(&s->lock);
	has = may_reserve(s, size);
	pthread_mutex_unlock(&s->lock);
	return has;
}

/* Whether there is room, for which what is kept may have to go. With the lock, which it lets go. */
static bool make_room_locked(struct soda_session *s, uint32_t size)
{
	if (may_reserve(s, size))
		return true;
	if (!soda_pager(s)->writes.kept_first)
		return false;
	pthread_mutex_unlock(&s->lock);
	soda_writes_unkeep(s);
	pthread_mutex_lock(&s->lock);
	return may_reserve(s, size);
}

int soda_writes_reserve(struct soda_session *s, struct soda_peer *peer, uint16_t region_id,
			uint64_t page_offset, uint32_t size, struct soda_span *span)
{
	struct soda_block *block;
	uint8_t *memory = NULL;
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (make_room_locked(s, size)) {
		block = place_locked(s, region_id, page_offset * SODA_WIRE_PAGE, size, &memory);
		if (!block)
			ret = -ENOMEM;
		*span = (struct soda_span){ .memory = memory, .hold = block, .bytes = size };
	} else {
		for (struct soda_session_peer *at = s->peers; at; at = at->next)
			if (at->peer == peer)
				at->paused = true;
		ret = -EAGAIN;
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

static void resume_locked(struct soda_session *s)
{
	leave_empty_run_locked(&soda_pager(s)->writes);
	for (struct soda_session_peer *at = s->peers; at; at = at->next) {
		if (at->paused && may_reserve(s, SODA_WIRE_MAX_DATA)) {
			at->paused = false;
			soda_peer_resume(at->peer);
		}
	}
}

void soda_writes_unreserve(struct soda_session *s, void *hold, uint32_t bytes)
{
	struct soda_block *block = hold;

	if (!block) /* its data lie in memory of the transport */
		return;
	if (!counts_whole(block))
		reserved(soda_pager(s)->writes.charge, -(int64_t)bytes);
	soda_block_put(block);
	soda_writes_resume(s);
}

void soda_writes_resume(struct soda_session *s)
{
	pthread_mutex_lock(&s->lock);
	resume_locked(s);
	pthread_mutex_unlock(&s->lock);
}

/* References */

static void write_put(struct soda_hold *hold)
{
	struct soda_write *w = (struct soda_write *)hold;

	if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1)
		return;
	soda_writes_unreserve(w->session, w->block, w->bytes);
	if (w->rq)
		soda_request_free(w->rq);
	free(w);
}

static void write_ref(struct soda_write *w)
{
	atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
}

/* The list and its index */

static struct soda_write **bucket_in(struct soda_write **buckets, uint16_t region_id, uint64_t unit)
{
	uint64_t h = (unit + ((uint64_t)region_id << 40)) * 0x9e3779b97f4a7c15u;

	return &buckets[h >> 32 & (SODA_WRITE_BUCKETS - 1)];
}

static struct soda_write **bucket_of(struct soda_write_list *l, uint16_t region_id, uint64_t unit)
{
	return bucket_in(l->buckets, region_id, unit);
}

/* In one of the list's two indices. */
static struct soda_write *find_in(const struct soda_write_list *l, struct soda_write **buckets,
				  uint16_t region_id, uint64_t offset, uint32_t bytes)
{
	struct soda_write *newest = NULL;
	uint64_t from, to = (offset + bytes - 1) / UNIT;

	from = offset < l->longest ? 0 : (offset - l->longest) / UNIT;
	for (uint64_t unit = from; unit <= to; unit++) {
		struct soda_write *w = *bucket_in(buckets, region_id, unit);

		for (; w; w = w->below)
			if (w->region_id == region_id && w->offset < offset + bytes &&
			    offset < w->offset + w->bytes && (!newest || w->seq > newest->seq))
				newest = w;
	}
	return newest;
}

struct soda_write *soda_writes_find_locked(struct soda_session *s, uint16_t region_id,
					   uint64_t offset, uint32_t bytes)
{
	struct soda_write_list *l = &soda_pager(s)->writes;

	return l->first ? find_in(l, l->buckets, region_id, offset, bytes) : NULL;
}

/* [from, to) of w's data. */
static struct soda_span part_of(struct soda_write *w, uint64_t from, uint64_t to)
{
	write_ref(w);
	return (struct soda_span){ .memory = w->data + (from - w->offset),
				   .hold = &w->hold,
				   .offset = from,
				   .bytes = (uint32_t)(to - from) };
}

/* The same of a range whose newest WRITE is yet to be found. */
static bool find_parts_locked(struct soda_session *s, uint16_t region_id, uint64_t from,
			      uint64_t to, struct soda_write_parts *parts)
{
	uint32_t bytes = (uint32_t)(to - from);
	struct soda_write *w;

	if (from == to)
		return true;
	w = soda_writes_find_locked(s, region_id, from, bytes);
	return w && soda_writes_parts_locked(s, w, from, bytes, parts);
}

bool soda_writes_parts_locked(struct soda_session *s, struct soda_write *w, uint64_t offset,
			      uint32_t bytes, struct soda_write_parts *parts)
{
	uint64_t end = offset + bytes;
	uint64_t from = w->offset > offset ? w->offset : offset;
	uint64_t to = w->offset + w->bytes < end ? w->offset + w->bytes : end;

	if (parts->n == SODA_WRITE_PARTS || !w->data)
		return false;
	parts->part[parts->n++] = part_of(w, from, to);
	return find_parts_locked(s, w->region_id, offset, from, parts) &&
	       find_parts_locked(s, w->region_id, to, end, parts);
}

void soda_writes_put_parts(struct soda_write_parts *parts)
{
	while (parts->n) {
		struct soda_hold *hold = parts->part[--parts->n].hold;

		hold->put(hold);
	}
}

static void link_locked(struct soda_session *s, struct soda_write *w)
{
	struct soda_write_list *l = &soda_pager(s)->writes;
	struct soda_write **bucket = bucket_of(l, w->region_id, w->offset / UNIT);

	w->seq = l->seq++;
	w->below = *bucket;
	*bucket = w;
	w->prev = l->last;
	*(l->last ? &l->last->next : &l->first) = w;
	l->last = w;
	if (!l->unposted)
		l->unposted = w;
	if (w->bytes > l->longest)
		l->longest = w->bytes;
}

/* With nothing that could be found, no READ has to look further than it needs. */
static void shorten_locked(struct soda_write_list *l)
{
	if (!l->first && !l->kept_first)
		l->longest = 0;
}

/* Take w off the list; the list's reference is the caller's then. */
static void unlink_locked(struct soda_session *s, struct soda_write *w)
{
	struct soda_write_list *l = &soda_pager(s)->writes;
	struct soda_write **at = bucket_of(l, w->region_id, w->offset / UNIT);

	while (*at != w)
		at = &(*at)->below;
	*at = w->below;
	if (l->unposted == w)
		l->unposted = w->next;
	if (l->unanswered == w)
		l->unanswered = w->next;
	*(w->prev ? &w->prev->next : &l->first) = w->next;
	*(w->next ? &w->next->prev : &l->last) = w->prev;
	shorten_locked(l);
	if (w->answered)
		l->answered_bytes -= w->bytes;
	soda_region_unhold_locked(s, w->region);
	pthread_cond_broadcast(&s->changed);
}

/* Kept WRITEs */

/* Forget one that is kept; the reference is the caller's then. */
static void unkeep_locked(struct soda_write_list *l, struct soda_write *w)
{
	struct soda_write **at = bucket_in(l->kept, w->region_id, w->offset / UNIT);

	while (*at != w)
		at = &(*at)->below;
	*at = w->below;
	*(w->prev ? &w->prev->next : &l->kept_first) = w->next;
	*(w->next ? &w->next->prev : &l->kept_last) = w->prev;
	l->kept_bytes -= w->bytes;
	shorten_locked(l);
}

static void keep_locked(struct soda_write_list *l, struct soda_write *w)
{
	struct soda_write **bucket = bucket_in(l->kept, w->region_id, w->offset / UNIT);

	atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
	w->below = *bucket;
	*bucket = w;
	w->next = NULL;
	w->prev = l->kept_last;
	*(l->kept_last ? &l->kept_last->next : &l->kept_first) = w;
	l->kept_last = w;
	l->kept_bytes += w->bytes;
	if (w->bytes > l->longest)
		l->longest = w->bytes;
}

/* Move to the list `gone`, by `next`, one that overlaps the range. False: there is none. */
static bool unkeep_range_locked(struct soda_write_list *l, uint16_t region_id, uint64_t offset,
				uint32_t bytes, struct soda_write **gone_p)
{
	struct soda_write *w = l->kept_first ? find_in(l, l->kept, region_id, offset, bytes) : NULL;

	if (!w)
		return false;
	unkeep_locked(l, w);
	w->next = *gone_p;
	*gone_p = w;
	return true;
}

static void put_all(struct soda_write *gone)
{
	while (gone) {
		struct soda_write *next = gone->next;

		write_put(&gone->hold);
		gone = next;
	}
}

void soda_writes_unkeep(struct soda_session *s)
{
	struct soda_write_list *l = &soda_pager(s)->writes;
	struct soda_write *gone = NULL, *w;

	pthread_mutex_lock(&s->lock);
	while ((w = l->kept_first)) {
		unkeep_locked(l, w);
		w->next = gone;
		gone = w;
	}
	pthread_mutex_unlock(&s->lock);
	put_all(gone);
}

/* A WRITE that was found among those kept. */
struct recalled {
	struct soda_session *from; /* looked at */
	struct soda_write *write;
};

static void recalled_put(struct recalled *found)
{
	write_put(&found->write->hold);
	soda_session_put(found->from);
}

/* Of exactly rq's range in that region; it is kept no longer, if `take`. NULL: there is none. */
static struct soda_write *look_kept(struct soda_session *from, const struct soda_request *rq,
				    uint16_t region_id, bool take)
{
	struct soda_write_list *l = &soda_pager(from)->writes;
	struct soda_write *w;

	pthread_mutex_lock(&from->lock);
	w = l->kept_first ? find_in(l, l->kept, region_id, rq->offset, rq->bytes) : NULL;
	if (w && (w->offset != rq->offset || w->bytes != rq->bytes))
		w = NULL;
	if (w && take)
		unkeep_locked(l, w);
	else if (w)
		write_ref(w);
	pthread_mutex_unlock(&from->lock);
	return w;
}

/* The session that is meant, with a reference, if it is one of s's program. NULL: it is not. */
static struct soda_session *look_own(struct soda_session *s, const struct soda_wire_origin *origin)
{
	struct soda_session *from = soda_session_look(s->all, origin->client_id);

	if (from && (from->tenant != s->tenant || (!s->tenant && from->secret != origin->secret))) {
		soda_session_put(from);
		from = NULL;
	}
	return from;
}

/* The WRITE of rq's range that a session of s's program has kept. False: there is none. */
static bool recall(struct soda_session *s, const struct soda_request *rq,
		   const struct soda_wire_origin *origin, bool take, struct recalled *found)
{
	struct soda_session *from = look_own(s, origin);

	*found = (struct recalled){ .from = from };
	if (!from)
		return false;
	found->write = look_kept(from, rq, origin->region_id, take);
	if (!found->write)
		soda_session_put(from);
	return found->write;
}

/* The same with the secret that the server knows. False: it is none of s's program's. */
static bool name(struct soda_session *s, struct soda_wire_origin *origin)
{
	struct soda_session *from = look_own(s, origin);

	if (!from)
		return false;
	pthread_mutex_lock(&from->lock);
	origin->secret = soda_pager(from)->secret;
	pthread_mutex_unlock(&from->lock);
	soda_session_put(from);
	return true;
}

bool soda_writes_name(struct soda_session *s, struct soda_request *rq)
{
	struct soda_wire_code *code = rq->code;

	if (!code)
		return name(s, &rq->origin);
	if (!soda_pager(s)->codes)
		return false;
	for (uint32_t i = 0; i < code->data_n; i++)
		if (!name(s, &code->from[i]))
			return false;
	return true;
}

/* rq's data lie in the block, a reference of which is rq's now. */
static void give_data(struct soda_session *s, struct soda_request *rq, uint8_t *data,
		      struct soda_block *block)
{
	rq->data = data;
	rq->hold = block;
	if (!counts_whole(block)) /* else it does, as the session's that had it first */
		reserved(soda_pager(s)->writes.charge, rq->bytes);
}

bool soda_writes_recall(struct soda_session *s, struct soda_request *rq)
{
	struct recalled found;

	if (!recall(s, rq, &rq->origin, true, &found))
		return false;
	soda_block_ref(found.write->block, 1);
	give_data(s, rq, found.write->data, found.write->block);
	soda_count_add(SODA_COUNT_writes_recalled, 1);
	soda_count_add(SODA_COUNT_writes_recalled_bytes, rq->bytes);
	recalled_put(&found);
	return true;
}

/* Whether the client was told that we can. */
static bool may_encode(struct soda_session *s)
{
	bool may;

	pthread_mutex_lock(&s->lock);
	may = soda_session_agent_locked(s) & SODA_WIRE_AGENT_CODES;
	pthread_mutex_unlock(&s->lock);
	return may;
}

bool soda_writes_encode(struct soda_session *s, struct soda_request *rq)
{
	const struct soda_wire_code *code = rq->code;
	struct recalled found[SODA_WIRE_CODE_DATA_MAX];
	const void *data[SODA_WIRE_CODE_DATA_MAX];
	struct soda_block *block = NULL;
	uint32_t n = 0;

	if (!may_encode(s))
		return false;
	while (n < code->data_n && recall(s, rq, &code->from[n], code->last, &found[n])) {
		data[n] = found[n].write->data;
		n++;
	}
	if (n == code->data_n && has_room(s, rq->bytes))
		block = soda_block_get(rq->bytes);
	if (block) {
		soda_erasure_encode_from(code->data_n, code->parity, rq->bytes, data,
					 block->memory);
		give_data(s, rq, block->memory, block);
		soda_count_add(SODA_COUNT_writes_encoded, 1);
		soda_count_add(SODA_COUNT_writes_encoded_bytes, rq->bytes);
	}
	while (n)
		recalled_put(&found[--n]);
	return block;
}

/*
 * Count w as acknowledged, if the budget allows.  Not to an agent that passes the client on: that
 * one has acknowledged the WRITE to the program, takes this agent's answer for the word that the
 * memory server has it, and then keeps no copy.  Nor to a program that uses a pool.
 */
static bool accept_locked(struct soda_session *s, struct soda_write *w)
{
	struct soda_write_list *l = &soda_pager(s)->writes;

	if (soda_session_late_locked(s))
		return false;
	if (l->answered_bytes && l->answered_bytes + w->bytes > soda_paging(s)->opt->write_budget)
		return false;
	w->answered = true;
	l->answered_bytes += w->bytes;
	soda_count_add(SODA_COUNT_writes_accepted, 1);
	return true;
}

/* WRITEs that have left the list, each with the list's reference. */
struct ending {
	struct soda_write *first, **end; /* by `left` */
};

/*
 * Take an older WRITE of the same range that is not posted off the list: w replaces it, and it need
 * not be sent.  The caller acknowledges it, if that was not done.  NULL: there is none.
 */
static struct soda_write *replace_locked(struct soda_session *s, struct soda_write *w)
{
	struct soda_write *old = soda_writes_find_locked(s, w->region_id, w->offset, w->bytes);

	if (!old || old->posted || old->seq < soda_pager(s)->writes.keep ||
	    old->offset != w->offset || old->bytes != w->bytes)
		return NULL;
	w->waiting = old->waiting;
	old->waiting = NULL;
	unlink_locked(s, old);
	return old;
}

/* What the server is told of w's data; an encoded code is right behind w in memory. */
static void tell(struct soda_write *w)
{
	const struct soda_request *rq = w->rq;
	uint8_t *code = (uint8_t *)(w + 1);

	if (rq->code)
		w->told = (struct soda_told){ .code = code,
					      .code_bytes = soda_wire_put_code(code, rq->code) };
	else if (rq->kept)
		w->told.origin = &rq->origin;
}

bool soda_writes_add(struct soda_session *s, struct soda_request *rq,
		     struct soda_paging_region *region)
{
	struct soda_write_list *l = &soda_pager(s)->writes;
	struct soda_write *w = calloc(1, sizeof(*w) + (rq->code ? SODA_WIRE_CODE_BYTES_MAX : 0));
	struct soda_write *old = NULL, *stale = NULL;
	bool accepted, delayed;

	if (!w)
		return false;
	*w = (struct soda_write){ .hold.put = write_put,
				  .refs = 2, /* the list, and this function */
				  .session = s,
				  .rq = rq,
				  .data = rq->data,
				  .block = rq->hold,
				  .region = region,
				  .offset = rq->offset,
				  .bytes = rq->bytes,
				  .region_id = rq->region_id,
				  .passed = !rq->data };
	soda_caches_written(region, w->offset, w->bytes);
	if (w->passed)
		tell(w);
	pthread_mutex_lock(&s->lock);
	w->passed = w->passed || (rq->keep && soda_pager(s)->keeps);
	while (unkeep_range_locked(l, w->region_id, w->offset, w->bytes, &stale))
		;
	if (soda_paging(s)->aggregate &&
	    !soda_session_late_locked(s)) /* it would acknowledge `old` early */
		old = replace_locked(s, w);
	link_locked(s, w);
	accepted = !l->unanswered && accept_locked(s, w);
	if (!accepted && !l->unanswered)
		l->unanswered = w;
	delayed = !accepted && !soda_session_late_locked(s);
	pthread_mutex_unlock(&s->lock);
	put_all(stale);
	if (old) {
		if (!old->answered)
			soda_forward_answer(old->rq, 0, NULL);
		soda_count_add(SODA_COUNT_writes_replaced, 1);
		write_put(&old->hold);
	}
	if (accepted)
		soda_forward_answer(rq, 0, NULL);
	else if (delayed)
		soda_count_add(SODA_COUNT_writes_delayed, 1);
	write_put(&w->hold);
	return true;
}

static bool adjacent(const struct soda_write *a, const struct soda_write *b)
{
	/* what is kept is found by its own range again */
	return b && !a->passed && !b->passed && a->region == b->region &&
	       a->offset + a->bytes == b->offset && a->data + a->bytes == b->data;
}

bool soda_writes_take_locked(struct soda_session *s, bool merge, struct soda_transfer *t)
{
	struct soda_write *first = soda_pager(s)->writes.unposted, *w;

	while (first && (first->posted || first->region->closing))
		first = first->next;
	w = first;
	if (!w)
		return false;
	t->region = w->region;
	t->writes = w;
	t->offset = w->offset;
	t->memory = w->data;
	t->told = w->passed ? &w->told : NULL;
	t->tasks_n = 1;
	t->bytes = w->bytes;
	w->posted = true;
	while (merge && adjacent(w, w->next) && !w->next->posted &&
	       t->bytes + w->next->bytes <= RUN_BYTES) {
		w = w->next;
		w->posted = true;
		t->bytes += w->bytes;
		t->tasks_n++;
	}
	if (soda_pager(s)->writes.unposted == first)
		soda_pager(s)->writes.unposted = w->next;
	if (t->tasks_n > 1)
		soda_count_add(SODA_COUNT_writes_merged, t->tasks_n - 1);
	return true;
}

void soda_writes_untake_locked(struct soda_session *s, const struct soda_transfer *t)
{
	struct soda_write_list *l = &soda_pager(s)->writes;
	struct soda_write *w = t->writes;

	for (unsigned i = 0; i < t->tasks_n; i++, w = w->next)
		w->posted = false;
	if (!l->unposted || l->unposted->seq > t->writes->seq)
		l->unposted = t->writes;
}

/* Ends of WRITEs */

static void note_loss(struct soda_session *s, const struct soda_write *w, int err)
{
	soda_count_add(SODA_COUNT_writes_lost, 1);
	soda_count_add(SODA_COUNT_writes_lost_bytes, w->bytes);
	soda_log_error(
		"client %016llx: %u bytes at %llu of region %u, acknowledged to it, could not "
		"be written to %s: %s",
		(unsigned long long)s->id, w->bytes, (unsigned long long)w->offset, w->region_id,
		soda_session_server(s), soda_strerror(err));
}

static void ending_add(struct ending *e, struct soda_write *w)
{
	w->left = NULL;
	*e->end = w;
	e->end = &w->left;
}

/* Move the READs that wait for w to *tasks_p. */
static void take_waiting(struct soda_write *w, struct soda_task **tasks_p)
{
	while (w->waiting) {
		struct soda_task *task = w->waiting;

		w->waiting = task->next;
		task->next = *tasks_p;
		*tasks_p = task;
	}
}

/* Count WRITEs as acknowledged while the budget allows, and list them, with a reference each. */
static void answer_more_locked(struct soda_session *s, struct soda_write **list, unsigned *n_p,
			       unsigned max)
{
	struct soda_write_list *l = &soda_pager(s)->writes;

	while (l->unanswered && *n_p < max && accept_locked(s, l->unanswered)) {
		write_ref(l->unanswered);
		list[(*n_p)++] = l->unanswered;
		l->unanswered = l->unanswered->next;
	}
}

static void answer_more(struct soda_session *s)
{
	enum { MAX = 64 };
	struct soda_write *list[MAX];
	unsigned n;

	do {
		n = 0;
		pthread_mutex_lock(&s->lock);
		answer_more_locked(s, list, &n, MAX);
		pthread_mutex_unlock(&s->lock);
		for (unsigned i = 0; i < n; i++) {
			soda_forward_answer(list[i]->rq, 0, NULL);
			write_put(&list[i]->hold);
		}
	} while (n == MAX);
}

static bool any_paused_locked(const struct soda_session *s)
{
	for (const struct soda_session_peer *at = s->peers; at; at = at->next)
		if (at->paused)
			return true;
	return false;
}

/* For data in memory that the transport needs back. NULL: there is no memory. */
static struct soda_write *copy_to_keep(struct soda_session *s, const struct soda_write *w)
{
	struct soda_block *block = has_room(s, w->bytes) ? soda_block_get(w->bytes) : NULL;
	struct soda_write *copy = block ? calloc(1, sizeof(*copy)) : NULL;

	if (!copy) {
		if (block)
			soda_block_put(block);
		return NULL;
	}
	memcpy(block->memory, w->data, w->bytes);
	*copy = (struct soda_write){ .hold.put = write_put,
				     .refs = 1,
				     .session = s,
				     .data = block->memory,
				     .block = block,
				     .offset = w->offset,
				     .bytes = w->bytes,
				     .region_id = w->region_id };
	reserved(soda_pager(s)->writes.charge, copy->bytes);
	return copy;
}

static bool is_to_keep(const struct soda_write *w)
{
	return w->rq->keep && !w->passed;
}

/* n WRITEs that have landed, and that nobody else takes off the list. */
static void copy_all_to_keep(struct soda_session *s, struct soda_write *w, unsigned n)
{
	while (n--) {
		struct soda_write *next;

		pthread_mutex_lock(&s->lock);
		next = w->next;
		pthread_mutex_unlock(&s->lock);
		if (is_to_keep(w) && !w->block)
			w->copy = copy_to_keep(s, w);
		w = next;
	}
}

void soda_writes_landed(struct soda_session *s, struct soda_write *w, unsigned n, int status)
{
	struct soda_write_list *l = &soda_pager(s)->writes;
	struct ending gone = { .end = &gone.first };
	struct soda_write *stale = NULL;
	struct soda_task *again = NULL;

	if (!status && is_to_keep(w) && !w->block) /* they all come by one connection */
		copy_all_to_keep(s, w, n);
	pthread_mutex_lock(&s->lock);
	while (n--) {
		struct soda_write *next = w->next;

		if (status < 0 && w->answered) {
			s->untold += !soda_region_untold_locked(s, w->region);
			w->region->lost = w->region->lost ? w->region->lost : status;
			soda_pager(s)->writes.lost++;
		}
		take_waiting(w, &again);
		soda_caches_written(w->region, w->offset, w->bytes);
		unlink_locked(s, w);
		ending_add(&gone, w);
		w = next;
	}
	/* who is paused waits for the memory of what lands, which so is not kept */
	for (w = any_paused_locked(s) || status ? NULL : gone.first; w; w = w->left)
		if (w->copy || (is_to_keep(w) && w->block))
			keep_locked(l, w->copy ? w->copy : w);
	while (l->kept_bytes > soda_paging(s)->opt->write_budget) {
		w = l->kept_first;
		unkeep_locked(l, w);
		w->next = stale;
		stale = w;
	}
	pthread_mutex_unlock(&s->lock);
	put_all(stale);
	while ((w = gone.first)) {
		gone.first = w->left;
		if (!w->answered)
			soda_forward_answer(w->rq, status, NULL);
		else if (status < 0)
			note_loss(s, w, status);
		if (w->copy)
			write_put(&w->copy->hold);
		write_put(&w->hold);
	}
	answer_more(s);
	if (again)
		soda_forward_again(s, again);
}

/* The client repeats the WRITE, because its connection ends without an answer. */
static void drop_unanswered(struct soda_write *w)
{
	soda_peer_close(w->rq->peer);
	soda_request_done(w->rq, -ECONNRESET, NULL);
}

void soda_writes_restart(struct soda_session *s)
{
	struct ending gone = { .end = &gone.first };
	struct soda_task *waiting = NULL;
	struct soda_write *w, *next;

	pthread_mutex_lock(&s->lock);
	for (w = soda_pager(s)->writes.first; w; w = next) {
		next = w->next;
		w->posted = false;
		take_waiting(w, &waiting);
		if (!w->answered) {
			unlink_locked(s, w);
			ending_add(&gone, w);
		}
	}
	soda_pager(s)->writes.unposted = soda_pager(s)->writes.first;
	pthread_mutex_unlock(&s->lock);
	while ((w = gone.first)) {
		gone.first = w->left;
		drop_unanswered(w);
		write_put(&w->hold);
	}
	while (waiting) {
		struct soda_task *task = waiting;

		waiting = task->next;
		soda_forward_drop(task);
	}
}

void soda_writes_discard(struct soda_session *s, const struct soda_paging_region *region,
			 bool files_too)
{
	struct ending gone = { .end = &gone.first };
	struct soda_task *again = NULL;
	struct soda_write *w, *next;

	pthread_mutex_lock(&s->lock);
	for (w = soda_pager(s)->writes.first; w; w = next) {
		next = w->next;
		if (w->posted || (region && w->region != region) ||
		    (!files_too && w->region->flags & SODA_WIRE_WRITABLE))
			continue;
		take_waiting(w, &again);
		unlink_locked(s, w);
		ending_add(&gone, w);
	}
	pthread_mutex_unlock(&s->lock);
	while ((w = gone.first)) {
		gone.first = w->left;
		if (files_too && w->answered)
			note_loss(s, w, -ESHUTDOWN);
		if (files_too && !w->answered)
			drop_unanswered(w);
		else if (!w->answered)
			soda_forward_answer(w->rq, 0, NULL);
		write_put(&w->hold);
	}
	if (again)
		soda_forward_again(s, again);
}

uint64_t soda_writes_mark_locked(struct soda_session *s)
{
	soda_pager(s)->writes.keep = soda_pager(s)->writes.seq;
	return soda_pager(s)->writes.seq;
}

bool soda_writes_before_locked(struct soda_session *s, const struct soda_paging_region *region,
			       uint64_t mark)
{
	const struct soda_write *w = soda_pager(s)->writes.first;

	while (w && w->seq < mark && region && w->region != region)
		w = w->next;
	return w && w->seq < mark;
}

bool soda_writes_posted_locked(struct soda_session *s, const struct soda_paging_region *region)
{
	const struct soda_write *w = soda_pager(s)->writes.first;

	while (w && !(w->posted && w->region == region))
		w = w->next;
	return w;
}

bool soda_writes_acknowledged(struct soda_session *s)
{
	bool any;

	pthread_mutex_lock(&s->lock);
	any = soda_pager(s)->writes.answered_bytes;
	pthread_mutex_unlock(&s->lock);
	return any;
}

uint64_t soda_writes_unwritten(struct soda_session *s)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&s->lock);
	for (const struct soda_write *w = soda_pager(s)->writes.first; w; w = w->next)
		bytes += w->bytes;
	pthread_mutex_unlock(&s->lock);
	return bytes;
}
