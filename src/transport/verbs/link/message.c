/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane on verbs: each message is one SEND of a frame and its body.  There
 * is one request outstanding a connection, so that one receive is enough: it is posted
 * before whatever makes the peer send.
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

enum {
	MESSAGE_BYTES = SODA_WIRE_FRAME_BYTES + SODA_WIRE_MAX_CONTROL,
	ROOM = (MESSAGE_BYTES + 4095) / 4096 * 4096,
	ID_SEND = 1,
	ID_RECEIVE = 2,
	ID_PROBE = 3,
};

int soda_verbs_messages_create(struct soda_verbs_messages *m, struct soda_verbs_link *l,
			       const char *peer, struct soda_why *why)
{
	static const struct soda_verbs_room room = { .sends = 2, .receives = 2 };
	int ret;

	*m = (struct soda_verbs_messages){ .link = l, .peer = peer };
	ret = soda_verbs_link_prepare(l, &room, why);
	if (ret < 0)
		return ret;
	m->in = soda_verbs_map(l->id->verbs, 2 * ROOM);
	if (!m->in) {
		soda_why_set(why, "%s: no memory for a connection", peer);
		return -ENOMEM;
	}
	m->out = m->in + ROOM;
	ret = soda_verbs_register(l->pd, m->in, 2 * ROOM, IBV_ACCESS_LOCAL_WRITE, &m->mr, why);
	if (ret == 0) {
		ret = soda_verbs_message_expect(m);
		if (ret < 0)
			soda_why_set(why, "%s: no receive can be posted", peer);
	}
	return ret;
}

void soda_verbs_messages_destroy(struct soda_verbs_messages *m)
{
	if (!m->link)
		return; /* never made */
	soda_verbs_link_stop(m->link);
	soda_verbs_unregister(m->mr);
	if (m->in)
		munmap(m->in, 2 * ROOM);
	m->in = m->out = NULL;
	m->mr = NULL;
}

int soda_verbs_message_expect(struct soda_verbs_messages *m)
{
	struct ibv_sge sge = { .addr = (uintptr_t)m->in,
			       .length = MESSAGE_BYTES,
			       .lkey = m->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = ID_RECEIVE, .sg_list = &sge, .num_sge = 1 }, *bad;

	m->received = false;
	return -ibv_post_recv(m->link->id->qp, &wr, &bad);
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
	m->sending = ret == 0;
	return ret;
}

/* What has completed. */
static int reap(struct soda_verbs_messages *m)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(m->link->cq, 1, &wc)) > 0) {
		if (wc.status != IBV_WC_SUCCESS) {
			m->silent |= wc.status == IBV_WC_RETRY_EXC_ERR;
			return soda_verbs_link_error(wc.status, m->peer);
		}
		if (wc.wr_id == ID_PROBE) {
			m->probing = false;
		} else if (wc.wr_id == ID_SEND) {
			m->sending = false;
		} else {
			m->received = true;
			m->in_bytes = wc.byte_len;
		}
	}
	return n;
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

/* One look, and a sleep if there is nothing: 1 it may have changed, or negative errno. */
static int look(struct soda_verbs_messages *m, const bool *changed, bool from, uint64_t deadline_ns)
{
	bool probes = m->probes && deadline_ns == SODA_NO_DEADLINE;
	uint64_t due_ns = soda_now_ns() + SODA_VERBS_PROBE_MS * SODA_MS_NS;
	int64_t left = probes ? SODA_VERBS_PROBE_MS * 1000000ll : left_ns(deadline_ns);
	int ret = reap(m), gone;

	if (ret == 0 && *changed == from)
		ret = soda_verbs_link_arm(m->link);
	if (ret == 0 && *changed == from)
		ret = reap(m);
	if (ret < 0 || *changed != from)
		return ret;
	if (m->aborted && atomic_load_explicit(m->aborted, memory_order_acquire))
		return -ECONNABORTED;
	if (left == 0)
		return -ETIMEDOUT;
	gone = soda_verbs_link_sleep(m->link, left);
	ret = reap(m); /* what came before the end counts */
	if (ret < 0 || *changed != from || gone)
		return ret < 0 || *changed != from ? ret : gone;
	return probes && soda_now_ns() >= due_ns ? probe(m) : 0;
}

int soda_verbs_message_begin(struct soda_verbs_messages *m, uint64_t deadline_ns)
{
	int ret = 0;

	while (m->sending && ret == 0)
		ret = look(m, &m->sending, true, deadline_ns);
	return ret;
}

int soda_verbs_message_await(struct soda_verbs_messages *m, uint64_t deadline_ns,
			     struct soda_wire_frame *frame_p)
{
	int ret = 0;

	while (!m->received && ret == 0)
		ret = look(m, &m->received, false, deadline_ns);
	if (ret < 0)
		return ret;
	if (m->in_bytes < SODA_WIRE_FRAME_BYTES)
		return -EPROTO;
	soda_wire_get_frame(m->in, frame_p);
	return frame_p->length == m->in_bytes - SODA_WIRE_FRAME_BYTES ? 0 : -EPROTO;
}
