/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proof behind a HELLO of version 2, the side that connects (docs/internals/tenants.md): what
 * it says, and whether what it hears is the server's.  Who carries that is the transports'
 * (stream/prove.c, verbs/client/introduce.c).
 *
 * One thread uses a claim.  Not async-signal-safe.  `peer` is for why.
 */
#ifndef SODA_TRANSPORT_CLAIM_H
#define SODA_TRANSPORT_CLAIM_H

#include "transport/api/transport.h"
#include "trust/proof.h"

struct soda_claim {
	const struct soda_identity *as;
	const struct soda_wire_hello *hello;
	uint8_t *client_key;	     /* of the options, and so the next */
	const uint8_t *token;	     /* NULL: none is shown */
	uint8_t key[SODA_KEY_BYTES]; /* the identity's; by TLS bound to that */
	const char *peer;
	struct soda_why *why;
	struct soda_transcript t;
};

/*
 * As whom, with which HELLO; channel: of TLS (soda_tls_channel), or NULL.  All of it outlives the
 * claim.  0, or errors of libcrypto with a why, and so all below.  End it in any case.
 */
int soda_claim_begin(struct soda_claim *c, const struct soda_identity *as,
		     const struct soda_wire_hello *hello, uint8_t *client_key, const uint8_t *token,
		     const uint8_t *channel, const char *peer, struct soda_why *why);
void soda_claim_end(struct soda_claim *c);

/* Both as they travel.  named: the ASK names the tenant; else the key's id alone tells. */
int soda_claim_ask(struct soda_claim *c, bool named, uint8_t hello[SODA_WIRE_HELLO_BYTES],
		   uint8_t ask[SODA_WIRE_ASK_BYTES]);
/* The peer has let us in without a challenge: -EACCES. */
int soda_claim_unasked(const struct soda_claim *c);
/* -EACCES: it is not the server that is meant. */
int soda_claim_check(struct soda_claim *c, const uint8_t challenge[SODA_WIRE_CHALLENGE_BYTES]);
int soda_claim_prove(const struct soda_claim *c, struct soda_wire_proof *proof_p);
/*
 * The welcome and its mac, as they came: -EACCES: they are not the server's; -EPROTO.  The key of a
 * client that is new, or was adopted by a token, is put into client_key.
 */
int soda_claim_welcome(const struct soda_claim *c, const uint8_t *welcome, const uint8_t *mac,
		       struct soda_wire_welcome *welcome_p);

#endif
