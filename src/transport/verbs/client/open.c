/* SPDX-License-Identifier: BSD-3-Clause */
/* Data connections on verbs, the side that connects: made and ended. See data.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "transport/api/memory.h"
#include "transport/verbs/client/data.h"

enum { SIGNAL_BYTES = 64 << 10, SIGNAL_BYTES_DEEP = 256 << 10 };

static size_t arena_bytes(const struct soda_vdata *c)
{
	return (size_t)c->slots * c->slot_bytes + SODA_WIRE_PAGE;
}

void soda_vdata_close(struct soda_conn *conn)
{
	struct soda_vdata *c = (struct soda_vdata *)conn;

	soda_vdata_keyed_close(c);
	soda_verbs_link_stop(&c->link);
	soda_verbs_unregister(c->mr);
	if (c->arena)
		munmap(c->arena, arena_bytes(c));
	soda_verbs_link_close(&c->link);
	soda_verbs_reach_put(c->reach);
	free(c);
}

/* Slots of the client's chunk size: what is fetched is a chunk, or a few at a time. */
static void choose_sizes(struct soda_vdata *c, const struct soda_conn_options *opt,
			 uint32_t chunk_bytes)
{
	bool fits = chunk_bytes >= SODA_WIRE_PAGE && chunk_bytes <= SODA_WIRE_MAX_DATA &&
		    chunk_bytes % SODA_WIRE_PAGE == 0;
	uint32_t most = SODA_VERBS_SLOTS;

	c->slot_bytes = fits ? chunk_bytes : SODA_DIRTY_UNIT;
	c->slots = 2;
	if (soda_vdata_two_sided(c)) {
		most = c->asked.credits < most ? c->asked.credits : most;
		c->slots = 1;
		if (c->slot_bytes > c->asked.message_bytes)
			c->slot_bytes = c->asked.message_bytes;
	}
	while (2 * c->slots <= most && c->slots < opt->depth &&
	       2 * c->slots * c->slot_bytes <= SODA_VERBS_ARENA)
		c->slots *= 2;
	c->signal_bytes = opt->deep ? SIGNAL_BYTES_DEEP : SIGNAL_BYTES;
	c->in_place = opt->in_place;
}

static int make_arena(struct soda_vdata *c, struct soda_why *why)
{
	bool written = soda_vdata_two_sided(c) && c->asked.answer == SODA_ANSWER_WRITE;
	int access = IBV_ACCESS_LOCAL_WRITE | (written ? IBV_ACCESS_REMOTE_WRITE : 0);

	c->arena = soda_verbs_map(c->link.id->verbs, arena_bytes(c));
	if (!c->arena) {
		soda_why_set(why, "%s: no memory for a connection", c->conn.peer);
		return -ENOMEM;
	}
	memset(soda_vdata_behind(c), 1, SODA_VERBS_MARKS);
	c->base = written ? 0
			  : (uintptr_t)c->arena; /* transport/verbs/memory.c: offsets, for peers */
	return soda_verbs_register(c->link.pd, c->arena, arena_bytes(c), access, &c->mr, why);
}

/* A daemon's memory is its device's, not this connection's. */
static int choose_domain(struct soda_vdata *c, struct soda_why *why)
{
	int ret = soda_memory_any() ? soda_verbs_reach_get(c->link.id->verbs, &c->reach) : 0;

	if (ret < 0)
		soda_why_set(why, "%s: no protection domain for a connection", c->conn.peer);
	else if (c->reach)
		c->link.pd = c->reach->pd;
	return ret;
}

static struct soda_vdata *make(struct soda_verbs_link *l, const char *rest,
			       const struct soda_conn_options *opt)
{
	uint32_t requests = 1;
	struct soda_vdata *c;

	while (requests < opt->depth)
		requests *= 2;
	c = calloc(1, sizeof(*c) + requests * sizeof(c->requests[0]));
	if (!c)
		return NULL;
	soda_conn_init(&c->conn, &soda_vdata_ops, opt, SODA_VERBS_PREFIX, rest);
	c->link = *l;
	c->mask = requests - 1;
	soda_spin_init(&c->spin, NULL);
	return c;
}

int soda_verbs_data_create(struct soda_verbs_link *l, const char *rest,
			   const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
			   uint64_t deadline_ns, struct soda_conn **conn_p,
			   struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	/* a request may be two work requests, or a SEND and its answer's receive */
	const struct soda_verbs_room room = { .sends = 2 * SODA_VERBS_SLOTS,
					      .receives = SODA_VERBS_SLOTS,
					      .others = SODA_VERBS_SLOTS };
	struct soda_vdata *c = make(l, rest, opt);
	int ret;

	if (!c) {
		soda_why_set(why, "verbs://%.100s: no memory for a connection", rest);
		soda_verbs_link_close(l);
		return -ENOMEM;
	}
	c->hello = *hello;
	ret = choose_domain(c, why);
	if (ret == 0)
		ret = soda_verbs_link_prepare(&c->link, &room, why);
	if (ret == 0)
		ret = soda_verbs_link_connect(&c->link, rest, hello, deadline_ns, welcome_p,
					      &c->asked, why);
	/* the peer sends nothing before it is asked */
	choose_sizes(c, opt, hello->chunk_bytes);
	if (ret == 0)
		ret = make_arena(c, why);
	if (ret < 0) {
		soda_vdata_close(&c->conn);
		return ret;
	}
	*conn_p = &c->conn;
	return 0;
}
