/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs, two-sided: clients that do not keep the protocol lose their connection, are
 * counted, and disturb nobody else.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance.h"
#include "soda.h"
#include "transport/stream/stream.h"
#include "transport/verbs/client/client.h"

static const struct variant variants[] = {
	{ "bad requests, answers by WRITE", VERBS, "", SODA_ENGINE_AUTO, false, true },
	{ "bad requests, answers by SEND", VERBS_SEND, "", SODA_ENGINE_AUTO, false, true },
};

enum { MOST = 64 << 10, CREDITS = 16, BUFFER = 2 * MOST, ROOM = 64 };

/* A data connection without a protocol. */
struct stranger {
	struct soda_verbs_link link;
	struct soda_wire_two_sided two_sided;
	struct ibv_mr *mr;
	uint8_t *buf;
};

static void meet_as(struct env *e, struct stranger *s, uint32_t features)
{
	const struct soda_wire_hello hello = { .magic = SODA_WIRE_MAGIC,
					       .version = SODA_WIRE_VERSION,
					       .kind = SODA_CONN_DATA,
					       .features = features,
					       .chunk_bytes = CHUNK_BYTES,
					       .client_id = 9,
					       .secret = FAKE_SECRET,
					       .epoch = 1 };
	const struct soda_verbs_room room = { .sends = ROOM, .receives = ROOM };
	uint64_t deadline = soda_deadline(TIMEOUT_MS);
	const char *rest = e->address + strlen(SODA_VERBS_PREFIX);
	struct soda_wire_welcome welcome;

	memset(s, 0, sizeof(*s));
	assert_int_equal(soda_verbs_link_resolve(&s->link, rest, deadline, &e->why), 0);
	assert_int_equal(soda_verbs_link_prepare(&s->link, &room, &e->why), 0);
	assert_int_equal(soda_verbs_introduce(&s->link, rest, &hello, NULL, NULL, NULL, deadline,
					      &welcome, &s->two_sided, &e->why),
			 0);
	s->buf = aligned_alloc(4096, BUFFER);
	memset(s->buf, 0, BUFFER);
	assert_int_equal(soda_verbs_register(s->link.pd, s->buf, BUFFER, IBV_ACCESS_LOCAL_WRITE,
					     &s->mr, &e->why),
			 0);
}

static void meet(struct env *e, struct stranger *s)
{
	meet_as(e, s, 0);
	assert_int_equal(s->two_sided.message_bytes, MOST);
	assert_int_equal(s->two_sided.credits, CREDITS);
}

static void part(struct stranger *s)
{
	soda_verbs_link_stop(&s->link);
	soda_verbs_unregister(s->mr);
	free(s->buf);
	soda_verbs_link_close(&s->link);
}

/* A request of that many bytes from the buffer. */
static void say(struct stranger *s, enum ibv_wr_opcode opcode, uint32_t imm, uint32_t bytes)
{
	struct ibv_sge sge = { (uintptr_t)s->buf, bytes, s->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = bytes ? 1 : 0,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = htobe32(imm) },
			   *bad;

	assert_int_equal(ibv_post_send(s->link.id->qp, &wr, &bad), 0);
}

/* What the device says of what was posted. */
static enum ibv_wc_status completion(struct stranger *s)
{
	struct ibv_wc wc;
	int n = 0;

	for (int i = 0; i < TIMEOUT_MS && n == 0; i++) {
		n = ibv_poll_cq(s->link.cq, 1, &wc);
		usleep(n ? 0 : 1000);
	}
	assert_int_equal(n, 1);
	return wc.status;
}

static void expect_answers(struct stranger *s, unsigned n)
{
	struct ibv_recv_wr *bad;

	for (unsigned i = 0; i < n; i++) {
		struct ibv_sge sge = { (uintptr_t)s->buf + MOST, MOST, s->mr->lkey };
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

		assert_int_equal(ibv_post_recv(s->link.id->qp, &wr, &bad), 0);
	}
}

/* It is shown the door, and that is counted. */
static void assert_ended(struct env *e, struct stranger *s, unsigned rejected)
{
	struct pollfd p = { .fd = s->link.end_fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, TIMEOUT_MS), 1);
	await_count(e, &e->fake.rejected, rejected);
	part(s);
}

