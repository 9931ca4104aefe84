/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/messages.h"

#include <errno.h>
#include <string.h>

#include "base/limits.h"
#include "wire/field.h"

static void put_words(uint8_t *out, const uint32_t *words, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		soda_wire_put_u32(out + 4 * i, words[i]);
}

static uint32_t word(const void *in, unsigned i)
{
	return soda_wire_get_u32((const uint8_t *)in + 4 * i);
}

void soda_wire_put_msg_challenge(uint8_t *out, const struct soda_wire_msg_challenge *c)
{
	memcpy(out, c->nonce, sizeof(c->nonce));
	memcpy(out + sizeof(c->nonce), c->router, sizeof(c->router));
}

int soda_wire_get_msg_challenge(const void *in, size_t bytes, struct soda_wire_msg_challenge *c)
{
	const uint8_t *at = in;

	if (bytes != SODA_WIRE_MSG_CHALLENGE_BYTES)
		return -EPROTO;
	memcpy(c->nonce, at, sizeof(c->nonce));
	memcpy(c->router, at + sizeof(c->nonce), sizeof(c->router));
	return 0;
}

void soda_wire_put_msg_join(uint8_t *out, const struct soda_wire_msg_join *j)
{
	put_words(out, (uint32_t[]){ j->version, j->role, j->rank, j->ranks }, 4);
	memcpy(out + SODA_WIRE_MSG_JOIN_KEY, j->key, SODA_MSG_KEY_BYTES);
	soda_wire_put_u64(out + 48, j->life);
	put_words(out + 56, (uint32_t[]){ j->agents, j->here, j->name_bytes, j->again }, 4);
	memcpy(out + SODA_WIRE_MSG_JOIN_GRANT, j->grant, sizeof(j->grant));
	memcpy(out + SODA_WIRE_MSG_JOIN_PROOF, j->proof, sizeof(j->proof));
}

/* So many addresses, each with a zero behind it, and nothing else. */
static bool addresses_ok(const char *text, size_t bytes, uint32_t n)
{
	while (n && bytes) {
		size_t length = strnlen(text, bytes);

		if (!length || length == bytes || length > SODA_ADDRESS_MAX)
			return false;
		text += length + 1;
		bytes -= length + 1;
		n--;
	}
	return !n && !bytes;
}

static int get_place(const uint8_t *at, size_t left, const struct soda_wire_msg_join *j,
		     struct soda_wire_msg_place *place_p)
{
	struct soda_wire_msg_place place = { .name = (const char *)at };

	if (j->name_bytes > left)
		return -EPROTO;
	at += j->name_bytes;
	left -= j->name_bytes;
	if (j->agents > 1) {
		if (j->agents > SODA_MSG_AGENTS || j->here >= j->agents || j->ranks > left)
			return -EPROTO;
		for (uint32_t i = 0; i < j->ranks; i++)
			if (at[i] >= j->agents)
				return -EPROTO;
		place.places = at;
		place.addresses = (const char *)at + j->ranks;
		place.address_bytes = left - j->ranks;
		if (!addresses_ok(place.addresses, place.address_bytes, j->agents))
			return -EPROTO;
	} else if (left || j->here || !j->agents) {
		return -EPROTO;
	}
	*place_p = place;
	return 0;
}

int soda_wire_get_msg_join(const void *in, size_t bytes, struct soda_wire_msg_join *j,
			   struct soda_wire_msg_place *place_p)
{
	const uint8_t *at = in;

	if (bytes < SODA_WIRE_MSG_JOIN_BYTES)
		return -EPROTO;
	*j = (struct soda_wire_msg_join){ .version = word(in, 0),
					  .role = word(in, 1),
					  .rank = word(in, 2),
					  .ranks = word(in, 3),
					  .life = soda_wire_get_u64(at + 48),
					  .agents = word(in, 14),
					  .here = word(in, 15),
					  .name_bytes = word(in, 16),
					  .again = word(in, 17) };
	memcpy(j->key, at + SODA_WIRE_MSG_JOIN_KEY, SODA_MSG_KEY_BYTES);
	memcpy(j->grant, at + SODA_WIRE_MSG_JOIN_GRANT, sizeof(j->grant));
	memcpy(j->proof, at + SODA_WIRE_MSG_JOIN_PROOF, sizeof(j->proof));
	if (!j->life || j->again > 1)
		return -EPROTO;
	return get_place(at + SODA_WIRE_MSG_JOIN_BYTES, bytes - SODA_WIRE_MSG_JOIN_BYTES, j,
			 place_p);
}

uint64_t soda_wire_msg_shape(const struct soda_wire_msg_join *j,
			     const struct soda_wire_msg_place *place)
{
	uint64_t h = 0xcbf29ce484222325;

	if (!place->places)
		return 0;
	for (uint32_t i = 0; i < j->ranks; i++)
		h = (h ^ place->places[i]) * 0x100000001b3;
	for (size_t i = 0; i < place->address_bytes; i++)
		h = (h ^ (uint8_t)place->addresses[i]) * 0x100000001b3;
	return h | 1;
}

