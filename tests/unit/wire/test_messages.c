/* SPDX-License-Identifier: BSD-3-Clause */
/* What travels between libsoda-msg and the agent: round trips, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/field.h"
#include "wire/messages.h"

static uint8_t body[SODA_WIRE_MAX_CONTROL];

static void test_round_trips(void **state)
{
	struct soda_wire_msg_pull p = { UINT64_MAX - 1, 1, 2, UINT32_MAX, 7 }, q;
	struct soda_wire_msg_pulled a = { 1, 77, UINT64_MAX - 5 }, b;
	struct soda_wire_msg_reduce r = { 5, SODA_MSG_OP_MAX, (uint64_t)-3 }, s;
	struct soda_wire_msg_missing m = { 3, 4000 }, n;

	soda_wire_put_msg_pull(body, &p);
	assert_int_equal(soda_wire_get_msg_pull(body, SODA_WIRE_MSG_PULL_BYTES, &q), 0);
	assert_memory_equal(&p, &q, sizeof(p));
	assert_int_equal(soda_wire_get_msg_pull(body, SODA_WIRE_MSG_PULL_BYTES + 1, &q), -EPROTO);
	soda_wire_put_msg_pulled(body, &a);
	assert_int_equal(soda_wire_get_msg_pulled(body, SODA_WIRE_MSG_PULLED_BYTES, &b), 0);
	assert_int_equal(b.value, a.value);
	assert_int_equal(b.ended, 1);
	assert_int_equal(b.collective, 77);
	assert_int_equal(soda_wire_get_msg_pulled(body, 15, &b), -EPROTO);
	soda_wire_put_msg_reduce(body, &r);
	assert_int_equal(soda_wire_get_msg_reduce(body, SODA_WIRE_MSG_REDUCE_BYTES, &s), 0);
	assert_int_equal((int64_t)s.value, -3);
	assert_int_equal(s.op, SODA_MSG_OP_MAX);
	assert_int_equal(soda_wire_get_msg_reduce(body, 15, &s), -EPROTO);
	soda_wire_put_msg_missing(body, &m);
	assert_int_equal(soda_wire_get_msg_missing(body, SODA_WIRE_MSG_MISSING_BYTES, &n), 0);
	assert_memory_equal(&m, &n, sizeof(m));
	assert_int_equal(soda_wire_get_msg_missing(body, 0, &n), -EPROTO);
}

/* A JOIN with these bytes behind its head. */
static int join(const struct soda_wire_msg_join *j, const char *behind, size_t n,
		struct soda_wire_msg_place *place)
{
	struct soda_wire_msg_join k;
	int ret;

	soda_wire_put_msg_join(body, j);
	memcpy(body + SODA_WIRE_MSG_JOIN_BYTES, behind, n);
	ret = soda_wire_get_msg_join(body, SODA_WIRE_MSG_JOIN_BYTES + n, &k, place);
	if (ret == 0)
		assert_memory_equal(j, &k, sizeof(k));
	return ret;
}

static void test_join(void **state)
{
	struct soda_wire_msg_join j;
	struct soda_wire_msg_place place;
	uint64_t shape;

	memset(&j, 0, sizeof(j));
	j.version = 1;
	j.role = SODA_MSG_PULLS;
	j.rank = 0x01020304;
	j.ranks = 3;
	j.key[15] = 9;
	j.life = UINT64_MAX - 1;
	j.agents = 1;
	j.name_bytes = 3;
	j.again = 1;
	assert_int_equal(join(&j, "job", 3, &place), 0);
	assert_memory_equal(place.name, "job", 3);
	assert_null(place.places);
	assert_int_equal(soda_wire_msg_shape(&j, &place), 0);
	assert_int_equal(join(&j, "job!", 4, &place), -EPROTO);
	assert_int_equal(join(&j, "jo", 2, &place), -EPROTO);
	j.name_bytes = UINT32_MAX;
	assert_int_equal(join(&j, "job", 3, &place), -EPROTO);
	j.name_bytes = 3;
	j.agents = 2;
	j.here = 1;
	assert_int_equal(join(&j, "job\0\1\1a\0bc", 11, &place), 0);
	assert_memory_equal(place.places, "\0\1\1", 3);
	assert_string_equal(place.addresses, "a");
	assert_string_equal(place.addresses + 2, "bc");
	assert_int_equal(place.address_bytes, 5);
	shape = soda_wire_msg_shape(&j, &place);
	assert_int_not_equal(shape, 0);
	assert_int_equal(join(&j, "job\0\1\0a\0bc", 11, &place), 0);
	assert_int_not_equal(shape, soda_wire_msg_shape(&j, &place));
	assert_int_equal(join(&j, "job\0\1\2a\0bc", 11, &place), -EPROTO); /* no such agent */
	assert_int_equal(join(&j, "job\0\1\1a\0bc", 10, &place), -EPROTO);
	assert_int_equal(join(&j, "job\0\1\1a\0", 8, &place), -EPROTO);
	assert_int_equal(join(&j, "job\0\1\1a\0bc\0d", 13, &place), -EPROTO);
	assert_int_equal(join(&j, "job\0\1\1\0bc", 10, &place), -EPROTO);
	j.here = 2;
	assert_int_equal(join(&j, "job\0\1\1a\0bc", 11, &place), -EPROTO);
	j.here = 0;
	j.life = 0;
	assert_int_equal(join(&j, "job\0\1\1a\0bc", 11, &place), -EPROTO);
	j.life = 1;
	j.again = 2;
	j.agents = 1;
	assert_int_equal(join(&j, "job", 3, &place), -EPROTO);
	j.again = 0;
	j.agents = 0;
	assert_int_equal(join(&j, "job", 3, &place), -EPROTO);
}

