/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane on verbs: each message is one SEND of a frame and its body.  The side that
 * connects has a receive for each call that it may have under way, posted before the call; the side
 * that listens has others' as well (receives.c), or one of its own.
 *
 * A machine that vanishes says nothing, and a queue pair that sends nothing does not notice:
 * a daemon that waits for the next call probes.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "transport/stream/stream.h"
#include "transport/verbs/link/link.h"

/* wr_id of what is no receive, whose id is its address. */
enum { ID_SEND = 1, ID_PROBE = 2, ID_READ = 3 };

/* One for each that may be under way, in each direction. */
static int make_buffers(struct soda_verbs_messages *m, struct soda_why *why)
{
	unsigned n = m->shared ? m->calls : 2 * m->calls;
	uint64_t bytes = (uint64_t)n * SODA_VERBS_CALL_ROOM;
	int ret;

	m->memory = soda_verbs_map(m->link->id->verbs, bytes);
	if (!m->memory) {
		soda_why_set(why, "%s: no memory for a connection", m->peer);
		return -ENOMEM;
	}
	ret = soda_verbs_register(m->link->pd, m->memory, bytes, IBV_ACCESS_LOCAL_WRITE, &m->mr,
				  why);
	for (unsigned i = 0; i < m->calls && ret == 0 && !m->shared; i++) {
		m->own[i].data = m->memory + (uint64_t)(m->calls + i) * SODA_VERBS_CALL_ROOM;
		m->own[i].lkey = m->mr->lkey;
		m->now = &m->own[i];
		ret = soda_verbs_message_expect(m);
		if (ret < 0)
			soda_why_set(why, "%s: no receive can be posted", m->peer);
	}
	return ret;
}

int soda_verbs_messages_create(struct soda_verbs_messages *m, struct soda_verbs_link *l,
			       unsigned calls, struct soda_verbs_receives *shared, const char *peer,
			       struct soda_why *why)
{
	/* a peer may take all receives that are shared, before its connection is ended for that */
	const struct soda_verbs_room room = {
		.sends = calls + 1 + SODA_VERBS_READS,
		.receives = shared ? SODA_VERBS_CALLS_MOST : calls,
		.srq = shared ? soda_verbs_receives_queue(shared) : NULL,
	};
	int ret;

	*m = (struct soda_verbs_messages){
		.link = l, .peer = peer, .calls = calls, .shared = shared
	};
	ret = soda_verbs_link_prepare(l, &room, why);
	return ret < 0 ? ret : make_buffers(m, why);
}

int soda_verbs_message_expect(struct soda_verbs_messages *m)
{
	struct soda_verbs_receive *r = m->now;
	struct ibv_sge sge = { (uintptr_t)r->data, SODA_VERBS_CALL_BYTES, r->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uintptr_t)r, .sg_list = &sge, .num_sge = 1 }, *bad;

	m->now = NULL;
	return m->shared ? soda_verbs_receives_post(m->shared, r)
			 : -ibv_post_recv(m->link->id->qp, &wr, &bad);
}

