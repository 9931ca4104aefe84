/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/wait.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/placement.h"
#include "host_agent/life/recover.h"
#include "host_agent/life/session_impl.h"
#include "host_agent/life/stat_socket.h"
#include "host_agent/move/audit.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/stuck.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/owed.h"

enum { TROUBLES = 8 };

static struct session {
	char address[256];
	struct soda_wire_hello hello; /* the keeper's after start */
	uint64_t instance;
	pthread_t keeper;
	bool running;
	int event_fd;
	_Atomic bool stop;
	_Atomic uint32_t up;	   /* futex: 1 UP, 0 DOWN */
	_Atomic uint32_t breaks;   /* futex: how often all connections were closed */
	_Atomic uint32_t restarts; /* see soda_session_restarts(); the keeper's */
	_Atomic bool failed;	   /* a connection was reported since the last reconnection began */
	_Atomic uint32_t want_collector;
	_Atomic bool keyed;	     /* there is a static cache that is read by keys */
	_Atomic uint32_t want_keyed; /* futex: 1 until the channels have been made to reach it */
	_Atomic int last_error;	     /* of the last report or attempt to connect */
	_Atomic uint32_t troubles;   /* begun */
	_Atomic(const char *) last_text; /* NULL: none yet */

	struct soda_lock lock;
	struct soda_conn *control; /* guarded by lock; NULL while DOWN */
} se = { .event_fd = -1, .lock = SODA_LOCK_INIT(SODA_RANK_SESSION) };

/* The texts of the last errors, in turn: a reader has time until its own is written over. */
static char troubles[TROUBLES][320];

static void note_trouble(int err, const char *text)
{
	char *to = troubles[atomic_fetch_add(&se.troubles, 1) % TROUBLES];

	atomic_store(&se.last_error, err);
	snprintf(to, sizeof(troubles[0]), "%s: %s", se.address,
		 text && *text ? text : soda_strerror(err));
	atomic_store(&se.last_text, to);
}

const char *soda_session_trouble(void)
{
	const char *text = atomic_load(&se.last_text);

	return text ? text : se.address;
}

const char *soda_session_peer(void)
{
	return se.address;
}

static void wake_keeper(void)
{
	uint64_t one = 1;
	int saved = errno;
	long ignored = syscall(SYS_write, se.event_fd, &one, sizeof(one));

	(void)ignored;
	errno = saved;
}

void soda_session_report(int err)
{
	/* seq_cst, and before `up`: a reconnection looks at it after it has set that */
	atomic_store(&se.failed, true);
	if (atomic_exchange(&se.up, 0))
		note_trouble(err, NULL);
	wake_keeper();
}

bool soda_session_up(void)
{
	return atomic_load_explicit(&se.up, memory_order_acquire);
}

/* In pieces, each of which says whether the process ran: at most a piece's time is lost. */
int soda_session_wait(uint64_t deadline_ns)
{
	const uint64_t look_ns = SODA_COLLECT_LOOK_MS * SODA_MS_NS;

	while (!soda_session_up()) {
		uint64_t now = soda_now_ns(), left;

		if (now >= deadline_ns || atomic_load(&se.stop))
			return -ETIMEDOUT;
		left = deadline_ns - now < look_ns ? deadline_ns - now : look_ns;
		soda_futex_wait(&se.up, 0, (int64_t)left);
		deadline_ns +=
			soda_thread_stood_still(soda_thread_self(), left, soda_now_ns() - now);
	}
	return 0;
}

void soda_session_want_collector(void)
{
	if (!atomic_exchange(&se.want_collector, 1))
		wake_keeper();
}

void soda_session_want_keyed(void)
{
	atomic_store(&se.keyed, true);
	atomic_store(&se.want_keyed, 1);
	wake_keeper();
}

void soda_session_await_keyed(void)
{
	uint64_t now = soda_now_ns(),
		 deadline = now + soda_agent.settings.connect_timeout_ms * 1000000ull;

	while (atomic_load(&se.want_keyed) && now < deadline && !atomic_load(&se.stop)) {
		soda_futex_wait(&se.want_keyed, 1, (int64_t)(deadline - now));
		now = soda_now_ns();
	}
}

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

	return soda_conn_connect(se.address, &se.hello, &opt, conn_p, w, why);
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
	soda_lock_acquire(&se.lock);
	se.control = control;
	soda_lock_release(&se.lock);
	return 0;
}

static void disconnect_all(void)
{
	struct soda_conn *control;

	soda_channels_abort();
	soda_channels_disconnect();
	soda_writeback_disconnect();
	soda_lock_acquire(&se.lock);
	control = se.control;
	se.control = NULL;
	soda_lock_release(&se.lock);
	soda_conn_close(control);
	atomic_fetch_add(&se.breaks, 1);
	soda_futex_wake(&se.breaks, INT32_MAX);
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
		soda_log_warning("%s has started anew: what only it held is lost", se.address);
		if (!(atomic_load(&se.restarts) & 1))
			atomic_fetch_add(&se.restarts, 1);
		soda_recover_anew();
		soda_session_forget_closes();
	}
	ret = soda_recover_regions(se.control, why);
	if (!ret && atomic_load(&se.restarts) & 1)
		atomic_fetch_add(&se.restarts, 1);
	return ret;
}

/* One attempt to come UP again. */
static int reconnect(struct soda_why *why)
{
	int timeout = (int)soda_agent.settings.connect_timeout_ms;
	bool known = false;
	int ret;

	disconnect_all();
	atomic_store(&se.failed, false);
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
	atomic_store(&se.want_keyed, atomic_load(&se.keyed));
	atomic_store(&se.up, 1);
	if (atomic_load(&se.failed)) { /* one of the new connections, already */
		atomic_store(&se.up, 0);
		return -ECONNRESET;
	}
	soda_futex_wake(&se.up, INT32_MAX);
	soda_log_info("%s: connected again, epoch %llu", se.address,
		      (unsigned long long)se.hello.epoch);
	soda_audit_quiet("after a reconnection");
	return 0;
}

