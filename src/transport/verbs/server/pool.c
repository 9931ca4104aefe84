/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive buffers of a two-sided listener on one device. See two_sided.h. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "transport/api/memory.h"
#include "transport/verbs/server/two_sided.h"

enum {
	SLAB = 32,	/* buffers that are made at a time */
	LOW = 32,	/* posted: fewer than that, and more are made */
	MOST = 2048,	/* buffers */
	HEAD_ROOM = 64, /* of a buffer's head */
	SLAB_BYTES = SLAB * SODA_VERBS_MESSAGE + SLAB * HEAD_ROOM + SODA_WIRE_PAGE - 1,
	SLAB_ROOM = SLAB_BYTES / SODA_WIRE_PAGE * SODA_WIRE_PAGE,
};

struct slab {
	struct slab *next;
	uint8_t *memory;
	struct soda_verbs_buffer buffers[SLAB];
};

struct soda_verbs_pool {
	struct soda_regcache *regcache;
	pthread_mutex_t lock; /* guards all below */
	struct ibv_srq *srq;  /* NULL: closed */
	struct slab *slabs;
	struct soda_verbs_buffer *free; /* neither posted nor anybody's */
	uint32_t made, posted, kept, most;
	bool full; /* that there can be no more has been said */
};

static void push_locked(struct soda_verbs_pool *pool, struct soda_verbs_buffer *b)
{
	b->next = pool->free;
	pool->free = b;
}

static int post_locked(struct soda_verbs_pool *pool, struct soda_verbs_buffer *b)
{
	struct ibv_sge sge[2] = {
		{ (uintptr_t)b->head, SODA_WIRE_WRITE_BYTES, b->lkey },
		{ (uintptr_t)b->data, SODA_VERBS_MESSAGE, b->lkey },
	};
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)b, .sg_list = sge, .num_sge = 2 }, *bad;

	return -ibv_post_srq_recv(pool->srq, &wr, &bad);
}

static void post_free_locked(struct soda_verbs_pool *pool)
{
	while (pool->srq && pool->free) {
		struct soda_verbs_buffer *b = pool->free;

		pool->free = b->next;
		if (post_locked(pool, b) < 0) {
			push_locked(pool, b);
			return;
		}
		pool->posted++;
	}
}

static void add_slab_locked(struct soda_verbs_pool *pool, struct slab *s, uint32_t lkey)
{
	s->next = pool->slabs;
	pool->slabs = s;
	pool->made += SLAB;
	for (unsigned i = SLAB; i-- > 0;) { /* in the end the first one is received into first */
		struct soda_verbs_buffer *b = &s->buffers[i];

		b->pool = pool;
		b->data = s->memory + (size_t)i * SODA_VERBS_MESSAGE;
		b->head = s->memory + (size_t)SLAB * SODA_VERBS_MESSAGE + (size_t)i * HEAD_ROOM;
		b->lkey = lkey;
		push_locked(pool, b);
	}
}

static void free_slab(struct slab *s)
{
	soda_memory_remove(s->memory, SLAB_ROOM);
	munmap(s->memory, SLAB_ROOM);
	free(s);
}

/* 0; -ENOMEM: no memory, or none that may be locked. */
static int grow_locked(struct soda_verbs_pool *pool)
{
	struct slab *s = calloc(1, sizeof(*s));
	uint32_t lkey;

	if (s)
		s->memory = soda_verbs_map(pool->regcache->pd->context, SLAB_ROOM);
	if (!s || !s->memory || soda_memory_add(s->memory, SLAB_ROOM) < 0) {
		if (s && s->memory)
			munmap(s->memory, SLAB_ROOM);
		free(s);
		return -ENOMEM;
	}
	if (!soda_regcache_lkey(pool->regcache, s->memory, SLAB_ROOM, &lkey)) {
		free_slab(s);
		return -ENOMEM;
	}
	add_slab_locked(pool, s, lkey);
	return 0;
}

