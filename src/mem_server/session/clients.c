/* SPDX-License-Identifier: BSD-3-Clause */
/* Clients come and go; ending.c frees them. */
#include "mem_server/session/clients.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "mem_server/base/counters.h"
#include "mem_server/session/ending.h"

#define MAX_PEERS 1024 /* of one client */

/* Whether the kernel says that the peer is another user, whose permissions decide about files. */
static bool is_somebody_else(const struct soda_peer_info *info)
{
	return info->local && info->uid && info->uid != geteuid();
}

/* Not yet in the table. NULL: no memory. */
static struct soda_client *create_client(struct soda_clients *clients,
					 const struct soda_wire_hello *hello,
					 const struct soda_peer_info *info)
{
	struct soda_client *client = soda_secret_new(sizeof(*client));

	if (!client)
		return NULL;
	client->user = (struct soda_file_user){ .uid = info->uid,
						.gid = info->gid,
						.groups = client->info.groups,
						.groups_n = info->groups_n };
	if (soda_region_set_init(&client->regions, clients->pool,
				 is_somebody_else(info) ? &client->user : NULL)) {
		soda_secret_free(client, sizeof(*client));
		return NULL;
	}
	client->all = clients;
	client->id = soda_server_random_id();
	client->secret = info->proved ? 0 : soda_server_random_id();
	client->epoch = hello->epoch;
	client->chunk_bytes = hello->chunk_bytes;
	client->info = *info;
	client->process = -1;
	if (clients->own && info->local && info->pid > 0)
		client->process = (int)syscall(SYS_pidfd_open, info->pid, 0);
	client->info.proved = NULL; /* the transport's, until its welcome */
	client->regions.owner = is_somebody_else(info) ? info->uid : hello->uid;
	if (info->proved) {
		client->tenant = info->proved->tenant;
		client->regions.tenants = clients->tenants;
		client->regions.tenant = client->tenant;
		client->regions.owner |= (uint64_t)client->tenant->number << 32;
		client->regions.account.parent = &soda_server_tenant(client->tenant)->account;
	}
	if (!info->local) {
		client->info.uid = hello->uid;
		client->info.gid = hello->gid;
		client->info.pid = (pid_t)hello->pid;
	}
	return client;
}

int soda_clients_start(struct soda_clients *clients)
{
	clients->instance_id = soda_server_random_id();
	pthread_mutex_init(&clients->lock, NULL);
	soda_cond_init(&clients->changed);
	return soda_reaper_start(clients);
}

unsigned soda_clients_stop(struct soda_clients *clients)
{
	soda_reaper_stop(clients);
	soda_shares_free(&clients->pool->regions);
	soda_shares_free(&clients->shares);
	return clients->lost;
}

/* Connections */

static struct soda_client *find_locked(struct soda_clients *clients, uint64_t id)
{
	struct soda_client *client = clients->list;

	while (client && (client->id != id || client->left))
		client = client->next;
	return client;
}

static unsigned count_peers_locked(const struct soda_client *client)
{
	unsigned n = 0;

	for (const struct soda_client_peer *at = client->peers; at; at = at->next)
		n++;
	return n;
}

unsigned soda_clients_connected(struct soda_clients *clients)
{
	unsigned n = 0;

	pthread_mutex_lock(&clients->lock);
	for (struct soda_client *client = clients->list; client; client = client->next)
		n += client->peers && client->chunk_bytes; /* not tools */
	pthread_mutex_unlock(&clients->lock);
	return n;
}

void soda_client_told(struct soda_client *client, const struct soda_wire_tell *told)
{
	pthread_mutex_lock(&client->all->lock);
	client->told = *told;
	pthread_mutex_unlock(&client->all->lock);
}

/*
 * A token outlives its client's absence: a client that is away is kept for the grace time, and had
 * renewed its token a quarter of that token's life before, at the most.
 */
static uint32_t token_life_ms(const struct soda_clients *clients)
{
	uint32_t life_ms = clients->grace_ms < UINT32_MAX / 2 ? 2 * clients->grace_ms : UINT32_MAX;

	return life_ms > SODA_TOKEN_MIN_MS ? life_ms : SODA_TOKEN_MIN_MS;
}

