/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions as such: memory, references, the table. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/session/session.h"

#define REGIONS_BYTES (65536 * sizeof(struct soda_region *))

void soda_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

struct soda_session *soda_session_create(struct soda_dpu *dpu, const struct soda_peer_info *info)
{
	struct soda_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->channels = calloc(dpu->channels + 1 + SODA_PREFETCH_WORKERS, sizeof(*s->channels));
	/* there when it is touched */
	s->regions = mmap(NULL, REGIONS_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!s->channels || s->regions == MAP_FAILED) {
		if (s->regions != MAP_FAILED)
			munmap(s->regions, REGIONS_BYTES);
		free(s->channels);
		free(s);
		return NULL;
	}
	s->dpu = dpu;
	s->info = *info;
	s->refs = 1;
	s->queue_end = &s->queue;
	s->gate_end = &s->gate;
	s->channels_n = dpu->channels + 1 + (soda_caches_fetch(dpu) ? SODA_PREFETCH_WORKERS : 0);
	pthread_mutex_init(&s->life, NULL);
	pthread_mutex_init(&s->control_lock, NULL);
	pthread_mutex_init(&s->lock, NULL);
	soda_cond_init(&s->changed);
	for (unsigned i = 0; i < s->channels_n; i++)
		soda_channel_init(&s->channels[i], s);
	return s;
}

void soda_session_put(struct soda_session *s)
{
	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	soda_session_forget_regions(s);
	if (s->writes.run)
		soda_block_put(s->writes.run);
	for (unsigned i = 0; i < s->channels_n; i++)
		soda_channel_destroy(&s->channels[i]);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->control_lock);
	pthread_mutex_destroy(&s->life);
	munmap(s->regions, REGIONS_BYTES);
	free(s->channels);
	free(s);
}

struct soda_session *soda_session_find(struct soda_dpu *dpu, uint64_t id)
{
	struct soda_sessions *all = &dpu->sessions;
	struct soda_session *s;

	pthread_mutex_lock(&all->lock);
	for (s = all->list; s && (s->tool || s->id != id);)
		s = s->next;
	if (s) {
		soda_session_ref(s);
		pthread_mutex_lock(&s->lock);
		s->busy++;
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&all->lock);
	return s;
}

void soda_session_unbusy(struct soda_session *s)
{
	struct soda_sessions *all = &s->dpu->sessions;

	pthread_mutex_lock(&s->lock);
	s->busy--;
	pthread_mutex_unlock(&s->lock);
	soda_session_put(s);
	pthread_mutex_lock(&all->lock);
	pthread_cond_broadcast(&all->changed); /* the keeper may have left it alone */
	pthread_mutex_unlock(&all->lock);
}

static bool is_there_locked(const struct soda_sessions *all, const struct soda_session *s)
{
	for (const struct soda_session *at = all->list; at; at = at->next)
		if (!s->tool && !at->tool && at->id == s->id)
			return true;
	return false;
}

/* Losses */

/* One that nobody has been told before; the flags in it stay. */
static uint32_t new_number_locked(struct soda_sessions *all)
{
	const uint32_t flags = SODA_WIRE_AGENT_EARLY | SODA_WIRE_AGENT_ASKS;

	do
		all->newest += flags + 1;
	while (!(all->newest & ~flags));
	return all->newest;
}

static uint32_t number_of_locked(const struct soda_sessions *all, uint64_t client_id)
{
	for (unsigned i = 0; i < all->losses_n; i++)
		if (all->losses[i].client_id == client_id)
			return all->losses[i].agent;
	return all->agent;
}

/*
 * There is no room for it: all are forgotten, and whoever comes back without a session here meets
 * another agent, also if nothing of it is lost.
 */
static unsigned forget_losses_locked(struct soda_sessions *all)
{
	unsigned n = all->losses_n;

	all->losses_n = 0;
	all->agent = new_number_locked(all);
	return n;
}

/* *forgotten_p: how many losses had to be forgotten for it. */
static uint32_t bury_locked(struct soda_sessions *all, uint64_t client_id, unsigned *forgotten_p)
{
	struct soda_loss *at = all->losses, *end = at + all->losses_n;

	*forgotten_p = 0;
	while (at < end && at->client_id != client_id)
		at++;
	if (at == end && all->losses_n == SODA_DPU_LOSSES_MAX) {
		*forgotten_p = forget_losses_locked(all);
		at = all->losses;
	}
	if (at == all->losses + all->losses_n)
		all->losses_n++;
	*at = (struct soda_loss){ client_id, new_number_locked(all) };
	return at->agent;
}

/* Holding no lock. */
static void tell_forgotten(unsigned n)
{
	if (n)
		soda_log_warning("%u clients have lost data: clients that come back from now on"
				 " take the agent for another one",
				 n);
}

void soda_session_bury(struct soda_session *s)
{
	struct soda_sessions *all = &s->dpu->sessions;
	unsigned forgotten;

	pthread_mutex_lock(&all->lock);
	pthread_mutex_lock(&s->lock);
	s->agent = bury_locked(all, s->id, &forgotten);
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&all->lock);
	tell_forgotten(forgotten);
}

