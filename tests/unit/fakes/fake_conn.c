/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/fakes/fake_conn.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/lock.h"
#include "host_agent/core/agent.h"
#include "soda.h"
#include "transport/api/transport.h"
#include "unit/fakes/fake_page_ops.h"

enum { PAGE = 4096, DEPTH = 1024, CONNS = 256 };

struct request {
	bool write;
	struct soda_mr mr;
	uint64_t offset, cookie;
	uint32_t bytes;
	char *local;
	char *place; /* READ: where the peer may install it */
	bool protect;
	bool taken[SODA_WIRE_MAX_DATA / PAGE / 8]; /* WRITE: pages that went at the flush */
};

struct soda_conn {
	enum soda_conn_kind kind;
	uint32_t depth;
	int error; /* sticky */
	struct request *req;
	uint32_t head, flushed, tail;
	bool in_place;
	char answer[SODA_WIRE_MAX_DATA / 8]; /* in_place: of the last READ */
};

struct fake_net fake_net;
static struct soda_conn *conns[CONNS];
static uint32_t flushes;
static uint64_t rng;

static bool coin(void)
{
	rng = rng * 6364136223846793005ull + 1442695040888963407ull;
	return rng >> 63;
}

void fake_net_reset(uint64_t seed)
{
	fake_server_forget();
	memset(&fake_net, 0, sizeof(fake_net));
	fake_net.instance = fake_net.client = 1;
	rng = seed;
}

void fake_net_hold(bool reads, bool writes)
{
	fake_lock();
	fake_net.hold_reads = reads;
	fake_net.hold_writes = writes;
	fake_net.let_writes = 0;
	fake_unlock();
}

void fake_net_let(uint32_t n)
{
	fake_lock();
	fake_net.let_writes = n;
	fake_unlock();
}

void fake_net_refuse(bool writes, int status, uint32_t n)
{
	fake_lock();
	fake_net.status[writes] = status;
	fake_net.status_n[writes] = n;
	fake_unlock();
}

static void break_all(void)
{
	for (int i = 0; i < CONNS; i++)
		if (conns[i] && !conns[i]->error)
			conns[i]->error = -ECONNRESET;
}

void fake_net_break(int err)
{
	fake_lock();
	fake_net.refuse_connect = err;
	break_all();
	fake_unlock();
}

void fake_net_mend(void)
{
	fake_lock();
	fake_net.refuse_connect = 0;
	fake_unlock();
}

void fake_net_restart(void)
{
	fake_lock();
	break_all();
	fake_server_forget();
	fake_net.instance++;
	fake_net.client++;
	fake_unlock();
}

void fake_net_mistake(void)
{
	fake_lock();
	break_all();
	fake_server_forget();
	fake_net.client++;
	fake_net.mistaken = true;
	fake_unlock();
}

uint32_t fake_net_under_way(bool writes)
{
	uint32_t n = 0;

	fake_lock();
	for (int i = 0; i < CONNS; i++)
		for (uint32_t k = conns[i] ? conns[i]->head : 0; conns[i] && k < conns[i]->flushed;
		     k++)
			n += conns[i]->req[k % DEPTH].write == writes;
	fake_unlock();
	return n;
}

int soda_conn_connect(const char *address, const struct soda_wire_hello *hello,
		      const struct soda_conn_options *opt, struct soda_conn **conn_p,
		      struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	struct soda_conn *c = calloc(1, sizeof(*c));
	void (*on_connect)(void);
	int i = 0, ret;

	fake_lock();
	ret = fake_net.refuse_connect;
	if (!ret && hello->client_id && hello->client_id != fake_net.client && !fake_net.mistaken)
		ret = -ESTALE;
	fake_net.mistaken = false;
	if (!ret && !hello->client_id) { /* a new client has no regions */
		fake_net.client++;
		fake_server_forget();
	}
	while (i < CONNS && conns[i])
		i++;
	if (!ret && i == CONNS)
		ret = -EMFILE;
	if (ret) {
		fake_unlock();
		free(c);
		snprintf(why->text, sizeof(why->text), "the fake refuses");
		return ret;
	}
	*welcome_p = (struct soda_wire_welcome){ .version = SODA_WIRE_VERSION,
						 .instance_id = fake_net.instance,
						 .client_id = fake_net.client,
						 .secret = 1,
						 .known = hello->client_id != 0 };
	c->kind = opt->kind;
	c->depth = opt->depth ? opt->depth : 64;
	c->in_place = opt->in_place;
	c->req = calloc(DEPTH, sizeof(c->req[0]));
	conns[i] = c;
	fake_net.connects++;
	on_connect = fake_net.on_connect;
	fake_unlock();
	if (on_connect)
		on_connect();
	*conn_p = c;
	return 0;
}

