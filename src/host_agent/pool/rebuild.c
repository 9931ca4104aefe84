/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pool/rebuild.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/evict.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/stripe.h"
#include "host_agent/pages/install.h"
#include "host_agent/pool/files.h"

static struct {
	pthread_t thread;
	bool runs;
	_Atomic bool stop;
	struct soda_region *_Atomic at; /* which slab it works on; set with soda_regions_lock */
	_Atomic uint64_t bytes, completed, moved;
	void *buffer; /* the thread's: a chunk, with erasure codes all pieces of one */
	struct soda_retired retired; /* guarded by api_lock */
	uint64_t next_ns;	     /* likewise: when SODA_REBUILD_RATE allows the next chunk */
} rebuild;

void soda_members_look(struct soda_candidate *members, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct soda_link *link = &soda_agent.links[i];

		members[i] = (struct soda_candidate){
			.free_bytes = atomic_load(&link->free_bytes),
			.refused = !soda_server_up(&link->server) || atomic_load(&link->draining),
			.domain = atomic_load(&link->domain),
		};
	}
}

/* Copies. */

int soda_copy_open(struct soda_region *r, uint32_t k, struct soda_candidate *members,
		   int *refusal_p, struct soda_why *why)
{
	int ret;

	for (;;) {
		uint64_t bytes = soda_stripe_region_bytes(r);
		int i = soda_placement_choose(members, soda_members(), bytes,
					      soda_now_ns() * 0x9e3779b97f4a7c15u);
		struct soda_region *copy;

		if (i < 0)
			return *refusal_p;
		copy = soda_region_take_copy();
		if (!copy)
			return -ENOSPC;
		members[i].refused = true;
		copy->link = &soda_agent.links[i];
		copy->bytes = bytes;
		copy->pieces = r->pieces;
		copy->flags = r->flags;
		memcpy(copy->name, r->name, sizeof(copy->name));
		ret = soda_calls_open_region(copy, why);
		if (!ret) {
			soda_link_took(copy->link, bytes);
			if (soda_copies_apart(r))
				soda_placement_exclude(members, soda_members(), members[i].domain);
			atomic_store(&r->copy_on[k], (uint8_t)(i + 1));
			atomic_store(&r->copy[k], copy);
			return 0;
		}
		*refusal_p = ret;
		soda_region_put_copy(copy);
	}
}

void soda_copy_fit(struct soda_region *copy, const struct soda_region *r)
{
	copy->first = r->first;
	copy->chunks = r->chunks;
	copy->span = r->span;
}

static void close_region(struct soda_region *copy)
{
	struct soda_why why = { "" };
	int ret = soda_calls_close_region(copy, &why);

	if (ret)
		soda_log_error("a copy of an object is freed here, but %s keeps it until the "
			       "program ends: %s",
			       copy->link->server.address,
			       why.text[0] ? why.text : soda_strerror(ret));
}

void soda_copy_close(struct soda_region *copy)
{
	close_region(copy);
	soda_link_gave(copy->link, copy->bytes);
	soda_region_put_copy(copy);
}

/* A server is away. */

struct expelling {
	const struct soda_link *link;
	uint32_t stale, waiting;
};

static int expel_copy(struct soda_region *r, void *arg)
{
	struct expelling *e = arg;
	int k;

	if (r->going || !soda_copies(r))
		return 0;
	if (r->content && !soda_copies_spare(r)) /* pool/files.c looks for another one */
		return 0;
	k = soda_copy_on(r, e->link);
	if (k < 0 || !soda_copy_is_written(soda_copies(r), (uint32_t)k))
		return 0;
	if (soda_copies_drop(r, (uint32_t)k))
		e->stale++;
	else
		e->waiting++;
	return 0;
}

