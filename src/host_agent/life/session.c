/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/link.h"
#include "host_agent/life/recover.h"
#include "host_agent/life/stats.h"
#include "host_agent/move/audit.h"
#include "host_agent/move/calls.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/stuck.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/owed.h"

static struct session {
	struct soda_wire_hello hello; /* the keeper's after start */
	uint64_t instance;
	pthread_t keeper;
	bool running;
} se;

/* What a connection is for. */
enum purpose { CONTROL, DEMAND, AHEAD, WRITEBACK };

static uint32_t depth(enum purpose purpose)
{
	uint32_t ahead = soda_agent.settings.prefetch_chunks;

	if (purpose == WRITEBACK)
		return SODA_WRITEBACK_DEPTH;
	return purpose == AHEAD && ahead > SODA_DEMAND_DEPTH ? ahead : SODA_DEMAND_DEPTH;
}

static int connect_one(enum purpose purpose, int timeout_ms, struct soda_conn **conn_p,
		       struct soda_wire_welcome *w, struct soda_why *why)
{
	const struct soda_settings *settings = &soda_agent.settings;
	bool deep = purpose == WRITEBACK;
	struct soda_conn_options opt = {
		.kind = purpose == CONTROL ? SODA_CONN_CONTROL : SODA_CONN_DATA,
		.depth = depth(purpose),
		.deep = deep,
		.timeout_ms = timeout_ms,
		.in_place = !deep,
		.merge = purpose == AHEAD,
		/* What an agent installs itself is in no trace. */
		.hand_over =
			!deep && settings->mechanisms == SODA_MECHANISMS_AUTO && !settings->trace,
		.uffd = soda_agent.uffd.fd,
	};

	return soda_conn_connect(soda_link.address, &se.hello, &opt, conn_p, w, why);
}

static int connect_data(int timeout_ms, struct soda_why *why)
{
	struct soda_wire_welcome w;
	struct soda_conn *conn;
	int ret;

	for (uint32_t i = 0; i < 2 * soda_channels_pairs(); i++) {
		ret = connect_one(i < soda_channels_pairs() ? DEMAND : AHEAD, timeout_ms, &conn, &w,
				  why);
		if (ret)
			return ret;
		soda_channels_connect(i, conn);
	}
	ret = connect_one(WRITEBACK, timeout_ms, &conn, &w, why);
	if (!ret)
		soda_writeback_connect(conn);
	return ret;
}

static int connect_all(int timeout_ms, bool *known_p, struct soda_why *why)
{
	struct soda_wire_welcome w;
	struct soda_conn *control;
	int ret;

	ret = connect_one(CONTROL, timeout_ms, &control, &w, why);
	if (ret == -ESTALE) { /* the server forgot us, or is another: be a new client */
		se.hello.client_id = se.hello.secret = 0;
		se.hello.epoch = 1;
		ret = connect_one(CONTROL, timeout_ms, &control, &w, why);
	}
	if (ret)
		return ret;
	soda_recover_owed(w.agent);
	/* An agent between may be a known client of the server's, and not the one that we were. */
	*known_p = w.known && w.instance_id == se.instance && w.client_id == se.hello.client_id;
	se.instance = w.instance_id;
	se.hello.client_id = w.client_id;
	se.hello.secret = w.secret;
	soda_lock_acquire(&soda_link.lock);
	soda_link.control = control;
	soda_lock_release(&soda_link.lock);
	return 0;
}

static void disconnect_all(void)
{
	struct soda_conn *control;

	soda_channels_abort();
	soda_channels_disconnect();
	soda_writeback_disconnect();
	soda_lock_acquire(&soda_link.lock);
	control = soda_link.control;
	soda_link.control = NULL;
	soda_lock_release(&soda_link.lock);
	soda_conn_close(control);
	atomic_fetch_add(&soda_link.breaks, 1);
	soda_futex_wake(&soda_link.breaks, INT32_MAX);
}

