/* SPDX-License-Identifier: BSD-3-Clause */
/* Servers that change what they have of sealed objects. */
#include <string.h>

#include "../net.h"
#include "../world.h"
#include "sealing.h"

enum { PAGE = 4096, CHANGES = 64 };

/* What was done once, and where. */
static struct change {
	char *addr; /* the page's, in the host; NULL: its object is gone */
	enum sim_process server;
	uint16_t region;
	uint64_t offset;
	char is[PAGE];
} changes[CHANGES];
static unsigned changes_n;

/* An earlier content of a block, for a server that brings it back. */
static struct {
	char *page; /* in the server's memory, which it may have given away since; NULL: none */
	char was[PAGE];
} earlier;

static char *page_at(const struct sim_places *places, unsigned k)
{
	return (char *)(uintptr_t)sim_copies_page(places, k);
}

/* Something was written there, and not by this file. */
static bool is_worth_it(const struct sim_places *places, unsigned k)
{
	static const char zeros[PAGE];
	bool sealed = places->sealed || places->agent_sealed;
	const char *page = sealed ? page_at(places, k) : NULL;

	return page && memcmp(page, zeros, PAGE) && !sim_seal_is_changed(places, k);
}

/* A page of an object, and a copy of it. */
static char *choose(enum sim_process p, struct sim_places *places, unsigned *k_p)
{
	for (int tries = 0; tries < 60; tries++) {
		struct sim_object *o = &sim_objects[sim_below(SIM_OBJECTS)];
		char *addr;

		if (!o->base || o->flags) /* what a commit writes of a file is to stay whole */
			continue;
		addr = o->base + sim_below(o->bytes / PAGE) * PAGE;
		*places = sim_host_places(addr);
		*k_p = places->n ? (unsigned)sim_below(places->n) : 0;
		if (*k_p < places->n && (p == SIM_WORLD || places->copy[*k_p].server == p) &&
		    is_worth_it(places, *k_p))
			return addr;
	}
	return NULL;
}

static const char *change(char *page, const char *neighbour)
{
	static const char *const said[] = { "a bit", "the end", "zeros", "another block",
					    "an earlier version" };
	uint64_t how = sim_below(5);

	if ((how == 4 && earlier.page != page) || (how == 3 && !neighbour))
		how = sim_below(3);
	if (how == 0)
		page[sim_below(PAGE)] ^= (char)(1 << sim_below(8));
	else if (how == 1)
		memset(page + PAGE / 2, 0, PAGE / 2);
	else if (how == 2)
		memset(page, 0, PAGE);
	else
		memcpy(page, how == 3 ? neighbour : earlier.was, PAGE);
	return said[how];
}

/* The block before it. */
static const char *neighbour_of(const struct sim_places *places, const char *page)
{
	return places->offset >= PAGE ? page - PAGE : NULL;
}

void sim_seal_change_one(enum sim_process p)
{
	struct change *c = &changes[changes_n];
	struct sim_places places;
	const char *what;
	char *page, before[PAGE];
	unsigned k;

	if (changes_n == CHANGES)
		return;
	sim_hold(true);
	c->addr = choose(p, &places, &k);
	page = c->addr ? page_at(&places, k) : NULL;
	if (page) {
		memcpy(before, page, PAGE);
		what = change(page, neighbour_of(&places, page));
		c->server = places.copy[k].server;
		c->region = places.copy[k].region;
		c->offset = places.offset;
		memcpy(c->is, page, PAGE);
		memcpy(earlier.was, before, PAGE);
		earlier.page = page;
		changes_n += !!memcmp(before, page, PAGE);
		sim_note("FAULT %s changes region %u at %llu: %s", sim_net_name(c->server),
			 c->region, (unsigned long long)c->offset, what);
	}
	sim_hold(false);
}

static bool is_copy(const struct change *c, const struct sim_places *places, unsigned k)
{
	return c->addr && c->server == places->copy[k].server &&
	       c->region == places->copy[k].region;
}

bool sim_seal_is_changed(const struct sim_places *places, unsigned k)
{
	for (unsigned i = 0; i < changes_n; i++) {
		struct sim_places there = *places;
		const char *page;

		if (!is_copy(&changes[i], places, k))
			continue;
		there.offset = changes[i].offset;
		page = page_at(&there, k);
		if (page && !memcmp(page, changes[i].is, PAGE))
			return true;
	}
	return false;
}

bool sim_seal_any_is_changed(void)
{
	for (unsigned i = 0; i < changes_n; i++) {
		struct sim_places places;

		if (!changes[i].addr)
			continue;
		places = sim_host_places(changes[i].addr);
		for (unsigned k = 0; k < places.n; k++)
			if (is_copy(&changes[i], &places, k) && sim_seal_is_changed(&places, k))
				return true;
	}
	return false;
}

bool sim_seal_was_chunk_changed(const struct sim_places *places)
{
	for (unsigned i = 0; i < changes_n; i++)
		for (unsigned k = 0; k < places->n; k++)
			if (is_copy(&changes[i], places, k) &&
			    changes[i].offset / places->piece_bytes ==
				    places->offset / places->piece_bytes)
				return true;
	return false;
}

bool sim_seal_was_region_changed(enum sim_process server, uint16_t region)
{
	for (unsigned i = 0; i < changes_n; i++)
		if (changes[i].addr && changes[i].server == server && changes[i].region == region)
			return true;
	return false;
}

bool sim_seal_was_changed(void)
{
	return changes_n;
}

void sim_seal_gone(const char *base, size_t bytes)
{
	for (unsigned i = 0; i < changes_n; i++)
		if ((size_t)(changes[i].addr - base) < bytes)
			changes[i].addr = NULL;
}
