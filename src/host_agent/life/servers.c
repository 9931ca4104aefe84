/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/servers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "host_agent/life/session.h"
#include "host_agent/life/start.h"
#include "host_agent/move/limit.h"
#include "host_agent/object/sealing.h"
#include "pool/pool.h"

/* With a private server, of which nobody else knows, there is none. */
static int load(const char *address, struct soda_identity **identity_p, struct soda_why *why)
{
	const struct soda_settings *s = &soda_agent.settings;
	struct soda_conf_error err = { "" };
	int ret = soda_identity_load(s->tenant, s->key_file, s->server_name, address, identity_p,
				     &err);

	if (!ret)
		ret = soda_identity_encrypt(s->tls, s->certificates, s->server_name, address,
					    identity_p, &err);
	if (ret)
		snprintf(why->text, sizeof(why->text), "%s", err.text);
	return ret;
}

static int load_identity(uint32_t i, const char *address, struct soda_why *why)
{
	return load(address, &soda_agent.identities[i], why);
}

/* What only one server can give is refused where there are n. */
static int check_pool(uint32_t n, struct soda_why *why)
{
	const struct soda_settings *s = &soda_agent.settings;
	bool behind = soda_agent.agent[0];
	const char *what = s->dpu && !behind ? "SODA_DPU names one DPU agent"
			   : s->mode == SODA_MODE_HANDLER
				   ? "mode handler (SODA_MODE) works with one server"
			   : s->trace ? "a trace (SODA_TRACE) is of one server"
			   : s->server_name && !behind
				   ? "server-name (SODA_SERVER_NAME) is the name of one server"
				   : NULL;

	if (n == 1 || !what)
		return 0;
	snprintf(why->text, sizeof(why->text), "%s, and %s has %u", what,
		 behind ? "the agent's pool" : "the list", n);
	return -ENOTSUP;
}

/* The servers' addresses: the user's, or that of a private server, which is started. */
static int find_servers(struct soda_members *m, struct soda_why *why)
{
	const struct soda_settings *s = &soda_agent.settings;
	int ret;

	if (!s->server || !*s->server) {
		m->n = 1;
		return soda_private_start(s->server_program, (int)s->connect_timeout_ms,
					  m->address[0], SODA_ADDRESS_MAX + 1, why);
	}
	ret = soda_members_parse(s->server, m, why);
	if (!ret)
		ret = check_pool(m->n, why);
	for (uint32_t i = 0; !ret && i < m->n; i++)
		ret = load_identity(i, m->address[i], why);
	return ret;
}

/* Whether the server that was met as the last one can be a member beside those before. */
static int check_member(uint32_t last, struct soda_why *why)
{
	const struct soda_server *server = &soda_agent.links[last].server;
	const struct soda_wire_welcome *w = &server->welcome;

	if (soda_agent.settings.servers > 1 && w->agent && !soda_agent.agent[0]) {
		snprintf(why->text, sizeof(why->text),
			 "%.150s is a DPU agent: the members of a pool are memory servers",
			 server->address);
		return -ENOTSUP;
	}
	for (uint32_t i = 0; i < last; i++)
		if (soda_agent.links[i].server.welcome.instance_id == w->instance_id) {
			snprintf(why->text, sizeof(why->text),
				 "%.90s and %.90s are the same server: name each server once",
				 soda_agent.links[i].server.address, server->address);
			return -EINVAL;
		}
	return 0;
}

/* Which servers of a pool cannot be used, and what the pool would have without them. */
struct missing {
	uint32_t n, found;
	uint64_t free_bytes; /* of those that were found */
	char names[80];	     /* of all but the first that is missing, as far as they fit */
};

/* Whole names, each after ", "; the last one is "..." where there are more. */
static void note_missing(struct missing *missing, const char *address)
{
	static const char more[] = ", ...";
	size_t at = strlen(missing->names), left = sizeof(missing->names) - at;

	if (!missing->n++ ||
	    (at >= sizeof(more) && !strcmp(&missing->names[at + 1 - sizeof(more)], more)))
		return;
	if (strlen(address) + 2 + sizeof(more) <= left)
		snprintf(missing->names + at, left, ", %s", address);
	else
		snprintf(missing->names + at, left, "%s", more);
}

/* The text, without the words at its end that are beyond so many bytes. */
static size_t whole_words(const char *text, size_t most)
{
	size_t n = strlen(text);

	if (n <= most)
		return n;
	while (most && text[most] != ' ' && text[most] != ';')
		most--;
	return most;
}

/* *why says what is wrong with the first of them. */
static void explain_missing(const struct missing *missing, struct soda_why *why)
{
	char others[96] = "", names[sizeof(missing->names) + 24] = "";
	struct soda_why first = *why;
	size_t left;

	if (missing->n > 1)
		snprintf(names, sizeof(names), "; nor can be used%s", missing->names + 1);
	if (missing->found)
		snprintf(others, sizeof(others), "; the pool's other %u servers have %llu MiB free",
			 missing->found, (unsigned long long)(missing->free_bytes >> 20));
	left = sizeof(why->text) - 1 - strlen(names) - strlen(others);
	snprintf(why->text, sizeof(why->text), "%.*s%s%s", (int)whole_words(first.text, left),
		 first.text, names, others);
}

