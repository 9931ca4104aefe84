/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The session with a server: each state, each event, each answer to a HELLO.  The peer is a script
 * of answers, time passes only when somebody waits, and one thread is driver and caller in turn.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "client/call.h"
#include "client/server.h"

#define MS SODA_MS_NS

struct soda_conn {
	bool aborted;
};

/* What the peer answers, and what it has seen. */
static struct peer {
	int refuse;   /* the next HELLOs, this error... */
	int refuse_n; /* ...so many */
	struct soda_wire_welcome welcome;
	struct soda_wire_hello hellos[64]; /* those that came */
	int hellos_n, byes, open;	   /* open: connections */
	int call_errors[8];		   /* of the calls to come; then 0 */
	int calls;
	uint64_t call_ns; /* each takes so long */
} peer;

/* What the owner does and has seen. */
static struct owner {
	int met_error;
	bool fails_meanwhile; /* a connection fails while `met` runs */
	int mets, ups, aways, failures;
	enum soda_server_met how;
} owner;

static struct soda_server server;
static uint64_t clock_ns;
static uint64_t sleeps_longer_ns; /* the next wait: the process stands still */
static void (*meanwhile)(void);	  /* what others do during the next wait */

/* The clock. */

uint64_t __wrap_soda_now_ns(void);
int __wrap_soda_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

uint64_t __wrap_soda_now_ns(void)
{
	return clock_ns;
}

int __wrap_soda_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
	void (*others)(void) = meanwhile;

	if (atomic_load(word) != expected)
		return -EAGAIN;
	assert_true(timeout_ns >= 0); /* nobody waits for ever */
	meanwhile = NULL;
	clock_ns += (uint64_t)timeout_ns + sleeps_longer_ns;
	sleeps_longer_ns = 0;
	if (others)
		others();
	return -ETIMEDOUT;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	clock_ns += (uint64_t)timeout_ms * MS;
	return 0;
}

/* The peer. */

int soda_conn_connect(const char *address, const struct soda_wire_hello *hello,
		      const struct soda_conn_options *opt, struct soda_conn **conn_p,
		      struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	assert_string_equal(address, "fake://server");
	assert_int_equal(opt->kind, SODA_CONN_CONTROL);
	assert_int_equal(opt->timeout_ms, 700);
	peer.hellos[peer.hellos_n++] = *hello;
	if (peer.refuse_n) {
		peer.refuse_n--;
		return peer.refuse;
	}
	*conn_p = calloc(1, sizeof(**conn_p));
	*welcome_p = peer.welcome;
	peer.open++;
	return 0;
}

void soda_conn_close(struct soda_conn *conn)
{
	peer.open -= conn != NULL;
	free(conn);
}

void soda_conn_leave(struct soda_conn *conn, int timeout_ms)
{
	soda_conn_close(conn);
}

void soda_conn_abort(struct soda_conn *conn)
{
	conn->aborted = true;
}

static int end_of_fork = -1;

int soda_conn_fd(const struct soda_conn *conn)
{
	return end_of_fork;
}

int soda_conn_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body, int body_n,
		   void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
		   struct soda_why *why)
{
	if (type == SODA_MSG_BYE) {
		peer.byes++;
		return 0;
	}
	clock_ns += peer.call_ns;
	return peer.calls < 8 ? peer.call_errors[peer.calls++] : 0;
}

/* The owner. */

static int meet(struct soda_server *s, struct soda_conn *control, enum soda_server_met how,
		struct soda_why *why)
{
	assert_ptr_equal(s->owner, &owner);
	assert_ptr_equal(control, s->control);
	assert_null(soda_server_acquire(s)); /* nobody calls before all is there */
	soda_server_release(s);
	owner.mets++;
	owner.how = how;
	if (owner.fails_meanwhile)
		soda_server_report(s, -EPIPE);
	return owner.met_error;
}

static void come_up(struct soda_server *s)
{
	assert_int_not_equal(soda_server_state(s), SODA_SERVER_UP);
	owner.ups++;
}

static void go_away(struct soda_server *s)
{
	assert_true(s->control->aborted); /* whoever is in a call is made to end first */
	owner.aways++;
}

static void be_told(struct soda_server *s, int err)
{
	assert_true(err < 0);
	owner.failures++;
}

static const struct soda_server_hooks hooks = {
	.met = meet, .up = come_up, .away = go_away, .failed = be_told
};