/*
 * All regions, for the server that is met.  Where it has none of ours that is not over before an
 * attempt has gone through all of them: those that this one has not come to are as they were, and
 * the next one goes on with them, as the client that this one was told to be.
 */
static int recover(bool known, struct soda_why *why)
{
	int ret;

	if (!known) {
		soda_log_warning("%s has started anew: what only it held is lost",
				 soda_link.address);
		if (!(atomic_load(&soda_link.restarts) & 1))
			atomic_fetch_add(&soda_link.restarts, 1);
		soda_recover_anew();
		soda_calls_forget_closes();
	}
	ret = soda_recover_regions(soda_link.control, why);
	if (!ret && atomic_load(&soda_link.restarts) & 1)
		atomic_fetch_add(&soda_link.restarts, 1);
	return ret;
}

/* One attempt to come UP again. */
static int reconnect(struct soda_why *why)
{
	int timeout = (int)soda_agent.settings.connect_timeout_ms;
	bool known = false;
	int ret;

	disconnect_all();
	atomic_store(&soda_link.failed, false);
	se.hello.epoch++;
	ret = connect_all(timeout, &known, why);
	if (ret)
		return ret;
	ret = recover(known, why);
	if (ret)
		return ret;
	ret = connect_data(timeout, why);
	if (ret)
		return ret;
	atomic_fetch_add(&soda_agent.reconnects, 1);
	atomic_store(&soda_link.want_keyed, atomic_load(&soda_link.keyed));
	atomic_store(&soda_link.up, 1);
	if (atomic_load(&soda_link.failed)) { /* one of the new connections, already */
		atomic_store(&soda_link.up, 0);
		return -ECONNRESET;
	}
	soda_futex_wake(&soda_link.up, INT32_MAX);
	soda_log_info("%s: connected again, epoch %llu", soda_link.address,
		      (unsigned long long)se.hello.epoch);
	soda_audit_quiet("after a reconnection");
	return 0;
}

static void keep_up(void)
{
	int pause_ms = SODA_RETRY_MIN_MS;
	bool said = false;

	while (!soda_link_up() && !atomic_load(&soda_link.stop)) {
		struct soda_why why = { "" };
		int ret = reconnect(&why);

		if (!ret)
			return;
		soda_link_note_trouble(ret, why.text);
		if (!said)
			soda_log_warning("lost the memory server %s; trying again",
					 soda_link_trouble());
		said = true;
		soda_stuck_look();
		poll(NULL, 0, pause_ms);
		pause_ms = pause_ms * 2 < SODA_RETRY_MAX_MS ? pause_ms * 2 : SODA_RETRY_MAX_MS;
	}
}

/* Where it fails the static cache is read by requests, as all else. */
static void reach_keyed(void)
{
	struct soda_why why = { "" };
	int ret = soda_channels_reach_keyed((int)soda_agent.settings.connect_timeout_ms, &why);

	if (ret)
		soda_log_warning("%s: its static cache is read by requests: %s", soda_link.address,
				 why.text[0] ? why.text : soda_strerror(ret));
	atomic_store(&soda_link.want_keyed, 0);
	soda_futex_wake(&soda_link.want_keyed, INT32_MAX);
}

/* Sleep until there is something to do. */
static void keeper_waits(void)
{
	struct pollfd fds[] = {
		{ .fd = soda_link.event_fd, .events = POLLIN },
		{ .fd = soda_stat_socket_fd(), .events = POLLIN },
		{ .fd = -1 },
	};
	uint64_t ignored;

	if (soda_link.control)
		soda_conn_end_poll(soda_link.control, &fds[2]);
	poll(fds, sizeof(fds) / sizeof(*fds),
	     atomic_load(&soda_link.want_collector) ? SODA_KEEPER_COLLECT_MS : SODA_KEEPER_TICK_MS);
	if (fds[0].revents && read(soda_link.event_fd, &ignored, sizeof(ignored)) < 0)
		return;
	if (fds[1].revents)
		soda_stat_socket_serve();
	if (fds[2].revents)
		soda_link_report(-ECONNRESET);
}

