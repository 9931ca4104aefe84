/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool of servers with redundancy: what the copies of objects must hold.
 *
 * The simulation looks into the servers' memory: a copy that the host counts as current has, of
 * each chunk of which nothing is dirty or under way, what was stored there last; and a chunk may be
 * LOST only if since it was last seen there was a moment at which no server that lived had a
 * current copy of its slab.
 */
#include <string.h>

#include "net.h"
#include "pool/erasure.h"
#include "sealing/ledger.h"
#include "sealing/sealing.h"
#include "soda.h"
#include "world.h"

const struct sim_server *sim_server(enum sim_process p)
{
	static const struct sim_server *const list[SIM_SERVERS] = {
		&sim_server_node,  &sim_server2_node, &sim_server3_node, &sim_server4_node,
		&sim_server5_node, &sim_server6_node, &sim_server7_node
	};

	return list[p - SIM_SERVER];
}

/* The server has what the host has written there: it is the one that the host has met. */
static bool lives(const struct sim_places *places, unsigned k)
{
	struct sim_welcomed met = sim_model_met(places->copy[k].server);

	return !places->copy[k].refused &&
	       sim_server(places->copy[k].server)->knows(met.instance, met.client);
}

/* One copy; with erasure codes as many pieces as a chunk is read from. */
static bool enough_live(const struct sim_places *places)
{
	unsigned pieces = 0;

	for (unsigned k = 0; k < places->n; k++)
		if (places->copy[k].current && lives(places, k) && !sim_seal_is_changed(places, k))
			pieces |= 1u << places->copy[k].piece;
	return (unsigned)__builtin_popcount(pieces) >= places->pieces;
}

void sim_copies_look(void)
{
	for (int i = 0; plan.mirrored && i < SIM_OBJECTS; i++) {
		struct sim_object *o = &sim_objects[i];

		for (size_t at = 0; o->base && at < o->bytes; at += SIM_SLAB) {
			struct sim_places places = sim_host_places(o->base + at);

			if (places.n && !enough_live(&places))
				o->unsafe_ns[at / SIM_SLAB] = sim_now();
		}
	}
}

uint64_t sim_copies_unsafe_ns(const struct sim_object *o, size_t cell)
{
	return o->unsafe_ns[(size_t)(sim_cell_at(o, cell) - o->base) / SIM_SLAB];
}

const char *sim_copies_page(const struct sim_places *places, unsigned k)
{
	struct sim_welcomed met = sim_model_met(places->copy[k].server);

	if (!places->copy[k].current || !lives(places, k))
		return NULL;
	return sim_server(places->copy[k].server)
		->page(met.client, places->copy[k].region,
		       places->data_at + (places->offset & ~4095ull));
}

static void fail_plain(const struct sim_places *places, unsigned k, const char *who)
{
	sim_fail("PLAINTEXT: what %s has of region %u at %llu is nothing that the %s has sealed",
		 sim_net_name(places->copy[k].server), places->copy[k].region,
		 (unsigned long long)places->offset, who);
}

/*
 * The same as the agent got it: opened, where that seals.  No server has changed anything of the
 * chunk.  It stays until the next call.
 */
static const char *sent_page(const struct sim_places *places, unsigned k)
{
	const char *page = sim_copies_page(places, k);
	static char plain[SIM_BLOCK];

	if (!page || !places->agent_sealed)
		return page;
	if (!sim_ledger_open(page, (uint32_t)(places->offset / SIM_BLOCK), plain))
		fail_plain(places, k, "agent");
	return plain;
}

bool sim_copies_word(const struct sim_places *places, unsigned k, uint64_t *word_p)
{
	size_t at = places->offset & 4095;
	const char *page;

	if (!places->copy[k].current || !lives(places, k))
		return false;
	if (places->pieces > 1 && places->copy[k].piece != places->piece)
		return false;
	if (!sim_copies_page(places, k))
		sim_fail("BROKEN PROMISE: a copy counts as current, and %s has no region %u",
			 sim_net_name(places->copy[k].server), places->copy[k].region);
	if (sim_seal_was_chunk_changed(places) &&
	    (places->agent_sealed || sim_seal_is_changed(places, k)))
		return false;
	page = sent_page(places, k);
	if (!places->sealed)
		memcpy(word_p, page + at, sizeof(*word_p));
	else if (!sim_ledger_read(page, places->block, at, word_p))
		fail_plain(places, k, "host");
	return true;
}

/* The words of the stripe that the cell is a part of. false: one of them is not settled. */
static bool stripe_of(const struct sim_object *o, size_t cell, const struct sim_places *places,
		      uint64_t words[SIM_PIECES])
{
	const char *first = sim_cell_at(o, cell) - (size_t)places->piece * places->piece_bytes;

	for (unsigned p = 0; p < places->pieces; p++) {
		size_t at = (size_t)(first - o->base) + (size_t)p * places->piece_bytes;
		const struct sim_cell *c = &o->cells[at / 4096 * SIM_SLOTS + cell % SIM_SLOTS];

		words[p] = 0; /* behind the object's end */
		if (at >= o->bytes)
			continue;
		if (c->or_zero || c->discards)
			return false;
		words[p] = c->value;
	}
	return true;
}

