/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "base/wait.h"
#include "client/call.h"
#include "host_agent/core/agent.h"
#include "host_agent/core/helper.h"
#include "host_agent/life/servers.h"
#include "host_agent/life/start.h"
#include "host_agent/life/stats.h"
#include "host_agent/move/audit.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/kept.h"
#include "host_agent/move/stuck.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/copies.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pool/absence.h"
#include "host_agent/pool/member.h"
#include "host_agent/pool/rebuild.h"
#include "host_agent/pool/recover.h"

/* What a data connection is for. */
enum purpose { DEMAND, AHEAD, WRITEBACK };

static uint32_t depth(enum purpose purpose)
{
	uint32_t ahead = soda_agent.settings.prefetch_chunks;

	if (purpose == WRITEBACK)
		return SODA_WRITEBACK_DEPTH;
	return purpose == AHEAD && ahead > SODA_DEMAND_DEPTH ? ahead : SODA_DEMAND_DEPTH;
}

static int connect_one(struct soda_server *server, enum purpose purpose, struct soda_conn **conn_p,
		       struct soda_why *why)
{
	const struct soda_settings *settings = &soda_agent.settings;
	bool deep = purpose == WRITEBACK;
	struct soda_conn_options opt = {
		.kind = SODA_CONN_DATA,
		.depth = depth(purpose),
		.deep = deep,
		.timeout_ms = server->connect_ms,
		.in_place = !deep,
		.merge = purpose == AHEAD,
		/*
		 * Not with a trace, which has no entry of a chunk that an agent installs itself;
		 * nor of a pool, where an answer that is late must not be installed any more.
		 */
		.hand_over = !deep && settings->mechanisms == SODA_MECHANISMS_AUTO &&
			     !settings->trace && !soda_agent.agent[0],
		.uffd = soda_agent.uffd.fd,
		/* of the whole process: what cannot be sealed is refused then */
		.sealed = settings->seal,
		.identity = soda_server_identity(server),
		.client_key = server->client_key,
		.place = soda_server_place(server),
	};
	struct soda_wire_welcome w;

	return soda_conn_connect(soda_server_peer(server), &server->hello, &opt, conn_p, &w, why);
}

static int connect_data(struct soda_server *server, struct soda_why *why)
{
	const struct soda_link *link = server->owner;
	struct soda_conn *conn;
	int ret;

	for (uint32_t i = 0; i < 2 * link->pairs; i++) {
		ret = connect_one(server, i < link->pairs ? DEMAND : AHEAD, &conn, why);
		if (ret)
			return ret;
		soda_channels_connect(link, i, conn);
	}
	ret = connect_one(server, WRITEBACK, &conn, why);
	if (!ret)
		soda_writeback_connect(server->owner, conn);
	return ret;
}

/* The session's hooks. */

/*
 * The server has none of our regions.  Noted before anything of this attempt can fail, because the
 * server knows the client from now on, and the next attempt meets it as KNOWN.
 */
static void note_forgotten(struct soda_link *link)
{
	soda_log_warning("%s has started anew: what only it held is lost", link->server.address);
	if (!(soda_link_restarts(link) & 1))
		atomic_fetch_add(&link->restarts, 1);
	soda_recover_anew(link);
	soda_calls_forget_closes(link);
}

/*
 * Open or check all regions at the server.  If it had none of them, restarts is odd until one
 * attempt has gone through all regions.  An attempt that fails leaves the regions that it has not
 * come to as they were, and the next one goes on with those.
 */
static int recover(struct soda_link *link, struct soda_conn *control, struct soda_why *why)
{
	int ret = soda_recover_regions(link, control, why);

	if (!ret && soda_link_restarts(link) & 1)
		atomic_fetch_add(&link->restarts, 1);
	return ret;
}

/* Start what moves data, without connections yet. */
static int begin(struct soda_link *link, struct soda_conn *control)
{
	int ret;

	if (link == soda_agent.links)
		soda_numa_detect(
			control); /* first: threads and slots are placed by what it finds */
	ret = soda_channels_start(link, link->pairs);
	return ret ? ret : soda_writeback_start(link);
}

/* The member of the pool, not this one, that has that instance; NULL: none. */
static const struct soda_link *another_with(const struct soda_link *link, uint64_t instance)
{
	for (uint32_t i = 0; i < soda_members(); i++)
		if (&soda_agent.links[i] != link &&
		    atomic_load(&soda_agent.links[i].instance) == instance)
			return &soda_agent.links[i];
	return NULL;
}