static void put_read(struct stranger *s, uint64_t page, uint32_t size, uint32_t rkey)
{
	soda_wire_put_read(s->buf, &(struct soda_wire_read){ .region_id = 7,
							     .page_offset = page,
							     .dest_addr = 0x1000,
							     .size = size,
							     .dest_rkey = rkey });
}

static void put_write(struct stranger *s, uint32_t size)
{
	soda_wire_put_write(s->buf, &(struct soda_wire_write){ .region_id = 7, .size = size });
}

static void test_garbage(void **state)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		uint32_t imm, read, write, bytes; /* read, write: the size that is asked for */
	} bad[] = {
		{ IBV_WR_SEND, SODA_MSG_READ, 4096, 0, 24 }, /* no immediate data */
		{ IBV_WR_SEND_WITH_IMM, 0xdeadbeef, 4096, 0, 24 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_PING, 4096, 0, 24 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_READ, 4096, 0, 23 }, /* half a request */
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_READ, 4096, 0, 4096 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_READ, 0, 0, 24 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_READ, 100, 0, 24 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_READ, MOST + 4096, 0, 24 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_READ, 0, 0, 0 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_WRITE, 0, 4096, 12 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_WRITE, 0, 8192, 12 + 4096 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_WRITE, 0, 100, 112 },
		{ IBV_WR_SEND_WITH_IMM, SODA_MSG_WRITE, 0, MOST + 4096, 12 + MOST + 4096 },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, SODA_MSG_READ, 4096, 0, 0 },
	};
	struct env *e = *state;
	struct stranger s;
	struct link l;

	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		meet(e, &s);
		if (bad[i].write)
			put_write(&s, bad[i].write);
		else
			put_read(&s, 0, bad[i].read, 0);
		say(&s, bad[i].opcode, bad[i].imm, bad[i].bytes);
		assert_ended(e, &s, i + 1);
		if (i % 4 == 0)
			assert_works(&l);
	}
	assert_works(&l);
	assert_int_equal(
		wrong_bytes(fake_find(&e->fake, 7)->memory + 512 * 4096, 7, 512 * 4096, 4096), 0);
	link_close(&l);
}

/* Answers by WRITE go nowhere but to memory that the client has given a key to. */
static void test_bad_key(void **state)
{
	struct env *e = *state;
	struct stranger s;
	struct link l;

	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < 3; i++) {
		meet(e, &s);
		if (s.two_sided.answer != SODA_ANSWER_WRITE) {
			part(&s);
			break;
		}
		expect_answers(&s, 1);
		put_read(&s, 0, 4096, i ? 0xbad00u + i : s.mr->rkey);
		say(&s, IBV_WR_SEND_WITH_IMM, SODA_MSG_READ, 24);
		assert_ended(e, &s, i + 1);
		assert_works(&l);
	}
	link_close(&l);
}

/* More requests than there are credits. */
static void test_flood(void **state)
{
	struct env *e = *state;
	struct stranger s;
	struct link l;

	link_open(e, &l, "", 0, 8);
	meet(e, &s);
	fake_stall(&e->fake, true);
	put_read(&s, 0, 4096, 0);
	for (unsigned i = 0; i < 2 * CREDITS; i++)
		say(&s, IBV_WR_SEND_WITH_IMM, SODA_MSG_READ, 24);
	await_count(e, &e->fake.rejected, 1);
	fake_stall(&e->fake, false);
	assert_ended(e, &s, 1);
	assert_works(&l);
	link_close(&l);
}

/* Gone with requests under way, again and again. */
static void test_vanish(void **state)
{
	struct env *e = *state;
	struct stranger s;
	struct link l;

	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < 8; i++) {
		meet(e, &s);
		put_write(&s, MOST);
		for (unsigned k = 0; k < i; k++)
			say(&s, IBV_WR_SEND_WITH_IMM, SODA_MSG_WRITE, 12 + MOST);
		part(&s);
	}
	await_count(e, &e->fake.gone, 8);
	assert_works(&l);
	link_close(&l);
}

/* The first half of a WRITE; the rest is no memory of ours, and with that the connection ends. */
static void say_half(struct stranger *s)
{
	struct ibv_sge sge[] = { { (uintptr_t)s->buf, 12 + MOST / 2, s->mr->lkey },
				 { (uintptr_t)s->buf, MOST / 2, s->mr->lkey + 1 } };
	struct ibv_send_wr wr = { .sg_list = sge,
				  .num_sge = 2,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .send_flags = IBV_SEND_SIGNALED,
				  .imm_data = htobe32(SODA_MSG_WRITE) },
			   *bad;

	put_write(s, MOST);
	assert_int_equal(ibv_post_send(s->link.id->qp, &wr, &bad), 0);
	assert_int_not_equal(completion(s), IBV_WC_SUCCESS);
}

