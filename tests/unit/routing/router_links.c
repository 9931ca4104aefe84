/* SPDX-License-Identifier: BSD-3-Clause */
/* Built with --wrap for soda_now_ns() and pthread_cond_timedwait(). */
/* clang-format off: before cmocka.h, whose fail() is a macro */
#include "routing/links.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "unit/routing/router_links.h"

enum { STEP_NS = 2000, IDLE_NS = 200000, WAYS_MAX = AGENTS_MAX * (AGENTS_MAX - 1) };

static struct {
	struct soda_msg_jobs *agents;
	struct router_faults faults;
	uint64_t (*draw)(uint64_t below);
	pthread_t thread;
	struct {
		struct way *way;   /* NULL: its thread has ended */
		uint64_t until_ns; /* it pauses */
	} ways[WAYS_MAX];
	uint32_t ways_n, ended, still;
	uint64_t now_ns, deadline_ns; /* deadline: of the last wait */
	const struct way *acting;
	struct {
		uint32_t agent, other; /* other: the link to it is down; or agent: it is stopped */
		uint64_t until_ns, next_ns;
	} outage;
	struct router_counts counts;
} sim;

/* Time */

uint64_t __real_soda_now_ns(void);
uint64_t __wrap_soda_now_ns(void);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
				  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
				  const struct timespec *until);

static bool simulated(void)
{
	return sim.agents && pthread_equal(pthread_self(), sim.thread);
}

uint64_t __wrap_soda_now_ns(void)
{
	return simulated() ? sim.now_ns : __real_soda_now_ns();
}

/* Nobody sleeps: who is driven by router_step() pauses, and who waits again does so in vain. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
				  const struct timespec *until)
{
	uint64_t at;

	if (!simulated())
		return __real_pthread_cond_timedwait(cond, lock, until);
	at = (uint64_t)until->tv_sec * 1000000000 + (uint64_t)until->tv_nsec;
	/* members.c takes its deadlines, which are for room, from the machine's clock */
	if (at > sim.now_ns + 2ull * SODA_MSG_LINK_BEAT_MS * NS_PER_MS)
		at = sim.now_ns + SODA_MSG_ROOM_MS * NS_PER_MS;
	else if (at == sim.deadline_ns && at > sim.now_ns)
		sim.now_ns = at;
	sim.deadline_ns = at;
	return ETIMEDOUT;
}

uint64_t router_now_ms(void)
{
	return sim.now_ns / NS_PER_MS;
}

/* Outages */

bool router_stopped(uint32_t agent)
{
	return sim.now_ns < sim.outage.until_ns && sim.outage.agent == agent &&
	       sim.outage.other == agent;
}

static bool is_down(uint32_t a, uint32_t b)
{
	return sim.now_ns < sim.outage.until_ns &&
	       ((sim.outage.agent == a && sim.outage.other == b) ||
		(sim.outage.agent == b && sim.outage.other == a));
}

/* The next one begins when all links have been heard since the last one: two are not as one. */
static void draw_outage(uint32_t agents)
{
	if (!sim.faults.outages || sim.now_ns < sim.outage.next_ns)
		return;
	sim.outage.agent = (uint32_t)sim.draw(agents);
	sim.outage.other = sim.draw(2) ? sim.outage.agent : (uint32_t)sim.draw(agents);
	sim.outage.until_ns = sim.now_ns + sim.draw(OUTAGE_MS) * NS_PER_MS;
	sim.outage.next_ns = sim.outage.until_ns + 1500ull * NS_PER_MS;
	sim.counts.outages++;
}

/* Connections */

/* A call that was submitted. */
struct submitted {
	int type;
	bool served;  /* it has arrived */
	bool unheard; /* its answer is lost */
	int ret;      /* of the other agent's, once served, and so the next */
	size_t got;
	struct soda_why why;
	uint8_t said[TAKEN_MAX];
	size_t bytes;
	uint8_t body[SODA_WIRE_MAX_CONTROL];
};

