/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem_server/session/ending.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "mem_server/base/counters.h"

/* One client */

enum { OWNER_BYTES = 40 }; /* a client's name in the log */

static const char *name_owner(const struct soda_client *client, char owner[OWNER_BYTES])
{
	snprintf(owner, OWNER_BYTES, "client %016llx", (unsigned long long)client->id);
	return owner;
}

void soda_client_close_regions(struct soda_client *client)
{
	struct soda_clients *clients = client->all;
	char owner[OWNER_BYTES];
	unsigned lost = soda_region_close_all(&client->regions, name_owner(client, owner));

	pthread_mutex_lock(&clients->lock);
	clients->lost += lost;
	pthread_mutex_unlock(&clients->lock);
}

void soda_client_destroy(struct soda_client *client)
{
	soda_region_set_destroy(&client->regions);
	if (client->process >= 0)
		close(client->process);
	soda_secret_free(client, sizeof(*client));
}

struct soda_holder soda_client_holder(const struct soda_client *client)
{
	return soda_tenant_holder(client->all->tenants, client->tenant);
}

struct soda_client *soda_client_unlink_locked(struct soda_clients *clients, struct soda_client **at)
{
	struct soda_client *client = *at;

	*at = client->next;
	soda_shares_put(&clients->shares, soda_client_holder(client).number, 1);
	return client;
}

/* Free a client that is not in the list any more, with its regions. */
static void free_client(struct soda_client *client)
{
	soda_client_close_regions(client);
	soda_client_destroy(client);
}

/* When it may be freed */

/* Whether its process has ended: a pidfd is readable then. */
static bool process_ended(const struct soda_client *client)
{
	struct pollfd p = { .fd = client->process, .events = POLLIN };

	return client->process >= 0 && poll(&p, 1, 0) == 1;
}

/*
 * When the client may be freed, or is to be looked at again; UINT64_MAX: not as long as nothing
 * changes.
 */
static uint64_t free_at_locked(const struct soda_clients *clients, const struct soda_client *client)
{
	uint64_t due, look;

	if (client->peers || client->busy)
		return UINT64_MAX;
	if (client->left || !client->chunk_bytes || clients->stopping)
		return 0;
	if (process_ended(client))
		return 0;
	due = client->away_since_ms + clients->grace_ms;
	/* its connections end a moment before the process does */
	look = soda_now_ms() + SODA_SERVER_PROCESS_LOOK_MS;
	return client->process >= 0 && look < due ? look : due;
}

/* Take a client that may be freed out of the list; NULL: *next_p is when to look again. */
static struct soda_client *unlink_due_locked(struct soda_clients *clients, uint64_t *next_p)
{
	uint64_t now = soda_now_ms();

	*next_p = UINT64_MAX;
	for (struct soda_client **at = &clients->list; *at; at = &(*at)->next) {
		uint64_t due = free_at_locked(clients, *at);

		if (due <= now)
			return soda_client_unlink_locked(clients, at);
		if (due < *next_p)
			*next_p = due;
	}
	return NULL;
}

/* Waiting for it */

/* Wait for `changed`, at most until then. */
static void sleep_locked(struct soda_clients *clients, uint64_t until_ms)
{
	struct timespec until = { (time_t)(until_ms / 1000), (long)(until_ms % 1000) * 1000000 };

	if (until_ms == UINT64_MAX)
		pthread_cond_wait(&clients->changed, &clients->lock);
	else
		pthread_cond_timedwait(&clients->changed, &clients->lock, &until);
}

/*
 * Until when to wait for a client of the list: UINT64_MAX if the reaper frees it at once, because
 * it has no connection any more, or its process has ended; the limit for one that has said goodbye
 * and is still connected; 0: it does not end.
 */
static uint64_t end_of_locked(const struct soda_clients *clients, const struct soda_client *client)
{
	if (!client->peers && !client->busy)
		return free_at_locked(clients, client) <= soda_now_ms() ? UINT64_MAX : 0;
	return client->left ? client->left_since_ms + SODA_SERVER_LEAVING_MS : 0;
}

/* The latest of these; a time in the past if all have taken too long; 0 if no client ends. */
static uint64_t places_until_locked(const struct soda_clients *clients)
{
	uint64_t until = 0;

	for (const struct soda_client *at = clients->list; at; at = at->next) {
		uint64_t own = end_of_locked(clients, at);

		if (own > until)
			until = own;
	}
	return until;
}

/* The same, and of clients that have no place any more, but still have memory. */
static uint64_t memory_until_locked(const struct soda_clients *clients)
{
	uint64_t places = places_until_locked(clients);
	uint64_t files = clients->writing ? clients->writing_since_ms + SODA_SERVER_LEAVING_MS : 0;

	if (clients->freeing)
		return UINT64_MAX;
	return files > places ? files : places;
}