/*
 * Another member of the pool answers in this one's place, because addresses were changed: it knows
 * nothing of what this one has, which is not lost for that.  And the address of a private server
 * is a name that any program can take once that has gone.
 */
static int accepts(struct soda_server *server, struct soda_conn *control,
		   const struct soda_wire_welcome *welcome, struct soda_why *why)
{
	uint64_t instance = server->welcome.instance_id;
	const struct soda_link *other = another_with(server->owner, welcome->instance_id);

	if (instance && other) {
		snprintf(why->text, sizeof(why->text),
			 "another server of the pool answers there, the one that was %.120s",
			 other->server.address);
		return -ECONNREFUSED;
	}
	if (!soda_private_started() || !instance || welcome->instance_id == instance)
		return 0;
	snprintf(why->text, sizeof(why->text),
		 "the private server has ended, and another program listens at its address: it is "
		 "told nothing");
	return -ECONNREFUSED;
}

/* The time, in ms, that the keeper waits for an answer which it needs at once. */
static int patience(void)
{
	return soda_calls_patience((int)soda_agent.settings.fault_timeout_ms);
}

static int meet(struct soda_server *server, struct soda_conn *control, enum soda_server_met met,
		struct soda_why *why)
{
	struct soda_link *link = server->owner;
	int ret;

	if (met == SODA_MET_FORGOTTEN)
		note_forgotten(link);
	atomic_store(&link->free_bytes, server->welcome.free_bytes);
	atomic_store(&link->instance, server->welcome.instance_id);
	atomic_store(&link->client_id, server->hello.client_id);
	atomic_store(&link->secret, server->hello.secret);
	if (link == soda_agent.links) /* what belongs to a pool acknowledges late */
		soda_recover_unacked(server->welcome.agent);
	ret = met == SODA_MET_FIRST ? soda_member_learn(link, control, why) : 0;
	if (!ret && soda_agent.settings.servers > 1)
		ret = soda_member_meet(link, control, why);
	server->token.renew_ns = 0; /* before there is a region that it could be needed for */
	if (!ret)
		ret = soda_call_renew_token(server, control, patience(), why);
	if (ret)
		return ret;
	ret = met == SODA_MET_FIRST ? begin(link, control) : recover(link, control, why);
	return ret ? ret : connect_data(server, why);
}

static void come_up(struct soda_server *server)
{
	struct soda_link *link = server->owner;
	bool tells = soda_agent.agent[0] || soda_redundant();

	atomic_store(&link->want_keyed, atomic_load(&link->keyed));
	atomic_store(&link->heard_ns, soda_now_ns());
	for (uint32_t i = 0; tells && i < soda_members(); i++)
		if (i != link->index) /* all may have been away */
			soda_link_wake_keeper(&soda_agent.links[i]);
}

static void go_away(struct soda_server *server)
{
	soda_channels_abort(server->owner);
	soda_channels_disconnect(server->owner);
	soda_writeback_disconnect(server->owner);
}

static void wake(struct soda_server *server, int err)
{
	soda_link_wake_keeper(server->owner);
}

static const struct soda_server_hooks hooks = {
	.accepts = accepts,
	.met = meet,
	.up = come_up,
	.away = go_away,
	.failed = wake,
};

/* The keeper. */

/* Log a change of the state, once: while the server is away every attempt ends in the same one. */
static void tell_trouble(const struct soda_server *server, enum soda_server_state *told_p)
{
	enum soda_server_state state = soda_server_state(server);

	if (state == *told_p)
		return;
	*told_p = state;
	if (state == SODA_SERVER_REFUSED)
		soda_log_warning("the memory server refuses this program: %s; asking again",
				 soda_server_trouble(server));
	else
		soda_log_warning("lost the memory server %s; trying again",
				 soda_server_trouble(server));
}

/*
 * Whether another server has answered since: then it is not this program's own link, or its own
 * standing still, that is to blame.
 */
static bool another_answers(const struct soda_link *link, uint64_t since_ns)
{
	for (uint32_t i = 0; i < soda_members(); i++)
		if (&soda_agent.links[i] != link && soda_server_up(&soda_agent.links[i].server) &&
		    atomic_load(&soda_agent.links[i].heard_ns) > since_ns)
			return true;
	return false;
}

/*
 * With redundancy: while copies of the server's still count as current a connection is made soon,
 * or they become stale.
 */