void soda_rebuild_expel(struct soda_link *link)
{
	struct expelling e = { .link = link };

	soda_regions_lock();
	soda_regions_each(expel_copy, &e);
	soda_regions_unlock();
	if (e.stale)
		soda_log_warning("%s is away: %u slabs go on without it", link->server.address,
				 e.stale);
	if (e.waiting)
		soda_log_warning("%s is away, and %u slabs cannot do without it: what is not "
				 "resident of them waits for it",
				 link->server.address, e.waiting);
	soda_writeback_ring();
}

/* The rebuild. */

/* What one rebuild, or one move, is about. */
struct task {
	struct soda_thread *t;
	struct soda_region *r;
	uint32_t k; /* the place of the new copy, that has a stale one or is free */
	int leaves; /* the place of the copy that is given up then; -1: none */
	struct soda_link *to;
	const struct soda_link *failed;	 /* where the last attempt failed; NULL: it did not */
	uint32_t held[SODA_MEMBERS_MAX]; /* enum soda_wire_held, as this look has found it */
};

enum { NO_PLACE = -1 };

static bool given_up(const struct task *job)
{
	return atomic_load(&rebuild.stop) || atomic_load(&job->r->leaving);
}

/* The place of a stale copy. */
static int stale_place(const struct soda_region *r)
{
	uint64_t copies = soda_copies(r);

	for (uint32_t k = 0; k < soda_copy_places(r); k++)
		if (!soda_copy_is_written(copies, k) && !soda_copy_place_free(r, k))
			return (int)k;
	return NO_PLACE;
}

/* The place of a stale copy that is missing: with erasure codes its piece is current nowhere. */
static int missing_place(const struct soda_region *r)
{
	uint64_t copies = soda_copies(r);

	for (uint32_t k = 0; k < soda_copy_places(r); k++)
		if (!soda_copy_is_written(copies, k) && !soda_copy_place_free(r, k) &&
		    !(r->pieces && soda_copy_is_current(copies, soda_copy_other_place(r, k))))
			return (int)k;
	return NO_PLACE;
}

/* The place to which the copy in place k may move. */
static int free_place(const struct soda_region *r, uint32_t k)
{
	uint32_t first = r->pieces ? soda_copy_other_place(r, k) : 0;
	uint32_t end = r->pieces ? first + 1 : soda_copy_places(r);

	for (uint32_t to = first; to < end; to++)
		if (soda_copy_place_free(r, to))
			return (int)to;
	return NO_PLACE;
}

/* Where the slab has copies other than k, and in their failure domains, there may be no other. */
static void exclude_copies(const struct soda_region *r, int k, struct soda_candidate *members)
{
	uint64_t copies = soda_copies(r);
	uint32_t n = soda_copies_apart(r) ? soda_members() : 0;

	for (int other = 0; other < (int)soda_copy_places(r); other++)
		if (other != k && soda_copy_is_written(copies, (uint32_t)other))
			soda_placement_exclude(
				members, n,
				atomic_load(&soda_copy_link(r, (uint32_t)other)->domain));
}

/*
 * Of the members that are UP and not drained, have the room and no copy, nor lie in the failure
 * domain of a copy other than k, one for a new copy; NULL: none.
 */
static struct soda_link *other_member(const struct soda_region *r, int k)
{
	struct soda_candidate members[SODA_MEMBERS_MAX];
	uint32_t n = soda_members();
	int i;

	soda_members_look(members, n);
	for (uint32_t m = 0; m < n; m++)
		if (soda_copy_on(r, &soda_agent.links[m]) >= 0 ||
		    members[m].free_bytes < soda_stripe_region_bytes(r))
			members[m].refused = true;
	if (!soda_copies(r))
		members[r->link->index].refused = true;
	exclude_copies(r, k, members);
	i = soda_placement_choose(members, n, soda_stripe_region_bytes(r),
				  soda_now_ns() * 0x9e3779b97f4a7c15u);
	return i < 0 ? NULL : &soda_agent.links[i];
}

