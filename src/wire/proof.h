/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels behind a HELLO of version 2: the ASK, the CHALLENGE, the PROOF, and the mac behind
 * the welcome.  docs/internals/tenants.md says what each proves; trust/proof.h computes them.
 */
#ifndef SODA_WIRE_PROOF_H
#define SODA_WIRE_PROOF_H

#include <stdbool.h>

#include "wire/wire.h"

#define SODA_WIRE_NONCE_BYTES 32u
#define SODA_WIRE_MAC_BYTES 32u
#define SODA_WIRE_KEY_ID_BYTES 8u
#define SODA_WIRE_TENANT_MAX 63u /* bytes of a server's name */
#define SODA_TENANT_NAME_MAX 40u /* of a tenant's: libinih takes sections of 49 bytes */

struct soda_wire_ask {
	uint8_t nonce[SODA_WIRE_NONCE_BYTES];
	uint8_t key_id[SODA_WIRE_KEY_ID_BYTES];
	char tenant[SODA_WIRE_TENANT_MAX + 1]; /* zeros behind the name */
};
#define SODA_WIRE_ASK_BYTES 104u

struct soda_wire_challenge {
	uint8_t nonce[SODA_WIRE_NONCE_BYTES];
	uint8_t mac[SODA_WIRE_MAC_BYTES];
};
#define SODA_WIRE_CHALLENGE_BYTES 64u

struct soda_wire_proof {
	uint8_t mac[SODA_WIRE_MAC_BYTES];
	uint8_t session[SODA_WIRE_MAC_BYTES]; /* zeros: the HELLO names no client */
};
#define SODA_WIRE_PROOF_BYTES 64u

/* The answer of SODA_MSG_TOKEN: one more for the client, or the one that it should have. */
#define SODA_WIRE_TOKEN_BYTES 16u
#define SODA_WIRE_TOKEN_NONCE_BYTES 16u
struct soda_wire_token {
	uint32_t number;  /* not 0 */
	uint32_t left_ms; /* how long it is valid */
	uint8_t nonce[SODA_WIRE_TOKEN_NONCE_BYTES];
	uint8_t token[SODA_WIRE_TOKEN_BYTES]; /* wrapped by nonce (trust/token.h) */
};
#define SODA_WIRE_TOKEN_ASK_BYTES 4u
#define SODA_WIRE_TOKEN_ANSWER_BYTES 40u

/*
 * A proof on verbs, where requests to connect have room for 56 bytes: a frame, the number that the
 * server has given the HELLO, and what is left of an ASK without the tenant's name, or of a PROOF
 * with the first bytes of each mac.
 */
#define SODA_WIRE_BRIEF_MAC_BYTES 20u

struct soda_wire_brief {
	uint64_t number;
	union {
		struct {
			uint8_t nonce[SODA_WIRE_NONCE_BYTES];
			uint8_t key_id[SODA_WIRE_KEY_ID_BYTES];
		} ask;
		struct {
			uint8_t mac[SODA_WIRE_BRIEF_MAC_BYTES];
			uint8_t session[SODA_WIRE_BRIEF_MAC_BYTES];
		} proof;
	};
};
#define SODA_WIRE_BRIEF_BYTES 56u
#define SODA_WIRE_NUMBER_BYTES 8u

/* Of A-Z a-z 0-9 . _ - : as many as the limits above, and at least one. */
bool soda_wire_tenant_ok(const char *name);
bool soda_wire_server_ok(const char *name);

/* Encoders write exactly the named number of bytes; decoders return 0, or -EPROTO: the length, or a
 * name that cannot be. */
void soda_wire_put_ask(uint8_t out[SODA_WIRE_ASK_BYTES], const struct soda_wire_ask *a);
int soda_wire_get_ask(const void *in, size_t bytes, struct soda_wire_ask *a);
void soda_wire_put_challenge(uint8_t out[SODA_WIRE_CHALLENGE_BYTES],
			     const struct soda_wire_challenge *c);
int soda_wire_get_challenge(const void *in, size_t bytes, struct soda_wire_challenge *c);
void soda_wire_put_proof(uint8_t out[SODA_WIRE_PROOF_BYTES], const struct soda_wire_proof *p);
int soda_wire_get_proof(const void *in, size_t bytes, struct soda_wire_proof *p);
/* type: SODA_MSG_ASK or SODA_MSG_PROOF.  get: which it is, or -EPROTO. */
void soda_wire_put_brief(uint8_t out[SODA_WIRE_BRIEF_BYTES], enum soda_msg type,
			 const struct soda_wire_brief *b);
int soda_wire_get_brief(const void *in, size_t bytes, struct soda_wire_brief *b);
void soda_wire_put_token(uint8_t out[SODA_WIRE_TOKEN_ANSWER_BYTES],
			 const struct soda_wire_token *t);
/* -EPROTO also where the number is 0. */
int soda_wire_get_token(const void *in, size_t bytes, struct soda_wire_token *t);
void soda_wire_put_number(uint8_t out[SODA_WIRE_NUMBER_BYTES], uint64_t number);
uint64_t soda_wire_get_number(const uint8_t in[SODA_WIRE_NUMBER_BYTES]);

#endif
