/* SPDX-License-Identifier: BSD-3-Clause */
/* The layouts of wire.h byte by byte, and what the decoders and checks refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "wire/pool.h"
#include "wire/wire.h"

#define PAGES_48 0xa1a2a3a4a5a6u

static void test_sizes(void **state)
{
	assert_int_equal(SODA_WIRE_READ_BYTES, 24); /* Table I */
	assert_int_equal(SODA_WIRE_WRITE_BYTES, 12);
	assert_int_equal(SODA_WIRE_FRAME_BYTES, 8);
	assert_int_equal(SODA_WIRE_HELLO_BYTES, sizeof(struct soda_wire_hello));
	assert_int_equal(SODA_WIRE_WELCOME_BYTES, sizeof(struct soda_wire_welcome));
	assert_int_equal(SODA_WIRE_OPEN_MARKED_BYTES, sizeof(struct soda_wire_open));
	assert_int_equal(SODA_WIRE_OPENED_BYTES, sizeof(struct soda_wire_opened));
}

static void test_frame(void **state)
{
	static const uint8_t bytes[8] = { 1, 2, 0x34, 0x12, 0x78, 0x56, 0x34, 0x12 };
	struct soda_wire_frame f = {
		.type = 1, .flags = 2, .status = 0x1234, .length = 0x12345678
	};
	uint8_t out[8];

	soda_wire_put_frame(out, &f);
	assert_memory_equal(out, bytes, 8);
	memset(&f, 0, sizeof(f));
	soda_wire_get_frame(bytes, &f);
	assert_int_equal(f.type, 1);
	assert_int_equal(f.flags, 2);
	assert_int_equal(f.status, 0x1234);
	assert_int_equal(f.length, 0x12345678);
}

static void test_read(void **state)
{
	static const uint8_t bytes[24] = { 0x02, 0x01, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1,
					   8,	 7,    6,    5,	   4,	 3,    2,    1,
					   0x0d, 0x0c, 0x0b, 0x0a, 0x4d, 0x4c, 0x4b, 0x4a };
	struct soda_wire_read r = { .region_id = 0x0102,
				    .page_offset = PAGES_48,
				    .dest_addr = 0x0102030405060708,
				    .size = 0x0a0b0c0d,
				    .dest_rkey = 0x4a4b4c4d };
	struct soda_wire_read back;
	uint8_t out[24];

	soda_wire_put_read(out, &r);
	assert_memory_equal(out, bytes, 24);
	soda_wire_get_read(bytes, &back);
	assert_int_equal(back.region_id, r.region_id);
	assert_true(back.page_offset == r.page_offset);
	assert_true(back.dest_addr == r.dest_addr);
	assert_int_equal(back.size, r.size);
	assert_int_equal(back.dest_rkey, r.dest_rkey);
	/* the 48 bits of an offset do not spill over its neighbours */
	r.page_offset = UINT64_MAX;
	soda_wire_put_read(out, &r);
	assert_memory_equal(out + 8, bytes + 8, 16);
}

static void test_has(void **state)
{
	static const uint8_t bytes[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
	struct soda_wire_residency h;
	uint8_t out[16];

	soda_wire_get_residency(bytes, &h);
	assert_true(h.after == 0x0807060504030201 && h.before == 0x100f0e0d0c0b0a09);
	soda_wire_put_residency(out, &h);
	assert_memory_equal(out, bytes, 16);
}

/* How a two-sided peer over verbs is asked: what cannot be is refused. */
static void test_asked(void **state)
{
	static const uint8_t bytes[8] = { 0x00, 0x00, 0x01, 0x00, 16, 1, 1, 0 };
	static const struct soda_wire_two_sided bad[] = {
		{ 4095, 16, 0, 0 }, { 65536, 0, 0, 0 }, { 65536, 16, 0, 2 }, { 8 << 20, 1, 0, 0 },
		{ 0, 1, 0, 0 },	    { 0, 0, 1, 0 },	{ 0, 0, 0, 1 },
	};
	struct soda_wire_two_sided a = { 65536, 16, SODA_TWO_SIDED_KEEPS, SODA_ANSWER_SEND }, back;
	uint8_t out[8];

	soda_wire_put_two_sided(out, &a);
	assert_memory_equal(out, bytes, 8);
	assert_int_equal(soda_wire_get_two_sided(bytes, 8, &back), 0);
	assert_int_equal(back.message_bytes, 65536);
	assert_int_equal(back.credits, 16);
	assert_int_equal(back.features, SODA_TWO_SIDED_KEEPS);
	assert_int_equal(back.answer, SODA_ANSWER_SEND);
	assert_int_equal(soda_wire_get_two_sided(bytes, 7, &back), -EPROTO);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		soda_wire_put_two_sided(out, &bad[i]);
		assert_int_equal(soda_wire_get_two_sided(out, 8, &back), -EPROTO);
	}
	memset(out, 0, sizeof(out)); /* a one-sided peer */
	assert_int_equal(soda_wire_get_two_sided(out, 8, &back), 0);
	assert_int_equal(back.message_bytes, 0);
}