static void test_agents(void **state)
{
	struct soda_wire_msg_link l = { 1, 2, 3, 4, 5, { 1, 2 }, 6, 7, { 3 }, { 4, 5 }, { 6, 7 } },
				  m;
	struct soda_wire_msg_relay r = { 4, 2, 0, 4, 5, 6, 7, 8, 9, { 10, 2, UINT64_MAX }, 3 }, s;
	struct soda_wire_msg_packet p = { 1, 8, 1, 7 }, q;

	soda_wire_put_msg_link(body, &l);
	assert_int_equal(soda_wire_get_msg_link(body, SODA_WIRE_MSG_LINK_BYTES, &m), 0);
	assert_true(m.version == 1 && m.ranks == 2 && m.agents == 3 && m.from == 4 && m.to == 5);
	assert_memory_equal(l.key, m.key, sizeof(l.key)); /* not the whole: it has padding */
	assert_true(m.life == 6 && m.shape == 7);
	assert_memory_equal(l.router, m.router, sizeof(l.router));
	assert_memory_equal(l.grant, m.grant, sizeof(l.grant));
	assert_memory_equal(l.proof, m.proof, sizeof(l.proof));
	assert_int_equal(soda_wire_get_msg_link(body, SODA_WIRE_MSG_LINK_BYTES - 1, &m), -EPROTO);
	l.life = 0;
	soda_wire_put_msg_link(body, &l);
	assert_int_equal(soda_wire_get_msg_link(body, SODA_WIRE_MSG_LINK_BYTES, &m), -EPROTO);
	soda_wire_put_msg_relay(body, &r);
	assert_int_equal(soda_wire_get_msg_relay(body, SODA_WIRE_MSG_RELAY_BYTES, &s), 0);
	assert_memory_equal(&r, &s, offsetof(struct soda_wire_msg_relay, ahead));
	assert_int_equal(s.ahead, 3);
	assert_int_equal(soda_wire_get_msg_relay(body, SODA_WIRE_MSG_RELAY_BYTES - 1, &s), -EPROTO);
	assert_int_equal(soda_wire_get_msg_relay(body, SODA_WIRE_MSG_RELAY_BYTES + 8, &s), -EPROTO);
	body[60] = 1; /* spare */
	assert_int_equal(soda_wire_get_msg_relay(body, SODA_WIRE_MSG_RELAY_BYTES, &s), -EPROTO);
	r.ahead = SODA_MSG_AHEAD;
	soda_wire_put_msg_relay(body, &r);
	assert_int_equal(soda_wire_get_msg_relay(body, SODA_WIRE_MSG_RELAY_BYTES, &s), -EPROTO);
	r.ahead = 3;
	r.number = 3; /* there are no three before it */
	soda_wire_put_msg_relay(body, &r);
	assert_int_equal(soda_wire_get_msg_relay(body, SODA_WIRE_MSG_RELAY_BYTES, &s), -EPROTO);
	r.number = 4;
	soda_wire_put_msg_relay(body, &r);
	/* the same head of an OFFER to three ranks, or two */
	assert_int_equal(soda_wire_get_msg_offer(body, SODA_WIRE_MSG_RELAY_BYTES + 24, 3, &s), 0);
	assert_memory_equal(&r, &s, offsetof(struct soda_wire_msg_relay, ahead));
	assert_int_equal(s.ahead, 3);
	assert_int_equal(soda_wire_get_msg_offer(body, SODA_WIRE_MSG_RELAY_BYTES + 24, 2, &s),
			 -EPROTO);
	assert_int_equal(soda_wire_get_msg_offer(body, SODA_WIRE_MSG_RELAY_BYTES + 23, 3, &s),
			 -EPROTO);
	r.packets = 1;
	soda_wire_put_msg_relay(body, &r);
	soda_wire_put_msg_packet(body + SODA_WIRE_MSG_RELAY_BYTES, &p);
	assert_int_equal(soda_wire_get_msg_relay(body, SODA_WIRE_MSG_RELAY_BYTES + 24, &s), 0);
	assert_int_equal(soda_wire_get_msg_packet(body + SODA_WIRE_MSG_RELAY_BYTES, 24, &q), 0);
	assert_memory_equal(&p, &q, sizeof(p));
	assert_int_equal(soda_wire_get_msg_relay(body, SODA_WIRE_MSG_RELAY_BYTES + 23, &s),
			 -EPROTO);
}

