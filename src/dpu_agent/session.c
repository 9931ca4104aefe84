/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is connected.  Memory and the table are in session_table.c, ends in keeper.c. */
#include "dpu_agent/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/log.h"
#include "dpu_agent/agent.h"
#include "dpu_agent/counters.h"
#include "dpu_agent/upstream.h"

static void refuse(struct soda_why *why, const char *text)
{
	snprintf(why->text, sizeof(why->text), "%s", text);
}

static int add_peer(struct soda_session *s, struct soda_peer *peer, bool control,
		    struct soda_why *why)
{
	struct soda_session_peer *entry = calloc(1, sizeof(*entry));
	int ret = entry ? 0 : -ENOMEM;

	if (ret < 0)
		return ret;
	entry->peer = peer;
	entry->control = control;
	pthread_mutex_lock(&s->lock);
	if (s->peers_n >= SODA_SESSION_PEERS || s->dead) {
		refuse(why, "this client has too many connections");
		ret = -EBUSY;
	} else {
		entry->next = s->peers;
		s->peers = entry;
		s->peers_n++;
		soda_session_ref(s);
	}
	pthread_mutex_unlock(&s->lock);
	if (ret < 0)
		free(entry);
	return ret;
}

void soda_session_gone(struct soda_session *s, struct soda_peer *peer)
{
	struct soda_session_peer **at, *entry;
	struct soda_sessions *all = &s->dpu->sessions;
	bool last;

	pthread_mutex_lock(&s->lock);
	for (entry = s->peers; entry->peer != peer;)
		entry = entry->next;
	while (entry->pins)
		pthread_cond_wait(&s->changed, &s->lock);
	/* the list may have changed while the lock was free */
	for (at = &s->peers; *at != entry;)
		at = &(*at)->next;
	*at = entry->next;
	last = --s->peers_n == 0;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	free(entry);
	if (last) { /* for the keeper */
		pthread_mutex_lock(&all->lock);
		pthread_cond_broadcast(&all->changed);
		pthread_mutex_unlock(&all->lock);
	}
	soda_session_put(s);
}

static struct soda_session_peer *next_to_go_locked(struct soda_session *s, bool control_stays,
						   bool closing_too)
{
	struct soda_session_peer *at = s->peers;

	while (at && ((at->control && control_stays) || (at->closing && !closing_too)))
		at = at->next;
	return at;
}

void soda_session_expel(struct soda_session *s, bool control_stays, bool await)
{
	struct soda_session_peer *entry;

	pthread_mutex_lock(&s->lock);
	while ((entry = next_to_go_locked(s, control_stays, false))) {
		entry->closing = true;
		entry->pins++;
		pthread_mutex_unlock(&s->lock);
		soda_peer_close(entry->peer);
		pthread_mutex_lock(&s->lock);
		entry->pins--;
		pthread_cond_broadcast(&s->changed);
	}
	while (await && next_to_go_locked(s, control_stays, true))
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

void soda_session_break(struct soda_session *s, int err)
{
	struct soda_sessions *all = &s->dpu->sessions;
	bool first, left;

	pthread_mutex_lock(&s->lock);
	left = s->left;
	first = s->up && !s->broken;
	s->broken = s->broken || first;
	s->up = false;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	if (!first)
		return;
	if (!left) {
		soda_count_add(SODA_COUNT_upstream_failures, 1);
		soda_log_warning("client %016llx: lost its connections to %s: %s",
				 (unsigned long long)s->id, s->dpu->opt->server,
				 soda_strerror(err));
	}
	pthread_mutex_lock(&all->lock);
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
}

/* HELLO */

static int check_hello(const struct soda_dpu *dpu, const struct soda_peer_info *info,
		       struct soda_why *why)
{
	if (!info->local || info->uid == geteuid() || !info->uid || dpu->opt->allow_other)
		return 0;
	snprintf(why->text, sizeof(why->text),
		 "this agent serves user %u only (and root): start it with --allow-other for user"
		 " %u",
		 (unsigned)geteuid(), (unsigned)info->uid);
	return -EPERM;
}

static void welcome_client(const struct soda_session *s, bool known,
			   struct soda_wire_welcome *welcome)
{
	uint32_t max_data = welcome->max_data;

	*welcome = s->welcome;
	welcome->version = SODA_WIRE_VERSION;
	if (max_data < welcome->max_data || !welcome->max_data)
		welcome->max_data = max_data;
	welcome->known = known;
	welcome->agent = s->dpu->id;
}

/* Who the server is to think that it speaks with. */
static void introduce(struct soda_session *s, const struct soda_wire_hello *hello,
		      const struct soda_peer_info *info)
{
	uint64_t id = s->hello.client_id, secret = s->hello.secret;

	s->hello = *hello;
	s->hello.magic = SODA_WIRE_MAGIC;
	if (id) {
		s->hello.client_id = id;
		s->hello.secret = secret;
	}
	if (info->local) {
		s->hello.uid = info->uid;
		s->hello.gid = info->gid;
		s->hello.pid = (uint32_t)info->pid;
	}
	s->bumps = 0;
}

/* The server may have made another client of it. */
static void take_name(struct soda_session *s)
{
	pthread_mutex_lock(&s->dpu->sessions.lock);
	s->id = s->welcome.client_id;
	s->secret = s->welcome.secret;
	pthread_mutex_unlock(&s->dpu->sessions.lock);
}

static int take_over(struct soda_session *s, const struct soda_wire_hello *hello,
		     struct soda_why *why)
{
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (hello->epoch <= s->epoch || s->leaving) {
		refuse(why, s->leaving ? "this client has said goodbye"
				       : "old epoch: a newer connection of this client exists");
		ret = -ESTALE;
	} else {
		s->epoch = hello->epoch;
	}
	pthread_mutex_unlock(&s->lock);
	if (ret == 0)
		soda_session_expel(s, false, true);
	return ret;
}

/* A client whose session is here: its older connections go first. */
static int hello_again(struct soda_session *s, struct soda_peer *peer,
		       const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		       struct soda_wire_welcome *welcome, struct soda_why *why)
{
	bool up, known = true;
	int ret = take_over(s, hello, why);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&s->life);
	pthread_mutex_lock(&s->lock);
	up = s->up;
	if (s->epoch != hello->epoch) {
		refuse(why, "overtaken by a newer connection of this client");
		ret = -ESTALE;
	}
	pthread_mutex_unlock(&s->lock);
	if (ret == 0 && !up) {
		soda_upstream_disconnect(s);
		introduce(s, hello, info);
		ret = soda_upstream_connect(s, why);
		known = s->welcome.known;
	}
	if (ret == 0) {
		take_name(s);
		ret = add_peer(s, peer, true, why);
		welcome_client(s, known, welcome);
	}
	pthread_mutex_unlock(&s->life);
	return ret;
}