/* A server that has moved is looked for by it: here none does. */
int soda_conn_join_as(const char *address, const struct soda_identity *identity, int timeout_ms,
		      struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
		      struct soda_why *why)
{
	snprintf(why->text, sizeof(why->text), "the fake has one server");
	return -ECONNREFUSED;
}

void soda_conn_leave(struct soda_conn *conn, int timeout_ms)
{
	soda_conn_close(conn);
}

void soda_conn_close(struct soda_conn *conn)
{
	if (!conn)
		return;
	fake_lock();
	for (int i = 0; i < CONNS; i++)
		if (conns[i] == conn)
			conns[i] = NULL;
	fake_unlock();
	free(conn->req);
	free(conn);
}

void soda_conn_abort(struct soda_conn *conn)
{
	fake_lock();
	conn->error = -ECONNABORTED;
	fake_unlock();
}

int soda_conn_device(const struct soda_conn *conn, char name[SODA_DEVICE_NAME])
{
	name[0] = 0;
	return -1;
}

int soda_conn_fd(const struct soda_conn *conn)
{
	return -1;
}

void soda_conn_end_poll(const struct soda_conn *conn, struct pollfd *p)
{
	*p = (struct pollfd){ .fd = -1 };
}

int soda_conn_renew_region(struct soda_conn *conn, struct soda_mr *mr, int timeout_ms,
			   struct soda_why *why)
{
	return 0;
}

const char *soda_conn_peer(const struct soda_conn *conn)
{
	return "fake://server";
}

int soda_conn_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body, int body_n,
		   void *reply, size_t capacity, size_t *reply_bytes_p, int timeout_ms,
		   struct soda_why *why)
{
	void (*on_call)(void);
	int ret;

	fake_lock();
	on_call = fake_net.on_call;
	fake_unlock();
	if (on_call)
		on_call();
	fake_lock();
	ret = conn->error;
	if (!ret && fake_net.silent_calls) {
		fake_net.silent_calls--;
		fake_unlock();
		usleep((unsigned)timeout_ms * 1000 + fake_net.silent_more_us);
		fake_lock();
		ret = conn->error = -ETIMEDOUT;
	}
	if (!ret && type == SODA_MSG_CLOSE)
		ret = fake_net.refuse_close;
	if (!ret && type == SODA_MSG_CLOSE) {
		const uint8_t *id = body[0].iov_base;

		fake_server_close(id[0]);
	}
	fake_net.syncs += !ret && type == SODA_MSG_SYNC;
	fake_unlock();
	return ret;
}

int soda_conn_open_region(struct soda_conn *conn, const struct soda_wire_open *open,
			  const char *name, struct soda_wire_opened *opened_p, struct soda_mr *mr_p,
			  int timeout_ms, struct soda_why *why)
{
	uint64_t size = (open->bytes + PAGE - 1) / PAGE * PAGE;
	uint8_t *memory;
	int ret;

	fake_lock();
	ret = conn->error;
	if (!ret && fake_net.lose_at_open && --fake_net.lose_at_open == 0)
		ret = conn->error = -ECONNRESET;
	if (!ret && fake_net.refuse_open) {
		ret = fake_net.refuse_open;
		fake_net.refuse_open = 0;
	}
	memory = ret ? NULL : fake_server_open(open->region_id, size);
	if (!ret && !memory)
		ret = -EBUSY;
	if (!ret) {
		*mr_p = (struct soda_mr){ .bytes = size,
					  .region_id = open->region_id,
					  .writable = 1 };
		if (fake_net.direct)
			mr_p->map = memory;
		*opened_p = (struct soda_wire_opened){ .bytes = open->bytes };
		if (fake_net.lose_answer_of_open)
			ret = conn->error = -ECONNRESET;
		fake_net.lose_answer_of_open = false;
	}
	fake_unlock();
	return ret;
}

void soda_conn_unmap_region(struct soda_mr *mr)
{
	mr->map = NULL;
}

