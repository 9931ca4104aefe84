/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pool/recover.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/failure.h"
#include "base/log.h"
#include "client/call.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/kept.h"
#include "host_agent/move/stuck.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/sealing.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pages/shared.h"
#include "host_agent/pool/freeze.h"

enum { UNDECIDED_MAX = 64 }; /* an object with a further one is lost for good */

/* Whether there are objects that a server has refused, and when to ask again; its keeper's. */
static struct refusals {
	bool any;
	uint32_t pause_ms; /* between two questions, doubling; 0: none was asked yet */
	uint64_t next_ns;
} all_refusals[SODA_MEMBERS_MAX];

static uint64_t patience(void)
{
	return soda_now_ns() + soda_agent.settings.fault_timeout_ms * SODA_MS_NS;
}

/*
 * Chunks that another thread has had BUSY or FETCHING for longer than a recovery waits.  Until it
 * is decided what becomes of them, no chunk of their objects is fetched, so that none is read from
 * a server that does not have its content; resident chunks stay usable.
 */
static struct {
	uint32_t id[UNDECIDED_MAX]; /* guarded by soda_regions_lock */
	_Atomic uint32_t n;	    /* likewise; the keeper also reads it without the lock */
} undecided;

static bool is_undecided(uint32_t id)
{
	for (uint32_t i = 0; i < undecided.n; i++)
		if (undecided.id[i] == id)
			return true;
	return false;
}

/* Decide whether chunks of the object may be fetched. */
static void set_lost(struct soda_region *r)
{
	atomic_store(&r->lost, r->refused || r->undecided || r->given_up);
}

/* The object that the region, or the copy of a slab, is a part of. */
static struct soda_region *whole(struct soda_region *part)
{
	return soda_region_of(part->first);
}

/* Whether the server has refused the region; of a copy: the last one. */
static void note_refused(struct soda_region *part, int err)
{
	atomic_store(&part->refused, err);
	soda_recover_set_refused(whole(part), err);
}

void soda_recover_set_refused(struct soda_region *r, int err)
{
	if (!err)
		atomic_fetch_add(&r->taken, 1);
	atomic_store(&r->refused, err);
	set_lost(r);
	if (!err)
		soda_kept_return(r);
}

static const char *name_of(const struct soda_region *r)
{
	return r->name[0] ? r->name : r->file ? r->file : "an object";
}

/* Put the chunk on the list of undecided ones. */
static void leave_undecided(struct soda_region *r, uint32_t id)
{
	bool lost = r->lost;

	if (is_undecided(id) || r->given_up)
		return;
	if (undecided.n == UNDECIDED_MAX) {
		r->given_up = true;
	} else {
		undecided.id[undecided.n++] = id;
		r->undecided++;
	}
	set_lost(r);
	if (!lost)
		soda_log_error("chunk %u of %s is in use for longer than a fault may take: what is "
			       "not resident of the object is an error until that ends",
			       id - r->first, name_of(r));
}

/*
 * The server's copy of the chunk is gone, or is not the newest: REMOTE becomes LOST, resident
 * becomes dirty.  Waits for a thread that has the chunk BUSY or FETCHING, mostly for microseconds.
 * True: the content is lost, or the chunk is undecided.
 */
static bool lose_chunk(struct soda_region *r, uint32_t id, uint64_t deadline_ns)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	for (;;) {
		switch (soda_chunk_state(w)) {
		case SODA_CHUNK_FETCHING: /* its READ fails, as all connections are broken */
			if (soda_stuck_lose(id))
				return true;
			__attribute__((fallthrough));
		case SODA_CHUNK_BUSY:
			if (soda_now_ns() > deadline_ns) {
				leave_undecided(r, id);
				return true;
			}
			soda_chunk_wait(c, 1000000);
			w = soda_chunk_load(c);
			break;
		case SODA_CHUNK_REMOTE:
			if (soda_chunk_swap(c, &w,
					    (w & ~(SODA_CW_STATE | SODA_CW_BACKED)) |
						    SODA_CHUNK_LOST))
				return true;
			break;
		case SODA_CHUNK_CLEAN:
			/*
			 * Neither: zeros that were never written, of which no copy is needed.  What
			 * is SENDING for the first time may have been with this server already, and
			 * be on its way to another, which has another copy or piece.
			 */
			if (!(w & (SODA_CW_BACKED | SODA_CW_SENDING)))
				return false;
			__attribute__((fallthrough)); /* our pages are the only copy now */
		case SODA_CHUNK_DIRTY:
			soda_sealing_unsent(r, id); /* first: afterwards a sender may take it */
			if (soda_chunk_swap(
				    c, &w,
				    (w & ~(SODA_CW_STATE | SODA_CW_BACKED | SODA_CW_AS_FETCHED)) |
					    SODA_CHUNK_DIRTY |
					    soda_blocks_all() << SODA_CW_DIRTY_SHIFT))
				return false;
			break;
		default:
			return false;
		}
	}
}