/* The same of a sealed object, as the servers have them. false: one of them is nowhere. */
static bool sealed_stripe_of(const struct sim_places *places, uint64_t words[SIM_PIECES])
{
	uint32_t found = 0;

	for (unsigned k = 0; k < places->n; k++) {
		unsigned piece = places->copy[k].piece;
		const char *page;

		if (piece >= places->pieces || sim_seal_was_chunk_changed(places))
			continue;
		page = sent_page(places, k);
		if (!page)
			continue;
		memcpy(&words[piece], page + (places->offset & 4095), sizeof(words[piece]));
		found |= 1u << piece;
	}
	return found == (1u << places->pieces) - 1;
}

/* Copy k has parity of what was stored; of a sealed object, of what the servers have. */
static void check_parity(const struct sim_object *o, size_t cell, const struct sim_places *places,
			 unsigned k)
{
	uint64_t words[SIM_PIECES], has, should;
	const char *page;

	if (places->agent_sealed && sim_seal_was_chunk_changed(places))
		return;
	page = sent_page(places, k);
	if (!page)
		return;
	memcpy(&has, page + (places->offset & 4095), sizeof(has));
	if (!(places->sealed ? sealed_stripe_of(places, words) : stripe_of(o, cell, places, words)))
		return;
	soda_erasure_encode(places->pieces, places->copy[k].piece - places->pieces, sizeof(should),
			    words, &should);
	if (has != should)
		sim_fail("BROKEN PROMISE: the parity on %s counts as current, and is not that of "
			 "what was stored in the chunk of page %zu (%s)",
			 sim_net_name(places->copy[k].server), cell / SIM_SLOTS,
			 sim_host_chunk(sim_cell_at(o, cell)));
}

void sim_copies_check(const struct sim_object *o, size_t first, size_t n)
{
	sim_hold(true);
	for (size_t cell = first; plan.mirrored && cell < first + n; cell++) {
		const struct sim_cell *c = &o->cells[cell];
		struct sim_places places = sim_host_places(sim_cell_at(o, cell));
		uint64_t has;

		if (!places.settled || c->or_zero || c->discards)
			continue;
		for (unsigned k = 0; k < places.n; k++)
			if (places.pieces > 1 && places.copy[k].piece >= places.pieces)
				check_parity(o, cell, &places, k);
			else if (sim_copies_word(&places, k, &has) && has != c->value)
				sim_fail(
					"BROKEN PROMISE: the copy on %s counts as current, and has "
					"%llu of page %zu, of which %llu was stored (%s)",
					sim_net_name(places.copy[k].server),
					(unsigned long long)has, cell / SIM_SLOTS,
					(unsigned long long)c->value,
					sim_host_chunk(sim_cell_at(o, cell)));
	}
	sim_hold(false);
}

void sim_copies_check_some(void)
{
	enum { AT_ONCE = 48 };
	static unsigned turn;
	const struct sim_object *o = &sim_objects[turn++ % SIM_OBJECTS];
	size_t cells = o->base ? sim_cells(o) : 0, first;

	if (!cells)
		return;
	first = (size_t)turn * AT_ONCE * 7 % cells;
	sim_copies_check(o, first, cells - first < AT_ONCE ? cells - first : AT_ONCE);
}

/* The object that the program has there; NULL: none that it has been given, or has not let go. */
static struct sim_object *object_at(const char *addr)
{
	for (int i = 0; i < SIM_OBJECTS; i++)
		if (sim_objects[i].base &&
		    (size_t)(addr - sim_objects[i].base) < sim_objects[i].bytes)
			return &sim_objects[i];
	return NULL;
}

static void completed(const struct sim_object *o, const char *slab)
{
	size_t first = (size_t)(slab - o->base) / 4096 * SIM_SLOTS;
	size_t left = sim_cells(o) - first, all = SIM_SLAB / 4096 * SIM_SLOTS;

	sim_history.rebuilt++;
	sim_copies_check(o, first, left < all ? left : all);
}

static bool was_changed(const void *slab, unsigned k)
{
	struct sim_places places = sim_host_places(slab);

	return k < places.n &&
	       sim_seal_was_region_changed(places.copy[k].server, places.copy[k].region);
}

void sim_copies_changed(enum sim_copies_change what, const void *slab, unsigned k)
{
	static const char *const said[] = { "is given up", "is the last one", "is begun anew",
					    "is complete", "is given up again" };
	struct sim_object *o = object_at(slab);

	sim_note("copy %u of the slab at %p %s", k, slab, said[what]);
	sim_model_look_at_host();
	if (what == SIM_COPY_GIVEN_UP && !sim_fate_explains(sim_now()) && !was_changed(slab, k) &&
	    !(o && o->born_ns < sim_history.keys_lost_ns))
		sim_fail("BROKEN PROMISE: a copy is given up, and nothing was wrong");
	if (what == SIM_COPY_BEGUN) {
		sim_history.begun++;
		sim_history.rebuilt_on = sim_host_places(slab).copy[k].server;
		sim_wake(&sim_history.begun, SIM_FIBERS);
	}
	if (what == SIM_COPY_COMPLETE || what == SIM_COPY_BROKEN_OFF)
		sim_history.ended = sim_history.begun;
	if (o && what == SIM_COPY_COMPLETE)
		completed(o, slab);
}