int soda_client_token(struct soda_client *client, uint32_t held, struct soda_wire_token *token_p,
		      struct soda_why *why)
{
	struct soda_wire_token t;
	int r = client->tenant ? soda_random(t.nonce, sizeof(t.nonce)) : -ENOTSUP;

	if (r == -ENOTSUP)
		soda_server_why(why, "this server has no tenants (--tenants), and so no tokens");
	if (r)
		return r;
	pthread_mutex_lock(&client->all->lock);
	r = soda_tokens_renew(&client->tokens, held, soda_now_ms(), token_life_ms(client->all),
			      &t.number, &t.left_ms, t.token);
	if (!r)
		r = soda_token_wrap(t.token, client->key, t.nonce);
	pthread_mutex_unlock(&client->all->lock);
	if (!r)
		*token_p = t;
	return r;
}

void soda_clients_drain(struct soda_clients *clients)
{
	pthread_mutex_lock(&clients->lock);
	clients->draining = true;
	pthread_cond_broadcast(&clients->changed);
	pthread_mutex_unlock(&clients->lock);
}

bool soda_clients_draining(struct soda_clients *clients)
{
	bool draining;

	pthread_mutex_lock(&clients->lock);
	draining = clients->draining;
	pthread_mutex_unlock(&clients->lock);
	return draining;
}

/* In an open server, all that may have memory here; of another user's processes, none. */
static bool may_operate(const struct soda_client *client)
{
	return client->tenant ? soda_tenant_role(client->all->tenants, client->tenant) ==
					SODA_ROLE_OPERATOR
			      : !is_somebody_else(&client->info);
}

static int check_operator(const struct soda_client *client, struct soda_why *why)
{
	if (may_operate(client))
		return 0;
	soda_server_why(why, "%s",
			client->tenant
				? "a tenant of role operator may drain this server: SODA_KEY_FILE "
				  "names its key"
				: "the server's own user and root may drain it");
	return -EPERM;
}

int soda_clients_spread(struct soda_client *client, struct soda_why *why)
{
	int ret = check_operator(client, why);

	if (ret)
		return ret;
	if (!soda_clients_spreading(client->all))
		soda_log_info("%s asks that what this server has move to servers with more free",
			      client->info.address);
	atomic_store(&client->all->spreads_ns, soda_now_ns() + SODA_POOL_SPREAD_MS * SODA_MS_NS);
	return 0;
}

bool soda_clients_spreading(struct soda_clients *clients)
{
	return soda_now_ns() < atomic_load(&clients->spreads_ns);
}

int soda_clients_move(struct soda_client *client, bool away, struct soda_why *why)
{
	int ret = check_operator(client, why);

	if (ret)
		return ret;
	if (atomic_exchange(&client->all->moving, away) != away)
		soda_log_info("%s asks that %s", client->info.address,
			      away ? "this server be drained: it takes nothing new, and what it "
				     "has moves away"
				   : "this server be used as before");
	return 0;
}

static int add_peer_locked(struct soda_client *client, struct soda_peer *peer, bool control)
{
	struct soda_client_peer *entry;

	if (count_peers_locked(client) >= MAX_PEERS)
		return -EBUSY;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	entry->peer = peer;
	entry->epoch = client->epoch;
	entry->control = control;
	entry->next = client->peers;
	client->peers = entry;
	return 0;
}

/* Whether to close a connection: of an older epoch, or (control_stays) any data connection. */
static bool must_go(const struct soda_client_peer *entry, uint64_t epoch, bool control_stays)
{
	return control_stays ? !entry->control : entry->epoch < epoch;
}

/* A connection that expel_locked() still has to close; closing_too: or wait for. */
static struct soda_client_peer *next_to_go_locked(struct soda_client *client, uint64_t epoch,
						  bool control_stays, bool closing_too)
{
	struct soda_client_peer *at = client->peers;

	while (at && (!must_go(at, epoch, control_stays) || (at->closing && !closing_too)))
		at = at->next;
	return at;
}