static void give_up_copies(struct soda_link *link, const struct soda_absence *a)
{
	if (!soda_redundant() || atomic_load(&link->expelled_ns) ||
	    !soda_absence_is_over(a, soda_now_ns()) || !another_answers(link, a->since_ns))
		return;
	atomic_store(&link->expelled_ns, soda_now_ns());
	link->server.connect_ms = (int)soda_agent.settings.connect_timeout_ms;
	soda_rebuild_expel(link);
}

/*
 * Whether all servers are away, with the agent in front of them, or because this program's own way
 * to them is cut: then no copy is better than another one, and nobody says of this server that it
 * is away.
 */
static bool all_are_away(void)
{
	return (soda_agent.agent[0] || soda_redundant()) && !soda_servers_any_up();
}

/* How long an attempt to connect may take at first, while others wait for its end. */
static int connect_soon_ms(const struct soda_absence *a)
{
	if (!soda_agent.agent[0])
		return SODA_COPIES_CONNECT_MS;
	return soda_absence_was_silent(a) ? SODA_COPIES_BEHIND_SILENT_MS : SODA_COPIES_BEHIND_MS;
}

static void begin_absence(struct soda_link *link, struct soda_absence *a)
{
	soda_absence_begin(a, soda_now_ns(), atomic_load(&link->heard_ns));
	if (soda_redundant())
		link->server.connect_ms = connect_soon_ms(a);
}

static void look_at_absence(struct soda_link *link, struct soda_absence *a)
{
	int *ms = &link->server.connect_ms;

	if (!soda_absence_look(a, all_are_away(), soda_now_ns()))
		return;
	soda_server_hurry(&link->server);
	if (soda_redundant() && *ms > SODA_COPIES_RETURN_MS) /* others wait for it again */
		*ms = SODA_COPIES_RETURN_MS;
}

static void note_attempt(struct soda_link *link, struct soda_absence *a, int err, bool others)
{
	int ms = soda_absence_attempted(a, err, others, soda_now_ns(), link->server.connect_ms,
					connect_soon_ms(a),
					(int)soda_agent.settings.connect_timeout_ms);

	if (soda_redundant() && !atomic_load(&link->expelled_ns))
		link->server.connect_ms = ms;
}

/* Try to come UP. told_p: the state that was logged last. */
static void keep_up(struct soda_link *link, struct soda_absence *a, enum soda_server_state *told_p)
{
	bool others = another_answers(link, soda_absence_others_since(a));
	struct soda_server *server = &link->server;
	struct soda_why why = { "" };
	int ret = soda_server_tick(server, soda_now_ns(), &why);

	if (!ret) {
		*told_p = SODA_SERVER_UP;
		atomic_store(&link->expelled_ns, 0);
		atomic_store(&link->gone, false);
		atomic_fetch_add(&soda_agent.reconnects, 1);
		soda_log_info("%s: connected again, epoch %llu", server->address,
			      (unsigned long long)server->hello.epoch);
		soda_audit_quiet("after a reconnection");
	} else if (ret != -EAGAIN) {
		atomic_store(&link->gone, atomic_load(&link->expelled_ns) != 0);
		tell_trouble(server, told_p);
		note_attempt(link, a, ret, others);
	}
	soda_stuck_look();
}

/* Connect the channels to the agent's static cache; if that fails they read it by requests. */
static void reach_keyed(struct soda_link *link)
{
	struct soda_why why = { "" };
	int ret = soda_channels_reach_keyed(link, link->server.connect_ms, &why);

	if (ret)
		soda_log_warning("%s: its static cache is read by requests: %s",
				 link->server.address, why.text[0] ? why.text : soda_strerror(ret));
	atomic_store(&link->want_keyed, 0);
	soda_futex_wake(&link->want_keyed, INT32_MAX);
}

/* How long the keeper sleeps at most. */
static int pause_ms(const struct soda_link *link)
{
	uint64_t now = soda_now_ns(), next = link->server.next_ns;

	if (!soda_server_up(&link->server))
		return now < next ? (int)((next - now) / SODA_MS_NS + 1) : 0;
	if (link == soda_agent.links && soda_kept_pressing())
		return SODA_KEEPER_ASK_MS;
	if (soda_redundant() && !atomic_load(&link->want_collector))
		return SODA_COPIES_PING_MS;
	return atomic_load(&link->want_collector) ? SODA_KEEPER_COLLECT_MS : SODA_KEEPER_TICK_MS;
}