/* The server has no copy of the object's chunks. If content is lost, the next soda_sync says so. */
static void lose_chunks(struct soda_region *r, const struct soda_link *link)
{
	uint64_t deadline_ns = patience();
	uint32_t lost = 0, first = 0, last = 0;

	for (uint32_t i = 0; i < r->chunks; i++)
		if (lose_chunk(r, r->first + i, deadline_ns)) {
			first = lost++ ? first : i;
			last = i;
		}
	if (lost)
		atomic_fetch_add(&r->unwritten, 1);
	if (lost && soda_members() > 1)
		soda_log_error("%s: %u chunks between its bytes %llu and %llu are lost with %s",
			       name_of(r), lost,
			       (unsigned long long)(r->before +
						    ((uint64_t)first << soda_agent.chunk_shift)),
			       (unsigned long long)(r->before + ((uint64_t)(last + 1)
								 << soda_agent.chunk_shift)),
			       link->server.address);
}

void soda_recover_anew(struct soda_link *link)
{
	atomic_fetch_add(&link->meeting, 1);
	all_refusals[link->index].pause_ms = 0;
}

struct recovery {
	const struct soda_link *link; /* objects of other servers are left alone */
	struct soda_conn *control;
	struct soda_why *why;
	uint64_t patient_until_ns; /* until when refusals are tried again, for all objects together
				    */
};

static void unmap_old(void *arg)
{
	struct soda_region *r = arg;

	soda_conn_unmap_region(&r->mr);
}

/*
 * A file may take its time to be opened, but not while threads wait for copies on that server:
 * where it does, the copies become stale, and then there is time.
 */
static int patience_for(const struct soda_region *r)
{
	int timeout_ms = (int)soda_agent.settings.fault_timeout_ms;

	return atomic_load(&r->link->expelled_ns) ? soda_calls_patience_for(r, timeout_ms)
						  : soda_calls_patience(timeout_ms);
}

/*
 * Open the object's region.  A server that has just started may lack memory or descriptors for a
 * moment, or a disk's answer (EIO, which other errors are on the wire, too): at the first attempt
 * with a server, a refusal with these errors is tried again for a while.
 */
static int open_patiently(const struct recovery *o, struct soda_region *r)
{
	int timeout_ms = patience_for(r), ret;
	bool first = r->meeting != soda_link_meeting(r->link);

	for (;;) {
		ret = soda_calls_open_once(o->control, r, timeout_ms, o->why);
		if ((ret != -ENOMEM && ret != -EIO) || !first ||
		    soda_now_ns() >= o->patient_until_ns)
			return ret;
		poll(NULL, 0, SODA_REOPEN_LOOK_MS);
	}
}

/*
 * Whether a region with that size and file is the object's: a READ_ONLY file must be the same file.
 */
static bool is_same(const struct soda_region *r, uint64_t bytes, uint64_t file_id)
{
	return r->bytes == bytes && (!(r->flags & SODA_READ_ONLY) || r->file_id == file_id);
}

/* The server does not open the object: err; -ESTALE: the file of that name is another one now. */
static void set_refused(const struct recovery *o, struct soda_region *r, int err)
{
	bool before = r->refused;

	r->meeting = soda_link_meeting(r->link);
	note_refused(r, err);
	all_refusals[r->link->index].any = true;
	if (before)
		return;
	soda_log_error("%s %s (%llu bytes) could not be opened again on %s: %s; what is not "
		       "resident of it is an error, and what is stays here; it is asked for again",
		       r->file ? "file" : "object", r->file ? r->file : r->name,
		       (unsigned long long)r->bytes, soda_conn_peer(o->control),
		       err == -ESTALE	 ? "it has changed"
		       : o->why->text[0] ? o->why->text
					 : soda_strerror(err));
}

