/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * HELLO and welcome on verbs, the side that connects.  With a proof (docs/internals/tenants.md)
 * HELLO and ASK are requests of their own, on queue pairs that never come to use, because the peer
 * rejects them; the connection that remains is the one of the PROOF.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transport/api/claim.h"
#include "transport/verbs/client/client.h"
#include "trust/identity.h"

/* Who connects, and all that its steps need. */
struct introduction {
	const char *rest;
	uint64_t deadline_ns;
	struct soda_why *why;
	struct soda_verbs_heard heard;
};

static int makes_no_sense(const struct introduction *in)
{
	soda_why_set(in->why, "verbs://%.100s answers, but does not speak SODA", in->rest);
	return -EPROTO;
}

/* A welcome, as far as it needs no key to be read. */
static int take_welcome(const struct introduction *in, uint32_t version, size_t bytes,
			struct soda_wire_welcome *welcome_p,
			struct soda_wire_two_sided *two_sided_p)
{
	const struct soda_verbs_heard *h = &in->heard;

	if (!h->accepted || h->bytes < bytes ||
	    soda_wire_get_welcome(h->data, SODA_WIRE_WELCOME_BYTES, welcome_p) < 0 ||
	    welcome_p->version != version ||
	    soda_wire_get_two_sided(h->data + SODA_WIRE_WELCOME_BYTES, SODA_WIRE_TWO_SIDED_BYTES,
				    two_sided_p) < 0)
		return makes_no_sense(in);
	return 0;
}

/* A request that the peer rejects, with a CHALLENGE that has so many bytes. */
static int ask(struct introduction *in, const uint8_t said[SODA_WIRE_HELLO_BYTES], size_t bytes)
{
	const struct soda_verbs_room room = { .sends = 1, .receives = 1 };
	struct soda_wire_frame frame;
	struct soda_verbs_link l;
	int r = soda_verbs_link_resolve(&l, in->rest, in->deadline_ns, in->why);

	if (!r)
		r = soda_verbs_link_prepare(&l, &room, in->why);
	if (!r)
		r = soda_verbs_link_say(&l, in->rest, said, in->deadline_ns, &in->heard, in->why);
	soda_verbs_link_close(&l);
	if (r || in->heard.accepted)
		return r;
	soda_wire_get_frame(in->heard.data, &frame);
	return frame.length == bytes ? 0 : makes_no_sense(in);
}

/* HELLO, then ASK; what comes back proves the server. */
static int challenge(struct introduction *in, struct soda_claim *c, uint64_t *number_p)
{
	const uint8_t *body = in->heard.data + SODA_WIRE_FRAME_BYTES;
	uint8_t hello[SODA_WIRE_HELLO_BYTES], asked[SODA_WIRE_ASK_BYTES];
	uint8_t said[SODA_WIRE_BRIEF_BYTES];
	struct soda_wire_brief brief;
	int r = soda_claim_ask(c, false, hello, asked);

	if (!r)
		r = ask(in, hello, SODA_WIRE_NUMBER_BYTES);
	if (!r && in->heard.accepted)
		r = soda_claim_unasked(c);
	if (r)
		return r;
	*number_p = brief.number = soda_wire_get_number(body);
	memcpy(&brief.ask, asked, sizeof(brief.ask)); /* nonce and key id, in this order */
	soda_wire_put_brief(said, SODA_MSG_ASK, &brief);
	r = ask(in, said, SODA_WIRE_CHALLENGE_BYTES);
	if (!r && in->heard.accepted)
		r = soda_claim_unasked(c);
	return r ? r : soda_claim_check(c, body);
}

static int prove(struct introduction *in, struct soda_claim *c, uint64_t number,
		 struct soda_verbs_link *l)
{
	struct soda_wire_brief brief = { .number = number };
	uint8_t said[SODA_WIRE_BRIEF_BYTES];
	struct soda_wire_proof proof;
	int r = soda_claim_prove(c, &proof);

	if (r)
		return r;
	memcpy(brief.proof.mac, proof.mac, sizeof(brief.proof.mac));
	memcpy(brief.proof.session, proof.session, sizeof(brief.proof.session));
	soda_wire_put_brief(said, SODA_MSG_PROOF, &brief);
	return soda_verbs_link_say(l, in->rest, said, in->deadline_ns, &in->heard, in->why);
}

static int introduce_as(struct introduction *in, struct soda_verbs_link *l,
			const struct soda_wire_hello *hello, const struct soda_identity *as,
			uint8_t *client_key, const uint8_t *token,
			struct soda_wire_welcome *welcome_p,
			struct soda_wire_two_sided *two_sided_p)
{
	struct soda_claim c;
	uint64_t number;
	char peer[128];
	int r;

	snprintf(peer, sizeof(peer), SODA_VERBS_PREFIX "%.100s", in->rest);
	r = soda_claim_begin(&c, as, hello, client_key, token, NULL, peer, in->why);
	if (!r)
		r = challenge(in, &c, &number);
	if (!r)
		r = prove(in, &c, number, l);
	if (!r)
		r = take_welcome(in, SODA_WIRE_VERSION_PROVED, SODA_VERBS_PROVED_BYTES, welcome_p,
				 two_sided_p);
	if (!r)
		r = soda_claim_welcome(&c, in->heard.data,
				       in->heard.data + SODA_VERBS_WELCOME_BYTES, welcome_p);
	soda_claim_end(&c);
	return r;
}

int soda_verbs_introduce(struct soda_verbs_link *l, const char *rest,
			 const struct soda_wire_hello *hello, const struct soda_identity *as,
			 uint8_t *client_key, const uint8_t *token, uint64_t deadline_ns,
			 struct soda_wire_welcome *welcome_p,
			 struct soda_wire_two_sided *two_sided_p, struct soda_why *why)
{
	struct introduction in = { .rest = rest, .deadline_ns = deadline_ns, .why = why };
	uint8_t said[SODA_WIRE_HELLO_BYTES];
	int r;

	if (as && as->proves)
		return introduce_as(&in, l, hello, as, client_key, token, welcome_p, two_sided_p);
	soda_wire_put_hello(said, hello);
	r = soda_verbs_link_say(l, rest, said, deadline_ns, &in.heard, why);
	return r ? r
		 : take_welcome(&in, SODA_WIRE_VERSION, SODA_VERBS_WELCOME_BYTES, welcome_p,
				two_sided_p);
}
