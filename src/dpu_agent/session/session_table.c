/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of sessions, references to them, the table of them; and clients that have lost data. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/session/session.h"

struct soda_session *soda_session_create(struct soda_sessions *all, struct soda_dpu_server *server,
					 const struct soda_peer_info *info)
{
	struct soda_session *s = soda_secret_map(sizeof(*s) + all->services.state_bytes);

	if (!s)
		return NULL;
	soda_secret_lock(s->key, sizeof(s->key));
	s->all = all;
	atomic_init(&s->server, server);
	s->info = *info;
	s->info.proved = NULL; /* the transport's, until its welcome */
	if (info->proved) {
		s->tenant = info->proved->tenant;
		s->info.tenant = s->tenant->number;
	}
	s->refs = 1;
	pthread_mutex_init(&s->life, NULL);
	pthread_mutex_init(&s->lock, NULL);
	soda_cond_init(&s->changed);
	if (soda_services_created(s) == 0)
		return s;
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->life);
	soda_secret_free(s, sizeof(*s) + all->services.state_bytes);
	return NULL;
}

void soda_session_move(struct soda_session *s, struct soda_dpu_server *server)
{
	struct soda_dpu_server **at = &s->before[s->moves++ % SODA_SESSION_MOVES];

	if (*at)
		soda_dpu_servers_put(&s->all->servers, *at);
	*at = atomic_exchange(&s->server, server);
}

void soda_session_put(struct soda_session *s)
{
	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	soda_services_destroyed(s);
	soda_dpu_servers_put(&s->all->servers, soda_session_place(s));
	for (unsigned i = 0; i < SODA_SESSION_MOVES && s->before[i]; i++)
		soda_dpu_servers_put(&s->all->servers, s->before[i]);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->life);
	soda_secret_free(s, sizeof(*s) + s->all->services.state_bytes);
}

struct soda_session *soda_session_look(struct soda_sessions *all, uint64_t id)
{
	struct soda_session *s;

	pthread_mutex_lock(&all->lock);
	for (s = all->list; s && (s->tool || s->id != id);)
		s = s->next;
	if (s)
		soda_session_ref(s);
	pthread_mutex_unlock(&all->lock);
	return s;
}

struct soda_session *soda_session_find(struct soda_sessions *all, uint64_t id)
{
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
	struct soda_sessions *all = s->all;

	pthread_mutex_lock(&s->lock);
	s->busy--;
	pthread_mutex_unlock(&s->lock);
	soda_session_put(s);
	pthread_mutex_lock(&all->lock);
	pthread_cond_broadcast(&all->changed); /* the keeper skips sessions that are busy */
	pthread_mutex_unlock(&all->lock);
}

static bool is_there_locked(const struct soda_sessions *all, const struct soda_session *s)
{
	for (const struct soda_session *at = all->list; at; at = at->next)
		if (!s->tool && !at->tool && at->id == s->id)
			return true;
	return false;
}

/* Adoptions */

static bool is_adopted_locked(const struct soda_sessions *all, const struct soda_adoption *a)
{
	const struct soda_adoption *at = all->adoptions;

	while (at && (at->tenant != a->tenant || at->client_id != a->client_id))
		at = at->next;
	return at;
}

void soda_adoption_begin(struct soda_sessions *all, struct soda_adoption *a,
			 const struct soda_tenant *tenant, uint64_t client_id)
{
	struct soda_wait wait;

	*a = (struct soda_adoption){ .tenant = tenant, .client_id = client_id };
	soda_wait_begin(&wait, "an earlier HELLO by the same token to end");
	pthread_mutex_lock(&all->lock);
	while (is_adopted_locked(all, a))
		soda_wait_turn(&wait, &all->changed, &all->lock);
	a->next = all->adoptions;
	all->adoptions = a;
	pthread_mutex_unlock(&all->lock);
	soda_wait_end(&wait);
}

void soda_adoption_end(struct soda_sessions *all, struct soda_adoption *a)
{
	struct soda_adoption **at = &all->adoptions;

	pthread_mutex_lock(&all->lock);
	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
}