/* A PUSH of so many packets of so many bytes each. Returns its size. */
static size_t push(uint32_t packets, uint32_t bytes)
{
	struct soda_wire_msg_push p = { 3, 5, packets, 2 };
	struct soda_wire_msg_packet packet = { 1, bytes, 1, 0 };
	size_t at = SODA_WIRE_MSG_PUSH_BYTES;

	soda_wire_put_msg_push(body, &p);
	for (uint32_t i = 0; i < packets && at + SODA_WIRE_MSG_PACKET_BYTES + bytes <= sizeof(body);
	     i++) {
		soda_wire_put_msg_packet(body + at, &packet);
		at += SODA_WIRE_MSG_PACKET_BYTES + bytes;
	}
	return at;
}

static void test_push(void **state)
{
	struct soda_wire_msg_push p;
	size_t bytes = push(3, 24);

	assert_int_equal(soda_wire_get_msg_push(body, bytes, &p), 0);
	assert_int_equal(p.packets, 3);
	assert_int_equal(p.wait_ms, 5);
	assert_int_equal(p.ahead, 2);
	assert_int_equal(soda_wire_get_msg_push(body, bytes - 1, &p), -EPROTO);
	assert_int_equal(soda_wire_get_msg_push(body, bytes + 8, &p), -EPROTO);
	assert_int_equal(soda_wire_get_msg_push(body, 7, &p), -EPROTO);
	assert_int_equal(soda_wire_get_msg_push(body, push(0, 0), &p), -EPROTO);
	assert_int_equal(soda_wire_get_msg_push(body, push(SODA_MSG_PACKETS, 0), &p), 0);
	assert_int_equal(soda_wire_get_msg_push(body, push(SODA_MSG_PACKETS + 1, 0), &p), -EPROTO);
	assert_int_equal(soda_wire_get_msg_push(body, push(1, 12), &p), -EPROTO);
	bytes = SODA_MSG_PACKET_MAX - SODA_WIRE_MSG_PACKET_BYTES;
	assert_int_equal(soda_wire_get_msg_push(body, push(1, (uint32_t)bytes), &p), 0);
	assert_int_equal(soda_wire_get_msg_push(body, push(1, (uint32_t)bytes + 8), &p), -EPROTO);
	bytes = push(1, 8);
	soda_wire_put_u32(body + SODA_WIRE_MSG_PUSH_BYTES + 4, UINT32_MAX - 7);
	assert_int_equal(soda_wire_get_msg_push(body, bytes, &p), -EPROTO);
	for (uint32_t ahead = 3; ahead <= SODA_MSG_AHEAD; ahead++) { /* none before the first one */
		bytes = push(1, 8);
		soda_wire_put_u64(body, 3);
		soda_wire_put_u32(body + 16, ahead);
		assert_int_equal(soda_wire_get_msg_push(body, bytes, &p), -EPROTO);
	}
	soda_wire_put_u64(body, 9);
	assert_int_equal(soda_wire_get_msg_push(body, bytes, &p), -EPROTO); /* more than may be */
	bytes = push(1, 8);
	soda_wire_put_u32(body + 20, 1);
	assert_int_equal(soda_wire_get_msg_push(body, bytes, &p), -EPROTO);
}

/* Sizes of rings that an agent may have, and that it may not. */
static void test_rings(void **state)
{
	static const struct soda_wire_msg_rings wrong[] = {
		{ 0, 1 << 20 },
		{ 4088, 1 << 20 },
		{ 61448, 1 << 20 },
		{ 4100, 1 << 20 },
		{ 4096, 0 },
		{ 4096, 64 << 10 },
		{ 4096, 2 << 20 },
		{ 4096, (1 << 20) - 8 },
		{ UINT32_MAX, 1 << 20 },
	};
	const struct soda_wire_msg_rings rings = { 61440, 128 << 10 };
	struct soda_wire_msg_rings got;

	soda_wire_put_msg_rings(body, &rings);
	assert_int_equal(soda_wire_get_msg_rings(body, SODA_WIRE_MSG_RINGS_BYTES, &got), 0);
	assert_int_equal(got.slot_bytes, rings.slot_bytes);
	assert_int_equal(got.inbox_bytes, rings.inbox_bytes);
	assert_int_equal(soda_wire_get_msg_rings(body, SODA_WIRE_MSG_RINGS_BYTES - 1, &got),
			 -EPROTO);
	assert_int_equal(soda_wire_get_msg_rings(body, SODA_WIRE_MSG_RINGS_BYTES + 1, &got),
			 -EPROTO);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		soda_wire_put_msg_rings(body, &wrong[i]);
		assert_int_equal(soda_wire_get_msg_rings(body, SODA_WIRE_MSG_RINGS_BYTES, &got),
				 -EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips), cmocka_unit_test(test_join),
		cmocka_unit_test(test_agents),	    cmocka_unit_test(test_push),
		cmocka_unit_test(test_rings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
