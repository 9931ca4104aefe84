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
	struct soda_wire_msg_join j = { 1, SODA_MSG_PULLS, 0x01020304, 0x7fffffff, { 9, 8, 7 } }, k;
	struct soda_wire_msg_pull p = { 1, 2, UINT32_MAX }, q;
	struct soda_wire_msg_pulled a = { 1, 77, UINT64_MAX - 5 }, b;
	struct soda_wire_msg_reduce r = { 5, SODA_MSG_OP_MAX, (uint64_t)-3 }, s;
	struct soda_wire_msg_missing m = { 3, 4000 }, n;
	const char *name;
	size_t bytes;

	soda_wire_put_msg_join(body, &j);
	memcpy(body + SODA_WIRE_MSG_JOIN_BYTES, "job", 3);
	assert_int_equal(
		soda_wire_get_msg_join(body, SODA_WIRE_MSG_JOIN_BYTES + 3, &k, &name, &bytes), 0);
	assert_memory_equal(&j, &k, sizeof(j));
	assert_int_equal(bytes, 3);
	assert_memory_equal(name, "job", 3);
	assert_int_equal(
		soda_wire_get_msg_join(body, SODA_WIRE_MSG_JOIN_BYTES - 1, &k, &name, &bytes),
		-EPROTO);
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

/* A PUSH of so many packets of so many bytes each. Returns its size. */
static size_t push(uint32_t packets, uint32_t bytes)
{
	struct soda_wire_msg_push p = { 5, packets };
	struct soda_wire_msg_packet packet = { 1, bytes, 1 };
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
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_push),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