/* Whether the stale copy k may be made anew where it was. */
static bool may_return(const struct soda_region *r, int k)
{
	const struct soda_link *own = soda_copy_link(r, (uint32_t)k);
	struct soda_candidate members[SODA_MEMBERS_MAX];

	soda_members_look(members, soda_members());
	exclude_copies(r, k, members);
	return !members[own->index].refused;
}

/*
 * Where stale copy k may be rebuilt now; NULL: nowhere yet.  Its own server may be there and refuse
 * it, as it has no room any more: then another one is asked, where there is one.
 */
static struct soda_link *place_for(const struct task *job, const struct soda_region *r, int k)
{
	struct soda_link *own = soda_copy_link(r, (uint32_t)k), *other;
	uint64_t since = atomic_load(&own->expelled_ns);

	if (may_return(r, k)) {
		other = own == job->failed ? other_member(r, k) : NULL;
		return other ? other : own;
	}
	if (!soda_server_up(&own->server) &&
	    (!since || soda_now_ns() - since < SODA_REBUILD_AWAY_MS * SODA_MS_NS))
		return NULL;
	return other_member(r, k);
}

/* Whether the slab can be worked on; files have one server, or pool/files.c works on them. */
static bool is_sound(const struct soda_region *r)
{
	return !r->file && !r->going && !atomic_load(&r->leaving) && !r->lost &&
	       soda_copies_reachable(r);
}

/* For soda_regions_each: 1: the slab misses a copy that can be rebuilt now. */
static int consider(struct soda_region *r, void *arg)
{
	struct task *job = arg;
	int k;

	if (!is_sound(r) || !soda_copies_missing(r))
		return 0;
	k = missing_place(r);
	job->to = k == NO_PLACE ? NULL : place_for(job, r, k);
	if (k != NO_PLACE && !job->to && atomic_load(&soda_copy_link(r, (uint32_t)k)->draining))
		job->held[soda_copy_link(r, (uint32_t)k)->index] = SODA_WIRE_HELD_ROOM;
	if (!job->to)
		return 0;
	job->r = r;
	job->k = (uint32_t)k;
	job->leaves = NO_PLACE;
	return 1;
}

/* Whether the slab has as many current copies as it should without the one in that place. */
static bool is_superfluous(const struct soda_region *r, uint32_t k)
{
	return soda_copies_current(r, soda_copies(r) & ~(SODA_COPIES_CURRENT << k)) >=
	       r->copies_wanted;
}

/*
 * The place of a copy that is to leave: stale, while others are as many as there should be; or
 * current, and its server is drained; or it should have left, and could not, as another one became
 * stale just then, and the drain was cancelled before that was rebuilt.
 */
static int leaving_place(const struct soda_region *r)
{
	uint64_t copies = soda_copies(r);
	int stale = stale_place(r);

	if (stale != NO_PLACE)
		return stale;
	for (uint32_t k = 0; k < soda_copy_places(r); k++)
		if (soda_copy_is_current(copies, k) && atomic_load(&soda_copy_link(r, k)->draining))
			return (int)k;
	for (uint32_t k = soda_copy_places(r); k--;)
		if (soda_copy_is_current(copies, k) && is_superfluous(r, k))
			return (int)k;
	return NO_PLACE;
}

/* Where the slab's copy on that server, in place `leaves`, moves to; NULL: it is held there. */
static struct soda_link *place_away(struct task *job, const struct soda_region *r, int leaves,
				    const struct soda_link *from)
{
	struct soda_link *to = other_member(r, leaves);

	if (!to)
		job->held[from->index] = SODA_WIRE_HELD_ROOM;
	return to;
}

/* Of a slab with copies: the one that is to leave, and where it moves to. */
static bool choose_move(struct task *job, const struct soda_region *r)
{
	int leaves = leaving_place(r), k = 0;

	if (leaves == NO_PLACE)
		return false;
	job->to = NULL; /* if there are enough others, it just goes */
	if (!is_superfluous(r, (uint32_t)leaves)) {
		k = free_place(r, (uint32_t)leaves);
		job->to = place_away(job, r, leaves, soda_copy_link(r, (uint32_t)leaves));
		if (!job->to || k == NO_PLACE)
			return false;
	}
	job->k = (uint32_t)k;
	job->leaves = leaves;
	return true;
}

