/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/fakes/fake_upstream.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "dpu_agent/session/keeper.h"

enum { CLIENTS = 64, REGIONS = 16, DEPTH = 512, PEERS = 256 };

/* The server's side. */

struct server_client {
	uint64_t id, secret, epoch;
	uint8_t *memory[REGIONS];
	uint64_t bytes[REGIONS];
	uint32_t flags[REGIONS];
};

struct posted {
	bool write;
	uint16_t region;
	uint64_t offset, cookie;
	uint32_t bytes;
	void *local;
};

struct soda_conn {
	struct soda_conn *next;
	enum soda_conn_kind kind;
	uint64_t client, epoch;
	const char *address; /* of the options, which outlive it */
	int error;	     /* sticky */
	int fd;
	struct posted at[DEPTH];
	unsigned head, flushed, tail;
};

struct fake_upstream fake_upstream;
struct soda_dpu_options fake_options;
struct soda_dpu fake_dpu;
void (*fake_on_answer)(uint64_t value);
void (*fake_on_close)(uint64_t client);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct server_client clients[CLIENTS];
static struct soda_conn *conns;
static uint64_t next_client;

void fake_lock_net(void)
{
	pthread_mutex_lock(&lock);
}

void fake_unlock_net(void)
{
	pthread_mutex_unlock(&lock);
}

void fake_pause(void)
{
	poll(NULL, 0, 1);
}

uint64_t fake_get(const unsigned *counter)
{
	uint64_t value;

	fake_lock_net();
	value = *counter;
	fake_unlock_net();
	return value;
}

static struct server_client *find_locked(uint64_t id)
{
	for (int i = 0; i < CLIENTS; i++)
		if (id && clients[i].id == id)
			return &clients[i];
	return NULL;
}

static void ring(struct soda_conn *c)
{
	uint64_t one = 1;

	assert_int_equal(write(c->fd, &one, sizeof(one)), sizeof(one));
}

static void fail_locked(struct soda_conn *c, int err)
{
	if (c->error)
		return;
	c->error = err;
	ring(c);
}

static void fail_all_locked(uint64_t client, uint64_t before_epoch)
{
	for (struct soda_conn *c = conns; c; c = c->next)
		if ((!client || c->client == client) && c->epoch < before_epoch)
			fail_locked(c, -ECONNRESET);
}

static void forget_locked(struct server_client *client)
{
	fail_all_locked(client->id, UINT64_MAX);
	for (int i = 0; i < REGIONS; i++)
		free(client->memory[i]);
	*client = (struct server_client){ 0 };
}

void fake_cut(uint64_t client, int err)
{
	fake_lock_net();
	fake_upstream.refuse = err;
	fake_upstream.refuse_client = client;
	fail_all_locked(client, UINT64_MAX);
	fake_unlock_net();
}

void fake_mend(void)
{
	fake_lock_net();
	fake_upstream.refuse = fake_upstream.refuse_data = 0;
	fake_upstream.refuse_client = fake_upstream.stall = 0;
	fake_upstream.refusals = 0;
	fake_unlock_net();
}

void fake_mend_but_stall(uint64_t client)
{
	fake_lock_net();
	fake_upstream.refuse = fake_upstream.refuse_data = 0;
	fake_upstream.refuse_client = 0;
	fake_upstream.stall = client;
	fake_unlock_net();
}

void fake_forget(uint64_t client)
{
	fake_lock_net();
	for (int i = 0; i < CLIENTS; i++)
		if (clients[i].id && (!client || clients[i].id == client))
			forget_locked(&clients[i]);
	fake_upstream.instance += !client;
	fake_unlock_net();
}

bool fake_knows(uint64_t client)
{
	bool knows;

	fake_lock_net();
	knows = find_locked(client);
	fake_unlock_net();
	return knows;
}

static unsigned clients_locked(void)
{
	unsigned n = 0;

	for (int i = 0; i < CLIENTS; i++)
		n += clients[i].id != 0;
	return n;
}

unsigned fake_clients(void)
{
	unsigned n;

	fake_lock_net();
	n = clients_locked();
	fake_unlock_net();
	return n;
}

uint64_t fake_word(uint64_t client, uint16_t region, uint64_t page)
{
	struct server_client *c;
	uint64_t word = UINT64_MAX;

	fake_lock_net();
	c = find_locked(client);
	if (c && c->memory[region])
		memcpy(&word, c->memory[region] + page * PAGE, sizeof(word));
	fake_unlock_net();
	return word;
}

