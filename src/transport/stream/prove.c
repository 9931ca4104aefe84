/* SPDX-License-Identifier: BSD-3-Clause */
/* A HELLO with its proof, the side that connects (docs/internals/tenants.md). */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "transport/stream/stream.h"
#include "trust/identity.h"
#include "trust/proof.h"

struct proving {
	struct soda_stream_exchange x;
	const struct soda_identity *as;
	const struct soda_wire_hello *hello;
	uint8_t key[SODA_KEY_BYTES]; /* the identity's; by TLS bound to it */
	uint8_t *client_key;	     /* of the options */
	struct soda_transcript t;
	uint8_t welcome[SODA_WIRE_WELCOME_BYTES + SODA_WIRE_MAC_BYTES];
};

static int cannot_compute(struct proving *p, int err)
{
	soda_why_set(p->x.why, "%s: the proof cannot be computed: %s", p->x.peer,
		     soda_strerror(err));
	return err;
}

static int not_that_server(struct proving *p)
{
	soda_why_set(p->x.why,
		     "%.100s does not prove that it is the server \"%s\" of tenant %s: it is "
		     "another one, or has another name (SODA_SERVER_NAME)",
		     p->x.peer, p->as->server, p->as->tenant);
	return -EACCES;
}

/* HELLO and ASK; what comes back proves the server. 0, -EACCES, errors of the exchange. */
static int ask(struct proving *p, int pass_fd)
{
	uint8_t said[2 * SODA_WIRE_FRAME_BYTES + SODA_WIRE_HELLO_BYTES + SODA_WIRE_ASK_BYTES];
	uint8_t *hello = said + SODA_WIRE_FRAME_BYTES;
	uint8_t *second = hello + SODA_WIRE_HELLO_BYTES, *asked = second + SODA_WIRE_FRAME_BYTES;
	uint8_t answer[SODA_WIRE_CHALLENGE_BYTES];
	struct soda_wire_challenge challenge;
	struct soda_wire_ask a = { { 0 }, { 0 }, "" };
	int r = soda_random(a.nonce, sizeof(a.nonce));

	if (r)
		return cannot_compute(p, r);
	memcpy(a.key_id, p->as->key_id, sizeof(a.key_id));
	memcpy(a.tenant, p->as->tenant, sizeof(a.tenant));
	soda_wire_put_frame(said, &(struct soda_wire_frame){ .type = SODA_MSG_HELLO,
							     .length = SODA_WIRE_HELLO_BYTES });
	soda_wire_put_hello(hello, p->hello);
	soda_wire_put_frame(second, &(struct soda_wire_frame){ .type = SODA_MSG_ASK,
							       .length = SODA_WIRE_ASK_BYTES });
	soda_wire_put_ask(asked, &a);
	soda_transcript_begin(&p->t, p->as->server, hello, asked);
	r = soda_stream_exchange(&p->x, said, sizeof(said), pass_fd, SODA_MSG_CHALLENGE, answer,
				 sizeof(answer), NULL);
	if (r == -EPROTO) { /* a welcome of an open server, for one */
		soda_why_set(p->x.why,
			     "%.100s lets everybody in and proves nothing, and a key is given: not "
			     "the server that is meant, or somebody between",
			     p->x.peer);
		return -EACCES;
	}
	if (r)
		return r;
	soda_wire_get_challenge(answer, sizeof(answer), &challenge);
	memcpy(p->t.nonce, challenge.nonce, sizeof(p->t.nonce));
	r = soda_proof_check(&p->t, SODA_PROOF_SERVER, p->key, challenge.mac);
	if (r == -EACCES)
		return not_that_server(p);
	return r ? cannot_compute(p, r) : 0;
}

/* PROOF; what comes back is the welcome. */
static int prove(struct proving *p, int *passed_fd_p)
{
	uint8_t said[SODA_WIRE_FRAME_BYTES + SODA_WIRE_PROOF_BYTES];
	struct soda_wire_proof proof = { { 0 }, { 0 } };
	int r = soda_proof_mac(&p->t, SODA_PROOF_CLIENT, p->key, proof.mac);

	if (!r && p->hello->client_id && p->client_key)
		r = soda_proof_mac(&p->t, SODA_PROOF_SESSION, p->client_key, proof.session);
	if (r)
		return cannot_compute(p, r);
	soda_wire_put_frame(said, &(struct soda_wire_frame){ .type = SODA_MSG_PROOF,
							     .length = SODA_WIRE_PROOF_BYTES });
	soda_wire_put_proof(said + SODA_WIRE_FRAME_BYTES, &proof);
	return soda_stream_exchange(&p->x, said, sizeof(said), -1, SODA_MSG_OK, p->welcome,
				    sizeof(p->welcome), passed_fd_p);
}

/* Is the welcome the server's? And whose key has this client, if it is new? */
static int take_welcome(struct proving *p, struct soda_wire_welcome *welcome_p)
{
	uint8_t connection[SODA_KEY_BYTES], mac[SODA_WIRE_MAC_BYTES];
	int r = soda_connection_key(&p->t, p->key, connection);

	if (!r)
		r = soda_welcome_mac(connection, p->welcome, mac);
	if (!r && !soda_mac_equal(mac, p->welcome + SODA_WIRE_WELCOME_BYTES, sizeof(mac))) {
		not_that_server(p);
		r = -EACCES;
	} else if (r) {
		cannot_compute(p, r);
	} else if (soda_wire_get_welcome(p->welcome, SODA_WIRE_WELCOME_BYTES, welcome_p) ||
		   welcome_p->version != SODA_WIRE_VERSION_PROVED) {
		soda_why_set(p->x.why, "%s answers, but does not speak SODA", p->x.peer);
		r = -EPROTO;
	} else if (p->client_key && !welcome_p->known && p->hello->kind == SODA_CONN_CONTROL) {
		r = soda_client_key(connection, p->client_key);
	}
	soda_wipe(connection, sizeof(connection));
	return r;
}

int soda_stream_prove(struct soda_byte_stream s, const char *peer,
		      const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
		      int pass_fd, uint64_t deadline_ns, struct soda_wire_welcome *welcome_p,
		      int *passed_fd_p, struct soda_why *why)
{
	struct proving p = { .x = { .s = s, .peer = peer, .deadline_ns = deadline_ns, .why = why },
			     .as = opt->identity,
			     .hello = hello,
			     .client_key = opt->client_key };
	uint8_t channel[SODA_KEY_BYTES];
	int r = s.tls ? soda_tls_channel(s.tls, channel) : 0;

	memcpy(p.key, opt->identity->key, sizeof(p.key));
	if (!r && s.tls)
		r = soda_key_bind(p.key, channel);
	if (r)
		cannot_compute(&p, r);
	else
		r = ask(&p, pass_fd);
	if (!r) {
		r = prove(&p, passed_fd_p);
		if (r == -EPROTO)
			soda_why_set(why, "%s answers, but does not speak SODA", peer);
	}
	if (!r)
		r = take_welcome(&p, welcome_p);
	soda_wipe(p.key, sizeof(p.key));
	return r;
}
