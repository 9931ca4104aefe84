/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/session/servers.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* The directory of the roots that a server's certificate is held against; NULL: keys are used. */
static const char *trusted(const struct soda_dpu_options *opt)
{
	char path[PATH_MAX];

	if (!opt->daemon.certificates ||
	    snprintf(path, sizeof(path), "%s/" SODA_TLS_ROOTS, opt->daemon.certificates) >=
		    (int)sizeof(path) ||
	    access(path, F_OK))
		return NULL;
	return opt->daemon.certificates;
}

static int load_identity(const struct soda_dpu_options *opt, struct soda_dpu_server *server)
{
	struct soda_conf_error err = { "" };
	int ret = soda_identity_load(opt->tenant, opt->key_file, opt->server_name, server->address,
				     &server->identity, &err);

	if (ret == 0)
		ret = soda_identity_encrypt(opt->daemon.tls, trusted(opt), opt->server_name,
					    server->address, &server->identity, &err);
	if (ret < 0)
		soda_log_error("%s", err.text);
	return ret;
}

/* The caller is the only thread that changes places. */
static int fill(struct soda_dpu_servers *all, struct soda_dpu_server *place, const char *address,
		uint16_t tag)
{
	struct soda_dpu_server server = { .tag = tag, .listed = true };
	int ret;

	strcpy(server.address, address);
	ret = load_identity(all->opt, &server);
	if (ret < 0) {
		soda_identity_free(server.identity);
		return ret;
	}
	soda_identity_free(place->identity);
	pthread_mutex_lock(&all->lock);
	*place = server;
	pthread_mutex_unlock(&all->lock);
	return 0;
}

/* What is of one server is refused where --server names a pool. */
static int check_pool(const struct soda_dpu_options *opt)
{
	if (!opt->server_name)
		return 0;
	soda_log_error("--server-name is the name of one server, and --server names a pool: %s",
		       opt->server);
	return -EINVAL;
}

/* The list of --server. */
static int take_list(struct soda_dpu_servers *all)
{
	static struct soda_members members; /* large; one thread starts an agent */
	struct soda_why why = { "" };
	int ret = soda_members_parse(all->opt->server, &members, &why);

	if (ret == 0)
		ret = soda_members_differ(&members, &why);
	if (ret < 0) {
		soda_log_error("--server: %s", why.text);
		return ret;
	}
	all->pool = members.n > 1;
	for (uint32_t i = 0; ret == 0 && i < members.n; i++)
		ret = fill(all, &all->place[i], members.address[i],
			   soda_members_hash(members.address[i]));
	return ret;
}

/* Those of the registry, of which some may be of no use, but not all. */
static int take_registered(struct soda_dpu_servers *all)
{
	all->pool = true;
	soda_dpu_servers_renew(all, all->opt->registered);
	return soda_dpu_servers_count(all) ? 0 : -EINVAL;
}

int soda_dpu_servers_start(struct soda_dpu_servers *all, const struct soda_dpu_options *opt)
{
	int ret;

	*all = (struct soda_dpu_servers){ .opt = opt };
	pthread_mutex_init(&all->lock, NULL);
	ret = opt->registered ? take_registered(all) : take_list(all);
	if (ret == 0 && all->pool)
		ret = check_pool(opt);
	all->proves = all->place[0].identity && all->place[0].identity->proves;
	return ret;
}

void soda_dpu_servers_stop(struct soda_dpu_servers *all)
{
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++) {
		soda_identity_free(all->place[i].identity);
		all->place[i].identity = NULL;
	}
}

/* tag 0: the first that is listed. */
static struct soda_dpu_server *find_locked(struct soda_dpu_servers *all, uint16_t tag)
{
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++) {
		struct soda_dpu_server *server = &all->place[i];

		if (tag ? server->tag == tag : server->listed)
			return server;
	}
	return NULL;
}

