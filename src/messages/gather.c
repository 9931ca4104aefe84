/* SPDX-License-Identifier: BSD-3-Clause */
#include "messages/gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "messages/job.h"

enum { AGAIN_NS = 1000000 };

/*
 * Messages of one size in a buffer: [first, end) are there, and from `most` on there is no room.
 * The thread's, when it is inside or holds the lock; of who has barred it.
 */
struct gather_lane {
	uint32_t size, first, end, most;
};

struct soda_gather {
	struct soda_gather *next; /* constant, and so the next two */
	const void *owner;	  /* names the thread */
	uint8_t *data;		  /* SODA_GATHER_BYTES for each rank */
	_Atomic bool inside;	  /* the thread's */
	bool announced;		  /* the sender knows that there is something; as lanes */
	struct gather_lane lanes[];
};

/* The calling thread's, in the job that it last pushed into; life: that job's, 0: none. */
static _Thread_local struct {
	uint64_t life;
	struct soda_gather *gather;
} mine __attribute__((tls_model("initial-exec")));

static uint8_t *buffer_of(const struct soda_gather *g, uint32_t rank)
{
	return g->data + (size_t)rank * SODA_GATHER_BYTES;
}

static void put(struct soda_gather *g, uint32_t rank, const void *data, size_t bytes)
{
	struct gather_lane *l = &g->lanes[rank];

	if (bytes == sizeof(uint64_t)) /* the most frequent case, without a call */
		memcpy(buffer_of(g, rank) + l->end * sizeof(uint64_t), data, sizeof(uint64_t));
	else if (bytes)
		memcpy(buffer_of(g, rank) + l->end * bytes, data, bytes);
	l->end++;
}

bool soda_gather_push(struct soda_msg_job *job, unsigned rank, const void *data, size_t bytes)
{
	struct soda_gather *g = mine.gather;
	struct gather_lane *l;
	bool may;

	if (mine.life != job->life || bytes > SODA_GATHER_MOST || rank >= job->ranks)
		return false;
	if (bytes) { /* a page that has to be fetched is waited for while nobody waits for this */
		(void)*(const volatile uint8_t *)data;
		(void)*((const volatile uint8_t *)data + bytes - 1);
	}
	l = &g->lanes[rank];
	atomic_store_explicit(&g->inside, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst); /* the other side has the processor's */
	may = !atomic_load_explicit(&job->gathers.barred, memory_order_acquire) && g->announced &&
	      l->end && l->size == bytes && l->end < l->most;
	if (may)
		put(g, rank, data, bytes);
	atomic_store_explicit(&g->inside, false, memory_order_release);
	return may;
}

/* The calling thread's, which is made with its first message here; NULL: no memory. */
static struct soda_gather *find_locked(struct soda_msg_job *job)
{
	struct soda_gathers *all = &job->gathers;
	struct soda_gather *g = all->all;

	if (mine.life == job->life)
		return mine.gather;
	while (g && g->owner != &soda_msg_known)
		g = g->next;
	if (!g && all->n < SODA_GATHER_THREADS) {
		g = calloc(1, sizeof(*g) + job->ranks * sizeof(g->lanes[0]));
		if (g)
			g->data = malloc((size_t)job->ranks * SODA_GATHER_BYTES);
		if (!g || !g->data) {
			free(g);
			return NULL;
		}
		g->owner = &soda_msg_known;
		g->next = all->all;
		all->all = g;
		all->n++;
	}
	if (g) {
		mine.life = job->life;
		mine.gather = g;
	}
	return g;
}

/* What is in a buffer, into its lane. 0; -EAGAIN: not all. */
static int empty_lane_locked(struct soda_msg_job *job, struct soda_gather *g, uint32_t rank)
{
	struct gather_lane *l = &g->lanes[rank];
	int n = 0;

	while (l->first < l->end && n >= 0) {
		n = soda_lane_push_locked(job, rank,
					  buffer_of(g, rank) + (size_t)l->first * l->size, l->size,
					  l->end - l->first);
		l->first += n > 0 ? (uint32_t)n : 0;
	}
	if (l->first < l->end)
		return -EAGAIN;
	l->first = l->end = 0;
	return 0;
}

