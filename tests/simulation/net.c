/* SPDX-License-Identifier: BSD-3-Clause */
#include "net.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/numa/numa_node.h"
#include "nodes.h"
#include "fibers.h"
#include "pool/pool.h"
#include "transport/api/claim.h"
#include "transport/api/transport_impl.h"
#include "transport/listen/prove.h"
#include "transport/stream/stream.h"
#include "trust/identity.h"

enum { ANSWERS = 256, WORKERS = 4 };
static const uint64_t HELLO_NS = 5 * SIM_S; /* in which strangers say who they are */

enum kind { REQUEST, ANSWER, END };

/* What travels. */
struct message {
	struct message *next;
	uint64_t when;
	enum kind kind;
	struct soda_post post; /* REQUEST of a data connection: mr is not used there */
	uint16_t region_id;
	bool polling, told;
	struct soda_wire_origin origin; /* of a WRITE without data: whose they are */
	bool kept;			/* it is one, or has the code of its data instead */
	bool stored; /* a READ of what the agent's store may have; an answer: it has it */
	struct soda_wire_residency residency;
	enum soda_msg type; /* of a call, or its answer */
	int status, fd;
	size_t bytes;
	uint8_t *data; /* its own; NULL: none */
};

struct queue {
	struct message *first, **end;
	uint64_t last_when;
};

struct sim_conn;
struct pipe;

struct answer {
	bool ready;
	int status;
	struct soda_span span; /* with bytes 0: none */
};

struct soda_peer {
	struct pipe *pipe;
	struct soda_listener *listener;
	void *client;
	bool closing, paused, resumed, ringing;
	unsigned pending;
	struct answer answers[ANSWERS];
	uint32_t head, tail;
};

/* A connection. Its memory stays until the seed is over: events may come to it. */
struct pipe {
	struct pipe *next;
	unsigned number;
	enum sim_process from, to;
	enum soda_conn_kind conn_kind;
	struct queue asked, answered; /* to the server, to the client */
	bool lost;		      /* nothing arrives */
	bool half;		      /* the server has closed it: it sends no more answers */
	bool orphan;		      /* its client was killed before the welcome came */
	uint64_t held_until;
	uint64_t welcome_by;	/* the client waits so long for its welcome, and has no conn yet */
	struct sim_conn *conn;	/* NULL: not yet, or the client has closed it, or is gone */
	int error;		/* the client knows that it has ended */
	struct soda_peer *peer; /* NULL: the server has none, or has no more */
	struct soda_wire_hello hello;
	uint8_t said[SODA_WIRE_HELLO_BYTES]; /* that, as it travels */
};

struct sim_conn {
	struct soda_conn conn;
	struct pipe *pipe;
	int fd;
	bool polls;
	struct message *posted, **posted_end;
	struct {
		uint64_t cookie;
		void *dest;
		bool write;
	} * asked; /* under way: a ring of depth */
	uint32_t head, tail;
	uint8_t *in_place; /* the answers of the last poll */
	bool in_place_wanted;
};

struct soda_listener {
	enum sim_process process;
	const struct soda_service *ops;
	void *svc;
	const struct soda_guard *guard; /* who must prove who they are; NULL: nobody */
	char address[64];
	bool accepting, stopping;
	unsigned workers_n;
	struct sim_fiber *workers[WORKERS];
	int keys[WORKERS];
};

static struct {
	struct pipe *pipes;
	unsigned number;
	uint64_t delay, jitter;
	bool cut[SIM_PROCESSES][SIM_PROCESSES];
	struct soda_listener *listening[SIM_PROCESSES];
	struct sim_welcomed welcomed[SIM_PROCESSES][SIM_PROCESSES]; /* who, by which server */
	uint64_t silence_ended;
	unsigned refuse_reads;
} net = { .delay = 10 * SIM_US };

bool sim_net_local, sim_net_keeps, sim_net_ports;
struct sim_net_who sim_net_who[SIM_PROCESSES] = { [SIM_HOST].user = 1000 };

static const char *const names[SIM_PROCESSES] = { "world",   "host",	"agent",   "server",
						  "server2", "server3", "server4", "server5",
						  "server6", "server7", "host2",   "host3",
						  "host4" };

const char *sim_net_name(enum sim_process p)
{
	return names[p];
}

const char *sim_net_address(enum sim_process p)
{
	static char texts[SIM_PROCESSES][32];

	snprintf(texts[p], sizeof(texts[p]), "sim://%s%s", names[p], sim_net_ports ? ":1" : "");
	return texts[p];
}

void sim_net_delay(uint64_t ns, uint64_t jitter_ns)
{
	net.delay = ns;
	net.jitter = jitter_ns;
}

struct sim_welcomed sim_net_welcomed(enum sim_process client, enum sim_process server)
{
	return net.welcomed[client][server];
}

/* Queues */

static void queue_init(struct queue *q)
{
	q->first = NULL;
	q->end = &q->first;
}

static void free_message(struct message *m)
{
	if (m->fd >= 0)
		close(m->fd);
	free(m->data);
	free(m);
}

static void queue_clear(struct queue *q)
{
	struct message *m;

	while ((m = q->first)) {
		q->first = m->next;
		free_message(m);
	}
	q->end = &q->first;
}

static int worker_of(const struct pipe *p)
{
	return (int)(p->number % net.listening[p->to]->workers_n);
}

/* Whoever reads there has something to look at. */
static void wake_server(struct pipe *p)
{
	struct soda_listener *l = net.listening[p->to];

	sim_wake(&p->peer, SIM_FIBERS);
	if (l && p->conn_kind == SODA_CONN_DATA && l->workers_n)
		sim_wake(&l->keys[worker_of(p)], SIM_FIBERS);
}

static void wake_client(struct pipe *p)
{
	sim_wake(p, SIM_FIBERS);
	sim_fd_changed();
}

static void arrived_at_server(void *arg)
{
	wake_server(arg);
}

static void arrived_at_client(void *arg)
{
	wake_client(arg);
}

