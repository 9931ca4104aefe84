/* SPDX-License-Identifier: BSD-3-Clause */
/* A TCP connection's queue against a peer in this process: which requests travel, and that data
 * come to their places. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/tcp/tcp.h"

enum { PAGE = SODA_WIRE_PAGE, REGION_PAGES = 4096, DEPTH = 64 };

static struct soda_tcp_queue q;
static const struct soda_mr mr = { .bytes = REGION_PAGES * PAGE, .region_id = 7 };
static uint8_t *memory; /* DEPTH places of 64 pages */

/* What the peer has got, and what it will answer. */
static struct {
	uint8_t in[1 << 16], *out;
	size_t in_n, out_n, out_at;
	unsigned requests;
	uint64_t refuse; /* page that it has not; ~0: none */
} peer;

static int setup(void **state)
{
	memset(&q, 0, sizeof(q));
	memset(&peer, 0, sizeof(peer));
	peer.refuse = ~0ull;
	peer.out = malloc(DEPTH * 64 * PAGE + (1 << 16));
	memory = malloc(DEPTH * 64 * PAGE);
	return soda_tcp_queue_create(&q, DEPTH);
}

static int teardown(void **state)
{
	soda_tcp_queue_destroy(&q);
	free(peer.out);
	free(memory);
	return 0;
}

static uint8_t content(uint64_t page, size_t at)
{
	return (uint8_t)(page * 31 + at);
}

static void post(uint64_t page, uint32_t pages, uint8_t *to, bool merge)
{
	struct soda_post p = { .mr = &mr,
			       .offset = page * PAGE,
			       .bytes = pages * PAGE,
			       .data = to,
			       .cookie = page,
			       .merge = merge };

	soda_tcp_queue_post(&q, &p);
}

static void answer(const struct soda_wire_read *r, int err)
{
	struct soda_wire_frame f = { .type = SODA_MSG_READ_REPLY,
				     .status = (uint16_t)soda_status_from_errno(err),
				     .length = SODA_WIRE_TAG_BYTES + (err ? 0 : r->size) };
	uint8_t *head = peer.out + peer.out_n;

	memset(head, 0, SODA_WIRE_HEAD_BYTES);
	soda_wire_put_frame(head, &f);
	for (unsigned i = 0; i < SODA_WIRE_TAG_BYTES; i++)
		head[SODA_WIRE_HEAD_BYTES - SODA_WIRE_TAG_BYTES + i] =
			(uint8_t)(r->dest_addr >> 8 * i);
	peer.out_n += SODA_WIRE_HEAD_BYTES;
	for (size_t i = 0; !err && i < r->size; i++)
		peer.out[peer.out_n++] = content(r->page_offset + i / PAGE, i % PAGE);
}

static void serve(void)
{
	size_t at = 0;

	for (; at + SODA_WIRE_HEAD_BYTES <= peer.in_n; at += SODA_WIRE_HEAD_BYTES) {
		struct soda_wire_read r;
		uint64_t pages;

		soda_wire_get_read(peer.in + at + SODA_WIRE_HEAD_BYTES - SODA_WIRE_READ_BYTES, &r);
		assert_int_equal(r.region_id, mr.region_id);
		pages = r.size / PAGE;
		peer.requests++;
		answer(&r, peer.refuse >= r.page_offset && peer.refuse < r.page_offset + pages
				   ? ENOENT
				   : 0);
	}
	memmove(peer.in, peer.in + at, peer.in_n - at);
	peer.in_n -= at;
}

/* Hand over what is to be sent, at most `most` bytes of it. */
static void send_some(size_t most)
{
	int n = soda_tcp_queue_aim_send(&q);
	size_t sent = 0;

	for (int i = 0; i < n && sent < most; i++) {
		size_t bytes = q.tx[i].iov_len < most - sent ? q.tx[i].iov_len : most - sent;

		memcpy(peer.in + peer.in_n, q.tx[i].iov_base, bytes);
		peer.in_n += bytes;
		sent += bytes;
	}
	soda_tcp_queue_sent(&q, sent);
	serve();
}

static void receive_some(size_t most)
{
	size_t total, left = peer.out_n - peer.out_at, got = 0;
	int n;

	if (soda_tcp_queue_has_stash(&q)) {
		assert_int_equal(soda_tcp_queue_use_stash(&q), 0);
		return;
	}
	n = soda_tcp_queue_aim_recv(&q, &total);
	most = most < left ? most : left;
	for (int i = 0; i < n && got < most; i++) {
		size_t bytes = q.rx[i].iov_len < most - got ? q.rx[i].iov_len : most - got;

		memcpy(q.rx[i].iov_base, peer.out + peer.out_at, bytes);
		peer.out_at += bytes;
		got += bytes;
	}
	assert_int_equal(soda_tcp_queue_received(&q, got), 0);
}

static void send_all(void)
{
	while (q.sent != q.posted)
		send_some(SIZE_MAX);
}

static void check(const uint8_t *at, uint64_t page, uint32_t pages)
{
	for (size_t i = 0; i < pages * (size_t)PAGE; i++)
		if (at[i] != content(page + i / PAGE, i % PAGE))
			fail_msg("page %llu: byte %zu is wrong", (unsigned long long)page, i);
}