int soda_verbs_message_send(struct soda_verbs_messages *m, const struct soda_wire_frame *frame)
{
	struct ibv_sge sge = { .addr = (uintptr_t)m->out,
			       .length = SODA_WIRE_FRAME_BYTES + frame->length,
			       .lkey = m->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = ID_SEND,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	int ret;

	soda_wire_put_frame(m->out, frame);
	if (sge.length <= m->link->inline_bytes)
		wr.send_flags |= IBV_SEND_INLINE;
	ret = -ibv_post_send(m->link->id->qp, &wr, &bad);
	m->sending += ret == 0;
	m->sent += ret == 0;
	return ret;
}

static void add_came(struct soda_verbs_messages *m, struct soda_verbs_receive *r)
{
	struct soda_verbs_receive **last = &m->came;

	while (*last)
		last = &(*last)->next;
	r->next = NULL;
	*last = r;
	m->came_n++;
}

/* What has completed. */
static int reap(struct soda_verbs_messages *m)
{
	struct ibv_wc wc;
	int n, ret = 0;

	while ((n = ibv_poll_cq(m->link->cq, 1, &wc)) > 0) {
		bool receive = wc.wr_id > ID_READ;

		if (receive) {
			struct soda_verbs_receive *r =
				(struct soda_verbs_receive *)(uintptr_t)wc.wr_id;

			r->bytes = wc.status == IBV_WC_SUCCESS ? wc.byte_len : 0;
			add_came(m, r);
		}
		if (wc.status != IBV_WC_SUCCESS && ret == 0) {
			m->silent |= wc.status == IBV_WC_RETRY_EXC_ERR;
			ret = soda_verbs_link_error(wc.status, m->peer);
		}
		if (wc.wr_id == ID_PROBE)
			m->probing = false;
		else if (wc.wr_id == ID_SEND)
			m->sending--;
		else if (wc.wr_id == ID_READ)
			m->reads--;
	}
	if (ret == 0 && m->came_n > SODA_CONN_CALLS)
		ret = -EPROTO;
	return ret < 0 ? ret : n;
}

/*
 * Receives that the queue pair took and that others need, back: those that it is filling come
 * within SODA_VERBS_DRAIN_MS once it is in its error state, or never.
 */
static void give_back(struct soda_verbs_messages *m)
{
	uint64_t end_ns = soda_now_ns() + SODA_VERBS_DRAIN_MS * SODA_MS_NS;

	rdma_disconnect(m->link->id);
	do {
		reap(m);
		if (m->now)
			soda_verbs_message_expect(m);
		while (m->came) {
			m->now = m->came;
			m->came = m->now->next;
			m->came_n--;
			soda_verbs_message_expect(m);
		}
		usleep(1000);
	} while (soda_now_ns() < end_ns);
}

void soda_verbs_messages_destroy(struct soda_verbs_messages *m)
{
	if (!m->link)
		return; /* never made */
	if (m->shared && m->link->cq && m->link->id && m->link->id->qp)
		give_back(m);
	soda_verbs_link_stop(m->link);
	soda_verbs_unregister(m->mr);
	if (m->memory)
		munmap(m->memory,
		       (uint64_t)(m->shared ? m->calls : 2 * m->calls) * SODA_VERBS_CALL_ROOM);
	m->memory = m->out = NULL;
	m->mr = NULL;
}

static int64_t left_ns(uint64_t deadline_ns)
{
	uint64_t now;

	if (deadline_ns == SODA_NO_DEADLINE)
		return -1;
	now = soda_now_ns();
	return now < deadline_ns ? (int64_t)(deadline_ns - now) : 0;
}

/*
 * A WRITE of nothing: it needs no key and takes no receive, but the peer's adapter has to
 * acknowledge it, and one that is gone ends the connection, after the retries; those of rxe, which
 * takes 7 for no limit, after SODA_VERBS_SILENT_MS.
 */
static int probe(struct soda_verbs_messages *m)
{
	struct ibv_send_wr wr = { .wr_id = ID_PROBE,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	int ret;

	if (m->probing) {
		m->silent = soda_now_ns() - m->probed_ns > SODA_VERBS_SILENT_MS * SODA_MS_NS;
		return m->silent ? -ECONNRESET : 0;
	}
	m->probed_ns = soda_now_ns();
	ret = -ibv_post_send(m->link->id->qp, &wr, &bad);
	m->probing = ret == 0;
	return ret;
}

static bool may_send(const struct soda_verbs_messages *m)
{
	return m->sending < m->calls;
}

static bool has_come(const struct soda_verbs_messages *m)
{
	return m->came;
}

static bool may_read(const struct soda_verbs_messages *m)
{
	return m->reads < SODA_VERBS_READS;
}

static bool has_read(const struct soda_verbs_messages *m)
{
	return !m->reads;
}

/* One look, and a sleep if there is nothing: 1 it may be ready, or negative errno. */
static int look(struct soda_verbs_messages *m, bool (*ready)(const struct soda_verbs_messages *),
		uint64_t deadline_ns)
{
	bool probes = m->probes && deadline_ns == SODA_NO_DEADLINE;
	uint64_t due_ns = soda_now_ns() + SODA_VERBS_PROBE_MS * SODA_MS_NS;
	int64_t left = probes ? SODA_VERBS_PROBE_MS * 1000000ll : left_ns(deadline_ns);
	int ret = reap(m), gone;

	if (ret == 0 && !ready(m))
		ret = soda_verbs_link_arm(m->link);
	if (ret == 0 && !ready(m))
		ret = reap(m);
	if (ret < 0 || ready(m))
		return ret;
	if (m->aborted && atomic_load_explicit(m->aborted, memory_order_acquire))
		return -ECONNABORTED;
	if (left == 0)
		return -ETIMEDOUT;
	gone = soda_verbs_link_sleep(m->link, left);
	ret = reap(m); /* what came before the end counts */
	if (ret < 0 || ready(m) || gone)
		return ret < 0 || ready(m) ? ret : gone;
	return probes && soda_now_ns() >= due_ns ? probe(m) : 0;
}

int soda_verbs_message_begin(struct soda_verbs_messages *m, uint64_t deadline_ns)
{
	int ret = 0;

	while (!may_send(m) && ret == 0)
		ret = look(m, may_send, deadline_ns);
	m->out = m->memory + (uint64_t)(m->sent % m->calls) * SODA_VERBS_CALL_ROOM;
	return ret;
}

int soda_verbs_message_read(struct soda_verbs_messages *m, void *to, uint32_t lkey,
			    const struct soda_wire_flow_part *from, uint64_t deadline_ns)
{
	struct ibv_sge sge = { .addr = (uintptr_t)to, .length = from->bytes, .lkey = lkey };
	struct ibv_send_wr wr = { .wr_id = ID_READ,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_READ,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { .remote_addr = from->at, .rkey = from->rkey } },
			   *bad;
	int ret = 0;

	while (!may_read(m) && ret == 0)
		ret = look(m, may_read, deadline_ns);
	if (ret == 0)
		ret = -ibv_post_send(m->link->id->qp, &wr, &bad);
	m->reads += ret == 0;
	return ret;
}

int soda_verbs_message_await_reads(struct soda_verbs_messages *m, uint64_t deadline_ns)
{
	int ret = 0;

	while (m->reads && ret == 0)
		ret = look(m, has_read, deadline_ns);
	return ret;
}

int soda_verbs_message_await(struct soda_verbs_messages *m, uint64_t deadline_ns,
			     struct soda_wire_frame *frame_p)
{
	int ret = 0;

	while (!m->came && ret == 0)
		ret = look(m, has_come, deadline_ns);
	if (ret < 0)
		return ret;
	m->now = m->came;
	m->came = m->now->next;
	m->came_n--;
	if (m->now->bytes < SODA_WIRE_FRAME_BYTES)
		return -EPROTO;
	soda_wire_get_frame(m->now->data, frame_p);
	return frame_p->length == m->now->bytes - SODA_WIRE_FRAME_BYTES ? 0 : -EPROTO;
}