static int start(void **state)
{
	memset(&peer, 0, sizeof(peer));
	memset(&owner, 0, sizeof(owner));
	peer.welcome = (struct soda_wire_welcome){
		.client_id = 41, .secret = 42, .instance_id = 7, .known = 1
	};
	clock_ns = 1000 * MS;
	sleeps_longer_ns = 0;
	meanwhile = NULL;
	soda_server_init(&server, "fake://server", 700, &hooks, &owner);
	return 0;
}

static int end(void **state)
{
	soda_server_end(&server);
	assert_int_equal(peer.open, 0);
	return 0;
}

static int try_as(enum soda_server_as as)
{
	struct soda_why why = { "" };

	return soda_server_attempt(&server, as, &why);
}

static int tick(void)
{
	struct soda_why why = { "" };

	return soda_server_tick(&server, clock_ns, &why);
}

static void up(void)
{
	assert_int_equal(try_as(SODA_AS_AGAIN), 0);
	assert_int_equal(soda_server_state(&server), SODA_SERVER_UP);
}

static void refuse(int err, int n)
{
	peer.refuse = err;
	peer.refuse_n = n;
}

/* States and events */

static void to_connecting(void)
{
}

static void to_away(void)
{
	up();
	soda_server_report(&server, -ECONNRESET);
}

static void to_refused(void)
{
	refuse(-EPERM, 1);
	assert_int_equal(try_as(SODA_AS_AGAIN), -EPERM);
}

static void to_gone(void)
{
	up();
	soda_server_end(&server);
}

static void report(void)
{
	soda_server_report(&server, -ECONNRESET);
	assert_true(owner.failures); /* the driver is told in each state */
}

static void take_down(void)
{
	soda_server_down(&server);
	assert_int_equal(peer.open, 0);
}

static void succeed(void)
{
	up();
}

static void fail_to_connect(void)
{
	refuse(-ECONNREFUSED, 1);
	assert_int_equal(try_as(SODA_AS_AGAIN), -ECONNREFUSED);
	assert_int_equal(peer.open, 0);
}

static void be_refused(void)
{
	refuse(-EBUSY, 1);
	assert_int_equal(try_as(SODA_AS_AGAIN), -EBUSY);
	assert_int_equal(peer.open, 0);
}

static void end_it(void)
{
	soda_server_end(&server);
}

static void each_event_in_each_state(void **state)
{
	static const struct {
		void (*to)(void);
		enum soda_server_state is;
	} from[] = {
		{ to_connecting, SODA_SERVER_CONNECTING },
		{ up, SODA_SERVER_UP },
		{ to_away, SODA_SERVER_AWAY },
		{ to_refused, SODA_SERVER_REFUSED },
		{ to_gone, SODA_SERVER_GONE },
	};
	static const struct {
		void (*happens)(void);
		int after[5]; /* from each of those; -1: does not happen there */
	} event[] = {
#define C SODA_SERVER_CONNECTING
#define U SODA_SERVER_UP
#define A SODA_SERVER_AWAY
#define R SODA_SERVER_REFUSED
#define G SODA_SERVER_GONE
		{ report, { C, A, A, R, G } },	     { take_down, { C, A, A, R, G } },
		{ succeed, { U, -1, U, U, -1 } },    { fail_to_connect, { A, -1, A, A, -1 } },
		{ be_refused, { R, -1, R, R, -1 } }, { end_it, { G, G, G, G, G } },
	};

	for (size_t e = 0; e < sizeof(event) / sizeof(*event); e++)
		for (size_t f = 0; f < 5; f++) {
			if (event[e].after[f] < 0)
				continue;
			start(NULL);
			from[f].to();
			assert_int_equal(soda_server_state(&server), from[f].is);
			event[e].happens();
			assert_int_equal(soda_server_state(&server), event[e].after[f]);
			end(NULL);
		}
}