/* Collect n answers, received in pieces of at most `most` bytes. */
static void collect(struct soda_done *done, int n, size_t most)
{
	int have = 0;

	while (have < n) {
		if (q.received != q.sent)
			receive_some(most);
		have += soda_tcp_queue_report(&q, done + have, n - have);
	}
	assert_true(q.done == q.posted);
}

static void neighbours_are_one_request(void **state)
{
	struct soda_done done[8];

	for (uint32_t i = 0; i < 8; i++)
		post(100 + 4 * i, 4, memory + i * 4 * PAGE, true);
	send_all();
	assert_int_equal(peer.requests, 1);
	collect(done, 8, SIZE_MAX);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(done[i].cookie, 100 + 4 * i);
		assert_int_equal(done[i].bytes, 4 * PAGE);
		assert_int_equal(done[i].status, 0);
	}
	check(memory, 100, 32);
}

/* Not asked for; another place; a gap; one page too many; after the request has gone in part. */
static void others_are_not(void **state)
{
	struct soda_done done[9];

	post(0, 1, memory, false);
	post(1, 1, memory + PAGE, false);
	post(2, 1, memory + 3 * PAGE, true);
	post(4, 1, memory + 4 * PAGE, true);
	send_all();
	assert_int_equal(peer.requests, 4);
	for (uint32_t i = 0; i < 2; i++)
		post(100 + 64 * i, 64 - i, memory + (5 + 64 * i) * PAGE, true);
	send_all();
	assert_int_equal(peer.requests, 6);
	post(300, 1, memory + 200 * PAGE, true);
	send_some(5);
	post(301, 1, memory + 201 * PAGE, true);
	post(302, 1, memory + 202 * PAGE, true);
	send_all();
	assert_int_equal(peer.requests, 8);
	collect(done, 9, SIZE_MAX);
	check(memory + 200 * PAGE, 300, 3);
}

static void parts_complete_as_they_come(void **state)
{
	struct soda_done done[4];

	for (uint32_t i = 0; i < 4; i++)
		post(i, 1, memory + i * PAGE, true);
	send_all();
	receive_some(SODA_WIRE_HEAD_BYTES + 2 * PAGE + 1);
	assert_int_equal(soda_tcp_queue_report(&q, done, 4), 2);
	check(memory, 0, 2);
	receive_some(SIZE_MAX);
	assert_int_equal(soda_tcp_queue_report(&q, done, 4), 2);
	check(memory + 2 * PAGE, 2, 2);
}

/* All parts are refused, and what lies in their places belongs to others. */
static void a_refusal_is_for_all_parts(void **state)
{
	struct soda_done done[8];

	peer.refuse = 11;
	for (uint32_t i = 0; i < 3; i++)
		post(10 + i, 1, memory + i * PAGE, true);
	for (uint32_t i = 0; i < 5; i++)
		post(50 + i, 1, memory + (8 + i) * PAGE, true);
	send_all();
	assert_int_equal(peer.requests, 2);
	collect(done, 8, SIZE_MAX);
	for (int i = 0; i < 8; i++)
		assert_int_equal(done[i].status, i < 3 ? -ENOENT : 0);
	check(memory + 8 * PAGE, 50, 5);
}

static uint32_t random_below(uint32_t n)
{
	static uint32_t seed = 2463534242u;

	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed % n;
}

/* Runs of any length, refusals, and pieces of any size on the way out and in. */
static void any_order_and_any_pieces(void **state)
{
	struct soda_done done[DEPTH];

	for (int round = 0; round < 300; round++) {
		uint32_t n = 1 + random_below(DEPTH), pages[DEPTH];
		uint64_t page[DEPTH], next = random_below(1000);
		uint8_t *to[DEPTH], *place = memory;

		peer.out_n = peer.out_at = 0;
		peer.refuse = random_below(4) ? ~0ull : next + random_below(100);
		for (uint32_t i = 0; i < n; i++) {
			next += random_below(3) ? 0 : random_below(5);
			place += random_below(5) ? 0 : PAGE;
			page[i] = next;
			pages[i] = 1 + random_below(8);
			to[i] = place;
			post(next, pages[i], place, random_below(8));
			next += pages[i];
			place += pages[i] * PAGE;
			if (!random_below(4))
				send_some(1 + random_below(200));
		}
		while (q.sent != q.posted)
			send_some(1 + random_below(200));
		collect(done, (int)n, 1 + random_below(3 * PAGE));
		for (uint32_t i = 0; i < n; i++) {
			assert_int_equal(done[i].cookie, page[i]);
			if (!done[i].status)
				check(to[i], page[i], pages[i]);
			else
				assert_true(peer.refuse != ~0ull);
			if (peer.refuse >= page[i] && peer.refuse < page[i] + pages[i])
				assert_int_equal(done[i].status, -ENOENT);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(neighbours_are_one_request, setup, teardown),
		cmocka_unit_test_setup_teardown(others_are_not, setup, teardown),
		cmocka_unit_test_setup_teardown(parts_complete_as_they_come, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refusal_is_for_all_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(any_order_and_any_pieces, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
