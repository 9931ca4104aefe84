/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proof behind a HELLO of version 2, on the side that listens, for a connection that has not
 * been let in (docs/internals/tenants.md).  Never blocks; the acceptor's thread.
 */
#ifndef SODA_LISTEN_PROVE_H
#define SODA_LISTEN_PROVE_H

#include "trust/proof.h"

struct soda_byte_stream;
struct soda_prover;

/* What to say of a connection that is refused: to the peer, and in the log. */
struct soda_prover_why {
	char peer[160], log[256];
};

/* hello: as it came. NULL: no memory. */
struct soda_prover *soda_prover_begin(const struct soda_guard *guard,
				      const uint8_t hello[SODA_WIRE_HELLO_BYTES]);
/* NULL is a no-op. */
void soda_prover_end(struct soda_prover *p);

/*
 * One message after the other, as it travels, on a connection that is no stream; each once, and in
 * this order. channel: of TLS, or NULL.  0, and for an ASK what to answer; -EACCES, -EPROTO:
 * refused; errors of libcrypto.
 */
int soda_prover_ask(struct soda_prover *p, const struct soda_wire_ask *ask, const uint8_t *channel,
		    uint8_t challenge[SODA_WIRE_CHALLENGE_BYTES], struct soda_prover_why *why);
/* mac_bytes: that have come of each mac. */
int soda_prover_proof(struct soda_prover *p, const struct soda_wire_proof *proof, size_t mac_bytes,
		      struct soda_prover_why *why);

/*
 * The same by a stream, which is readable.  1: the peer has proved what it must; 0: there is more
 * to come; -EAGAIN: it is not here yet; -EACCES, -EPROTO: refused; -ECONNRESET, and other errors of
 * the socket: it has gone.
 */
int soda_prover_speaks(struct soda_prover *p, struct soda_byte_stream s,
		       struct soda_prover_why *why);
/* After 1, until soda_prover_end. */
const struct soda_proved *soda_prover_proved(const struct soda_prover *p);

#endif