static uint32_t pairs_of_each(void)
{
	uint32_t threads = soda_agent.settings.threads;

	return threads < SODA_CHANNEL_PAIRS_MAX ? threads : SODA_CHANNEL_PAIRS_MAX;
}

/*
 * The server that the program names may have turned out to be an agent in front of a pool: *m_p is
 * the pool then.  To all of its members the program is what it is to the agent.
 */
static int look_behind(const struct soda_members **m_p, struct soda_why *why)
{
	int ret;

	if (!soda_agent.agent[0])
		return 0;
	*m_p = &soda_agent.behind;
	ret = check_pool((*m_p)->n, why);
	if (!ret)
		ret = soda_limit_check(why);
	for (uint32_t i = 1; !ret && i < (*m_p)->n; i++)
		ret = load_identity(i, soda_agent.agent, why);
	return ret;
}

/* All members must be there at the start. */
static int meet_servers(const struct soda_members *m, struct soda_why *why)
{
	uint32_t pairs = pairs_of_each();
	struct missing missing = { 0 };
	int ret = 0, err;

	for (uint32_t i = 0; i < m->n; i++) {
		struct soda_link *link = &soda_agent.links[i];
		struct soda_why said = { "" };

		err = soda_session_open(link, m->address[i], pairs,
					(int)soda_agent.settings.connect_timeout_ms, &said);
		if (!err && i == 0)
			err = look_behind(&m, &said);
		if (!err)
			err = check_member(i, &said);
		if (!err)
			soda_session_publish(link);
		if (err) {
			note_missing(&missing, m->address[i]);
			*why = ret ? *why : said;
			ret = ret ? ret : err;
			continue;
		}
		missing.found++;
		missing.free_bytes += atomic_load(&link->free_bytes);
	}
	if (missing.n && m->n > 1 && why->text[0])
		explain_missing(&missing, why);
	return ret;
}

int soda_servers_start(struct soda_why *why)
{
	static struct soda_members members; /* large; api_lock is held */
	int ret = find_servers(&members, why);

	if (!ret)
		ret = meet_servers(&members, why);
	return ret ? ret : soda_settings_check_servers(&soda_agent.settings, why);
}

/* A server that comes later */

static int refuse(struct soda_why *why, int ret, const char *what)
{
	snprintf(why->text, sizeof(why->text), "%s", what);
	return ret;
}

bool soda_servers_any_up(void)
{
	for (uint32_t i = 0; i < soda_members(); i++)
		if (soda_server_up(&soda_agent.links[i].server))
			return true;
	return false;
}

bool soda_servers_has(const char *address)
{
	for (uint32_t i = 0; i < soda_members(); i++)
		if (!strcmp(soda_agent.links[i].server.address, address))
			return true;
	return soda_agent.agent[0] && !strcmp(soda_agent.agent, address);
}

/* Whether the program can have one server more. */
static int check_room(bool by_agent, struct soda_why *why)
{
	uint32_t n = soda_members();

	if (!soda_agent.settings.server)
		return refuse(why, -ENOTSUP, "the program has a server of its own");
	if (soda_agent.links[0].server.welcome.agent && !by_agent)
		return refuse(why, -ENOTSUP,
			      "the program has its servers by a DPU agent, which has not named it");
	if (check_pool(n + 1, why))
		return -ENOTSUP;
	if (n == SODA_MEMBERS_MAX)
		return refuse(why, -ENOSPC, "the program has as many servers as there can be");
	return 0;
}

/*
 * The staging slots of the new server's channels are taken of the page buffer, which must be large
 * enough for them; a limit that is a fraction grows, one that is given does not.
 */
static int make_room(struct soda_why *why)
{
	soda_agent.settings.servers++;
	return soda_limit_refit() ? 0
				  : refuse(why, -ENOMEM,
					   "the page buffer (SODA_BUFFER) has no room for one "
					   "server more");
}

/* As if it had never been asked for. */
static void undo(struct soda_link *link)
{
	soda_session_stop(link);
	link->server.hooks = NULL; /* at the end there is nothing to be ended */
	soda_identity_free(soda_agent.identities[link->index]);
	soda_agent.identities[link->index] = NULL;
}

/* by_agent: as soda_servers_join(). */
static int meet_late(struct soda_link *link, const char *address, bool by_agent,
		     struct soda_why *why)
{
	uint32_t at = (uint32_t)(link - soda_agent.links), pairs = pairs_of_each();
	int ms = (int)soda_agent.settings.connect_timeout_ms;
	int ret = load_identity(at, by_agent ? soda_agent.agent : address, why);

	if (ret) {
		soda_identity_free(soda_agent.identities[at]);
		soda_agent.identities[at] = NULL;
		return ret;
	}
	if (soda_sealing_on())
		ret = soda_sealing_add(at, pairs);
	if (!ret)
		ret = soda_session_open(link, address, pairs, ms < SODA_JOIN_MS ? ms : SODA_JOIN_MS,
					why);
	if (!ret)
		ret = check_member(at, why);
	if (ret)
		undo(link);
	return ret;
}

