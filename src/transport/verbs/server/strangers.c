/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who asks to connect to a listener with a guard: HELLO, ASK and PROOF are three requests
 * (docs/internals/tenants.md), the first two of which are rejected with what the next one answers.
 * What has been said so far lies here, under a number that nobody can guess; it costs no queue
 * pair.  The events thread alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/lock.h"
#include "transport/listen/prove.h"
#include "transport/stream/stream.h"
#include "transport/verbs/server/server.h"

struct soda_verbs_stranger {
	struct soda_verbs_stranger *next; /* oldest first */
	uint64_t number;
	uint64_t deadline_ns;
	struct soda_wire_hello hello;
	struct soda_prover *prover;
};

static void forget(struct soda_verbs_stranger *s)
{
	soda_prover_end(s->prover);
	free(s);
}

static struct soda_verbs_stranger *take_out(struct soda_verbs_strangers *all,
					    struct soda_verbs_stranger **at)
{
	struct soda_verbs_stranger *s = *at;

	*at = s->next;
	all->n--;
	return s;
}

/* Those that have taken too long, and the oldest where there are too many. */
static void make_room(struct soda_verbs_strangers *all)
{
	uint64_t now = soda_now_ns();

	while (all->oldest && (all->n >= SODA_STRANGERS_MAX || all->oldest->deadline_ns <= now))
		forget(take_out(all, &all->oldest));
}

/* Its place: what points to it, or to NULL. */
static struct soda_verbs_stranger **find(struct soda_verbs_strangers *all, uint64_t number)
{
	struct soda_verbs_stranger **at = &all->oldest;

	while (*at && (*at)->number != number)
		at = &(*at)->next;
	return at;
}

void soda_verbs_strangers_end(struct soda_verbs_strangers *all)
{
	while (all->oldest)
		forget(take_out(all, &all->oldest));
}

/* Answers */

static int refuse(const struct soda_verbs_peer *p, int err, const char *to_peer, const char *to_log)
{
	soda_peer_rejected(&p->peer, to_log);
	soda_verbs_reject(p->id, err, to_peer);
	return err;
}

static int go_on(const struct soda_verbs_peer *p, const uint8_t *body, uint32_t bytes)
{
	uint8_t said[SODA_WIRE_FRAME_BYTES + SODA_WIRE_CHALLENGE_BYTES];

	soda_wire_put_frame(
		said, &(struct soda_wire_frame){ .type = SODA_MSG_CHALLENGE, .length = bytes });
	memcpy(said + SODA_WIRE_FRAME_BYTES, body, bytes);
	rdma_reject(p->id, said, (uint8_t)(SODA_WIRE_FRAME_BYTES + bytes));
	rdma_destroy_id(p->id);
	return 0;
}

/* Steps: 0: there is more to come; negative errno: refused. */

static int on_hello(struct soda_verbs_strangers *all, const struct soda_verbs_peer *p,
		    const void *said, size_t bytes)
{
	const struct soda_listener_options *opt = &p->peer.listener->opt;
	struct soda_verbs_stranger **at, *s = calloc(1, sizeof(*s));
	uint8_t number[SODA_WIRE_NUMBER_BYTES];
	char reason[SODA_REASON_BYTES] = "the server has no memory for a connection more";
	int ret = s ? soda_hello_check(said, bytes, true, &s->hello, reason) : -ENOMEM;

	if (!ret)
		s->prover = soda_prover_begin(opt->guard, said);
	if (!ret)
		ret = s->prover ? soda_random(number, sizeof(number)) : -ENOMEM;
	if (ret) {
		if (s)
			forget(s);
		return refuse(p, ret, reason, reason);
	}
	s->number = soda_wire_get_number(number);
	s->deadline_ns = soda_deadline(opt->hello_timeout_ms);
	make_room(all);
	for (at = &all->oldest; *at; at = &(*at)->next)
		;
	*at = s;
	all->n++;
	return go_on(p, number, sizeof(number));
}

static int on_ask(struct soda_verbs_strangers *all, const struct soda_verbs_peer *p,
		  struct soda_verbs_stranger **at, const struct soda_wire_brief *brief)
{
	struct soda_prover_why why = { "", "" };
	uint8_t challenge[SODA_WIRE_CHALLENGE_BYTES];
	struct soda_wire_ask ask = { .tenant = "" };
	int ret;

	memcpy(ask.nonce, brief->ask.nonce, sizeof(ask.nonce));
	memcpy(ask.key_id, brief->ask.key_id, sizeof(ask.key_id));
	ret = soda_prover_ask((*at)->prover, &ask, NULL, challenge, &why);
	if (!ret)
		return go_on(p, challenge, sizeof(challenge));
	forget(take_out(all, at));
	return refuse(p, ret, why.peer, why.log);
}

/* Its place is given up, whatever it has said: a PROOF is good for one connection. */
static int on_proof(struct soda_verbs_strangers *all, struct soda_verbs_peer *p,
		    struct soda_verbs_stranger **at, const struct soda_wire_brief *brief)
{
	struct soda_verbs_stranger *s = take_out(all, at);
	struct soda_wire_proof proof = { { 0 }, { 0 } };
	struct soda_prover_why why = { "", "" };
	int ret;

	memcpy(proof.mac, brief->proof.mac, sizeof(brief->proof.mac));
	memcpy(proof.session, brief->proof.session, sizeof(brief->proof.session));
	ret = soda_prover_proof(s->prover, &proof, sizeof(brief->proof.mac), &why);
	if (ret) {
		forget(s);
		return refuse(p, ret, why.peer, why.log);
	}
	p->hello = s->hello;
	p->proved = *soda_prover_proved(s->prover);
	p->peer.info.proved = &p->proved;
	forget(s);
	return 1;
}

int soda_verbs_stranger_speaks(struct soda_verbs_strangers *all, struct soda_verbs_peer *p,
			       const void *said, size_t bytes)
{
	static const char late[] = "no HELLO was said before this, or it was long ago";
	struct soda_wire_brief brief;
	struct soda_verbs_stranger **at;
	int type = soda_wire_get_brief(said, bytes, &brief);

	if (type < 0)
		return on_hello(all, p, said, bytes);
	at = find(all, brief.number);
	if (!*at)
		return refuse(p, -EACCES, late, late);
	return type == SODA_MSG_ASK ? on_ask(all, p, at, &brief) : on_proof(all, p, at, &brief);
}
