/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proof that somebody has a messages job's key.  The key itself goes nowhere: a pair of Ed25519
 * (RFC 8032) is derived of it and of the job's name.  A JOIN shows the pair's public half, by which
 * the job is known.
 *
 *   rank    CHALLENGE, JOIN: `proof` signs it, and a nonce that the router has just made for this
 *           connection; `grant` says that this router serves the job
 *   router  to another one CHALLENGE, LINK: `grant` as it came in a JOIN, and `proof` by the
 *           router's own pair, over a nonce of the other router's
 *
 * So what is recorded is of no use on another connection, and a router that a rank, or another
 * router, was led to by mistake has nothing by which it could pass for the job's somewhere else.
 * Somebody who can change what passes may still do that: a connection is not encrypted by this.
 *
 * A JOIN and a LINK are bodies as wire/messages.h has them.  Functions return 0; -ENOTSUP: no
 * OpenSSL, or one without Ed25519; -EIO, -ENOMEM; the checks -EACCES, too.
 */
#ifndef SODA_TRUST_JOB_KEY_H
#define SODA_TRUST_JOB_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trust/crypto.h"
#include "wire/messages.h"

/* In a soda_secret_new(). */
struct soda_job_pair {
	uint8_t seed[SODA_KEY_BYTES];
	uint8_t shown[SODA_MSG_KEY_BYTES]; /* the public half; never zeros */
};

/* The pair of the job's key, a text. */
int soda_job_pair_make(const char *key, const char *job, struct soda_job_pair *pair);
/* A router's own. */
int soda_job_pair_draw(struct soda_job_pair *pair);

/* Fill in key, grant and proof of a whole JOIN. */
int soda_job_sign_join(const struct soda_job_pair *pair, const struct soda_wire_msg_challenge *of,
		       uint8_t *join, size_t bytes);
/* Check a JOIN that soda_wire_get_msg_join() takes, with a key. */
int soda_job_check_join(const struct soda_wire_msg_challenge *of, const void *join, size_t bytes);

/* The place that a grant is of, besides the router. */
struct soda_job_place {
	const char *name;
	uint32_t ranks, agents, agent;
	uint64_t shape;
};

/* Fill in router and proof of a LINK, of which key and grant are there. The name follows. */
int soda_job_sign_link(const struct soda_job_pair *own, const uint8_t nonce[SODA_MSG_NONCE_BYTES],
		       uint8_t link[SODA_WIRE_MSG_LINK_BYTES], const void *name, size_t bytes);
/* place: as it is known here, of the router that says the LINK. */
int soda_job_check_link(const uint8_t nonce[SODA_MSG_NONCE_BYTES], const void *link, size_t bytes,
			const struct soda_job_place *place);

#endif
