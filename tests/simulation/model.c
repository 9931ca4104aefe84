/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net.h"
#include "sealing/sealing.h"
#include "soda.h"
#include "trust/tenants.h"
#include "world.h"

struct sim_object sim_objects[SIM_OBJECTS];
struct sim_history sim_history;
static uint64_t values = 1000, stores; /* files have smaller ones to begin with */

static size_t page_number(size_t cell)
{
	return cell / SIM_SLOTS;
}

/*
 * The server or an agent refuses to make it again since it has met the host anew: for want of
 * memory, as others have got what it had, because another client has the file, or because the
 * server is about to end.
 */
bool sim_model_abandoned(const struct sim_object *o)
{
	bool roomy = plan.server.capacity >= 64u << 20 && !plan.server.quota && !plan.tenant_quota;
	int err = o->base ? sim_host_refused(o->base) : 0;

	if (!err)
		return false;
	if (err == -ESHUTDOWN && sim_history.drained)
		return true;
	if (err == -EACCES && sim_history.removed)
		return true;
	if (!sim_history.starved && roomy && !o->flags && plan.servers == 1)
		sim_fail("BROKEN PROMISE: an object was not opened again, and nobody lacked what "
			 "that takes");
	return true;
}

static bool any_abandoned(void)
{
	bool any = false;

	for (int i = 0; i < SIM_OBJECTS; i++)
		any = sim_model_abandoned(&sim_objects[i]) || any;
	return any;
}

void sim_model_excuse(const char *what, int err, uint64_t began_ns)
{
	if (!sim_fate_explains(began_ns) && !any_abandoned())
		sim_fail("WRONG CODE: %s: %s (%s), and nothing was wrong for %.3f ms", what,
			 soda_strerror(err), soda_last_error(),
			 (double)(sim_now() - sim_history.disturbed_ns) / 1e6);
}

/* The same of what a program does with its memory: where one server at a time is struck, nothing.
 */
static void excuse_access(const char *what, int err, uint64_t began_ns)
{
	if (plan.one_at_a_time)
		sim_fail("BROKEN PROMISE: %s: %s (%s), and only one server was ever struck at a "
			 "time",
			 what, soda_strerror(err), soda_last_error());
	sim_model_excuse(what, err, began_ns);
}

/*
 * What the host has been told, as of the last look.  What only a server had goes with it, or when
 * it forgets the host: whatever has not been seen since the host is through with that.  Nothing
 * goes with an agent.
 */
struct known {
	bool begun;
	struct sim_welcomed server; /* that has the host's objects, when the host was last up... */
	uint32_t up_restarts;	    /* ...and what it believed then */
	uint32_t restarts;	    /* when it was last looked at */
	uint64_t up_ns;		    /* when the host was last seen up */
	uint64_t forgotten_ns;
};
static struct known all_known[SIM_PROCESSES];

struct sim_welcomed sim_model_met(enum sim_process server)
{
	return all_known[server].server;
}

static bool same(const struct sim_welcomed *a, const struct sim_welcomed *b)
{
	return a->instance == b->instance && a->client == b->client;
}

static uint64_t calm_ns; /* when nothing was wrong for the last time */

/*
 * The next agent needs a token to be the host to a server with tenants.  Where servers and agent do
 * not both have tenants there are none; and they are good for the server's patience, while what
 * went wrong may last longer, and the server not know of it.
 */
static bool host_may_be_forgotten(enum sim_process p)
{
	if (sim_history.parted_ns && all_known[p].up_ns <= sim_history.parted_ns + SIM_S)
		return true;
	if (!plan.agent || (!sim_tenants_has(SIM_AGENT) && !sim_tenants_has(SIM_SERVER)))
		return false;
	return sim_tenants_has(SIM_AGENT) != sim_tenants_has(SIM_SERVER) ||
	       (sim_now() > calm_ns + plan.server.grace_ms * SIM_MS &&
		!sim_server(p)->has_token(all_known[p].server.client));
}

/*
 * A server may go on with a client that the host is no more: what that has is as lost as with the
 * server.
 */
static void look_for_forgotten(void)
{
	bool any = false;

	for (enum sim_process p = SIM_SERVER; p < SIM_SERVER + plan.servers; p++) {
		struct known *known = &all_known[p];

		if (sim_host_believes(p).restarts == known->up_restarts || !known->begun ||
		    !host_may_be_forgotten(p))
			continue;
		known->server = (struct sim_welcomed){ 0 };
		any = true;
	}
	if (any)
		sim_copies_look();
}

