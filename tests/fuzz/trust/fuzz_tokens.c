/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tokens of one client (trust/token.h), against a model: what the client has is valid until it
 * expires, whatever answers were lost; what it has had before it said that it has the next one, and
 * what nobody gave, never is.
 *   ops, each 8 bits: 0 the client asks, and is answered  1 it asks, and the answer is lost
 *   2 it shows what it has  3 one that was given is shown: which 8  4 time passes: ms 16
 *   5 it asks with another number: 32  6 bytes are shown: 16 bytes  7 an answer comes: 40 bytes
 */
#include <errno.h>

#include "fuzz/fuzz.h"
#include "trust/token.h"

enum { LIFE_MS = 1000, GIVEN_MAX = 64 };

struct given {
	uint32_t number;
	uint64_t until_ms;
	uint8_t token[SODA_WIRE_TOKEN_BYTES];
};

struct model {
	struct soda_tokens tokens;
	struct given given[GIVEN_MAX]; /* each once, the newest last */
	unsigned n;
	int held;      /* of given; -1: the client has none */
	uint32_t said; /* what it has said, at last, that it has */
	uint64_t now_ms;
};

static int check(struct model *m, const uint8_t token[SODA_WIRE_TOKEN_BYTES])
{
	const char *sentence = NULL;
	int r = soda_tokens_check(&m->tokens, token, m->now_ms, &sentence);

	MUST(r == 0 || (r == -ESTALE && sentence));
	return r;
}

/* The client says that it has this one; the newest of m->given is the answer. */
static void ask(struct model *m, uint32_t held)
{
	struct given g;
	uint32_t left_ms;

	m->said = held;
	MUST(soda_tokens_renew(&m->tokens, held, m->now_ms, LIFE_MS, &g.number, &left_ms,
			       g.token) == 0);
	MUST(g.number && left_ms && left_ms <= LIFE_MS);
	g.until_ms = m->now_ms + left_ms;
	if (m->n && m->given[m->n - 1].number == g.number) {
		MUST(!memcmp(&m->given[m->n - 1].token, g.token, sizeof(g.token)));
		MUST(m->given[m->n - 1].until_ms == g.until_ms);
		return;
	}
	for (unsigned i = 0; i < m->n; i++)
		MUST(m->given[i].number != g.number &&
		     memcmp(m->given[i].token, g.token, sizeof(g.token)));
	m->given[m->n++] = g;
}

static uint32_t held(const struct model *m)
{
	return m->held < 0 ? 0 : m->given[m->held].number;
}

/* What is shown of those that were given. */
static void show(struct model *m, int which)
{
	const struct given *g = &m->given[which];
	bool alive = g->number == m->said || which == (int)m->n - 1;
	int r = check(m, g->token);

	if (which == m->held)
		MUST(r == (m->now_ms < g->until_ms ? 0 : -ESTALE));
	else if (!alive || m->now_ms >= g->until_ms)
		MUST(r == -ESTALE);
}

static void show_bytes(struct model *m, struct fuzz_input *in)
{
	uint8_t token[SODA_WIRE_TOKEN_BYTES] = { 0 };
	bool known = false;

	fuzz_take(in, token, sizeof(token));
	for (unsigned i = 0; i < m->n; i++)
		known = known || !memcmp(m->given[i].token, token, sizeof(token));
	MUST(known || check(m, token) == -ESTALE);
}

static void decode(struct fuzz_input *in)
{
	uint8_t said[SODA_WIRE_TOKEN_ANSWER_BYTES], again[SODA_WIRE_TOKEN_ANSWER_BYTES];
	size_t n = fuzz_take(in, said, sizeof(said));
	struct soda_wire_token t;
	int r = soda_wire_get_token(said, n, &t);

	MUST(r == 0 || r == -EPROTO);
	if (r)
		return;
	soda_wire_put_token(again, &t);
	MUST(!memcmp(said, again, sizeof(said)));
}

static void step(struct model *m, struct fuzz_input *in, uint8_t op)
{
	switch (op % 8) {
	case 0:
		ask(m, held(m));
		m->held = (int)m->n - 1;
		break;
	case 1:
		ask(m, held(m));
		break;
	case 2:
		if (m->held >= 0)
			show(m, m->held);
		break;
	case 3:
		op = fuzz_u8(in);
		if (m->n)
			show(m, op % (int)m->n);
		break;
	case 4:
		m->now_ms += fuzz_u16(in) % (2 * LIFE_MS);
		break;
	case 5: /* its own may be void then: it has what it is answered */
		ask(m, fuzz_u32(in));
		m->held = (int)m->n - 1;
		break;
	case 6:
		show_bytes(m, in);
		break;
	default:
		decode(in);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	struct model m = { .held = -1, .now_ms = 1 };

	while (in.left && m.n < GIVEN_MAX)
		step(&m, &in, fuzz_u8(&in));
	return 0;
}