void fake_change(uint64_t client, uint16_t region, uint64_t page)
{
	struct server_client *c;

	fake_lock_net();
	c = find_locked(client);
	assert_true(c && c->memory[region]);
	c->memory[region][page * PAGE] ^= 1;
	fake_unlock_net();
}

static int hello_locked(const struct soda_wire_hello *hello, enum soda_conn_kind kind,
			struct soda_wire_welcome *w)
{
	struct server_client *c = find_locked(hello->client_id);
	bool known = c;

	if (c && c->secret != hello->secret)
		return -ESTALE;
	if (kind == SODA_CONN_DATA && (!c || c->epoch != hello->epoch))
		return -ESTALE;
	if (c && kind == SODA_CONN_CONTROL) {
		if (hello->epoch <= c->epoch)
			return -ESTALE;
		c->epoch = hello->epoch;
		fail_all_locked(c->id, c->epoch);
	}
	if (!c && fake_upstream.most_clients && clients_locked() >= fake_upstream.most_clients)
		return -EBUSY;
	for (int i = 0; !c && i < CLIENTS; i++)
		if (!clients[i].id)
			c = &clients[i];
	assert_non_null(c);
	if (!known) {
		next_client++;
		*c = (struct server_client){ .id = next_client,
					     .secret = next_client * 77,
					     .epoch = hello->epoch };
	}
	*w = (struct soda_wire_welcome){ .version = SODA_WIRE_VERSION,
					 .max_data = SODA_WIRE_MAX_DATA,
					 .instance_id = fake_upstream.instance,
					 .client_id = c->id,
					 .secret = c->secret,
					 .known = known,
					 .agent = fake_upstream.agent };
	fake_upstream.agents = soda_wire_agents(hello);
	return 0;
}

static bool stalls_locked(uint64_t client)
{
	if (fake_upstream.stall == UINT64_MAX)
		return client != fake_upstream.stall_not;
	return client && fake_upstream.stall == client;
}

static int admit_locked(const struct soda_wire_hello *hello, const struct soda_conn_options *opt)
{
	uint64_t end = soda_now_ns() + (uint64_t)opt->timeout_ms * 1000000;
	int ret;

	if (stalls_locked(hello->client_id))
		fake_upstream.stalled++;
	while (stalls_locked(hello->client_id) && soda_now_ns() < end) {
		fake_unlock_net();
		fake_pause();
		fake_lock_net();
	}
	if (stalls_locked(hello->client_id))
		return -ETIMEDOUT;
	if (fake_upstream.refuse_client && fake_upstream.refuse_client != hello->client_id)
		return 0;
	ret = fake_upstream.refuse;
	if (!ret && opt->kind == SODA_CONN_DATA)
		ret = fake_upstream.refuse_data;
	if (ret && fake_upstream.refusals && --fake_upstream.refusals == 0)
		fake_upstream.refuse = fake_upstream.refuse_data = 0;
	return ret;
}

int soda_conn_connect(const char *address, const struct soda_wire_hello *hello,
		      const struct soda_conn_options *opt, struct soda_conn **conn_p,
		      struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	struct soda_conn *c;
	int ret;

	fake_lock_net();
	fake_upstream.connects++;
	snprintf(fake_upstream.address, sizeof(fake_upstream.address), "%s", address);
	ret = admit_locked(hello, opt);
	if (!ret)
		ret = hello_locked(hello, opt->kind, welcome_p);
	if (ret) {
		fake_upstream.refused++;
		fake_unlock_net();
		snprintf(why->text, sizeof(why->text), "the fake refuses");
		return ret;
	}
	c = calloc(1, sizeof(*c));
	assert_non_null(c);
	c->kind = opt->kind;
	c->client = welcome_p->client_id;
	c->epoch = hello->epoch;
	c->address = address;
	c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->next = conns;
	conns = c;
	*conn_p = c;
	fake_unlock_net();
	return 0;
}

void soda_conn_close(struct soda_conn *conn)
{
	struct soda_conn **at = &conns;

	if (!conn)
		return;
	if (fake_on_close)
		fake_on_close(conn->client);
	fake_lock_net();
	while (*at != conn)
		at = &(*at)->next;
	*at = conn->next;
	fake_upstream.ended++;
	close(conn->fd);
	free(conn);
	fake_unlock_net();
}

/* For services that reach other agents, which these tests have none of. */
int soda_conn_join_with(const char *address, const struct soda_conn_options *opt,
			struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			struct soda_why *why)
{
	return -ECONNREFUSED;
}