struct soda_dpu_server *soda_dpu_servers_take(struct soda_dpu_servers *all, uint16_t tag)
{
	struct soda_dpu_server *server;

	pthread_mutex_lock(&all->lock);
	server = find_locked(all, all->pool ? tag : 0);
	if (server)
		server->users++;
	pthread_mutex_unlock(&all->lock);
	return server;
}

void soda_dpu_servers_put(struct soda_dpu_servers *all, struct soda_dpu_server *server)
{
	pthread_mutex_lock(&all->lock);
	server->users--;
	pthread_mutex_unlock(&all->lock);
}

void soda_dpu_servers_list(struct soda_dpu_servers *all, const struct soda_dpu_server *first,
			   struct soda_members *to)
{
	to->n = 1;
	strcpy(to->address[0], first->address);
	pthread_mutex_lock(&all->lock);
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++)
		if (all->place[i].listed && &all->place[i] != first)
			strcpy(to->address[to->n++], all->place[i].address);
	pthread_mutex_unlock(&all->lock);
}

unsigned soda_dpu_servers_count(struct soda_dpu_servers *all)
{
	unsigned n = 0;

	pthread_mutex_lock(&all->lock);
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++)
		n += all->place[i].listed;
	pthread_mutex_unlock(&all->lock);
	return n;
}

/* Servers that come and go */

/* Those that are there are listed, all others are not: both may be of earlier. */
static void list_again(struct soda_dpu_servers *all, const struct soda_members *now)
{
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++) {
		struct soda_dpu_server *server = &all->place[i];
		bool there = soda_members_has(now, server->address), was;

		pthread_mutex_lock(&all->lock);
		was = server->listed;
		server->listed = there;
		pthread_mutex_unlock(&all->lock);
		if (was && !there)
			soda_log_info("%s is not registered any more: programs that begin do "
				      "without it",
				      server->address);
		else if (there && !was)
			soda_log_info("%s is registered again", server->address);
	}
}

/*
 * A place for one server more, which nobody uses from now on, nor can find; NULL: all of them have
 * users or are listed.  Places that were never used go first: a server may come back.
 */
static struct soda_dpu_server *vacate(struct soda_dpu_servers *all)
{
	struct soda_dpu_server *at = NULL;

	pthread_mutex_lock(&all->lock);
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++) {
		struct soda_dpu_server *server = &all->place[i];

		if (!server->listed && !server->users && (!at || !server->address[0]))
			at = server;
		if (at && !at->address[0])
			break;
	}
	if (at) {
		at->address[0] = '\0';
		at->tag = 0;
	}
	pthread_mutex_unlock(&all->lock);
	return at;
}

static const struct soda_dpu_server *find(struct soda_dpu_servers *all, uint16_t tag)
{
	const struct soda_dpu_server *server;

	pthread_mutex_lock(&all->lock);
	server = find_locked(all, tag);
	pthread_mutex_unlock(&all->lock);
	return server;
}

static void come(struct soda_dpu_servers *all, const char *address)
{
	uint16_t tag = soda_members_hash(address);
	const struct soda_dpu_server *same = find(all, tag);
	struct soda_dpu_server *place;

	if (same && !strcmp(same->address, address)) /* it has its place, and was listed again */
		return;
	if (same) {
		soda_log_warning("%s is registered, and cannot be told from %s: let it listen on "
				 "another port",
				 address, same->address);
		return;
	}
	place = vacate(all);
	if (!place)
		soda_log_warning("%s is registered, and this agent has %d servers, the most that "
				 "it can have",
				 address, SODA_MEMBERS_MAX);
	else if (fill(all, place, address, tag) == 0)
		soda_log_info("%s is one of the pool's servers from now on", address);
}

void soda_dpu_servers_renew(struct soda_dpu_servers *all, const struct soda_members *now)
{
	list_again(all, now);
	for (uint32_t i = 0; i < now->n; i++)
		come(all, now->address[i]);
}
