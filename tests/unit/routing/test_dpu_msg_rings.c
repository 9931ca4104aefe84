/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agent's side of a rank's rings, with a program on the other side that this test plays: what
 * is well-formed goes through, also where indices wrap, and whatever else is written there is found
 * before it is used.
 */
#include <errno.h>
#include <fcntl.h>
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

enum { RANKS = 3, LANE = 1, INBOX = SODA_MSG_INBOX_LEAST, HEAD = SODA_WIRE_MSG_PACKET_BYTES };

static struct soda_msg_rings *rings;
static struct soda_inbox inbox;
static uint8_t unused[INBOX];

static int setup(void **state)
{
	struct soda_why why = { "" };

	assert_int_equal(soda_msg_rings_make(RANKS, INBOX, &rings, &why), 0);
	soda_inbox_init(&inbox, unused, INBOX);
	assert_true(soda_inbox_share(&inbox, rings));
	return 0;
}

static int teardown(void **state)
{
	soda_inbox_destroy(&inbox);
	soda_msg_rings_destroy(rings);
	return 0;
}

static uint8_t *slot_at(uint32_t lane, uint32_t index)
{
	return rings->slots +
	       (size_t)(lane * SODA_RING_SLOTS + index % SODA_RING_SLOTS) * rings->sizes.slot_bytes;
}

static _Atomic uint32_t *size_at(uint32_t lane, uint32_t index)
{
	return &rings->bytes[lane * SODA_RING_SLOTS + index % SODA_RING_SLOTS];
}

/* As a program does it: a packet of so many bytes, which are all `what`. */
static void fill(uint32_t lane, uint32_t bytes, uint8_t what)
{
	uint32_t tail = atomic_load(&rings->tails[lane]);
	struct soda_wire_msg_packet p = { lane, bytes, what, 0 };

	soda_wire_put_msg_packet(slot_at(lane, tail), &p);
	memset(slot_at(lane, tail) + HEAD, what, bytes);
	atomic_store(size_at(lane, tail), HEAD + bytes);
	atomic_store(&rings->tails[lane], tail + 1);
}

static int peek(uint32_t lane, struct soda_wire_msg_packet *p)
{
	const uint8_t *runs = NULL;
	int ret = soda_msg_rings_peek(rings, lane, p, &runs);

	if (ret == 1)
		assert_ptr_equal(runs, slot_at(lane, rings->heads[lane]) + HEAD);
	return ret;
}

/* Through a lane, all slots in turns, and where 32 bits end. */
static void test_lane(void **state)
{
	struct soda_wire_msg_packet p;

	assert_false(soda_msg_rings_any(rings));
	assert_int_equal(peek(LANE, &p), 0);
	rings->heads[LANE] = UINT32_MAX - 5;
	atomic_store(&rings->tails[LANE], UINT32_MAX - 5);
	for (unsigned i = 0; i < 20; i++) {
		fill(LANE, 8 * i, (uint8_t)i);
		fill(LANE, 16, 77);
		assert_true(soda_msg_rings_any(rings));
		for (unsigned k = 0; k < 2; k++) {
			assert_int_equal(peek(LANE, &p), 1);
			assert_int_equal(p.rank, LANE);
			assert_int_equal(p.bytes, k ? 16 : 8 * i);
			assert_int_equal(p.messages, k ? 77 : i);
			soda_msg_rings_take(rings, LANE);
			assert_int_equal(atomic_load(&rings->heads_shown[LANE]),
					 rings->heads[LANE]);
		}
		assert_int_equal(peek(LANE, &p), 0);
	}
	assert_int_equal(peek(0, &p), 0);
	assert_int_equal(peek(2, &p), 0);
}

