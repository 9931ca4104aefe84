/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pool/freeze.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/failure.h"
#include "base/log.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/link.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/stripe.h"
#include "host_agent/object/unacked.h"

static uint64_t bytes_of(const struct soda_region *r, uint32_t first, uint32_t last)
{
	return ((uint64_t)(last - first) << soda_agent.chunk_shift) +
	       soda_region_chunk_bytes(r, last);
}

static int protect(const struct soda_region *r, uint32_t first, uint32_t last, bool stores)
{
	int prot = stores ? PROT_READ | PROT_WRITE : PROT_READ;

	if (r->flags & SODA_READ_ONLY || r->sealed)
		return 0;
	return mprotect(soda_chunk_address(first), bytes_of(r, first, last), prot) ? -errno : 0;
}

static struct soda_wire_advise message(const struct soda_region *r, uint32_t first, uint32_t last,
				       int advice)
{
	return (struct soda_wire_advise){ .region_id = r->id,
					  .advice = (uint16_t)advice,
					  .offset = soda_stripe_offset_of(r, first),
					  .bytes = bytes_of(r, first, last) };
}

/* A change of r->mr, made while no fetch can use it (soda_channels_exclusive). */
struct change {
	struct soda_region *r;
	struct soda_static_map *map;
	uint64_t offset, bytes;
	bool keyed; /* take_maps: only maps that are read by a key */
};

/* Add c->map to the object's. */
static void put_map(void *arg)
{
	struct change *c = arg;

	c->map->next = c->r->mr.statics;
	c->r->mr.statics = c->map;
}

/* Move the object's maps that overlap the range to c->map. */
static void take_maps(void *arg)
{
	struct change *c = arg;
	struct soda_static_map **link = &c->r->mr.statics;

	while (*link) {
		struct soda_static_map *map = *link;

		if (map->offset >= c->offset + c->bytes || c->offset >= map->offset + map->bytes ||
		    (c->keyed && map->memory)) {
			link = &map->next;
			continue;
		}
		*link = map->next;
		map->next = c->map;
		c->map = map;
	}
}

static void exclusively(void (*fn)(void *arg), struct change *c)
{
	sigset_t saved;

	soda_signals_block(&saved);
	soda_channels_exclusive(c->r->link, fn, c);
	soda_signals_restore(&saved);
}

/* Whether f is frozen and overlaps the range. */
static bool overlaps(const struct soda_frozen *f, uint32_t first, uint32_t last)
{
	return (f->state == SODA_FROZEN || f->state == SODA_THAWING) && first <= f->last &&
	       f->first <= last;
}

bool soda_freeze_covers(const struct soda_region *r, uint32_t first, uint32_t last)
{
	for (const struct soda_frozen *f = r->frozen; f; f = f->next)
		if (overlaps(f, first, last))
			return true;
	return false;
}

static int across_edge(struct soda_why *why)
{
	snprintf(why->text, sizeof(why->text),
		 "a part of the range is in the static cache together with what lies outside of it:"
		 " advise for that whole range");
	return -EBUSY;
}

/* 1: all of the range is frozen already; 0: nothing is; -EBUSY: a part is. */
static int before_freezing(const struct soda_region *r, uint32_t first, uint32_t last,
			   struct soda_why *why)
{
	for (const struct soda_frozen *f = r->frozen; f; f = f->next) {
		if (!overlaps(f, first, last))
			continue;
		return f->first <= first && last <= f->last ? 1 : across_edge(why);
	}
	return 0;
}

/*
 * Forbid stores to the range, write it back, ask the agent to load it.  *asked_p: the agent has
 * been asked, when soda_server_breaks() was *breaks_p.
 */
static int load(struct soda_region *r, uint32_t first, uint32_t last,
		struct soda_static_map **map_p, bool *asked_p, uint32_t *breaks_p,
		struct soda_why *why)
{
	struct soda_wire_advise m = message(r, first, last, SODA_STATIC_CACHE);
	int ret = protect(r, first, last, false);
	uint32_t losses;

	if (ret) {
		snprintf(why->text, sizeof(why->text), "cannot protect the range: %s",
			 soda_strerror(ret));
		return ret;
	}
	do {
		losses = soda_unacked_losses();
		ret = soda_sync_range(r, first, last - first + 1, why);
		if (ret && !why->text[0])
			snprintf(why->text, sizeof(why->text),
				 "dirty data could not be written back: %s", soda_strerror(ret));
		if (ret)
			break;
		*asked_p = true;
		ret = soda_calls_freeze_region(r, &m, losses, map_p, breaks_p, why);
	} while (ret == -EAGAIN);
	return ret;
}

