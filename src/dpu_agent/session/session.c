/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * HELLOs, and the clients' connections.  session_table.c has the table, keeper.c the ends of
 * sessions.
 */
#include "dpu_agent/session/session.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/base/counters.h"
#include "trust/identity.h"

static void refuse(struct soda_why *why, const char *text)
{
	snprintf(why->text, sizeof(why->text), "%s", text);
}

/*
 * Whether a connection of this epoch may join. One that has joined is closed when a newer epoch
 * comes.
 */
static int may_join_locked(const struct soda_session *s, bool control, uint64_t epoch,
			   struct soda_why *why)
{
	if (!control && (s->epoch != epoch || !s->up || s->leaving)) {
		refuse(why, "a data connection must carry the epoch of the control connection");
		return -ESTALE;
	}
	if (s->epoch != epoch) {
		refuse(why, "overtaken by a newer connection of this client");
		return -ESTALE;
	}
	if (s->removed) {
		refuse(why, "this tenant has been removed");
		return -EACCES;
	}
	if (s->peers_n >= SODA_SESSION_PEERS || s->dead) {
		refuse(why, "this client has too many connections");
		return -EBUSY;
	}
	return 0;
}

static int add_peer(struct soda_session *s, struct soda_peer *peer, bool control, uint64_t epoch,
		    struct soda_why *why)
{
	struct soda_session_peer *entry = calloc(1, sizeof(*entry));
	int ret = entry ? 0 : -ENOMEM;

	if (ret < 0)
		return ret;
	entry->peer = peer;
	entry->control = control;
	pthread_mutex_lock(&s->lock);
	ret = may_join_locked(s, control, epoch, why);
	if (ret == 0) {
		entry->next = s->peers;
		s->peers = entry;
		s->peers_n++;
		s->joined += control;
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
	struct soda_sessions *all = s->all;
	struct soda_wait wait;
	bool last;

	soda_wait_begin(&wait, "those who still use a client's connection that has ended");
	pthread_mutex_lock(&s->lock);
	for (entry = s->peers; entry->peer != peer;)
		entry = entry->next;
	while (entry->pins)
		soda_wait_turn(&wait, &s->changed, &s->lock);
	/* the list may have changed while the lock was free */
	for (at = &s->peers; *at != entry;)
		at = &(*at)->next;
	*at = entry->next;
	last = --s->peers_n == 0;
	s->away_since_ms = soda_now_ms();
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	soda_wait_end(&wait);
	free(entry);
	if (last) { /* wake the keeper, which gives the session to its hands */
		pthread_mutex_lock(&all->lock);
		pthread_cond_broadcast(&all->changed);
		pthread_mutex_unlock(&all->lock);
	}
	soda_session_put(s);
}

/* A connection that soda_session_expel() still has to close; closing_too: or wait for. */
static struct soda_session_peer *next_to_go_locked(struct soda_session *s, bool control_stays,
						   bool closing_too)
{
	struct soda_session_peer *at = s->peers;

	while (at && ((at->control && control_stays) || (at->closing && !closing_too)))
		at = at->next;
	return at;
}

/* Whether another thread is about to close a connection that has to go. */
static bool is_closing_one_locked(const struct soda_session *s)
{
	const struct soda_session_peer *at = s->peers;

	while (at && !(at->closing && at->pins))
		at = at->next;
	return at;
}

void soda_session_expel(struct soda_session *s, bool control_stays, bool await)
{
	struct soda_session_peer *entry;
	struct soda_wait wait;

	soda_wait_begin(&wait, "a client's connections to end");
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
	/* nobody is answered any more once this returns, whichever thread closes the connections */
	while (is_closing_one_locked(s))
		soda_wait_turn(&wait, &s->changed, &s->lock);
	while (await && next_to_go_locked(s, control_stays, true))
		soda_wait_turn(&wait, &s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	soda_wait_end(&wait);
}

bool soda_session_ends_locked(const struct soda_session *s, const struct soda_peer *peer)
{
	bool ends = true, attended = false;

	for (const struct soda_session_peer *at = s->peers; at; at = at->next) {
		attended = attended || (at->control && !at->closing);
		if (at->peer == peer)
			ends = at->closing;
	}
	return ends || !attended;
}

void soda_session_break(struct soda_session *s, int err)
{
	struct soda_sessions *all = s->all;
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
				 (unsigned long long)s->id, soda_session_server(s),
				 soda_strerror(err));
	}
	pthread_mutex_lock(&all->lock);
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
}

/* Tenants */