/* An agent that acknowledges early: how far has it come? */
static void ask_agent(void)
{
	struct soda_conn *control = soda_link_control_acquire();
	int ret = 0;

	if (control)
		ret = soda_owed_ask(control, (int)soda_agent.settings.fault_timeout_ms);
	soda_link_control_release();
	if (ret)
		soda_link_report(ret);
}

/* A program that fetches ahead and does not come for it. */
static void collect_left(struct soda_thread *t)
{
	atomic_store(&soda_link.want_collector, 0);
	if (soda_fetch_collect_left(t))
		atomic_store(&soda_link.want_collector, 1);
}

static void *keep(void *arg)
{
	struct soda_thread *t = soda_thread_internal();

	while (!atomic_load(&soda_link.stop)) {
		keeper_waits();
		if (!soda_link_up())
			keep_up();
		if (atomic_load(&soda_link.want_keyed) && soda_link_up())
			reach_keyed();
		soda_calls_close_late();
		ask_agent();
		collect_left(t);
		soda_stuck_look();
		soda_recover_look();
	}
	return NULL;
}

int soda_session_start(const char *address, uint32_t pairs, struct soda_why *why)
{
	int timeout = (int)soda_agent.settings.connect_timeout_ms;
	bool known;
	int ret;

	memset(&se, 0, sizeof(se));
	soda_calls_forget_closes();
	ret = soda_link_start(address);
	if (ret)
		return ret;
	se.hello = (struct soda_wire_hello){
		.magic = SODA_WIRE_MAGIC,
		.version = SODA_WIRE_VERSION,
		.chunk_bytes = (uint32_t)soda_chunk_bytes(),
		.uid = getuid(),
		.gid = getgid(),
		.pid = (uint32_t)getpid(),
		.epoch = 1,
	};
	ret = connect_all(timeout, &known, why);
	if (ret)
		return ret;
	soda_numa_detect(soda_link.control); /* before there are threads and slots */
	ret = soda_channels_start(pairs);
	if (!ret)
		ret = soda_writeback_start();
	if (!ret)
		ret = connect_data(timeout, why);
	if (ret)
		return ret;
	atomic_store(&soda_link.up, 1);
	ret = soda_helper_start(&se.keeper, "soda-keeper", keep);
	se.running = !ret;
	return ret;
}

static void goodbye(const struct iovec *body, int n)
{
	struct soda_why why;

	soda_lock_acquire(&soda_link.lock);
	if (soda_link.control)
		soda_conn_call(soda_link.control, SODA_MSG_BYE, body, n, NULL, 0, NULL,
			       SODA_GOODBYE_MS, &why);
	soda_lock_release(&soda_link.lock);
}

void soda_session_leave(void)
{
	uint8_t later = SODA_WIRE_BYE_LATER;
	struct iovec body = { &later, sizeof(later) };

	goodbye(&body, 1);
}

void soda_session_stop(void)
{
	atomic_store(&soda_link.stop, true);
	if (se.running) {
		soda_link_wake_keeper();
		soda_wait_join(se.keeper, "the keeper of the connections to end");
	}
	soda_writeback_stop();
	goodbye(NULL, 0);
	soda_conn_close(soda_link.control);
	soda_link.control = NULL;
	atomic_store(&soda_link.up, 0);
	soda_futex_wake(&soda_link.up, INT32_MAX);
	soda_channels_stop();
	soda_link_end();
}

static void forget_channel(struct soda_conn *conn)
{
	int fd = conn ? soda_conn_fd(conn) : -1;

	if (fd >= 0)
		close(fd);
}

void soda_session_forget(void)
{
	atomic_store(&soda_link.stop, true);
	forget_channel(soda_link.control);
	soda_link_end();
	soda_channels_forget(forget_channel);
	soda_writeback_forget(forget_channel);
}