static void send_message(struct pipe *p, bool answer, struct message *m)
{
	struct queue *q = answer ? &p->answered : &p->asked;
	uint64_t when = sim_now() + net.delay + sim_below(net.jitter + 1);

	if (answer && p->half && m->kind != END) {
		free_message(m); /* those before it are lost: it would be taken for one of them */
		return;
	}
	m->when = when > q->last_when ? when : q->last_when + 1;
	q->last_when = m->when;
	m->next = NULL;
	*q->end = m;
	q->end = &m->next;
	sim_at(m->when, answer ? arrived_at_client : arrived_at_server, p);
}

static struct message *new_message(enum kind kind, const void *data, size_t bytes)
{
	struct message *m = calloc(1, sizeof(*m));

	m->kind = kind;
	m->fd = -1;
	m->bytes = bytes;
	if (bytes) {
		m->data = malloc(bytes);
		if (data)
			memcpy(m->data, data, bytes);
	}
	return m;
}

static void send_end(struct pipe *p, bool answer)
{
	send_message(p, answer, new_message(END, NULL, 0));
}

static bool passes(const struct pipe *p)
{
	return !p->lost && !net.cut[p->from][p->to] && sim_now() >= p->held_until;
}

/* The first that has come; NULL: none yet. */
static struct message *peek(struct pipe *p, struct queue *q)
{
	struct message *m = q->first;

	return m && m->when <= sim_now() && passes(p) ? m : NULL;
}

static struct message *take(struct queue *q)
{
	struct message *m = q->first;

	q->first = m->next;
	if (!q->first)
		q->end = &q->first;
	return m;
}

static void put_back(struct queue *q, struct message *m)
{
	if (!q->first)
		q->end = &m->next;
	m->next = q->first;
	q->first = m;
}

/*
 * Somebody takes it for whole, and nothing comes: a client, or a server that has made a client
 * which nobody knows of, and that counts for --max-clients.
 */
static bool is_silent(const struct pipe *p)
{
	return p->lost && (p->conn ? !p->error : p->orphan && p->peer);
}

uint64_t sim_net_silent_until(void)
{
	for (const struct pipe *p = net.pipes; p; p = p->next)
		if (is_silent(p))
			return SIM_NEVER;
	return net.silence_ended;
}

static void end_client(struct pipe *p, int error)
{
	if (is_silent(p))
		net.silence_ended = sim_now();
	if (!p->error)
		p->error = error;
	wake_client(p);
}

/* The client's side */

static struct sim_conn *of(const struct soda_conn *conn)
{
	return (struct sim_conn *)(uintptr_t)conn;
}

/* What poll(2) would say. */
static short conn_ready(void *arg)
{
	struct sim_conn *c = arg;
	struct message *m = peek(c->pipe, &c->pipe->answered);

	if (c->pipe->error || (m && m->kind == END))
		return POLLIN | POLLRDHUP;
	return m ? POLLIN : 0;
}

static void free_posted(struct sim_conn *c)
{
	while (c->posted) {
		struct message *m = c->posted;

		c->posted = m->next;
		free_message(m);
	}
	c->posted_end = &c->posted;
}

static void op_close(struct soda_conn *conn)
{
	struct sim_conn *c = of(conn);

	sim_point();
	sim_note("closes connection %u", c->pipe->number);
	if (is_silent(c->pipe))
		net.silence_ended = sim_now();
	if (!c->pipe->error)
		send_end(c->pipe, false);
	c->pipe->error = -ECONNABORTED;
	c->pipe->conn = NULL;
	queue_clear(&c->pipe->answered);
	sim_fd_close(c->fd);
	free_posted(c);
	free(c->asked);
	free(c->in_place);
	free(c);
}

static void op_abort(struct soda_conn *conn)
{
	struct sim_conn *c = of(conn);

	if (!c->pipe->error)
		send_end(c->pipe, false);
	end_client(c->pipe, -ECONNABORTED);
}

static int op_fd(const struct soda_conn *conn)
{
	return of(conn)->fd;
}

static int op_device(const struct soda_conn *conn, char name[SODA_DEVICE_NAME])
{
	name[0] = 0;
	return SODA_NODE_ANY;
}

/* The next message for the client, waiting for it; NULL: *err_p. */
static struct message *await(struct pipe *p, uint64_t deadline, const char *what, int *err_p)
{
	for (;;) {
		struct message *m = peek(p, &p->answered);

		if (m && m->kind == END)
			end_client(p, -ECONNRESET);
		if (p->error) {
			*err_p = p->error;
			return NULL;
		}
		if (m)
			return take(&p->answered);
		if (sim_now() >= deadline) {
			*err_p = -ETIMEDOUT;
			return NULL;
		}
		sim_wait(p, deadline, what);
	}
}

static int op_call_fd(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		      int body_n, void *reply, size_t capacity, size_t *reply_bytes_p, int *fd_p,
		      int timeout_ms, struct soda_why *why)
{
	struct pipe *p = of(conn)->pipe;
	struct message *m;
	size_t bytes = 0, at = 0;
	int ret = 0;

	sim_point();
	for (int i = 0; i < body_n; i++)
		bytes += body[i].iov_len;
	if (p->error) {
		conn->error = p->error;
		return p->error;
	}
	m = new_message(REQUEST, NULL, bytes);
	for (int i = 0; i < body_n; i++) {
		if (body[i].iov_len)
			memcpy(m->data + at, body[i].iov_base, body[i].iov_len);
		at += body[i].iov_len;
	}
	m->type = type;
	sim_note("call %d on connection %u", type, p->number);
	send_message(p, false, m);
	m = await(p, sim_now() + (uint64_t)timeout_ms * SIM_MS, "the answer of a call", &ret);
	sim_note("call %d on connection %u: %d", type, p->number, m ? m->status : ret);
	if (!m) {
		conn->error = ret;
		soda_why_set(why, "no answer from %s", conn->peer);
		return ret;
	}
	if (m->type == SODA_MSG_REFUSED) {
		ret = -soda_status_to_errno((unsigned)m->status);
		soda_why_set(why, "%.*s", (int)m->bytes, m->data ? (char *)m->data : "");
	} else if (m->bytes > capacity) {
		ret = -EMSGSIZE;
	} else {
		if (m->bytes)
			memcpy(reply, m->data, m->bytes);
		if (reply_bytes_p)
			*reply_bytes_p = m->bytes;
		if (fd_p) {
			*fd_p = m->fd;
			m->fd = -1;
		}
	}
	free_message(m);
	return ret;
}

