/* SPDX-License-Identifier: BSD-3-Clause */
/* Movement's layouts, the rules of a list of pieces, and the walk over its spans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "wire/movement.h"

#define COPY(from_, bytes_, offset_)                                                               \
	{                                                                                          \
		.from = (from_), .bytes = (bytes_), .stride = (bytes_), .count = 1,                \
		.offset = (offset_), .fill = SODA_WIRE_PIECE_COPY                                  \
	}

/* Layouts */

static void test_sizes(void **state)
{
	assert_int_equal(SODA_MSG_MOVE_START, 112);
	assert_int_equal(SODA_MSG_MOVE_RANGE, 130);
	assert_int_equal(SODA_MSG_MOVE_LAST, 130);
	assert_true(SODA_MSG_MOVE_RELEASE <= SODA_MSG_MOVE_LAST);
	assert_int_equal(SODA_MSG_MOVE_SEND, 126);
	/* the longest list, and a PUT's and READ's data, fit into one call */
	assert_true(SODA_WIRE_MOVE_POST_BYTES + SODA_MOVE_LIST_MAX * SODA_WIRE_PIECE_BYTES <=
		    SODA_WIRE_MAX_CONTROL);
	assert_true(SODA_WIRE_MOVE_PUT_BYTES + SODA_MOVE_PUT_MAX <= SODA_WIRE_MAX_CONTROL);
	assert_true(soda_wire_move_send_bytes(SODA_MOVE_LIST_MAX) + SODA_MOVE_SEND_MAX +
			    SODA_WIRE_FLOW_END_BYTES <=
		    SODA_WIRE_MAX_STREAM);
	assert_true(SODA_MOVE_CREDITS * SODA_WIRE_NOTICE_BYTES <= SODA_WIRE_MAX_CONTROL);
}

static void test_piece(void **state)
{
	static const uint8_t bytes[SODA_WIRE_PIECE_BYTES] = {
		1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0,	  0,	0,    0, 0, 0, 0x21, 0, 0, 0, 0, 0,
		0, 0, 9, 0, 0, 0, 0, 0, 0,    0,    0x31, 0x32, 0x33, 0, 0, 0, 0,    0, 0, 1, 0, 0
	};
	struct soda_wire_piece p = { 0x0807060504030201, 0x1211, 0x21, 9, 0x333231, 256 }, back;
	uint8_t out[SODA_WIRE_PIECE_BYTES];

	/* the last field: 256, which no byte is */
	soda_wire_put_piece(out, &p);
	assert_memory_equal(out, bytes, 40);
	assert_int_equal(out[40] | out[41] << 8, 256);
	soda_wire_get_piece(out, &back);
	assert_memory_equal(&back, &p, offsetof(struct soda_wire_piece, fill) + 4);
}

static void test_post(void **state)
{
	uint8_t body[SODA_WIRE_MOVE_POST_BYTES + 2 * SODA_WIRE_PIECE_BYTES] = { 0 };
	struct soda_wire_move_post p = { 0x1122334455667788, 3, 2 }, back;

	soda_wire_put_move_post(body, &p);
	assert_int_equal(soda_wire_get_move_post(body, sizeof(body), &back), 0);
	assert_true(back.ticket == p.ticket && back.buffer == 3 && back.pieces == 2);
	assert_int_equal(soda_wire_get_move_post(body, sizeof(body) - 1, &back), -EPROTO);
	assert_int_equal(soda_wire_get_move_post(body, SODA_WIRE_MOVE_POST_BYTES - 1, &back),
			 -EPROTO);
	/* a number of pieces whose bytes overflow 32 bits, to what there is */
	p.pieces = 0x5d1745d2; /* 44 times that is 2^36 + 8 */
	soda_wire_put_move_post(body, &p);
	assert_int_equal(soda_wire_get_move_post(body, SODA_WIRE_MOVE_POST_BYTES + 8, &back),
			 -EPROTO);
}