static void look_at_server(enum sim_process p)
{
	struct sim_belief b = sim_host_believes(p);
	struct sim_welcomed now = sim_net_welcomed(SIM_HOST, p);
	struct known *known = &all_known[p];
	bool restarted = b.restarts != known->up_restarts;

	if (b.restarts != known->restarts || b.restarts & 1)
		known->forgotten_ns = sim_now();
	if (restarted && known->begun &&
	    sim_server(p)->knows(known->server.instance, known->server.client))
		sim_fail("BROKEN PROMISE: the host takes the server for another one, and gives up "
			 "what only that has: it is the same, and knows the host");
	if (b.up && known->begun && !restarted && !same(&now, &known->server))
		sim_fail("BROKEN PROMISE: the server has forgotten the host's objects, and the "
			 "host goes on with it as if nothing had happened");
	known->restarts = b.restarts;
	if (b.up) {
		known->server = now;
		known->up_restarts = b.restarts;
		known->up_ns = sim_now();
		known->begun = true;
	}
}

/* Also at the beginning and the end of each operation. */
void sim_model_look_at_host(void)
{
	look_for_forgotten();
	for (unsigned i = 0; i < plan.servers; i++)
		look_at_server(SIM_SERVER + i);
	if (!sim_fate_explains(sim_now()))
		calm_ns = sim_now();
	sim_copies_look();
}

/* When something that only one server, or no current copy, had may last have gone, of any object.
 */
static uint64_t last_loss(void)
{
	uint64_t last = 0;

	for (unsigned i = 0; !plan.mirrored && i < plan.servers; i++)
		if (all_known[SIM_SERVER + i].forgotten_ns > last)
			last = all_known[SIM_SERVER + i].forgotten_ns;
	for (int i = 0; plan.mirrored && i < SIM_OBJECTS; i++)
		for (int s = 0; s < SIM_SLABS; s++)
			if (sim_objects[i].base && sim_objects[i].unsafe_ns[s] > last)
				last = sim_objects[i].unsafe_ns[s];
	return sim_history.keys_lost_ns > last ? sim_history.keys_lost_ns : last;
}

bool sim_model_lost(void)
{
	sim_model_look_at_host();
	return (sim_history.killed && !plan.mirrored) || last_loss();
}

/*
 * An agent that seals, and has its keys nowhere else, takes them with it: what was stored before.
 */
static bool keys_may_be_lost(const struct sim_object *o, size_t cell)
{
	return o->cells[cell].stored_ns < sim_history.keys_lost_ns && !(o->flags & SODA_READ_ONLY);
}

bool sim_model_spoiled(const struct sim_object *o)
{
	bool agents = plan.agent_settings.seal && o->flags & SODA_WRITABLE;

	return (agents && o->born_ns < sim_history.keys_lost_ns) || sim_host_spoiled(o->base);
}

static bool may_be_lost(const struct sim_object *o, size_t cell)
{
	struct sim_places places;

	if (keys_may_be_lost(o, cell))
		return true;
	if (plan.mirrored)
		return o->cells[cell].good_ns <= sim_copies_unsafe_ns(o, cell);
	places = sim_host_places(sim_cell_at(o, cell));
	return o->cells[cell].good_ns <= all_known[places.copy[0].server].forgotten_ns ||
	       sim_seal_was_chunk_changed(&places);
}

static size_t chunk_cells(void)
{
	return plan.chunk_bytes / 4096 * SIM_SLOTS;
}

/*
 * A chunk is lost as a whole: any of its cells may be the reason.  Where nobody has stored anything
 * there is nothing to lose.
 */
static bool chunk_may_be_lost(const struct sim_object *o, size_t cell)
{
	size_t first = cell / chunk_cells() * chunk_cells();
	bool may = false, stored = o->flags; /* a file has something in it from the start */

	for (size_t i = first; i < first + chunk_cells() && i < sim_cells(o); i++) {
		may = may || may_be_lost(o, i);
		stored = stored || o->cells[i].stored || o->cells[i].opened;
	}
	return may && stored;
}

/* A DISCARD may have made it good while it was touched. */
static bool chunk_was_discarded(const struct sim_object *o, size_t cell, uint64_t since)
{
	size_t first = cell / chunk_cells() * chunk_cells();
	bool was = false;

	for (size_t i = first; i < first + chunk_cells() && i < sim_cells(o); i++)
		was = was || o->cells[i].discards || o->cells[i].discarded > since;
	return was;
}