static int op_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body, int body_n,
		   void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
		   struct soda_why *why)
{
	return op_call_fd(conn, type, body, body_n, reply, capacity, reply_bytes_p, NULL,
			  timeout_ms, why);
}

/* That travel with it. */
static size_t bytes_of(const struct soda_post *post)
{
	if (!post->write || post->origin)
		return 0;
	return post->code ? post->code_bytes : post->bytes;
}

static bool op_keeps(const struct soda_conn *conn)
{
	return sim_net_keeps;
}

static int op_post(struct soda_conn *conn, const struct soda_post *post)
{
	struct sim_conn *c = of(conn);
	struct message *m = new_message(REQUEST, NULL, bytes_of(post));
	uint32_t at = c->tail++ % conn->depth;

	c->asked[at].cookie = post->cookie;
	c->asked[at].dest = post->data;
	c->asked[at].write = post->write;
	m->post = *post;
	m->region_id = post->mr->region_id;
	m->told = post->residency;
	m->kept = post->origin || post->code;
	if (post->origin)
		m->origin = *post->origin;
	m->stored = post->stored;
	if (post->residency)
		m->residency = *post->residency;
	*c->posted_end = m;
	c->posted_end = &m->next;
	return 0;
}

static int op_flush(struct soda_conn *conn, bool polling)
{
	struct sim_conn *c = of(conn);
	struct message *m;

	sim_point();
	while ((m = c->posted)) {
		if (c->pipe->error) {
			free_posted(c);
			return c->pipe->error;
		}
		c->posted = m->next;
		m->polling = polling;
		if (m->post.code && m->kept) {
			memcpy(m->data, m->post.code, m->bytes);
		} else if (m->post.write && !m->kept) { /* from the pages as they are now */
			sim_spend(m->post.bytes / 8);
			if (sim_is_host(c->pipe->from))
				sim_host_check_resident(m->post.data, m->post.bytes);
			memcpy(m->data, m->post.data, m->post.bytes);
		}
		sim_note("%s%s of %u at %llu of region %u on connection %u",
			 m->post.write ? "WRITE" : "READ",
			 !m->kept	? ""
			 : m->post.code ? " of parity"
					: " of kept data",
			 m->post.bytes, (unsigned long long)m->post.offset, m->region_id,
			 c->pipe->number);
		send_message(c->pipe, false, m);
		sim_point();
	}
	c->posted_end = &c->posted;
	return 0;
}

/* One answer, into done. */
static void complete(struct sim_conn *c, struct message *m, struct soda_done *done, uint8_t **place)
{
	uint32_t at = c->head++ % c->conn.depth;

	*done = (struct soda_done){ .cookie = c->asked[at].cookie,
				    .bytes = (uint32_t)m->bytes,
				    .status = m->status ? -soda_status_to_errno((unsigned)m->status)
							: 0,
				    .stored = m->stored };
	if (!c->asked[at].write && !done->status && !m->stored) {
		sim_spend(m->bytes / 8);
		if (*place) {
			memcpy(*place, m->data, m->bytes);
			done->data = *place;
			*place += m->bytes;
		} else {
			memcpy(c->asked[at].dest, m->data, m->bytes);
		}
	}
	free_message(m);
}

static int op_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		   int64_t spin_ns)
{
	struct sim_conn *c = of(conn);
	uint64_t deadline = timeout_ns < 0 ? SIM_NEVER : sim_now() + (uint64_t)timeout_ns;
	bool under_way = c->head != c->tail && !c->posted;
	size_t bytes = 0;
	uint8_t *place = NULL;
	struct message *m;
	int n = 0, ret = 0;

	sim_point();
	if (!under_way)
		deadline = 0;
	m = await(c->pipe, deadline, "an answer", &ret);
	if (!m)
		return c->pipe->error;
	if (c->in_place_wanted && sim_chance(50)) { /* the answers stay where they came to */
		bytes = m->bytes;
		for (struct message *next = c->pipe->answered.first; next; next = next->next)
			bytes += next->bytes;
		free(c->in_place);
		place = c->in_place = malloc(bytes + 1);
	}
	while (m) {
		complete(c, m, &done[n++], &place);
		m = n < max ? peek(c->pipe, &c->pipe->answered) : NULL;
		if (m && m->kind == END)
			m = NULL;
		if (m)
			take(&c->pipe->answered);
	}
	return n;
}

static const struct soda_conn_ops control_ops = {
	.close = op_close,
	.abort = op_abort,
	.fd = op_fd,
	.call = op_call,
	.call_fd = op_call_fd,
	.device = op_device,
};

static const struct soda_conn_ops data_ops = {
	.close = op_close,
	.abort = op_abort,
	.fd = op_fd,
	.device = op_device,
	.post = op_post,
	.flush = op_flush,
	.poll = op_poll,
	.keeps = op_keeps,
};

static enum sim_process called(const char *name)
{
	size_t bytes = strcspn(name, ":");

	for (int p = 0; p < SIM_PROCESSES; p++)
		if (strlen(names[p]) == bytes && !memcmp(name, names[p], bytes))
			return (enum sim_process)p;
	sim_fail("there is no sim://%s", name);
}

/* The server to which an agent leads by this HELLO. */
static enum sim_process behind(const struct soda_wire_hello *hello)
{
	uint16_t tag = soda_wire_member_tag(hello);

	for (enum sim_process p = SIM_SERVER; tag && p < SIM_HOST2; p++)
		if (soda_members_hash(sim_net_address(p)) == tag)
			return p;
	return SIM_SERVER;
}

/* Which server the connection leads to, perhaps through the agent. */
static enum sim_process server_of(const struct pipe *p, const struct soda_wire_hello *hello)
{
	return p->to == SIM_AGENT ? behind(hello) : p->to;
}

/* Not of a client that asks an agent something, and goes: it is no client of a server. */
static bool is_session(const struct soda_wire_hello *hello)
{
	return hello->chunk_bytes || hello->client_id;
}

static void *control_main(void *arg);
static void *introduce_main(void *arg);