/* Losses */

/* A number of the agent that no client has been told yet; its bits that are flags stay. */
static uint32_t new_number_locked(struct soda_sessions *all)
{
	const uint32_t flags = SODA_WIRE_AGENT_FLAGS;

	do
		all->newest += flags + 1;
	while (!(all->newest & ~flags));
	return all->newest;
}

/* The agent's number for a client. */
static uint32_t number_of_locked(const struct soda_sessions *all, uint64_t client_id)
{
	for (unsigned i = 0; i < all->losses_n; i++)
		if (all->losses[i].client_id == client_id)
			return all->losses[i].agent;
	return all->agent;
}

/*
 * The list of losses is full: forget all of them, and give the agent a new number for all clients,
 * so that each client that has no session here takes the agent for another one, also if it has lost
 * nothing. Returns how many losses were forgotten.
 */
static unsigned forget_losses_locked(struct soda_sessions *all)
{
	unsigned n = all->losses_n;

	all->losses_n = 0;
	all->agent = new_number_locked(all);
	return n;
}

/*
 * The client has lost data: give the agent a new number for it. *forgotten_p: losses forgotten for
 * that.
 */
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

/* The caller holds no lock. */
static void tell_forgotten(unsigned n)
{
	if (n)
		soda_log_warning("%u clients have lost data: clients that come back from now on"
				 " take the agent for another one",
				 n);
}

void soda_session_bury(struct soda_session *s)
{
	struct soda_sessions *all = s->all;
	unsigned forgotten;

	pthread_mutex_lock(&all->lock);
	pthread_mutex_lock(&s->lock);
	s->agent = bury_locked(all, s->id, &forgotten);
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_unlock(&all->lock);
	tell_forgotten(forgotten);
}

static uint32_t number_of(const struct soda_session *s)
{
	return s->tenant ? s->tenant->number : 0;
}

static void say_full_locked(const struct soda_session *s, struct soda_why *why)
{
	const struct soda_shares *shares = &s->all->shares;
	unsigned max = s->all->opt->daemon.max_clients;

	if (shares->all >= max)
		snprintf(why->text, sizeof(why->text),
			 "the agent has its %u clients (--max-clients)", max);
	else
		snprintf(why->text, sizeof(why->text),
			 "this tenant has %u of the agent's %u clients (--max-clients), and what "
			 "is left is kept for other tenants",
			 (unsigned)soda_shares_of(shares, number_of(s)), max);
}

static int admit_locked(const struct soda_session *s, struct soda_why *why)
{
	struct soda_sessions *all = s->all;
	struct soda_holder holder = soda_tenant_holder(all->tenants, s->tenant);
	unsigned max = all->opt->daemon.max_clients;

	if (all->draining) {
		snprintf(why->text, sizeof(why->text), "the agent is shutting down");
		return -ESHUTDOWN;
	}
	if (!soda_shares_room(&all->shares, max, holder, 1, 0)) {
		say_full_locked(s, why);
		return -EBUSY;
	}
	if (s->tenant && soda_tenant_removed(all->tenants, s->tenant)) {
		/* after its proof; soda_sessions_end_tenant() may not see this session */
		snprintf(why->text, sizeof(why->text), "this tenant has been removed");
		return -EACCES;
	}
	return 0;
}

static int admit(const struct soda_session *s, struct soda_why *why)
{
	int ret;

	pthread_mutex_lock(&s->all->lock);
	ret = admit_locked(s, why);
	pthread_mutex_unlock(&s->all->lock);
	return ret;
}

int soda_session_insert(struct soda_session *s, struct soda_why *why)
{
	struct soda_sessions *all = s->all;
	int ret;

	pthread_mutex_lock(&all->lock);
	ret = admit_locked(s, why);
	if (ret == 0 && is_there_locked(all, s)) {
		snprintf(why->text, sizeof(why->text),
			 "overtaken by another connection of this client");
		ret = -EBUSY;
	} else if (ret == 0) {
		ret = soda_shares_take(&all->shares, number_of(s), 1);
	}
	if (ret == 0) {
		soda_session_ref(s);
		s->agent = number_of_locked(all, s->id);
		s->next = all->list;
		all->list = s;
	}
	pthread_mutex_unlock(&all->lock);
	return ret;
}