static void test_write(void **state)
{
	static const uint8_t bytes[12] = { 0x02, 0x01, 0xa6, 0xa5, 0xa4, 0xa3,
					   0xa2, 0xa1, 0x0d, 0x0c, 0x0b, 0x0a };
	struct soda_wire_write w = { .region_id = 0x0102,
				     .page_offset = PAGES_48,
				     .size = 0x0a0b0c0d };
	struct soda_wire_write back;
	uint8_t out[12];

	soda_wire_put_write(out, &w);
	assert_memory_equal(out, bytes, 12);
	soda_wire_get_write(bytes, &back);
	assert_int_equal(back.region_id, w.region_id);
	assert_true(back.page_offset == w.page_offset);
	assert_int_equal(back.size, w.size);
}

static void test_code(void **state)
{
	struct soda_wire_code c = { .data_n = SODA_WIRE_CODE_DATA_MAX, .parity = 1, .last = true },
			      d;
	uint8_t out[SODA_WIRE_CODE_BYTES_MAX];

	for (uint16_t i = 0; i < c.data_n; i++)
		c.from[i] = (struct soda_wire_origin){ 1ull << 40 | i, ~0ull - i, i };
	assert_int_equal(soda_wire_put_code(out, &c), sizeof(out));
	assert_true(soda_wire_get_code(out, sizeof(out), &d));
	assert_int_equal(d.data_n, c.data_n);
	assert_int_equal(d.parity, 1);
	assert_true(d.last);
	for (int i = 0; i < c.data_n; i++) {
		assert_int_equal(d.from[i].client_id, c.from[i].client_id);
		assert_int_equal(d.from[i].secret, c.from[i].secret);
		assert_int_equal(d.from[i].region_id, c.from[i].region_id);
	}
	for (uint32_t n = 0; n < sizeof(out); n++) /* cut off */
		assert_false(soda_wire_get_code(out, n, &d));
	for (int i = 0; i < 4; i++) { /* out of range: each of the first four bytes */
		uint8_t was = out[i];

		out[i] = 9;
		assert_false(soda_wire_get_code(out, sizeof(out), &d));
		out[i] = was;
	}
	out[0] = 0;
	assert_false(soda_wire_get_code(out, SODA_WIRE_CODE_HEAD_BYTES, &d));
}

static void test_hello(void **state)
{
	struct soda_wire_hello h = { .magic = SODA_WIRE_MAGIC,
				     .version = 2,
				     .kind = 3,
				     .features = 4,
				     .chunk_bytes = 5,
				     .uid = 6,
				     .gid = 7,
				     .pid = 8,
				     .client_id = 9,
				     .secret = 10,
				     .epoch = 11 };
	struct soda_wire_hello back;
	uint8_t out[SODA_WIRE_HELLO_BYTES];

	soda_wire_put_hello(out, &h);
	assert_memory_equal(out, "SODA\2\0\0\0\3", 9);
	assert_int_equal(soda_wire_get_hello(out, sizeof(out), &back), 0);
	assert_memory_equal(&back, &h, sizeof(h));
	assert_int_equal(soda_wire_get_hello(out, sizeof(out) - 1, &back), -EPROTO);
	assert_int_equal(soda_wire_get_hello(out, sizeof(out) + 1, &back), -EPROTO);
	assert_int_equal(soda_wire_get_hello(out, 0, &back), -EPROTO);
}