/* Somebody at the other end takes the connection. 0, or why not. */
static int accept_pipe(struct pipe *p)
{
	struct soda_listener *l = net.listening[p->to];
	bool control = p->conn_kind == SODA_CONN_CONTROL;
	struct sim_fiber *f;

	if (!l || !l->accepting)
		return -ECONNREFUSED;
	p->peer = calloc(1, sizeof(*p->peer));
	p->peer->pipe = p;
	p->peer->listener = l;
	f = sim_spawn(p->to, control ? "control" : "acceptor",
		      control ? control_main : introduce_main, p);
	if (!f) {
		free(p->peer);
		p->peer = NULL;
		return -ECONNREFUSED;
	}
	sim_detach(f);
	return 0;
}

/* A message there: the SYN. */
static int reach(struct pipe *p, uint64_t deadline)
{
	sim_sleep(net.delay + sim_below(net.jitter + 1), "a connection");
	while (net.cut[p->from][p->to] || sim_stopped(p->to)) {
		if (sim_now() >= deadline)
			return -ETIMEDOUT;
		sim_sleep(SIM_MS, "a connection");
	}
	return accept_pipe(p);
}

/* Nobody walks over connections any more that both sides have forgotten. */
static void forget_ended(void)
{
	struct pipe **link = &net.pipes, *p;

	while ((p = *link)) {
		if (p->error && !p->conn && !p->peer && !p->lost)
			*link = p->next;
		else
			link = &p->next;
	}
}

/* Says one thing more, and waits for the answer; NULL: *err_p. */
static struct message *exchange(struct pipe *p, enum soda_msg type, const void *said, size_t bytes,
				uint64_t deadline, int *err_p)
{
	struct message *m = new_message(REQUEST, said, bytes);

	m->type = type;
	send_message(p, false, m);
	return await(p, deadline, "the answer to a proof", err_p);
}

/* Every other connection does as verbs do: no tenant's name, and shorter macs. */
static bool is_brief(const struct pipe *p)
{
	return p->number % 2;
}

/* The proof of transport/api/claim.h. The welcome, or a refusal; NULL: *err_p. */
static struct message *prove(struct pipe *p, struct soda_claim *c, uint64_t deadline, int *err_p)
{
	uint8_t hello[SODA_WIRE_HELLO_BYTES], asked[SODA_WIRE_ASK_BYTES];
	uint8_t said[SODA_WIRE_PROOF_BYTES];
	struct soda_wire_proof proof;
	struct message *m;

	*err_p = soda_claim_ask(c, !is_brief(p), hello, asked);
	m = *err_p ? NULL : exchange(p, SODA_MSG_ASK, asked, sizeof(asked), deadline, err_p);
	if (!m || m->type == SODA_MSG_REFUSED)
		return m;
	*err_p = m->type == SODA_MSG_CHALLENGE ? soda_claim_check(c, m->data)
					       : soda_claim_unasked(c);
	free_message(m);
	if (!*err_p)
		*err_p = soda_claim_prove(c, &proof);
	soda_wire_put_proof(said, &proof);
	return *err_p ? NULL : exchange(p, SODA_MSG_PROOF, said, sizeof(said), deadline, err_p);
}

/* c: NULL: nothing is proved. */
static int take_welcome(const struct message *m, const struct soda_claim *c,
			struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	if (m->type == SODA_MSG_REFUSED) {
		soda_why_set(why, "%.*s", (int)m->bytes, m->data ? (char *)m->data : "");
		return -soda_status_to_errno((unsigned)m->status);
	}
	if (c)
		return soda_claim_welcome(c, m->data, m->data + SODA_WIRE_WELCOME_BYTES, welcome_p);
	if (soda_wire_get_welcome(m->data, m->bytes, welcome_p))
		sim_fail("a welcome does not survive its wire format");
	return 0;
}

/* HELLO has been said. 0, or why nobody is welcome. */
static int introduce(struct pipe *p, const char *rest, const struct soda_wire_hello *hello,
		     const struct soda_conn_options *opt, struct soda_wire_welcome *welcome_p,
		     struct soda_why *why)
{
	bool proves = opt->identity && opt->identity->proves;
	struct soda_claim c;
	struct message *m = NULL;
	int ret = reach(p, p->welcome_by);

	soda_why_set(why, "no answer from sim://%s", rest);
	if (!ret && proves)
		ret = soda_claim_begin(&c, opt->identity, hello, opt->client_key, opt->token, NULL,
				       rest, why);
	if (!ret)
		m = proves ? prove(p, &c, p->welcome_by, &ret)
			   : await(p, p->welcome_by, "the welcome", &ret);
	sim_note("connection %u to %s, kind %d, epoch %llu: %d", p->number, rest, opt->kind,
		 (unsigned long long)hello->epoch, m ? m->status : ret);
	if (m)
		ret = take_welcome(m, proves ? &c : NULL, welcome_p, why);
	if (ret)
		p->error = -ECONNABORTED;
	if (ret && p->peer && !(m && m->type == SODA_MSG_REFUSED)) /* which ends it itself */
		send_end(p, false);
	if (m)
		free_message(m);
	return ret;
}

static int sim_connect(const char *rest, const struct soda_wire_hello *hello,
		       const struct soda_conn_options *opt, struct soda_conn **conn_p,
		       struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	struct pipe *p = calloc(1, sizeof(*p));
	struct sim_conn *c;
	bool of_session;
	int ret;

	if (sim_lacks_descriptor())
		return -EMFILE;
	p->from = sim_process();
	p->to = called(rest);
	p->number = ++net.number;
	p->conn_kind = opt->kind;
	p->welcome_by = sim_now() + (uint64_t)opt->timeout_ms * SIM_MS;
	queue_init(&p->asked);
	queue_init(&p->answered);
	soda_wire_put_hello(p->said, hello);
	if (soda_wire_get_hello(p->said, sizeof(p->said), &p->hello))
		sim_fail("a HELLO does not survive its wire format");
	forget_ended();
	p->next = net.pipes;
	net.pipes = p;
	of_session = sim_is_host(p->from) && opt->kind == SODA_CONN_CONTROL && is_session(hello) &&
		     !sim_host_believes(server_of(p, hello)).up; /* else client/watch.c's */
	ret = introduce(p, rest, hello, opt, welcome_p, why);
	if (ret)
		return ret;
	if (of_session)
		net.welcomed[p->from][server_of(p, hello)] =
			(struct sim_welcomed){ welcome_p->instance_id, welcome_p->client_id };
	c = calloc(1, sizeof(*c));
	soda_conn_init(&c->conn, opt->kind == SODA_CONN_CONTROL ? &control_ops : &data_ops, opt,
		       "sim://", rest);
	c->pipe = p;
	c->asked = calloc(opt->depth, sizeof(*c->asked));
	c->posted_end = &c->posted;
	c->in_place_wanted = opt->in_place;
	c->fd = sim_fd_new(p->from, conn_ready, c);
	p->conn = c;
	*conn_p = &c->conn;
	return 0;
}