/* The server has opened the object. */
static void set_placed(struct soda_region *r)
{
	if (!r->refused)
		return;
	note_refused(r, 0);
	soda_log_warning("%s has a place on %s again", name_of(r), r->link->server.address);
}

/*
 * Decide what becomes of the object's chunks, before the object has a region on the new server:
 * nothing may be fetched from there that was not written there.  READ_ONLY files' chunks stay as
 * they are.
 */
static void give_up_the_old(struct soda_region *part)
{
	struct soda_region *r = whole(part);

	if (part->decided == soda_link_meeting(part->link))
		return;
	if (!(r->flags & SODA_READ_ONLY)) {
		/* first: lose_chunks() makes chunks dirty, which those of a frozen range, or of a
		   sealed object, never are */
		soda_freeze_lose(r);
		atomic_store(&r->sealed, false);
		atomic_fetch_add(&r->losses, 1);
		lose_chunks(r, part->link);
		atomic_fetch_add(&r->losses, 1);
	}
	part->decided = soda_link_meeting(part->link);
}

static int reopen(struct soda_region *r, struct recovery *o)
{
	uint64_t bytes = r->bytes, file_id = r->file_id;
	int ret;

	give_up_the_old(r);
	soda_channels_exclusive(r->link, unmap_old, r);
	ret = open_patiently(o, r);
	if (soda_call_lost(ret))
		return ret;
	if (!ret && !is_same(r, bytes, file_id)) {
		soda_conn_unmap_region(&r->mr);
		r->asked = true;
		r->bytes = bytes;
		r->file_id = file_id;
		ret = -ESTALE;
	}
	if (ret)
		set_refused(o, r, ret);
	else
		set_placed(r);
	return 0;
}

/* A copy on another server, from which the object is read as well; NULL: there is none. */
static const struct soda_region *other_copy(const struct soda_region *r,
					    const struct soda_link *link)
{
	uint64_t copies = soda_copies(r);

	for (uint32_t k = 0; copies && k < soda_copy_places(r); k++)
		if (soda_copy_is_current(copies, k) && soda_copy_link(r, k) != link)
			return r->copy[k];
	return NULL;
}

static int join_store(const struct recovery *o, struct soda_region *at,
		      const struct soda_region *as, struct soda_wire_stored *got_p, int *fd_p)
{
	return soda_calls_join_store_on(
		o->control, at, SODA_WIRE_STORE_MAP, as, got_p, fd_p,
		soda_calls_patience((int)soda_agent.settings.fault_timeout_ms), o->why);
}

/*
 * The agent has forgotten the process's place in the node's store, if it had ended the session
 * meanwhile: ask for one again, as another copy's or by the name that the object was joined with.
 * Where there is none the agent sends data, as the next agent does.  at: the object, or its copy on
 * that server.
 */
static int rejoin_store(const struct recovery *o, struct soda_region *r, struct soda_region *at)
{
	const struct soda_region *as = other_copy(r, o->link);
	struct soda_wire_stored got;
	int fd, ret = -ENOENT;

	if (!r->shared || r->refused || !soda_shared_knows(r, o->link))
		return 0;
	if (as)
		ret = join_store(o, at, as, &got, &fd);
	if (ret == -ENOENT && r->link == o->link)
		ret = join_store(o, at, NULL, &got, &fd);
	if (!ret)
		soda_shared_rejoined(r, &got, fd);
	return soda_call_lost(ret) ? ret : 0;
}

/* Whether the server that was met does not have the region. */
static bool forgotten(const struct soda_region *r)
{
	return r->refused || r->meeting != soda_link_meeting(r->link);
}

static int renew_region(const struct recovery *o, struct soda_region *r)
{
	int timeout_ms = soda_calls_patience((int)soda_agent.settings.fault_timeout_ms);

	return soda_conn_renew_region(o->control, &r->mr, timeout_ms, o->why);
}

static int renew_copy(const struct recovery *o, struct soda_region *r, struct soda_region *copy)
{
	int ret = renew_region(o, copy);

	return ret ? ret : rejoin_store(o, r, copy);
}

/*
 * A slab's copy on the server, if there is one.  Where the server does not have it, it is stale,
 * and will be rebuilt; the last copy is opened anew, and what was only there is lost.
 */