/* A published object, or one that may be: it is on its server for others, too. */
static bool is_shared(const struct soda_region *r)
{
	return atomic_load(&r->flags) || r->doubtful || r->frozen;
}

/* The same of one without: its region becomes the copy in place 0 then. */
static bool choose_region(struct task *job, const struct soda_region *r)
{
	if (!atomic_load(&r->link->draining) || r->refused)
		return false;
	if (is_shared(r)) {
		job->held[r->link->index] = SODA_WIRE_HELD_FILE;
		return false;
	}
	job->to = place_away(job, r, NO_PLACE, r->link);
	job->k = 1;
	job->leaves = 0;
	return job->to;
}

/* A file does not move, or only to a server that has the same content (pool/files.h). */
static void note_held_file(struct task *job, const struct soda_region *r)
{
	const struct soda_link *link = r->content ? soda_copies_source(r, NULL) : r->link;

	if (!r->going && atomic_load(&link->draining) && (!r->content || soda_files_held(r)))
		job->held[link->index] = SODA_WIRE_HELD_FILE;
}

/* For soda_regions_each: 1: the slab has something on a server that is drained, and may move. */
static int consider_moving(struct soda_region *r, void *arg)
{
	struct task *job = arg;

	if (r->file)
		note_held_file(job, r);
	job->r = r;
	if (!is_sound(r) || soda_copies_missing(r))
		return 0;
	return soda_copies(r) ? choose_move(job, r) : choose_region(job, r);
}

/*
 * Where the slab's copy in place `leaves` moves to, from a server that has much less free: after it
 * that one still has no more.  What others move at the same time is seen 100 ms later.
 */
static struct soda_link *place_with_more(const struct soda_region *r, int leaves,
					 const struct soda_link *from)
{
	struct soda_link *to = atomic_load(&from->spreading) ? other_member(r, leaves) : NULL;
	uint64_t room = 2 * soda_stripe_region_bytes(r);

	if (to && atomic_load(&to->free_bytes) < atomic_load(&from->free_bytes) + room)
		return NULL;
	return to;
}

/* For soda_regions_each: 1: the slab may move, as somebody balances the pool. */
static int consider_spreading(struct soda_region *r, void *arg)
{
	struct task *job = arg;
	uint64_t copies = soda_copies(r);

	if (!is_sound(r) || soda_copies_missing(r) || (!copies && (r->refused || is_shared(r))))
		return 0;
	job->r = r;
	job->leaves = 0;
	job->to = copies ? NULL : place_with_more(r, NO_PLACE, r->link);
	job->k = 1;
	for (uint32_t k = 0; copies && !job->to && k < soda_copy_places(r); k++)
		if (soda_copy_is_current(copies, k)) {
			job->leaves = (int)k;
			job->to = place_with_more(r, (int)k, soda_copy_link(r, k));
		}
	if (copies && job->to)
		job->k = (uint32_t)free_place(r, (uint32_t)job->leaves);
	return job->to && job->k < SODA_COPY_PLACES;
}

static bool choose(struct task *job)
{
	bool found;

	memset(job->held, 0, sizeof(job->held));
	soda_regions_lock();
	found = soda_regions_each(consider, job) == 1 ||
		soda_regions_each(consider_moving, job) == 1 ||
		soda_regions_each(consider_spreading, job) == 1;
	if (found)
		atomic_store(&rebuild.at, job->r);
	soda_regions_unlock();
	/* while something moves, more may find a place when it has */
	for (uint32_t i = 0; i < soda_members(); i++)
		atomic_store(&soda_agent.links[i].held, found ? SODA_WIRE_HELD_NOT : job->held[i]);
	return found;
}

