/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/listen/prove.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/stream/stream.h"

#define FRAME SODA_WIRE_FRAME_BYTES

enum stage { ASK, PROOF, PROVED };

struct soda_prover {
	const struct soda_guard *guard;
	enum stage stage;
	size_t got;
	uint8_t in[FRAME + SODA_WIRE_ASK_BYTES]; /* the longest */
	uint8_t hello[SODA_WIRE_HELLO_BYTES];
	char tenant[SODA_WIRE_TENANT_MAX + 1]; /* as the ASK says */
	uint8_t key[SODA_KEY_BYTES];	       /* the server's of the tenant */
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

static int challenge(struct soda_prover *p, struct soda_byte_stream s, struct soda_prover_why *why)
{
	struct soda_transcript *t = &p->proved.transcript;
	uint8_t out[FRAME + SODA_WIRE_CHALLENGE_BYTES];
	struct iovec iov = { out, sizeof(out) };
	struct soda_wire_challenge c;
	int r;

	soda_transcript_begin(t, p->guard->server, p->hello, p->in + FRAME);
	r = soda_random(t->nonce, sizeof(t->nonce));
	memcpy(c.nonce, t->nonce, sizeof(c.nonce));
	if (!r)
		r = soda_proof_mac(t, SODA_PROOF_SERVER, p->key, c.mac);
	if (r)
		return cannot_compute(why, r);
	soda_wire_put_frame(out, &(struct soda_wire_frame){ .type = SODA_MSG_CHALLENGE,
							    .length = SODA_WIRE_CHALLENGE_BYTES });
	soda_wire_put_challenge(out + FRAME, &c);
	/* the first bytes in an empty socket buffer: they fit */
	return soda_stream_send_once(s, &iov, 1, -1) == sizeof(out) ? 0 : -ECONNRESET;
}

static int take_ask(struct soda_prover *p, struct soda_byte_stream s, struct soda_prover_why *why)
{
	struct soda_wire_ask ask;
	char sentence[128] = "";
	int r = soda_wire_get_ask(p->in + FRAME, SODA_WIRE_ASK_BYTES, &ask);

	if (r)
		return refuse(why, r, "the name of a tenant was expected, and is none");
	memcpy(p->tenant, ask.tenant, sizeof(p->tenant));
	r = p->guard->find(p->guard->arg, ask.tenant, ask.key_id, p->key, &p->proved.tenant,
			   sentence);
	if (r) {
		/* the same whatever is wrong: strangers need not learn which tenants there are */
		refuse(why, r,
		       "no such tenant here, or not with this key: another server's, or an old "
		       "one?");
		snprintf(why->log, sizeof(why->log), "tenant %s: %s", p->tenant, sentence);
		return r;
	}
	if (s.tls) {
		uint8_t channel[SODA_KEY_BYTES];

		r = soda_tls_channel(s.tls, channel);
		if (!r)
			r = soda_key_bind(p->key, channel);
		if (r)
			return cannot_compute(why, r);
	}
	p->stage = PROOF;
	return challenge(p, s, why);
}

static int take_proof(struct soda_prover *p, struct soda_prover_why *why)
{
	struct soda_wire_proof proof;
	int r = soda_wire_get_proof(p->in + FRAME, SODA_WIRE_PROOF_BYTES, &proof);

	if (!r)
		r = soda_proof_check(&p->proved.transcript, SODA_PROOF_CLIENT, p->key, proof.mac);
	if (r == -EACCES) {
		snprintf(why->peer, sizeof(why->peer), "tenant %s: the proof is wrong", p->tenant);
		snprintf(why->log, sizeof(why->log), "%s: no key, or another connection's proof",
			 why->peer);
		return r;
	}
	if (!r)
		r = soda_connection_key(&p->proved.transcript, p->key, p->proved.key);
	if (r)
		return cannot_compute(why, r);
	memcpy(p->proved.session, proof.session, sizeof(proof.session));
	p->stage = PROVED;
	return 1;
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
