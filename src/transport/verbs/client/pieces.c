/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests as work requests, one-sided and two-sided. See data.h. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/guard.h"
#include "transport/api/memory.h"
#include "transport/verbs/client/data.h"

/* of a receive: the piece; of a SEND: its number, and one; else the piece, and one */
#define ID_ANSWER (1ull << 32)
#define ID_SEND (2ull << 32)

static uint64_t address_of(const struct soda_vdata *c, const uint8_t *at)
{
	return c->base + (uint64_t)(at - c->arena);
}

static struct ibv_sge ours(const struct soda_vdata *c, const uint8_t *at, uint32_t bytes)
{
	return (struct ibv_sge){ .addr = address_of(c, at), .length = bytes, .lkey = c->mr->lkey };
}

/* false: it may not be read, and with that the connection is over. */
static bool stage(struct soda_vdata *c, uint8_t *slot, const uint8_t *from, uint32_t bytes)
{
	if (c->reach)
		soda_payload_copy(slot, from, bytes);
	else
		c->failed = soda_guard_copy(slot, from, bytes);
	return !c->failed;
}

/* A piece's part of the rings: it has been added. */
static void sent(struct soda_vdata *c, struct soda_vrequest *r, uint32_t bytes)
{
	c->pieces[c->sent & (c->slots - 1)] = (struct soda_vpiece){ .request = c->issued,
								    .offset = c->issued_bytes,
								    .bytes = bytes };
	c->sent++;
	c->issued_bytes += bytes;
	if (c->issued_bytes == r->bytes) {
		c->issued++;
		c->issued_bytes = 0;
	}
}

/* There is one to go that is of this kind. */
static bool has_more(struct soda_vdata *c, bool asks)
{
	return !c->failed && c->issued != c->flushed && c->sent - c->freed < c->slots &&
	       soda_vdata_request(c, c->issued)->asks == asks;
}

static void post(struct soda_vdata *c, struct ibv_qp *qp, uint32_t n)
{
	struct ibv_send_wr *bad;
	int ret;

	c->wr[n - 1].next = NULL;
	c->wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	c->unsignalled = 0;
	ret = ibv_post_send(qp, c->wr, &bad);
	if (ret)
		c->failed = ret == EINVAL ? -ECONNRESET : -ret; /* EINVAL: it is in error */
}

/* One-sided */

static void add(struct soda_vdata *c, uint32_t n, struct ibv_sge local, uint64_t remote,
		const struct soda_vrequest *r)
{
	c->sge[n] = local;
	c->wr[n] = (struct ibv_send_wr){
		.wr_id = c->sent + 1u,
		.next = &c->wr[n + 1],
		.sg_list = &c->sge[n],
		.num_sge = 1,
		.opcode = r->write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = remote, .rkey = r->rkey },
	};
	if (r->write && local.length <= c->link.inline_bytes)
		c->wr[n].send_flags |= IBV_SEND_INLINE;
}

/* The next piece: one work request, or two; none if it fails. How many there are now. */
static uint32_t add_piece(struct soda_vdata *c, uint32_t n)
{
	struct soda_vrequest *r = soda_vdata_request(c, c->issued);
	uint8_t *at = r->data + c->issued_bytes, *slot = soda_vdata_slot(c, c->sent);
	uint32_t left = r->bytes - c->issued_bytes;
	uint32_t bytes = left < c->slot_bytes ? left : c->slot_bytes;
	struct ibv_sge local = { .addr = (uintptr_t)at, .length = bytes, .lkey = r->lkey };

	if (!r->direct) {
		if (r->write && !stage(c, slot, at, bytes))
			return n;
		local = ours(c, slot, bytes);
	}
	add(c, n++, local, r->offset + c->issued_bytes, r);
	/* behind the data: a server that clears a mark and saves the unit has them, or sees it
	 * again */
	if (bytes == left && r->marks)
		add(c, n++, ours(c, soda_vdata_behind(c), r->marks), r->marks_at, r);
	c->unsignalled += bytes;
	if (c->unsignalled >= c->signal_bytes) {
		c->wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
		c->unsignalled = 0;
	}
	sent(c, r, bytes);
	return n;
}

static void pump_one_sided(struct soda_vdata *c)
{
	struct soda_verbs_link *l = soda_vdata_two_sided(c) ? soda_vdata_keyed(c) : &c->link;
	uint32_t n = 0;

	while (has_more(c, false))
		n = add_piece(c, n);
	if (n)
		post(c, l->id->qp, n);
}

/* Two-sided */

/* What the client has is said of the first piece's chunk. */
static bool tells(const struct soda_vdata *c, const struct soda_vrequest *r)
{
	return r->told && !r->write && !c->issued_bytes;
}

/* The request's body at the slot's head: how many bytes. */
static uint32_t put_head(const struct soda_vdata *c, const struct soda_vrequest *r, uint32_t bytes,
			 uint8_t *head)
{
	uint64_t page = (r->offset + c->issued_bytes) / SODA_WIRE_PAGE;

	if (r->write) {
		soda_wire_put_write(head, &(struct soda_wire_write){ .region_id = r->region_id,
								     .page_offset = page,
								     .size = bytes });
		return SODA_WIRE_WRITE_BYTES;
	}
	soda_wire_put_read(
		head, &(struct soda_wire_read){
			      .region_id = r->region_id,
			      .page_offset = page,
			      .dest_addr = address_of(c, soda_vdata_slot(c, c->sent)),
			      .size = bytes,
			      .dest_rkey = c->asked.answer == SODA_ANSWER_WRITE ? c->mr->rkey : 0,
		      });
	if (!tells(c, r))
		return SODA_WIRE_READ_BYTES;
	soda_wire_put_has(head + SODA_WIRE_READ_BYTES, &r->has);
	return SODA_WIRE_READ_BYTES + SODA_WIRE_HAS_BYTES;
}