static void test_welcome(void **state)
{
	struct soda_wire_welcome w = { .version = 1,
				       .max_data = 2,
				       .instance_id = 3,
				       .client_id = 4,
				       .secret = 5,
				       .capacity = 6,
				       .free_bytes = 7,
				       .known = 8 };
	struct soda_wire_welcome back;
	uint8_t out[SODA_WIRE_WELCOME_BYTES];

	soda_wire_put_welcome(out, &w);
	assert_int_equal(soda_wire_get_welcome(out, sizeof(out), &back), 0);
	assert_memory_equal(&back, &w, sizeof(w));
	assert_int_equal(soda_wire_get_welcome(out, sizeof(out) - 1, &back), -EPROTO);
}

/* What a file has; of an answer of nonsense, nothing. */
static void test_content(void)
{
	const struct soda_wire_content said = { .state = SODA_WIRE_CONTENT_KNOWN,
						.kind = SODA_WIRE_CONTENT_SHA256,
						.file_bytes = 1ull << 40,
						.hash = { 1, 2, [31] = 32 } };
	uint8_t out[SODA_WIRE_CONTENT_BYTES + 8] = { 0 };
	struct soda_wire_content got;

	soda_wire_put_content(out, &said);
	assert_int_equal(soda_wire_get_content(out, SODA_WIRE_CONTENT_BYTES, &got), 0);
	assert_memory_equal(&got, &said, sizeof(said));
	assert_int_equal(soda_wire_get_content(out, SODA_WIRE_CONTENT_BYTES + 8, &got), 0);
	assert_int_equal(soda_wire_get_content(out, SODA_WIRE_CONTENT_BYTES - 1, &got), -EPROTO);
	out[0] = 3; /* a state that cannot be */
	assert_int_equal(soda_wire_get_content(out, SODA_WIRE_CONTENT_BYTES, &got), -EPROTO);
	out[0] = SODA_WIRE_CONTENT_COMPUTING;
	out[4] = 2; /* and a kind */
	assert_int_equal(soda_wire_get_content(out, SODA_WIRE_CONTENT_BYTES, &got), -EPROTO);
}

static void test_pool(void **state)
{
	struct soda_wire_tell t = { .program = 1ull << 40,
				    .members = 2,
				    .slabs = 3,
				    .missing = 4,
				    .here = 5,
				    .expelled = 6ull << 40,
				    .rebuilt = 7ull << 40,
				    .moved = 8ull << 40,
				    .rebuilt_bytes = 9ull << 40,
				    .ask = SODA_WIRE_POOL_SPREAD,
				    .held = 10 };
	struct soda_wire_member m = {
		.capacity = 1ull << 40, .free_bytes = 2ull << 40, .flags = 3, .domain = "rack-1.b:2"
	};
	struct soda_wire_member member;
	struct soda_wire_tell tell;
	uint8_t out[SODA_WIRE_MEMBER_BYTES + 8] = { 0 };

	soda_wire_put_tell(out, &t);
	assert_int_equal(soda_wire_get_tell(out, SODA_WIRE_TELL_BYTES, &tell), 0);
	assert_memory_equal(&tell, &t, sizeof(t));
	assert_int_equal(soda_wire_get_tell(out, SODA_WIRE_TELL_BYTES - 1, &tell), -EPROTO);
	out[56] = SODA_WIRE_POOL_MEMBERS + 1; /* an ask that cannot be */
	assert_int_equal(soda_wire_get_tell(out, SODA_WIRE_TELL_BYTES, &tell), -EPROTO);
	out[56] = 0;
	/* of a later version */
	assert_int_equal(soda_wire_get_tell(out, SODA_WIRE_TELL_BYTES + 8, &tell), 0);
	soda_wire_put_member(out, &m);
	assert_int_equal(soda_wire_get_member(out, SODA_WIRE_MEMBER_BYTES, &member), 0);
	assert_int_equal(member.capacity, m.capacity);
	assert_int_equal(member.free_bytes, m.free_bytes);
	assert_int_equal(member.flags, 3);
	assert_string_equal(member.domain, m.domain);
	assert_int_equal(soda_wire_get_member(out, SODA_WIRE_MEMBER_BYTES - 1, &member), -EPROTO);
	assert_int_equal(soda_wire_get_member(out, SODA_WIRE_MEMBER_BYTES + 8, &member), 0);
	out[SODA_WIRE_MEMBER_BYTES - SODA_WIRE_DOMAIN_MAX - 1] = ' ';
	assert_int_equal(soda_wire_get_member(out, SODA_WIRE_MEMBER_BYTES, &member), -EPROTO);
	memset(out + SODA_WIRE_MEMBER_BYTES - SODA_WIRE_DOMAIN_MAX - 1, 'x',
	       SODA_WIRE_DOMAIN_MAX + 1);
	assert_int_equal(soda_wire_get_member(out, SODA_WIRE_MEMBER_BYTES, &member), -EPROTO);
	out[SODA_WIRE_MEMBER_BYTES - 1] = 0;
	assert_int_equal(soda_wire_get_member(out, SODA_WIRE_MEMBER_BYTES, &member), 0);
	m.domain[0] = '\0';
	soda_wire_put_member(out, &m);
	assert_int_equal(soda_wire_get_member(out, SODA_WIRE_MEMBER_BYTES, &member), 0);
	assert_string_equal(member.domain, "");
	test_content();
}