/* Data begin at a multiple of 64 bytes of the stream, whatever is before them. */
static void test_send(void **state)
{
	struct soda_wire_move_send s = { 1ull << 40, 1ull << 35, 3, SODA_MOVE_LIST_MAX }, back;
	uint8_t body[SODA_WIRE_MOVE_SEND_BYTES], end[SODA_WIRE_FLOW_END_BYTES];
	unsigned status = 99;

	for (uint32_t n = 0; n < 20; n++) {
		size_t bytes = soda_wire_move_send_bytes(n);

		assert_int_equal((bytes + SODA_WIRE_FRAME_BYTES) % 64, 0);
		assert_in_range(bytes - SODA_WIRE_MOVE_SEND_BYTES - n * SODA_WIRE_PIECE_BYTES, 0,
				63);
	}
	soda_wire_put_move_send(body, &s);
	assert_int_equal(soda_wire_get_move_send(body, &back), 0);
	assert_memory_equal(&back, &s, sizeof(s));
	s.pieces++;
	soda_wire_put_move_send(body, &s);
	assert_int_equal(soda_wire_get_move_send(body, &back), -EPROTO);
	soda_wire_put_flow_end(end, SODA_ST_FAULT);
	assert_int_equal(soda_wire_get_flow_end(end, &status), 0);
	assert_int_equal(status, SODA_ST_FAULT);
	soda_wire_put_flow_end(end, SODA_ST_IO);
	assert_int_equal(soda_wire_get_flow_end(end, &status), -EPROTO);
}

/* Of verbs: what cannot be a streamed call's message is refused. */
static void test_flow(void **state)
{
	uint8_t in[SODA_WIRE_FLOW_BYTES + 129 * SODA_WIRE_FLOW_PART_BYTES] = { 0 };
	struct soda_wire_flow_part p[2] = { { 1ull << 40, 5000, 77 }, { 3, UINT32_MAX, 78 } };
	struct soda_wire_flow_part parts[SODA_WIRE_FLOW_PARTS];
	struct soda_wire_flow f = { 2, SODA_ST_OK, 5000 + 1000 }, back;
	uint8_t *second = in + SODA_WIRE_FLOW_BYTES + SODA_WIRE_FLOW_PART_BYTES;
	size_t at;

#define GET(bytes) (soda_wire_put_flow(in, &f), soda_wire_get_flow(in, bytes, &back, parts, &at))
	soda_wire_put_flow_part(in + SODA_WIRE_FLOW_BYTES, &p[0]);
	p[1].bytes = 1000;
	soda_wire_put_flow_part(second, &p[1]);
	assert_int_equal(GET(100), 0);
	assert_memory_equal(parts, p, sizeof(p));
	assert_true(back.parts == 2 && back.bytes == 6000 && at == 48);
	assert_int_equal(GET(48), 0); /* no body */
	assert_int_equal(GET(47), -EPROTO);
	assert_int_equal(GET(15), -EPROTO);
	f.bytes++;
	assert_int_equal(GET(100), -EPROTO);
	f.bytes = 6000;
	f.status = SODA_ST_FAULT; /* with parts */
	assert_int_equal(GET(100), -EPROTO);
	f.parts = 0;
	assert_int_equal(GET(100), 0);
	f.bytes = 0;
	assert_int_equal(GET(100), -EPROTO);
	f.bytes = UINT64_MAX;
	assert_int_equal(GET(100), -EPROTO);
	f = (struct soda_wire_flow){ 2, SODA_ST_OK, 5000 };
	p[1].bytes = 0;
	soda_wire_put_flow_part(second, &p[1]);
	assert_int_equal(GET(100), -EPROTO);
	p[1] = (struct soda_wire_flow_part){ UINT64_MAX - 5, 1000, 1 };
	f.bytes = 6000;
	soda_wire_put_flow_part(second, &p[1]);
	assert_int_equal(GET(100), -EPROTO);
	f.status = SODA_ST_IO;
	assert_int_equal(GET(100), -EPROTO);
	f = (struct soda_wire_flow){ SODA_WIRE_FLOW_PARTS + 1, SODA_ST_OK, 6000 };
	assert_int_equal(GET(sizeof(in)), -EPROTO);
	f.parts = UINT32_MAX;
	assert_int_equal(GET(sizeof(in)), -EPROTO);
#undef GET
}