/* A call of the API may hold the lock for long, and may wait for this thread meanwhile. */
static bool lock_api(const struct task *job)
{
	while (!soda_lock_try(&soda_agent.api_lock)) {
		if (given_up(job))
			return false;
		poll(NULL, 0, 1);
	}
	return true;
}

/* With api_lock. */
static void retire_region(struct soda_region *copy)
{
	if (soda_retired_due(&rebuild.retired))
		soda_retired_age(&rebuild.retired);
	soda_region_retire(&rebuild.retired, copy);
}

/*
 * Open a new region in the task's place, and close that of a stale copy there.  Where that became
 * stale because its server was away no READ and no WRITE of it is under way; where the server has
 * refused a WRITE, or missed a DISCARD, its connections live, and one that was posted before may
 * still be answered.  A WRITE does no harm, as its chunk is brought to the new region all the same.
 */
static int replace_region(struct task *job, struct soda_why *why)
{
	struct soda_candidate members[SODA_MEMBERS_MAX] = { 0 };
	struct soda_region *r = job->r, *old = r->copy[job->k];
	int ret, refusal = -ENOTCONN;

	for (uint32_t m = 0; m < soda_members(); m++)
		members[m] = (struct soda_candidate){
			.free_bytes = r->bytes,
			.refused = m != job->to->index,
		};
	if (!lock_api(job))
		return -ECANCELED;
	if (old)
		close_region(old); /* again, if an earlier attempt came no further */
	ret = soda_copy_open(r, job->k, members, &refusal, why);
	if (!ret) {
		soda_copy_fit(r->copy[job->k], r);
		if (old) {
			soda_link_gave(old->link, old->bytes);
			retire_region(old);
		}
	}
	soda_lock_release(&soda_agent.api_lock);
	return ret;
}

/*
 * A slab without redundancy gets a copy: its region, in place 0, with what recoveries know of it.
 * Who has found the region itself before may go on with it: it is the same on the wire.
 */
static int adopt_region(struct task *job)
{
	struct soda_region *r = job->r, *twin;
	bool good;

	if (!lock_api(job))
		return -ECANCELED;
	twin = soda_region_take_twin(r);
	soda_regions_lock();
	good = twin && !soda_copies(r) && !r->refused && !r->lost && !is_shared(r);
	if (good) {
		twin->link = r->link;
		twin->bytes = r->bytes;
		twin->flags = r->flags;
		memcpy(twin->name, r->name, sizeof(twin->name));
		soda_copy_fit(twin, r);
		twin->mr = r->mr;
		twin->meeting = r->meeting;
		twin->decided = r->decided;
		twin->asked = r->asked;
		twin->keeps = r->keeps;
		/* soda_sync() compares these with those from before */
		atomic_store(&r->losses, soda_link_restarts(r->link));
		r->copies_wanted = 1;
		atomic_store(&r->copy_on[0], (uint8_t)(r->link->index + 1));
		atomic_store(&r->copy[0], twin);
		atomic_store(&r->copies, SODA_COPIES_CURRENT | SODA_COPIES_WRITTEN);
	}
	soda_regions_unlock();
	if (twin && !good)
		soda_region_put_copy(twin);
	soda_lock_release(&soda_agent.api_lock);
	return good ? 0 : -ECANCELED;
}

/*
 * A WRITE that was posted to a copy before that was given up belongs to a chunk that has been
 * SENDING since: wait until none has, or is again, for a moment.
 */
static void await_writes(const struct task *job)
{
	uint64_t deadline_ns = soda_now_ns() + SODA_SILENT_MS * SODA_MS_NS;
	uint32_t first = job->r->first;

	for (uint32_t id = first; id < first + job->r->chunks; id++)
		while (soda_chunk_load(&soda_agent.table[id]) & SODA_CW_SENDING &&
		       soda_now_ns() < deadline_ns && !given_up(job))
			poll(NULL, 0, 1);
}