/*
 * Close connections and await their end. The lock is dropped meanwhile.  A call of an older epoch
 * may hang, at a disk that does not answer.  A HELLO that waits for it is refused as soon as a
 * newer connection of the client takes its turn, so that one at most waits for each client.
 */
static void expel_locked(struct soda_client *client, uint64_t epoch, bool control_stays)
{
	struct soda_clients *clients = client->all;
	struct soda_client_peer *entry;
	struct soda_wait wait;

	soda_wait_begin(&wait, "the connections of a client's earlier epoch to end");
	pthread_cond_broadcast(&clients->changed); /* HELLOs of the epochs before */
	while ((entry = next_to_go_locked(client, epoch, control_stays, false))) {
		entry->closing = true;
		entry->pins++;
		pthread_mutex_unlock(&clients->lock);
		soda_peer_close(entry->peer);
		pthread_mutex_lock(&clients->lock);
		entry->pins--;
		pthread_cond_broadcast(&clients->changed);
	}
	while (next_to_go_locked(client, epoch, control_stays, true) &&
	       (control_stays || client->epoch == epoch))
		soda_wait_turn(&wait, &clients->changed, &clients->lock);
}

static void refuse(struct soda_why *why, const char *text)
{
	soda_server_why(why, "%s", text);
}

static int check_hello(const struct soda_clients *clients, const struct soda_wire_hello *hello,
		       const struct soda_peer_info *info, struct soda_why *why)
{
	uint32_t chunk = hello->chunk_bytes;

	if (chunk && (chunk & (chunk - 1) || chunk < SODA_WIRE_PAGE || chunk > SODA_STORE_BLOCK)) {
		soda_server_why(why, "chunk size %u is no power of two from 4 KiB to 2 MiB", chunk);
		return -EINVAL;
	}
	if (soda_wire_agents(hello) > SODA_AGENTS_MAX) {
		soda_server_why(why,
				"%u agents stand before this server, and %d in a row are the most:"
				" take one out",
				soda_wire_agents(hello), SODA_AGENTS_MAX);
		return -EINVAL;
	}
	if (info->proved) {
		int r = soda_tenant_admit(clients->tenants, info->proved->tenant, hello, info, why);

		if (r)
			return r;
	}
	if (info->local && info->uid != geteuid() && info->uid && !clients->allow_other) {
		soda_server_why(why,
				"this server serves user %u only (and root): start it with"
				" --allow-other for user %u",
				(unsigned)geteuid(), (unsigned)info->uid);
		return -EPERM;
	}
	return 0;
}

/* One agent is allowed for, also where this HELLO has passed none. */
static uint64_t epoch_step_max(const struct soda_wire_hello *hello)
{
	unsigned agents = soda_wire_agents(hello);

	return SODA_EPOCH_STEP_MAX << SODA_AGENT_EPOCH_SHIFT * (agents ? agents : 1);
}

/* A client comes back: make the HELLO's epoch its own, and close its older connections. */
static int take_over_locked(struct soda_client *client, const struct soda_wire_hello *hello,
			    struct soda_why *why)
{
	if (hello->epoch <= client->epoch) {
		refuse(why, "old epoch: a newer connection of this client exists");
		return -ESTALE;
	}
	if (hello->epoch - client->epoch > epoch_step_max(hello)) {
		soda_server_why(why,
				"epoch %llu after %llu: nobody reconnects as often as that, and the"
				" client itself could not come back after it",
				(unsigned long long)hello->epoch,
				(unsigned long long)client->epoch);
		return -EINVAL;
	}
	client->epoch = hello->epoch;
	expel_locked(client, hello->epoch, false);
	if (client->epoch != hello->epoch || client->left) {
		refuse(why, "overtaken by a newer connection of this client");
		return -ESTALE;
	}
	return 0;
}

/* Another user must not come back as this client: its regions may be files of its own user. */
static bool is_same_user(const struct soda_client *client, const struct soda_peer_info *info)
{
	return !info->local || !client->info.local || info->uid == client->info.uid || !info->uid;
}

