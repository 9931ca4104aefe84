/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A gather by conveyors: each PE reads entries of a table that is spread over all of them. Requests
 * travel by one conveyor and replies by another one; a reply that finds no room leaves its request
 * where it is (convey_unpull).  As written for any library of conveyors, but for the include.
 *   soda msg run -n 4 -- gather [READS [ENTRIES]]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <soda_convey.h>

struct gather {
	int64_t pe, pes;
	uint64_t reads, entries; /* of each PE */
	uint64_t *table, *found;
	convey_t *requests, *replies;
};

struct request {
	uint64_t read, place;
};

struct reply {
	uint64_t read, value;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint64_t entry_of(const struct gather *g, uint64_t read)
{
	return mix(mix((uint64_t)g->pe + 77) + read) % (g->entries * (uint64_t)g->pes);
}

/* Requests from number *at_p on, as long as there is room. */
static int ask(struct gather *g, uint64_t *at_p)
{
	int ret = convey_OK;

	while (*at_p < g->reads && ret == convey_OK) {
		uint64_t entry = entry_of(g, *at_p);
		struct request r = { *at_p, entry / (uint64_t)g->pes };

		ret = convey_push(g->requests, &r, (int64_t)(entry % (uint64_t)g->pes));
		*at_p += ret == convey_OK;
	}
	return ret;
}

static int answer(struct gather *g)
{
	struct request *r;
	int64_t from;
	int ret = convey_OK;

	while (ret == convey_OK && (r = convey_apull(g->requests, &from)) != NULL) {
		struct reply reply = { r->read, g->table[r->place] };

		ret = convey_push(g->replies, &reply, from);
		if (ret == convey_FAIL)
			convey_unpull(g->requests);
	}
	return ret;
}

static int take(struct gather *g)
{
	struct reply reply;
	int ret;

	while ((ret = convey_pull(g->replies, &reply, NULL)) == convey_OK)
		g->found[reply.read] = reply.value;
	return ret;
}

static int gather(struct gather *g)
{
	uint64_t at = 0;
	int more, ret;

	ret = convey_begin(g->requests, sizeof(struct request), 0);
	if (ret >= 0)
		ret = convey_begin(g->replies, sizeof(struct reply), 0);
	while (ret >= 0) {
		more = convey_advance(g->requests, at == g->reads);
		if (more < 0)
			return more;
		ret = convey_advance(g->replies, more == convey_DONE);
		if (ret <= 0)
			return ret;
		if (more != convey_DONE)
			ret = ask(g, &at);
		if (ret >= 0 && more != convey_DONE)
			ret = answer(g);
		if (ret >= 0)
			ret = take(g);
	}
	return ret;
}

/* The entries of a table are known everywhere, so what was read can be looked at. */
static int64_t wrong(const struct gather *g)
{
	int64_t n = 0;

	for (uint64_t i = 0; i < g->reads; i++)
		n += g->found[i] != mix(entry_of(g, i));
	return n;
}

static int run(struct gather *g)
{
	int ret = gather(g);

	if (ret < 0) {
		fprintf(stderr, "gather: %s\n", convey_error_string(g->requests, ret));
		return 1;
	}
	convey_reset(g->requests);
	convey_reset(g->replies);
	if (wrong(g)) {
		fprintf(stderr, "gather: PE %" PRId64 " has read other entries\n", g->pe);
		return 1;
	}
	if (!g->pe)
		printf("gather: %" PRId64 " PEs, %" PRIu64 " reads: as computed by one process\n",
		       g->pes, g->reads * (uint64_t)g->pes);
	return 0;
}

int main(int argc, char **argv)
{
	struct gather g = { .pe = soda_convey_pe(), .pes = soda_convey_pes() };
	int ret;

	g.reads = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
	g.entries = argc > 2 ? strtoull(argv[2], NULL, 10) : 1 << 16;
	if (g.pe < 0 || g.pes < 1 || argc > 3 || !g.entries) {
		fputs("Usage: soda msg run -n PES -- gather [READS [ENTRIES]], of each PE\n",
		      stderr);
		return 2;
	}
	g.table = malloc(g.entries * sizeof(*g.table));
	g.found = calloc(g.reads + 1, sizeof(*g.found));
	g.requests = convey_new(SIZE_MAX, 0, NULL, 0);
	g.replies = convey_new(SIZE_MAX, 0, NULL, 0);
	if (!g.table || !g.found || !g.requests || !g.replies)
		return 1;
	for (uint64_t i = 0; i < g.entries; i++)
		g.table[i] = mix(i * (uint64_t)g.pes + (uint64_t)g.pe);
	ret = run(&g);
	if (!ret && (convey_free(g.requests) != convey_OK || convey_free(g.replies) != convey_OK))
		ret = 1;
	free(g.table);
	free(g.found);
	return ret;
}