int soda_conn_submit_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			  int body_n, int timeout_ms, struct soda_why *why)
{
	return -ECONNRESET;
}

int soda_conn_collect(struct soda_conn *conn, void *reply, size_t capacity, size_t *reply_bytes_p,
		      int timeout_ms, struct soda_why *why)
{
	return -ECONNRESET;
}

unsigned soda_conn_submitted(const struct soda_conn *conn)
{
	return 0;
}

void soda_conn_leave(struct soda_conn *conn, int timeout_ms)
{
	soda_conn_close(conn);
}

void soda_conn_abort(struct soda_conn *conn)
{
	fake_lock_net();
	fail_locked(conn, -ECONNABORTED);
	fake_unlock_net();
}

int soda_conn_fd(const struct soda_conn *conn)
{
	return conn->fd;
}

int soda_conn_renew_region(struct soda_conn *conn, struct soda_mr *mr, int timeout_ms,
			   struct soda_why *why)
{
	return 0;
}

void soda_conn_unmap_region(struct soda_mr *mr)
{
	mr->map = NULL;
}

int soda_conn_open_region(struct soda_conn *conn, const struct soda_wire_open *open,
			  const char *name, struct soda_wire_opened *opened_p, struct soda_mr *mr_p,
			  int timeout_ms, struct soda_why *why)
{
	struct server_client *c;
	int ret;

	fake_lock_net();
	c = find_locked(conn->client);
	ret = conn->error ? conn->error : c ? 0 : -ECONNRESET;
	if (!ret && c->memory[open->region_id])
		ret = -EBUSY;
	if (!ret) {
		c->memory[open->region_id] = calloc(1, open->bytes);
		c->bytes[open->region_id] = open->bytes;
		c->flags[open->region_id] = open->flags;
		*opened_p = (struct soda_wire_opened){
			.bytes = open->bytes, .file_id = open->flags & SODA_WIRE_READ_ONLY ? 1 : 0
		};
		*mr_p = (struct soda_mr){ .bytes = open->bytes,
					  .region_id = open->region_id,
					  .writable = 1 };
		if (fake_upstream.direct)
			mr_p->map = c->memory[open->region_id];
	}
	fake_unlock_net();
	return ret;
}

static size_t list_locked(const struct server_client *c, unsigned from, uint8_t *reply)
{
	size_t n = 0;

	for (unsigned id = from; id < REGIONS; id++) {
		struct soda_wire_listed l = { .region_id = (uint16_t)id,
					      .flags = c->flags[id],
					      .bytes = c->bytes[id] };

		if (c->memory[id])
			soda_wire_put_listed(reply + n++ * SODA_WIRE_LISTED_BYTES, &l);
	}
	return n * SODA_WIRE_LISTED_BYTES;
}

static int close_locked(struct server_client *c, const uint8_t *body)
{
	fake_upstream.closes++;
	if (!c->memory[body[0]])
		return -EINVAL;
	free(c->memory[body[0]]);
	c->memory[body[0]] = NULL;
	return 0;
}

/* An object's id is the number of those that were published until then. */
static int publish_locked(struct server_client *c, const uint8_t *body, size_t bytes,
			  uint8_t *reply)
{
	struct soda_wire_opened opened = { .generation = 1 };

	assert_true(bytes > SODA_WIRE_REGION_BYTES);
	if (fake_upstream.refuse_publish)
		return fake_upstream.refuse_publish;
	if (!c->memory[body[0]])
		return -EINVAL;
	opened.bytes = c->bytes[body[0]];
	opened.file_id = ++fake_upstream.published;
	fake_upstream.written_at_publish = fake_upstream.writes;
	soda_wire_put_opened(reply, &opened);
	return 0;
}

static bool holds_locked(const struct soda_conn *c)
{
	return (!fake_upstream.hold_client || fake_upstream.hold_client == c->client) &&
	       (!fake_upstream.hold_at || !strcmp(fake_upstream.hold_at, c->address));
}

int soda_conn_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body, int body_n,
		   void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
		   struct soda_why *why)
{
	uint64_t end = soda_now_ns() + (uint64_t)timeout_ms * 1000000;
	const bool *hold = !holds_locked(conn)	    ? NULL
			   : type == SODA_MSG_BYE   ? &fake_upstream.hold_bye
			   : type == SODA_MSG_CLOSE ? &fake_upstream.hold_close
						    : NULL;
	const uint8_t *id = body_n ? body[0].iov_base : NULL;
	struct server_client *c;
	bool held = false;
	int ret;

