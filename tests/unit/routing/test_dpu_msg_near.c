/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets between two agents of one machine: what is put on one side, and taken on the other. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "routing/inbox.h"
#include "routing/near.h"
#include "wire/field.h"

enum { RANKS = 3, EACH = SODA_MSG_INBOX_LEAST, HEAD = SODA_WIRE_MSG_PACKET_BYTES };

static struct soda_msg_near_out out;
static struct soda_msg_near_in *in;
static struct soda_inbox inboxes[RANKS];
static uint8_t unused[EACH], runs[SODA_MSG_PACKET_MAX];

static int begin(void **state)
{
	struct soda_why why;

	memset(&out, 0, sizeof(out));
	assert_int_equal(soda_msg_near_make(RANKS, EACH, &out, &why), 0);
	assert_int_equal(soda_msg_near_map(out.fd, RANKS, EACH, &in), 0);
	for (unsigned i = 0; i < RANKS; i++) {
		soda_inbox_init(&inboxes[i], unused, EACH);
		assert_true(soda_inbox_move(&inboxes[i], out.rings + (size_t)i * EACH));
	}
	return 0;
}

static int end(void **state)
{
	for (unsigned i = 0; i < RANKS; i++)
		soda_inbox_destroy(&inboxes[i]);
	soda_msg_near_unmap(in);
	soda_msg_near_destroy(&out);
	return 0;
}

static uint64_t tail_of(unsigned ring)
{
	uint64_t head, tail;

	soda_inbox_span(&inboxes[ring], &head, &tail);
	return tail;
}

static bool put(unsigned ring, uint32_t from, uint32_t bytes, uint8_t mark)
{
	const struct soda_wire_msg_packet p = { .rank = ring, .bytes = bytes, .messages = 1 };

	memset(runs, mark, bytes);
	return soda_inbox_put(&inboxes[ring], from, &p, runs);
}

/* The next one of the ring is so, and is taken. */
static void take(unsigned ring, uint32_t from, uint32_t bytes, uint8_t mark)
{
	struct soda_wire_msg_packet p;
	const uint8_t *at;
	bool made_room;

	assert_int_equal(soda_msg_near_peek(in, ring, tail_of(ring), &p, &at), 1);
	assert_int_equal(p.rank, from);
	assert_int_equal(p.bytes, bytes);
	for (uint32_t i = 0; i < bytes; i++)
		assert_int_equal(at[i], mark);
	soda_msg_near_take(in, ring, &p);
	soda_inbox_drop(&inboxes[ring], HEAD + bytes, &made_room);
}

/* Rings are apart, packets whole also around their end, and as many as fit. */
static void there_and_back(void **state)
{
	struct soda_wire_msg_packet p;
	const uint8_t *at;
	uint32_t size = 8;

	for (unsigned i = 0; i < 1000; i++) {
		unsigned ring = i % RANKS;

		assert_true(put(ring, i % 7, size, (uint8_t)i));
		assert_true(put((ring + 1) % RANKS, 1, 16, 99));
		take(ring, i % 7, size, (uint8_t)i);
		take((ring + 1) % RANKS, 1, 16, 99);
		assert_int_equal(soda_msg_near_peek(in, ring, tail_of(ring), &p, &at), 0);
		size = (size * 5 + 8) % (SODA_MSG_PACKET_MAX - HEAD) & ~7u;
	}
	assert_true(in->taken[0] > 4ull * EACH);
	while (put(2, 5, 1000, 7))
		;
	while (soda_msg_near_peek(in, 2, tail_of(2), &p, &at))
		take(2, 5, 1000, 7);
	assert_true(put(2, 5, 1000, 7));
}

/* What no agent would say, or has put there. */
static void nonsense(void **state)
{
	struct soda_wire_msg_packet p = { .rank = 0, .bytes = 1000, .messages = 1 };
	const uint8_t *at;

	assert_true(put(1, 0, 1000, 1));
	assert_int_equal(soda_msg_near_peek(in, 1, EACH + 1, &p, &at), -EPROTO);
	assert_int_equal(soda_msg_near_peek(in, 1, UINT64_MAX, &p, &at), -EPROTO);
	assert_int_equal(soda_msg_near_peek(in, 1, HEAD - 1, &p, &at), -EPROTO);
	assert_int_equal(soda_msg_near_peek(in, 1, HEAD + 999, &p, &at), -EPROTO);
	for (uint32_t bytes = 993; bytes < 1000; bytes++) { /* not whole words */
		soda_wire_put_msg_packet(out.rings + EACH,
					 &(struct soda_wire_msg_packet){ .bytes = bytes });
		assert_int_equal(soda_msg_near_peek(in, 1, tail_of(1), &p, &at), -EPROTO);
	}
	soda_wire_put_msg_packet(out.rings + EACH,
				 &(struct soda_wire_msg_packet){ .bytes = UINT32_MAX & ~7u });
	assert_int_equal(soda_msg_near_peek(in, 1, EACH, &p, &at), -EPROTO);
	soda_wire_put_msg_packet(out.rings + EACH,
				 &(struct soda_wire_msg_packet){ .bytes = SODA_MSG_PACKET_MAX });
	assert_int_equal(soda_msg_near_peek(in, 1, EACH, &p, &at), -EPROTO);
}

/* Only memory that is as large, and can have no less, is mapped; and it cannot be written. */
static void other_memory(void **state)
{
	struct soda_msg_near_in *other = NULL;
	int fd = memfd_create("other", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)RANKS * EACH), 0);
	assert_int_equal(soda_msg_near_map(fd, RANKS, EACH, &other), -EPROTO); /* not sealed */
	close(fd);
	assert_int_equal(soda_msg_near_map(out.fd, RANKS + 1, EACH, &other), -EPROTO);
	assert_int_equal(soda_msg_near_map(-1, RANKS, EACH, &other), -EPROTO);
	assert_null(other);
	assert_ptr_equal(mmap(NULL, EACH, PROT_READ | PROT_WRITE, MAP_SHARED, out.fd, 0),
			 MAP_FAILED);
}

/* Where a packet has been put already the ring stays where it is. */
static void too_late(void **state)
{
	assert_true(put(0, 0, 8, 1));
	assert_false(soda_inbox_move(&inboxes[0], unused));
	take(0, 0, 8, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(there_and_back, begin, end),
		cmocka_unit_test_setup_teardown(nonsense, begin, end),
		cmocka_unit_test_setup_teardown(other_memory, begin, end),
		cmocka_unit_test_setup_teardown(too_late, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