/* The server's side */

static void answer_call(struct pipe *p, enum soda_msg type, int err, const void *body, size_t bytes,
			int fd)
{
	struct message *m = new_message(ANSWER, body, bytes);

	m->type = type;
	m->status = (int)soda_status_from_errno(-err);
	m->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	send_message(p, true, m);
}

static void refuse(struct pipe *p, int err, const struct soda_why *why)
{
	answer_call(p, SODA_MSG_REFUSED, err, why->text, strlen(why->text), -1);
}

/* proved: NULL: nothing. */
static void welcome(struct pipe *p, struct soda_wire_welcome *w, const struct soda_proved *proved)
{
	uint8_t text[SODA_WIRE_WELCOME_BYTES + SODA_WIRE_MAC_BYTES];
	size_t bytes = proved ? sizeof(text) : SODA_WIRE_WELCOME_BYTES;

	if (proved)
		w->version = SODA_WIRE_VERSION_PROVED;
	soda_wire_put_welcome(text, w);
	if (proved)
		soda_welcome_mac(proved->key, text, text + SODA_WIRE_WELCOME_BYTES);
	answer_call(p, SODA_MSG_OK, 0, text, bytes, -1);
}

static void remove_peer(struct soda_peer *peer)
{
	struct pipe *p = peer->pipe;

	p->peer = NULL;
	queue_clear(&p->asked);
	send_end(p, true);
	free(peer);
	sim_wake(net.listening[p->to], SIM_FIBERS);
}

/* What comes next; NULL: the connection ends, or nothing comes until then. */
static struct message *hear(struct pipe *p, uint64_t deadline, const char *what)
{
	for (;;) {
		struct message *m = peek(p, &p->asked);

		if (p->peer->closing || (m && m->kind == END) || sim_now() >= deadline)
			return NULL;
		if (m)
			return take(&p->asked);
		sim_wait(&p->peer, deadline, what);
	}
}

static int hear_ask(struct pipe *p, struct soda_prover *prover, uint64_t deadline,
		    struct soda_prover_why *why)
{
	struct message *m = hear(p, deadline, "who it is");
	uint8_t challenge[SODA_WIRE_CHALLENGE_BYTES];
	struct soda_wire_ask ask = { .tenant = "" };
	int ret;

	if (!m)
		return -ECONNRESET;
	if (is_brief(p)) {
		memcpy(ask.nonce, m->data, sizeof(ask.nonce));
		memcpy(ask.key_id, m->data + sizeof(ask.nonce), sizeof(ask.key_id));
	} else if (soda_wire_get_ask(m->data, (uint32_t)m->bytes, &ask)) {
		sim_fail("an ASK does not survive its wire format");
	}
	free_message(m);
	ret = soda_prover_ask(prover, &ask, NULL, challenge, why);
	if (!ret)
		answer_call(p, SODA_MSG_CHALLENGE, 0, challenge, sizeof(challenge), -1);
	return ret;
}

static int hear_proof(struct pipe *p, struct soda_prover *prover, uint64_t deadline,
		      struct soda_prover_why *why)
{
	struct message *m = hear(p, deadline, "a proof");
	size_t bytes = is_brief(p) ? sizeof(((struct soda_wire_brief *)NULL)->proof.mac)
				   : SODA_WIRE_MAC_BYTES;
	struct soda_wire_proof proof;

	if (!m)
		return -ECONNRESET;
	if (soda_wire_get_proof(m->data, (uint32_t)m->bytes, &proof))
		sim_fail("a PROOF does not survive its wire format");
	free_message(m);
	memset(proof.mac + bytes, 0, sizeof(proof.mac) - bytes);
	memset(proof.session + bytes, 0, sizeof(proof.session) - bytes);
	return soda_prover_proof(prover, &proof, bytes, why);
}

/* Whoever connects proves it, where there are tenants. 0: *prover_p is NULL where there are none.
 */
static int let_prove(struct pipe *p, struct soda_prover **prover_p, struct soda_why *why)
{
	struct soda_listener *l = p->peer->listener;
	struct soda_prover_why said = { "", "" };
	uint64_t deadline = sim_now() + HELLO_NS;
	int ret;

	*prover_p = NULL;
	if (p->hello.version != (l->guard ? SODA_WIRE_VERSION_PROVED : SODA_WIRE_VERSION)) {
		soda_why_set(why, "another version of the protocol");
		return l->guard ? -EACCES : -EPROTONOSUPPORT;
	}
	if (!l->guard)
		return 0;
	*prover_p = soda_prover_begin(l->guard, p->said);
	ret = hear_ask(p, *prover_p, deadline, &said);
	if (!ret)
		ret = hear_proof(p, *prover_p, deadline, &said);
	soda_why_set(why, "%s", said.peer);
	if (ret && l->ops->rejected)
		l->ops->rejected(l->svc, "sim", *said.log ? said.log : "closed within its proof");
	return ret;
}