/* What an access began with. */
struct access {
	uint64_t began, since; /* in time, and in stores */
};

static struct access access_begins(void)
{
	return (struct access){ sim_now(), stores };
}

static void failed(const struct sim_object *o, size_t cell, const char *what, int err,
		   struct access a)
{
	sim_note("%s of page %zu of %p: %s", what, page_number(cell), (void *)o->base,
		 soda_strerror(err));
	if (err == -EIO) {
		if (!chunk_may_be_lost(o, cell) && !chunk_was_discarded(o, cell, a.since) &&
		    !sim_model_abandoned(o))
			sim_fail("BROKEN PROMISE: page %zu is lost, and no server has lost it: "
				 "%s",
				 page_number(cell), sim_host_chunk(sim_cell_at(o, cell)));
		return;
	}
	excuse_access(what, err, a.began);
}

void sim_model_load(struct sim_object *o, size_t cell)
{
	struct sim_cell *c = &o->cells[cell];
	const char *at = sim_cell_at(o, cell);
	struct access a = access_begins();
	uint64_t v = 0;
	int ret = sim_load(at, &v);

	sim_model_look_at_host();
	if (ret) {
		failed(o, cell, "a load", ret, a);
		return;
	}
	sim_note("loads %llu at page %zu.%zu of %p", (unsigned long long)v, page_number(cell),
		 cell % SIM_SLOTS, (void *)o->base);
	if (v != c->value && !(c->or_zero && !v))
		sim_fail("WRONG BYTES: page %zu holds %llu, and %llu was stored (%s)",
			 page_number(cell), (unsigned long long)v, (unsigned long long)c->value,
			 sim_host_chunk(at));
	c->good_ns = sim_now();
}

void sim_model_store(struct sim_object *o, size_t cell)
{
	struct sim_cell *c = &o->cells[cell];
	struct access a = access_begins();
	uint64_t v;
	int ret;

	c->opened = true;
	ret = sim_store(sim_cell_at(o, cell), &values);

	/* no point since the store itself */
	sim_model_look_at_host();
	if (ret) {
		failed(o, cell, "a store", ret, a);
		return;
	}
	v = values;
	sim_note("stores %llu at page %zu.%zu of %p", (unsigned long long)v, page_number(cell),
		 cell % SIM_SLOTS, (void *)o->base);
	c->value = v;
	c->stored = ++stores;
	c->stored_ns = sim_now();
	c->or_zero = c->discards;
	c->good_ns = sim_now();
}

static void discard_begins(struct sim_cell *c)
{
	c->or_zero = true;
	c->discards++;
	c->discarded = ++stores;
}

void sim_model_discard(struct sim_object *o, size_t first, size_t n)
{
	uint64_t before = stores, began = sim_now();
	char *base = sim_cell_at(o, first);
	int ret;

	for (size_t i = first; i < first + n; i++)
		discard_begins(&o->cells[i]);
	sim_note("DISCARD begins at pages %zu to %zu of %p", page_number(first),
		 page_number(first + n) - 1, (void *)o->base);
	ret = soda_advise(base, n / SIM_SLOTS * 4096, SODA_DISCARD);
	sim_note("DISCARD of pages %zu to %zu of %p: %d", page_number(first),
		 page_number(first + n) - 1, (void *)o->base, ret);
	if (ret && ret != -EACCES)
		excuse_access("DISCARD", ret, began);
	for (size_t i = first; i < first + n; i++) {
		struct sim_cell *c = &o->cells[i];

		c->discards--;
		c->discarded = ++stores;
		if (ret) /* zeros may have been written instead, and may be lost */
			c->stored = c->discarded;
		if (ret || c->stored > before) /* stored to meanwhile: one or the other */
			continue;
		c->value = c->synced = 0;
		c->or_zero = c->discards;
		c->good_ns = sim_now();
	}
}

/*
 * What the server has of the cell is not older than it was when the sync began.  False: nothing is
 * promised of it, as it is lost, or is to be zero.
 */