static bool shows_token(const struct soda_wire_hello *hello, const struct soda_peer_info *info)
{
	return info->proved && hello->features & SODA_FEATURE_TOKEN;
}

/* Whether the connection is of the process that this client is. 0, -EPERM, -ESTALE. */
static int prove_client_locked(struct soda_client *client, const struct soda_wire_hello *hello,
			       const struct soda_peer_info *info, struct soda_why *why)
{
	if (shows_token(hello, info))
		return soda_tenant_adopts(client->tenant, &client->tokens, hello, info->proved,
					  why);
	if (!info->proved && hello->secret != client->secret) {
		refuse(why, "wrong secret for this client id");
		return -ESTALE;
	}
	return info->proved ? soda_tenant_owns(client->tenant, client->key, info->proved, why) : 0;
}

static int hello_known_locked(struct soda_client *client, struct soda_peer *peer,
			      const struct soda_wire_hello *hello,
			      const struct soda_peer_info *info, struct soda_why *why)
{
	bool control = hello->kind == SODA_CONN_CONTROL;
	int r;

	if (!is_same_user(client, info)) {
		refuse(why, "this client is another user's");
		return -EPERM;
	}
	r = prove_client_locked(client, hello, info, why);
	if (r)
		return r;
	if (!control && hello->epoch != client->epoch) {
		refuse(why, "a data connection must carry the epoch of the control connection");
		return -ESTALE;
	}
	client->busy++; /* so that the reaper does not free it */
	r = control ? take_over_locked(client, hello, why) : 0;
	if (!r && shows_token(hello, info)) /* the older ones' connections have ended */
		r = soda_client_key(info->proved->key, client->key);
	if (!r)
		r = add_peer_locked(client, peer, control);
	if (r == -EBUSY)
		refuse(why, "this client has too many connections");
	client->busy--;
	if (!client->peers)
		client->away_since_ms = soda_now_ms();
	pthread_cond_broadcast(&client->all->changed);
	return r;
}

static bool is_empty_locked(struct soda_client *client)
{
	return !client->peers && !client->busy && !soda_region_count(&client->regions);
}

/*
 * Take a client of a tenant (NULL: of anybody) out of the list that is away and has no regions, so
 * that it loses nothing but its id: the one that has been away for longest. NULL: there is none.
 */
static struct soda_client *unlink_empty_locked(struct soda_clients *clients,
					       const struct soda_tenant *tenant)
{
	struct soda_client **oldest = NULL;

	for (struct soda_client **at = &clients->list; *at; at = &(*at)->next)
		if (is_empty_locked(*at) && (!tenant || (*at)->tenant == tenant) &&
		    (!oldest || (*at)->away_since_ms <= (*oldest)->away_since_ms))
			oldest = at; /* <=: of equal ones the last, as new clients come to the head
				      */
	return oldest ? soda_client_unlink_locked(clients, oldest) : NULL;
}

static bool has_room_locked(const struct soda_clients *clients, struct soda_holder holder)
{
	return soda_shares_room(&clients->shares, clients->max_clients, holder, 1, 0);
}

/*
 * A new client comes, where all places are taken that it may have: one that is away and empty makes
 * room, of its own tenant; another tenant's only if this one lacks what is kept for it.
 */
static struct soda_client *make_room_locked(struct soda_clients *clients,
					    const struct soda_client *client,
					    struct soda_holder holder)
{
	struct soda_client *empty;

	if (has_room_locked(clients, holder))
		return NULL;
	empty = unlink_empty_locked(clients, client->tenant);
	if (!empty && soda_shares_owed(&clients->shares, clients->max_clients, holder))
		empty = unlink_empty_locked(clients, NULL);
	return empty;
}

static void say_full_locked(const struct soda_clients *clients, struct soda_holder holder,
			    struct soda_why *why)
{
	if (clients->shares.all >= clients->max_clients)
		soda_server_why(why, "the server has its %u clients (--max-clients)",
				clients->max_clients);
	else
		soda_server_why(why,
				"this tenant has %u of the server's %u clients (--max-clients), and"
				" what is left is kept for other tenants",
				(unsigned)soda_shares_of(&clients->shares, holder.number),
				clients->max_clients);
}

