/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives that the control connections of a listener on one device share: one queue, with a buffer
 * for each connection and SPARE more for all, so that a connection may have several calls under way
 * without memory of its own for them.
 *
 * Who sends more calls than it may takes buffers that others need, until its thread looks: it is
 * ended then (message.c).  Others' calls wait meanwhile, by the adapter's retries.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "transport/verbs/link/link.h"

enum {
	SLAB = 16, /* buffers that are made at a time */
	SPARE = 16,
};

struct slab {
	struct slab *next;
	uint8_t *memory;
	struct ibv_mr *mr;
	struct soda_verbs_receive receives[SLAB];
};

struct soda_verbs_receives {
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	pthread_mutex_t lock; /* a leaf; guards all below */
	struct slab *slabs;
	uint32_t made, most, conns;
};

int soda_verbs_receives_post(struct soda_verbs_receives *all, struct soda_verbs_receive *r)
{
	struct ibv_sge sge = { (uintptr_t)r->data, SODA_VERBS_CALL_BYTES, r->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)r, .sg_list = &sge, .num_sge = 1 }, *bad;

	return -ibv_post_srq_recv(all->srq, &wr, &bad);
}

static void free_slab(struct slab *s)
{
	soda_verbs_unregister(s->mr);
	if (s->memory)
		munmap(s->memory, (size_t)SLAB * SODA_VERBS_CALL_ROOM);
	free(s);
}

/* 0, or a negative errno. */
static int grow_locked(struct soda_verbs_receives *all)
{
	struct slab *s = calloc(1, sizeof(*s));
	struct soda_why why;
	int ret = -ENOMEM;

	if (!s)
		return ret;
	s->memory = soda_verbs_map(all->pd->context, (size_t)SLAB * SODA_VERBS_CALL_ROOM);
	if (s->memory)
		ret = soda_verbs_register(all->pd, s->memory, (size_t)SLAB * SODA_VERBS_CALL_ROOM,
					  IBV_ACCESS_LOCAL_WRITE, &s->mr, &why);
	if (ret < 0) {
		free_slab(s);
		return ret;
	}
	s->next = all->slabs;
	all->slabs = s;
	for (unsigned i = 0; i < SLAB && ret == 0; i++) {
		s->receives[i].data = s->memory + (size_t)i * SODA_VERBS_CALL_ROOM;
		s->receives[i].lkey = s->mr->lkey;
		ret = soda_verbs_receives_post(all, &s->receives[i]);
		all->made += ret == 0;
	}
	return ret;
}

int soda_verbs_receives_create(struct ibv_context *device, struct soda_verbs_receives **all_p)
{
	struct soda_verbs_receives *all = calloc(1, sizeof(*all));
	struct ibv_device_attr limits = { .max_srq_wr = 0 };
	struct ibv_srq_init_attr attr = { .attr = { .max_sge = 1 } };
	int ret;

	if (!all)
		return -ENOMEM;
	pthread_mutex_init(&all->lock, NULL);
	ibv_query_device(device, &limits);
	all->most = limits.max_srq_wr < SODA_VERBS_CALLS_MOST ? (uint32_t)limits.max_srq_wr
							      : SODA_VERBS_CALLS_MOST;
	attr.attr.max_wr = all->most;
	all->pd = ibv_alloc_pd(device);
	all->srq = all->pd && all->most ? ibv_create_srq(all->pd, &attr) : NULL;
	if (all->srq) {
		*all_p = all;
		return 0;
	}
	ret = errno ? -errno : -ENOTSUP;
	soda_verbs_receives_destroy(all);
	return ret;
}

void soda_verbs_receives_destroy(struct soda_verbs_receives *all)
{
	if (all->srq)
		ibv_destroy_srq(all->srq);
	while (all->slabs) {
		struct slab *s = all->slabs;

		all->slabs = s->next;
		free_slab(s);
	}
	if (all->pd)
		ibv_dealloc_pd(all->pd);
	pthread_mutex_destroy(&all->lock);
	free(all);
}

bool soda_verbs_receives_join(struct soda_verbs_receives *all)
{
	int ret = 0;

	pthread_mutex_lock(&all->lock);
	while (ret == 0 && all->made < all->conns + 1 + SPARE)
		ret = all->made + SLAB > all->most ? -ENOSPC : grow_locked(all);
	all->conns += ret == 0;
	pthread_mutex_unlock(&all->lock);
	return ret == 0;
}

void soda_verbs_receives_leave(struct soda_verbs_receives *all)
{
	pthread_mutex_lock(&all->lock);
	all->conns--;
	pthread_mutex_unlock(&all->lock);
}

struct ibv_srq *soda_verbs_receives_queue(const struct soda_verbs_receives *all)
{
	return all->srq;
}

struct ibv_pd *soda_verbs_receives_pd(const struct soda_verbs_receives *all)
{
	return all->pd;
}