/* A server that is there again at another address */

static bool any_away(void)
{
	for (uint32_t i = 0; i < soda_members(); i++)
		if (!soda_server_up(&soda_agent.links[i].server))
			return true;
	return false;
}

/* A server behind the agent, which goes there for a client with chunks alone. */
static int meet_behind(const char *address, const struct soda_identity *identity,
		       struct soda_conn **conn_p, struct soda_wire_welcome *w, struct soda_why *why)
{
	uint8_t key[SODA_KEY_BYTES]; /* of a client that ends at once */
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					       .timeout_ms = SODA_JOIN_MS,
					       .identity = identity,
					       .client_key = key };
	const struct soda_wire_hello hello = {
		.epoch = 1,
		.uid = getuid(),
		.gid = getgid(),
		.pid = (uint32_t)getpid(),
		.chunk_bytes = (uint32_t)soda_chunk_bytes(),
		.features = (uint32_t)soda_members_hash(address) << SODA_FEATURE_MEMBER_SHIFT,
	};

	return soda_conn_connect(soda_agent.agent, &hello, &opt, conn_p, w, why);
}

/* Which instance of a server answers at the address. As soda_session_open(). */
static int probe(const char *address, uint64_t *instance_p, struct soda_why *why)
{
	bool behind = soda_agent.agent[0];
	struct soda_identity *identity = NULL;
	struct soda_wire_welcome w;
	struct soda_conn *conn;
	int ret = load(behind ? soda_agent.agent : address, &identity, why);

	if (!ret)
		ret = behind ? meet_behind(address, identity, &conn, &w, why)
			     : soda_conn_join_as(address, identity, SODA_JOIN_MS, &conn, &w, why);
	if (ret)
		goto out;
	soda_conn_leave(conn, SODA_JOIN_MS);
	*instance_p = w.instance_id;
out:
	soda_identity_free(identity);
	return ret;
}

int soda_servers_moved(const char *address, struct soda_why *why)
{
	uint64_t instance;
	int ret;

	if (!any_away())
		return 0;
	ret = probe(address, &instance, why);
	for (uint32_t i = 0; !ret && i < soda_members(); i++) {
		struct soda_link *link = &soda_agent.links[i];

		if (link->server.welcome.instance_id != instance || soda_server_up(&link->server))
			continue;
		if (!atomic_load(&link->moves)) {
			strcpy(link->moves_to, address);
			atomic_store(&link->moves, true);
			soda_link_wake_keeper(link);
		}
		ret = -EALREADY;
	}
	return ret;
}

/* Its tag is as an agent has it for one that it was told of; the agent proves itself as before. */
static void follow_behind(struct soda_link *link)
{
	soda_log_info("%s is to be found at %s from now on", link->server.address, link->moves_to);
	soda_server_behind(&link->server, soda_agent.agent, link->moves_to,
			   soda_members_hash(link->moves_to));
	soda_server_hurry(&link->server);
	atomic_store(&link->moves, false);
}

void soda_servers_follow(struct soda_link *link)
{
	struct soda_identity *before = soda_agent.identities[link->index];
	struct soda_why why = { "" };

	if (!atomic_load(&link->moves))
		return;
	if (soda_agent.agent[0]) {
		follow_behind(link);
		return;
	}
	soda_agent.identities[link->index] = NULL;
	if (load_identity(link->index, link->moves_to, &why)) {
		soda_log_error("%s is to be found at %s, and cannot be used there: %s",
			       link->server.address, link->moves_to, why.text);
		soda_identity_free(soda_agent.identities[link->index]);
		soda_agent.identities[link->index] = before;
	} else {
		soda_log_info("%s is to be found at %s from now on", link->server.address,
			      link->moves_to);
		soda_server_identify(&link->server, soda_agent.identities[link->index]);
		soda_server_move(&link->server, link->moves_to);
		soda_identity_free(before);
	}
	atomic_store(&link->moves, false);
}

/* The last place of the agent's pool is the new server's, or is free again. */
static void name_behind(const char *address)
{
	struct soda_members *behind = &soda_agent.behind;

	behind->n = soda_members() + (address ? 1 : 0);
	if (address)
		strcpy(behind->address[behind->n - 1], address);
}

int soda_servers_join(const char *address, bool by_agent, struct soda_why *why)
{
	struct soda_link *link = &soda_agent.links[soda_members()];
	int ret = soda_servers_has(address) ? -EALREADY : check_room(by_agent, why);

	if (ret)
		return ret;
	ret = make_room(why);
	if (by_agent)
		name_behind(address);
	if (!ret)
		ret = meet_late(link, address, by_agent, why);
	if (ret && by_agent)
		name_behind(NULL);
	if (ret) {
		soda_agent.settings.servers--;
		return ret;
	}
	soda_session_publish(link);
	soda_limit_resize(false); /* what is fetched ahead is shared by one more */
	soda_log_info("%s is one of the program's servers from now on, the %uth", address,
		      soda_members());
	return 0;
}