struct soda_conn {
	uint32_t from, to;
	struct soda_msg_job *job; /* in the other agent; NULL: before LINK */
	struct soda_msg_link *link;
	struct submitted *calls[SODA_MSG_AHEAD]; /* the oldest first */
	unsigned calls_n;
	bool broken;
};

/*
 * Connections that have been lost here, while the other agent still has calls of them to serve: it
 * does so later, when these calls have been made again on other ones.
 */
enum { GHOSTS = 32 };

static struct soda_conn *ghosts[GHOSTS];
static unsigned ghosts_n;

int soda_conn_join_with(const char *address, const struct soda_conn_options *opt,
			struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			struct soda_why *why)
{
	uint32_t from = sim.acting->link->job->here;
	uint32_t to = (uint32_t)strtoul(strrchr(address, '/') + 1, NULL, 10);

	assert_int_equal(to, sim.acting->link->agent);
	if (is_down(from, to))
		return -ECONNREFUSED;
	*conn_p = calloc(1, sizeof(**conn_p));
	assert_non_null(*conn_p);
	**conn_p = (struct soda_conn){ .from = from, .to = to };
	return 0;
}

/* As the service messages does with the same bodies. */
static int answer(struct soda_conn *conn, int type, const uint8_t *body, size_t bytes,
		  uint8_t *reply, size_t *got_p, int *fd_p, struct soda_why *why)
{
	struct soda_wire_msg_rings sizes;
	struct soda_msg_routed routed;
	struct soda_wire_msg_relay r;
	struct soda_wire_msg_link l;
	const struct soda_peer_info who = { .address = "sim", .local = true };
	int ret;

	switch (type) {
	case SODA_MSG_MESSAGES_LINK:
		assert_int_equal(soda_wire_get_msg_link(body, bytes, &l), 0);
		*got_p = 4;
		return soda_msg_job_link(
			&sim.agents[conn->to], &l, (const char *)body + SODA_WIRE_MSG_LINK_BYTES,
			bytes - SODA_WIRE_MSG_LINK_BYTES, who.tenant, &conn->job, &conn->link, why);
	case SODA_MSG_MESSAGES_RINGS:
		ret = soda_msg_job_near(conn->job, conn->link, &who, &sizes, fd_p, why);
		if (ret < 0)
			return ret;
		*fd_p = dup(*fd_p);
		soda_wire_put_msg_rings(reply, &sizes);
		*got_p = SODA_WIRE_MSG_RINGS_BYTES;
		return 0;
	case SODA_MSG_MESSAGES_RELAY:
		assert_int_equal(soda_wire_get_msg_relay(body, bytes, &r), 0);
		*got_p = r.packets;
		return soda_msg_job_relay(conn->job, conn->link, body, &r, reply, &routed, why);
	case SODA_MSG_MESSAGES_OFFER:
		assert_int_equal(soda_wire_get_msg_offer(body, bytes, conn->job->here_n, &r), 0);
		*got_p = sizeof(uint64_t) * conn->job->here_n;
		return soda_msg_job_offer(conn->job, conn->link, &r,
					  body + SODA_WIRE_MSG_RELAY_BYTES, reply, &routed, why);
	default: /* BREAK: no job is broken here */
		fail_msg("agent %u says that the job is broken: %.*s", conn->from, (int)bytes,
			 (const char *)body);
		return -EPROTO;
	}
}

/* One of many calls is lost: 0; 1: its answer is; more: neither. */
static uint64_t draw_fate(void)
{
	uint64_t fate = sim.faults.cut ? sim.draw(2ull * sim.faults.cut) : UINT64_MAX;

	sim.counts.calls++;
	sim.counts.cuts += fate < 2;
	return fate;
}

