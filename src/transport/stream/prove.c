/* SPDX-License-Identifier: BSD-3-Clause */
/* A HELLO with its proof, the side that connects (docs/internals/tenants.md). */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "transport/api/claim.h"
#include "transport/stream/stream.h"
#include "trust/identity.h"

/* HELLO and ASK; what comes back proves the server. 0, -EACCES, errors of the exchange. */
static int ask(struct soda_claim *c, const struct soda_stream_exchange *x, int pass_fd)
{
	uint8_t said[2 * SODA_WIRE_FRAME_BYTES + SODA_WIRE_HELLO_BYTES + SODA_WIRE_ASK_BYTES];
	uint8_t *hello = said + SODA_WIRE_FRAME_BYTES;
	uint8_t *second = hello + SODA_WIRE_HELLO_BYTES, *asked = second + SODA_WIRE_FRAME_BYTES;
	uint8_t answer[SODA_WIRE_CHALLENGE_BYTES];
	int r = soda_claim_ask(c, true, hello, asked);

	if (r)
		return r;
	soda_wire_put_frame(said, &(struct soda_wire_frame){ .type = SODA_MSG_HELLO,
							     .length = SODA_WIRE_HELLO_BYTES });
	soda_wire_put_frame(second, &(struct soda_wire_frame){ .type = SODA_MSG_ASK,
							       .length = SODA_WIRE_ASK_BYTES });
	r = soda_stream_exchange(x, said, sizeof(said), pass_fd, SODA_MSG_CHALLENGE, answer,
				 sizeof(answer), NULL);
	if (r == -EPROTO) /* a welcome of an open server, for one */
		return soda_claim_unasked(c);
	return r ? r : soda_claim_check(c, answer);
}

/* PROOF; what comes back is the welcome. */
static int prove(struct soda_claim *c, const struct soda_stream_exchange *x,
		 struct soda_wire_welcome *welcome_p, int *passed_fd_p)
{
	uint8_t said[SODA_WIRE_FRAME_BYTES + SODA_WIRE_PROOF_BYTES];
	uint8_t welcome[SODA_WIRE_WELCOME_BYTES + SODA_WIRE_MAC_BYTES];
	struct soda_wire_proof proof;
	int r = soda_claim_prove(c, &proof);

	if (r)
		return r;
	soda_wire_put_frame(said, &(struct soda_wire_frame){ .type = SODA_MSG_PROOF,
							     .length = SODA_WIRE_PROOF_BYTES });
	soda_wire_put_proof(said + SODA_WIRE_FRAME_BYTES, &proof);
	r = soda_stream_exchange(x, said, sizeof(said), -1, SODA_MSG_OK, welcome, sizeof(welcome),
				 passed_fd_p);
	if (r == -EPROTO)
		soda_why_set(x->why, "%s answers, but does not speak SODA", x->peer);
	return r ? r : soda_claim_welcome(c, welcome, welcome + SODA_WIRE_WELCOME_BYTES, welcome_p);
}

int soda_stream_prove(struct soda_byte_stream s, const char *peer,
		      const struct soda_wire_hello *hello, const struct soda_conn_options *opt,
		      int pass_fd, uint64_t deadline_ns, struct soda_wire_welcome *welcome_p,
		      int *passed_fd_p, struct soda_why *why)
{
	const struct soda_stream_exchange x = {
		.s = s, .peer = peer, .deadline_ns = deadline_ns, .why = why
	};
	uint8_t channel[SODA_KEY_BYTES];
	struct soda_claim c;
	int r = s.tls ? soda_tls_channel(s.tls, channel) : 0;

	if (r) {
		soda_why_set(why, "%s: TLS has nothing that a proof could be bound to: %s", peer,
			     soda_strerror(r));
		return r;
	}
	r = soda_claim_begin(&c, opt->identity, hello, opt->client_key, opt->token,
			     s.tls ? channel : NULL, peer, why);
	if (!r)
		r = ask(&c, &x, pass_fd);
	if (!r)
		r = prove(&c, &x, welcome_p, passed_fd_p);
	soda_claim_end(&c);
	return r;
}