static int say_hello(struct pipe *p)
{
	const struct soda_service *ops = p->peer->listener->ops;
	struct soda_wire_welcome w = { .version = SODA_WIRE_VERSION,
				       .max_data = SODA_WIRE_MAX_DATA };
	const struct sim_net_who *who = &sim_net_who[p->from];
	unsigned user = who->user ? who->user : p->hello.uid;
	struct soda_peer_info info = { .address = "sim",
				       .uid = user,
				       .gid = user,
				       .pid = who->pid ? who->pid : SIM_NET_PID,
				       .local = p->to >= SIM_SERVER
							? sim_net_local && p->from != SIM_AGENT
							: sim_host_shares && !who->far };
	struct soda_prover *prover;
	struct soda_why why = { "" };
	int ret = let_prove(p, &prover, &why);

	info.proved = prover ? soda_prover_proved(prover) : NULL;
	if (!ret)
		ret = ops->hello(p->peer->listener->svc, p->peer, &p->hello, &info, &w,
				 &p->peer->client, &why);
	sim_note("HELLO on connection %u, kind %d, epoch %llu: %d %s", p->number, p->conn_kind,
		 (unsigned long long)p->hello.epoch, ret, ret ? why.text : "");
	if (ret < 0)
		refuse(p, ret, &why);
	else
		welcome(p, &w, info.proved);
	soda_prover_end(prover);
	return ret;
}

static void *control_main(void *arg)
{
	struct pipe *p = arg;
	struct soda_peer *peer = p->peer;
	const struct soda_service *ops = peer->listener->ops;
	struct message *m;

	if (say_hello(p) < 0) {
		remove_peer(peer);
		return NULL;
	}
	while ((m = hear(p, SIM_NEVER, "a call"))) {
		uint8_t *body = malloc(SODA_WIRE_MAX_CONTROL);
		struct soda_reply reply = { .body = body, .share = { .fd = -1 } };
		bool shares = sim_host_shares && !sim_net_who[p->from].far &&
			      (m->type == SODA_MSG_STORE || m->type >= SODA_MSG_SERVICES);
		int ret = ops->call(peer->client, m->type, m->data, m->bytes, shares, &reply);

		if (ret < 0 && peer->closing && soda_call_lost(ret))
			; /* an agent has closed it so that this is not heard */
		else if (ret < 0)
			refuse(p, ret, &reply.why);
		else
			answer_call(p, SODA_MSG_OK, 0, body, reply.bytes,
				    shares ? reply.share.fd : -1);
		free(body);
		free_message(m);
	}
	ops->gone(peer->client, peer);
	remove_peer(peer);
	return NULL;
}

/* A data connection: its HELLO; then it is a worker's. */
static void *introduce_main(void *arg)
{
	struct pipe *p = arg;

	if (say_hello(p) < 0) {
		remove_peer(p->peer);
		return NULL;
	}
	p->peer->ringing = true; /* the worker's from now on */
	wake_server(p);
	return NULL;
}

static struct answer *new_answer(struct soda_peer *peer)
{
	struct answer *a = &peer->answers[peer->tail++ % ANSWERS];

	*a = (struct answer){ .ready = false };
	return a;
}

static void set_answer(struct answer *a, int status, const struct soda_span *span)
{
	a->status = status;
	a->span = span && !status ? *span : (struct soda_span){ .bytes = 0 };
	a->ready = true;
}

/* Those that are ready, in their order. */
static bool send_answers(struct soda_peer *peer)
{
	const struct soda_service *ops = peer->listener->ops;
	bool any = false;

	while (!peer->closing && peer->head != peer->tail &&
	       peer->answers[peer->head % ANSWERS].ready) {
		struct answer a = peer->answers[peer->head++ % ANSWERS];
		struct message *m =
			new_message(ANSWER, a.span.memory, a.span.stored ? 0 : a.span.bytes);

		m->status = (int)soda_status_from_errno(-a.status);
		m->stored = a.span.stored;
		any = true;
		send_message(peer->pipe, true, m);
		sim_spend(a.span.bytes / 8);
		sim_point();
		if (a.span.bytes)
			ops->release(peer->client, false, &a.span, false);
	}
	return any;
}

/* The connection ends: what is answered and not sent is let go of. */
static void end_data(struct soda_peer *peer)
{
	const struct soda_service *ops = peer->listener->ops;

	for (; peer->head != peer->tail; peer->head++) {
		struct answer *a = &peer->answers[peer->head % ANSWERS];

		if (a->span.bytes)
			ops->release(peer->client, false, &a->span, false);
	}
	ops->gone(peer->client, peer);
	remove_peer(peer);
}

struct request {
	struct soda_request rq;
	struct soda_peer *peer; /* until done */
	struct answer *answer;
	struct soda_wire_code code;
};

static void deliver(struct soda_peer *peer, struct message *m, const struct soda_span *span)
{
	struct request *r = calloc(1, sizeof(*r));

	r->rq = (struct soda_request){
		.client = peer->client,
		.peer = peer,
		.arrived_ns = sim_now(),
		.offset = m->post.offset,
		.bytes = m->post.bytes,
		.region_id = m->region_id,
		.write = m->post.write,
		.polling = m->polling,
		.told = m->told,
		.stored = m->stored,
		.residency = m->residency,
		.data = span ? span->memory : NULL,
		.hold = span ? span->hold : NULL,
	};
	r->peer = peer;
	r->rq.keep = m->post.keep;
	r->rq.kept = m->kept;
	r->rq.origin = m->origin;
	if (m->kept && m->post.code) {
		if (!soda_wire_get_code(m->data, (uint32_t)m->bytes, &r->code))
			sim_fail("a code does not survive its wire format");
		r->rq.code = &r->code;
	}
	r->answer = new_answer(peer);
	peer->pending++;
	peer->listener->ops->request(peer->client, &r->rq);
}

void soda_request_done(struct soda_request *rq, int status, const struct soda_span *span)
{
	struct request *r = (struct request *)rq;
	struct soda_peer *peer = r->peer;

	sim_point();
	if (!peer)
		sim_fail("a request is answered twice");
	if (!status && span && span->stored && !rq->stored)
		sim_fail("a request is answered by the store that did not ask for it");
	r->peer = NULL;
	set_answer(r->answer, status, rq->write ? NULL : span);
	peer->pending--;
	wake_server(peer->pipe);
	if (!rq->write)
		free(r);
}

void soda_request_free(struct soda_request *rq)
{
	if (((struct request *)rq)->peer || !rq->write)
		sim_fail("a request is freed that was not answered");
	free(rq);
}

