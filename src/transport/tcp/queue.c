/* SPDX-License-Identifier: BSD-3-Clause */
/* The requests of a data connection: tcp.h has the picture. */
#include "transport/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/iov.h"
#include "transport/stream/stream.h"

enum {
	MERGED_MAX = 256u << 10, /* bytes of one request */
	STASH_BYTES = SODA_WIRE_MAX_DATA + SODA_TCP_RX_WINDOW * SODA_WIRE_HEAD_BYTES,
};

int soda_tcp_queue_create(struct soda_tcp_queue *q, uint32_t depth)
{
	uint32_t slots = soda_ring_entries(depth);

	q->mask = slots - 1;
	q->slots = calloc(slots, sizeof(*q->slots));
	q->requests = calloc(slots, sizeof(*q->requests));
	/* address space only: memory comes with the first error reply that needs it */
	q->stash = mmap(NULL, STASH_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (q->stash == MAP_FAILED)
		q->stash = NULL;
	return q->slots && q->requests && q->stash ? 0 : -ENOMEM;
}

void soda_tcp_queue_destroy(struct soda_tcp_queue *q)
{
	if (q->stash)
		munmap(q->stash, STASH_BYTES);
	free(q->requests);
	free(q->slots);
}

static struct soda_tcp_slot *slot_at(struct soda_tcp_queue *q, uint32_t i)
{
	return &q->slots[i & q->mask];
}

/* Sending */

/* Slots that follow another one travel without a header of their own. */
static size_t head_bytes(const struct soda_tcp_slot *s)
{
	return s->total ? SODA_WIRE_HEAD_BYTES : 0;
}

static uint8_t *read_body(uint8_t *request)
{
	return request + SODA_WIRE_HEAD_BYTES - SODA_WIRE_READ_BYTES;
}

/* Nothing of the last request has gone, and p continues it. */
static bool continues(struct soda_tcp_queue *q, const struct soda_post *p,
		      const struct soda_wire_read *last)
{
	const struct soda_tcp_slot *s = slot_at(q, q->last), *before = slot_at(q, q->posted - 1);
	bool unsent = (int32_t)(q->last - q->sent) > 0 || (q->last == q->sent && !q->tx_offset);

	return unsent && !s->write && last->region_id == p->mr->region_id &&
	       last->page_offset * SODA_WIRE_PAGE + s->total == p->offset &&
	       before->data + before->bytes == (uint8_t *)p->data &&
	       s->total + p->bytes <= MERGED_MAX;
}

/* Make p a part of the last request, if it may be one. */
static bool merge(struct soda_tcp_queue *q, const struct soda_post *p)
{
	uint8_t *body = read_body(q->requests[q->last & q->mask]);
	struct soda_wire_read last;

	if (!p->merge || p->residency || q->sent == q->posted || slot_at(q, q->last)->write)
		return false;
	soda_wire_get_read(body, &last);
	if (!continues(q, p, &last))
		return false;
	slot_at(q, q->last)->total = last.size += p->bytes;
	soda_wire_put_read(body, &last);
	*slot_at(q, q->posted) =
		(struct soda_tcp_slot){ .cookie = p->cookie, .data = p->data, .bytes = p->bytes };
	q->posted++;
	return true;
}

/* Bytes that travel with the request. */
static uint32_t data_bytes(const struct soda_post *p)
{
	if (p->code)
		return p->code_bytes;
	return p->write && !p->origin ? p->bytes : 0;
}

static uint8_t flags(const struct soda_post *p)
{
	return (uint8_t)((p->residency ? SODA_WIRE_RESIDENCY : 0) | (p->keep ? SODA_WIRE_KEEP : 0) |
			 (p->origin || p->code ? SODA_WIRE_KEPT : 0));
}

void soda_tcp_queue_post(struct soda_tcp_queue *q, const struct soda_post *p)
{
	struct soda_tcp_slot *s = slot_at(q, q->posted);
	uint8_t *out = q->requests[q->posted & q->mask];
	struct soda_wire_frame frame = {
		.type = p->write ? SODA_MSG_WRITE : SODA_MSG_READ,
		.length = p->write ? SODA_WIRE_WRITE_BYTES + data_bytes(p) : SODA_WIRE_READ_BYTES,
		.flags = flags(p),
	};
	uint64_t page = p->offset / SODA_WIRE_PAGE;

	if (merge(q, p))
		return;
	*s = (struct soda_tcp_slot){ .cookie = p->cookie,
				     .data = p->code ? (void *)(uintptr_t)p->code : p->data,
				     .bytes = p->write ? data_bytes(p) : p->bytes,
				     .total = p->bytes,
				     .write = p->write };
	memset(out, 0, SODA_WIRE_HEAD_BYTES);
	soda_wire_put_frame(out, &frame);
	if (p->residency)
		soda_wire_put_residency(out + SODA_WIRE_FRAME_BYTES, p->residency);
	if (p->origin)
		soda_wire_put_origin(out + SODA_WIRE_FRAME_BYTES, p->origin);
	out += SODA_WIRE_HEAD_BYTES - (p->write ? SODA_WIRE_WRITE_BYTES : SODA_WIRE_READ_BYTES);
	if (p->write) {
		s->tag = p->mr->region_id | page << 16;
		soda_wire_put_write(out, &(struct soda_wire_write){ .region_id = p->mr->region_id,
								    .page_offset = page,
								    .size = p->bytes });
	} else {
		s->tag = q->next_tag++;
		soda_wire_put_read(out, &(struct soda_wire_read){ .region_id = p->mr->region_id,
								  .page_offset = page,
								  .dest_addr = s->tag,
								  .size = p->bytes });
	}
	q->last = q->posted++;
}

void soda_tcp_queue_mark_polling(struct soda_tcp_queue *q)
{
	q->requests[q->last & q->mask][1] |= SODA_WIRE_POLLING;
}

static size_t request_bytes(const struct soda_tcp_slot *s)
{
	return head_bytes(s) + (s->write ? (size_t)s->bytes : 0);
}

int soda_tcp_queue_aim_send(struct soda_tcp_queue *q)
{
	size_t skip = q->tx_offset;
	int n = 0;

	for (uint32_t i = q->sent; i != q->posted && n <= SODA_TCP_TX_IOV - 2; i++) {
		struct soda_tcp_slot *s = slot_at(q, i);

		n = soda_iov_add(q->tx, n, q->requests[i & q->mask], head_bytes(s), &skip);
		if (s->write && s->bytes)
			n = soda_iov_add(q->tx, n, s->data, s->bytes, &skip);
	}
	return n;
}

void soda_tcp_queue_sent(struct soda_tcp_queue *q, size_t bytes)
{
	q->tx_offset += bytes;
	while (q->sent != q->posted && q->tx_offset >= request_bytes(slot_at(q, q->sent))) {
		q->tx_offset -= request_bytes(slot_at(q, q->sent));
		q->sent++;
	}
}

/* Receiving */

/* 0: a good reply with its data follows; 1: an error reply, nothing follows; -EPROTO. */
static int check_reply(struct soda_tcp_slot *s)
{
	struct soda_wire_frame f;
	uint64_t tag = 0;

	soda_wire_get_frame(s->reply, &f);
	for (unsigned i = 0; i < SODA_WIRE_TAG_BYTES; i++)
		tag |= (uint64_t)s->reply[SODA_WIRE_HEAD_BYTES - SODA_WIRE_TAG_BYTES + i]
		       << (8 * i);
	if (f.type != (s->write ? SODA_MSG_WRITE_REPLY : SODA_MSG_READ_REPLY) || tag != s->tag)
		return -EPROTO;
	s->status = -soda_status_to_errno(f.status);
	if (s->status)
		return f.length == SODA_WIRE_TAG_BYTES ? 1 : -EPROTO;
	return f.length == SODA_WIRE_TAG_BYTES + (s->write ? 0 : s->total) ? 0 : -EPROTO;
}

static size_t reply_bytes(const struct soda_tcp_slot *s)
{
	return head_bytes(s) + (s->write ? 0 : (size_t)s->bytes);
}

int soda_tcp_queue_aim_recv(struct soda_tcp_queue *q, size_t *total_p)
{
	size_t skip = q->rx_offset, total = 0;
	int n = 0;

	for (uint32_t i = q->received; i != q->sent && n <= 2 * SODA_TCP_RX_WINDOW - 2; i++) {
		struct soda_tcp_slot *s = slot_at(q, i);

		if (n && total + reply_bytes(s) > STASH_BYTES)
			break;
		total += reply_bytes(s) - skip;
		n = soda_iov_add(q->rx, n, s->reply, head_bytes(s), &skip);
		if (!s->write)
			n = soda_iov_add(q->rx, n, s->data, s->bytes, &skip);
	}
	*total_p = total;
	return n;
}

static void stash_add(struct soda_tcp_queue *q, const void *from, size_t bytes)
{
	assert(bytes <= STASH_BYTES - q->stash_end);
	if (!bytes) /* a WRITE without data has no memory, either */
		return;
	memcpy(q->stash + q->stash_end, from, bytes);
	q->stash_end += bytes;
}

/*
 * Reply i has no data after all: `here` bytes lie in its destination that belong
 * to later replies, and `beyond` more in the places of the slots after it.
 */
static void stash_surplus(struct soda_tcp_queue *q, uint32_t i, size_t here, size_t beyond)
{
	q->stash_begin = q->stash_end = 0;
	stash_add(q, slot_at(q, i)->data, here);
	for (i++; beyond; i++) {
		struct soda_tcp_slot *s = slot_at(q, i);
		size_t n = beyond < head_bytes(s) ? beyond : head_bytes(s);

		stash_add(q, s->reply, n);
		beyond -= n;
		if (s->write)
			continue;
		n = beyond < s->bytes ? beyond : s->bytes;
		stash_add(q, s->data, n);
		beyond -= n;
	}
}

static void reply_complete(struct soda_tcp_queue *q)
{
	q->rx_offset = 0;
	q->received++;
}

/* The peer has refused the request that begins at `received`: all its parts. */
static void reply_refused(struct soda_tcp_queue *q)
{
	int status = slot_at(q, q->received)->status;

	do {
		slot_at(q, q->received)->status = status;
		reply_complete(q);
	} while (q->received != q->sent && !slot_at(q, q->received)->total);
}

int soda_tcp_queue_received(struct soda_tcp_queue *q, size_t bytes)
{
	while (bytes) {
		struct soda_tcp_slot *s = slot_at(q, q->received);
		size_t before = q->rx_offset;
		size_t take = reply_bytes(s) - before < bytes ? reply_bytes(s) - before : bytes;
		int ret;

		q->rx_offset += take;
		bytes -= take;
		if (before < head_bytes(s) && q->rx_offset >= SODA_WIRE_HEAD_BYTES) {
			ret = check_reply(s);
			if (ret < 0)
				return ret;
			if (ret) {
				stash_surplus(q, q->received, q->rx_offset - SODA_WIRE_HEAD_BYTES,
					      bytes);
				reply_refused(q);
				return 0;
			}
		}
		if (q->rx_offset == reply_bytes(s))
			reply_complete(q);
	}
	return 0;
}

int soda_tcp_queue_use_stash(struct soda_tcp_queue *q)
{
	struct soda_tcp_slot *s = slot_at(q, q->received);
	bool head = q->rx_offset < head_bytes(s);
	size_t want = (head ? SODA_WIRE_HEAD_BYTES : reply_bytes(s)) - q->rx_offset;
	size_t have = q->stash_end - q->stash_begin;
	size_t n = want < have ? want : have;
	int ret;

	if (q->received == q->sent)
		return -EPROTO; /* bytes beyond all the replies that are due */
	memcpy(head ? s->reply + q->rx_offset : s->data + (q->rx_offset - head_bytes(s)),
	       q->stash + q->stash_begin, n);
	q->stash_begin += n;
	q->rx_offset += n;
	if (head && q->rx_offset == SODA_WIRE_HEAD_BYTES) {
		ret = check_reply(s);
		if (ret < 0)
			return ret;
		if (ret) {
			reply_refused(q);
			return 0;
		}
	}
	if (q->rx_offset == reply_bytes(s))
		reply_complete(q);
	return 0;
}

int soda_tcp_queue_report(struct soda_tcp_queue *q, struct soda_done *done, int max)
{
	int n = 0;

	for (; n < max && q->done != q->received; n++) {
		struct soda_tcp_slot *s = slot_at(q, q->done++);

		done[n] = (struct soda_done){ .cookie = s->cookie,
					      .bytes = s->bytes,
					      .status = s->status };
	}
	return n;
}
