/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whose turn it is (async): sessions with READs to be posted, round robin, a turn's
 * worth each, as long as less than the window is under way to the server.
 */
#ifndef SODA_DPU_AGENT_SCHEDULE_H
#define SODA_DPU_AGENT_SCHEDULE_H

#include <pthread.h>
#include <stdint.h>

struct soda_session;

struct soda_schedule {
	pthread_mutex_t lock;
	struct soda_session *first, *last; /* guarded by lock, and so below; next_turn */
	uint64_t window, under_way;	   /* bytes */
};

void soda_schedule_init(struct soda_schedule *schedule, uint64_t window);
/* The session's queue is not empty. */
void soda_schedule_add(struct soda_schedule *schedule, struct soda_session *s);
/* Post what may be posted.  own: whose answers the calling worker waits for itself, or NULL. */
void soda_schedule_run(struct soda_schedule *schedule, const struct soda_session *own);
/* So many bytes more are under way, or (negative) less. */
void soda_schedule_count(struct soda_schedule *schedule, int64_t bytes);

#endif