int soda_conn_call_fd(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		      int body_n, void *reply, size_t capacity, size_t *reply_bytes_p, int *fd_p,
		      int timeout_ms, struct soda_why *why)
{
	static uint8_t whole[SODA_WIRE_MAX_CONTROL], said[TAKEN_MAX];
	uint64_t fate = draw_fate();
	size_t bytes = 0, got = 0;
	int ret;

	assert_int_equal(conn->calls_n, 0);
	for (int i = 0; i < body_n; i++) {
		memcpy(whole + bytes, body[i].iov_base, body[i].iov_len);
		bytes += body[i].iov_len;
	}
	*fd_p = -1;
	if (fate == 0 || conn->broken || is_down(conn->from, conn->to))
		return -ECONNRESET;
	ret = answer(conn, (int)type, whole, bytes, said, &got, fd_p, why);
	if (fate == 1) { /* it has arrived, and its answer does not */
		if (*fd_p >= 0)
			close(*fd_p);
		*fd_p = -1;
		return -ECONNRESET;
	}
	if (ret == 0 && reply)
		memcpy(reply, said, got < capacity ? got : capacity);
	if (ret == 0 && reply_bytes_p)
		*reply_bytes_p = got;
	return ret;
}

/* The other agent takes the next call of the connection, if there is one. */
static bool serve_next(struct soda_conn *conn)
{
	for (unsigned i = 0; i < conn->calls_n; i++) {
		struct submitted *c = conn->calls[i];
		int fd;

		if (c->served)
			continue;
		c->served = true;
		c->ret = answer(conn, c->type, c->body, c->bytes, c->said, &c->got, &fd, &c->why);
		return true;
	}
	return false;
}

int soda_conn_submit_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			  int body_n, int timeout_ms, struct soda_why *why)
{
	uint64_t fate = draw_fate();
	struct submitted *c;

	if (fate == 0 || conn->broken || is_down(conn->from, conn->to))
		return -ECONNRESET;
	assert_true(conn->calls_n < SODA_MSG_AHEAD && body_n == 1);
	c = calloc(1, sizeof(*c));
	assert_non_null(c);
	c->type = (int)type;
	c->unheard = fate == 1;
	c->bytes = body->iov_len;
	memcpy(c->body, body->iov_base, c->bytes);
	conn->calls[conn->calls_n++] = c;
	if (sim.draw(2))
		serve_next(conn);
	sim.counts.ahead += conn->calls_n > 1;
	return 0;
}

int soda_conn_collect(struct soda_conn *conn, void *reply, size_t capacity, size_t *reply_bytes_p,
		      int timeout_ms, struct soda_why *why)
{
	struct submitted *c = conn->calls[0];
	int ret;

	assert_true(conn->calls_n);
	conn->broken |= c->unheard || is_down(conn->from, conn->to);
	if (conn->broken)
		return -ECONNRESET; /* what has arrived of it is served all the same */
	while (!c->served)
		serve_next(conn);
	ret = c->ret;
	*why = c->why;
	if (ret == 0)
		memcpy(reply, c->said, c->got < capacity ? c->got : capacity);
	if (ret == 0 && reply_bytes_p)
		*reply_bytes_p = c->got;
	conn->calls_n--;
	memmove(&conn->calls[0], &conn->calls[1], conn->calls_n * sizeof(conn->calls[0]));
	free(c);
	return ret;
}

unsigned soda_conn_submitted(const struct soda_conn *conn)
{
	return conn->calls_n;
}

static void forget(struct soda_conn *conn)
{
	while (conn->calls_n)
		free(conn->calls[--conn->calls_n]);
	if (conn->job)
		soda_msg_job_put(conn->job, false);
	free(conn);
}

/* Some of what has been submitted has arrived, and is served now, later, or never. */
void soda_conn_close(struct soda_conn *conn)
{
	if (!conn)
		return;
	if (conn->calls_n && ghosts_n < GHOSTS && sim.draw(2)) {
		ghosts[ghosts_n++] = conn;
		return;
	}
	while (sim.draw(2) && serve_next(conn))
		;
	forget(conn);
}