static int recover_copy(struct soda_region *r, struct recovery *o)
{
	struct soda_region *copy = soda_copy_with(r, o->link, SODA_COPIES_WRITTEN);
	int k = soda_copy_on(r, o->link);

	if (!copy || k < 0)
		return 0;
	if (!forgotten(copy))
		return renew_copy(o, r, copy);
	if (r->content) { /* pool/files.c opens it again, there or elsewhere */
		if (!soda_copies_drop(r, (uint32_t)k))
			atomic_store(&r->nowhere, true);
		soda_channels_exclusive(o->link, unmap_old, copy);
		return 0;
	}
	if (!soda_copies_drop(r, (uint32_t)k))
		return reopen(copy, o);
	soda_channels_exclusive(o->link, unmap_old, copy);
	return 0;
}

/* Open an object anew that the server does not have; else renew what depends on the connection. */
static int recover_one(struct soda_region *r, void *arg)
{
	struct recovery *o = arg;
	int ret;

	if (!r->going && soda_copies(r))
		return recover_copy(r, o);
	if (r->going || r->link != o->link)
		return 0;
	ret = forgotten(r) ? reopen(r, o) : renew_region(o, r);
	return ret ? ret : rejoin_store(o, r, r);
}

/* Freeze the object's frozen ranges again. */
static int renew(struct soda_region *r, void *arg)
{
	struct recovery *o = arg;

	return soda_copies(r) || r->refused || r->going || r->link != o->link
		       ? 0
		       : soda_freeze_renew(o->control, r, o->why);
}

/* What became of unacknowledged chunks. */
struct returned {
	uint32_t dirty, lost;
};

/* The agent has ended with WRITEs of the object's unacknowledged chunks. */
static int take_back(struct soda_region *r, void *arg)
{
	struct returned *back = arg;
	uint64_t deadline_ns = patience();
	uint32_t before = back->lost;

	if (r->flags & SODA_READ_ONLY)
		return 0;
	for (uint32_t id = r->first; id < r->first + r->chunks; id++) {
		if (!soda_unacked_certainly(id))
			continue;
		if (lose_chunk(r, id, deadline_ns))
			back->lost++;
		else
			back->dirty++;
	}
	if (back->lost != before) {
		atomic_fetch_add(&r->unwritten, 1);
		soda_sealing_spoil(r);
	}
	return 0;
}

void soda_recover_unacked(uint32_t agent)
{
	struct returned back = { 0, 0 };

	if (!soda_unacked_meet(agent))
		return;
	soda_regions_lock();
	soda_regions_each(take_back, &back);
	soda_regions_unlock();
	soda_unacked_buried();
	soda_log_info("the DPU agent is another one: %u chunks that the one before may not have "
		      "brought to the server are written back again",
		      back.dirty);
	if (back.lost) /* in use all the time; the touch of one that is not resident is an error */
		soda_log_error("%u chunks that the DPU agent before had acknowledged are in use "
			       "for longer than a fault may take, and may be lost",
			       back.lost);
}

/* The chunk is dirty, all of it, and no longer unacknowledged. */
static void send_again(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	for (;;) {
		enum soda_chunk_state s = soda_chunk_state(w);

		if (!soda_unacked_certainly(id))
			return;
		if (s == SODA_CHUNK_BUSY) {
			soda_chunk_wait(c, 1000000);
			w = soda_chunk_load(c);
		} else if (s != SODA_CHUNK_CLEAN && s != SODA_CHUNK_DIRTY) {
			return;
		} else if (soda_chunk_begin(c, &w, SODA_CHUNK_BUSY)) {
			break;
		}
	}
	/* while it is BUSY, so that no thread takes it for one that may be dropped */
	soda_unacked_forget(id, 1);
	soda_chunk_settle(c, SODA_CHUNK_DIRTY, soda_blocks_all(), 0, SODA_CW_AS_FETCHED);
}

static int send_region_again(struct soda_region *r, void *arg)
{
	sigset_t saved;

	soda_signals_block(&saved);
	for (uint32_t id = r->first; id < r->first + r->chunks && !r->going; id++)
		send_again(id);
	soda_signals_restore(&saved);
	return 0;
}

void soda_recover_refused(void)
{
	soda_regions_lock();
	soda_regions_each(send_region_again, NULL);
	soda_regions_unlock();
}

int soda_recover_regions(struct soda_link *link, struct soda_conn *control, struct soda_why *why)
{
	struct recovery o = {
		.link = link,
		.control = control,
		.why = why,
		.patient_until_ns = soda_now_ns() + SODA_REOPEN_MS * SODA_MS_NS,
	};
	int ret;

	all_refusals[link->index].any = false;
	soda_regions_lock();
	ret = soda_regions_each(recover_one, &o);
	if (!ret)
		ret = soda_regions_each(renew, &o);
	soda_regions_unlock();
	return ret;
}

