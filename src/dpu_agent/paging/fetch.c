/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/fetch.h"

#include <errno.h>

#include "dpu_agent/base/counters.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/paging/forward.h"

/* The ends of the transfers are told to the thread that waits for them. */
struct awaited {
	struct soda_transfer transfer[SODA_CACHE_RUNS_MAX];
	unsigned ended;
	int status; /* of the first that failed */
};

static void ended(struct soda_transfer *t, int status)
{
	struct awaited *a = t->arg;

	a->ended++;
	if (status && !a->status)
		a->status = status;
}

/*
 * One of the session's channels for this; two, so that a fetch is under way while
 * another one is taken in.
 */
static struct soda_channel *choose(struct soda_session *s)
{
	struct soda_channel *c = &s->channels[s->channels_n - SODA_PREFETCH_WORKERS];

	for (int i = 0; i < SODA_PREFETCH_WORKERS; i++)
		if (pthread_mutex_trylock(&c[i].lock) == 0)
			return &c[i];
	pthread_mutex_lock(&c->lock);
	return c;
}

/* READ the runs behind `offset`, each to its place behind `memory`; the region is held. */
static int read_now(struct soda_session *s, struct soda_region *r, uint64_t offset, uint8_t *memory,
		    const struct soda_cache_run *runs, uint32_t n)
{
	struct awaited a = { .ended = 0 };
	struct soda_channel *c;
	int ret;

	for (uint32_t i = 0; i < n; i++)
		a.transfer[i] = (struct soda_transfer){ .session = s,
							.region = r,
							.offset = offset + runs[i].at,
							.bytes = runs[i].bytes,
							.memory = memory + runs[i].at,
							.ended = ended,
							.arg = &a };
	c = choose(s);
	ret = soda_forward_await_locked(c, a.transfer, n);
	pthread_mutex_unlock(&c->lock);
	if (ret < 0)
		soda_session_break(s, ret);
	if (a.status)
		return a.status;
	return ret < 0 ? ret : a.ended == n ? 0 : -ENOTCONN;
}

/* Some region of the owner whose session is up, held, with a reference on the session. */
static struct soda_region *find_region(struct soda_caches *c, uint32_t owner)
{
	struct soda_region *r;

	pthread_mutex_lock(&c->lock);
	for (r = c->regions[owner]; r; r = r->cache.next) {
		struct soda_session *s = r->cache.session;
		bool up;

		pthread_mutex_lock(&s->lock);
		up = s->up;
		if (up) {
			r->holds++;
			soda_session_ref(s);
		}
		pthread_mutex_unlock(&s->lock);
		if (up)
			break;
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

void soda_cache_fetch(void *arg, struct soda_fill *fill)
{
	struct soda_caches *c = arg;
	struct soda_region *r = find_region(c, fill->owner);
	struct soda_session *s;
	int ret;

	if (!r) {
		soda_prefetch_filled(c->dynamic, fill, -ENOTCONN);
		return;
	}
	s = r->cache.session;
	soda_count_add(SODA_COUNT_net_prefetch, fill->runs_n);
	soda_count_add(SODA_COUNT_net_prefetch_bytes, fill->bytes);
	ret = read_now(s, r, fill->offset, fill->memory, fill->runs, fill->runs_n);
	pthread_mutex_lock(&s->lock);
	soda_region_unhold_locked(s, r);
	pthread_mutex_unlock(&s->lock);
	soda_prefetch_filled(c->dynamic, fill, ret);
	soda_session_put(s);
}

int soda_cache_load(void *source, uint64_t offset, uint8_t *memory, uint64_t bytes)
{
	const struct soda_loader *l = source;
	int ret = 0;

	while (bytes && ret == 0) {
		uint32_t part = bytes < SODA_WIRE_MAX_DATA ? (uint32_t)bytes : SODA_WIRE_MAX_DATA;
		struct soda_cache_run run = { 0, part };

		soda_count_add(SODA_COUNT_net_preload, 1);
		soda_count_add(SODA_COUNT_net_preload_bytes, part);
		ret = read_now(l->session, l->region, offset, memory, &run, 1);
		offset += part;
		memory += part;
		bytes -= part;
	}
	return ret;
}