static void refill_locked(struct soda_verbs_pool *pool)
{
	post_free_locked(pool);
	if (!pool->srq || pool->posted >= LOW || pool->full)
		return;
	if (pool->made + SLAB <= pool->most && grow_locked(pool) == 0) {
		post_free_locked(pool);
		return;
	}
	pool->full = true;
	soda_log_info("verbs: all of %u receive buffers are made; clients wait where they are all"
		      " in use",
		      pool->made);
}

static void destroy(struct soda_verbs_pool *pool)
{
	while (pool->slabs) {
		struct slab *s = pool->slabs;

		pool->slabs = s->next;
		free_slab(s);
	}
	soda_regcache_put(pool->regcache);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

static int open_queue(struct soda_verbs_pool *pool, struct ibv_context *device)
{
	struct ibv_device_attr limits = { .max_srq_wr = LOW };
	struct ibv_srq_init_attr attr = { .attr = { .max_sge = 2 } };

	ibv_query_device(device, &limits);
	pool->most = limits.max_srq_wr < MOST ? (uint32_t)limits.max_srq_wr : MOST;
	attr.attr.max_wr = pool->most;
	pool->srq = ibv_create_srq(pool->regcache->pd, &attr);
	return pool->srq ? 0 : errno ? -errno : -ENOMEM;
}

int soda_verbs_pool_create(struct ibv_context *device, struct soda_verbs_pool **pool_p,
			   struct soda_why *why)
{
	struct soda_verbs_pool *pool = calloc(1, sizeof(*pool));
	int ret = pool ? soda_regcache_get(device, &pool->regcache) : -ENOMEM;

	if (ret < 0) {
		free(pool);
		soda_why_set(why, "the server has no memory for requests");
		return ret;
	}
	pthread_mutex_init(&pool->lock, NULL);
	ret = open_queue(pool, device);
	if (ret == 0) {
		refill_locked(pool);
		ret = pool->posted ? 0 : -ENOMEM;
	}
	if (ret < 0) {
		soda_why_set(why,
			     "the server has no receive queue on the RDMA device %s: %s (its log"
			     " says more)",
			     device->device->name, soda_strerror(ret));
		if (pool->srq)
			ibv_destroy_srq(pool->srq);
		destroy(pool);
		return ret;
	}
	*pool_p = pool;
	return 0;
}

void soda_verbs_pool_close(struct soda_verbs_pool *pool)
{
	bool last;

	pthread_mutex_lock(&pool->lock);
	ibv_destroy_srq(pool->srq);
	pool->srq = NULL;
	last = !pool->kept;
	pthread_mutex_unlock(&pool->lock);
	if (last)
		destroy(pool);
}

struct ibv_srq *soda_verbs_pool_srq(const struct soda_verbs_pool *pool)
{
	return pool->srq;
}

struct soda_regcache *soda_verbs_pool_regcache(const struct soda_verbs_pool *pool)
{
	return pool->regcache;
}

uint32_t soda_verbs_pool_most(const struct soda_verbs_pool *pool)
{
	return pool->most;
}

void soda_verbs_buffer_taken(struct soda_verbs_buffer *b, bool keeps)
{
	struct soda_verbs_pool *pool = b->pool;

	pthread_mutex_lock(&pool->lock);
	pool->posted--;
	if (keeps)
		pool->kept++;
	else
		push_locked(pool, b);
	refill_locked(pool);
	pthread_mutex_unlock(&pool->lock);
}

void soda_verbs_buffer_put(struct soda_verbs_buffer *b)
{
	struct soda_verbs_pool *pool = b->pool;
	bool last;

	pthread_mutex_lock(&pool->lock);
	assert(pool->kept);
	push_locked(pool, b);
	last = --pool->kept == 0 && !pool->srq;
	refill_locked(pool);
	pthread_mutex_unlock(&pool->lock);
	if (last)
		destroy(pool);
}
