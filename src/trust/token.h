/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tokens.  A memory server with tenants gives each client a token, and renews it.  A client that
 * shows it on a HELLO (SODA_FEATURE_TOKEN), as the same tenant, becomes that client: so the next
 * DPU agent has the regions that programs opened by one that has died, whose keys died with it. How
 * it goes from the server to the program and back: docs/internals/tenants.md.
 *
 * A token never travels as it is.  Each function below lays a mask over it, which the same function
 * takes away again.  0; errors of soda_hkdf, and the token is undefined then.
 */
#ifndef SODA_TRUST_TOKEN_H
#define SODA_TRUST_TOKEN_H

#include "trust/proof.h"

/* In the answer of SODA_MSG_TOKEN, between the two that share this client's key. */
int soda_token_wrap(uint8_t token[SODA_WIRE_TOKEN_BYTES], const uint8_t client_key[SODA_KEY_BYTES],
		    const uint8_t nonce[SODA_WIRE_TOKEN_NONCE_BYTES]);
/* In place of the session mac of a PROOF; key: the connection's. */
int soda_token_show(uint8_t token[SODA_WIRE_TOKEN_BYTES], const uint8_t connection[SODA_KEY_BYTES]);
/*
 * An agent binds a token to the tenant whose program it is for, by its own key, which no program
 * has: shown by another tenant it is not what the server has given.
 */
int soda_token_bind(uint8_t token[SODA_WIRE_TOKEN_BYTES], const uint8_t agent_key[SODA_KEY_BYTES],
		    const char *tenant, uint64_t client_id);

/* The tokens that a server has given one client. All zeros: none. The caller has a lock. */
struct soda_tokens {
	struct {
		uint32_t number; /* 0: there is none */
		bool shown;
		uint64_t made_ms, until_ms;
		uint8_t token[SODA_WIRE_TOKEN_BYTES];
	} at[2]; /* the newest one; and the one that the client has until it has the newest */
	uint32_t last;
};

/*
 * The client asks for a token, and has the one that is numbered `held` (0: none): all but that one
 * and the newest are void from now on, and that one, too, once the newest is held.  A new one is
 * made, for life_ms, where the newest is held or not known, and has been shown or a quarter of its
 * life has passed.  *left_ms_p: how long it is valid.  0; errors of soda_random.
 */
int soda_tokens_renew(struct soda_tokens *tokens, uint32_t held, uint64_t now_ms, uint32_t life_ms,
		      uint32_t *number_p, uint32_t *left_ms_p,
		      uint8_t token_p[SODA_WIRE_TOKEN_BYTES]);
/*
 * A token has been shown.  0: it is valid, and stays so until the client holds the next one, for
 * the answer may be lost.  -ESTALE, with the sentence: it has expired, or is none of these.
 */
int soda_tokens_check(struct soda_tokens *tokens, const uint8_t token[SODA_WIRE_TOKEN_BYTES],
		      uint64_t now_ms, const char **sentence_p);
/*
 * An agent has passed on what the server has answered to a client that has `held`; number
 * UINT32_MAX: the client has shown it, and only the server knows its number.
 */
void soda_tokens_note(struct soda_tokens *tokens, uint32_t held, uint32_t number, uint64_t now_ms,
		      uint32_t left_ms, const uint8_t token[SODA_WIRE_TOKEN_BYTES]);

#endif