/* The next session of the tenant that has not been told, with a reference; NULL: there is none. */
static struct soda_session *next_to_end(struct soda_sessions *all, const struct soda_tenant *tenant)
{
	struct soda_session *s;

	pthread_mutex_lock(&all->lock);
	for (s = all->list; s; s = s->next) {
		bool told;

		if (s->tenant != tenant)
			continue;
		pthread_mutex_lock(&s->lock);
		told = s->removed;
		s->removed = true;
		pthread_mutex_unlock(&s->lock);
		if (!told)
			break;
	}
	if (s)
		soda_session_ref(s);
	pthread_mutex_unlock(&all->lock);
	return s;
}

/* To services it is as if each client had said BYE. */
void soda_sessions_end_tenant(struct soda_sessions *all, struct soda_tenant *tenant)
{
	struct soda_session *s;

	while ((s = next_to_end(all, tenant))) {
		pthread_mutex_lock(&s->lock);
		if (!s->leaving)
			s->leaving_since_ms = soda_now_ms();
		s->leaving = true;
		pthread_mutex_unlock(&s->lock);
		soda_session_expel(s, false, false);
		soda_session_put(s);
	}
}

/* As far as this machine knows. */
static bool process_ended(const struct soda_peer_info *info)
{
	return info->local && info->pid > 0 && kill(info->pid, 0) && errno == ESRCH;
}

bool soda_session_awaits(struct soda_session *s)
{
	const struct soda_identity *own = soda_session_place(s)->identity;
	bool awaits;

	if ((!s->tenant && !(own && own->proves)) || s->tool || process_ended(&s->info))
		return false;
	pthread_mutex_lock(&s->all->lock);
	awaits = !s->all->draining;
	pthread_mutex_unlock(&s->all->lock);
	pthread_mutex_lock(&s->lock);
	awaits = awaits && !s->leaving && soda_now_ms() < s->away_since_ms + s->all->opt->grace_ms;
	pthread_mutex_unlock(&s->lock);
	return awaits;
}

static bool shows_token(const struct soda_wire_hello *hello, const struct soda_peer_info *info)
{
	return info->proved && hello->features & SODA_FEATURE_TOKEN;
}

/*
 * Whether the HELLO is of the process that this client is.  Without tenants the secret says so,
 * which the server has given to the client.
 */
static int prove_client(struct soda_session *s, const struct soda_wire_hello *hello,
			const struct soda_peer_info *info, struct soda_why *why)
{
	uint8_t key[SODA_KEY_BYTES];
	int ret;

	if (!info->proved && s->secret != hello->secret) {
		refuse(why, "wrong secret for this client id");
		return -ESTALE;
	}
	if (!info->proved)
		return 0;
	if (shows_token(hello, info)) {
		pthread_mutex_lock(&s->lock);
		ret = soda_tenant_adopts(s->tenant, &s->tokens, hello, info->proved, why);
		pthread_mutex_unlock(&s->lock);
		return ret;
	}
	pthread_mutex_lock(&s->lock);
	memcpy(key, s->key, sizeof(key));
	pthread_mutex_unlock(&s->lock);
	ret = soda_tenant_owns(s->tenant, key, info->proved, why);
	soda_wipe(key, sizeof(key));
	return ret;
}

/*
 * A client that had its regions by an agent before this one shows its token: we become that client
 * on the server by it, if the server takes it.
 */
static int take_token(struct soda_session *s, const struct soda_peer_info *info)
{
	uint8_t token[SODA_WIRE_TOKEN_BYTES];
	int ret;

	memcpy(token, info->proved->session, sizeof(token));
	ret = soda_token_show(token, info->proved->key);
	/* the server says whether it is valid; a client without the answer shows it here again,
	   however long that takes, until it holds the next one */
	soda_tokens_note(&s->tokens, 0, UINT32_MAX, soda_now_ms(), UINT32_MAX, token);
	soda_wipe(token, sizeof(token));
	s->adopts = true;
	return ret;
}

/*
 * The client is a new one, or is told another id, or has shown a token: its key is this
 * connection's from now on.
 */
static int take_key(struct soda_session *s, const struct soda_wire_hello *hello,
		    const struct soda_peer_info *info, const struct soda_wire_welcome *welcome)
{
	uint8_t key[SODA_KEY_BYTES];
	int ret;

	if (!info->proved || (welcome->known && !shows_token(hello, info)))
		return 0;
	ret = soda_client_key(info->proved->key, key);
	if (ret < 0)
		return ret;
	pthread_mutex_lock(&s->lock);
	memcpy(s->key, key, sizeof(key));
	if (!welcome->known)
		soda_wipe(&s->tokens, sizeof(s->tokens)); /* of the client that it was */
	pthread_mutex_unlock(&s->lock);
	soda_wipe(key, sizeof(key));
	return 0;
}

