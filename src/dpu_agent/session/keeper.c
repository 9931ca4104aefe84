/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/session/keeper.h"

#include <time.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/session/session.h"

static struct soda_session *nth_locked(const struct soda_sessions *all, unsigned n)
{
	struct soda_session *s = all->list;

	while (s && n--)
		s = s->next;
	return s;
}

static bool is_there_locked(const struct soda_sessions *all, const struct soda_session *s)
{
	const struct soda_session *at = all->list;

	while (at && at != s)
		at = at->next;
	return at;
}

/*
 * End a session whose client is not connected and for which nothing is left to be done, unless the
 * client has come back.  stopping: the agent ends, and waits for no answer of the server.
 */
static void end(struct soda_session *s, bool stopping)
{
	if (!soda_session_remove(s))
		return;
	pthread_mutex_lock(&s->life);
	soda_services_gone(s, stopping);
	pthread_mutex_unlock(&s->life);
	soda_session_ended(s);
	soda_session_put(s); /* the table's reference */
}

/*
 * In a hand: let the services do what is left for a client that is not connected; then end the
 * session.
 */
static void tend(struct soda_session *s, bool stopping)
{
	bool orphan;

	pthread_mutex_lock(&s->lock);
	orphan = !s->peers && !s->broken;
	pthread_mutex_unlock(&s->lock);
	if (orphan && soda_services_idle(s, stopping))
		end(s, stopping);
}

/*
 * A server that is silent must not have all hands: of a pool's members each has a few, and what is
 * given beyond that waits for them.  Not where the agent ends, as then no hand waits for a server.
 */
static bool has_hands_locked(const struct soda_sessions *all, const struct soda_session *s)
{
	unsigned n = 0;

	if (all->stopping || all->hands_stop || (!all->servers.pool && !atomic_load(&s->member)))
		return false;
	for (unsigned i = 0; i < SODA_DPU_HANDS_MOST; i++)
		n += all->handled[i] && soda_session_same_server(all->handled[i], s);
	return n >= SODA_DPU_HANDS_SERVER;
}

/* The first that is given and whose server has not its hands; NULL: there is none. */
static struct soda_session *take_given_locked(struct soda_sessions *all)
{
	struct soda_session **at = &all->given, *s;

	while (*at && has_hands_locked(all, *at))
		at = &(*at)->next_given;
	s = *at;
	if (s) {
		*at = s->next_given;
		if (!*at)
			all->given_end = at;
	}
	return s;
}

/* Wait for a session that is given to the hands; NULL: the hands are to end. */
static struct soda_session *await_given_locked(struct soda_sessions *all)
{
	struct soda_session *s;

	while (!(s = take_given_locked(all)) && !all->hands_stop) {
		all->hands_idle++;
		pthread_cond_wait(&all->work, &all->lock);
		all->hands_idle--;
	}
	return s;
}

static struct soda_session **place_locked(struct soda_sessions *all)
{
	struct soda_session **at = all->handled;

	while (*at)
		at++;
	return at;
}