/*
 * The agent was asked to freeze the range, and we got no answer, or one that we cannot use: tell
 * the agent to thaw it.  True: the agent has answered.
 */
static bool undo(struct soda_region *r, uint32_t first, uint32_t last, int err)
{
	struct soda_wire_advise m = message(r, first, last, SODA_NORMAL);
	struct soda_static_map *ignored = NULL;
	struct soda_why why = { "" };

	return !soda_call_lost(err) &&
	       !soda_call_lost(soda_calls_advise_region(r, &m, &ignored, &why));
}

/*
 * Let fetches use the new map.  Not those of an object in the node's store: an agent that has no
 * part in that store has loaded the range beside it, and answers READs from there.
 */
static void publish(struct change *c)
{
	bool keyed = !c->map->memory;

	if (c->r->shared) {
		soda_conn_unmap_static(c->map);
		return;
	}
	exclusively(put_map, c);
	if (keyed)
		soda_link_want_keyed(c->r->link);
}

static void set_state(struct soda_frozen *f, enum soda_frozen_state state)
{
	soda_regions_lock();
	f->state = state;
	soda_regions_unlock();
}

/* Free the records of ranges that are THAWED. */
static void forget_thawed(struct soda_region *r)
{
	struct soda_frozen **link = &r->frozen;

	soda_regions_lock();
	while (*link) {
		struct soda_frozen *f = *link;

		if (f->state != SODA_THAWED) {
			link = &f->next;
			continue;
		}
		*link = f->next;
		free(f);
	}
	soda_regions_unlock();
}

static void unmap_all(struct soda_static_map *map)
{
	struct soda_static_map *next;

	for (; map; map = next) {
		next = map->next;
		soda_conn_unmap_static(map);
	}
}

/* Let fetches use no map that overlaps the range any more. */
static void drop_maps(struct soda_region *r, uint32_t first, uint32_t last)
{
	struct change c = { .r = r,
			    .offset = soda_stripe_offset_of(r, first),
			    .bytes = bytes_of(r, first, last) };

	exclusively(take_maps, &c);
	unmap_all(c.map);
}

/*
 * The agent has loaded the range: it is FROZEN from now on.  False: connections were broken since
 * the agent was asked.  The keeper, who saw the range FREEZING, has told the agent to thaw it then;
 * and if the server has lost its content, the keeper has made dirty what is resident of it.
 */
static bool set_frozen(struct soda_region *r, struct soda_frozen *f, struct soda_static_map *map,
		       uint32_t breaks)
{
	struct change c = { .r = r, .map = map };
	bool same;

	if (map)
		publish(&c);
	soda_regions_lock();
	same = soda_server_breaks(&r->link->server) == breaks;
	if (same) {
		f->state = SODA_FROZEN;
		soda_frozen_mark(f, true);
	}
	soda_regions_unlock();
	if (!same)
		drop_maps(r, f->first, f->last);
	return same;
}

static int freeze(struct soda_region *r, uint32_t first, uint32_t last, struct soda_why *why)
{
	int ret = before_freezing(r, first, last, why);
	struct soda_static_map *map;
	struct soda_frozen *f;
	bool asked = false;
	uint32_t breaks = 0;

	if (ret)
		return ret < 0 ? ret : 0;
	f = soda_frozen_reserve() ? NULL : malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	soda_regions_lock();
	*f = (struct soda_frozen){ .next = r->frozen, .first = first, .last = last };
	r->frozen = f;
	soda_regions_unlock();
	do {
		map = NULL;
		ret = load(r, first, last, &map, &asked, &breaks, why);
	} while (!ret && !set_frozen(r, f, map, breaks));
	if (ret) {
		set_state(f, asked && !undo(r, first, last, ret) ? SODA_DOUBTFUL : SODA_THAWED);
		protect(r, first, last, true);
		return ret;
	}
	f->fresh = true;
	soda_link_await_keyed(r->link);
	return 0;
}

/* Wait until chunks that are being read by a key have settled. */
static void settle(uint32_t first, uint32_t last)
{
	uint64_t deadline = soda_now_ns() + soda_agent.settings.fault_timeout_ms * 1000000ull;
	sigset_t saved;

	soda_signals_block(&saved);
	for (uint32_t id = first; id <= last; id++)
		soda_fetch_join(soda_thread_self(), id, deadline);
	soda_signals_restore(&saved);
}