bool soda_session_remove(struct soda_session *s)
{
	struct soda_sessions *all = s->all;
	struct soda_session **at = &all->list;
	unsigned forgotten = 0;
	bool idle, untold;

	pthread_mutex_lock(&all->lock);
	pthread_mutex_lock(&s->lock);
	idle = !s->peers && s->busy <= 1 && !s->dead; /* the caller is busy with it */
	s->dead = s->dead || idle;
	untold = s->untold && !s->leaving;
	pthread_mutex_unlock(&s->lock);
	if (idle && untold) { /* the client had no SYNC since the server refused its WRITEs */
		bury_locked(all, s->id, &forgotten);
		all->lost++;
	}
	if (idle) {
		while (*at != s)
			at = &(*at)->next;
		*at = s->next;
		soda_shares_put(&all->shares, number_of(s), 1);
		s->next = all->ends;
		all->ends = s;
		pthread_cond_broadcast(&all->changed);
	}
	pthread_mutex_unlock(&all->lock);
	tell_forgotten(forgotten);
	return idle;
}

void soda_session_ended(struct soda_session *s)
{
	struct soda_sessions *all = s->all;
	struct soda_session **at = &all->ends;

	pthread_mutex_lock(&all->lock);
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
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
 * A client that has said BYE and is still connected after SODA_DPU_LEAVING_MS is not waited for.
 */
static bool leaves_locked(struct soda_session *s, uint64_t now_ms)
{
	bool leaves;

	pthread_mutex_lock(&s->lock);
	leaves = s->leaving && (!s->peers || now_ms < s->leaving_since_ms + SODA_DPU_LEAVING_MS);
	pthread_mutex_unlock(&s->lock);
	return leaves;
}

/* Whether a client is leaving, whose place is there soon. */
static bool any_place_comes(struct soda_sessions *all)
{
	uint64_t now_ms = soda_now_ms();
	bool any = false;

	pthread_mutex_lock(&all->lock);
	for (struct soda_session *s = all->list; s && !any; s = s->next)
		any = leaves_locked(s, now_ms);
	pthread_mutex_unlock(&all->lock);
	return any;
}

int soda_session_await_place(const struct soda_session *s, struct soda_why *why)
{
	uint64_t end_ms = soda_now_ms() + SODA_DPU_LEAVING_MS;
	int ret = admit(s, why);

	while (ret == -EBUSY && any_place_comes(s->all) && soda_now_ms() < end_ms) {
		poll(NULL, 0, SODA_DPU_LEAVING_LOOK_MS);
		ret = admit(s, why);
	}
	return ret;
}

/* Whether another client is leaving the same server; *ended_p: all->ended. */
static bool any_leaves(struct soda_session *self, uint64_t *ended_p)
{
	struct soda_sessions *all = self->all;
	uint64_t now_ms = soda_now_ms();
	bool any = false;

	pthread_mutex_lock(&all->lock);
	*ended_p = all->ended;
	for (struct soda_session *s = all->ends; s && !any; s = s->next)
		any = soda_session_same_server(s, self);
	for (struct soda_session *s = all->list; s && !any; s = s->next)
		any = s != self && soda_session_same_server(s, self) && leaves_locked(s, now_ms);
	pthread_mutex_unlock(&all->lock);
	return any;
}

bool soda_sessions_await_leaving(struct soda_session *self, uint64_t before)
{
	uint64_t end_ms = soda_now_ms() + SODA_DPU_LEAVING_MS, ended;

	while (any_leaves(self, &ended) && soda_now_ms() < end_ms)
		poll(NULL, 0, SODA_DPU_LEAVING_LOOK_MS);
	return ended != before;
}
