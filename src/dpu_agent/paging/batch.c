/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tasks into transfers: neighbours become one where their memory allows it without a copy; and
 * transfers onto a channel, with one doorbell.
 */
#include <stdlib.h>

#include "dpu_agent/base/counters.h"
#include "dpu_agent/paging/forward_impl.h"

#define MERGE_BYTES (1u << 20) /* one transfer's most: more would only delay its first part */

/* Whether `b` goes on where `a` ends, in the region and, where that is given, in memory. */
static bool adjacent(const struct soda_task *a, const struct soda_task *b)
{
	const struct soda_request *p = a->rq, *q = b->rq;

	return a->region == b->region && p->write == q->write &&
	       p->offset + p->bytes == q->offset &&
	       (p->data ? q->data == p->data + p->bytes : !q->data);
}

/* The first tasks of the list, as many as travel together; *rest_p: the others. */
static void start_transfer(struct soda_transfer *t, struct soda_task *tasks, bool merge,
			   struct soda_task **rest_p)
{
	struct soda_task *last = tasks;

	*t = (struct soda_transfer){
		.session = tasks->session,
		.region = tasks->region,
		.tasks = tasks,
		.tasks_n = 1,
		.offset = tasks->rq->offset,
		.bytes = tasks->rq->bytes,
		.write = tasks->rq->write,
		.memory = tasks->rq->data,
	};
	while (merge && last->next && adjacent(last, last->next) &&
	       t->bytes + last->next->rq->bytes <= MERGE_BYTES) {
		last = last->next;
		t->bytes += last->rq->bytes;
		t->tasks_n++;
	}
	*rest_p = last->next;
	last->next = NULL;
}

struct soda_transfer *soda_batch_build(struct soda_task *tasks, bool merge,
				       struct soda_task **failed_p)
{
	struct soda_transfer *list = NULL, **end = &list;

	*failed_p = NULL;
	while (tasks) {
		struct soda_transfer *t = malloc(sizeof(*t));

		if (!t) {
			*failed_p = tasks;
			break;
		}
		start_transfer(t, tasks, merge, &tasks);
		if (!t->memory) {
			t->block = soda_block_get(t->bytes);
			if (!t->block) {
				/* the tasks of this one and those behind */
				struct soda_task *last = t->tasks;

				while (last->next)
					last = last->next;
				last->next = tasks;
				*failed_p = t->tasks;
				free(t);
				break;
			}
			t->memory = t->block->memory;
		}
		if (t->tasks_n > 1)
			soda_count_add(t->write ? SODA_COUNT_writes_merged
						: SODA_COUNT_reads_merged,
				       t->tasks_n - 1);
		*end = t;
		end = &t->next;
	}
	return list;
}

/* One doorbell for all. Those that cannot be posted are dropped. 0 or the connection's error. */
int soda_batch_post_locked(struct soda_channel *c, struct soda_transfer *list, bool polling)
{
	unsigned requests = 0;
	int ret = 0;

	while (list && ret == 0) {
		struct soda_transfer *next = list->next;

		ret = soda_channel_post_locked(c, list);
		if (ret < 0)
			break;
		soda_count_transfer(list->write, list->bytes);
		requests += list->tasks_n;
		list = next;
	}
	if (ret == 0)
		ret = soda_conn_flush(c->conn, polling);
	soda_count_batch(requests);
	soda_forward_drop_transfers(list);
	return ret;
}
