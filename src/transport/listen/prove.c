/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/listen/prove.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/stream/stream.h"
#include "trust/identity.h"

#define FRAME SODA_WIRE_FRAME_BYTES

enum stage { ASK, PROOF, PROVED };

struct soda_prover {
	const struct soda_guard *guard;
	enum stage stage;
	size_t got;
	uint8_t in[FRAME + SODA_WIRE_ASK_BYTES]; /* the longest */
	uint8_t hello[SODA_WIRE_HELLO_BYTES];
	char tenant[64];	     /* as the ASK says, for sentences */
	uint8_t key[SODA_KEY_BYTES]; /* the server's of the tenant */
	struct soda_proved proved;
};

struct soda_prover *soda_prover_begin(const struct soda_guard *guard,
				      const uint8_t hello[SODA_WIRE_HELLO_BYTES])
{
	struct soda_prover *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->guard = guard;
	memcpy(p->hello, hello, sizeof(p->hello));
	return p;
}

void soda_prover_end(struct soda_prover *p)
{
	if (!p)
		return;
	soda_wipe(p, sizeof(*p));
	free(p);
}

const struct soda_proved *soda_prover_proved(const struct soda_prover *p)
{
	return &p->proved;
}

static int refuse(struct soda_prover_why *why, int err, const char *text)
{
	snprintf(why->peer, sizeof(why->peer), "%s", text);
	snprintf(why->log, sizeof(why->log), "%s", text);
	return err;
}

static int cannot_compute(struct soda_prover_why *why, int err)
{
	return refuse(why, err, "the server cannot compute proofs (libcrypto)");
}

/* The server proves itself first. */
static int make_challenge(struct soda_prover *p, uint8_t out[SODA_WIRE_CHALLENGE_BYTES],
			  struct soda_prover_why *why)
{
	struct soda_transcript *t = &p->proved.transcript;
	struct soda_wire_challenge c;
	int r = soda_random(t->nonce, sizeof(t->nonce));

	memcpy(c.nonce, t->nonce, sizeof(c.nonce));
	if (!r)
		r = soda_proof_mac(t, SODA_PROOF_SERVER, p->key, c.mac);
	if (r)
		return cannot_compute(why, r);
	soda_wire_put_challenge(out, &c);
	return 0;
}

/* For the log: by its name, or where the ASK has none by its key. */
static void name_tenant(struct soda_prover *p, const struct soda_wire_ask *ask)
{
	char hex[2 * SODA_WIRE_KEY_ID_BYTES + 1];

	if (ask->tenant[0])
		snprintf(p->tenant, sizeof(p->tenant), "tenant %.40s", ask->tenant);
	else
		snprintf(p->tenant, sizeof(p->tenant), "the tenant with key %s",
			 soda_key_format(ask->key_id, SODA_WIRE_KEY_ID_BYTES, hex));
}

int soda_prover_ask(struct soda_prover *p, const struct soda_wire_ask *ask, const uint8_t *channel,
		    uint8_t challenge[SODA_WIRE_CHALLENGE_BYTES], struct soda_prover_why *why)
{
	uint8_t travelled[SODA_WIRE_ASK_BYTES];
	char sentence[128] = "";
	int r = p->stage == ASK ? 0 : -EPROTO;

	if (r)
		return refuse(why, r, "a proof was expected");
	name_tenant(p, ask);
	r = p->guard->find(p->guard->arg, ask->tenant[0] ? ask->tenant : NULL, ask->key_id, p->key,
			   &p->proved.tenant, sentence);
	if (r) {
		/* the same whatever is wrong: strangers need not learn which tenants there are */
		refuse(why, r,
		       "no such tenant here, or not with this key: an old one, another server's, "
		       "or the server has another name (SODA_SERVER_NAME)?");
		snprintf(why->log, sizeof(why->log), "%s: %s", p->tenant, sentence);
		return r;
	}
	r = channel ? soda_key_bind(p->key, channel) : 0;
	if (r)
		return cannot_compute(why, r);
	soda_wire_put_ask(travelled, ask);
	soda_transcript_begin(&p->proved.transcript, p->guard->server, p->hello, travelled);
	p->stage = PROOF;
	return make_challenge(p, challenge, why);
}

