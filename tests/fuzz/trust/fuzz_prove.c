/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proof behind a HELLO of version 2, the side that listens (listen/prove.c), with a peer that
 * says what the input has.  Nobody is let in but by the right proof of the challenge that was sent.
 * ops: what 8, then: 0  nothing  1  the ASK of the tenant that there is  2  the right PROOF  3  it,
 * but for one bit: which 8  4  the ASK of another tenant  5 and more  bytes: length 8
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "transport/listen/prove.h"
#include "transport/stream/stream.h"

#define FRAME SODA_WIRE_FRAME_BYTES

static const uint8_t the_key[SODA_KEY_BYTES] = { 42 };
static const uint8_t hello[SODA_WIRE_HELLO_BYTES] = { 1, 2, 3 };
static int the_tenant;

struct stranger {
	struct soda_prover *prover;
	struct soda_prover_why why;
	int ours, theirs;
	int result; /* of the prover: 0 while it goes on */
	bool asked; /* its ASK is `ask`, and so the next */
	bool right; /* the right PROOF has been said, nothing before it was wrong */
	bool odd;   /* something else has been said */
	struct soda_transcript t;
};

static int find(void *arg, const char *tenant, const uint8_t *id, uint8_t *key, void **tenant_p,
		char *why)
{
	MUST(soda_wire_tenant_ok(tenant));
	*tenant_p = &the_tenant;
	if (strcmp(tenant, "a") || memcmp(id, the_key, SODA_WIRE_KEY_ID_BYTES)) {
		snprintf(why, 128, "nobody");
		return -EACCES;
	}
	memcpy(key, the_key, sizeof(the_key));
	return 0;
}

static const struct soda_guard guard = { .server = "mem1", .find = find };

static void listen_to(struct stranger *s)
{
	while (!s->result) {
		char any;

		if (recv(s->ours, &any, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
			return;
		s->result = soda_prover_speaks(s->prover, soda_plain(s->ours), &s->why);
	}
}

static void say(struct stranger *s, uint8_t type, const uint8_t *body, size_t bytes)
{
	uint8_t text[FRAME + SODA_WIRE_ASK_BYTES];

	soda_wire_put_frame(text,
			    &(struct soda_wire_frame){ .type = type, .length = (uint32_t)bytes });
	memcpy(text + FRAME, body, bytes);
	(void)!send(s->theirs, text, FRAME + bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	listen_to(s);
}

static void say_ask(struct stranger *s, const char *tenant)
{
	struct soda_wire_ask ask = { { 7 }, { 0 }, "" };
	uint8_t body[SODA_WIRE_ASK_BYTES];

	memcpy(ask.key_id, the_key, sizeof(ask.key_id));
	strcpy(ask.tenant, tenant);
	soda_wire_put_ask(body, &ask);
	s->odd = s->odd || s->asked || strcmp(tenant, "a");
	if (!s->odd) {
		soda_transcript_begin(&s->t, guard.server, hello, body);
		s->asked = true;
	}
	say(s, SODA_MSG_ASK, body, sizeof(body));
}

/* Of the challenge, if there was one; bit: which is wrong, or -1. */
static void say_proof(struct stranger *s, int bit)
{
	uint8_t body[SODA_WIRE_PROOF_BYTES], heard[FRAME + SODA_WIRE_CHALLENGE_BYTES];
	struct soda_wire_proof proof = { { 0 }, { 0 } };
	struct soda_wire_challenge c;
	ssize_t n = recv(s->theirs, heard, sizeof(heard), MSG_DONTWAIT);

	if (n == sizeof(heard) && heard[0] == SODA_MSG_CHALLENGE && s->asked) {
		soda_wire_get_challenge(heard + FRAME, SODA_WIRE_CHALLENGE_BYTES, &c);
		memcpy(s->t.nonce, c.nonce, sizeof(s->t.nonce));
		MUST(soda_proof_check(&s->t, SODA_PROOF_SERVER, the_key, c.mac,
				      SODA_WIRE_MAC_BYTES) == 0);
		MUST(soda_proof_mac(&s->t, SODA_PROOF_CLIENT, the_key, proof.mac) == 0);
		s->right = !s->odd && bit < 0;
	}
	if (bit >= 0)
		proof.mac[bit / 8] ^= (uint8_t)(1 << bit % 8);
	s->odd = true; /* whatever follows */
	soda_wire_put_proof(body, &proof);
	say(s, SODA_MSG_PROOF, body, sizeof(body));
}

static void say_bytes(struct stranger *s, struct fuzz_input *in)
{
	uint8_t text[256];
	size_t n = fuzz_take(in, text, fuzz_u8(in));

	s->odd = s->odd || n;
	if (n)
		(void)!send(s->theirs, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	listen_to(s);
}

static void step(struct stranger *s, struct fuzz_input *in)
{
	switch (fuzz_u8(in) % 8) {
	case 0:
		break;
	case 1:
		say_ask(s, "a");
		break;
	case 2:
		say_proof(s, -1);
		break;
	case 3:
		say_proof(s, fuzz_u8(in));
		break;
	case 4:
		say_ask(s, "b");
		break;
	default:
		say_bytes(s, in);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	struct stranger s = { .result = 0 };
	struct soda_conf_error err;
	int fds[2];

	fuzz_quiet();
	if (soda_crypto_ready(&err))
		return 0;
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	s.ours = fds[0];
	s.theirs = fds[1];
	s.prover = soda_prover_begin(&guard, hello);
	MUST(s.prover);
	while (in.left && !s.result)
		step(&s, &in);
	MUST(s.result <= 0 || s.right);
	MUST(!s.right || s.result == 1);
	if (s.result > 0)
		MUST(soda_prover_proved(s.prover)->tenant == &the_tenant);
	if (s.result < 0)
		MUST(s.result == -EPROTO || s.result == -EACCES || s.result == -ECONNRESET);
	soda_prover_end(s.prover);
	close(fds[0]);
	close(fds[1]);
	return 0;
}