int soda_session_insert(struct soda_session *s, struct soda_why *why)
{
	struct soda_sessions *all = &s->dpu->sessions;
	unsigned max = s->dpu->opt->max_clients;
	int ret = 0;

	pthread_mutex_lock(&all->lock);
	if (all->draining) {
		snprintf(why->text, sizeof(why->text), "the agent is shutting down");
		ret = -ESHUTDOWN;
	} else if (all->count >= max) {
		snprintf(why->text, sizeof(why->text),
			 "the agent has its %u clients (--max-clients)", max);
		ret = -EBUSY;
	} else if (is_there_locked(all, s)) {
		snprintf(why->text, sizeof(why->text),
			 "overtaken by another connection of this client");
		ret = -EBUSY;
	} else {
		soda_session_ref(s);
		s->agent = number_of_locked(all, s->id);
		s->next = all->list;
		all->list = s;
		all->count++;
	}
	pthread_mutex_unlock(&all->lock);
	return ret;
}

bool soda_session_remove(struct soda_session *s)
{
	struct soda_sessions *all = &s->dpu->sessions;
	struct soda_session **at = &all->list;
	unsigned forgotten = 0;
	bool idle, untold;

	pthread_mutex_lock(&all->lock);
	pthread_mutex_lock(&s->lock);
	idle = !s->peers && s->busy <= 1 && !s->dead; /* the caller is busy with it */
	s->dead = s->dead || idle;
	untold = s->untold && !s->leaving;
	pthread_mutex_unlock(&s->lock);
	if (idle && untold) { /* no SYNC will tell what the server has refused */
		bury_locked(all, s->id, &forgotten);
		all->lost++;
	}
	if (idle) {
		while (*at != s)
			at = &(*at)->next;
		*at = s->next;
		all->count--;
		all->ending++;
		pthread_cond_broadcast(&all->changed);
	}
	pthread_mutex_unlock(&all->lock);
	tell_forgotten(forgotten);
	return idle;
}

void soda_session_ended(struct soda_session *s)
{
	struct soda_sessions *all = &s->dpu->sessions;

	pthread_mutex_lock(&all->lock);
	all->ending--;
	all->ended++;
	pthread_mutex_unlock(&all->lock);
}

uint64_t soda_sessions_ended(struct soda_sessions *all)
{
	uint64_t ended;

	pthread_mutex_lock(&all->lock);
	ended = all->ended;
	pthread_mutex_unlock(&all->lock);
	return ended;
}

/*
 * Whether somebody is about to go; *ended_p: how many have.  Who has said so, and is connected all
 * the same after SODA_DPU_LEAVING_MS, is not waited for.
 */
static bool any_leaves(struct soda_session *self, uint64_t *ended_p)
{
	struct soda_sessions *all = &self->dpu->sessions;
	uint64_t now_ms = soda_dpu_now_ms();
	bool any;

	pthread_mutex_lock(&all->lock);
	any = all->ending;
	*ended_p = all->ended;
	for (struct soda_session *s = all->list; s && !any; s = s->next) {
		pthread_mutex_lock(&s->lock);
		any = s != self && s->leaving &&
		      (!s->peers || now_ms < s->leaving_since_ms + SODA_DPU_LEAVING_MS);
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&all->lock);
	return any;
}

bool soda_sessions_await_leaving(struct soda_session *self, uint64_t before)
{
	uint64_t end_ms = soda_dpu_now_ms() + SODA_DPU_LEAVING_MS, ended;

	while (any_leaves(self, &ended) && soda_dpu_now_ms() < end_ms)
		poll(NULL, 0, SODA_DPU_LEAVING_LOOK_MS);
	return ended != before;
}

struct soda_region *soda_session_region_locked(struct soda_session *s, uint16_t id)
{
	return s->regions[id];
}

/* A prefetch worker may have it still; nobody finds it any more. */
static void await_let_go(struct soda_session *s, struct soda_region *r)
{
	struct soda_wait wait;

	soda_wait_begin(&wait, "a region of a client that the server has forgotten");
	pthread_mutex_lock(&s->lock);
	while (r->holds)
		soda_wait_turn(&wait, &s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	soda_wait_end(&wait);
}

void soda_session_forget_regions(struct soda_session *s)
{
	for (unsigned id = 0; id < s->regions_end; id++) {
		struct soda_region *r = s->regions[id];

		if (!r)
			continue;
		pthread_mutex_lock(&s->lock);
		s->regions[id] = NULL;
		s->untold -= soda_region_untold_locked(s, r);
		if (s->said.region == r)
			s->said.region = NULL;
		pthread_mutex_unlock(&s->lock);
		soda_caches_close(s, r);
		await_let_go(s, r);
		soda_caches_free(s, r);
		soda_conn_unmap_region(&r->mr);
		free(r);
	}
}