/* As above, of one work request. */
static uint32_t ask(struct soda_vdata *c, uint32_t n)
{
	struct soda_vrequest *r = soda_vdata_request(c, c->issued);
	uint8_t *slot = soda_vdata_slot(c, c->sent), *head = soda_vdata_head(c, c->sent);
	uint32_t left = r->bytes - c->issued_bytes;
	uint32_t bytes = left < c->slot_bytes ? left : c->slot_bytes;
	struct ibv_sge *sge = &c->sge[4 * n];
	uint32_t flags = (c->polling ? SODA_WIRE_POLLING : 0) | (tells(c, r) ? SODA_WIRE_HAS : 0);

	sge[0] = ours(c, head, put_head(c, r, bytes, head));
	sge[1] = sge[3] = ours(c, slot, bytes);
	sge[2] = ours(c, head + SODA_VERBS_TAG_AT, SODA_WIRE_TAG_BYTES);
	if (r->write && !stage(c, slot, r->data + c->issued_bytes, bytes))
		return n;
	c->wr[n] = (struct ibv_send_wr){
		.wr_id = ID_SEND | ++c->asks,
		.next = &c->wr[n + 1],
		.sg_list = sge,
		.num_sge = r->write ? 2 : 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.imm_data = soda_verbs_imm(r->write ? SODA_MSG_WRITE : SODA_MSG_READ, flags, 0),
	};
	if (!r->write && sge[0].length <= c->link.inline_bytes) {
		c->wr[n].send_flags = IBV_SEND_INLINE;
		sge[0].addr = (uintptr_t)head; /* taken now, by us */
	}
	c->receives[n] = (struct ibv_recv_wr){ .wr_id = ID_ANSWER | c->sent,
					       .next = &c->receives[n + 1],
					       .sg_list = sge + 2,
					       .num_sge = r->write ? 1 : 2 };
	sent(c, r, bytes);
	return n + 1;
}

static void pump_two_sided(struct soda_vdata *c)
{
	struct ibv_recv_wr *bad;
	uint32_t n = 0;

	while (has_more(c, true) && c->asks - c->gone < 2 * SODA_VERBS_SLOTS)
		n = ask(c, n);
	if (!n)
		return;
	c->receives[n - 1].next = NULL;
	if (ibv_post_recv(c->link.id->qp, c->receives, &bad))
		c->failed = -ECONNRESET;
	else
		post(c, c->link.id->qp, n);
}

void soda_vdata_pump(struct soda_vdata *c)
{
	if (c->sent == c->completed && c->issued != c->flushed)
		c->asking = soda_vdata_request(c, c->issued)->asks;
	if (c->asking)
		pump_two_sided(c);
	else
		pump_one_sided(c);
}

/* Completions */

/* The answer of piece `completed`. 0; -EPROTO: it is none. */
static int check_answer(const struct soda_vdata *c, const struct ibv_wc *wc, int *status_p)
{
	const struct soda_vpiece *p = &c->pieces[c->completed & (c->slots - 1)];
	const struct soda_vrequest *r = &c->requests[p->request & c->mask];
	const uint8_t *head = soda_vdata_head(c, c->completed);
	uint32_t imm = be32toh(wc->imm_data), data;

	if (!(wc->wc_flags & IBV_WC_WITH_IMM) || (uint32_t)wc->wr_id != c->completed ||
	    (imm & 0xff) != (r->write ? SODA_MSG_WRITE_REPLY : SODA_MSG_READ_REPLY))
		return -EPROTO;
	*status_p = -soda_status_to_errno(imm >> 16);
	data = r->write || *status_p ? 0 : p->bytes;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		return data && wc->byte_len == data && c->asked.answer == SODA_ANSWER_WRITE
			       ? 0
			       : -EPROTO;
	/* a READ's tag is its dest_addr, a WRITE's its first bytes */
	return wc->byte_len == SODA_WIRE_TAG_BYTES + data &&
			       !memcmp(head + SODA_VERBS_TAG_AT, head + (r->write ? 0 : 8),
				       SODA_WIRE_TAG_BYTES)
		       ? 0
		       : -EPROTO;
}

static bool answered(struct soda_vdata *c, const struct ibv_wc *wc, uint32_t *end_p, int *status_p)
{
	int ret;

	if (wc->status != IBV_WC_SUCCESS) {
		c->failed = soda_verbs_link_error(wc->status, c->conn.peer);
		return false;
	}
	if (wc->wr_id & ID_SEND) {
		c->gone = (uint32_t)wc->wr_id;
		return false;
	}
	ret = check_answer(c, wc, status_p);
	if (ret < 0) {
		c->failed = ret;
		return false;
	}
	*end_p = c->completed + 1;
	return true;
}

bool soda_vdata_completed(struct soda_vdata *c, const struct ibv_wc *wc, uint32_t *end_p,
			  int *status_p)
{
	if (wc->wr_id & (ID_ANSWER | ID_SEND))
		return answered(c, wc, end_p, status_p);
	*status_p = 0;
	*end_p = (uint32_t)wc->wr_id;
	if (wc->status != IBV_WC_SUCCESS) {
		*end_p -= 1;
		c->failed = soda_verbs_link_error(wc->status, c->conn.peer);
	}
	return true;
}
