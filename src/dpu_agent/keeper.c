/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/keeper.h"

#include <errno.h>
#include <time.h>

#include "common/log.h"
#include "dpu_agent/agent.h"
#include "dpu_agent/forward.h"
#include "dpu_agent/upstream.h"

enum { TICK_MS = 100 };

/* One that something is to be done about, busy; NULL: none. The table is looked through from `at`.
 */
static struct soda_session *next_locked(struct soda_sessions *all, unsigned *at)
{
	struct soda_session *s = all->list;

	for (unsigned i = 0; s && i < *at; i++)
		s = s->next;
	for (; s; s = s->next) {
		bool wanted;

		(*at)++;
		pthread_mutex_lock(&s->lock);
		wanted = !s->busy && (s->broken || !s->peers || (s->up && !s->tool));
		if (wanted) {
			s->busy++;
			soda_session_ref(s);
		}
		pthread_mutex_unlock(&s->lock);
		if (wanted)
			return s;
	}
	return NULL;
}

static void say_goodbye(struct soda_session *s)
{
	struct soda_why why;

	soda_upstream_call(s, SODA_MSG_BYE, NULL, 0, NULL, 0, NULL, &why);
}

/* Nobody is connected, and nothing is unwritten, or is to be: it ends. */
static void end(struct soda_session *s)
{
	bool leaving;

	if (!soda_session_remove(s))
		return;
	pthread_mutex_lock(&s->life);
	pthread_mutex_lock(&s->lock);
	leaving = s->leaving && s->up && !s->left;
	s->left = true; /* the server will close our connections */
	pthread_mutex_unlock(&s->lock);
	if (leaving)
		say_goodbye(s);
	soda_upstream_disconnect(s);
	pthread_mutex_unlock(&s->life);
	soda_session_ended(s);
	soda_session_put(s); /* the table's */
}

/* What it still has cannot be written. */
static void give_up(struct soda_session *s)
{
	if (soda_writes_unwritten(s)) {
		pthread_mutex_lock(&s->dpu->sessions.lock);
		s->dpu->sessions.lost++;
		pthread_mutex_unlock(&s->dpu->sessions.lock);
	}
	soda_writes_discard(s, NULL, true);
}

static bool patience_is_over(struct soda_session *s)
{
	uint64_t now = soda_dpu_now_ms();

	if (!s->orphan_since_ms)
		s->orphan_since_ms = now;
	return now > s->orphan_since_ms + s->dpu->opt->grace_ms;
}

/* A client that has gone left data behind, and the server is not there. */
static void reconnect(struct soda_session *s)
{
	struct soda_why why = { "" };
	bool absent;
	int ret;

	pthread_mutex_lock(&s->life);
	pthread_mutex_lock(&s->lock);
	absent = !s->up && !s->peers;
	pthread_mutex_unlock(&s->lock);
	ret = absent ? soda_upstream_connect(s, &why) : 0;
	pthread_mutex_unlock(&s->life);
	if (ret == 0)
		s->orphan_since_ms = 0;
	else if (ret == -ESTALE || patience_is_over(s))
		give_up(s);
}

static void see_to(struct soda_session *s, bool stopping)
{
	bool broken, up, orphan, leaving;

	pthread_mutex_lock(&s->lock);
	broken = s->broken;
	up = s->up;
	orphan = !s->peers;
	leaving = s->leaving;
	pthread_mutex_unlock(&s->lock);
	if (up && soda_upstream_stuck(s)) {
		soda_session_break(s, -ETIMEDOUT);
		broken = true;
	}
	if (broken) {
		soda_session_expel(s, false, false);
		pthread_mutex_lock(&s->life);
		pthread_mutex_lock(&s->lock);
		broken = s->broken;
		pthread_mutex_unlock(&s->lock);
		if (broken)
			soda_upstream_disconnect(s);
		pthread_mutex_unlock(&s->life);
		return;
	}
	if (!orphan)
		return;
	if (stopping)
		give_up(s);
	if (leaving) /* what is not a file goes with the client */
		soda_writes_discard(s, NULL, false);
	if (!soda_writes_unwritten(s))
		end(s);
	else if (!up)
		reconnect(s);
	else
		soda_forward_writes(s);
}

static void sleep_locked(struct soda_sessions *all)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += TICK_MS * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&all->changed, &all->lock, &until);
}

static void *keeper_main(void *arg)
{
	struct soda_dpu *dpu = arg;
	struct soda_sessions *all = &dpu->sessions;

	pthread_setname_np(pthread_self(), "soda-keeper");
	pthread_mutex_lock(&all->lock);
	while (!all->stopping || all->list) {
		struct soda_session *s;
		unsigned at = 0;

		while ((s = next_locked(all, &at))) {
			bool stopping = all->stopping;

			pthread_mutex_unlock(&all->lock);
			see_to(s, stopping);
			soda_session_unbusy(s);
			pthread_mutex_lock(&all->lock);
		}
		if (!all->stopping || all->list)
			sleep_locked(all);
	}
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

int soda_keeper_start(struct soda_dpu *dpu)
{
	struct soda_sessions *all = &dpu->sessions;
	pthread_condattr_t attr;
	int ret;

	pthread_mutex_init(&all->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&all->changed, &attr);
	pthread_condattr_destroy(&attr);
	ret = pthread_create(&all->keeper, NULL, keeper_main, dpu);
	all->keeper_runs = !ret;
	return -ret;
}

void soda_keeper_stop(struct soda_dpu *dpu, uint32_t patience_ms)
{
	struct soda_sessions *all = &dpu->sessions;
	uint64_t end_ms = soda_dpu_now_ms() + patience_ms;

	if (!all->keeper_runs)
		return;
	pthread_mutex_lock(&all->lock);
	while (all->list && soda_dpu_now_ms() < end_ms)
		sleep_locked(all);
	all->stopping = true;
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
	pthread_join(all->keeper, NULL);
	all->keeper_runs = false;
}