/*
 * No place is left that this client may have: wait for those of clients that end, as a program may
 * start in the moment in which another one has ended.
 */
static void await_place_locked(struct soda_clients *clients, struct soda_holder holder)
{
	uint64_t end_ms = soda_now_ms() + SODA_SERVER_LEAVING_MS;

	soda_reaper_wake_locked(clients);
	while (!has_room_locked(clients, holder) && !clients->draining &&
	       soda_clients_await_place_locked(clients, end_ms))
		;
}

/* Whether a new client may come, before anything is changed for it. */
static int admit_locked(const struct soda_clients *clients, const struct soda_client *client,
			struct soda_why *why)
{
	if (clients->draining) {
		refuse(why, "the server is shutting down");
		return -ESHUTDOWN;
	}
	if (client->tenant && soda_tenant_removed(clients->tenants, client->tenant)) {
		/* after its proof; soda_clients_end_tenant() may not see this client */
		refuse(why, "this tenant has been removed");
		return -EACCES;
	}
	return 0;
}

/* *empty_p: a client that has made room, to be freed; or NULL. */
static int insert_locked(struct soda_clients *clients, struct soda_client *client,
			 struct soda_peer *peer, struct soda_client **empty_p, struct soda_why *why)
{
	struct soda_holder holder = soda_client_holder(client);
	int r;

	*empty_p = make_room_locked(clients, client, holder);
	if (!has_room_locked(clients, holder)) {
		await_place_locked(clients, holder);
		r = admit_locked(clients, client, why);
		if (r)
			return r;
	}
	if (!has_room_locked(clients, holder)) {
		say_full_locked(clients, holder, why);
		return -EBUSY;
	}
	r = soda_shares_take(&clients->shares, holder.number, 1);
	if (r)
		return r;
	r = add_peer_locked(client, peer, true);
	if (r) {
		soda_shares_put(&clients->shares, holder.number, 1);
		return r;
	}
	client->next = clients->list;
	clients->list = client;
	return 0;
}

static int hello_new(struct soda_clients *clients, struct soda_peer *peer,
		     const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		     struct soda_client **client_p, struct soda_why *why)
{
	struct soda_client *client = create_client(clients, hello, info), *empty = NULL;
	int r = client ? 0 : -ENOMEM;

	if (r)
		return r;
	if (info->proved)
		r = soda_client_key(info->proved->key, client->key);
	if (r) {
		soda_client_destroy(client);
		return r;
	}
	pthread_mutex_lock(&clients->lock);
	r = admit_locked(clients, client, why);
	if (!r)
		r = insert_locked(clients, client, peer, &empty, why);
	pthread_mutex_unlock(&clients->lock);
	if (empty)
		soda_client_destroy(empty);
	if (r) {
		soda_client_destroy(client);
		return r;
	}
	soda_count_add(SODA_COUNT_clients_opened, 1);
	*client_p = client;
	return 0;
}

static void welcome_client(struct soda_client *client, bool known,
			   struct soda_wire_welcome *welcome)
{
	struct soda_clients *clients = client->all;
	struct soda_store *store = clients->pool->store;

	*welcome = (struct soda_wire_welcome){
		.version = SODA_WIRE_VERSION,
		.max_data = SODA_WIRE_MAX_DATA,
		.instance_id = clients->instance_id,
		.client_id = client->id,
		.secret = client->secret,
		.capacity = store->capacity,
		.free_bytes = soda_store_free_bytes(store),
		.known = known,
	};
}