/* Gone in the middle of a message, more often than there are receives: each has come back. */
static void test_vanish_within(void **state)
{
	enum { TIMES = 72 };
	struct env *e = *state;
	struct stranger s;
	struct link l;

	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < TIMES; i++) {
		meet(e, &s);
		say_half(&s);
		part(&s);
	}
	await_count(e, &e->fake.gone, TIMES);
	assert_works(&l);
	link_close(&l);
}

/* What the connection manager would choose is chosen here: for a link that loses packets. */
static void test_patience(void **state)
{
	enum { MASK = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER };
	struct env *e = *state;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct stranger s;

	meet(e, &s);
	assert_int_equal(ibv_query_qp(s.link.id->qp, &attr, MASK, &init), 0);
	assert_int_equal(attr.timeout, SODA_VERBS_ACK_TIMEOUT);
	assert_int_equal(attr.retry_cnt, SODA_VERBS_RETRIES);
	assert_int_equal(attr.rnr_retry, SODA_VERBS_RETRIES);
	assert_int_equal(attr.min_rnr_timer, SODA_VERBS_RNR_TIMER);
	part(&s);
}

/* By a key to a part of the static cache: what the device says of it. */
static enum ibv_wc_status use_key(struct stranger *s, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)s->buf, 4096, s->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma.rkey = rkey },
			   *bad;

	assert_int_equal(ibv_post_send(s->link.id->qp, &wr, &bad), 0);
	return completion(s);
}

/* A key of the static cache reads and does not write; and requests are not taken beside it. */
static void test_key_writes(void **state)
{
	struct soda_wire_advise a = { 7, SODA_STATIC_CACHE, 8192, 8192 };
	struct soda_static_map *map = NULL;
	struct env *e = *state;
	struct stranger s;
	struct link l;

	link_open(e, &l, "", 0, 8);
	assert_int_equal(soda_conn_advise(l.control, &a, &map, TIMEOUT_MS, &e->why), 0);
	meet_as(e, &s, SODA_FEATURE_KEYED);
	assert_int_equal(s.two_sided.message_bytes, 0);
	assert_int_equal(use_key(&s, IBV_WR_RDMA_READ, map->rkey), IBV_WC_SUCCESS);
	assert_int_equal(wrong_bytes(s.buf, 7, 4096, 4096), 0);
	memset(s.buf, 0, 4096);
	assert_int_equal(use_key(&s, IBV_WR_RDMA_WRITE, map->rkey), IBV_WC_REM_ACCESS_ERR);
	part(&s);
	assert_int_equal(wrong_bytes(e->fake.advised, 7, 4096, 3 * 4096), 0);
	/* the memory of requests is in another protection domain */
	meet(e, &s);
	assert_int_not_equal(use_key(&s, IBV_WR_RDMA_READ, map->rkey), IBV_WC_SUCCESS);
	part(&s);
	assert_works(&l);
	soda_conn_unmap_static(map);
	link_close(&l);
}

#define ASKED(f)                                                                                   \
	{                                                                                          \
#f, f, env_setup, env_teardown, NULL                                               \
	}

int run_asked_on_verbs(void)
{
	int failed = 0;

	for (unsigned v = 0; env_has_verbs() && v < sizeof(variants) / sizeof(variants[0]); v++) {
		struct CMUnitTest tests[] = { ASKED(test_garbage),	ASKED(test_bad_key),
					      ASKED(test_flood),	ASKED(test_vanish),
					      ASKED(test_key_writes),	ASKED(test_patience),
					      ASKED(test_vanish_within) };
		/* the last one has nothing to do with answers, and takes long */
		size_t n = sizeof(tests) / sizeof(tests[0]) - (v > 0);

		for (size_t i = 0; i < n; i++)
			tests[i].initial_state = (void *)(uintptr_t)&variants[v];
		failed += _cmocka_run_group_tests(variants[v].name, tests, n, NULL, NULL);
	}
	return failed;
}