/* Each layout comes back, and is refused with a byte more or less. */
static void test_bodies(void **state)
{
	uint8_t b[128];
	struct soda_wire_move_start start = { 2, 1, 0x1234567890, "0123456789abcde" }, start_back;
	struct soda_wire_move_started started = { 2, SODA_WAY_READS, 135168 }, started_back;
	struct soda_wire_move_opened opened = { 1ull << 40, 64, 1 }, opened_back;
	struct soda_wire_move_next next = { UINT64_MAX, 250 }, next_back;
	struct soda_wire_move_found found = { 7, 63, 1 }, found_back;
	struct soda_wire_move_read read = { 7, 1ull << 33, 61440 }, read_back;
	struct soda_wire_move_reserve reserve = { 1ull << 40, 64, 0444, 1 }, reserve_back;
	struct soda_wire_move_put put = { 5, 1ull << 35 }, put_back;
	struct soda_wire_notice notice = { 5, 9, SODA_ST_FAULT }, notice_back;
	struct soda_wire_move_part part = { 6, 1ull << 36, 250 }, part_back;
	struct soda_wire_move_range range = { 65535, 64, 1ull << 39, 1ull << 38 }, range_back;
	const char *name;
	size_t name_bytes;

#define SAME(what, bytes)                                                                          \
	do {                                                                                       \
		soda_wire_put_move_##what(b, &what);                                               \
		assert_int_equal(soda_wire_get_move_##what(b, (bytes), &what##_back), 0);          \
		assert_int_equal(soda_wire_get_move_##what(b, (bytes) + 1, &what##_back),          \
				 -EPROTO);                                                         \
		assert_int_equal(soda_wire_get_move_##what(b, (bytes)-1, &what##_back), -EPROTO);  \
	} while (0)
	SAME(part, SODA_WIRE_MOVE_PART_BYTES);
	assert_true(part_back.ticket == 6 && part_back.to == part.to &&
		    part_back.timeout_ms == 250);
	SAME(range, SODA_WIRE_MOVE_RANGE_BYTES);
	assert_memory_equal(&range_back, &range, sizeof(range));
	SAME(start, SODA_WIRE_MOVE_START_BYTES);
	assert_true(start_back.token_at == start.token_at);
	assert_memory_equal(start_back.token, start.token, SODA_MOVE_TOKEN_BYTES);
	SAME(started, SODA_WIRE_MOVE_STARTED_BYTES);
	assert_int_equal(started_back.way, SODA_WAY_READS);
	SAME(opened, SODA_WIRE_MOVE_OPENED_BYTES);
	assert_memory_equal(&opened_back, &opened, sizeof(opened));
	SAME(next, SODA_WIRE_MOVE_NEXT_BYTES);
	assert_true(next_back.after == UINT64_MAX && next_back.timeout_ms == 250);
	SAME(found, SODA_WIRE_MOVE_FOUND_BYTES);
	assert_memory_equal(&found_back, &found, sizeof(found));
	SAME(read, SODA_WIRE_MOVE_READ_BYTES);
	assert_true(read_back.offset == read.offset && read_back.bytes == read.bytes);
#undef SAME
	soda_wire_put_move_reserve(b, &reserve);
	assert_int_equal(soda_wire_get_move_reserve(b, SODA_WIRE_MOVE_RESERVE_BYTES + 3,
						    &reserve_back, &name, &name_bytes),
			 0);
	assert_true(reserve_back.bytes == reserve.bytes && reserve_back.mode == 0444);
	assert_ptr_equal(name, b + SODA_WIRE_MOVE_RESERVE_BYTES);
	assert_int_equal(name_bytes, 3);
	soda_wire_put_move_put(b, &put);
	assert_int_equal(soda_wire_get_move_put(b, SODA_WIRE_MOVE_PUT_BYTES, &put_back), -EPROTO);
	assert_int_equal(soda_wire_get_move_put(b, SODA_WIRE_MOVE_PUT_BYTES + 1, &put_back), 0);
	assert_true(put_back.at == put.at && put_back.ticket == 5);
	soda_wire_put_notice(b, &notice);
	soda_wire_get_notice(b, &notice_back);
	assert_true(notice_back.ticket == 5 && notice_back.step == 9);
	assert_int_equal(soda_status_to_errno(notice_back.status), EFAULT);
}

static void test_names(void **state)
{
	char longest[SODA_WIRE_MAX_NAME + 1];

	memset(longest, 'x', sizeof(longest));
	assert_true(soda_wire_name_ok("heat.17/a~!", 11));
	assert_true(soda_wire_name_ok(longest, SODA_WIRE_MAX_NAME));
	assert_false(soda_wire_name_ok(longest, SODA_WIRE_MAX_NAME + 1));
	assert_false(soda_wire_name_ok("", 0));
	assert_false(soda_wire_name_ok("a b", 3));
	assert_false(soda_wire_name_ok("a\0b", 3));
	assert_false(soda_wire_name_ok("a\n", 2));
	assert_false(soda_wire_name_ok("\xc3\xa9", 2));
}

/* The check */

static int check(const struct soda_wire_piece *pieces, size_t n, uint64_t dest_bytes)
{
	uint64_t copied = 0;
	const char *what = NULL;
	int ret = soda_wire_pieces_check(pieces, n, dest_bytes, &copied, &what);

	assert_true(ret == 0 || what);
	return ret;
}

static int check_one(struct soda_wire_piece p, uint64_t dest_bytes)
{
	return check(&p, 1, dest_bytes);
}

static void test_check_one(void **state)
{
	struct soda_wire_piece p = COPY(1 << 20, 100, 28);

	assert_int_equal(check_one(p, 128), 0);
	assert_int_equal(check_one(p, 127), -EFBIG);
	assert_int_equal(check(&p, 0, 128), -EINVAL);
	p.bytes = 0;
	assert_int_equal(check_one(p, 128), -EINVAL);
	p.bytes = 100;
	p.count = 0;
	assert_int_equal(check_one(p, 128), -EINVAL);
	p.count = 1;
	p.fill = SODA_WIRE_PIECE_AREA + SODA_MOVE_AREAS - 1;
	assert_int_equal(check_one(p, 128), 0); /* whether it is there is not known here */
	p.from = UINT64_MAX - 99;
	assert_int_equal(check_one(p, 128), -EINVAL);
	p.from = 0;
	p.fill++;
	assert_int_equal(check_one(p, 128), -EINVAL);
}

static void test_check_overflow(void **state)
{
	struct soda_wire_piece p = { 4096, 1ull << 32, 0, 1ull << 32, 0, SODA_WIRE_PIECE_COPY };

	assert_int_equal(check_one(p, UINT64_MAX), -EINVAL); /* bytes * count */
	p.count = 1;
	p.offset = UINT64_MAX - 5;
	assert_int_equal(check_one(p, UINT64_MAX), -EINVAL); /* offset + bytes */
	p.offset = 0;
	p.from = UINT64_MAX - 5;
	assert_int_equal(check_one(p, UINT64_MAX), -EINVAL); /* from + bytes */
	p.from = 4096;
	p.bytes = 8;
	p.count = 3;
	p.stride = UINT64_MAX / 2 + 1;
	assert_int_equal(check_one(p, UINT64_MAX), -EINVAL); /* (count - 1) * stride */
	p.stride = UINT64_MAX / 2;
	assert_int_equal(check_one(p, UINT64_MAX), -EINVAL); /* + from + bytes */
	p.fill = 0; /* of a constant no address is looked at */
	assert_int_equal(check_one(p, UINT64_MAX), 0);
}

static void test_check_overlap(void **state)
{
	struct soda_wire_piece p[3] = { COPY(4096, 10, 90), COPY(4096, 40, 0), COPY(4096, 50, 40) };
	struct soda_wire_piece *many;
	const char *what;
	uint64_t copied;

	assert_int_equal(check(p, 3, 100), 0);
	p[1].bytes = p[1].stride = 41;
	assert_int_equal(check(p, 3, 100), -EINVAL);
	p[1].bytes = 40;
	p[2].offset = 39;
	assert_int_equal(check(p, 3, 100), -EINVAL);
	/* one inside another */
	p[2] = (struct soda_wire_piece)COPY(4096, 1, 5);
	assert_int_equal(check(p, 3, 100), -EINVAL);
	/* in either order: the table of extents is sorted */
	p[2].offset = 99;
	assert_int_equal(check(p, 3, 100), -EINVAL);
	many = calloc(SODA_MOVE_LIST_MAX + 1, sizeof(*many));
	for (unsigned i = 0; i <= SODA_MOVE_LIST_MAX; i++)
		many[i] = (struct soda_wire_piece){ 4096,
						    3,
						    3,
						    1,
						    (uint64_t)(SODA_MOVE_LIST_MAX - i) * 3,
						    i % 2 ? SODA_WIRE_PIECE_COPY : 7 };
	assert_int_equal(check(many, SODA_MOVE_LIST_MAX + 1, UINT64_MAX), -E2BIG);
	assert_int_equal(soda_wire_pieces_check(many, SODA_MOVE_LIST_MAX, 3 * 1025, &copied, &what),
			 0);
	assert_int_equal(copied, 3 * SODA_MOVE_LIST_MAX / 2);
	free(many);
}

/* Placing */

/* Place a list by its spans, as getter and library do, in steps of at most max bytes. */
static void place(const struct soda_wire_piece *pieces, size_t n, uint8_t *dest, size_t dest_bytes,
		  uint64_t max)
{
	struct soda_piece_walk walk = { .pieces = pieces, .n = n };
	struct soda_piece_span span;
	uint64_t copied, seen = 0;
	const char *what;

	assert_int_equal(soda_wire_pieces_check(pieces, n, dest_bytes, &copied, &what), 0);
	memset(dest, 0xee, dest_bytes);
	soda_wire_pieces_set(pieces, n, dest, dest_bytes);
	while (soda_piece_walk_next(&walk, max, &span)) {
		assert_true(span.bytes && span.bytes <= max);
		assert_true(span.offset + span.bytes <= dest_bytes);
		memcpy(dest + span.offset, (const void *)(uintptr_t)span.from, span.bytes);
		seen += span.bytes;
	}
	assert_true(seen == copied);
	assert_false(soda_piece_walk_next(&walk, max, &span));
}

static void test_place(void **state)
{
	uint8_t from[64], dest[40], want[40] = { 0 };
	struct soda_wire_piece p[] = {
		/* columns: 2 of each 5 bytes, 4 times; then a constant; then what is contiguous */
		{ (uintptr_t)from, 2, 5, 4, 3, SODA_WIRE_PIECE_COPY },
		{ 0, 3, 0, 2, 12, 0x5a },
		{ (uintptr_t)(from + 30), 4, 4, 3, 20, SODA_WIRE_PIECE_COPY },
		{ (uintptr_t)(from + 60), 1, 1, 1, 39, SODA_WIRE_PIECE_COPY },
	};

	for (unsigned i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i + 1);
	for (unsigned i = 0; i < 4; i++)
		memcpy(want + 3 + 2 * i, from + 5 * i, 2);
	memset(want + 12, 0x5a, 6);
	memcpy(want + 20, from + 30, 12);
	want[39] = from[60];
	for (uint64_t max = 1; max < 20; max++) {
		place(p, 4, dest, sizeof(dest), max);
		assert_memory_equal(dest, want, sizeof(want));
	}
}

/* Contiguous elements are one span; elements that lie apart are one each; stride 0 repeats one. */
static void test_spans(void **state)
{
	struct soda_wire_piece p = { 4096, 8, 8, 1000, 0, SODA_WIRE_PIECE_COPY };
	struct soda_piece_walk walk = { .pieces = &p, .n = 1 };
	struct soda_piece_span span;

	assert_true(soda_piece_walk_next(&walk, UINT64_MAX, &span));
	assert_true(span.from == 4096 && span.bytes == 8000);
	assert_false(soda_piece_walk_next(&walk, UINT64_MAX, &span));
	p.stride = 0;
	walk = (struct soda_piece_walk){ .pieces = &p, .n = 1 };
	for (unsigned i = 0; i < 1000; i++) {
		assert_true(soda_piece_walk_next(&walk, UINT64_MAX, &span));
		assert_true(span.from == 4096 && span.bytes == 8 && span.offset == 8 * i);
	}
	assert_false(soda_piece_walk_next(&walk, UINT64_MAX, &span));
	p.fill = 1;
	walk = (struct soda_piece_walk){ .pieces = &p, .n = 1 };
	assert_false(soda_piece_walk_next(&walk, UINT64_MAX, &span));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),	       cmocka_unit_test(test_piece),
		cmocka_unit_test(test_post),	       cmocka_unit_test(test_send),
		cmocka_unit_test(test_flow),	       cmocka_unit_test(test_bodies),
		cmocka_unit_test(test_names),	       cmocka_unit_test(test_check_one),
		cmocka_unit_test(test_check_overflow), cmocka_unit_test(test_check_overlap),
		cmocka_unit_test(test_place),	       cmocka_unit_test(test_spans),
	};

	return cmocka_run_group_tests_name("movement's wire", tests, NULL, NULL);
}