static void test_open(void **state)
{
	struct soda_wire_open o = {
		.region_id = 1, .name_bytes = 5, .flags = 3, .bytes = 1ull << 40
	};
	uint8_t out[SODA_WIRE_OPEN_BYTES + 300];
	struct soda_wire_open back;
	const char *name = NULL;

	soda_wire_put_open(out, &o);
	memcpy(out + SODA_WIRE_OPEN_BYTES, "graph", 5);
	assert_int_equal(soda_wire_get_open(out, SODA_WIRE_OPEN_BYTES + 5, &back, &name), 0);
	assert_memory_equal(&back, &o, sizeof(o));
	assert_memory_equal(name, "graph", 5);
	assert_int_equal(soda_wire_get_open(out, SODA_WIRE_OPEN_BYTES + 4, &back, &name), -EPROTO);
	assert_int_equal(soda_wire_get_open(out, SODA_WIRE_OPEN_BYTES + 6, &back, &name), -EPROTO);
	assert_int_equal(soda_wire_get_open(out, SODA_WIRE_OPEN_BYTES - 1, &back, &name), -EPROTO);
	assert_int_equal(soda_wire_get_open(out, 0, &back, &name), -EPROTO);
	o.name_bytes = SODA_WIRE_MAX_NAME;
	soda_wire_put_open(out, &o);
	assert_int_equal(
		soda_wire_get_open(out, SODA_WIRE_OPEN_BYTES + SODA_WIRE_MAX_NAME, &back, &name),
		0);
	o.name_bytes = SODA_WIRE_MAX_NAME + 1;
	soda_wire_put_open(out, &o);
	assert_int_equal(soda_wire_get_open(out, SODA_WIRE_OPEN_BYTES + SODA_WIRE_MAX_NAME + 1,
					    &back, &name),
			 -EPROTO);
}

/* A client's mark of a WRITABLE file lies between head and name. */
static void test_marked_open(void **state)
{
	struct soda_wire_open o = {
		.region_id = 1, .name_bytes = 5, .flags = 2, .mark = UINT64_MAX, .again = 1
	};
	uint8_t out[SODA_WIRE_OPEN_MARKED_BYTES + 5];
	struct soda_wire_open back;
	const char *name = NULL;

	assert_int_equal(soda_wire_put_marked_open(out, &o), SODA_WIRE_OPEN_MARKED_BYTES);
	memcpy(out + SODA_WIRE_OPEN_MARKED_BYTES, "graph", 5);
	assert_int_equal(soda_wire_get_open(out, sizeof(out), &back, &name), 0);
	assert_memory_equal(&back, &o, sizeof(o));
	assert_memory_equal(name, "graph", 5);
	assert_int_equal(soda_wire_get_open(out, sizeof(out) - 1, &back, &name), -EPROTO);
	o.mark = 0;
	assert_int_equal(soda_wire_put_marked_open(out, &o), SODA_WIRE_OPEN_BYTES);
}

static void test_opened(void **state)
{
	struct soda_wire_opened o = { .bytes = 1, .file_id = 2, .generation = UINT64_MAX }, back;
	uint8_t out[SODA_WIRE_OPENED_BYTES];

	soda_wire_put_opened(out, &o);
	assert_int_equal(soda_wire_get_opened(out, sizeof(out), &back), 0);
	assert_memory_equal(&back, &o, sizeof(o));
	assert_int_equal(soda_wire_get_opened(out, sizeof(out) - 1, &back), -EPROTO);
}

