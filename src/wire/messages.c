/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/field.h"
#include "wire/messages.h"

#include <errno.h>
#include <string.h>

static void put_words(uint8_t *out, const uint32_t *words, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		soda_wire_put_u32(out + 4 * i, words[i]);
}

static uint32_t word(const void *in, unsigned i)
{
	return soda_wire_get_u32((const uint8_t *)in + 4 * i);
}

void soda_wire_put_msg_join(uint8_t *out, const struct soda_wire_msg_join *j)
{
	put_words(out, (uint32_t[]){ j->version, j->role, j->rank, j->ranks }, 4);
	memcpy(out + 16, j->key, SODA_MSG_KEY_BYTES);
}

int soda_wire_get_msg_join(const void *in, size_t bytes, struct soda_wire_msg_join *j,
			   const char **name_p, size_t *name_bytes_p)
{
	if (bytes < SODA_WIRE_MSG_JOIN_BYTES)
		return -EPROTO;
	*j = (struct soda_wire_msg_join){
		word(in, 0), word(in, 1), word(in, 2), word(in, 3), { 0 }
	};
	memcpy(j->key, (const uint8_t *)in + 16, SODA_MSG_KEY_BYTES);
	*name_p = (const char *)in + SODA_WIRE_MSG_JOIN_BYTES;
	*name_bytes_p = bytes - SODA_WIRE_MSG_JOIN_BYTES;
	return 0;
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

void soda_wire_put_msg_push(uint8_t *out, const struct soda_wire_msg_push *p)
{
	put_words(out, (uint32_t[]){ p->wait_ms, p->packets }, 2);
}

int soda_wire_get_msg_push(const void *in, size_t bytes, struct soda_wire_msg_push *p)
{
	struct soda_wire_msg_packet packet;
	size_t at = SODA_WIRE_MSG_PUSH_BYTES;

	if (bytes < at)
		return -EPROTO;
	*p = (struct soda_wire_msg_push){ word(in, 0), word(in, 1) };
	if (!p->packets || p->packets > SODA_MSG_PACKETS)
		return -EPROTO;
	for (uint32_t i = 0; i < p->packets; i++) {
		if (soda_wire_get_msg_packet((const uint8_t *)in + at, bytes - at, &packet) < 0)
			return -EPROTO;
		at += SODA_WIRE_MSG_PACKET_BYTES + packet.bytes;
	}
	return at == bytes ? 0 : -EPROTO;
}

void soda_wire_put_msg_packet(uint8_t *out, const struct soda_wire_msg_packet *p)
{
	put_words(out, (uint32_t[]){ p->rank, p->bytes, p->messages, 0 }, 4);
}

int soda_wire_get_msg_packet(const uint8_t *in, size_t left, struct soda_wire_msg_packet *p)
{
	if (left < SODA_WIRE_MSG_PACKET_BYTES)
		return -EPROTO;
	*p = (struct soda_wire_msg_packet){ word(in, 0), word(in, 1), word(in, 2) };
	if (p->bytes % 8 || p->bytes > SODA_MSG_PACKET_MAX - SODA_WIRE_MSG_PACKET_BYTES ||
	    p->bytes > left - SODA_WIRE_MSG_PACKET_BYTES)
		return -EPROTO;
	return 0;
}

void soda_wire_put_msg_pull(uint8_t *out, const struct soda_wire_msg_pull *p)
{
	put_words(out, (uint32_t[]){ p->wait_ms, p->room, p->known }, 3);
}

int soda_wire_get_msg_pull(const void *in, size_t bytes, struct soda_wire_msg_pull *p)
{
	if (bytes != SODA_WIRE_MSG_PULL_BYTES)
		return -EPROTO;
	*p = (struct soda_wire_msg_pull){ word(in, 0), word(in, 1), word(in, 2) };
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