/* A full lane is one; one slot more is not. */
static void test_tail(void **state)
{
	static const uint32_t wrong[] = { SODA_RING_SLOTS + 1, 1000, 1u << 31, UINT32_MAX };
	struct soda_wire_msg_packet p;

	for (unsigned i = 0; i < SODA_RING_SLOTS; i++)
		fill(LANE, 8, 1);
	assert_int_equal(peek(LANE, &p), 1);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		atomic_store(&rings->tails[LANE], wrong[i]);
		assert_true(soda_msg_rings_any(rings));
		assert_int_equal(peek(LANE, &p), -EPROTO);
	}
	/* back again, behind what was taken */
	atomic_store(&rings->tails[LANE], SODA_RING_SLOTS);
	soda_msg_rings_take(rings, LANE);
	atomic_store(&rings->tails[LANE], 0);
	assert_int_equal(peek(LANE, &p), -EPROTO);
	/* what the agent has written there is the agent's: the program's word for it is none */
	atomic_store(&rings->heads_shown[LANE], 77);
	atomic_store(&rings->tails[LANE], SODA_RING_SLOTS);
	assert_int_equal(peek(LANE, &p), 1);
}

/* Sizes and heads that are no packet's, or another lane's. */
static void test_packet(void **state)
{
	const uint32_t slot = rings->sizes.slot_bytes;
	const uint32_t sizes[] = { 0,  1,	 HEAD - 1, HEAD,       HEAD + 8,
				   60, slot + 8, 1u << 31, UINT32_MAX, HEAD + 24 };
	const struct soda_wire_msg_packet heads[] = {
		{ LANE, 8, 1, 0 },
		{ LANE, 24, 1, 0 },
		{ LANE, 15, 1, 0 },
		{ LANE, UINT32_MAX - 7, 1, 0 },
		{ LANE, SODA_MSG_PACKET_MAX, 1, 0 },
		{ LANE + 1, 16, 1, 0 },
		{ RANKS, 16, 1, 0 },
		{ UINT32_MAX, 16, 1, 0 },
	};
	struct soda_wire_msg_packet p;

	fill(LANE, 16, 5);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		atomic_store(size_at(LANE, 0), sizes[i]);
		assert_int_equal(peek(LANE, &p), -EPROTO);
	}
	atomic_store(size_at(LANE, 0), HEAD + 16);
	assert_int_equal(peek(LANE, &p), 1);
	for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		soda_wire_put_msg_packet(slot_at(LANE, 0), &heads[i]);
		assert_int_equal(peek(LANE, &p), -EPROTO);
	}
}

static bool put(uint32_t bytes, uint8_t what)
{
	static uint8_t runs[SODA_MSG_PACKET_MAX];
	struct soda_wire_msg_packet p = { 99, bytes, what, 0 };

	memset(runs, what, bytes);
	return soda_inbox_put(&inbox, 2, &p, runs);
}

static int hear(uint32_t *ends_p, bool *made_room_p)
{
	return soda_inbox_hear(&inbox, ends_p, made_room_p);
}

/* Packets lie in the shared ring, and its room is the program's to give back. */
static void test_inbox(void **state)
{
	struct soda_wire_msg_packet p;
	uint64_t at = 0, n = 0;
	bool made_room;
	uint32_t ends;

	for (unsigned i = 0; i < 1000; i++) {
		const uint32_t bytes = 8 * (i * 37 % 900);

		while (put(bytes, (uint8_t)i))
			n++;
		assert_int_equal(atomic_load(&rings->in->wanted), 1);
		assert_true(atomic_load(&rings->in->tail) - at <= INBOX);
		/* the oldest */
		assert_int_equal(soda_wire_get_msg_packet(rings->inbox + at % INBOX, INBOX, &p), 0);
		assert_int_equal(p.rank, 2);
		at += HEAD + p.bytes;
		n--;
		atomic_store(&rings->out->pulled, at);
		assert_int_equal(hear(&ends, &made_room), 0);
		assert_true(made_room);
		assert_int_equal(atomic_load(&rings->in->wanted), 0);
		if (INBOX - at % INBOX < HEAD) { /* whose head would be cut: pull all */
			at = atomic_load(&rings->in->tail);
			n = 0;
			atomic_store(&rings->out->pulled, at);
			assert_int_equal(hear(&ends, &made_room), 0);
		}
	}
	assert_true(n);
}