/* An attempt that did not come as far as the control connection has nothing to close. */
static void each_refused_hello(void **state)
{
	static const struct {
		int answer;
		enum soda_server_state is;
	} answers[] = {
		{ -ECONNREFUSED, SODA_SERVER_AWAY }, { -ECONNRESET, SODA_SERVER_AWAY },
		{ -ETIMEDOUT, SODA_SERVER_AWAY },    { -EHOSTUNREACH, SODA_SERVER_AWAY },
		{ -ENOENT, SODA_SERVER_AWAY },	     { -EPROTO, SODA_SERVER_AWAY },
		{ -EMFILE, SODA_SERVER_AWAY },	     { -EPERM, SODA_SERVER_REFUSED },
		{ -EACCES, SODA_SERVER_REFUSED },    { -EBUSY, SODA_SERVER_REFUSED },
		{ -EINVAL, SODA_SERVER_REFUSED },    { -EPROTONOSUPPORT, SODA_SERVER_REFUSED },
		{ -ESTALE, SODA_SERVER_REFUSED },
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		start(NULL);
		refuse(answers[i].answer, 1);
		assert_int_equal(try_as(SODA_AS_ANYBODY), answers[i].answer);
		assert_int_equal(soda_server_state(&server), answers[i].is);
		assert_int_equal(peer.hellos_n, 1);
		assert_int_equal(owner.mets + owner.aways + owner.ups, 0);
		assert_int_equal(soda_server_breaks(&server), 0);
		assert_non_null(strstr(soda_server_trouble(&server), "fake://server: "));
		up();
		assert_int_equal(owner.how, SODA_MET_FIRST);
		end(NULL);
	}
}

/* Old epoch, or another server: who may asks as nobody, once; the others are told. */
static void stale(void **state)
{
	up();
	soda_server_down(&server);
	refuse(-ESTALE, 1);
	peer.welcome =
		(struct soda_wire_welcome){ .client_id = 51, .secret = 52, .instance_id = 8 };
	assert_int_equal(try_as(SODA_AS_AGAIN), 0);
	assert_int_equal(peer.hellos_n, 3);
	assert_int_equal(peer.hellos[1].client_id, 41);
	assert_int_equal(peer.hellos[2].client_id, 0);
	assert_int_equal(peer.hellos[2].secret, 0);
	assert_int_equal(peer.hellos[2].epoch, 1);
	assert_int_equal(server.hello.client_id, 51);
	assert_int_equal(server.hello.secret, 52);
	assert_int_equal(owner.how, SODA_MET_FORGOTTEN);
	soda_server_down(&server);
	refuse(-ESTALE, 2); /* not for ever */
	assert_int_equal(try_as(SODA_AS_AGAIN), -ESTALE);
	assert_int_equal(peer.hellos_n, 5);
}

/* Known, to whom, and of which instance: only all of it together is the server that we know. */
static void each_welcome(void **state)
{
	for (int mask = 0; mask < 8; mask++) {
		struct soda_wire_welcome w = { .known = mask & 1,
					       .client_id = mask & 2 ? 41 : 43,
					       .secret = 42,
					       .instance_id = mask & 4 ? 7 : 9 };

		start(NULL);
		up();
		assert_int_equal(owner.how, SODA_MET_FIRST);
		soda_server_down(&server);
		peer.welcome = w;
		up();
		assert_int_equal(owner.how, mask == 7 ? SODA_MET_KNOWN : SODA_MET_FORGOTTEN);
		assert_int_equal(server.welcome.known, (mask & 3) == 3);
		assert_int_equal(server.hello.client_id, w.client_id);
		end(NULL);
	}
}

/* A client that is not there itself: nobody would tell it that it is another one now. */
static void nobody_new(void **state)
{
	up();
	soda_server_down(&server);
	peer.welcome.known = 0;
	peer.welcome.client_id = 77;
	assert_int_equal(try_as(SODA_AS_KNOWN), -ESTALE);
	assert_int_equal(peer.byes, 1);
	assert_int_equal(peer.open, 0);
	assert_int_equal(owner.mets, 1);
	assert_int_equal(server.hello.client_id, 41); /* still who we were */
	assert_int_equal(soda_server_state(&server), SODA_SERVER_REFUSED);
	peer.welcome.known = 1;
	peer.welcome.client_id = 41;
	assert_int_equal(try_as(SODA_AS_KNOWN), 0);
}

/* Each HELLO has a higher epoch than the last, whatever became of that, and the owner may leap. */
static void epochs(void **state)
{
	for (int i = 0; i < 10; i++) {
		if (i % 3)
			refuse(-ECONNREFUSED, 1);
		owner.met_error = i == 6 ? -EPIPE : 0;
		try_as(SODA_AS_ANYBODY);
		soda_server_down(&server);
	}
	server.hello.epoch = 1 << 16;
	up();
	for (int i = 1; i < peer.hellos_n; i++)
		assert_true(peer.hellos[i].epoch > peer.hellos[i - 1].epoch);
	assert_int_equal(server.hello.epoch, (1 << 16) + 1);
}