void soda_wire_put_msg_missing(uint8_t *out, const struct soda_wire_msg_missing *m)
{
	put_words(out, (uint32_t[]){ m->n, m->first }, 2);
}

int soda_wire_get_msg_missing(const void *in, size_t bytes, struct soda_wire_msg_missing *m)
{
	if (bytes != SODA_WIRE_MSG_MISSING_BYTES)
		return -EPROTO;
	*m = (struct soda_wire_msg_missing){ word(in, 0), word(in, 1) };
	return 0;
}

/* That there are so many packets, and no byte behind them. */
static int check_packets(const uint8_t *at, size_t left, uint32_t n)
{
	struct soda_wire_msg_packet packet;

	if (n > SODA_MSG_PACKETS)
		return -EPROTO;
	for (; n; n--) {
		if (soda_wire_get_msg_packet(at, left, &packet) < 0)
			return -EPROTO;
		at += SODA_WIRE_MSG_PACKET_BYTES + packet.bytes;
		left -= SODA_WIRE_MSG_PACKET_BYTES + packet.bytes;
	}
	return left ? -EPROTO : 0;
}

void soda_wire_put_msg_push(uint8_t *out, const struct soda_wire_msg_push *p)
{
	soda_wire_put_u64(out, p->number);
	put_words(out + 8, (uint32_t[]){ p->wait_ms, p->packets, p->ahead, 0 }, 4);
}

int soda_wire_get_msg_push(const void *in, size_t bytes, struct soda_wire_msg_push *p)
{
	size_t at = SODA_WIRE_MSG_PUSH_BYTES;

	if (bytes < at)
		return -EPROTO;
	*p = (struct soda_wire_msg_push){ soda_wire_get_u64(in), word(in, 2), word(in, 3),
					  word(in, 4) };
	if (p->ahead >= SODA_MSG_AHEAD || p->ahead >= p->number || word(in, 5))
		return -EPROTO;
	return p->packets ? check_packets((const uint8_t *)in + at, bytes - at, p->packets)
			  : -EPROTO;
}

void soda_wire_put_msg_packet(uint8_t *out, const struct soda_wire_msg_packet *p)
{
	put_words(out, (uint32_t[]){ p->rank, p->bytes, p->messages, p->to }, 4);
}

int soda_wire_get_msg_packet(const uint8_t *in, size_t left, struct soda_wire_msg_packet *p)
{
	if (left < SODA_WIRE_MSG_PACKET_BYTES)
		return -EPROTO;
	*p = (struct soda_wire_msg_packet){ word(in, 0), word(in, 1), word(in, 2), word(in, 3) };
	if (p->bytes % 8 || p->bytes > SODA_MSG_PACKET_MAX - SODA_WIRE_MSG_PACKET_BYTES ||
	    p->bytes > left - SODA_WIRE_MSG_PACKET_BYTES)
		return -EPROTO;
	return 0;
}

void soda_wire_put_msg_pull(uint8_t *out, const struct soda_wire_msg_pull *p)
{
	soda_wire_put_u64(out, p->at);
	put_words(out + 8, (uint32_t[]){ p->wait_ms, p->room, p->known, p->ended }, 4);
}

int soda_wire_get_msg_pull(const void *in, size_t bytes, struct soda_wire_msg_pull *p)
{
	if (bytes != SODA_WIRE_MSG_PULL_BYTES)
		return -EPROTO;
	*p = (struct soda_wire_msg_pull){ soda_wire_get_u64(in), word(in, 2), word(in, 3),
					  word(in, 4), word(in, 5) };
	return 0;
}

void soda_wire_put_msg_pulled(uint8_t *out, const struct soda_wire_msg_pulled *p)
{
	put_words(out, (uint32_t[]){ p->ended, p->collective }, 2);
	soda_wire_put_u64(out + 8, p->value);
}

int soda_wire_get_msg_pulled(const void *in, size_t bytes, struct soda_wire_msg_pulled *p)
{
	if (bytes < SODA_WIRE_MSG_PULLED_BYTES)
		return -EPROTO;
	*p = (struct soda_wire_msg_pulled){ word(in, 0), word(in, 1),
					    soda_wire_get_u64((const uint8_t *)in + 8) };
	return 0;
}

void soda_wire_put_msg_reduce(uint8_t *out, const struct soda_wire_msg_reduce *r)
{
	put_words(out, (uint32_t[]){ r->number, r->op }, 2);
	soda_wire_put_u64(out + 8, r->value);
}

int soda_wire_get_msg_reduce(const void *in, size_t bytes, struct soda_wire_msg_reduce *r)
{
	if (bytes != SODA_WIRE_MSG_REDUCE_BYTES)
		return -EPROTO;
	*r = (struct soda_wire_msg_reduce){ word(in, 0), word(in, 1),
					    soda_wire_get_u64((const uint8_t *)in + 8) };
	return 0;
}