/*
 * The copy in that place, which is given up, is closed, and the place is free.  A READ that was
 * posted before may be refused, and is asked for elsewhere then.
 */
static void clear_place(const struct task *job, uint32_t k)
{
	struct soda_region *r = job->r, *old = r->copy[k];

	await_writes(job);
	if (!lock_api(job)) /* the slab is being freed, with all that is in its places */
		return;
	close_region(old);
	soda_link_gave(old->link, old->bytes);
	atomic_store(&r->copy[k], NULL);
	retire_region(old);
	soda_lock_release(&soda_agent.api_lock);
}

/* Sleep so long that SODA_REBUILD_RATE is kept. */
static void pace(const struct task *job, uint64_t bytes)
{
	uint64_t now = soda_now_ns(), rate = soda_agent.settings.rebuild_rate;

	atomic_fetch_add(&rebuild.bytes, bytes);
	if (rebuild.next_ns < now)
		rebuild.next_ns = now;
	rebuild.next_ns += bytes * 1000000000u / rate;
	while ((now = soda_now_ns()) + SODA_MS_NS < rebuild.next_ns && !given_up(job)) {
		uint64_t ms = (rebuild.next_ns - now) / SODA_MS_NS;

		poll(NULL, 0, ms < SODA_REBUILD_LOOK_MS ? (int)ms : SODA_REBUILD_LOOK_MS);
	}
}

struct writing {
	const struct task *job;
	uint32_t id, bytes;
	const void *from;
	uint64_t deadline_ns;
};

/* For soda_channels_lend: write the chunk, which lies in the buffer, to the copy. */
static int write_over(struct soda_conn *conn, void *arg)
{
	const struct writing *w = arg;
	struct soda_region *to = soda_copy_to_write(w->job->r, w->job->to);
	struct soda_done done;
	int ret;

	if (!to)
		return 1;
	ret = soda_conn_post_write(conn, &to->mr, soda_stripe_offset_of(w->job->r, w->id), w->bytes,
				   w->from, 0);
	if (!ret)
		ret = soda_conn_flush(conn, false);
	while (!ret) {
		ret = soda_conn_poll(conn, &done, 1, SODA_MS_NS, 0);
		if (!ret && soda_now_ns() > w->deadline_ns)
			ret = -ETIMEDOUT;
	}
	return ret < 0 ? ret : done.status ? 1 : 0;
}

/* The chunk in the buffer goes to the copy. 0, -ECANCELED: the copy is stale. */
static int write_chunk(const struct task *job, uint32_t id)
{
	struct writing w = {
		.job = job,
		.id = id,
		.bytes = soda_stripe_bytes_of(job->r, id),
		.from = job->r->pieces ? soda_stripe_piece(job->r, soda_copy_piece(job->r, job->k),
							   rebuild.buffer)
				       : rebuild.buffer,
		.deadline_ns = soda_now_ns() + soda_calls_patience(INT32_MAX) * SODA_MS_NS,
	};
	int ret;

	do {
		ret = soda_channels_lend(job->t, job->to, write_over, &w);
		if (ret == -EBUSY)
			poll(NULL, 0, 1);
	} while (ret == -EBUSY && soda_now_ns() < w.deadline_ns && !given_up(job));
	return ret ? -ECANCELED : 0;
}

