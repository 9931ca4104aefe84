/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/paging/schedule.h"

#include "dpu_agent/paging/forward.h"
#include "dpu_agent/session/session.h"

void soda_schedule_init(struct soda_schedule *schedule, uint64_t window)
{
	pthread_mutex_init(&schedule->lock, NULL);
	schedule->first = schedule->last = NULL;
	schedule->window = window;
	schedule->under_way = 0;
}

void soda_schedule_add(struct soda_schedule *schedule, struct soda_session *s)
{
	pthread_mutex_lock(&schedule->lock);
	if (!s->scheduled) {
		s->scheduled = true;
		s->next_turn = NULL;
		soda_session_ref(s);
		if (schedule->last)
			schedule->last->next_turn = s;
		else
			schedule->first = s;
		schedule->last = s;
	}
	pthread_mutex_unlock(&schedule->lock);
}

/* With the reference of the schedule. */
static struct soda_session *next_session(struct soda_schedule *schedule)
{
	struct soda_session *s = NULL;

	pthread_mutex_lock(&schedule->lock);
	if (schedule->under_way < schedule->window)
		s = schedule->first;
	if (s) {
		schedule->first = s->next_turn;
		if (!schedule->first)
			schedule->last = NULL;
		s->scheduled = false;
	}
	pthread_mutex_unlock(&schedule->lock);
	return s;
}

void soda_schedule_run(struct soda_schedule *schedule, const struct soda_session *own)
{
	struct soda_session *s;

	while ((s = next_session(schedule))) {
		if (soda_forward_reads(s, s == own))
			soda_schedule_add(schedule, s);
		soda_session_put(s);
	}
}

void soda_schedule_count(struct soda_schedule *schedule, int64_t bytes)
{
	pthread_mutex_lock(&schedule->lock);
	schedule->under_way = (uint64_t)((int64_t)schedule->under_way + bytes);
	pthread_mutex_unlock(&schedule->lock);
}
