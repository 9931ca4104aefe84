/* SPDX-License-Identifier: BSD-3-Clause */
/* Making clients, and freeing those that left or stayed away too long (the reaper's thread). */
#include "mem_server/session/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wait.h"
#include "mem_server/base/counters.h"

uint64_t soda_client_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Not 0, and not to be guessed. */
static uint64_t random_id(void)
{
	uint64_t id = 0;

	while (!id)
		if (getrandom(&id, sizeof(id), 0) != sizeof(id))
			id = 0;
	return id;
}

/* Of whom we have the kernel's word that files are to be opened with their permissions. */
static bool is_somebody_else(const struct soda_peer_info *info)
{
	return info->local && info->uid && info->uid != geteuid();
}

struct soda_client *soda_client_create(struct soda_sessions *sessions,
				       const struct soda_wire_hello *hello,
				       const struct soda_peer_info *info)
{
	struct soda_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->user = (struct soda_file_user){ .uid = info->uid,
						.gid = info->gid,
						.groups = client->info.groups,
						.groups_n = info->groups_n };
	if (soda_region_set_init(&client->regions, sessions->pool,
				 is_somebody_else(info) ? &client->user : NULL)) {
		free(client);
		return NULL;
	}
	client->sessions = sessions;
	client->id = random_id();
	client->secret = random_id();
	client->epoch = hello->epoch;
	client->chunk_bytes = hello->chunk_bytes;
	client->info = *info;
	if (!info->local) {
		client->info.uid = hello->uid;
		client->info.gid = hello->gid;
		client->info.pid = (pid_t)hello->pid;
	}
	return client;
}

unsigned soda_client_close_regions(struct soda_client *client)
{
	char owner[40];

	snprintf(owner, sizeof(owner), "client %016llx", (unsigned long long)client->id);
	return soda_region_close_all(&client->regions, owner);
}

void soda_client_destroy(struct soda_client *client)
{
	soda_region_set_destroy(&client->regions);
	free(client);
}

/* When the client may be freed; UINT64_MAX: not as things are. */
static uint64_t free_at_locked(const struct soda_sessions *sessions,
			       const struct soda_client *client)
{
	if (client->peers || client->busy)
		return UINT64_MAX;
	if (client->left || !client->chunk_bytes || sessions->stopping)
		return 0;
	return client->away_since_ms + sessions->grace_ms;
}

/* Take out one client whose time is over; *next_p: when to look again. */
static struct soda_client *unlink_due_locked(struct soda_sessions *sessions, uint64_t *next_p)
{
	uint64_t now = soda_client_now_ms();

	*next_p = UINT64_MAX;
	for (struct soda_client **at = &sessions->clients; *at; at = &(*at)->next) {
		struct soda_client *client = *at;
		uint64_t due = free_at_locked(sessions, client);

		if (due <= now) {
			*at = client->next;
			sessions->count--;
			return client;
		}
		if (due < *next_p)
			*next_p = due;
	}
	return NULL;
}

static void bury(struct soda_sessions *sessions, struct soda_client *client, bool expired)
{
	bool leaving = client->leaving;
	unsigned lost;

	if (expired) {
		soda_count_add(SODA_COUNT_clients_expired, 1);
		soda_log_info("client %016llx did not come back: its regions are freed",
			      (unsigned long long)client->id);
	}
	lost = soda_client_close_regions(client);
	soda_client_destroy(client);
	pthread_mutex_lock(&sessions->lock);
	sessions->lost += lost;
	sessions->leaving -= leaving;
	if (leaving)
		pthread_cond_broadcast(&sessions->changed);
	pthread_mutex_unlock(&sessions->lock);
}

void soda_client_sleep_locked(struct soda_sessions *sessions, uint64_t until_ms)
{
	struct timespec until = { (time_t)(until_ms / 1000), (long)(until_ms % 1000) * 1000000 };

	if (until_ms == UINT64_MAX)
		pthread_cond_wait(&sessions->changed, &sessions->lock);
	else
		pthread_cond_timedwait(&sessions->changed, &sessions->lock, &until);
}

static void *reap(void *arg)
{
	struct soda_sessions *sessions = arg;
	uint64_t next;

	pthread_mutex_lock(&sessions->lock);
	for (;;) {
		struct soda_client *client = unlink_due_locked(sessions, &next);
		bool expired =
			client && client->chunk_bytes && !client->left && !sessions->stopping;

		if (client) {
			pthread_mutex_unlock(&sessions->lock);
			bury(sessions, client, expired);
			pthread_mutex_lock(&sessions->lock);
		} else if (sessions->stopping) {
			break;
		} else {
			soda_client_sleep_locked(sessions, next);
		}
	}
	pthread_mutex_unlock(&sessions->lock);
	return NULL;
}

int soda_sessions_start(struct soda_sessions *sessions)
{
	sessions->instance_id = random_id();
	pthread_mutex_init(&sessions->lock, NULL);
	soda_cond_init(&sessions->changed);
	return -pthread_create(&sessions->reaper, NULL, reap, sessions);
}

unsigned soda_sessions_stop(struct soda_sessions *sessions)
{
	pthread_mutex_lock(&sessions->lock);
	sessions->stopping = true;
	pthread_cond_broadcast(&sessions->changed);
	pthread_mutex_unlock(&sessions->lock);
	soda_wait_join(sessions->reaper, "the reaper to end");
	return sessions->lost;
}
