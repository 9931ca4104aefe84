/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/api/claim.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "transport/api/transport_impl.h"
#include "trust/identity.h"
#include "trust/token.h"

static int cannot_compute(const struct soda_claim *c, int err)
{
	soda_why_set(c->why, "%s: the proof cannot be computed: %s", c->peer, soda_strerror(err));
	return err;
}

static int not_that_server(const struct soda_claim *c)
{
	soda_why_set(c->why,
		     "%.100s does not prove that it is the server \"%s\" of tenant %s: it is "
		     "another one, or has another name (SODA_SERVER_NAME)",
		     c->peer, c->as->server, c->as->tenant);
	return -EACCES;
}

int soda_claim_begin(struct soda_claim *c, const struct soda_identity *as,
		     const struct soda_wire_hello *hello, uint8_t *client_key, const uint8_t *token,
		     const uint8_t *channel, const char *peer, struct soda_why *why)
{
	int r;

	*c = (struct soda_claim){ .as = as,
				  .hello = hello,
				  .client_key = client_key,
				  .token = token,
				  .peer = peer,
				  .why = why };
	memcpy(c->key, as->key, sizeof(c->key));
	r = channel ? soda_key_bind(c->key, channel) : 0;
	return r ? cannot_compute(c, r) : 0;
}

void soda_claim_end(struct soda_claim *c)
{
	soda_wipe(c->key, sizeof(c->key));
}

int soda_claim_ask(struct soda_claim *c, bool named, uint8_t hello[SODA_WIRE_HELLO_BYTES],
		   uint8_t ask[SODA_WIRE_ASK_BYTES])
{
	struct soda_wire_ask a = { { 0 }, { 0 }, "" };
	int r = soda_random(a.nonce, sizeof(a.nonce));

	if (r)
		return cannot_compute(c, r);
	memcpy(a.key_id, c->as->key_id, sizeof(a.key_id));
	if (named)
		memcpy(a.tenant, c->as->tenant, sizeof(a.tenant));
	soda_wire_put_hello(hello, c->hello);
	soda_wire_put_ask(ask, &a);
	soda_transcript_begin(&c->t, c->as->server, hello, ask);
	return 0;
}

int soda_claim_unasked(const struct soda_claim *c)
{
	soda_why_set(c->why,
		     "%.100s lets everybody in and proves nothing, and a key is given: not the "
		     "server that is meant, or somebody between",
		     c->peer);
	return -EACCES;
}

int soda_claim_check(struct soda_claim *c, const uint8_t said[SODA_WIRE_CHALLENGE_BYTES])
{
	struct soda_wire_challenge challenge;
	int r;

	soda_wire_get_challenge(said, SODA_WIRE_CHALLENGE_BYTES, &challenge);
	memcpy(c->t.nonce, challenge.nonce, sizeof(c->t.nonce));
	r = soda_proof_check(&c->t, SODA_PROOF_SERVER, c->key, challenge.mac,
			     sizeof(challenge.mac));
	if (r == -EACCES)
		return not_that_server(c);
	return r ? cannot_compute(c, r) : 0;
}

/* In place of the session mac, for whom only this connection's other end knows what it is. */
static int show_token(const struct soda_claim *c, uint8_t session[SODA_WIRE_MAC_BYTES])
{
	uint8_t connection[SODA_KEY_BYTES];
	int r = soda_connection_key(&c->t, c->key, connection);

	memcpy(session, c->token, SODA_WIRE_TOKEN_BYTES);
	if (!r)
		r = soda_token_show(session, connection);
	if (r)
		soda_wipe(session, SODA_WIRE_TOKEN_BYTES);
	soda_wipe(connection, sizeof(connection));
	return r;
}

int soda_claim_prove(const struct soda_claim *c, struct soda_wire_proof *proof_p)
{
	int r;

	*proof_p = (struct soda_wire_proof){ { 0 }, { 0 } };
	r = soda_proof_mac(&c->t, SODA_PROOF_CLIENT, c->key, proof_p->mac);
	if (!r && c->token)
		r = show_token(c, proof_p->session);
	else if (!r && c->hello->client_id && c->client_key)
		r = soda_proof_mac(&c->t, SODA_PROOF_SESSION, c->client_key, proof_p->session);
	return r ? cannot_compute(c, r) : 0;
}

int soda_claim_welcome(const struct soda_claim *c, const uint8_t *welcome, const uint8_t *mac,
		       struct soda_wire_welcome *welcome_p)
{
	uint8_t connection[SODA_KEY_BYTES], right[SODA_WIRE_MAC_BYTES];
	int r = soda_connection_key(&c->t, c->key, connection);

	if (!r)
		r = soda_welcome_mac(connection, welcome, right);
	if (!r && !soda_mac_equal(right, mac, sizeof(right))) {
		r = not_that_server(c);
	} else if (r) {
		cannot_compute(c, r);
	} else if (soda_wire_get_welcome(welcome, SODA_WIRE_WELCOME_BYTES, welcome_p) ||
		   welcome_p->version != SODA_WIRE_VERSION_PROVED) {
		soda_why_set(c->why, "%s answers, but does not speak SODA", c->peer);
		r = -EPROTO;
	} else if (c->client_key && (!welcome_p->known || c->token) &&
		   c->hello->kind == SODA_CONN_CONTROL) {
		r = soda_client_key(connection, c->client_key);
	}
	soda_wipe(connection, sizeof(connection));
	return r;
}