/* What the owner could not open or connect: all that was connected is closed. */
static void owner_fails(void **state)
{
	owner.met_error = -ENOMEM;
	assert_int_equal(try_as(SODA_AS_AGAIN), -ENOMEM);
	assert_int_equal(soda_server_state(&server), SODA_SERVER_AWAY);
	assert_int_equal(owner.aways, 1);
	assert_int_equal(owner.ups, 0);
	assert_int_equal(peer.open, 0);
	assert_int_equal(soda_server_breaks(&server), 1);
	owner.met_error = 0;
	up();
	assert_int_equal(owner.how, SODA_MET_KNOWN); /* it was met all the same */
}

/* One of the new connections fails before the last is there. */
static void fails_meanwhile(void **state)
{
	owner.fails_meanwhile = true;
	assert_int_equal(try_as(SODA_AS_AGAIN), -ECONNRESET);
	assert_int_equal(soda_server_state(&server), SODA_SERVER_AWAY);
	assert_int_equal(owner.aways, 1);
	assert_int_equal(peer.open, 0);
	owner.fails_meanwhile = false;
	up();
}

/* What was connected before goes first. */
static void reported_and_tried(void **state)
{
	up();
	soda_server_report(&server, -ETIMEDOUT);
	assert_non_null(strstr(soda_server_trouble(&server), "timed out"));
	assert_int_equal(owner.aways, 0); /* the driver's */
	assert_int_equal(peer.open, 1);
	soda_server_report(&server, -EPIPE); /* the same outage: its first reason stays */
	assert_non_null(strstr(soda_server_trouble(&server), "timed out"));
	up();
	assert_int_equal(owner.aways, 1);
	assert_int_equal(peer.open, 1);
	assert_int_equal(soda_server_breaks(&server), 1);
}

/* At once, then 20, 40, 80... ms; and at once again after a success. */
static void pace(void **state)
{
	uint64_t expected = SODA_RETRY_MIN_MS;

	for (int outage = 0; outage < 2; outage++) {
		refuse(-ECONNREFUSED, 9);
		for (int i = 0; i < 9; i++) {
			assert_int_equal(tick(), -ECONNREFUSED);
			assert_int_equal(server.next_ns - clock_ns, expected * MS);
			assert_int_equal(tick(), -EAGAIN);
			clock_ns = server.next_ns - 1;
			assert_int_equal(tick(), -EAGAIN);
			clock_ns++;
			expected =
				expected * 2 < SODA_RETRY_MAX_MS ? expected * 2 : SODA_RETRY_MAX_MS;
		}
		assert_int_equal(expected, SODA_RETRY_MAX_MS);
		assert_int_equal(tick(), 0);
		assert_int_equal(tick(), 0); /* UP: nothing to do */
		assert_int_equal(peer.hellos_n, 10 * (outage + 1));
		soda_server_report(&server, -ECONNRESET);
		expected = SODA_RETRY_MIN_MS;
	}
	soda_server_stop(&server);
	assert_int_equal(tick(), -ESHUTDOWN);
}

/* Waits */

static void reconnect(void)
{
	assert_int_equal(tick(), 0);
}

static void stop(void)
{
	soda_server_stop(&server);
}

static void waits(void **state)
{
	uint64_t still = 0;

	assert_int_equal(soda_server_wait(&server, clock_ns + 5000 * MS, NULL), -ETIMEDOUT);
	assert_int_equal(clock_ns, 6000 * MS);
	meanwhile = reconnect;
	assert_int_equal(soda_server_wait(&server, clock_ns + 5000 * MS, NULL), 0);
	assert_int_equal(soda_server_wait(&server, 0, NULL), 0); /* UP: no matter how late */
	soda_server_report(&server, -ECONNRESET);
	/* an hour in which the process did not run */
	clock_ns = 0;
	sleeps_longer_ns = 3600000 * MS;
	assert_int_equal(soda_server_wait(&server, 5000 * MS, &still), -ETIMEDOUT);
	assert_true(still >= 3600000 * MS);
	assert_int_equal(clock_ns, 5000 * MS + still);
	meanwhile = stop;
	clock_ns = 0;
	assert_int_equal(soda_server_wait(&server, 5000 * MS, NULL), -ETIMEDOUT);
	assert_true(clock_ns < 5000 * MS);
}

static void waits_for_a_break(void **state)
{
	up();
	meanwhile = take_down;
	soda_server_await_break(&server, 0);
	assert_int_equal(soda_server_breaks(&server), 1);
	up();
	meanwhile = stop;
	soda_server_await_break(&server, 1); /* or until the end */
	assert_int_equal(soda_server_breaks(&server), 1);
}

/* Calls */