/* Wait for a change, until the earlier of both times. False: that has passed. */
static bool await_change_locked(struct soda_clients *clients, uint64_t until_ms, uint64_t end_ms)
{
	if (end_ms < until_ms)
		until_ms = end_ms;
	if (until_ms <= soda_now_ms())
		return false;
	sleep_locked(clients, until_ms);
	return true;
}

bool soda_clients_await_place_locked(struct soda_clients *clients, uint64_t end_ms)
{
	return await_change_locked(clients, places_until_locked(clients), end_ms);
}

bool soda_clients_await_leaving(struct soda_clients *clients, unsigned timeout_ms)
{
	uint64_t end_ms = soda_now_ms() + timeout_ms;
	bool any = false;

	pthread_mutex_lock(&clients->lock);
	soda_reaper_wake_locked(clients);
	while (await_change_locked(clients, memory_until_locked(clients), end_ms))
		any = true;
	pthread_mutex_unlock(&clients->lock);
	return any;
}

/* The thread soda-files */

/* The next client of the list to_write; NULL: none, and the thread ends. */
static struct soda_client *next_to_write(struct soda_clients *clients)
{
	struct soda_client *client;

	pthread_mutex_lock(&clients->lock);
	client = clients->to_write;
	if (client)
		clients->to_write = client->next;
	if (!clients->to_write)
		clients->to_write_end = &clients->to_write;
	clients->writing = client;
	clients->writing_since_ms = soda_now_ms();
	pthread_cond_broadcast(&clients->changed); /* memory of the one before is free */
	pthread_mutex_unlock(&clients->lock);
	return client;
}

static void write_files(struct soda_clients *clients)
{
	struct soda_client *client;

	while ((client = next_to_write(clients)))
		free_client(client);
}

static void *writer_main(void *arg)
{
	pthread_setname_np(pthread_self(), "soda-files");
	write_files(arg);
	return NULL;
}

static void end_writer(struct soda_clients *clients)
{
	if (clients->has_writer)
		soda_wait_join(clients->writer, "files of clients that have gone to be written");
	clients->has_writer = false;
}

/* Put it to those whose files are written. True: by a thread that runs. */
static bool queue_to_write(struct soda_clients *clients, struct soda_client *client)
{
	bool runs;

	pthread_mutex_lock(&clients->lock);
	runs = clients->writing;
	if (!runs)
		clients->writing_since_ms = soda_now_ms();
	clients->writing = true;
	client->next = NULL;
	*clients->to_write_end = client;
	clients->to_write_end = &client->next;
	pthread_mutex_unlock(&clients->lock);
	return runs;
}

/* Free its files later, without the reaper; by the reaper where no thread can be made. */
static void free_files(struct soda_clients *clients, struct soda_client *client)
{
	if (queue_to_write(clients, client))
		return;
	end_writer(clients); /* it has nothing left to do */
	clients->has_writer = !pthread_create(&clients->writer, NULL, writer_main, clients);
	if (!clients->has_writer)
		write_files(clients);
}

/* The reaper */

static void say_expired(const struct soda_client *client)
{
	soda_count_add(SODA_COUNT_clients_expired, 1);
	soda_log_info("client %016llx did not come back: its regions are freed",
		      (unsigned long long)client->id);
}

static void reap_one(struct soda_clients *clients, struct soda_client *client, bool expired)
{
	char owner[OWNER_BYTES];

	if (expired)
		say_expired(client);
	if (soda_region_close_unwritten(&client->regions, name_owner(client, owner)))
		free_files(clients, client);
	else
		free_client(client);
}

static void *reap(void *arg)
{
	struct soda_clients *clients = arg;
	uint64_t next;

	pthread_setname_np(pthread_self(), "soda-reaper");
	pthread_mutex_lock(&clients->lock);
	for (;;) {
		struct soda_client *client = unlink_due_locked(clients, &next);
		bool expired = client && client->chunk_bytes && !client->left && !clients->stopping;

		clients->freeing = client;
		if (client) {
			pthread_cond_broadcast(&clients->changed); /* its place is free */
			pthread_mutex_unlock(&clients->lock);
			reap_one(clients, client, expired);
			pthread_mutex_lock(&clients->lock);
			clients->freeing = false;
			pthread_cond_broadcast(&clients->changed); /* and now its memory */
		} else if (clients->stopping) {
			break;
		} else {
			sleep_locked(clients, next);
		}
	}
	pthread_mutex_unlock(&clients->lock);
	end_writer(clients);
	return NULL;
}

int soda_reaper_start(struct soda_clients *clients)
{
	clients->to_write_end = &clients->to_write;
	return -pthread_create(&clients->reaper, NULL, reap, clients);
}

void soda_reaper_wake_locked(struct soda_clients *clients)
{
	pthread_cond_broadcast(&clients->changed);
}

void soda_reaper_stop(struct soda_clients *clients)
{
	pthread_mutex_lock(&clients->lock);
	clients->stopping = true;
	soda_reaper_wake_locked(clients);
	pthread_mutex_unlock(&clients->lock);
	soda_wait_join(clients->reaper, "the reaper to end");
}