static int hello_new(struct soda_dpu *dpu, struct soda_peer *peer,
		     const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		     struct soda_wire_welcome *welcome, struct soda_session **s_p,
		     struct soda_why *why)
{
	struct soda_session *s = soda_session_create(dpu, info);
	int ret = 0;

	if (!s)
		return -ENOMEM;
	s->tool = !hello->chunk_bytes && !hello->client_id;
	s->epoch = hello->epoch;
	s->busy = 1; /* the keeper is not to take it for one that was left */
	pthread_mutex_lock(&s->life);
	if (!s->tool) {
		introduce(s, hello, info);
		ret = soda_upstream_connect(s, why);
	}
	if (ret == 0) {
		take_name(s);
		ret = soda_session_insert(s, why);
	}
	if (ret == 0)
		ret = add_peer(s, peer, true, why);
	if (ret == 0)
		welcome_client(s, s->welcome.known, welcome);
	else
		soda_upstream_disconnect(s);
	pthread_mutex_unlock(&s->life);
	*s_p = s; /* busy, with our reference */
	return ret;
}

static int hello_control(struct soda_dpu *dpu, struct soda_peer *peer,
			 const struct soda_wire_hello *hello, const struct soda_peer_info *info,
			 struct soda_wire_welcome *welcome, void **client_p, struct soda_why *why)
{
	struct soda_session *s = NULL;
	bool again = false;
	int ret;

	if (hello->client_id)
		s = soda_session_find(dpu, hello->client_id);
	if (s && s->secret != hello->secret) {
		refuse(why, "wrong secret for this client id");
		ret = -ESTALE;
	} else if (s) {
		again = true;
		ret = hello_again(s, peer, hello, info, welcome, why);
	} else {
		ret = hello_new(dpu, peer, hello, info, welcome, &s, why);
	}
	if (s) {
		*client_p = s;
		soda_session_unbusy(s);
	}
	if (ret == 0)
		soda_count_add(again || welcome->known ? SODA_COUNT_clients_returned
						       : SODA_COUNT_clients_opened,
			       1);
	return ret;
}

static int hello_data(struct soda_dpu *dpu, struct soda_peer *peer,
		      const struct soda_wire_hello *hello, struct soda_wire_welcome *welcome,
		      void **client_p, struct soda_why *why)
{
	struct soda_session *s = soda_session_find(dpu, hello->client_id);
	int ret = -ESTALE;
	bool fits;

	if (!s) {
		refuse(why, "a data connection of an unknown client");
		return ret;
	}
	pthread_mutex_lock(&s->lock);
	fits = s->epoch == hello->epoch && s->up && !s->leaving;
	pthread_mutex_unlock(&s->lock);
	if (s->secret != hello->secret)
		refuse(why, "wrong secret for this client id");
	else if (!fits)
		refuse(why, "a data connection must carry the epoch of the control connection");
	else
		ret = add_peer(s, peer, false, why);
	if (ret == 0) {
		welcome->client_id = s->id;
		welcome->secret = s->secret;
		welcome->known = 1;
		welcome->agent = dpu->id;
		*client_p = s;
	}
	soda_session_unbusy(s);
	return ret;
}

int soda_session_hello(struct soda_dpu *dpu, struct soda_peer *peer,
		       const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		       struct soda_wire_welcome *welcome, void **client_p, struct soda_why *why)
{
	int ret = check_hello(dpu, info, why);

	if (ret < 0)
		return ret;
	if (hello->kind == SODA_CONN_DATA)
		return hello_data(dpu, peer, hello, welcome, client_p, why);
	return hello_control(dpu, peer, hello, info, welcome, client_p, why);
}