static void *hand_main(void *arg)
{
	struct soda_sessions *all = arg;
	struct soda_session *s;

	pthread_setname_np(pthread_self(), "soda-hand");
	pthread_mutex_lock(&all->lock);
	while ((s = await_given_locked(all))) {
		struct soda_session **own = place_locked(all);
		bool stopping = all->stopping;

		*own = s;
		pthread_mutex_unlock(&all->lock);
		tend(s, stopping);
		pthread_mutex_lock(&all->lock);
		*own = NULL;
		s->given = false;
		s->rest_until_ms = soda_now_ms() + SODA_DPU_TICK_MS;
		pthread_mutex_unlock(&all->lock);
		soda_session_unbusy(s);
		pthread_mutex_lock(&all->lock);
	}
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

/*
 * One hand more, where servers hold up those that there are: all are at work, and one that is given
 * is for a server that has not its hands.  By the keeper alone.
 */
static void add_hand_locked(struct soda_sessions *all)
{
	const struct soda_session *s = all->given;

	while (s && has_hands_locked(all, s))
		s = s->next_given;
	if (!s || all->hands_idle || all->hands_stop || all->hands_n == SODA_DPU_HANDS_MOST)
		return;
	if (!pthread_create(&all->hands[all->hands_n], NULL, hand_main, all))
		all->hands_n++;
}

/* Give the session to the hands, if its client is not connected and no thread is busy with it. */
static void give_locked(struct soda_sessions *all, struct soda_session *s)
{
	bool orphan;

	if (s->given || soda_now_ms() < s->rest_until_ms)
		return;
	pthread_mutex_lock(&s->lock);
	orphan = !s->peers && !s->busy && !s->broken;
	s->busy += orphan;
	pthread_mutex_unlock(&s->lock);
	if (!orphan)
		return;
	soda_session_ref(s);
	s->given = true;
	s->next_given = NULL;
	*all->given_end = s;
	all->given_end = &s->next_given;
	pthread_cond_signal(&all->work);
}

static bool is_broken(struct soda_session *s)
{
	bool broken;

	pthread_mutex_lock(&s->lock);
	broken = s->broken;
	pthread_mutex_unlock(&s->lock);
	return broken;
}

/*
 * Take a broken session down: requests under way end, for which clients, and HELLOs, wait.  If
 * another thread has `life`, it is connecting the session or taking it down; the next tick looks
 * again.
 */
static void break_in_place(struct soda_session *s)
{
	soda_session_expel(s, false, false);
	if (pthread_mutex_trylock(&s->life))
		return;
	if (is_broken(s))
		soda_services_broken(s);
	pthread_mutex_unlock(&s->life);
}

static void look_at(struct soda_session *s)
{
	soda_services_tick(s);
	if (is_broken(s))
		break_in_place(s);
}

/*
 * The table may change while the lock is free: a session that is missed now is seen at the next
 * tick.
 */
static void look_at_all_locked(struct soda_sessions *all)
{
	struct soda_session *s;

	for (unsigned at = 0; (s = nth_locked(all, at)); at++) {
		soda_session_ref(s);
		pthread_mutex_unlock(&all->lock);
		look_at(s);
		pthread_mutex_lock(&all->lock);
		if (is_there_locked(all, s))
			give_locked(all, s);
		add_hand_locked(all);
		pthread_mutex_unlock(&all->lock);
		soda_session_put(s); /* perhaps the last reference: without the lock */
		pthread_mutex_lock(&all->lock);
	}
}

static void go_round_locked(struct soda_sessions *all)
{
	pthread_mutex_unlock(&all->lock);
	soda_services_round(&all->services);
	pthread_mutex_lock(&all->lock);
}

static void sleep_locked(struct soda_sessions *all)
{
	struct timespec until = soda_wait_until(SODA_DPU_TICK_MS);

	pthread_cond_timedwait(&all->changed, &all->lock, &until);
}

static void *keeper_main(void *arg)
{
	struct soda_sessions *all = arg;

	pthread_setname_np(pthread_self(), "soda-keeper");
	pthread_mutex_lock(&all->lock);
	while (!all->stopping || all->list) {
		go_round_locked(all); /* before it looks: what changes meanwhile is then seen */
		look_at_all_locked(all);
		if (!all->stopping || all->list)
			sleep_locked(all);
	}
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

static void end_hands(struct soda_sessions *all)
{
	pthread_mutex_lock(&all->lock);
	all->hands_stop = true;
	pthread_cond_broadcast(&all->work);
	pthread_mutex_unlock(&all->lock);
	while (all->hands_n)
		soda_wait_join(all->hands[--all->hands_n], "a hand of the keeper to end");
}

int soda_keeper_start(struct soda_sessions *all)
{
	int ret = 0;

	pthread_mutex_init(&all->lock, NULL);
	soda_cond_init(&all->changed);
	soda_cond_init(&all->work);
	all->given_end = &all->given;
	while (!ret && all->hands_n < SODA_DPU_HANDS) {
		ret = pthread_create(&all->hands[all->hands_n], NULL, hand_main, all);
		all->hands_n += !ret;
	}
	if (!ret)
		ret = pthread_create(&all->keeper, NULL, keeper_main, all);
	all->keeper_runs = !ret;
	if (ret)
		end_hands(all);
	return -ret;
}

void soda_keeper_stop(struct soda_sessions *all, uint32_t patience_ms)
{
	uint64_t end_ms = soda_now_ms() + patience_ms;

	if (!all->keeper_runs)
		return;
	pthread_mutex_lock(&all->lock);
	all->draining = true; /* also where nobody has asked for a drain */
	while (all->list && soda_now_ms() < end_ms)
		sleep_locked(all);
	all->stopping = true;
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
	soda_wait_join(all->keeper, "the keeper to end");
	all->keeper_runs = false;
	end_hands(all); /* they may still be sending BYEs */
}