static bool in_transit(uint32_t id)
{
	enum soda_chunk_state s = soda_chunk_state(soda_chunk_load(&soda_agent.table[id]));

	return s == SODA_CHUNK_FETCHING || s == SODA_CHUNK_BUSY;
}

/*
 * No thread had the chunk a moment ago: decide of it. If one has it again, it is put on the list
 * again.
 */
static void decide(uint32_t id)
{
	struct soda_region *r = soda_region_of(id);

	if (lose_chunk(r, id, soda_now_ns()))
		atomic_fetch_add(&r->unwritten, 1);
	if (!r->undecided || --r->undecided)
		return;
	set_lost(r);
	if (!r->lost)
		soda_log_warning("%s: what is not resident of it can be had again, as far as the "
				 "server has it",
				 name_of(r));
}

static void look_at_undecided(void)
{
	uint32_t id[UNDECIDED_MAX], n;

	if (!undecided.n)
		return;
	soda_regions_lock();
	n = undecided.n;
	memcpy(id, undecided.id, n * sizeof(id[0]));
	undecided.n = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (in_transit(id[i]) && !soda_stuck_has(id[i]))
			undecided.id[undecided.n++] = id[i];
		else
			decide(id[i]);
	}
	soda_regions_unlock();
}

/*
 * Ask the server to open the object if it has refused it.  1: it has.  The region that it has
 * opened is not used, because r->mr may change only while nothing is connected; the next recovery
 * opens it again. 0; an error of the connection.
 */
static int ask_again(struct soda_region *r, void *arg)
{
	struct recovery *o = arg;
	int timeout_ms = soda_calls_patience((int)soda_agent.settings.fault_timeout_ms), ret = 0;
	struct soda_wire_opened opened;
	struct soda_mr mr;

	if (r->going)
		return 0;
	if (soda_copies(r))
		r = soda_copy_to_read(r, o->link);
	if (!r || !r->refused || r->link != o->link)
		return 0;
	if (r->asked)
		ret = soda_calls_close_unknown(o->control, r, timeout_ms, o->why);
	if (ret)
		return ret;
	r->asked = true;
	ret = soda_calls_open_on(o->control, r, &mr, &opened, timeout_ms, o->why);
	if (soda_call_lost(ret))
		return ret;
	r->asked = !ret;
	if (ret) { /* maybe for another reason than before: soda_sync() says the last one */
		note_refused(r, ret);
		return 0;
	}
	soda_conn_unmap_region(&mr);
	return is_same(r, opened.bytes, opened.file_id);
}

static int ask_for_refused(struct soda_conn *control, void *arg, bool again, int timeout_ms,
			   struct soda_why *why)
{
	struct recovery o = { .link = arg, .control = control, .why = why };
	int ret = soda_regions_each(ask_again, &o);

	/* one was opened: this error breaks the connections, and a recovery follows */
	return ret > 0 ? -ECONNRESET : ret;
}

/* Ask for the objects that were refused, at a bounded pace. */
static void look_at_refused(struct soda_link *link)
{
	struct refusals *refusals = &all_refusals[link->index];
	struct soda_why why = { "" };
	uint64_t now = soda_now_ns();

	if (!refusals->any || (refusals->pause_ms && now < refusals->next_ns))
		return;
	if (refusals->pause_ms) {
		soda_regions_lock();
		soda_call_aside(&link->server, ask_for_refused, link, SODA_WATCH_WAIT_MS,
				(int)soda_agent.settings.fault_timeout_ms, &why);
		soda_regions_unlock();
	}
	refusals->pause_ms = refusals->pause_ms ? refusals->pause_ms * 2 : SODA_REFUSED_MIN_MS;
	if (refusals->pause_ms > SODA_REFUSED_MAX_MS)
		refusals->pause_ms = SODA_REFUSED_MAX_MS;
	refusals->next_ns = now + refusals->pause_ms * SODA_MS_NS;
}

void soda_recover_look(struct soda_link *link)
{
	look_at_undecided();
	look_at_refused(link);
}

void soda_recover_forget(uint32_t first, uint32_t n)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < undecided.n; i++)
		if (undecided.id[i] - first >= n)
			undecided.id[kept++] = undecided.id[i];
	undecided.n = kept;
}