/* The agent is about to end its keys for the range: read nothing by them any more. */
static void retire_keys(struct soda_region *r, uint32_t first, uint32_t last)
{
	struct change c = { .r = r,
			    .offset = soda_stripe_offset_of(r, first),
			    .bytes = bytes_of(r, first, last),
			    .keyed = true };

	exclusively(take_maps, &c);
	if (c.map)
		settle(first, last);
	unmap_all(c.map);
}

/*
 * The agent has thawed the frozen ranges inside the range: allow stores to them, free their
 * records.
 */
static void thaw(struct soda_region *r, uint32_t first, uint32_t last)
{
	struct soda_frozen **link = &r->frozen;

	drop_maps(r, first, last);
	soda_regions_lock();
	while (*link) {
		struct soda_frozen *f = *link;

		if (!overlaps(f, first, last)) {
			link = &f->next;
			continue;
		}
		*link = f->next;
		soda_frozen_mark(f, false);
		if (protect(r, f->first, f->last, true))
			soda_log_warning("stores to a range that was in the static cache stay"
					 " forbidden: %s",
					 soda_strerror(errno));
		free(f);
	}
	soda_regions_unlock();
}

/*
 * ending: the agent is about to be told to thaw the frozen ranges inside the range, which are
 * THAWING meanwhile, so that a reconnection does not freeze them again.  Else: it could not be
 * told, and they stay FROZEN.
 */
static void set_ending(struct soda_region *r, uint32_t first, uint32_t last, bool ending)
{
	soda_regions_lock();
	for (struct soda_frozen *f = r->frozen; f; f = f->next)
		if (overlaps(f, first, last))
			f->state = ending ? SODA_THAWING : SODA_FROZEN;
	soda_regions_unlock();
}

static int advise_slab(struct soda_region *r, uint32_t first, uint32_t last, int advice,
		       struct soda_why *why)
{
	struct soda_wire_advise m = message(r, first, last, advice);
	struct soda_static_map *map = NULL;
	int ret;

	forget_thawed(r);
	if (advice == SODA_STATIC_CACHE)
		return freeze(r, first, last, why);
	for (const struct soda_frozen *f = r->frozen; f; f = f->next)
		if (overlaps(f, first, last) && (f->first < first || f->last > last))
			return across_edge(why);
	set_ending(r, first, last, true);
	retire_keys(r, first, last);
	ret = soda_calls_advise_region(r, &m, &map, why);
	if (map)
		soda_conn_unmap_static(map);
	if (ret)
		set_ending(r, first, last, false);
	else
		thaw(r, first, last);
	return ret;
}

/* Slabs with copies */

/* Of one copy: a region of its own to the agent. */
static int advise_copy(const struct soda_region *r, struct soda_region *copy, uint32_t first,
		       uint32_t last, int advice, struct soda_why *why)
{
	struct soda_wire_advise m = { .region_id = copy->id,
				      .advice = (uint16_t)advice,
				      .offset = soda_stripe_offset_of(r, first) };
	struct soda_static_map *map = NULL;
	int ret;

	m.bytes = soda_stripe_offset_of(r, last) + soda_stripe_bytes_of(r, last) - m.offset;
	ret = soda_calls_advise_region(copy, &m, &map, why);
	if (map) /* which of the copies is read changes: READs go to the agent */
		soda_conn_unmap_static(map);
	return ret;
}

/*
 * Nothing is frozen here, and so STATIC_CACHE is for what cannot be stored to anyway.  A server
 * that is away is not told, nor told later: its copy may be another one by then.
 */
static int advise_copies(struct soda_region *r, uint32_t first, uint32_t last, int advice,
			 struct soda_why *why)
{
	uint64_t copies = soda_copies(r);
	int ret = -ENOTCONN, err;
	bool told = false;

	if (advice == SODA_STATIC_CACHE && !(r->flags & SODA_READ_ONLY)) {
		snprintf(why->text, sizeof(why->text),
			 "an object with redundancy, or that has moved to another server, is not "
			 "kept in the static cache: its copies have to be written");
		return -ENOTSUP;
	}
	for (uint32_t k = 0; k < SODA_COPY_PLACES; k++) {
		struct soda_region *copy = atomic_load(&r->copy[k]);

		if (!copy || !soda_copy_is_current(copies, k))
			continue;
		err = advise_copy(r, copy, first, last, advice, why);
		told = told || !err;
		ret = err;
	}
	return told ? 0 : ret;
}