	fake_lock_net();
	if (hold && *hold) {
		fake_upstream.stalled++;
		held = true;
	}
	while (!conn->error && hold && *hold && soda_now_ns() < end) {
		fake_unlock_net();
		fake_pause();
		fake_lock_net();
	}
	c = find_locked(conn->client);
	if (!conn->error && ((hold && *hold) || (held && type == SODA_MSG_CLOSE))) {
		fail_locked(conn, -ETIMEDOUT);
		if (c && type == SODA_MSG_BYE) { /* it is there to be read, answered or not */
			fake_upstream.byes++;
			forget_locked(c);
			c = NULL;
		}
	}
	ret = conn->error ? conn->error : c ? 0 : -ECONNRESET;
	if (!ret && type == SODA_MSG_LIST)
		*reply_bytes_p = list_locked(c, id[0] + id[1] * 256u, reply);
	if (!ret && type == SODA_MSG_NAME && fake_upstream.rule) {
		*(uint8_t *)reply = fake_upstream.rule;
		*reply_bytes_p = 1;
	}
	if (!ret && type == SODA_MSG_CLOSE)
		ret = close_locked(c, id);
	if (!ret && type == SODA_MSG_PUBLISH) {
		assert_int_equal(capacity, SODA_WIRE_OPENED_BYTES);
		ret = publish_locked(c, id, body[0].iov_len, reply);
		*reply_bytes_p = ret ? 0 : SODA_WIRE_OPENED_BYTES;
	}
	if (!ret && type == SODA_MSG_BYE) {
		fake_upstream.byes++;
		forget_locked(c);
	}
	fake_unlock_net();
	return ret;
}

/* It has no file to give. */
int soda_conn_call_fd(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
		      int body_n, void *reply, size_t capacity, size_t *reply_bytes_p, int *fd_p,
		      int timeout_ms, struct soda_why *why)
{
	*fd_p = -1;
	return soda_conn_call(conn, type, body, body_n, reply, capacity, reply_bytes_p, timeout_ms,
			      why);
}

static int post(struct soda_conn *c, struct posted p)
{
	int ret;

	fake_lock_net();
	ret = c->error ? c->error : c->tail - c->head == DEPTH ? -EAGAIN : 0;
	if (!ret)
		c->at[c->tail++ % DEPTH] = p;
	fake_unlock_net();
	return ret;
}

int soda_conn_post_read(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			uint32_t bytes, void *dest, uint64_t cookie)
{
	return post(conn, (struct posted){ false, mr->region_id, offset, cookie, bytes, dest });
}

int soda_conn_post_write(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const void *src, uint64_t cookie)
{
	return post(conn, (struct posted){ true, mr->region_id, offset, cookie, bytes,
					   (void *)(uintptr_t)src });
}

/* It is a memory server: nothing is kept, and nobody without pages asks it anything. */

bool soda_conn_keeps(const struct soda_conn *conn)
{
	return false;
}

bool soda_conn_codes(const struct soda_conn *conn)
{
	return false;
}

int soda_conn_post_kept(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			uint32_t bytes, const void *src, uint64_t cookie)
{
	return -ENOTSUP;
}

int soda_conn_post_again(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const struct soda_wire_origin *origin, uint64_t cookie)
{
	return -ENOTSUP;
}

int soda_conn_post_coded(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const uint8_t *code, uint32_t code_bytes, uint64_t cookie)
{
	return -ENOTSUP;
}

int soda_conn_join_as(const char *address, const struct soda_identity *identity, int timeout_ms,
		      struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
		      struct soda_why *why)
{
	return -ENOTSUP;
}

int soda_conn_flush(struct soda_conn *conn, bool polling)
{
	int ret;

	fake_lock_net();
	ret = conn->error;
	if (!ret) {
		conn->flushed = conn->tail;
		ring(conn);
	}
	fake_unlock_net();
	return ret;
}

static int status_locked(struct soda_conn *conn, const struct posted *p)
{
	struct server_client *c = find_locked(conn->client);
	uint8_t *at;

	if (!c || !c->memory[p->region] || p->offset + p->bytes > c->bytes[p->region])
		return -EINVAL;
	at = c->memory[p->region] + p->offset;
	if (p->write && fake_upstream.refuse_writes)
		return fake_upstream.refuse_writes;
	if (p->write)
		memcpy(at, p->local, p->bytes);
	else
		memcpy(p->local, at, p->bytes);
	fake_upstream.writes += p->write;
	fake_upstream.written_bytes += p->write ? p->bytes : 0;
	return 0;
}