static void test_status(void **state)
{
	for (unsigned s = 0; s <= SODA_ST_MAX; s++)
		assert_int_equal(soda_status_from_errno(soda_status_to_errno(s)), s);
	assert_int_equal(soda_status_to_errno(SODA_ST_MAX + 1), EPROTO);
	assert_int_equal(soda_status_to_errno(UINT32_MAX), EPROTO);
	assert_int_equal(soda_status_from_errno(EXDEV), SODA_ST_IO);
	assert_int_equal(soda_status_from_errno(-1), SODA_ST_IO);
}

static void test_ranges(void **state)
{
	const uint64_t huge = 1ull << 59;

	assert_int_equal(soda_wire_check_range(0, 4096, 4096), 0);
	assert_int_equal(soda_wire_check_range(0, 4096, 1), 0); /* whole pages */
	assert_int_equal(soda_wire_check_range(1, 4096, 4097), 0);
	assert_int_equal(soda_wire_check_range(1, 4096, 4096), -EINVAL);
	assert_int_equal(soda_wire_check_range(0, 8192, 4096), -EINVAL);
	assert_int_equal(soda_wire_check_range(0, 4096, 0), -EINVAL);
	assert_int_equal(soda_wire_check_range(0, 0, 4096), -EPROTO);
	assert_int_equal(soda_wire_check_range(0, 100, 4096), -EPROTO);
	assert_int_equal(soda_wire_check_range(0, 4097, 65536), -EPROTO);
	assert_int_equal(soda_wire_check_range(0, SODA_WIRE_MAX_DATA, huge), 0);
	assert_int_equal(soda_wire_check_range(0, SODA_WIRE_MAX_DATA + 4096, huge), -EPROTO);
	assert_int_equal(soda_wire_check_range(huge / 4096 - 1, 4096, huge), 0);
	assert_int_equal(soda_wire_check_range(huge / 4096, 4096, huge), -EINVAL);
	assert_int_equal(soda_wire_check_range((1ull << 48) - 1, 4096, huge), -EINVAL);
	assert_int_equal(soda_wire_check_range(UINT64_MAX, 4096, UINT64_MAX), -EINVAL);
	assert_int_equal(soda_wire_check_range(UINT64_MAX / 4096, 4096, UINT64_MAX), 0);
}

static void test_advise(void **state)
{
	static const uint8_t bytes[24] = { 2, 1, 8, 0, 0, 0,  0, 0, 0, 16, 0, 0,
					   1, 0, 0, 0, 0, 32, 0, 0, 0, 0,  0, 0 };
	static const uint8_t answer[16] = { 0, 16, 0, 0, 1, 0, 0, 0, 0, 48 };
	struct soda_wire_advise a = { 0x0102, 8, 0x100001000, 0x2000 }, back;
	struct soda_wire_advised got = { 0x100001000, 0x3000 }, got_back;
	uint8_t out[24];

	assert_int_equal(SODA_WIRE_ADVISE_BYTES, sizeof(a));
	assert_int_equal(SODA_WIRE_ADVISED_BYTES, sizeof(got));
	soda_wire_put_advise(out, &a);
	assert_memory_equal(out, bytes, 24);
	assert_int_equal(soda_wire_get_advise(bytes, 24, &back), 0);
	assert_int_equal(back.region_id, a.region_id);
	assert_int_equal(back.advice, a.advice);
	assert_int_equal(back.offset, a.offset);
	assert_int_equal(back.bytes, a.bytes);
	assert_int_equal(soda_wire_get_advise(bytes, 23, &back), -EPROTO);
	soda_wire_put_advised(out, &got);
	assert_memory_equal(out, answer, 16);
	assert_int_equal(soda_wire_get_advised(answer, 16, &got_back), 0);
	assert_memory_equal(&got_back, &got, sizeof(got));
	assert_int_equal(soda_wire_get_advised(answer, 0, &got_back), -EPROTO);
}