int soda_gather_push_locked(struct soda_msg_job *job, uint32_t rank, const void *data,
			    uint32_t size)
{
	struct soda_gather *g = find_locked(job);
	struct gather_lane *l;

	if (!g)
		return 0;
	l = &g->lanes[rank];
	if (l->end && (l->size != size || l->end == l->most) && empty_lane_locked(job, g, rank) < 0)
		return -EAGAIN;
	if (!l->end) {
		l->size = size;
		l->most = size ? SODA_GATHER_BYTES / size : SODA_GATHER_BYTES;
	}
	put(g, rank, data, size);
	g->announced = true;
	if (!job->gathers.since_ns) {
		job->gathers.since_ns = soda_msg_now_ns();
		if (job->sleeping)
			soda_msg_work_locked(job);
	}
	return 1;
}

/* Each barred thread has left its buffers, or has them to itself for one copy more. */
void soda_gathers_bar_locked(struct soda_msg_job *job)
{
	struct soda_gathers *all = &job->gathers;

	if (atomic_load_explicit(&all->barred, memory_order_relaxed))
		return;
	atomic_store_explicit(&all->barred, true, memory_order_relaxed);
	if (!all->all)
		return;
	soda_quick_fence();
	for (const struct soda_gather *g = all->all; g; g = g->next)
		soda_quick_await(&g->inside);
}

void soda_gathers_open_locked(struct soda_msg_job *job)
{
	if (!job->finish && !job->error)
		atomic_store_explicit(&job->gathers.barred, false, memory_order_release);
}

/* All of one thread's. Whether nothing is left. */
static bool empty_thread_locked(struct soda_msg_job *job, struct soda_gather *g)
{
	bool empty = true;

	if (!g->announced)
		return true;
	for (uint32_t i = 0; i < job->ranks; i++) {
		struct soda_lane *lane = &job->lanes[i];

		if (!g->lanes[i].end)
			continue;
		empty &= empty_lane_locked(job, g, i) == 0;
		/* they have waited here */
		if (lane->messages && lane->since_ns > job->gathers.since_ns)
			lane->since_ns = job->gathers.since_ns;
	}
	g->announced = !empty;
	return empty;
}

void soda_gathers_empty_locked(struct soda_msg_job *job)
{
	struct soda_gathers *all = &job->gathers;
	bool empty = true;

	if (!all->since_ns)
		return;
	soda_gathers_bar_locked(job);
	for (struct soda_gather *g = all->all; g; g = g->next)
		empty &= empty_thread_locked(job, g);
	/* what is left is due when so much time has passed again */
	all->since_ns = empty ? 0
			      : soda_msg_now_ns() +
					(job->flush_ns > AGAIN_NS ? AGAIN_NS : job->flush_ns) -
					job->flush_ns;
	soda_gathers_open_locked(job);
}

uint64_t soda_gathers_due_locked(const struct soda_msg_job *job)
{
	return job->gathers.since_ns ? job->gathers.since_ns + job->flush_ns : UINT64_MAX;
}

void soda_gathers_count_locked(struct soda_msg_job *job, uint64_t *messages_p, uint64_t *bytes_p)
{
	uint64_t messages = 0, bytes = 0;

	if (job->gathers.since_ns) {
		soda_gathers_bar_locked(job);
		for (const struct soda_gather *g = job->gathers.all; g; g = g->next)
			for (uint32_t i = 0; i < job->ranks; i++) {
				uint32_t n = g->lanes[i].end - g->lanes[i].first;

				messages += n;
				bytes += (uint64_t)n * g->lanes[i].size;
			}
		soda_gathers_open_locked(job);
	}
	*messages_p = messages;
	*bytes_p = bytes;
}

void soda_gathers_free(struct soda_gathers *all)
{
	while (all->all) {
		struct soda_gather *g = all->all;

		all->all = g->next;
		free(g->data);
		free(g);
	}
}