static int collect_locked(struct soda_conn *c, struct soda_done *done, int max)
{
	int n = 0;

	while (n < max && c->head != c->flushed) {
		const struct posted *p = &c->at[c->head % DEPTH];

		if (holds_locked(c) &&
		    (p->write ? fake_upstream.hold_writes : fake_upstream.hold_reads))
			break;
		done[n++] = (struct soda_done){ .cookie = p->cookie,
						.bytes = p->bytes,
						.status = status_locked(c, p) };
		c->head++;
	}
	return n;
}

/* Readable as long as there is something; held answers are looked for again and again. */
int soda_conn_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		   int64_t spin_ns)
{
	uint64_t end = soda_now_ns() + (uint64_t)timeout_ns, ignored;
	int n = 0, ret;

	fake_lock_net();
	for (;;) {
		ret = conn->error;
		n = ret ? 0 : collect_locked(conn, done, max);
		if (ret || n || conn->head == conn->flushed || soda_now_ns() >= end)
			break;
		fake_unlock_net();
		fake_pause();
		fake_lock_net();
	}
	if (!ret && conn->head == conn->flushed)
		ret = read(conn->fd, &ignored, sizeof(ignored)) < 0 && errno != EAGAIN ? -EIO : 0;
	fake_unlock_net();
	return n ? n : ret;
}

/* The agent's transport, and programs. */

struct soda_peer {
	bool used, control, closed, gone;
	unsigned calls, requests;
	void *client;
	struct fake_rq *unsent;
};

struct fake_rq {
	struct soda_request rq;	 /* first */
	struct soda_span unsent; /* bytes 0: none */
	struct fake_rq *next;	 /* of its connection's unsent ones */
	bool done, freed;
	int status;
	struct soda_wire_code code;
	uint64_t value;			 /* of a WRITE's words; of a READ's first word */
	uint64_t first[FAKE_READ_PAGES]; /* of a READ's pages, the first words */
	uint8_t data[PAGE];
};

static struct soda_peer peers[PEERS];
static pthread_t ender;
static bool ending;

static struct soda_peer *new_peer(bool control)
{
	struct soda_peer *peer = NULL;

	fake_lock_net();
	for (int i = 0; i < PEERS && !peer; i++)
		if (!peers[i].used)
			peer = &peers[i];
	assert_non_null(peer);
	*peer = (struct soda_peer){ .used = true, .control = control, .calls = 1 };
	fake_unlock_net();
	return peer;
}

/* The HELLO or a call of it is answered. */
static void peer_call_ends(struct soda_peer *peer)
{
	fake_lock_net();
	peer->calls--;
	fake_unlock_net();
}

void soda_peer_close(struct soda_peer *peer)
{
	fake_lock_net();
	peer->closed = true;
	fake_unlock_net();
}

void soda_peer_resume(struct soda_peer *peer)
{
}

/* What was not sent never will be. */
static void release_unsent(struct soda_peer *p)
{
	for (struct fake_rq *rq = p->unsent; rq; rq = rq->next)
		soda_dpu_service.release(p->client, false, &rq->unsent, false);
	p->unsent = NULL;
}

static void *end_peers(void *arg)
{
	fake_lock_net();
	while (!ending) {
		for (int i = 0; i < PEERS; i++) {
			struct soda_peer *p = &peers[i];

			if (!p->used || p->gone || !p->closed || p->calls || p->requests)
				continue;
			p->gone = true;
			fake_unlock_net();
			release_unsent(p);
			if (p->client)
				soda_dpu_service.gone(p->client, p);
			fake_lock_net();
			p->used = false;
		}
		fake_unlock_net();
		fake_pause();
		fake_lock_net();
	}
	fake_unlock_net();
	return NULL;
}