/* A REMOTE chunk. 0; -EAGAIN: it is not REMOTE any more; -ECANCELED. */
static int copy_chunk(const struct task *job, uint32_t id, uint32_t w)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint64_t deadline_ns = soda_now_ns() + soda_calls_patience(INT32_MAX) * SODA_MS_NS;
	sigset_t saved;
	int ret;

	if (soda_evict_credit(job->t, deadline_ns))
		return -EAGAIN;
	if (!soda_chunk_begin(c, &w, SODA_CHUNK_FETCHING)) {
		soda_buffer_give(&soda_agent.buffer, 1);
		return -EAGAIN;
	}
	atomic_store_explicit(&c->channel, SODA_CHANNEL_NONE, memory_order_relaxed);
	soda_signals_block(&saved);
	ret = soda_fetch_copy(job->t, job->r, id, rebuild.buffer, deadline_ns);
	if (!ret)
		ret = write_chunk(job, id);
	if (ret != -EBADMSG)
		soda_install_cancel(id); /* REMOTE again, and its credit is given back */
	soda_signals_restore(&saved);
	if (ret == -EBADMSG) /* of a sealed object, and changed there: it alone is LOST */
		return -EAGAIN;
	return ret && ret != -EAGAIN ? -ECANCELED : ret;
}

/* A resident chunk becomes dirty, all of it. false: its word has changed. */
static bool make_dirty(uint32_t id, uint32_t w)
{
	uint32_t to = (w & ~(SODA_CW_STATE | SODA_CW_AS_FETCHED)) | SODA_CHUNK_DIRTY |
		      soda_blocks_all() << SODA_CW_DIRTY_SHIFT;

	return soda_chunk_swap(&soda_agent.table[id], &w, to);
}

/* See to it that the copy gets the chunk. 0; -ECANCELED. */
static int bring(const struct task *job, uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];

	while (!given_up(job) && soda_copy_to_write(job->r, job->to)) {
		uint32_t w = soda_chunk_load(c);
		int ret;

		switch (soda_chunk_state(w)) {
		case SODA_CHUNK_FETCHING:
			soda_fetch_join(job->t, id, soda_now_ns() + 10 * SODA_MS_NS);
			break;
		case SODA_CHUNK_BUSY:
			soda_chunk_wait(c, SODA_MS_NS);
			break;
		case SODA_CHUNK_CLEAN:
		case SODA_CHUNK_DIRTY:
			/* never written back: what is not dirty of it is zeros, as in the copy */
			if (!(w & (SODA_CW_BACKED | SODA_CW_SENDING)) || make_dirty(id, w))
				return 0;
			break;
		case SODA_CHUNK_REMOTE:
			ret = copy_chunk(job, id, w);
			if (!ret)
				pace(job, soda_stripe_bytes_of(job->r, id));
			if (ret != -EAGAIN)
				return ret;
			break;
		default:
			return 0;
		}
	}
	return -ECANCELED;
}

static int bring_all(const struct task *job)
{
	int ret = 0;

	for (uint32_t i = 0; i < job->r->chunks && !ret; i++)
		ret = bring(job, job->r->first + i);
	return ret;
}

static void say_refused(const struct task *job, int err, const struct soda_why *why)
{
	const struct soda_region *r = job->r;

	if (err == -ECANCELED || job->to == job->failed) /* it is tried again and again */
		return;
	soda_log_warning("a copy of %s cannot be %s %s: %s", r->name[0] ? r->name : "an object",
			 job->leaves == NO_PLACE ? "rebuilt on" : "moved to",
			 job->to->server.address, why->text[0] ? why->text : soda_strerror(err));
}

/* Make the new copy. true: it is current. */
static bool make_copy(struct task *job)
{
	struct soda_region *r = job->r;
	struct soda_why why = { "" };
	int ret = soda_copies(r) ? 0 : adopt_region(job);

	if (!ret)
		ret = replace_region(job, &why);
	if (ret) {
		say_refused(job, ret, &why);
		return false;
	}
	soda_copies_begin(r, job->k);
	ret = bring_all(job);
	if (!ret && soda_copies_complete(r, job->k))
		return true;
	soda_copies_drop(r, job->k);
	if (job->leaves != NO_PLACE) /* nothing is missing without it */
		clear_place(job, job->k);
	return false;
}