static void test_node_store(void **state)
{
	static const uint8_t bytes[22] = { 2, 1, 3, 0, 9, 0, 0, 0, 0, 0, 0,
					   0, 8, 0, 0, 0, 0, 0, 0, 0, 7, 6 };
	static const uint8_t answer[20] = { 0, 16, 0, 0, 1, 0, 0, 0, 0, 0,
					    1, 0,  5, 0, 0, 0, 2, 0, 7, 0 };
	struct soda_wire_store s = { .region_id = 0x0102, .part = 3 };
	const struct soda_wire_stored got = { 0x100001000, 0x10000, 5, 2, 7 };
	struct soda_wire_store back;
	struct soda_wire_stored got_back;
	uint8_t out[SODA_WIRE_STORE_AS_BYTES];

	assert_int_equal(soda_wire_put_store(out, &s), 4);
	assert_memory_equal(out, bytes, 4);
	assert_int_equal(soda_wire_get_store(bytes, 4, &back), 0);
	assert_int_equal(back.region_id, s.region_id);
	assert_int_equal(back.part, s.part);
	assert_int_equal(back.as.client_id, 0);
	assert_int_equal(soda_wire_get_store(bytes, 3, &back), -EPROTO);
	s.as = (struct soda_wire_origin){ .client_id = 9, .secret = 8, .region_id = 0x0607 };
	assert_int_equal(soda_wire_put_store(out, &s), 22);
	assert_memory_equal(out, bytes, 22);
	assert_int_equal(soda_wire_get_store(bytes, 22, &back), 0);
	assert_int_equal(back.as.client_id, 9);
	assert_int_equal(back.as.secret, 8);
	assert_int_equal(back.as.region_id, 0x0607);
	memset(out + 4, 0, 8); /* nobody */
	assert_int_equal(soda_wire_get_store(out, 22, &back), -EPROTO);
	soda_wire_put_stored(out, &got);
	assert_memory_equal(out, answer, 20);
	assert_int_equal(soda_wire_get_stored(answer, 20, &got_back), 0);
	assert_int_equal(got_back.map_bytes, got.map_bytes);
	assert_int_equal(got_back.chunk_bytes, got.chunk_bytes);
	assert_int_equal(got_back.chunks, got.chunks);
	assert_int_equal(got_back.parts, got.parts);
	assert_int_equal(got_back.member, got.member);
	assert_int_equal(soda_wire_get_stored(answer, 19, &got_back), -EPROTO);
}

static void test_discard(void **state)
{
	static const uint8_t bytes[24] = { 2, 1, 0, 0, 0, 0,  0, 0, 0, 16, 0, 0,
					   1, 0, 0, 0, 0, 32, 0, 0, 0, 0,  0, 0 };
	const struct soda_wire_discard d = { 0x0102, 0x100001000, 0x2000 };
	const uint64_t end = 0x100003000;
	struct soda_wire_discard back, bad = d;
	uint8_t out[24];

	assert_int_equal(SODA_WIRE_DISCARD_BYTES, sizeof(d));
	soda_wire_put_discard(out, &d);
	assert_memory_equal(out, bytes, 24);
	assert_int_equal(soda_wire_get_discard(bytes, 24, &back), 0);
	assert_int_equal(back.region_id, d.region_id);
	assert_int_equal(back.offset, d.offset);
	assert_int_equal(back.bytes, d.bytes);
	assert_int_equal(soda_wire_get_discard(bytes, 23, &back), -EPROTO);
	assert_int_equal(soda_wire_check_discard(&d, end), 0);
	assert_int_equal(soda_wire_check_discard(&d, end - 1), 0); /* its last page */
	assert_int_equal(soda_wire_check_discard(&d, end - 4096), -EINVAL);
	bad.bytes = 0;
	assert_int_equal(soda_wire_check_discard(&bad, end), -EINVAL);
	bad.bytes = 0x1001;
	assert_int_equal(soda_wire_check_discard(&bad, end), -EINVAL);
	bad.bytes = UINT64_MAX - 4095;
	assert_int_equal(soda_wire_check_discard(&bad, end), -EINVAL);
	bad = (struct soda_wire_discard){ .offset = 1, .bytes = 4096 };
	assert_int_equal(soda_wire_check_discard(&bad, end), -EINVAL);
	bad.offset = UINT64_MAX - 4095;
	assert_int_equal(soda_wire_check_discard(&bad, end), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),	    cmocka_unit_test(test_frame),
		cmocka_unit_test(test_advise),	    cmocka_unit_test(test_node_store),
		cmocka_unit_test(test_discard),	    cmocka_unit_test(test_read),
		cmocka_unit_test(test_write),	    cmocka_unit_test(test_hello),
		cmocka_unit_test(test_code),	    cmocka_unit_test(test_welcome),
		cmocka_unit_test(test_pool),	    cmocka_unit_test(test_open),
		cmocka_unit_test(test_marked_open), cmocka_unit_test(test_opened),
		cmocka_unit_test(test_status),	    cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_asked),	    cmocka_unit_test(test_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