static int post(struct soda_conn *c, bool write, const struct soda_mr *mr, uint64_t offset,
		uint32_t bytes, char *local, uint64_t cookie)
{
	struct request *q;
	int ret;

	if (offset % PAGE || bytes % PAGE || !bytes || bytes > SODA_WIRE_MAX_DATA / 8)
		fake_fail("a request for %u bytes at %llu", bytes, (unsigned long long)offset);
	if (offset > mr->bytes || bytes > mr->bytes - offset)
		return -EINVAL;
	fake_lock();
	ret = c->error ? c->error : c->tail - c->head >= c->depth ? -EAGAIN : 0;
	if (ret) {
		fake_unlock();
		return ret;
	}
	q = &c->req[c->tail++ % DEPTH];
	*q = (struct request){ .write = write,
			       .mr = *mr,
			       .offset = offset,
			       .cookie = cookie,
			       .bytes = bytes,
			       .local = local };
	if (write && fake_net.log_n < FAKE_LOG)
		fake_net.log[fake_net.log_n++] =
			(struct fake_write){ mr->region_id, offset, bytes, flushes };
	fake_net.writes += write;
	fake_net.reads += !write;
	*(write ? &fake_net.bytes_written : &fake_net.bytes_read) += bytes;
	fake_unlock();
	return 0;
}

int soda_conn_post_read(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			uint32_t bytes, void *dest, uint64_t cookie)
{
	return post(conn, false, mr, offset, bytes, dest, cookie);
}

/* No agent in front of a pool is at the other end. */
bool soda_conn_keeps(const struct soda_conn *conn)
{
	return false;
}

bool soda_conn_codes(const struct soda_conn *conn)
{
	return false;
}

int soda_conn_post_coded(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const uint8_t *code, uint32_t code_bytes, uint64_t cookie)
{
	return -ENOTSUP;
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

int soda_conn_post_write(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			 uint32_t bytes, const void *src, uint64_t cookie)
{
	return post(conn, true, mr, offset, bytes, (char *)src, cookie);
}

int soda_conn_post_install(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			   uint32_t bytes, void *dest, void *place, bool protect, uint64_t cookie)
{
	int ret = post(conn, false, mr, offset, bytes, dest, cookie);

	if (ret)
		return ret;
	fake_lock();
	conn->req[(conn->tail - 1) % DEPTH].place = place;
	conn->req[(conn->tail - 1) % DEPTH].protect = protect;
	fake_unlock();
	return 0;
}

/* No peer here has a store for the node. */
int soda_conn_post_stored(struct soda_conn *conn, const struct soda_mr *mr, uint64_t offset,
			  uint32_t bytes, void *dest, uint64_t cookie)
{
	return post(conn, false, mr, offset, bytes, dest, cookie);
}

int soda_conn_store(struct soda_conn *conn, const struct soda_wire_store *ask, uint64_t bytes,
		    struct soda_wire_stored *got_p, int *fd_p, int timeout_ms, struct soda_why *why)
{
	return -ENOTSUP;
}

bool soda_conn_asks(const struct soda_conn *conn)
{
	return fake_net.asks;
}

void soda_conn_tell(struct soda_conn *conn, const struct soda_wire_residency *residency)
{
	fake_net.residency = *residency;
}

bool soda_conn_installs(const struct soda_conn *conn)
{
	return fake_net.installs;
}

/* The peer puts pages of a READ into place, all of them or by chance. */
static void place_pages(struct request *q, bool all)
{
	const uint8_t *from = fake_server_at(q->mr.region_id, q->offset, q->bytes);

	for (uint32_t at = 0; q->place && at < q->bytes; at += PAGE)
		if (all || coin())
			fake_peer_copy(q->place + at, from + at, q->protect);
}

int soda_conn_revoke(struct soda_conn *conn)
{
	int ret = 0;

	fake_lock();
	fake_net.revokes++;
	if (fake_net.stopped) {
		ret = -EAGAIN;
	} else if (fake_net.revoke_busy) {
		fake_net.revoke_busy--;
		for (uint32_t k = conn->head; k != conn->flushed; k++)
			if (!conn->req[k % DEPTH].write)
				place_pages(&conn->req[k % DEPTH], false);
		ret = -EAGAIN;
	}
	fake_unlock();
	return ret;
}

/* The pages of a WRITE that have not gone yet go, all of them or by chance. */
static void take_pages(struct request *q, bool all)
{
	uint8_t *to = fake_server_at(q->mr.region_id, q->offset, q->bytes);

	for (uint32_t p = 0; p < q->bytes / PAGE; p++) {
		if (q->taken[p] || !(all || coin()))
			continue;
		if (soda_agent_owns(q->local) && !fake_present(q->local + p * PAGE))
			fake_fail("a WRITE is sent from a page that is gone");
		memcpy(to + p * PAGE, q->local + p * PAGE, PAGE);
		q->taken[p] = true;
	}
}

/* Whether the kernel may read it for the program; nothing is read where it may not. */
static bool readable(const struct request *q)
{
	for (uint32_t at = 0; at < q->bytes; at += PAGE) {
		char byte;
		struct iovec to = { &byte, 1 }, from = { q->local + at, 1 };

		if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1)
			return false;
	}
	return true;
}