/* HELLO */

static int check_hello(const struct soda_sessions *all, const struct soda_wire_hello *hello,
		       const struct soda_peer_info *info, struct soda_why *why)
{
	if (info->proved) {
		int ret = soda_tenant_admit(all->tenants, info->proved->tenant, hello, info, why);

		if (ret < 0)
			return ret;
	}
	if (hello->epoch > UINT64_MAX >> SODA_AGENT_EPOCH_SHIFT) {
		snprintf(why->text, sizeof(why->text),
			 "epoch %llu: nobody reconnects as often as that, and it leaves no room for"
			 " the agent's own reconnections",
			 (unsigned long long)hello->epoch);
		return -EINVAL;
	}
	if (soda_wire_agents(hello) >= SODA_AGENTS_MAX) {
		snprintf(why->text, sizeof(why->text),
			 "%u agents stand before this one, and %d are the most: the second one's"
			 " --server must be a memory server (is this a circle?)",
			 soda_wire_agents(hello), SODA_AGENTS_MAX);
		return -EINVAL;
	}
	if (soda_wire_agents(hello) && info->local) {
		refuse(why, "an agent uses another one by tcp or verbs, not by shm: let this one"
			    " --listen on tcp://..., and name that in the other one's --server");
		return -ENOTSUP;
	}
	if (!info->local || info->uid == geteuid() || !info->uid || all->opt->daemon.allow_other)
		return 0;
	snprintf(why->text, sizeof(why->text),
		 "this agent serves user %u only (and root): start it with --allow-other for user"
		 " %u",
		 (unsigned)geteuid(), (unsigned)info->uid);
	return -EPERM;
}

uint32_t soda_session_agent_locked(const struct soda_session *s)
{
	return (s->agent & ~(soda_session_late_locked(s) ? SODA_WIRE_AGENT_EARLY : 0u)) | s->shows;
}

/*
 * Complete the answer to a HELLO, in which services have filled in their part. s->life is held, so
 * that soda_session_bury() has given s->agent another number before, or does so after this HELLO.
 */
static void welcome_client(struct soda_session *s, uint32_t max_data,
			   struct soda_wire_welcome *welcome)
{
	welcome->version = SODA_WIRE_VERSION;
	if (s->tenant)
		welcome->secret = 0; /* the server's, for the agent alone */
	if (max_data < welcome->max_data || !welcome->max_data)
		welcome->max_data = max_data;
	pthread_mutex_lock(&s->lock);
	welcome->agent = soda_session_agent_locked(s);
	pthread_mutex_unlock(&s->lock);
}

/*
 * The server may have given the client another id and secret: paging has put them into the welcome.
 */
static void take_name(struct soda_session *s, const struct soda_wire_welcome *welcome)
{
	pthread_mutex_lock(&s->all->lock);
	s->id = welcome->client_id;
	s->secret = welcome->secret;
	pthread_mutex_unlock(&s->all->lock);
}

/* A client that names a member has others, whatever this agent's list is now. */
static bool is_of_pool(const struct soda_session *s, const struct soda_wire_hello *hello)
{
	return soda_session_member(s) || soda_wire_member_tag(hello);
}

/* What another agent says of itself that stands before us. */
static void take_agent(struct soda_session *s, const struct soda_wire_hello *hello)
{
	s->by_agent = soda_wire_agents(hello);
	s->sealed = s->by_agent && hello->features & SODA_FEATURE_SEALING;
}

/* The member of our server's pool that the HELLO names, if it names one. */
static void take_member(struct soda_session *s, const struct soda_wire_hello *hello)
{
	uint16_t tag = soda_wire_member_tag(hello);

	if (tag && !s->all->servers.pool)
		atomic_store(&s->member, tag);
}

/* Check the epoch of a HELLO, make it the session's, and close the older connections. */
static int take_over(struct soda_session *s, const struct soda_wire_hello *hello,
		     struct soda_why *why)
{
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (hello->epoch <= s->epoch || s->leaving) {
		refuse(why, s->leaving ? "this client has said goodbye"
				       : "old epoch: a newer connection of this client exists");
		ret = -ESTALE;
	} else if (hello->epoch - s->epoch >
		   SODA_EPOCH_STEP_MAX << SODA_AGENT_EPOCH_SHIFT * soda_wire_agents(hello)) {
		snprintf(why->text, sizeof(why->text),
			 "epoch %llu after %llu: nobody reconnects as often as that, and the client"
			 " itself could not come back after it",
			 (unsigned long long)hello->epoch, (unsigned long long)s->epoch);
		ret = -EINVAL;
	} else {
		s->epoch = hello->epoch;
		take_agent(s, hello);
		s->of_pool = is_of_pool(s, hello);
	}
	pthread_mutex_unlock(&s->lock);
	if (ret == 0)
		soda_session_expel(s, false, true);
	return ret;
}