static bool check_promise(const struct sim_object *o, size_t cell, uint64_t was, uint64_t since)
{
	const struct sim_cell *c = &o->cells[cell];
	char *at = sim_cell_at(o, cell);
	struct sim_places places = sim_host_places(at);
	bool has_it = false, any = false;
	uint64_t has = 0;

	if (!was || c->or_zero || c->discarded > since || !places.n)
		return false;
	if (sim_host_may_be_lost(at) && chunk_may_be_lost(o, cell))
		return false;
	for (unsigned k = 0; k < places.n; k++) {
		if (!sim_copies_word(&places, k, &has))
			continue;
		any = true;
		has_it = has_it || (has >= was && has <= c->value);
	}
	if (any && !has_it)
		sim_fail("BROKEN PROMISE: soda_sync says that page %zu is on the server: %llu is, "
			 "and %llu was stored before (%s)",
			 page_number(cell), (unsigned long long)has, (unsigned long long)was,
			 sim_host_chunk(at));
	if (!any)
		return false;
	return true;
}

/*
 * The cell's server was there all the time since: not one that has just gone, or has just come.  Of
 * a copy that was rebuilt meanwhile resident chunks are dirty again.
 */
static bool was_there(const struct sim_object *o, size_t cell, const struct known *before,
		      unsigned rebuilt)
{
	struct sim_places places = sim_host_places(sim_cell_at(o, cell));

	if (plan.mirrored && places.n > places.pieces)
		return rebuilt == sim_history.rebuilt;
	for (unsigned i = 0; i < places.n; i++) { /* several: of a stripe without parity */
		enum sim_process p = places.copy[i].server;
		const struct sim_welcomed *met = &before[p].server;

		if (!same(met, &all_known[p].server) ||
		    !sim_server(p)->knows(met->instance, met->client))
			return false;
	}
	return places.n;
}

static size_t slab_of(const struct sim_object *o, size_t cell)
{
	return (size_t)(sim_cell_at(o, cell) - o->base) / SIM_SLAB;
}

/*
 * -EIO is said once for what a slab has lost, and to all who began before.  One that is abandoned
 * cannot be written at all, and any soda_sync at the time may say so.
 */
static void check_refusal(struct sim_object *o, size_t first, size_t n, int err, uint64_t began)
{
	bool may_say = sim_seal_was_changed() || sim_model_spoiled(o);

	for (size_t s = slab_of(o, first); err == -EIO && s <= slab_of(o, first + n - 1); s++) {
		may_say = may_say || o->told_ns[s] <= last_loss() || began <= o->told_ns[s];
		o->told_ns[s] = sim_now();
	}
	if (err != -EIO || !may_say)
		excuse_access("soda_sync", err, began);
}

int sim_model_sync(struct sim_object *o, size_t first, size_t n)
{
	uint64_t *was = malloc(n * sizeof(*was));
	uint64_t began = sim_now(), since = ++stores;
	struct known before[SIM_PROCESSES];
	unsigned rebuilt = sim_history.rebuilt;
	int ret;

	sim_model_look_at_host();
	memcpy(before, all_known, sizeof(before));
	for (size_t i = 0; i < n; i++) /* 0: it may be zero for all that is known */
		was[i] = o->cells[first + i].or_zero ? 0 : o->cells[first + i].value;
	sim_note("soda_sync begins of pages %zu to %zu of %p", page_number(first),
		 page_number(first + n) - 1, (void *)o->base);
	ret = soda_sync(sim_cell_at(o, first), n / SIM_SLOTS * 4096);
	sim_note("soda_sync of pages %zu to %zu of %p: %d", page_number(first),
		 page_number(first + n) - 1, (void *)o->base, ret);
	sim_model_look_at_host();
	if (ret)
		check_refusal(o, first, n, ret, began);
	sim_hold(true); /* so that no server goes while it is looked at */
	for (size_t i = 0; !ret && i < n; i++)
		if (was_there(o, first + i, before, rebuilt) &&
		    check_promise(o, first + i, was[i], since)) {
			o->cells[first + i].synced = was[i];
			o->cells[first + i].synced_ns = began;
		}
	sim_copies_check(o, first, ret ? 0 : n);
	sim_hold(false);
	free(was);
	return ret;
}

void sim_model_look(void)
{
	for (int k = 0; k < SIM_OBJECTS; k++) {
		struct sim_object *o = &sim_objects[k];

		for (size_t page = 0; o->base && page < o->bytes / 4096; page++) {
			const uint64_t *words = sim_host_page(o->base + page * 4096);

			for (int i = 1; words && i < 511; i++)
				if (words[i])
					sim_fail("WRONG BYTES: word %d of page %zu is %llu: nobody "
						 "has stored there",
						 i, page, (unsigned long long)words[i]);
		}
	}
}