void soda_request_done(struct soda_request *request, int status, const struct soda_span *span)
{
	struct fake_rq *rq = (struct fake_rq *)request;
	void (*hook)(uint64_t value);
	bool send;

	fake_lock_net();
	if (rq->done)
		abort(); /* answered twice */
	rq->done = true;
	rq->status = status;
	if (span && span->memory)
		memcpy(&rq->value, span->memory, sizeof(rq->value));
	for (uint32_t i = 0; span && span->memory && i < request->bytes / PAGE; i++)
		memcpy(&rq->first[i], span->memory + i * PAGE, sizeof(rq->first[i]));
	request->peer->requests--;
	hook = fake_on_answer;
	send = span && !fake_upstream.hold_sent;
	if (span && !send) {
		rq->unsent = *span;
		rq->next = request->peer->unsent;
		request->peer->unsent = rq;
	}
	fake_unlock_net();
	if (send)
		soda_dpu_service.release(request->client, false, span, false);
	if (request->write && hook)
		hook(rq->value);
}

void soda_request_free(struct soda_request *request)
{
	struct fake_rq *rq = (struct fake_rq *)request;

	fake_lock_net();
	if (!rq->done || rq->freed)
		abort(); /* freed twice, or before its answer */
	rq->freed = true;
	fake_unlock_net();
}

static int hello(struct program *p, enum soda_conn_kind kind, struct soda_peer **peer_p,
		 struct soda_wire_welcome *w)
{
	const struct soda_wire_hello hello = { .magic = SODA_WIRE_MAGIC,
					       .version = SODA_WIRE_VERSION,
					       .kind = kind,
					       .features = p->agents << SODA_FEATURE_AGENTS_SHIFT |
							   (uint32_t)p->member
								   << SODA_FEATURE_MEMBER_SHIFT,
					       .chunk_bytes =
						       p->chunk_bytes ? p->chunk_bytes : 65536,
					       .client_id = p->id,
					       .secret = p->secret,
					       .epoch = p->epoch };
	const struct soda_peer_info info = { .address = "a test", .local = p->local };
	struct soda_peer *peer = new_peer(kind == SODA_CONN_CONTROL);
	void *client = NULL;
	int ret;

	*w = (struct soda_wire_welcome){ .max_data = SODA_WIRE_MAX_DATA };
	ret = soda_dpu_service.hello(&fake_dpu, peer, &hello, &info, w, &client, &p->why);
	fake_lock_net();
	peer->calls--;
	peer->client = ret ? NULL : client;
	peer->closed = peer->closed || ret;
	fake_unlock_net();
	if (!ret) {
		*peer_p = peer;
		p->client = client;
	}
	return ret;
}

int program_hello(struct program *p)
{
	struct soda_wire_welcome w, ignored;
	int ret;

	p->epoch++;
	p->control = p->data = NULL;
	ret = hello(p, SODA_CONN_CONTROL, &p->control, &w);
	if (ret)
		return ret;
	p->known = w.known && w.instance_id == p->instance;
	p->agent_changed = p->agent && p->agent != w.agent;
	p->agent = w.agent;
	p->instance = w.instance_id;
	p->id = w.client_id;
	p->secret = w.secret;
	ret = hello(p, SODA_CONN_DATA, &p->data, &ignored);
	if (ret)
		soda_peer_close(p->control);
	return ret;
}

void program_return(struct program *p)
{
	int ret;

	for (int i = 0; i < LONG_MS; i++) {
		ret = program_hello(p);
		if (!ret)
			return;
		fake_pause();
	}
	fail_msg("the agent refuses: %s", p->why.text);
}

static bool is_gone(const struct soda_peer *peer)
{
	bool gone;

	fake_lock_net();
	gone = !peer || !peer->used || peer->gone;
	fake_unlock_net();
	return gone;
}

void program_vanish(struct program *p)
{
	soda_peer_close(p->data);
	soda_peer_close(p->control);
	AWAIT(is_gone(p->data) && is_gone(p->control));
	/* the session knows: gone has returned, or is about to, under the session's lock */
	p->control = p->data = NULL;
}

static bool is_closed(const struct soda_peer *peer)
{
	bool closed;

	fake_lock_net();
	closed = !peer->used || peer->closed;
	fake_unlock_net();
	return closed;
}

bool program_is_expelled(struct program *p)
{
	for (int i = 0; i < LONG_MS; i++) {
		if (is_closed(p->control) && is_closed(p->data))
			return true;
		fake_pause();
	}
	return false;
}

int program_call(struct program *p, enum soda_msg type, const void *body, size_t bytes)
{
	static _Thread_local uint8_t text[SODA_WIRE_MAX_CONTROL];
	struct soda_reply reply = { .body = text, .share = { .fd = -1 } };
	int ret;

	fake_lock_net();
	p->control->calls++;
	fake_unlock_net();
	ret = soda_dpu_service.call(p->client, type, body, bytes,
				    p->local && type == SODA_MSG_STORE, &reply);
	p->shared_fd = reply.share.fd;
	peer_call_ends(p->control);
	p->why = reply.why;
	p->reply = text;
	p->reply_bytes = reply.bytes;
	return ret;
}