int soda_conn_flush(struct soda_conn *conn, bool polling)
{
	int ret;

	fake_lock();
	ret = conn->error;
	for (; !ret && conn->flushed != conn->tail; conn->flushed++)
		if (conn->req[conn->flushed % DEPTH].write &&
		    !readable(&conn->req[conn->flushed % DEPTH])) {
			ret = conn->error = -EFAULT;
			break;
		} else if (conn->req[conn->flushed % DEPTH].write)
			take_pages(&conn->req[conn->flushed % DEPTH], false);
		else
			place_pages(&conn->req[conn->flushed % DEPTH], false);
	flushes++;
	fake_unlock();
	return ret;
}

static bool held(const struct request *q)
{
	if (!(q->write ? fake_net.hold_writes : fake_net.hold_reads))
		return false;
	if (!q->write || !fake_net.let_writes)
		return true;
	fake_net.let_writes--;
	return false;
}

/* Lock held. false: it waits. */
static bool complete(struct soda_conn *c, struct request *q, struct soda_done *done)
{
	const uint8_t *from;

	if (held(q))
		return false;
	*done = (struct soda_done){ .cookie = q->cookie, .bytes = q->bytes };
	if (fake_net.status_n[q->write]) {
		fake_net.status_n[q->write]--;
		done->status = fake_net.status[q->write];
	}
	if (q->write && fake_net.frozen && q->mr.region_id == fake_net.frozen)
		done->status = -EACCES;
	if (done->status)
		return true;
	if (q->write) {
		take_pages(q, true);
		return true;
	}
	from = fake_server_at(q->mr.region_id, q->offset, q->bytes);
	if (q->place && coin()) {
		place_pages(q, true);
		done->installed = true;
		fake_net.installed++;
	} else if (fake_net.installs && c->in_place) {
		memcpy(c->answer, from, q->bytes);
		done->data = c->answer;
	} else {
		memcpy(q->local, from, q->bytes);
	}
	return true;
}

int soda_conn_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		   int64_t spin_ns)
{
	uint64_t end = soda_now_ns() + (uint64_t)(timeout_ns < 0 ? INT64_MAX / 2 : timeout_ns);
	int n = 0, ret;

	for (;;) {
		bool idle;

		fake_lock();
		ret = conn->error;
		while (!ret && n < max && conn->head != conn->flushed &&
		       complete(conn, &conn->req[conn->head % DEPTH], &done[n])) {
			conn->head++;
			n++;
			if (done[n - 1].data) /* there is room for one */
				break;
		}
		idle = conn->head == conn->flushed;
		fake_unlock();
		if (n || ret || idle || soda_now_ns() >= end)
			return ret ? ret : n;
		usleep(50);
	}
}

unsigned soda_conn_outstanding(const struct soda_conn *conn)
{
	return conn->tail - conn->head;
}

int soda_conn_advise(struct soda_conn *conn, const struct soda_wire_advise *advise,
		     struct soda_static_map **map_p, int timeout_ms, struct soda_why *why)
{
	bool freezes = advise->advice == SODA_STATIC_CACHE;
	void (*on_advice)(void);
	int ret;

	fake_lock();
	ret = !fake_net.agent ? -ENOTSUP : conn->error;
	if (!ret && freezes && !fake_net.lose_answers_of_advice && fake_net.refuse_advice) {
		fake_net.refuse_advice--;
		ret = -ENOSPC;
	}
	if (!ret)
		fake_net.frozen = freezes ? advise->region_id : 0;
	if (!ret && freezes && fake_net.lose_answers_of_advice) {
		fake_net.lose_answers_of_advice--;
		ret = conn->error = -ECONNRESET;
	}
	on_advice = ret ? NULL : fake_net.on_advice;
	fake_unlock();
	if (on_advice)
		on_advice();
	return ret;
}

void soda_conn_unmap_static(struct soda_static_map *map)
{
}

int soda_conn_reach_keyed(struct soda_conn *conn, int timeout_ms, struct soda_why *why)
{
	return 0;
}