/* Room is found where the program has made some and nobody has told. */
static void test_room(void **state)
{
	bool made_room;
	uint32_t ends;

	while (put(8000, 1))
		;
	atomic_store(&rings->out->pulled, atomic_load(&rings->in->tail));
	assert_false(put(8000, 1)); /* somebody waits: who serves the rings is to tell first */
	assert_int_equal(hear(&ends, &made_room), 0);
	assert_true(made_room);
	while (inbox.size - (inbox.tail - inbox.head) >= 8000 + HEAD)
		assert_true(put(8000, 1));
	atomic_store(&rings->out->pulled, atomic_load(&rings->in->tail));
	assert_true(put(8000, 1));
	assert_int_equal(atomic_load(&rings->in->wanted), 0);
}

/* Beyond what is there, back, an end that was not, one before its bytes. */
static void test_pulled(void **state)
{
	struct soda_rings_out *out = rings->out;
	bool made_room;
	uint32_t ends;

	assert_true(put(16, 1));
	assert_true(put(16, 2));
	atomic_store(&out->pulled, 2 * (HEAD + 16) + 1);
	assert_int_equal(hear(&ends, &made_room), -EPROTO);
	atomic_store(&out->pulled, UINT64_MAX);
	assert_int_equal(hear(&ends, &made_room), -EPROTO);
	atomic_store(&out->pulled, HEAD + 16);
	assert_int_equal(hear(&ends, &made_room), 0);
	atomic_store(&out->pulled, 0);
	assert_int_equal(hear(&ends, &made_room), -EPROTO);
	atomic_store(&out->pulled, HEAD + 16);
	atomic_store(&out->ended, 1);
	assert_int_equal(hear(&ends, &made_room), -EPROTO);
	atomic_store(&out->ended, 0);
	soda_inbox_end(&inbox);
	assert_int_equal(atomic_load(&rings->in->ends), 1);
	assert_int_equal(atomic_load(&rings->in->end_at[0]), 2 * (HEAD + 16));
	assert_true(put(16, 3));
	atomic_store(&out->ended, 1);
	assert_int_equal(hear(&ends, &made_room), -EPROTO);
	atomic_store(&out->pulled, 2 * (HEAD + 16));
	assert_int_equal(hear(&ends, &made_room), 0);
	assert_int_equal(ends, 1);
	atomic_store(&out->ended, 2);
	assert_int_equal(hear(&ends, &made_room), -EPROTO);
	atomic_store(&out->ended, 0);
	assert_int_equal(hear(&ends, &made_room), -EPROTO);
	assert_int_equal(inbox.head, 2 * (HEAD + 16)); /* nothing of that was followed */
}

/* What the program gets cannot shrink, and of the agent's part it writes nothing. */
static void test_sealed(void **state)
{
	const size_t out_bytes = soda_rings_out_bytes(RANKS, rings->sizes.slot_bytes);
	void *p;

	assert_true(ftruncate(rings->out_fd, 0) < 0);
	assert_true(ftruncate(rings->in_fd, 0) < 0);
	assert_true(ftruncate(rings->in_fd, 1 << 30) < 0);
	assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, rings->in_fd, 0) ==
		    MAP_FAILED);
	assert_true(pwrite(rings->in_fd, "x", 1, 0) < 0);
	assert_true(fallocate(rings->out_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) ==
		    0); /* its own: zeros */
	p = mmap(NULL, out_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rings->out_fd, 0);
	assert_true(p != MAP_FAILED);
	munmap(p, out_bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lane, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tail, setup, teardown),
		cmocka_unit_test_setup_teardown(test_packet, setup, teardown),
		cmocka_unit_test_setup_teardown(test_inbox, setup, teardown),
		cmocka_unit_test_setup_teardown(test_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pulled, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sealed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