int soda_session_no_member(const struct soda_sessions *all, struct soda_why *why)
{
	refuse(why, all->opt->registered
			    ? "this agent's pool has no such member: it is not registered"
			    : "this agent's pool (--server) has no such member: start it "
			      "with the servers that its programs use");
	return -EINVAL;
}

/* Its user is the caller then. */
static int take_server(struct soda_sessions *all, const struct soda_wire_hello *hello,
		       struct soda_dpu_server **server_p, struct soda_why *why)
{
	*server_p = soda_dpu_servers_take(&all->servers, soda_wire_member_tag(hello));
	return *server_p ? 0 : soda_session_no_member(all, why);
}

/*
 * A client that comes back means the server that its session is for, and names none where it has
 * not learned yet that there are several; or it has found it at another address.  *to_p: that one,
 * taken; NULL: it has not moved.
 */
static int find_moved(struct soda_session *s, const struct soda_wire_hello *hello,
		      struct soda_dpu_server **to_p, struct soda_why *why)
{
	uint16_t tag = soda_wire_member_tag(hello);

	*to_p = NULL;
	if (!tag || tag == soda_session_member(s))
		return 0;
	return take_server(s->all, hello, to_p, why);
}

/*
 * The session begins anew with what this HELLO says.  False: a newer one has come.  to: as of
 * find_moved(); it is the session's, or is put back.
 */
static bool begin_again(struct soda_session *s, const struct soda_wire_hello *hello,
			struct soda_dpu_server *to)
{
	bool ours, up;

	pthread_mutex_lock(&s->lock);
	ours = s->epoch == hello->epoch;
	if (ours && to)
		s->up = false;
	up = s->up;
	pthread_mutex_unlock(&s->lock);
	if (ours && !up)
		soda_services_broken(s);
	if (ours && to) {
		take_member(s, hello);
		soda_session_move(s, to);
	} else if (to) {
		soda_dpu_servers_put(&s->all->servers, to);
	}
	return ours;
}

/* HELLO of a client that has a session: its older connections are closed first. */
static int hello_again(struct soda_session *s, struct soda_peer *peer,
		       const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		       struct soda_wire_welcome *welcome, struct soda_why *why)
{
	struct soda_dpu_server *to;
	uint32_t max_data = welcome->max_data;
	int ret = find_moved(s, hello, &to, why);

	if (ret < 0)
		return ret;
	ret = take_over(s, hello, why);
	if (ret < 0) {
		if (to)
			soda_dpu_servers_put(&s->all->servers, to);
		return ret;
	}
	pthread_mutex_lock(&s->life);
	if (!begin_again(s, hello, to)) {
		refuse(why, "overtaken by a newer connection of this client");
		ret = -ESTALE;
	}
	*welcome = (struct soda_wire_welcome){ .max_data = max_data };
	if (ret == 0)
		ret = soda_services_connected(s, hello, info, welcome, why);
	if (ret == 0)
		ret = take_key(s, hello, info, welcome);
	if (ret == 0) {
		take_name(s, welcome);
		ret = add_peer(s, peer, true, hello->epoch, why);
		welcome_client(s, max_data, welcome);
	}
	pthread_mutex_unlock(&s->life);
	return ret;
}

/* A session with the server that the HELLO means. A tool means none. */
static int create(struct soda_sessions *all, const struct soda_wire_hello *hello,
		  const struct soda_peer_info *info, struct soda_session **s_p,
		  struct soda_why *why)
{
	struct soda_dpu_server *server;
	int ret = take_server(all, hello, &server, why);

	if (ret < 0)
		return ret;
	*s_p = soda_session_create(all, server, info);
	if (!*s_p)
		soda_dpu_servers_put(&all->servers, server);
	return *s_p ? 0 : -ENOMEM;
}

static int hello_new(struct soda_sessions *all, struct soda_peer *peer,
		     const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		     struct soda_wire_welcome *welcome, struct soda_session **s_p,
		     struct soda_why *why)
{
	uint32_t max_data = welcome->max_data;
	struct soda_session *s;
	int ret = create(all, hello, info, &s, why);