static struct {
	int n;
	bool again[8];
} asked;

static int ask(struct soda_conn *control, void *arg, bool again, int timeout_ms,
	       struct soda_why *why)
{
	assert_ptr_equal(control, server.control);
	assert_false(soda_lock_try(&server.lock));
	asked.again[asked.n++] = again;
	return soda_conn_call(control, SODA_MSG_SYNC, NULL, 0, NULL, 0, NULL, timeout_ms, why);
}

static void calls_once(void **state)
{
	struct soda_why why = { "" };

	asked.n = 0;
	assert_int_equal(soda_call_once(&server, ask, NULL, 100, &why), -ENOTCONN);
	assert_int_equal(asked.n, 0);
	assert_int_equal(owner.failures, 0); /* there is none that could have failed */
	up();
	peer.call_errors[0] = -ENOSPC; /* an answer */
	peer.call_errors[1] = -EPROTO; /* that is one, too */
	peer.call_errors[2] = -ETIMEDOUT;
	assert_int_equal(soda_call_once(&server, ask, NULL, 100, &why), -ENOSPC);
	assert_int_equal(soda_call_once(&server, ask, NULL, 100, &why), -EPROTO);
	assert_int_equal(soda_server_state(&server), SODA_SERVER_UP);
	assert_int_equal(soda_call(&server, SODA_MSG_SYNC, NULL, 0, NULL, 0, NULL, 100, &why),
			 -ETIMEDOUT);
	assert_int_equal(soda_server_state(&server), SODA_SERVER_AWAY);
	assert_int_equal(owner.failures, 1);
	assert_int_equal(soda_call(&server, SODA_MSG_SYNC, NULL, 0, NULL, 0, NULL, 100, &why),
			 -ENOTCONN);
}

static void calls_persist(void **state)
{
	struct soda_why why = { "" };

	asked.n = 0;
	up();
	peer.call_errors[0] = peer.call_errors[1] = -ECONNRESET;
	meanwhile = reconnect;
	/* the second one is lost as well, and nobody reconnects */
	assert_int_equal(soda_call_persist(&server, ask, NULL, 3000, &why), -ETIMEDOUT);
	assert_int_equal(asked.n, 2);
	assert_false(asked.again[0]);
	assert_true(asked.again[1]); /* it may have been done */
	assert_non_null(strstr(why.text, "fake://server: "));
	up();
	assert_int_equal(soda_call_persist(&server, ask, NULL, 3000, &why), 0);
	peer.calls = 0;
	peer.call_errors[0] = -ENOENT;
	assert_int_equal(soda_call_persist(&server, ask, NULL, 3000, &why), -ENOENT);
	assert_int_equal(asked.n, 4);
}

/* The peer is there, and does not answer; or this process stood still, which does not count. */
static void calls_not_answered(void **state)
{
	struct soda_why why = { "" };

	asked.n = 0;
	up();
	peer.call_ns = 3000 * MS;
	peer.call_errors[0] = -ETIMEDOUT;
	assert_int_equal(soda_call_persist(&server, ask, NULL, 3000, &why), -ETIMEDOUT);
	assert_int_equal(asked.n, 1);
	assert_non_null(strstr(why.text, "has not answered within 3000 ms"));
	up();
	peer.call_ns = 60000 * MS;
	peer.call_errors[1] = -ETIMEDOUT;
	meanwhile = reconnect;
	assert_int_equal(soda_call_persist(&server, ask, NULL, 3000, &why), 0);
	assert_int_equal(asked.n, 3);
}

/* In a fork's child: the descriptor goes, and nothing is said to the peer. */
static void forgotten(void **state)
{
	int pipe_fds[2];

	assert_int_equal(pipe(pipe_fds), 0);
	up();
	end_of_fork = pipe_fds[0];
	soda_server_forget(&server);
	assert_int_equal(close(pipe_fds[0]), -1);
	close(pipe_fds[1]);
	assert_int_equal(peer.byes, 0);
	assert_int_equal(owner.aways, 0);
	end_of_fork = -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_event_in_each_state),
		TEST(each_refused_hello),
		TEST(stale),
		TEST(each_welcome),
		TEST(nobody_new),
		TEST(epochs),
		TEST(owner_fails),
		TEST(fails_meanwhile),
		TEST(reported_and_tried),
		TEST(pace),
		TEST(waits),
		TEST(waits_for_a_break),
		TEST(calls_once),
		TEST(calls_persist),
		TEST(calls_not_answered),
		TEST(forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