/*
 * Undo what a call has frozen that fails elsewhere: as if it had failed here.  Also where the agent
 * cannot be told the program may store again, and none of its copies counts.
 */
static void undo_frozen(struct soda_region *r, struct soda_frozen *f)
{
	retire_keys(r, f->first, f->last);
	soda_regions_lock();
	soda_frozen_mark(f, false);
	f->state = SODA_FREEZING; /* a reconnection meanwhile tells the agent, too */
	soda_regions_unlock();
	drop_maps(r, f->first, f->last);
	set_state(f, undo(r, f->first, f->last, 0) ? SODA_THAWED : SODA_DOUBTFUL);
	protect(r, f->first, f->last, true);
}

/* The call is over for this slab: what it has frozen stays so, or is thawed. */
static void decide(struct soda_region *r, bool stays)
{
	struct soda_frozen *f = r->frozen;

	while (f && !f->fresh)
		f = f->next;
	if (!f)
		return;
	f->fresh = false; /* there is one: a call freezes a slab's part once */
	if (!stays)
		undo_frozen(r, f);
}

int soda_freeze_advise(struct soda_region *r, uint32_t first, uint32_t last, int advice,
		       struct soda_why *why)
{
	struct soda_region *at;
	int ret = 0;

	for (at = r; !ret && at && at->first <= last; at = at->rest) {
		uint32_t end = at->first + at->chunks - 1;
		uint32_t from = first < at->first ? at->first : first, to = last < end ? last : end;

		ret = soda_copies(at) ? advise_copies(at, from, to, advice, why)
				      : advise_slab(at, from, to, advice, why);
	}
	for (struct soda_region *done = r; done != at; done = done->rest)
		decide(done, !ret);
	return ret;
}

/* Ask the agent to freeze a range again. If that fails its chunks are fetched like all others. */
static void freeze_again(struct soda_conn *control, struct soda_region *r,
			 const struct soda_frozen *f)
{
	struct soda_wire_advise m = message(r, f->first, f->last, SODA_STATIC_CACHE);
	struct change c = { .r = r };
	struct soda_why why = { "" };
	int ret = soda_conn_advise(control, &m, &c.map, (int)soda_agent.settings.fault_timeout_ms,
				   &why);

	if (ret)
		soda_log_warning("%s: not in the static cache any more: %s",
				 r->name[0] ? r->name : "an object",
				 why.text[0] ? why.text : soda_strerror(ret));
	else if (c.map && soda_mr_direct(&r->mr, m.offset, SODA_WIRE_PAGE))
		soda_conn_unmap_static(c.map);
	else if (c.map)
		publish(&c);
}

/*
 * The agent may have frozen the range by a request of an older connection whose answer we did not
 * get, and would refuse WRITEs to it: tell the agent to thaw it.
 */
static int tell_otherwise(struct soda_conn *control, struct soda_region *r, struct soda_frozen *f,
			  struct soda_why *why)
{
	struct soda_wire_advise m = message(r, f->first, f->last, SODA_NORMAL);
	struct soda_static_map *ignored = NULL;
	int ret = soda_conn_advise(control, &m, &ignored, (int)soda_agent.settings.fault_timeout_ms,
				   why);

	if (soda_call_lost(ret))
		return ret;
	if (f->state == SODA_DOUBTFUL)
		f->state = SODA_THAWED;
	return 0;
}

int soda_freeze_renew(struct soda_conn *control, struct soda_region *r, struct soda_why *why)
{
	int ret = 0;

	for (struct soda_frozen *f = r->frozen; f && !ret; f = f->next) {
		if (f->state == SODA_FROZEN)
			freeze_again(control, r, f);
		else if (f->state == SODA_FREEZING || f->state == SODA_DOUBTFUL)
			ret = tell_otherwise(control, r, f, why);
	}
	return ret;
}

void soda_freeze_lose(struct soda_region *r)
{
	for (struct soda_frozen *f = r->frozen; f; f = f->next) {
		if (f->state == SODA_FROZEN || f->state == SODA_THAWING) {
			soda_frozen_mark(f, false);
			protect(r, f->first, f->last, true);
		}
		if (f->state != SODA_FREEZING)
			f->state = SODA_THAWED;
	}
}

void soda_freeze_end(struct soda_region *r)
{
	soda_freeze_lose(r);
	forget_thawed(r);
}