/* A piece at a time: others see a half. */
static void copy(uint8_t *to, const uint8_t *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += SODA_WIRE_PAGE) {
		memcpy(to + at, from + at, SODA_WIRE_PAGE);
		sim_spend(SODA_WIRE_PAGE / 8);
		sim_point();
	}
}

/* One request of a one-sided daemon. */
static void serve(struct soda_peer *peer, struct message *m)
{
	const struct soda_service *ops = peer->listener->ops;
	struct soda_span span = { .bytes = 0 };
	bool write = m->post.write;
	int ret;

	if (!write && net.refuse_reads && sim_below(1000) < net.refuse_reads) {
		set_answer(new_answer(peer), -ENOMEM, NULL);
		return;
	}
	ret = ops->translate(peer->client, write, m->region_id, m->post.offset / SODA_WIRE_PAGE,
			     m->post.bytes, &span);
	if (!ret && write) {
		copy(span.memory, m->data, m->post.bytes);
		ops->release(peer->client, true, &span, true);
	}
	set_answer(new_answer(peer), ret, write ? NULL : &span);
}

/* One of a two-sided daemon. False: there is no memory for it now. */
static bool hand_in(struct soda_peer *peer, struct message *m)
{
	const struct soda_service *ops = peer->listener->ops;
	struct soda_span span = { .bytes = 0 };
	int ret;

	if (!m->post.write || m->kept) {
		deliver(peer, m, NULL);
		return true;
	}
	ret = ops->reserve(peer->client, peer, m->region_id, m->post.offset / SODA_WIRE_PAGE,
			   m->post.bytes, &span);
	if (ret == -EAGAIN)
		return false;
	if (ret) {
		set_answer(new_answer(peer), ret, NULL);
		return true;
	}
	copy(span.memory, m->data, m->post.bytes);
	if (peer->closing && sim_chance(50)) /* it ended within the request */
		ops->release(peer->client, true, &span, false);
	else
		deliver(peer, m, &span);
	return true;
}

/* Requests that have come, a few. True: there were some. */
static bool take_requests(struct soda_peer *peer)
{
	struct pipe *p = peer->pipe;
	bool two_sided = peer->listener->ops->request, any = false;

	for (int i = 0; i < 8; i++) {
		struct message *m = peek(p, &p->asked);

		if (peer->resumed)
			peer->paused = peer->resumed = false;
		if (!m || peer->closing || peer->paused || peer->tail - peer->head == ANSWERS)
			break;
		take(&p->asked);
		if (m->kind == END) {
			peer->closing = true;
			free_message(m);
			break;
		}
		if (two_sided && !hand_in(peer, m)) {
			peer->paused = true;
			put_back(&p->asked, m);
			continue;
		}
		if (!two_sided)
			serve(peer, m);
		free_message(m);
		any = true;
	}
	if (any && two_sided)
		peer->listener->ops->doorbell(peer->client, peer);
	return any || peer->closing;
}

static void *worker_main(void *arg)
{
	int *key = arg;
	struct soda_listener *l = net.listening[sim_process()];
	int number = (int)(key - l->keys);

	while (!l->stopping) {
		bool any = false;

		for (struct pipe *p = net.pipes; p; p = p->next) {
			struct soda_peer *peer = p->peer;

			if (!peer || !peer->ringing || peer->listener != l ||
			    worker_of(p) != number)
				continue;
			any = (!peer->closing && take_requests(peer)) || any;
			any = send_answers(peer) || any;
			if (peer->closing && !peer->pending) {
				end_data(peer);
				any = true;
			}
		}
		if (!any)
			sim_wait(key, SIM_NEVER, "requests");
	}
	return NULL;
}

static int sim_listen(const char *rest, const struct soda_service *ops, void *svc,
		      const struct soda_listener_options *opt, struct soda_listener **listener_p,
		      struct soda_why *why)
{
	struct soda_listener *l = calloc(1, sizeof(*l));

	l->process = called(rest);
	l->ops = ops;
	l->svc = svc;
	l->guard = opt->guard;
	l->workers_n = opt->workers < WORKERS ? opt->workers : WORKERS;
	snprintf(l->address, sizeof(l->address), "%s", sim_net_address(l->process));
	net.listening[l->process] = l;
	*listener_p = l;
	return 0;
}

int soda_listener_start(struct soda_listener *l)
{
	for (unsigned i = 0; i < l->workers_n; i++)
		l->workers[i] = sim_spawn(l->process, "soda-data", worker_main, &l->keys[i]);
	l->accepting = true;
	return 0;
}

const char *soda_listener_address(const struct soda_listener *l)
{
	return l->address;
}

void soda_listener_stop_accepting(struct soda_listener *l)
{
	l->accepting = false;
}

static bool any_peer(const struct soda_listener *l)
{
	for (struct pipe *p = net.pipes; p; p = p->next)
		if (p->peer && p->peer->listener == l)
			return true;
	return false;
}

static void begin_close(struct soda_peer *peer)
{
	peer->closing = true;
	wake_server(peer->pipe);
}

void soda_listener_close(struct soda_listener *l)
{
	l->accepting = false;
	sim_point();
	/* Nobody else goes on in between: a peer ends and is freed at any point. */
	for (struct pipe *p = net.pipes; p; p = p->next)
		if (p->peer && p->peer->listener == l)
			begin_close(p->peer);
	while (any_peer(l))
		sim_wait(l, SIM_NEVER, "the end of connections");
	l->stopping = true;
	for (unsigned i = 0; i < l->workers_n; i++) {
		sim_wake(&l->keys[i], SIM_FIBERS);
		sim_join(l->workers[i]);
	}
	net.listening[l->process] = NULL;
	free(l);
}

void soda_peer_close(struct soda_peer *peer)
{
	sim_point();
	begin_close(peer);
}

void soda_peer_resume(struct soda_peer *peer)
{
	peer->resumed = true;
	wake_server(peer->pipe);
}

/* Faults */

static bool between(const struct pipe *p, enum sim_process client, enum sim_process server)
{
	return p->from == client && p->to == server && p->conn && !p->error && !p->lost;
}