static void keep_up(void)
{
	int pause_ms = SODA_RETRY_MIN_MS;
	bool said = false;

	while (!soda_session_up() && !atomic_load(&se.stop)) {
		struct soda_why why = { "" };
		int ret = reconnect(&why);

		if (!ret)
			return;
		note_trouble(ret, why.text);
		if (!said)
			soda_log_warning("lost the memory server %s; trying again",
					 soda_session_trouble());
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
		soda_log_warning("%s: its static cache is read by requests: %s", se.address,
				 why.text[0] ? why.text : soda_strerror(ret));
	atomic_store(&se.want_keyed, 0);
	soda_futex_wake(&se.want_keyed, INT32_MAX);
}

/* Sleep until there is something to do. */
static void keeper_waits(void)
{
	struct pollfd fds[] = {
		{ .fd = se.event_fd, .events = POLLIN },
		{ .fd = soda_stat_socket_fd(), .events = POLLIN },
		{ .fd = -1 },
	};
	uint64_t ignored;

	if (se.control)
		soda_conn_end_poll(se.control, &fds[2]);
	poll(fds, sizeof(fds) / sizeof(*fds),
	     atomic_load(&se.want_collector) ? SODA_KEEPER_COLLECT_MS : SODA_KEEPER_TICK_MS);
	if (fds[0].revents && read(se.event_fd, &ignored, sizeof(ignored)) < 0)
		return;
	if (fds[1].revents)
		soda_stat_socket_serve();
	if (fds[2].revents)
		soda_session_report(-ECONNRESET);
}

/* An agent that acknowledges early: how far has it come? */
static void ask_agent(void)
{
	struct soda_conn *control = soda_session_control_acquire();
	int ret = 0;

	if (control)
		ret = soda_owed_ask(control, (int)soda_agent.settings.fault_timeout_ms);
	soda_session_control_release();
	if (ret)
		soda_session_report(ret);
}

/* A program that fetches ahead and does not come for it. */
static void collect_left(struct soda_thread *t)
{
	atomic_store(&se.want_collector, 0);
	if (soda_fetch_collect_left(t))
		atomic_store(&se.want_collector, 1);
}

static void *keep(void *arg)
{
	struct soda_thread *t = soda_thread_internal();

	while (!atomic_load(&se.stop)) {
		keeper_waits();
		if (!soda_session_up())
			keep_up();
		if (atomic_load(&se.want_keyed) && soda_session_up())
			reach_keyed();
		soda_session_close_late();
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
	snprintf(se.address, sizeof(se.address), "%s", address);
	soda_lock_init(&se.lock, SODA_RANK_SESSION);
	soda_session_forget_closes();
	se.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (se.event_fd < 0)
		return -errno;
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
	soda_numa_detect(se.control); /* before there are threads and slots */
	ret = soda_channels_start(pairs);
	if (!ret)
		ret = soda_writeback_start();
	if (!ret)
		ret = connect_data(timeout, why);
	if (ret)
		return ret;
	atomic_store(&se.up, 1);
	ret = soda_helper_start(&se.keeper, "soda-keeper", keep);
	se.running = !ret;
	return ret;
}

static void goodbye(const struct iovec *body, int n)
{
	struct soda_why why;

	soda_lock_acquire(&se.lock);
	if (se.control)
		soda_conn_call(se.control, SODA_MSG_BYE, body, n, NULL, 0, NULL, SODA_GOODBYE_MS,
			       &why);
	soda_lock_release(&se.lock);
}

void soda_session_leave(void)
{
	uint8_t later = SODA_WIRE_BYE_LATER;
	struct iovec body = { &later, sizeof(later) };

	goodbye(&body, 1);
}

void soda_session_stop(void)
{
	atomic_store(&se.stop, true);
	if (se.running) {
		wake_keeper();
		soda_wait_join(se.keeper, "the keeper of the connections to end");
	}
	soda_writeback_stop();
	goodbye(NULL, 0);
	soda_conn_close(se.control);
	se.control = NULL;
	atomic_store(&se.up, 0);
	soda_futex_wake(&se.up, INT32_MAX);
	soda_channels_stop();
	if (se.event_fd >= 0)
		close(se.event_fd);
	se.event_fd = -1;
}

static void forget_channel(struct soda_conn *conn)
{
	int fd = conn ? soda_conn_fd(conn) : -1;

	if (fd >= 0)
		close(fd);
}

void soda_session_forget(void)
{
	atomic_store(&se.stop, true);
	forget_channel(se.control);
	if (se.event_fd >= 0)
		close(se.event_fd);
	soda_channels_forget(forget_channel);
	soda_writeback_forget(forget_channel);
}

struct soda_conn *soda_session_control_acquire(void)
{
	soda_lock_acquire(&se.lock);
	return soda_session_up() ? se.control : NULL; /* not while a reconnection is half done */
}

void soda_session_control_release(void)
{
	soda_lock_release(&se.lock);
}

uint32_t soda_session_restarts(void)
{
	return atomic_load(&se.restarts);
}

uint32_t soda_session_breaks(void)
{
	return atomic_load(&se.breaks);
}

void soda_session_await_break(uint32_t breaks)
{
	while (atomic_load(&se.breaks) == breaks && !atomic_load(&se.stop))
		soda_futex_wait(&se.breaks, breaks, SODA_KEEPER_TICK_MS * SODA_MS_NS);
}