/* Sleep until there is something to do. */
static void keeper_waits(struct soda_link *link)
{
	struct pollfd fds[] = {
		{ .fd = link->event_fd, .events = POLLIN },
		{ .fd = link == soda_agent.links ? soda_stat_socket_fd() : -1, .events = POLLIN },
		{ .fd = -1 },
	};
	uint64_t ignored;

	if (link->server.control)
		soda_conn_end_poll(link->server.control, &fds[2]);
	poll(fds, sizeof(fds) / sizeof(*fds), pause_ms(link));
	if (fds[0].revents && read(link->event_fd, &ignored, sizeof(ignored)) < 0)
		return;
	if (fds[1].revents)
		soda_stat_socket_serve();
	if (fds[2].revents)
		soda_server_report(&link->server, -ECONNRESET);
}

static int ask_unacked(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		       struct soda_why *why)
{
	int ret = soda_unacked_ask(control, timeout_ms, arg);

	return !ret || soda_call_lost(ret) ? ret : -ECONNABORTED; /* the answer makes no sense */
}

/* Ask an agent that acknowledges WRITEs early which of them the server has by now. */
static void ask_agent(struct soda_link *link)
{
	struct soda_unacked_answer answer = { .refused = false };
	struct soda_why ignored;

	if (link != soda_agent.links) /* of a pool, which acknowledges late */
		return;
	soda_call_aside(&link->server, ask_unacked, &answer, SODA_WATCH_WAIT_MS, patience(),
			&ignored);
	if (answer.refused)
		soda_recover_refused();
	soda_kept_look(answer.written);
}

static int renew_token(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		       struct soda_why *why)
{
	return soda_call_renew_token(arg, control, timeout_ms, why);
}

/* See that we have a token that the agent after this one will take. */
static void keep_token(struct soda_link *link)
{
	struct soda_server *server = &link->server;
	struct soda_why ignored;

	if (server->token.number && soda_now_ns() >= server->token.renew_ns)
		soda_call_aside(server, renew_token, server, SODA_WATCH_WAIT_MS, patience(),
				&ignored);
}

static void *close_all(void *arg)
{
	struct soda_link *link = arg;

	soda_calls_close_late(link);
	atomic_store(&link->closer_ended, true);
	return NULL;
}

static void end_closer(struct soda_link *link)
{
	if (link->closer_runs)
		soda_wait_join(link->closer, "regions of objects that are freed to be closed");
	link->closer_runs = false;
}

/*
 * Close what was freed while the server was away.  The CLOSE of a file takes as long as a disk, so
 * where copies are kept, whose servers are looked at all the time, a thread of its own makes it.
 */
static void close_late(struct soda_link *link)
{
	if (atomic_load(&link->closer_ended))
		end_closer(link);
	if (!soda_redundant()) {
		soda_calls_close_late(link);
	} else if (atomic_load(&link->unclosed) && !link->closer_runs) {
		atomic_store(&link->closer_ended, false);
		link->closer_runs =
			!soda_helper_start(&link->closer, "soda-closer", close_all, link);
	}
}

/* Take in what the program's threads have fetched ahead and do not collect. */
static void collect_left(struct soda_link *link, struct soda_thread *t)
{
	atomic_store(&link->want_collector, 0);
	if (soda_fetch_collect_left(t, link))
		atomic_store(&link->want_collector, 1);
}

static void tend(struct soda_link *link, struct soda_thread *t)
{
	if (atomic_load(&link->want_keyed))
		reach_keyed(link);
	close_late(link);
	ask_agent(link);
	keep_token(link);
	collect_left(link, t);
	soda_stuck_look();
	soda_recover_look(link);
}

/*
 * Whether the program has taken a descriptor from us: once a tick, and where a connection is lost.
 * *at_ns: the last look.
 */
static void look_at_descriptors(const struct soda_link *link, uint64_t *at_ns)
{
	uint64_t now = soda_now_ns();
	bool soon = now - *at_ns < SODA_KEEPER_TICK_MS * SODA_MS_NS;

	if (soda_server_up(&link->server) && (soon || link != soda_agent.links))
		return;
	*at_ns = now;
	soda_fds_check();
}

static void *keep(void *arg)
{
	struct soda_thread *t = soda_thread_internal();
	struct soda_link *link = arg;
	enum soda_server_state told = SODA_SERVER_UP;
	struct soda_absence absence = { .since_ns = 0 };
	uint64_t looked_ns = 0; /* at_ns of look_at_descriptors() */

	while (!atomic_load(&link->server.stopping)) {
		keeper_waits(link);
		look_at_descriptors(link, &looked_ns);
		if (!soda_server_up(&link->server)) {
			if (!absence.since_ns)
				begin_absence(link, &absence);
			look_at_absence(link, &absence);
			soda_servers_follow(link);
			keep_up(link, &absence, &told);
		}
		if (soda_server_up(&link->server)) {
			absence.since_ns = 0;
			atomic_store(&link->moves, false); /* it is here: who saw it there erred */
			soda_member_ask(link);
			soda_servers_look(link);
			tend(link, t);
		} else if (absence.since_ns) {
			give_up_copies(link, &absence);
			soda_servers_look(link);
		}
	}
	return NULL;
}