int program_open(struct program *p, uint16_t region, uint64_t pages, uint32_t flags)
{
	const struct soda_wire_open open = { .region_id = region,
					     .flags = flags,
					     .bytes = pages * PAGE };
	uint8_t body[SODA_WIRE_OPEN_BYTES];

	soda_wire_put_open(body, &open);
	return program_call(p, SODA_MSG_OPEN, body, sizeof(body));
}

int program_sync(struct program *p, uint16_t region)
{
	const uint8_t id[2] = { (uint8_t)region, 0 };

	return program_call(p, SODA_MSG_SYNC, id, sizeof(id));
}

int program_close(struct program *p, uint16_t region)
{
	const uint8_t id[2] = { (uint8_t)region, 0 };

	return program_call(p, SODA_MSG_CLOSE, id, sizeof(id));
}

static struct fake_rq *new_rq(struct program *p, bool write, uint16_t region, uint64_t page)
{
	struct fake_rq *rq = test_calloc(1, sizeof(*rq));

	rq->rq = (struct soda_request){ .client = p->client,
					.peer = p->data,
					.arrived_ns = soda_now_ns(),
					.offset = page * PAGE,
					.bytes = PAGE,
					.region_id = region,
					.write = write };
	fake_lock_net();
	p->data->requests++;
	p->data->calls++; /* gone comes after these, as the thread is the connection's */
	fake_unlock_net();
	return rq;
}

/* Requests live until the end of the test: who holds on to one too long is found out. */
enum { RQS = 65536 };
static struct fake_rq *rqs[RQS];
static unsigned rqs_n;

static struct fake_rq *keep(struct fake_rq *rq)
{
	fake_lock_net();
	assert_true(rqs_n < RQS);
	rqs[rqs_n++] = rq;
	fake_unlock_net();
	return rq;
}

struct fake_rq *program_post(struct program *p, uint16_t region, uint64_t page, uint64_t value,
			     bool doorbell)
{
	struct fake_rq *rq = keep(new_rq(p, true, region, page));
	struct soda_span span = { 0 };

	for (int i = 0; i < LONG_MS; i++) {
		if (soda_dpu_service.reserve(p->client, p->data, region, page, PAGE, &span) !=
		    -EAGAIN)
			break;
		fake_pause();
	}
	assert_non_null(span.memory);
	for (unsigned i = 0; i < PAGE / sizeof(value); i++)
		memcpy(span.memory + i * sizeof(value), &value, sizeof(value));
	rq->value = value;
	rq->rq.data = span.memory;
	rq->rq.hold = span.hold;
	rq->rq.keep = p->keep;
	soda_dpu_service.request(p->client, &rq->rq);
	if (doorbell)
		soda_dpu_service.doorbell(p->client, p->data);
	peer_call_ends(p->data);
	return rq;
}

struct fake_rq *program_post_again(struct program *p, uint16_t region, uint64_t page,
				   const struct program *from, uint64_t secret)
{
	struct fake_rq *rq = keep(new_rq(p, true, region, page));

	rq->rq.kept = true;
	rq->rq.origin = (struct soda_wire_origin){ .client_id = from->id,
						   .secret = secret,
						   .region_id = region };
	soda_dpu_service.request(p->client, &rq->rq);
	soda_dpu_service.doorbell(p->client, p->data);
	peer_call_ends(p->data);
	return rq;
}

struct fake_rq *program_post_coded(struct program *p, uint16_t region, uint64_t page,
				   const struct soda_wire_code *code)
{
	struct fake_rq *rq = keep(new_rq(p, true, region, page));

	rq->code = *code;
	rq->rq.kept = true;
	rq->rq.code = &rq->code;
	soda_dpu_service.request(p->client, &rq->rq);
	soda_dpu_service.doorbell(p->client, p->data);
	peer_call_ends(p->data);
	return rq;
}

/* A READ whose data, where it has memory for them, come into the request. */
static struct fake_rq *post_read(struct program *p, struct fake_rq *rq)
{
	soda_dpu_service.request(p->client, &rq->rq);
	soda_dpu_service.doorbell(p->client, p->data);
	peer_call_ends(p->data);
	return rq;
}

struct fake_rq *program_post_read(struct program *p, uint16_t region, uint64_t page)
{
	struct fake_rq *rq = keep(new_rq(p, false, region, page));