int soda_prover_proof(struct soda_prover *p, const struct soda_wire_proof *proof, size_t mac_bytes,
		      struct soda_prover_why *why)
{
	int r = p->stage == PROOF ? soda_proof_check(&p->proved.transcript, SODA_PROOF_CLIENT,
						     p->key, proof->mac, mac_bytes)
				  : -EPROTO;

	if (r == -EPROTO)
		return refuse(why, r, "a tenant's name and a nonce were expected");
	if (r == -EACCES) {
		snprintf(why->peer, sizeof(why->peer), "%s: the proof is wrong", p->tenant);
		snprintf(why->log, sizeof(why->log), "%s: no key, or another connection's proof",
			 why->peer);
		return r;
	}
	if (!r)
		r = soda_connection_key(&p->proved.transcript, p->key, p->proved.key);
	if (r)
		return cannot_compute(why, r);
	memcpy(p->proved.session, proof->session, sizeof(proof->session));
	p->proved.mac_bytes = mac_bytes;
	p->stage = PROVED;
	return 0;
}

/* By a stream */

static int take_ask(struct soda_prover *p, struct soda_byte_stream s, struct soda_prover_why *why)
{
	uint8_t out[FRAME + SODA_WIRE_CHALLENGE_BYTES], channel[SODA_KEY_BYTES];
	struct iovec iov = { out, sizeof(out) };
	struct soda_wire_ask ask;
	int r = soda_wire_get_ask(p->in + FRAME, SODA_WIRE_ASK_BYTES, &ask);

	if (r)
		return refuse(why, r, "the name of a tenant was expected, and is none");
	r = s.tls ? soda_tls_channel(s.tls, channel) : 0;
	if (r)
		return cannot_compute(why, r);
	r = soda_prover_ask(p, &ask, s.tls ? channel : NULL, out + FRAME, why);
	if (r)
		return r;
	soda_wire_put_frame(out, &(struct soda_wire_frame){ .type = SODA_MSG_CHALLENGE,
							    .length = SODA_WIRE_CHALLENGE_BYTES });
	/* the first bytes in an empty socket buffer: they fit */
	return soda_stream_send_once(s, &iov, 1, -1) == sizeof(out) ? 0 : -ECONNRESET;
}

static int take_proof(struct soda_prover *p, struct soda_prover_why *why)
{
	struct soda_wire_proof proof;
	int r = soda_wire_get_proof(p->in + FRAME, SODA_WIRE_PROOF_BYTES, &proof);

	if (!r)
		r = soda_prover_proof(p, &proof, SODA_WIRE_MAC_BYTES, why);
	return r ? r : 1;
}

/* How many bytes the message of this stage has, and its type. */
static size_t expected(const struct soda_prover *p, uint8_t *type_p)
{
	*type_p = p->stage == ASK ? SODA_MSG_ASK : SODA_MSG_PROOF;
	return FRAME + (p->stage == ASK ? SODA_WIRE_ASK_BYTES : SODA_WIRE_PROOF_BYTES);
}

int soda_prover_speaks(struct soda_prover *p, struct soda_byte_stream s,
		       struct soda_prover_why *why)
{
	struct soda_wire_frame frame;
	uint8_t type;
	size_t wanted = expected(p, &type);
	/* no byte more: what follows is the connection's */
	ssize_t n = soda_stream_recv_once(s, p->in + p->got, wanted - p->got, NULL);

	if (n == -EAGAIN || n == -EINTR)
		return -EAGAIN;
	if (n <= 0)
		return n ? (int)n : -ECONNRESET;
	p->got += (size_t)n;
	if (p->got < FRAME)
		return 0;
	soda_wire_get_frame(p->in, &frame);
	if (frame.type != type || frame.length != wanted - FRAME || frame.flags || frame.status)
		return refuse(why, -EPROTO,
			      p->stage == ASK ? "a tenant's name and a nonce were expected"
					      : "a proof was expected");
	if (p->got < wanted)
		return 0;
	p->got = 0;
	return p->stage == ASK ? take_ask(p, s, why) : take_proof(p, why);
}