void soda_conn_leave(struct soda_conn *conn, int timeout_ms)
{
	soda_conn_close(conn);
}

static void serve_ghost(void)
{
	unsigned i;

	if (!ghosts_n)
		return;
	i = (unsigned)sim.draw(ghosts_n);
	if (serve_next(ghosts[i]))
		return;
	forget(ghosts[i]);
	ghosts[i] = ghosts[--ghosts_n];
}

int soda_conn_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body, int body_n,
		   void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
		   struct soda_why *why)
{
	int fd;

	return soda_conn_call_fd(conn, type, body, body_n, reply, capacity, reply_bytes_p, &fd,
				 timeout_ms, why);
}

/* Life */

void router_begin(struct soda_msg_jobs *agents, struct router_faults faults,
		  uint64_t (*draw)(uint64_t below))
{
	memset(&sim, 0, sizeof(sim));
	sim.agents = agents;
	sim.faults = faults;
	sim.draw = draw;
	sim.thread = pthread_self();
	sim.now_ns = sim.outage.next_ns = 1000000000;
}

/* As soda_msg_links_start(), without threads. */
void router_add(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->links_n; i++) {
		struct way *w = make_way(&job->links[i]);

		assert_non_null(w);
		job->refs++;
		sim.ways[sim.ways_n++].way = w;
	}
}

/* Whether its thread would do something now. */
static bool is_ready(struct way *w)
{
	uint64_t due;

	if (router_stopped(w->link->job->here) || router_stopped(w->link->agent))
		return false;
	if (!w->conn || w->made != w->number || says_more(w))
		return true;
	pthread_mutex_lock(&w->link->lock);
	due = due_ns_locked(w);
	pthread_mutex_unlock(&w->link->lock);
	return due <= sim.now_ns;
}

/* A turn of its thread; or the end of that, as way_main() has it. */
static void act(uint32_t i)
{
	struct way *w = sim.ways[i].way;
	bool goes_on;

	sim.acting = w;
	sim.deadline_ns = 0;
	goes_on = turn(w);
	sim.ways[i].until_ns = sim.deadline_ns;
	if (goes_on)
		return;
	for (uint32_t k = 0; k < w->link->ranks_n; k++)
		if (w->targets[k].wait_ms)
			atomic_fetch_sub(&w->all->relays.blocked, 1);
	skip_answers(w);
	soda_conn_leave(w->conn, 0);
	soda_msg_job_put(w->link->job, false);
	free(w);
	sim.ways[i].way = NULL;
	sim.ended++;
}

static uint64_t moved(const struct way *w)
{
	return atomic_load(&w->all->relays.bytes);
}

bool router_step(void)
{
	uint32_t i = sim.ways_n ? (uint32_t)sim.draw(sim.ways_n) : 0;
	struct way *w = sim.ways[i].way;
	struct soda_msg_jobs *all;
	uint64_t before;

	sim.now_ns += STEP_NS;
	if (!sim.draw(8))
		serve_ghost();
	if (!w)
		return false;
	draw_outage(w->link->job->agents);
	if (sim.ways[i].until_ns > sim.now_ns || !is_ready(w)) {
		if (++sim.still > sim.ways_n) { /* nobody has anything to do for a while */
			sim.now_ns += IDLE_NS;
			sim.still = 0;
		}
		return false;
	}
	sim.still = 0;
	all = w->all;
	before = moved(w);
	act(i);
	return atomic_load(&all->relays.bytes) != before;
}

void router_end(void)
{
	uint64_t steps = 0;

	sim.faults = (struct router_faults){ 0 };
	while (sim.ended < sim.ways_n) {
		router_step();
		if (++steps > 100000000)
			fail_msg("%u links of %u do not end", sim.ways_n - sim.ended, sim.ways_n);
	}
	while (ghosts_n)
		serve_ghost();
	sim.agents = NULL;
}

struct router_counts router_counts(void)
{
	return sim.counts;
}
