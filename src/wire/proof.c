/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/proof.h"

#include <errno.h>
#include <string.h>

#include "wire/field.h"

static const char name_characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._-:";

static bool name_ok(const char *name, size_t max)
{
	size_t bytes = strlen(name);

	return bytes && bytes <= max && strspn(name, name_characters) == bytes;
}

bool soda_wire_tenant_ok(const char *name)
{
	return name_ok(name, SODA_TENANT_NAME_MAX);
}

bool soda_wire_server_ok(const char *name)
{
	return name_ok(name, SODA_WIRE_TENANT_MAX);
}

void soda_wire_put_ask(uint8_t out[SODA_WIRE_ASK_BYTES], const struct soda_wire_ask *a)
{
	memset(out, 0, SODA_WIRE_ASK_BYTES);
	memcpy(out, a->nonce, SODA_WIRE_NONCE_BYTES);
	memcpy(out + SODA_WIRE_NONCE_BYTES, a->key_id, SODA_WIRE_KEY_ID_BYTES);
	memcpy(out + SODA_WIRE_NONCE_BYTES + SODA_WIRE_KEY_ID_BYTES, a->tenant, strlen(a->tenant));
}

int soda_wire_get_ask(const void *in, size_t bytes, struct soda_wire_ask *a)
{
	const uint8_t *at = in;
	size_t n;

	if (bytes != SODA_WIRE_ASK_BYTES)
		return -EPROTO;
	memcpy(a->nonce, at, SODA_WIRE_NONCE_BYTES);
	memcpy(a->key_id, at + SODA_WIRE_NONCE_BYTES, SODA_WIRE_KEY_ID_BYTES);
	at += SODA_WIRE_NONCE_BYTES + SODA_WIRE_KEY_ID_BYTES;
	n = strnlen((const char *)at, sizeof(a->tenant));
	if (n == sizeof(a->tenant))
		return -EPROTO;
	for (size_t i = n; i < sizeof(a->tenant); i++)
		if (at[i])
			return -EPROTO;
	memcpy(a->tenant, at, sizeof(a->tenant));
	return soda_wire_tenant_ok(a->tenant) ? 0 : -EPROTO;
}

/* Two halves of 32 bytes. */
static void put_pair(uint8_t *out, const uint8_t *first, const uint8_t *second)
{
	memcpy(out, first, 32);
	memcpy(out + 32, second, 32);
}

static int get_pair(const void *in, size_t bytes, uint8_t *first, uint8_t *second)
{
	if (bytes != 64)
		return -EPROTO;
	memcpy(first, in, 32);
	memcpy(second, (const uint8_t *)in + 32, 32);
	return 0;
}

void soda_wire_put_challenge(uint8_t out[SODA_WIRE_CHALLENGE_BYTES],
			     const struct soda_wire_challenge *c)
{
	put_pair(out, c->nonce, c->mac);
}

int soda_wire_get_challenge(const void *in, size_t bytes, struct soda_wire_challenge *c)
{
	return get_pair(in, bytes, c->nonce, c->mac);
}

void soda_wire_put_proof(uint8_t out[SODA_WIRE_PROOF_BYTES], const struct soda_wire_proof *p)
{
	put_pair(out, p->mac, p->session);
}

int soda_wire_get_proof(const void *in, size_t bytes, struct soda_wire_proof *p)
{
	return get_pair(in, bytes, p->mac, p->session);
}

void soda_wire_put_token(uint8_t out[SODA_WIRE_TOKEN_ANSWER_BYTES], const struct soda_wire_token *t)
{
	soda_wire_put_u32(out, t->number);
	soda_wire_put_u32(out + 4, t->left_ms);
	memcpy(out + 8, t->nonce, sizeof(t->nonce));
	memcpy(out + 8 + sizeof(t->nonce), t->token, sizeof(t->token));
}

int soda_wire_get_token(const void *in, size_t bytes, struct soda_wire_token *t)
{
	const uint8_t *at = in;

	if (bytes != SODA_WIRE_TOKEN_ANSWER_BYTES)
		return -EPROTO;
	t->number = soda_wire_get_u32(at);
	t->left_ms = soda_wire_get_u32(at + 4);
	memcpy(t->nonce, at + 8, sizeof(t->nonce));
	memcpy(t->token, at + 8 + sizeof(t->nonce), sizeof(t->token));
	return t->number ? 0 : -EPROTO;
}

void soda_wire_put_number(uint8_t out[SODA_WIRE_NUMBER_BYTES], uint64_t number)
{
	for (unsigned i = 0; i < SODA_WIRE_NUMBER_BYTES; i++)
		out[i] = (uint8_t)(number >> 8 * i);
}

uint64_t soda_wire_get_number(const uint8_t in[SODA_WIRE_NUMBER_BYTES])
{
	uint64_t number = 0;

	for (unsigned i = 0; i < SODA_WIRE_NUMBER_BYTES; i++)
		number |= (uint64_t)in[i] << 8 * i;
	return number;
}

/* An ASK and a PROOF are as long as each other. */
_Static_assert(SODA_WIRE_BRIEF_BYTES == SODA_WIRE_FRAME_BYTES + sizeof(struct soda_wire_brief) &&
		       sizeof(((struct soda_wire_brief *)0)->ask) ==
			       sizeof(((struct soda_wire_brief *)0)->proof),
	       "no padding");

void soda_wire_put_brief(uint8_t out[SODA_WIRE_BRIEF_BYTES], enum soda_msg type,
			 const struct soda_wire_brief *b)
{
	soda_wire_put_frame(out, &(struct soda_wire_frame){ .type = (uint8_t)type,
							    .length = SODA_WIRE_BRIEF_BYTES -
								      SODA_WIRE_FRAME_BYTES });
	out += SODA_WIRE_FRAME_BYTES;
	soda_wire_put_number(out, b->number);
	memcpy(out + SODA_WIRE_NUMBER_BYTES, &b->ask, sizeof(b->ask));
}

int soda_wire_get_brief(const void *in, size_t bytes, struct soda_wire_brief *b)
{
	const uint8_t *at = in;
	struct soda_wire_frame frame;

	if (bytes != SODA_WIRE_BRIEF_BYTES)
		return -EPROTO;
	soda_wire_get_frame(at, &frame);
	if ((frame.type != SODA_MSG_ASK && frame.type != SODA_MSG_PROOF) || frame.flags ||
	    frame.status || frame.length != SODA_WIRE_BRIEF_BYTES - SODA_WIRE_FRAME_BYTES)
		return -EPROTO;
	at += SODA_WIRE_FRAME_BYTES;
	b->number = soda_wire_get_number(at);
	memcpy(&b->ask, at + SODA_WIRE_NUMBER_BYTES, sizeof(b->ask));
	return frame.type;
}