unsigned sim_net_connections(enum sim_process client, enum sim_process server)
{
	unsigned n = 0;

	for (struct pipe *p = net.pipes; p; p = p->next)
		n += between(p, client, server);
	return n;
}

static struct pipe *choose(enum sim_process client, enum sim_process server)
{
	unsigned n = sim_net_connections(client, server);
	uint64_t skip = sim_below(n);
	struct pipe *p = net.pipes;

	if (!n)
		return NULL;
	while (!between(p, client, server) || skip--)
		p = p->next;
	return p;
}

/* From now on; what was sent before came, or did not. */
static void end_asked(struct pipe *p)
{
	struct queue *q = &p->asked;
	struct message **at = &q->first;
	uint64_t keep = sim_below(8);

	while (*at && keep--)
		at = &(*at)->next;
	while (*at) {
		struct message *m = *at;

		*at = m->next;
		free_message(m);
	}
	q->end = at;
	send_end(p, false);
}

static void late_end(void *arg)
{
	struct pipe *p = arg;

	if (p->conn)
		end_client(p, -ECONNRESET);
}

/* The kernel on either side finds out that nobody answers. */
static void given_up(void *arg)
{
	struct pipe *p = arg;

	sim_note("connection %u is given up by the kernel", p->number);
	if (is_silent(p))
		net.silence_ended = sim_now();
	p->lost = p->orphan = false;
	queue_clear(&p->asked);
	queue_clear(&p->answered);
	if (p->peer)
		send_end(p, false);
	if (p->conn)
		end_client(p, -ETIMEDOUT);
}

/* TCP's user time-out and its keep-alive; transports without them have their own like these. */
static void lose_silently(struct pipe *p)
{
	uint64_t least = SODA_TCP_USER_MS * SIM_MS;

	p->lost = true;
	sim_at(sim_now() + least + sim_below(SIM_NET_SILENCE_NS - least), given_up, p);
}

static void break_pipe(struct pipe *p, enum sim_break how)
{
	sim_note("FAULT connection %u (%s to %s): break %d", p->number, names[p->from],
		 names[p->to], how);
	switch (how) {
	case SIM_BREAK_RESET:
		queue_clear(&p->asked);
		send_end(p, false);
		end_client(p, -ECONNRESET);
		break;
	case SIM_BREAK_LATE:
		end_client(p, -ECONNRESET);
		p->asked.last_when += sim_below(50 * SIM_MS);
		end_asked(p);
		break;
	case SIM_BREAK_HALF:
		p->half = true;
		queue_clear(&p->asked);
		send_end(p, false);
		queue_clear(&p->answered);
		sim_at(sim_now() + sim_below(100 * SIM_MS), late_end, p);
		break;
	default:
		lose_silently(p);
		break;
	}
}

bool sim_net_break(enum sim_process client, enum sim_process server, enum sim_break how)
{
	struct pipe *p = choose(client, server);

	if (p)
		break_pipe(p, how);
	return p;
}

static void go_on(struct pipe *p)
{
	wake_server(p);
	wake_client(p);
}

void sim_net_cut(enum sim_process client, enum sim_process server, bool cut)
{
	sim_note("FAULT network between %s and %s: %s", names[client], names[server],
		 cut ? "cut" : "mended");
	net.cut[client][server] = cut;
	for (struct pipe *p = net.pipes; p && !cut; p = p->next)
		if (p->from == client && p->to == server)
			go_on(p);
}

void sim_net_refuse_reads(unsigned of_1000)
{
	net.refuse_reads = of_1000;
}

static void held_no_more(void *arg)
{
	go_on(arg);
}

bool sim_net_delay_one(enum sim_process client, enum sim_process server, uint64_t ns)
{
	struct pipe *p = choose(client, server);

	if (!p)
		return false;
	sim_note("FAULT connection %u stands still for %.3f ms", p->number, (double)ns / 1e6);
	p->held_until = sim_now() + ns;
	sim_at(p->held_until, held_no_more, p);
	return true;
}

void sim_net_kill(enum sim_process p, bool silently)
{
	net.listening[p] = NULL;
	for (struct pipe *at = net.pipes; at; at = at->next) {
		/* no conn and no error: it was waiting for its welcome */
		if (at->from == p && (at->conn || !at->error)) {
			at->orphan = !at->conn && at->peer;
			at->conn = NULL;
			at->error = -ECONNABORTED;
			if (silently)
				lose_silently(at);
			else
				send_end(at, false);
		}
		if (at->to != p || !at->peer)
			continue;
		at->peer = NULL; /* its memory is the dead process's */
		queue_clear(&at->asked);
		if (silently)
			lose_silently(at);
		else
			send_end(at, true);
	}
}

void sim_net_check(void)
{
	for (const struct pipe *p = net.pipes; p; p = p->next)
		if (p->peer && !p->conn && !p->error && sim_now() > p->welcome_by + SIM_S)
			sim_fail("the simulation is wrong: the client of connection %u (%s to %s) "
				 "has gone while it was connecting, and nobody has told the server",
				 p->number, names[p->from], names[p->to]);
}

void sim_net_continue(enum sim_process p)
{
	for (struct pipe *at = net.pipes; at; at = at->next)
		if (at->from == p || at->to == p)
			go_on(at);
}

/* The names that transport.c has in its table. */
const struct soda_transport soda_tp_tcp = {
	.prefix = "sim://", .proves = true, .connect = sim_connect, .listen = sim_listen
};
const struct soda_transport soda_tp_shm = { .prefix = "shm://" };
const struct soda_transport soda_tp_verbs = { .prefix = "verbs://" };
const struct soda_transport soda_tp_fault = { .prefix = "fault+" };

/* Messages here are whole, and handed over as such. */
ssize_t soda_stream_send_once(struct soda_byte_stream s, struct iovec *iov, int n, int pass_fd)
{
	sim_fail("the simulation has no sockets");
}

ssize_t soda_stream_recv_once(struct soda_byte_stream s, void *buf, size_t bytes, int *passed_fd_p)
{
	sim_fail("the simulation has no sockets");
}

int soda_nic_node_of_socket(int fd, char name[SODA_DEVICE_NAME])
{
	return SODA_NODE_ANY;
}