int soda_client_hello(struct soda_clients *clients, struct soda_peer *peer,
		      const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		      struct soda_wire_welcome *welcome, void **client_p, struct soda_why *why)
{
	bool control = hello->kind == SODA_CONN_CONTROL, known = false;
	struct soda_client *client = NULL;
	int r = check_hello(clients, hello, info, why);

	if (r)
		return r;
	pthread_mutex_lock(&clients->lock);
	if (hello->client_id)
		client = find_locked(clients, hello->client_id);
	if (client) {
		known = true;
		r = hello_known_locked(client, peer, hello, info, why);
	}
	pthread_mutex_unlock(&clients->lock);
	if (!known && !control) {
		refuse(why, "a data connection of an unknown client");
		return -ESTALE;
	}
	if (!known)
		r = hello_new(clients, peer, hello, info, &client, why);
	if (r)
		return r;
	if (control && known)
		soda_count_add(SODA_COUNT_clients_returned, 1);
	if (known && shows_token(hello, info))
		soda_count_add(SODA_COUNT_clients_adopted, 1);
	if (control)
		soda_log_info("client %016llx (%s)%s%s %s", (unsigned long long)client->id,
			      info->address, client->tenant ? " of tenant " : "",
			      client->tenant ? client->tenant->name : "",
			      !known			 ? "is new"
			      : shows_token(hello, info) ? "is back, adopted by its token"
							 : "is back");
	welcome_client(client, known, welcome);
	*client_p = client;
	return 0;
}

static void set_left_locked(struct soda_client *client)
{
	if (!client->left)
		client->left_since_ms = soda_now_ms();
	client->left = true;
}

/* A connection of the tenant's clients that nobody has begun to close. */
static struct soda_client_peer *next_of_tenant_locked(struct soda_clients *clients,
						      const struct soda_tenant *tenant)
{
	for (struct soda_client *at = clients->list; at; at = at->next) {
		struct soda_client_peer *entry =
			at->tenant == tenant ? next_to_go_locked(at, UINT64_MAX, false, false)
					     : NULL;

		if (entry)
			return entry;
	}
	return NULL;
}

void soda_clients_end_tenant(struct soda_clients *clients, struct soda_tenant *tenant)
{
	struct soda_client_peer *entry;

	pthread_mutex_lock(&clients->lock);
	for (struct soda_client *at = clients->list; at; at = at->next)
		if (at->tenant == tenant)
			set_left_locked(at);
	while ((entry = next_of_tenant_locked(clients, tenant))) {
		entry->closing = true;
		entry->pins++;
		pthread_mutex_unlock(&clients->lock);
		soda_peer_close(entry->peer);
		pthread_mutex_lock(&clients->lock);
		entry->pins--;
	}
	pthread_cond_broadcast(&clients->changed); /* the reaper */
	pthread_mutex_unlock(&clients->lock);
}

void soda_client_bye(struct soda_client *client)
{
	struct soda_clients *clients = client->all;

	pthread_mutex_lock(&clients->lock);
	set_left_locked(client); /* no connection joins any more */
	expel_locked(client, 0, true);
	pthread_mutex_unlock(&clients->lock);
	soda_client_close_regions(client);
	soda_log_info("client %016llx has left", (unsigned long long)client->id);
}

void soda_client_bye_later(struct soda_client *client)
{
	struct soda_clients *clients = client->all;

	pthread_mutex_lock(&clients->lock);
	set_left_locked(client);
	pthread_mutex_unlock(&clients->lock);
}

void soda_client_gone(struct soda_client *client, struct soda_peer *peer)
{
	struct soda_clients *clients = client->all;
	struct soda_client_peer **at = &client->peers, *entry;
	struct soda_wait wait;

	soda_wait_begin(&wait, "those who still use a client's connection that has ended");
	pthread_mutex_lock(&clients->lock);
	while ((*at)->peer != peer)
		at = &(*at)->next;
	entry = *at;
	while (entry->pins)
		soda_wait_turn(&wait, &clients->changed, &clients->lock);
	/* The list may have changed while the lock was free. */
	for (at = &client->peers; *at != entry;)
		at = &(*at)->next;
	*at = entry->next;
	free(entry);
	if (!client->peers)
		client->away_since_ms = soda_now_ms();
	pthread_cond_broadcast(&clients->changed); /* the reaper, and who awaits this end */
	pthread_mutex_unlock(&clients->lock);
	soda_wait_end(&wait);
}