/* A copy that is to leave goes, if there are enough without it. */
static bool give_up_copy(const struct task *job)
{
	struct soda_region *r = job->r;
	uint32_t k = (uint32_t)job->leaves;
	bool current = soda_copy_is_current(soda_copies(r), k);

	if (current && !is_superfluous(r, k))
		return false; /* another one has become stale meanwhile: first it is rebuilt */
	if (!soda_copies_leave(r, k))
		return false;
	soda_writeback_ring(); /* chunks that wait for that server go on */
	clear_place(job, k);
	atomic_fetch_add(&rebuild.moved, current);
	return true;
}

/* true: the slab is as it should be. */
static bool work(struct task *job)
{
	if (job->to && !make_copy(job))
		return false;
	if (job->leaves == NO_PLACE) {
		atomic_fetch_add(&rebuild.completed, 1);
		return true;
	}
	return give_up_copy(job);
}

static void rest(int ms)
{
	for (; ms > 0 && !atomic_load(&rebuild.stop); ms -= SODA_REBUILD_LOOK_MS)
		poll(NULL, 0, SODA_REBUILD_LOOK_MS);
}

static void *run(void *arg)
{
	struct task job = { .t = soda_thread_internal() };
	bool told = true; /* that nothing is missing */

	while (!atomic_load(&rebuild.stop)) {
		bool done;

		if (!choose(&job)) {
			bool missing = soda_rebuild_missing();

			if (!missing && !told)
				soda_log_warning("all slabs have their copies again, %llu bytes "
						 "were copied",
						 (unsigned long long)atomic_load(&rebuild.bytes));
			told = !missing;
			job.failed = NULL;
			rest(SODA_REBUILD_LOOK_MS);
			continue;
		}
		told = told && job.leaves != NO_PLACE;
		done = work(&job);
		atomic_store(&rebuild.at, NULL);
		if (!done) {
			job.failed = job.to;
			rest(SODA_REBUILD_PAUSE_MS);
		}
	}
	return NULL;
}

int soda_rebuild_start(void)
{
	int ret;

	if (rebuild.runs)
		return 0;
	rebuild.buffer = aligned_alloc(4096, 2 * soda_chunk_bytes()); /* with parity */
	if (!rebuild.buffer)
		return -ENOMEM;
	atomic_store(&rebuild.stop, false);
	ret = soda_helper_start(&rebuild.thread, "soda-rebuild", run, NULL);
	rebuild.runs = !ret;
	if (ret) {
		free(rebuild.buffer);
		rebuild.buffer = NULL;
		return ret;
	}
	atomic_store(&soda_agent.redundant, true);
	return 0;
}

void soda_rebuild_stop(void)
{
	atomic_store(&rebuild.stop, true);
	if (rebuild.runs)
		soda_wait_join(rebuild.thread, "the rebuild of copies to end");
	rebuild.runs = false;
	free(rebuild.buffer);
	rebuild.buffer = NULL;
}

void soda_rebuild_leave(struct soda_region *r)
{
	if (!soda_redundant())
		return;
	atomic_store(&r->leaving, true);
	soda_regions_lock(); /* the thread has chosen r before, or does not any more */
	soda_regions_unlock();
	while (atomic_load(&rebuild.at) == r)
		poll(NULL, 0, 1);
}

static int count_missing(struct soda_region *r, void *arg)
{
	*(uint64_t *)arg += !r->going && soda_copies_missing(r);
	return 0;
}

uint64_t soda_rebuild_missing(void)
{
	uint64_t n = 0;

	if (!soda_redundant())
		return 0;
	soda_regions_lock();
	soda_regions_each(count_missing, &n);
	soda_regions_unlock();
	return n;
}

void soda_rebuild_count(struct soda_rebuild_counts *out)
{
	*out = (struct soda_rebuild_counts){
		.expelled = soda_copies_dropped(),
		.bytes = atomic_load(&rebuild.bytes),
		.completed = atomic_load(&rebuild.completed),
		.moved = atomic_load(&rebuild.moved),
	};
}