	rq->rq.data = rq->data;
	return post_read(p, rq);
}

void program_post_reads(struct program *p, uint16_t region, uint64_t page, struct fake_rq **out,
			unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		out[i] = keep(new_rq(p, false, region, page + i));
		soda_dpu_service.request(p->client, &out[i]->rq);
	}
	soda_dpu_service.doorbell(p->client, p->data);
	for (unsigned i = 0; i < n; i++)
		peer_call_ends(p->data); /* each began with its request */
}

struct fake_rq *program_post_wide_read(struct program *p, uint16_t region, uint64_t page,
				       uint32_t pages)
{
	struct fake_rq *rq = keep(new_rq(p, false, region, page));

	assert_true(pages && pages <= FAKE_READ_PAGES);
	rq->rq.bytes = pages * PAGE;
	return post_read(p, rq);
}

bool program_answered(const struct fake_rq *rq)
{
	bool done;

	fake_lock_net();
	done = rq->done;
	fake_unlock_net();
	return done;
}

int program_await(struct fake_rq *rq)
{
	AWAIT(program_answered(rq));
	return rq->status;
}

uint64_t program_got(const struct fake_rq *rq)
{
	return rq->value;
}

uint64_t program_got_page(const struct fake_rq *rq, uint32_t i)
{
	assert_true(i < rq->rq.bytes / PAGE);
	return rq->first[i];
}

void program_write(struct program *p, uint16_t region, uint64_t page, uint64_t value)
{
	assert_int_equal(program_await(program_post(p, region, page, value, true)), 0);
}

uint64_t program_read(struct program *p, uint16_t region, uint64_t page)
{
	struct fake_rq *rq = program_post_read(p, region, page);

	assert_int_equal(program_await(rq), 0);
	return rq->value;
}

/* Together. */

unsigned fake_sessions(void)
{
	unsigned n;

	pthread_mutex_lock(&fake_dpu.sessions.lock);
	n = fake_dpu.sessions.shares.all;
	pthread_mutex_unlock(&fake_dpu.sessions.lock);
	return n;
}

unsigned fake_busy(uint64_t client)
{
	unsigned busy = 0;

	pthread_mutex_lock(&fake_dpu.sessions.lock);
	for (struct soda_session *s = fake_dpu.sessions.list; s; s = s->next) {
		pthread_mutex_lock(&s->lock);
		if (s->id == client)
			busy = s->busy;
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&fake_dpu.sessions.lock);
	return busy;
}

void fake_options_reset(void)
{
	fake_options = (struct soda_dpu_options){ .server = (char *)(uintptr_t) "fake://server",
						  .write_budget = 1 << 20,
						  .client_credit = 4 << 20,
						  .buffers = 1 << 30,
						  .window = 16 << 20,
						  .channels = 1,
						  .completers = 1,
						  .daemon.workers = 8,
						  .timeout_ms = 60000,
						  .daemon.drain_ms = 1000,
						  .grace_ms = 60000,
						  .daemon.max_clients = 64,
						  .aggregate = true,
						  .async = true };
}

void fake_up(void)
{
	fake_upstream = (struct fake_upstream){ .instance = 1 };
	fake_on_answer = NULL;
	fake_on_close = NULL;
	next_client = 100;
	ending = false;
	assert_int_equal(soda_dpu_start(&fake_dpu, &fake_options), 0);
	assert_int_equal(pthread_create(&ender, NULL, end_peers, NULL), 0);
}

static bool all_are_gone(void)
{
	bool any = false;

	fake_lock_net();
	for (int i = 0; i < PEERS; i++)
		any = any || peers[i].used;
	fake_unlock_net();
	return !any;
}

unsigned fake_down(void)
{
	return fake_down_within(LONG_MS);
}

unsigned fake_down_within(uint32_t drain_ms)
{
	unsigned lost;

	AWAIT(all_are_gone()); /* the listeners are closed first */
	lost = soda_dpu_stop(&fake_dpu, drain_ms);

	fake_lock_net();
	ending = true;
	fake_unlock_net();
	pthread_join(ender, NULL);
	assert_null(conns);
	fake_forget(0);
	for (unsigned i = 0; i < rqs_n; i++) {
		assert_true(rqs[i]->done);
		assert_true(!rqs[i]->rq.write || rqs[i]->freed);
		test_free(rqs[i]);
	}
	rqs_n = 0;
	return lost;
}