/* Start and end */

int soda_session_open(struct soda_link *link, const char *address, uint32_t pairs, int connect_ms,
		      struct soda_why *why)
{
	struct soda_wire_hello *hello = &link->server.hello;
	int ret;

	ret = soda_link_start(link, address, connect_ms, &hooks);
	soda_server_identify(&link->server, soda_agent.identities[link->index]);
	if (ret)
		return ret;
	link->pairs = pairs;
	soda_member_place(link);
	soda_calls_forget_closes(link);
	hello->chunk_bytes = (uint32_t)soda_chunk_bytes();
	hello->uid = getuid();
	hello->gid = getgid();
	hello->pid = (uint32_t)getpid();
	ret = soda_server_attempt(&link->server, SODA_AS_AGAIN, why);
	link->server.connect_ms = (int)soda_agent.settings.connect_timeout_ms;
	if (!ret)
		ret = soda_helper_start(&link->keeper, "soda-keeper", keep, link);
	link->keeper_runs = !ret;
	return ret;
}

void soda_session_publish(const struct soda_link *link)
{
	if (soda_members() == link->index)
		atomic_store(&soda_agent.members, link->index + 1); /* soda_members() acquires */
}

/*
 * A program that ends without BYE keeps its memory on the server for the whole grace time.  So a
 * session that is AWAY gets a moment to come back for it, while the keeper still runs.
 */
static void await_return(struct soda_link *link)
{
	if (link->keeper_runs && soda_server_state(&link->server) == SODA_SERVER_AWAY)
		soda_server_wait(&link->server, soda_now_ns() + SODA_GOODBYE_MS * SODA_MS_NS, NULL);
}

/*
 * Say BYE, also where the session is AWAY: the control connection may still work.  -ETIMEDOUT also
 * where a call has the connection: the server learns of our end from its connections.
 */
static int goodbye(struct soda_server *server, const struct iovec *body, int n)
{
	struct soda_why why;
	int ret = 0;

	if (!soda_server_acquire_at_end(server, soda_now_ns() + SODA_GOODBYE_MS * SODA_MS_NS))
		return -ETIMEDOUT;
	if (server->control)
		ret = soda_conn_call(server->control, SODA_MSG_BYE, body, n, NULL, 0, NULL,
				     SODA_GOODBYE_MS, &why);
	if (server->control && (!ret || ret == -ETIMEDOUT))
		soda_server_leave(server); /* one that is late takes it when it goes on */
	else if (soda_call_lost(ret))
		soda_server_report(server, ret);
	soda_server_release(server);
	return ret;
}

void soda_session_leave(struct soda_link *link)
{
	uint8_t later = SODA_WIRE_BYE_LATER;
	struct iovec body = { &later, sizeof(later) };
	int ret;

	await_return(link);
	ret = goodbye(&link->server, &body, 1);
	if (ret != -ETIMEDOUT && soda_call_lost(ret)) { /* it was cut, and nobody had seen it */
		await_return(link);
		goodbye(&link->server, &body, 1);
	}
}

void soda_session_stop(struct soda_link *link)
{
	if (!link->server.hooks) /* the session was never started */
		return;
	await_return(link);
	soda_server_stop(&link->server);
	if (link->keeper_runs) {
		soda_link_wake_keeper(link);
		soda_wait_join(link->keeper, "the keeper of the connections to end");
		link->keeper_runs = false;
	}
	end_closer(link);
	soda_writeback_stop(link);
	goodbye(&link->server, NULL, 0);
	soda_server_end(&link->server);
	soda_channels_stop(link);
	soda_link_end(link);
}

static void close_descriptor(struct soda_conn *conn)
{
	int fd = conn ? soda_conn_fd(conn) : -1;

	soda_fd_close(fd);
}

void soda_session_forget(struct soda_link *link)
{
	if (!link->server.hooks) /* the session was never started */
		return;
	soda_server_forget(&link->server);
	soda_link_end(link);
	if (link == soda_agent.links)
		soda_channels_forget(close_descriptor);
	soda_writeback_forget(link, close_descriptor);
}