	if (ret < 0)
		return ret;
	s->tool = !hello->chunk_bytes && !hello->client_id;
	s->epoch = hello->epoch;
	take_agent(s, hello);
	take_member(s, hello);
	s->of_pool = is_of_pool(s, hello);
	s->busy = 1; /* so that the keeper does not take it for a session without a client */
	*welcome = (struct soda_wire_welcome){ .max_data = max_data };
	pthread_mutex_lock(&s->life);
	ret = soda_session_await_place(s, why);
	if (ret == 0 && hello->client_id && shows_token(hello, info))
		ret = take_token(s, info);
	if (ret == 0)
		ret = soda_services_connected(s, hello, info, welcome, why);
	if (ret == 0)
		ret = take_key(s, hello, info, welcome);
	if (ret == 0) {
		take_name(s, welcome);
		ret = soda_session_insert(s, why);
	}
	if (ret == 0)
		ret = add_peer(s, peer, true, hello->epoch, why);
	if (ret == 0)
		welcome_client(s, max_data, welcome);
	else
		soda_services_broken(s);
	pthread_mutex_unlock(&s->life);
	*s_p = s; /* still busy, and with our reference */
	return ret;
}

/* Whether the server is to say whether a client that has no session here is this process's. */
static bool may_adopt(const struct soda_sessions *all, const struct soda_wire_hello *hello,
		      const struct soda_peer_info *info)
{
	return shows_token(hello, info) && all->servers.proves;
}

static int hello_control(struct soda_sessions *all, struct soda_peer *peer,
			 const struct soda_wire_hello *hello, const struct soda_peer_info *info,
			 struct soda_wire_welcome *welcome, void **client_p, struct soda_why *why)
{
	struct soda_adoption adoption;
	struct soda_session *s = NULL;
	bool again = false, adopts;
	int ret;

	if (hello->client_id)
		s = soda_session_find(all, hello->client_id);
	adopts = !s && hello->client_id && may_adopt(all, hello, info);
	if (adopts) { /* that before this one may have made the session */
		soda_adoption_begin(all, &adoption, info->proved->tenant, hello->client_id);
		s = soda_session_find(all, hello->client_id);
	}
	if (s) {
		ret = prove_client(s, hello, info, why);
		again = ret == 0;
		if (again)
			ret = hello_again(s, peer, hello, info, welcome, why);
	} else if (info->proved && hello->client_id && !adopts) {
		/* who could say whether it is this process's, and this tenant's? */
		refuse(why, "this agent does not know the client any more");
		ret = -ESTALE;
	} else {
		ret = hello_new(all, peer, hello, info, welcome, &s, why);
	}
	if (adopts)
		soda_adoption_end(all, &adoption);
	if (s) {
		*client_p = s;
		soda_session_unbusy(s);
	}
	if (ret < 0)
		return ret;
	again = again || welcome->known;
	soda_count_add(again ? SODA_COUNT_clients_returned : SODA_COUNT_clients_opened, 1);
	if (s->tenant)
		soda_log_info("client %016llx (%s) of tenant %s %s",
			      (unsigned long long)welcome->client_id, info->address,
			      s->tenant->name,
			      !again			 ? "is new"
			      : shows_token(hello, info) ? "is back, by its token"
							 : "is back");
	return 0;
}

static int hello_data(struct soda_sessions *all, struct soda_peer *peer,
		      const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		      struct soda_wire_welcome *welcome, void **client_p, struct soda_why *why)
{
	struct soda_session *s = soda_session_find(all, hello->client_id);
	int ret = -ESTALE;

	if (!s) {
		refuse(why, "a data connection of an unknown client");
		return ret;
	}
	ret = prove_client(s, hello, info, why);
	if (ret == 0)
		ret = add_peer(s, peer, false, hello->epoch, why);
	if (ret == 0) {
		welcome->client_id = s->id;
		welcome->secret = s->tenant ? 0 : s->secret;
		welcome->known = 1;
		pthread_mutex_lock(&s->lock);
		welcome->agent = soda_session_agent_locked(s);
		pthread_mutex_unlock(&s->lock);
		*client_p = s;
	}
	soda_session_unbusy(s);
	return ret;
}

int soda_session_hello(struct soda_sessions *all, struct soda_peer *peer,
		       const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		       struct soda_wire_welcome *welcome, void **client_p, struct soda_why *why)
{
	int ret = check_hello(all, hello, info, why);

	if (ret < 0)
		return ret;
	if (hello->kind == SODA_CONN_DATA)
		return hello_data(all, peer, hello, info, welcome, client_p, why);
	return hello_control(all, peer, hello, info, welcome, client_p, why);
}