void soda_wire_put_msg_rings(uint8_t *out, const struct soda_wire_msg_rings *r)
{
	put_words(out, (uint32_t[]){ r->slot_bytes, r->inbox_bytes }, 2);
}

int soda_wire_get_msg_rings(const void *in, size_t bytes, struct soda_wire_msg_rings *r)
{
	if (bytes != SODA_WIRE_MSG_RINGS_BYTES)
		return -EPROTO;
	r->slot_bytes = word(in, 0);
	r->inbox_bytes = word(in, 1);
	if (r->slot_bytes % 8 || r->slot_bytes < SODA_MSG_SLOT_LEAST ||
	    r->slot_bytes > SODA_MSG_PACKET_MAX)
		return -EPROTO;
	if (r->inbox_bytes < SODA_MSG_INBOX_LEAST || r->inbox_bytes > SODA_MSG_INBOX_MOST ||
	    (r->inbox_bytes & (r->inbox_bytes - 1)))
		return -EPROTO;
	return 0;
}

void soda_wire_put_msg_link(uint8_t *out, const struct soda_wire_msg_link *l)
{
	put_words(out, (uint32_t[]){ l->version, l->ranks, l->agents, l->from, l->to, 0 }, 6);
	memcpy(out + SODA_WIRE_MSG_LINK_KEY, l->key, SODA_MSG_KEY_BYTES);
	soda_wire_put_u64(out + 56, l->life);
	soda_wire_put_u64(out + 64, l->shape);
	memcpy(out + SODA_WIRE_MSG_LINK_ROUTER, l->router, sizeof(l->router));
	memcpy(out + SODA_WIRE_MSG_LINK_GRANT, l->grant, sizeof(l->grant));
	memcpy(out + SODA_WIRE_MSG_LINK_PROOF, l->proof, sizeof(l->proof));
}

int soda_wire_get_msg_link(const void *in, size_t bytes, struct soda_wire_msg_link *l)
{
	const uint8_t *at = in;

	if (bytes < SODA_WIRE_MSG_LINK_BYTES)
		return -EPROTO;
	*l = (struct soda_wire_msg_link){ .version = word(in, 0),
					  .ranks = word(in, 1),
					  .agents = word(in, 2),
					  .from = word(in, 3),
					  .to = word(in, 4),
					  .life = soda_wire_get_u64(at + 56),
					  .shape = soda_wire_get_u64(at + 64) };
	memcpy(l->key, at + SODA_WIRE_MSG_LINK_KEY, SODA_MSG_KEY_BYTES);
	memcpy(l->router, at + SODA_WIRE_MSG_LINK_ROUTER, sizeof(l->router));
	memcpy(l->grant, at + SODA_WIRE_MSG_LINK_GRANT, sizeof(l->grant));
	memcpy(l->proof, at + SODA_WIRE_MSG_LINK_PROOF, sizeof(l->proof));
	return l->life ? 0 : -EPROTO;
}

void soda_wire_put_msg_relay(uint8_t *out, const struct soda_wire_msg_relay *r)
{
	soda_wire_put_u64(out, r->number);
	put_words(out + 8,
		  (uint32_t[]){ r->wait_ms, r->packets, r->phase, r->done, r->missing,
				r->first_missing, r->left, r->first_left },
		  8);
	soda_wire_put_msg_reduce(out + 40, &r->reduce);
	put_words(out + 56, (uint32_t[]){ r->ahead, 0 }, 2);
}

int soda_wire_get_msg_relay(const void *in, size_t bytes, struct soda_wire_msg_relay *r)
{
	size_t at = SODA_WIRE_MSG_RELAY_BYTES;

	if (bytes < at)
		return -EPROTO;
	*r = (struct soda_wire_msg_relay){ .number = soda_wire_get_u64(in),
					   .wait_ms = word(in, 2),
					   .packets = word(in, 3),
					   .phase = word(in, 4),
					   .done = word(in, 5),
					   .missing = word(in, 6),
					   .first_missing = word(in, 7),
					   .left = word(in, 8),
					   .first_left = word(in, 9) };
	soda_wire_get_msg_reduce((const uint8_t *)in + 40, SODA_WIRE_MSG_REDUCE_BYTES, &r->reduce);
	r->ahead = word(in, 14);
	if (r->ahead >= SODA_MSG_AHEAD || r->ahead >= r->number || word(in, 15))
		return -EPROTO;
	return check_packets((const uint8_t *)in + at, bytes - at, r->packets);
}

int soda_wire_get_msg_offer(const void *in, size_t bytes, uint32_t ranks,
			    struct soda_wire_msg_relay *r)
{
	if (bytes != SODA_WIRE_MSG_RELAY_BYTES + sizeof(uint64_t) * ranks)
		return -EPROTO;
	return soda_wire_get_msg_relay(in, SODA_WIRE_MSG_RELAY_BYTES, r);
}
