/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The node's store (dpu_agent/store) as sessions use it.  A region of a READ_ONLY file joins it by
 * SODA_MSG_STORE; from then on READs of its chunks that the client marks (soda_request.stored) are
 * answered when the chunk is in the store, without data:
 *
 *   READ ARRIVED -> READY: answered
 *                -> WAITS: answered, or entered anew, when another client's fill has ended
 *                -> FILL:  forwarded; its data go into the store before it is answered, or, if
 *                          the store has no room for them, to the client
 *
 * Other READs of the region are as ever.  A task holds its region, and so the region's place in the
 * store.  Locks: none is held by callers but where it is said, and none of sessions' by waiters.
 */
#ifndef SODA_DPU_AGENT_STORE_H
#define SODA_DPU_AGENT_STORE_H

#include <stdbool.h>

#include "daemon/metrics.h"
#include "dpu_agent/store/node_store.h"
#include "transport/api/service.h"

struct soda_paging;
struct soda_paging_region;
struct soda_session;
struct soda_fill;
struct soda_task;
struct soda_wire_advise;
struct soda_budget_news;

/*
 * views.c: soda_prefetch_ops.lacks, touched and news; a view is a struct soda_node_object, which
 * regions that have joined keep.
 */
uint64_t soda_view_lacks(void *view, uint64_t offset, uint64_t bytes);
uint32_t soda_view_touched(void *view, uint64_t *offsets, uint32_t max);
void soda_view_news(void *view, struct soda_budget_news *news_p);

/* Make the store that the options want. 0; -EINVAL, -ENOMEM..., logged. */
int soda_paging_store_start(struct soda_paging *paging);
/* SODA_MSG_STORE for a region that is held. 0, or why not: as soda_service.call. */
int soda_paging_store_call(struct soda_session *s, struct soda_paging_region *r,
			   const struct soda_wire_store *ask, bool shares,
			   struct soda_reply *reply);
/* Whether the region has joined: true as long as it is held from then on. */
bool soda_paging_store_has(const struct soda_paging_region *r);
/*
 * SODA_WIRE_STATIC_CACHE, for a region that has joined and is held: pin the range's chunks, and
 * read those that are not in the store.  Blocks meanwhile.  0; errors of soda_node_pin, of the
 * connection, of want of memory: nothing is pinned.
 */
int soda_paging_store_pin(struct soda_session *s, struct soda_paging_region *r,
			  const struct soda_wire_advise *a, struct soda_why *why);
/* The end of that, for a region that is held, where it has joined. As soda_node_unpin. */
int soda_paging_store_unpin(struct soda_paging_region *r, const struct soda_wire_advise *a);
/*
 * What the prefetcher has decided to read ahead of a region that has joined and is held: bring what
 * nobody has or brings of it, at most fill->bytes, and set fill->read.  Blocks meanwhile.  0, or
 * the first error.
 */
int soda_paging_store_ahead(struct soda_session *s, struct soda_paging_region *r,
			    struct soda_fill *fill);
/* Nothing holds the region any more: it leaves the store, if it has joined. */
void soda_paging_store_leave(struct soda_paging_region *r);

enum soda_store_read {
	SODA_STORE_NOT,	 /* no READ for the store */
	SODA_STORE_DONE, /* answered, or it will be */
	SODA_STORE_FILL, /* to be forwarded: task->fill is set */
};
/* A checked READ. */
enum soda_store_read soda_paging_store_read(struct soda_task *task);
/*
 * The end of a task with `fill`, with its data or with status, a negative errno.  0: the task is to
 * be answered by a span that is `stored`; 1: the store has no room for the data, and the task is to
 * be answered with them; else the error that the task is to be answered with.  Any locks may be
 * held where status is not 0.
 */
int soda_paging_store_filled(struct soda_task *task, const void *data, int status);

void soda_paging_store_walk(struct soda_paging *paging, struct soda_metrics *m);

#endif
