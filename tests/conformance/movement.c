/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Movement over each transport: the agent without its main() and libsoda-move in one process, so
 * that a test can hold a get wherever it wants (soda_source_ops).
 *   test_movement_agent [verbs [CASE]]: only where SODA_TEST_VERBS names an address
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent_here.h"
#include "movement/mover.h"
#include "soda_move.h"
#include "wire/field.h"

enum {
	TIMEOUT_MS = AGENT_TIMEOUT_MS,
	SOON_MS = 20,
	PAGE = 4096,
	BYTES = 300 * 1024 + 77, /* several PUTs, and no whole pages */
	BUDGET = 64 << 20,
};

struct place {
	struct agent agent;
	struct soda_mover *mover;
	struct soda_move_buffer *buffer;
	struct soda_move_reader *reader;
};

static struct place place;
static struct soda_source_ops real_ops;
static uint8_t data[BYTES], want[BYTES];

/*
 * Holding a get: each read of data waits while `closed`, or from an address between these; reads of
 * the token do not.
 */
static struct {
	_Atomic bool closed;
	_Atomic uintptr_t from, to;
	_Atomic unsigned waiting, reads;
	_Atomic bool dead; /* the process has ended, as the pidfd says */
} gate;

static bool is_held(uintptr_t at)
{
	return gate.closed || (at >= gate.from && at < gate.to);
}

static ssize_t gated_readv(pid_t pid, const struct iovec *local, unsigned long local_n,
			   const struct iovec *remote, unsigned long remote_n)
{
	bool token = local_n == 1 && local->iov_len == SODA_MOVE_TOKEN_BYTES;

	if (!token) {
		gate.reads++;
		gate.waiting++;
		for (int ms = 0; is_held((uintptr_t)remote->iov_base) && ms < TIMEOUT_MS; ms++)
			poll(NULL, 0, 1);
		gate.waiting--;
	}
	return real_ops.readv(pid, local, local_n, remote, remote_n);
}

static int gated_ended(int pidfd)
{
	return gate.dead ? 1 : real_ops.ended(pidfd);
}

static void await_gate(void)
{
	for (int ms = 0; !gate.waiting && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	assert_true(gate.waiting);
}

static const char *address(void)
{
	return soda_listener_address(place.agent.listener);
}

static void start_agent(const char *where, uint64_t budget)
{
	memset(&place, 0, sizeof(place));
	memset(&gate, 0, sizeof(gate));
	soda_source_ops.readv = gated_readv;
	soda_source_ops.ended = gated_ended;
	agent_start(&place.agent, budget);
	agent_listen(&place.agent, where);
}

/* An assertion of the library's call, with its sentence. */
#define OK(call)                                                                                   \
	do {                                                                                       \
		int ret_ = (call);                                                                 \
		if (ret_)                                                                          \
			fail_msg("%s: %d: %s", #call, ret_, soda_move_last_error());               \
	} while (0)
#define FAILS(call, err)                                                                           \
	do {                                                                                       \
		int ret_ = (call);                                                                 \
		if (ret_ != (err))                                                                 \
			fail_msg("%s: %d, expected %d: %s", #call, ret_, (err),                    \
				 soda_move_last_error());                                          \
		assert_true(*soda_move_last_error());                                              \
	} while (0)

/* Agent, a producer with one buffer, and a consumer of it. */
static void up(const char *where, unsigned copies, unsigned flags)
{
	struct soda_move_buffer_options how = {
		.bytes = BYTES, .copies = copies, .mode = 0444, .flags = flags
	};

	start_agent(where, BUDGET);
	OK(soda_move_connect(address(), &place.mover));
	assert_int_equal(soda_move_way(place.mover),
			 strncmp(where, "shm", 3) ? SODA_MOVE_STREAM : SODA_MOVE_READS);
	OK(soda_move_reserve(place.mover, "heat", &how, &place.buffer));
	OK(soda_move_open(address(), "heat", 0, &place.reader));
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
}

static void stop_agent(void)
{
	agent_stop(&place.agent);
	soda_source_ops = real_ops;
}

static void down(void)
{
	soda_move_close(place.reader);
	soda_move_disconnect(place.mover);
	stop_agent();
}

static struct soda_move_ticket *post(const struct soda_move_piece *pieces, size_t n)
{
	struct soda_move_ticket *t = NULL;

	OK(soda_move(place.buffer, pieces, n, &t));
	assert_non_null(t);
	return t;
}

static struct soda_move_ticket *post_all(void)
{
	struct soda_move_piece p = { .from = data, .bytes = BYTES };

	return post(&p, 1);
}

static int wait_for(struct soda_move_ticket *t, uint64_t *step_p)
{
	static bool limited; /* who waits without a limit may do the library's work meanwhile */

	limited = !limited;
	return soda_move_wait(t, limited ? TIMEOUT_MS : -1, step_p);
}

/* The consumer's next step after `after`: its number, and that its content is `want`. */
static void check_next(uint64_t after, uint64_t number, const void *content)
{
	struct soda_move_step step;

	OK(soda_move_next(place.reader, after, TIMEOUT_MS, &step));
	assert_int_equal(step.number, number);
	assert_int_equal(step.bytes, BYTES);
	assert_memory_equal(step.data, content, BYTES);
	OK(soda_move_release(place.reader, &step));
}

static void check_none(uint64_t after)
{
	struct soda_move_step step;

	FAILS(soda_move_next(place.reader, after, 0, &step), -ETIMEDOUT);
}

/* Whole buffers, again and again over the same copies. */
static void moved(const char *where)
{
	uint64_t step;

	up(where, 2, 0);
	check_none(0);
	for (uint64_t i = 1; i <= 10; i++) {
		memset(data + 1000, (int)i, 5000);
		OK(wait_for(post_all(), &step));
		assert_int_equal(step, i);
		check_next(i - 1, i, data);
	}
	assert_int_equal(place.agent.dpu.movement.published, 10);
	assert_int_equal(place.agent.dpu.movement.failed, 0);
	assert_int_equal(place.agent.dpu.movement.read_bytes +
				 place.agent.dpu.movement.streamed_bytes,
			 10 * BYTES);
	assert_int_equal(agent_list_bytes(&place.agent), 0);
	down();
}

/* Columns of a table of records, a constant, and what no piece covers. */
static void placed(const char *where)
{
	struct record {
		double x;
		uint32_t n;
		uint8_t flag;
	} *records = calloc(1000, sizeof(*records));
	struct soda_move_piece p[] = {
		{ .from = &records->n,
		  .bytes = 4,
		  .stride = sizeof(*records),
		  .count = 1000,
		  .offset = 8192 },
		{ .from = &records->x,
		  .bytes = 8,
		  .stride = sizeof(*records),
		  .count = 1000,
		  .offset = 64 },
		{ .bytes = 100, .count = 3, .offset = 8064 - 300 + 100, .fill = 0xa5 },
		{ .from = data, .bytes = BYTES - 65536, .offset = 65536 },
	};

	up(where, 1, 0);
	memset(want, 0, sizeof(want));
	p[2].offset = 7000 + 1064;
	p[2].count = 1;
	for (unsigned i = 0; i < 1000; i++) {
		records[i] = (struct record){ i * 1.5, i * 3, 1 };
		memcpy(want + 64 + 8 * i, &records[i].x, 8);
		memcpy(want + 8192 + 4 * i, &records[i].n, 4);
	}
	memset(want + 8064, 0xa5, 100);
	memcpy(want + 65536, data, BYTES - 65536);
	OK(wait_for(post_all(), NULL)); /* so that the copy is full of something else */
	OK(wait_for(post(p, 4), NULL));
	check_next(1, 2, want);
	/* nothing to fetch at all */
	memset(want, 0x77, sizeof(want));
	want[BYTES - 1] = 0;
	p[0] = (struct soda_move_piece){ .bytes = BYTES - 1, .fill = 0x77 };
	OK(wait_for(post(p, 1), NULL));
	check_next(2, 3, want);
	free(records);
	down();
}

/* Memory that is not there is the ticket's error, and nothing else's. */
static void unreadable(const char *where)
{
	uint8_t *hole =
		mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct soda_move_piece p[2] = {
		{ .from = data, .bytes = 1000, .offset = 64 * PAGE },
		{ .from = hole, .bytes = 64 * PAGE },
	};
	uint64_t step = 0;

	assert_true(hole != MAP_FAILED);
	mprotect(hole + 40 * PAGE, PAGE, PROT_NONE); /* munmap: another thread may map there */
	up(where, 1, 0);
	FAILS(wait_for(post(p, 2), &step), -EFAULT);
	p[1].from = (void *)(uintptr_t)16;
	FAILS(wait_for(post(p, 2), &step), -EFAULT);
	p[1].from = (void *)(uintptr_t)(UINT64_MAX / 2);
	FAILS(wait_for(post(p, 2), &step), -EFAULT);
	assert_int_equal(step, 0);
	check_none(0);
	OK(wait_for(post_all(), &step));
	assert_int_equal(step, 1);
	check_next(0, 1, data);
	assert_int_equal(place.agent.dpu.movement.failed, 3);
	munmap(hole, 64 * PAGE);
	down();
}

/*
 * More than one call carries (a SEND, a part of a get): elements apart, memory that is missing far
 * behind, a ticket that is cancelled, and what was handed over behind these.
 */
static void longer(const char *where)
{
	enum { LONG = 9 * 1024 * 1024 + 13, ELEMENTS = 3000 };
	uint8_t *from =
		mmap(NULL, LONG + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct soda_move_buffer_options how = { .bytes = LONG, .copies = 2, .mode = 0444 };
	struct soda_move_piece p[] = {
		{ .from = from, .bytes = LONG - 3 * ELEMENTS, .offset = 3 * ELEMENTS },
		{ .from = from + LONG / 2, .bytes = 3, .stride = 1001, .count = ELEMENTS },
	};
	struct soda_move_reader *reader = NULL;
	struct soda_move_buffer *b = NULL;
	struct soda_move_ticket *t[4];
	struct soda_move_step step;
	uint64_t number;
	int ret;

	assert_true(from != MAP_FAILED);
	for (size_t i = 0; i < LONG; i++)
		from[i] = (uint8_t)(i * 13 + i / 509);
	up(where, 1, 0);
	OK(soda_move_reserve(place.mover, "long", &how, &b));
	OK(soda_move_open(address(), "long", 0, &reader));
	OK(soda_move(b, p, 2, &t[0]));
	OK(wait_for(t[0], &number));
	OK(soda_move_next(reader, 0, TIMEOUT_MS, &step));
	assert_int_equal(step.number, 1);
	assert_memory_equal((const uint8_t *)step.data + 3 * ELEMENTS, from, LONG - 3 * ELEMENTS);
	for (size_t i = 0; i < ELEMENTS; i++)
		assert_memory_equal((const uint8_t *)step.data + 3 * i, from + LONG / 2 + 1001 * i,
				    3);
	OK(soda_move_release(reader, &step));
	/* within the third part, and far behind a good beginning */
	mprotect(from + 2200 * PAGE, PAGE, PROT_NONE);
	for (unsigned i = 0; i < 3; i++)
		OK(soda_move(b, p, i == 1 ? 1 : 2, &t[i]));
	ret = soda_move_cancel(t[2]);
	assert_true(ret == 0 || ret == -EALREADY);
	p[0].bytes = 2200 * PAGE;
	OK(soda_move(b, p, 1, &t[3]));
	FAILS(wait_for(t[0], &number), -EFAULT);
	FAILS(wait_for(t[1], &number), -EFAULT);
	ret = wait_for(t[2], &number);
	assert_true(ret == -ECANCELED || ret == -EFAULT);
	OK(wait_for(t[3], &number));
	assert_int_equal(number, 2);
	OK(soda_move_next(reader, 1, TIMEOUT_MS, &step));
	assert_memory_equal((const uint8_t *)step.data + 3 * ELEMENTS, from, p[0].bytes);
	assert_int_equal(((const uint8_t *)step.data)[LONG - 1], 0);
	OK(soda_move_release(reader, &step));
	soda_move_close(reader);
	munmap(from, LONG + PAGE);
	down();
}

/* Lists that are refused at once. */
static void refused(const char *where)
{
	struct soda_move_piece p[2] = { { .from = data, .bytes = 100 },
					{ .from = data, .bytes = 100, .offset = 99 } };
	struct soda_move_buffer_options how = { .bytes = BYTES, .mode = 0444 };
	struct soda_move_ticket *t = NULL;
	struct soda_move_buffer *b = NULL;

	up(where, 1, 0);
	FAILS(soda_move(place.buffer, p, 0, &t), -EINVAL);
	FAILS(soda_move(place.buffer, p, 2, &t), -EINVAL);
	FAILS(soda_move(place.buffer, p, SODA_MOVE_PIECES_MAX + 1, &t), -E2BIG);
	p[1].offset = BYTES - 99;
	FAILS(soda_move(place.buffer, p, 2, &t), -EFBIG);
	p[1] = (struct soda_move_piece){ .bytes = 1, .offset = 500, .fill = 256 };
	FAILS(soda_move(place.buffer, p, 2, &t), -EINVAL);
	p[1].fill = 0;
	p[1].reserved = 1;
	FAILS(soda_move(place.buffer, p, 2, &t), -EINVAL);
	assert_null(t);
	FAILS(soda_move_reserve(place.mover, "heat", &how, &b), -EEXIST);
	FAILS(soda_move_reserve(place.mover, "a b", &how, &b), -EINVAL);
	how.bytes = BUDGET;
	FAILS(soda_move_reserve(place.mover, "b", &how, &b), -ENOSPC);
	how.bytes = 0;
	FAILS(soda_move_reserve(place.mover, "b", &how, &b), -EINVAL);
	assert_null(b);
	down();
}

/* Hand over, when there is a credit for it. */
static void post_patiently(const struct soda_move_piece *p, struct soda_move_ticket **t_p)
{
	int ret = -EAGAIN;

	for (int ms = 0; ret == -EAGAIN && ms < TIMEOUT_MS; ms++) {
		ret = soda_move(place.buffer, p, 1, t_p);
		if (ret == -EAGAIN)
			poll(NULL, 0, 1);
	}
	OK(ret);
}

/* As many tickets as there are credits, one after the other, in their order. */
static void many(const char *where)
{
	struct soda_move_ticket *t[SODA_MOVE_TICKETS_MAX], *one_more = NULL;
	struct soda_move_piece p = { .from = data, .bytes = 5000 };
	uint64_t step;

	up(where, 3, 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < SODA_MOVE_TICKETS_MAX; i++)
			t[i] = post(&p, 1);
		FAILS(soda_move(place.buffer, &p, 1, &one_more), -EAGAIN);
		for (unsigned i = SODA_MOVE_TICKETS_MAX; i--;) {
			OK(wait_for(t[i], &step));
			assert_int_equal(step, round * SODA_MOVE_TICKETS_MAX + i + 1);
		}
	}
	/* and of those that nobody asks for, any number: their credits come back by themselves */
	for (unsigned i = 0; i < 200; i++)
		post_patiently(&p, NULL);
	post_patiently(&p, &t[0]);
	while ((step = 0, soda_move_test(t[0], &step)) == -EINPROGRESS)
		poll(NULL, 0, 1);
	assert_int_equal(step, 3 * SODA_MOVE_TICKETS_MAX + 201);
	assert_int_equal(agent_list_bytes(&place.agent), 0);
	down();
}

/* The end of a buffer comes after the lists that were handed over before it. */
static void ended(const char *where)
{
	struct soda_move_buffer_options how = { .bytes = BYTES, .mode = 0444 };
	struct soda_move_piece p = { .from = data, .bytes = BYTES };
	struct soda_move_reader *late = NULL;
	struct soda_move_step step;

	up(where, 4, 0);
	for (int i = 0; i < 4; i++)
		OK(soda_move(place.buffer, &p, 1, NULL));
	OK(soda_move_end(place.buffer));
	FAILS(soda_move_open(address(), "heat", SOON_MS, &late), -ENOENT);
	for (uint64_t i = 1; i <= 4; i++)
		check_next(i - 1, i, data);
	FAILS(soda_move_next(place.reader, 4, -1, &step), -EPIPE);
	FAILS(soda_move_release(place.reader, &(struct soda_move_step){ .number = 2 }), -EINVAL);
	/* the name is free, and the steps of the old buffer are not the new one's */
	OK(soda_move_reserve(place.mover, "heat", &how, &place.buffer));
	OK(soda_move_open(address(), "heat", TIMEOUT_MS, &late));
	FAILS(soda_move_next(late, 0, 0, &step), -ETIMEDOUT);
	soda_move_close(late);
	down();
}

/* A consumer that holds on: what it sees does not change. */
static void held(const char *where)
{
	struct soda_move_step one, two;

	up(where, 2, 0);
	OK(wait_for(post_all(), NULL));
	OK(soda_move_next(place.reader, 0, TIMEOUT_MS, &one));
	memset(data, 1, sizeof(data));
	OK(wait_for(post_all(), NULL));
	OK(soda_move_next(place.reader, 1, TIMEOUT_MS, &two));
	assert_memory_equal(two.data, data, BYTES);
	FAILS(soda_move_next(place.reader, 0, 0, &two), -EBUSY);
	FAILS(wait_for(post_all(), NULL), -ENOSPC);
	assert_int_equal(((const uint8_t *)one.data)[BYTES - 1],
			 (uint8_t)((BYTES - 1) * 7 + (BYTES - 1) / 251));
	soda_move_close(place.reader); /* it gives both back, without a word */
	place.reader = NULL;
	for (int ms = 0, ret = -ENOSPC; ret; ms++) {
		assert_true(ms < TIMEOUT_MS);
		poll(NULL, 0, 1);
		ret = wait_for(post_all(), NULL);
	}
	down();
}

static void *wait_next(void *reader)
{
	static struct soda_move_step step;

	OK(soda_move_next(reader, 0, -1, &step));
	return &step;
}

/* The agent's end is an error of everything, and of nothing for ever. */
static void lost(const char *where)
{
	struct soda_move_buffer_options how = { .bytes = BYTES, .mode = 0444 };
	struct soda_move_piece p = { .from = data, .bytes = BYTES };
	struct soda_move_ticket *t = NULL;
	struct soda_move_step step, *first;
	struct soda_move_buffer *b;
	pthread_t thread;

	up(where, 2, 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_next, place.reader), 0);
	OK(wait_for(post_all(), NULL));
	pthread_join(thread, (void **)&first);
	stop_agent();
	assert_memory_equal(first->data, data, BYTES); /* still there to be read */
	FAILS(soda_move_next(place.reader, 1, -1, &step), -ENOTCONN);
	FAILS(soda_move_release(place.reader, first), -ENOTCONN);
	if (soda_move(place.buffer, &p, 1, &t) == 0) /* that it is lost may not be known yet */
		FAILS(wait_for(t, NULL), -ENOTCONN);
	FAILS(soda_move(place.buffer, &p, 1, &t), -ENOTCONN);
	FAILS(soda_move_reserve(place.mover, "b", &how, &b), -ENOTCONN);
	FAILS(soda_move_end(place.buffer), -ENOTCONN);
	soda_move_close(place.reader);
	soda_move_disconnect(place.mover);
	soda_move_disconnect(NULL);
	soda_move_close(NULL);
}

/* An agent without memory for this says so. */
static void none(const char *where)
{
	struct soda_mover *m = NULL;
	struct soda_move_reader *r = NULL;

	start_agent(where, 0);
	FAILS(soda_move_connect(address(), &m), -ENOTSUP);
	assert_non_null(strstr(soda_move_last_error(), "--move-memory"));
	FAILS(soda_move_open(address(), "heat", 0, &r), -ENOTSUP);
	assert_true(!m && !r);
	stop_agent();
}

/* By hand */

static struct soda_conn *join(void)
{
	struct soda_wire_hello hello = { .epoch = 1 };
	struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = TIMEOUT_MS };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn = NULL;
	struct soda_why why;

	if (soda_conn_connect(address(), &hello, &opt, &conn, &welcome, &why))
		fail_msg("%s: %s", address(), why.text);
	return conn;
}

static uint8_t answer[SODA_WIRE_MAX_CONTROL];
static size_t answer_bytes;

static int ask(struct soda_conn *conn, int type, const void *body, size_t bytes)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct soda_why why;

	return soda_conn_call(conn, (enum soda_msg)type, &iov, 1, answer, sizeof(answer),
			      &answer_bytes, TIMEOUT_MS, &why);
}

static int ask_number(struct soda_conn *conn, int type, uint64_t number, size_t bytes)
{
	uint8_t body[8];

	soda_wire_put_u64(body, number);
	return ask(conn, type, body, bytes);
}

static void start_by_hand(struct soda_conn *conn)
{
	struct soda_wire_move_start start = { .version = SODA_MOVE_VERSION };
	uint8_t body[SODA_WIRE_MOVE_START_BYTES];

	soda_wire_put_move_start(body, &start);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_START, body, sizeof(body)), 0);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_START, body, sizeof(body)), -EBUSY);
}

static void reserve_by_hand(struct soda_conn *conn, const char *name, uint64_t bytes)
{
	struct soda_wire_move_reserve r = { bytes, 1, 0444, 0 };
	uint8_t body[SODA_WIRE_MOVE_RESERVE_BYTES + 16];

	soda_wire_put_move_reserve(body, &r);
	memcpy(body + SODA_WIRE_MOVE_RESERVE_BYTES, name, strlen(name));
	assert_int_equal(
		ask(conn, SODA_MSG_MOVE_RESERVE, body, SODA_WIRE_MOVE_RESERVE_BYTES + strlen(name)),
		0);
	assert_int_equal(soda_wire_get_u32(answer), 0);
}

static int post_as(struct soda_conn *conn, int type, uint64_t number, uint32_t buffer,
		   struct soda_wire_piece piece)
{
	struct soda_wire_move_post p = { number, buffer, 1 };
	uint8_t body[SODA_WIRE_MOVE_POST_BYTES + SODA_WIRE_PIECE_BYTES];

	soda_wire_put_move_post(body, &p);
	soda_wire_put_piece(body + SODA_WIRE_MOVE_POST_BYTES, &piece);
	return ask(conn, type, body, sizeof(body));
}

static int post_by_hand(struct soda_conn *conn, uint64_t number, uint32_t buffer,
			struct soda_wire_piece piece)
{
	return post_as(conn, SODA_MSG_MOVE_POST, number, buffer, piece);
}

static int put_by_hand(struct soda_conn *conn, uint64_t number, uint64_t at, size_t bytes)
{
	struct soda_wire_move_put p = { number, at };
	uint8_t body[SODA_WIRE_MOVE_PUT_BYTES + 256] = { 0 };

	soda_wire_put_move_put(body, &p);
	return ask(conn, SODA_MSG_MOVE_PUT, body, SODA_WIRE_MOVE_PUT_BYTES + bytes);
}

/* What makes no sense is refused, and the connection and what it has done before stay. */
static void abused(const char *where)
{
	struct soda_wire_piece p = { 0, 100, 100, 1, 0, SODA_WIRE_PIECE_COPY };
	struct soda_wire_move_read read = { 1, 0, 10 };
	uint8_t body[64] = { 0 };
	struct soda_conn *conn;

	start_agent(where, BUDGET);
	conn = join();
	for (int type = SODA_MSG_MOVE_START; type <= SODA_MSG_MOVE_LAST; type++)
		for (size_t bytes = 0; bytes < sizeof(body); bytes++)
			assert_true(ask(conn, type, body, bytes) < 0);
	start_by_hand(conn);
	reserve_by_hand(conn, "x", 200);
	assert_int_equal(post_by_hand(conn, 1, 1, p), -EINVAL);
	assert_int_equal(post_by_hand(conn, 0, 0, p), -EINVAL);
	assert_int_equal(post_as(conn, SODA_MSG_MOVE_POST_PARTS, 1, 0, p), -EINVAL);
	p.bytes = 201;
	assert_int_equal(post_by_hand(conn, 1, 0, p), -EFBIG);
	p.count = UINT64_MAX;
	assert_int_equal(post_by_hand(conn, 1, 0, p), -EINVAL);
	p.bytes = 100;
	p.count = 1;
	assert_int_equal(put_by_hand(conn, 1, 0, 10), -EINVAL);
	assert_int_equal(post_by_hand(conn, 1, 0, p), 0);
	assert_int_equal(answer_bytes, 0);
	assert_int_equal(post_by_hand(conn, 2, 0, p), -EBUSY); /* one at a time */
	assert_int_equal(put_by_hand(conn, 1, 1, 10), -EINVAL);
	assert_int_equal(put_by_hand(conn, 2, 0, 10), -EINVAL);
	assert_int_equal(put_by_hand(conn, 1, 0, 101), -EINVAL);
	assert_int_equal(put_by_hand(conn, 1, 0, 60), 0);
	assert_int_equal(put_by_hand(conn, 1, UINT64_MAX - 5, 41), -EINVAL);
	assert_int_equal(put_by_hand(conn, 1, 60, 40), 0);
	assert_int_equal(answer_bytes, SODA_WIRE_NOTICE_BYTES);
	assert_int_equal(post_by_hand(conn, 1, 0, p), -EINVAL); /* numbers grow */
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_FAIL, 1, 8), -EINVAL);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_CANCEL, 99, 8), 0);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_RELEASE, 1, 8), -EINVAL);
	memcpy(body, "\0\0\0\0x", 5);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_OPEN, body, 5), 0);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_OPEN, body, 5), -EBUSY);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_RELEASE, 1, 8), -EINVAL);
	soda_wire_put_move_read(body, &read);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_READ, body, SODA_WIRE_MOVE_READ_BYTES), -EINVAL);
	memset(body, 0, sizeof(body));
	assert_int_equal(ask(conn, SODA_MSG_MOVE_NEXT, body, SODA_WIRE_MOVE_NEXT_BYTES), 0);
	for (unsigned i = 0; i < 4; i++) {
		static const struct soda_wire_move_read bad[] = {
			{ 1, 0, 201 }, { 1, 200, 1 }, { 1, UINT64_MAX, 2 }, { 1, 0, 0 }
		};

		soda_wire_put_move_read(body, &bad[i]);
		assert_int_equal(ask(conn, SODA_MSG_MOVE_READ, body, SODA_WIRE_MOVE_READ_BYTES),
				 -EINVAL);
	}
	soda_wire_put_move_read(body, &read);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_READ, body, SODA_WIRE_MOVE_READ_BYTES), 0);
	assert_int_equal(answer_bytes, 10);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_MAP, 1, 4),
			 strncmp(where, "shm", 3) ? -ENOTSUP : -EINVAL);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_END, 1, 4), -EINVAL);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_END, 0, 4), 0);
	soda_conn_close(conn);
	stop_agent();
}

/* Streamed calls, by hand */

struct zeros {
	struct soda_outflow out; /* first */
	uint64_t left;
};

static int next_zeros(struct soda_outflow *out, struct iovec *iov, int max)
{
	static uint8_t zeros[512];
	struct zeros *z = (struct zeros *)out;
	uint64_t n = z->left < sizeof(zeros) ? z->left : sizeof(zeros);

	z->left -= n;
	iov[0] = (struct iovec){ zeros, n };
	return n != 0;
}

/* A SEND that says `said` pieces, and has n of them; the result of its answer. */
static int send_by_hand(struct soda_conn *conn, struct soda_wire_move_send s,
			struct soda_wire_piece piece, unsigned n, uint64_t bytes)
{
	uint8_t body[512] = { 0 };
	struct zeros z = { { bytes, next_zeros }, bytes };
	struct iovec iov = { body, soda_wire_move_send_bytes(n) };
	struct soda_why why;

	soda_wire_put_move_send(body, &s);
	for (unsigned i = 0; i < n; i++)
		soda_wire_put_piece(body + SODA_WIRE_MOVE_SEND_BYTES + i * SODA_WIRE_PIECE_BYTES,
				    &piece);
	assert_int_equal(soda_conn_submit(conn, (enum soda_msg)SODA_MSG_MOVE_SEND, &iov, 1, &z.out,
					  TIMEOUT_MS, &why),
			 0);
	return soda_conn_collect(conn, answer, sizeof(answer), &answer_bytes, TIMEOUT_MS, &why);
}

/* What makes no sense within a frame that does is refused, and the connection goes on. */
static void sent(const char *where)
{
	struct soda_wire_piece p = { 0, 100, 100, 1, 0, SODA_WIRE_PIECE_COPY };
	struct soda_conn *conn;

	start_agent(where, BUDGET);
	conn = join();
	assert_true(soda_conn_streams(conn));
#define SEND(ticket, at, buffer, said, n, bytes)                                                   \
	send_by_hand(conn, (struct soda_wire_move_send){ ticket, at, buffer, said }, p, n, bytes)
	assert_int_equal(SEND(1, 0, 0, 1, 1, 100), -EINVAL); /* no START */
	start_by_hand(conn);
	reserve_by_hand(conn, "x", 200);
	assert_int_equal(SEND(1, 0, 1, 1, 1, 100), -EINVAL); /* no such buffer */
	assert_int_equal(SEND(1, 0, 0, UINT32_MAX, 1, 100), -EPROTO);
	assert_int_equal(SEND(1, 0, 0, 1000, 1, 100), -EPROTO); /* a list that is not there */
	assert_int_equal(SEND(1, 0, 0, 0, 0, 100), -EINVAL);	/* nothing to go on with */
	assert_int_equal(SEND(0, 0, 0, 1, 1, 100), -EINVAL);
	p.bytes = 201;
	assert_int_equal(SEND(1, 0, 0, 1, 1, 100), -EFBIG);
	p.bytes = 100;
	assert_int_equal(SEND(1, 0, 0, 1, 1, 60), 0);
	assert_int_equal(answer_bytes, 0);
	assert_int_equal(SEND(2, 0, 0, 1, 1, 100), -EBUSY);
	assert_int_equal(SEND(1, 0, 0, 0, 0, 10), -EINVAL); /* not where it stands */
	assert_int_equal(SEND(1, UINT64_MAX - 5, 0, 0, 0, 46), -EINVAL);
	assert_int_equal(SEND(1, 60, 0, 0, 0, 41), -EINVAL); /* more than it has */
	assert_int_equal(SEND(2, 60, 0, 0, 0, 40), -EINVAL);
	assert_int_equal(SEND(1, 60, 0, 0, 0, 1 << 20), -EINVAL);
	assert_int_equal(SEND(1, 60, 0, 0, 0, 40), 0);
	assert_int_equal(answer_bytes, SODA_WIRE_NOTICE_BYTES);
	assert_int_equal(SEND(1, 0, 0, 1, 1, 100), -EINVAL); /* numbers grow */
	assert_int_equal(place.agent.dpu.movement.published, 1);
	assert_int_equal(place.agent.dpu.movement.streamed_bytes, 100);
	/* a producer that goes within its data */
	assert_int_equal(SEND(2, 0, 0, 1, 1, 99), 0);
#undef SEND
	soda_conn_close(conn);
	stop_agent();
	assert_int_equal(place.agent.dpu.movement.published, 1);
}

CASES(sent)

/* A frame of a streamed call that cannot be one ends its connection, within it at the latest. */
static void test_mangled(void **state)
{
	static const struct soda_wire_frame frames[] = {
		{ SODA_MSG_MOVE_SEND, SODA_WIRE_STREAMED, 0, 0 },
		{ SODA_MSG_MOVE_SEND, SODA_WIRE_STREAMED, 0, SODA_WIRE_FLOW_END_BYTES },
		{ SODA_MSG_MOVE_SEND, SODA_WIRE_STREAMED, 0, SODA_WIRE_MAX_STREAM + 1 },
		{ SODA_MSG_MOVE_SEND, SODA_WIRE_STREAMED, 0, UINT32_MAX },
		{ SODA_MSG_PING, SODA_WIRE_STREAMED, 0, 100 },
		{ SODA_MSG_MOVE_SEND, SODA_WIRE_STREAMED, 0, 100 }, /* with an end that is none */
	};
	uint8_t bytes[SODA_WIRE_FRAME_BYTES + 100];
	struct soda_conn *conn;
	struct pollfd end;

	start_agent("tcp://127.0.0.1:0", BUDGET);
	for (unsigned i = 0; i < sizeof(frames) / sizeof(*frames); i++) {
		conn = join();
		start_by_hand(conn);
		memset(bytes, 0xff, sizeof(bytes));
		soda_wire_put_frame(bytes, &frames[i]);
		assert_int_equal(send(soda_conn_fd(conn), bytes, sizeof(bytes), MSG_NOSIGNAL),
				 sizeof(bytes));
		soda_conn_end_poll(conn, &end);
		assert_int_equal(poll(&end, 1, TIMEOUT_MS), 1);
		soda_conn_close(conn);
	}
	conn = join();
	start_by_hand(conn);
	soda_conn_close(conn);
	stop_agent();
}

/* A producer that goes within its data: the half is never shown, and its name is free. */
static void half(const char *where)
{
	struct soda_wire_piece p = { 0, 100, 100, 1, 0, SODA_WIRE_PIECE_COPY };
	struct soda_move_step step;
	struct soda_conn *conn;

	start_agent(where, BUDGET);
	conn = join();
	start_by_hand(conn);
	reserve_by_hand(conn, "half", 200);
	OK(soda_move_open(address(), "half", 0, &place.reader));
	assert_int_equal(post_by_hand(conn, 1, 0, p), 0);
	assert_int_equal(put_by_hand(conn, 1, 0, 99), 0);
	FAILS(soda_move_next(place.reader, 0, SOON_MS, &step), -ETIMEDOUT);
	soda_conn_close(conn);
	FAILS(soda_move_next(place.reader, 0, TIMEOUT_MS, &step), -EPIPE);
	soda_move_close(place.reader);
	assert_int_equal(place.agent.dpu.movement.published, 0);
	conn = join();
	start_by_hand(conn);
	reserve_by_hand(conn, "half", 200);
	soda_conn_close(conn);
	stop_agent();
}

/* Lists in parts: by shm only. */

/* A client that the agent reads, with a buffer of 300 bytes. */
static struct soda_conn *join_reading(void)
{
	static const uint8_t token[SODA_MOVE_TOKEN_BYTES] = "a random number";
	struct soda_wire_move_start start = { .version = SODA_MOVE_VERSION,
					      .token_at = (uintptr_t)token };
	uint8_t body[SODA_WIRE_MOVE_START_BYTES];
	struct soda_wire_move_started started;
	struct soda_conn *conn = join();

	memcpy(start.token, token, sizeof(token));
	soda_wire_put_move_start(body, &start);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_START, body, sizeof(body)), 0);
	assert_int_equal(soda_wire_get_move_started(answer, answer_bytes, &started), 0);
	assert_int_equal(started.way, SODA_WAY_READS);
	reserve_by_hand(conn, "parts", 300);
	return conn;
}

static void post_parts(struct soda_conn *conn, uint64_t number, const void *from)
{
	struct soda_wire_piece p = { (uintptr_t)from, 200, 200, 1, 50, SODA_WIRE_PIECE_COPY };

	assert_int_equal(post_as(conn, SODA_MSG_MOVE_POST_PARTS, number, 0, p), 0);
	assert_int_equal(answer_bytes, 0);
}

static int part(struct soda_conn *conn, uint64_t number, uint64_t to, uint32_t ms)
{
	const struct soda_wire_move_part p = { number, to, ms };
	uint8_t body[SODA_WIRE_MOVE_PART_BYTES];

	soda_wire_put_move_part(body, &p);
	return ask(conn, SODA_MSG_MOVE_PART, body, sizeof(body));
}

/* The part's answer, which has notices where the ticket has ended. */
static void check_part(struct soda_conn *conn, uint64_t number, uint64_t to,
		       enum soda_part_state state)
{
	do
		assert_int_equal(part(conn, number, to, TIMEOUT_MS), 0);
	while (soda_wire_get_u32(answer) == SODA_PART_UNREAD);
	assert_int_equal(soda_wire_get_u32(answer), state);
	assert_int_equal(answer_bytes, 4 + (state == SODA_PART_ENDED ? SODA_WIRE_NOTICE_BYTES : 0));
}

/* Notices of tickets that became no step. */
static void check_notices(struct soda_conn *conn, int type, uint32_t value, uint64_t first, int n,
			  int err)
{
	struct soda_wire_notice notice;

	do
		assert_int_equal(ask_number(conn, type, value, 4), 0);
	while (!answer_bytes);
	assert_int_equal(answer_bytes, n * SODA_WIRE_NOTICE_BYTES);
	for (int i = 0; i < n; i++) {
		soda_wire_get_notice(answer + i * SODA_WIRE_NOTICE_BYTES, &notice);
		assert_true(notice.ticket == first + i || n > 1);
		assert_int_equal(soda_status_to_errno(notice.status), err);
	}
}

static void check_step_of_parts(uint64_t number, const uint8_t *from)
{
	static const uint8_t zeros[50];
	struct soda_move_step step;

	OK(soda_move_next(place.reader, number - 1, TIMEOUT_MS, &step));
	assert_int_equal(step.number, number);
	assert_memory_equal(step.data, zeros, 50);
	assert_memory_equal((const uint8_t *)step.data + 50, from, 200);
	assert_memory_equal((const uint8_t *)step.data + 250, zeros, 50);
	OK(soda_move_release(place.reader, &step));
}

/* Nothing is read before the client says so, and what was not there is read when it says so again.
 */
static void test_parts(void **state)
{
	uint8_t *page =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct soda_conn *conn;

	assert_true(page != MAP_FAILED);
	memset(page, 7, PAGE);
	start_agent(agent_shm(), BUDGET);
	conn = join_reading();
	OK(soda_move_open(address(), "parts", 0, &place.reader));
	post_parts(conn, 1, data);
	check_part(conn, 1, 0, SODA_PART_READ);
	assert_int_equal(gate.reads, 0);
	memset(data, 1, 100);
	check_part(conn, 1, 100, SODA_PART_READ);
	assert_int_equal(part(conn, 1, 99, 0), -EINVAL);
	assert_int_equal(part(conn, 1, 201, 0), -EINVAL);
	check_part(conn, 1, 100, SODA_PART_READ);
	assert_int_equal(gate.reads, 1);
	memset(data + 100, 2, 100);
	check_none(0);
	check_part(conn, 1, 200, SODA_PART_ENDED);
	check_step_of_parts(1, data);

	assert_int_equal(mprotect(page, PAGE, PROT_NONE), 0);
	post_parts(conn, 2, page);
	check_part(conn, 2, 150, SODA_PART_FAULT);
	check_part(conn, 2, 150, SODA_PART_FAULT);
	check_part(conn, 2, 100, SODA_PART_FAULT); /* less is no step back: it may be there */
	check_part(conn, 2, 0, SODA_PART_READ);
	check_part(conn, 2, 120, SODA_PART_FAULT);
	assert_int_equal(mprotect(page, PAGE, PROT_READ), 0);
	check_part(conn, 2, 50, SODA_PART_READ);
	assert_int_equal(part(conn, 2, 49, 0), -EINVAL);
	check_part(conn, 2, 150, SODA_PART_READ);
	check_part(conn, 2, 200, SODA_PART_ENDED);
	check_step_of_parts(2, page);

	gate.closed = true; /* while it is being read */
	post_parts(conn, 3, page);
	assert_int_equal(part(conn, 3, 200, 1), 0);
	assert_int_equal(soda_wire_get_u32(answer), SODA_PART_UNREAD);
	gate.closed = false;
	check_part(conn, 3, 200, SODA_PART_ENDED);
	check_step_of_parts(3, page);
	soda_move_close(place.reader);
	soda_conn_close(conn);
	stop_agent();
	munmap(page, PAGE);
}

/* Lists whose client does not go on with them end all the same, and others come after them. */
static void test_parts_given_up(void **state)
{
	struct soda_wire_piece p = { (uintptr_t)data, 200, 200, 1, 0, SODA_WIRE_PIECE_COPY };
	struct soda_conn *conn;

	start_agent(agent_shm(), BUDGET);
	conn = join_reading();
	post_parts(conn, 1, NULL); /* nowhere */
	check_part(conn, 1, 200, SODA_PART_FAULT);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_FAIL, 1, 8), 0);
	if (!answer_bytes)
		check_notices(conn, SODA_MSG_MOVE_AWAIT, TIMEOUT_MS, 1, 1, EFAULT);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_FAIL, 1, 8), -EINVAL);
	post_parts(conn, 2, data);
	check_part(conn, 2, 100, SODA_PART_READ);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_CANCEL, 2, 8), 0);
	if (!answer_bytes)
		check_notices(conn, SODA_MSG_MOVE_AWAIT, TIMEOUT_MS, 2, 1, ECANCELED);
	post_parts(conn, 3, data); /* one that stands, and two that wait behind it */
	check_part(conn, 3, 100, SODA_PART_READ);
	post_parts(conn, 4, data);
	assert_int_equal(part(conn, 4, 200, 1), 0);
	assert_int_equal(soda_wire_get_u32(answer), SODA_PART_UNREAD);
	assert_int_equal(post_by_hand(conn, 5, 0, p), 0);
	assert_int_equal(part(conn, 5, 200, 1), 0);
	assert_int_equal(soda_wire_get_u32(answer), SODA_PART_ENDED); /* it has no parts */
	check_notices(conn, SODA_MSG_MOVE_END, 0, 3, 3, ECANCELED);
	assert_int_equal(place.agent.dpu.movement.published, 0);
	reserve_by_hand(conn, "again", 300);
	post_parts(conn, 6, data);
	check_part(conn, 6, 100, SODA_PART_READ);
	soda_conn_close(conn); /* with one that stands */
	stop_agent();
}

/* Lists in a ring: by shm only. */

/* More tickets than the ring has room for, some at a time, all by the ring and in their order. */
static void test_ring(void **state)
{
	enum { N = 3 * SODA_MOVE_RING_SIZE, DEPTH = 8 };
	struct soda_move_ticket *t[DEPTH];
	struct soda_move_piece p = { .from = data, .bytes = 100 };
	uint64_t step;

	up(agent_shm(), 2, 0);
	assert_non_null(place.mover->ring);
	for (uint64_t i = 0; i < N + DEPTH; i++) {
		if (i >= DEPTH) {
			OK(wait_for(t[i % DEPTH], &step));
			assert_int_equal(step, i - DEPTH + 1);
		}
		if (i < N)
			t[i % DEPTH] = post(&p, 1);
	}
	assert_int_equal(place.mover->ring_posted, N);
	assert_int_equal(place.agent.dpu.movement.published, N);
	down();
}

/* A list that is too long for the ring goes by the courier, and those behind it stay behind it. */
static void test_ring_and_calls(void **state)
{
	enum { LONG = SODA_MOVE_RING_PIECES + 1 };
	struct soda_move_piece pieces[LONG];
	struct soda_move_ticket *t[3];
	uint64_t step;

	up(agent_shm(), 3, 0);
	for (unsigned i = 0; i < LONG; i++)
		pieces[i] = (struct soda_move_piece){ .from = data, .bytes = 8, .offset = i * 8 };
	for (int round = 0; round < 10; round++) {
		t[0] = post(pieces, 1);
		t[1] = post(pieces, LONG);
		t[2] = post(pieces, LONG - 1);
		for (uint64_t i = 0; i < 3; i++) {
			OK(wait_for(t[i], &step));
			assert_int_equal(step, 3 * (uint64_t)round + i + 1);
		}
	}
	/* the first does; each other one may find the courier at work */
	assert_in_range(place.mover->ring_posted, 1, 20);
	assert_int_equal(place.agent.dpu.movement.failed, 0);
	down();
}

/* As join_reading(), with a ring. */
static struct soda_conn *join_ring(struct soda_move_ring **ring_p)
{
	static const uint8_t token[SODA_MOVE_TOKEN_BYTES] = "a random number";
	struct soda_wire_move_start start = { .version = SODA_MOVE_VERSION,
					      .flags = SODA_WIRE_MOVE_RING,
					      .token_at = (uintptr_t)token };
	uint8_t body[SODA_WIRE_MOVE_START_BYTES];
	struct iovec iov = { body, sizeof(body) };
	struct soda_conn *conn = join();
	struct soda_why why;
	int fd = -1;

	memcpy(start.token, token, sizeof(token));
	soda_wire_put_move_start(body, &start);
	assert_int_equal(soda_conn_call_fd(conn, (enum soda_msg)SODA_MSG_MOVE_START, &iov, 1,
					   answer, sizeof(answer), &answer_bytes, &fd, TIMEOUT_MS,
					   &why),
			 0);
	assert_true(fd >= 0);
	assert_int_not_equal(ftruncate(fd, 4096), 0); /* it is sealed */
	*ring_p = mmap(NULL, SODA_MOVE_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(*ring_p != MAP_FAILED);
	close(fd);
	reserve_by_hand(conn, "ring", 300);
	return conn;
}

/* Write a list, and have the agent look; the notice that comes must be that of the ticket. */
static void check_list(struct soda_conn *conn, struct soda_move_ring *ring,
		       struct soda_wire_move_post head, uint64_t bytes, int err)
{
	struct soda_wire_piece p = { (uintptr_t)data, bytes, bytes, 1, 0, SODA_WIRE_PIECE_COPY };
	uint32_t posted = atomic_load(&ring->posted), told = atomic_load(&ring->told);
	uint8_t *list = soda_move_ring_list(ring, posted);
	struct soda_wire_notice n;

	soda_wire_put_move_post(list, &head);
	soda_wire_put_piece(list + SODA_WIRE_MOVE_POST_BYTES, &p);
	atomic_store(&ring->taken, told);
	atomic_store(&ring->posted, posted + 1);
	while (atomic_load(&ring->told) == told) {
		assert_int_equal(ask_number(conn, SODA_MSG_MOVE_AWAIT, TIMEOUT_MS, 4), 0);
		assert_int_equal(answer_bytes, 0);
	}
	assert_int_equal(atomic_load(&ring->told), told + 1);
	soda_wire_get_notice(soda_move_ring_notice(ring, told), &n);
	assert_true(n.ticket == head.ticket);
	assert_int_equal(soda_status_to_errno(n.status), err);
	assert_int_equal(n.step != 0, err == 0);
}

/* What makes no sense is refused by a notice, or by the next call; what follows it goes on. */
static void test_ring_abused(void **state)
{
	struct soda_move_ring *ring;
	struct soda_conn *conn;

	start_agent(agent_shm(), BUDGET);
	conn = join_ring(&ring);
	check_list(conn, ring, (struct soda_wire_move_post){ 1, 0, 1 }, 300, 0);
	check_list(conn, ring, (struct soda_wire_move_post){ 1, 0, 1 }, 300, EINVAL);
	check_list(conn, ring, (struct soda_wire_move_post){ 2, 1, 1 }, 300, EINVAL);
	check_list(conn, ring, (struct soda_wire_move_post){ 2, UINT32_MAX, 1 }, 300, EINVAL);
	check_list(conn, ring, (struct soda_wire_move_post){ 2, 0, 0 }, 300, EINVAL);
	check_list(conn, ring, (struct soda_wire_move_post){ 2, 0, UINT32_MAX }, 300, EINVAL);
	check_list(conn, ring, (struct soda_wire_move_post){ 2, 0, SODA_MOVE_RING_PIECES + 1 }, 300,
		   EINVAL);
	check_list(conn, ring, (struct soda_wire_move_post){ 2, 0, 1 }, 301, EFBIG);
	check_list(conn, ring, (struct soda_wire_move_post){ 2, 0, 1 }, 300, 0);
	assert_int_equal(place.agent.dpu.movement.published, 2);
	/* a getter that has nothing to do gives up looking */
	for (int ms = 0; atomic_load(&ring->attended) && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	assert_int_equal(atomic_load(&ring->attended), 0);
	atomic_fetch_add(&ring->posted, SODA_MOVE_RING_SIZE + 1);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_AWAIT, 0, 4), -EPROTO);
	assert_int_equal(place.agent.dpu.movement.published, 2);
	soda_conn_close(conn);
	munmap(ring, SODA_MOVE_RING_BYTES);
	stop_agent();
}

/* A get that is held: by shm only. */

/* A ticket in a getter's hands, one in the queue, one with the courier at the earliest. */
static void test_cancelled(void **state)
{
	struct soda_move_ticket *t[3];
	uint64_t step;

	up(agent_shm(), 2, 0);
	gate.closed = true;
	for (int i = 0; i < 3; i++)
		t[i] = post_all();
	await_gate();
	OK(soda_move_cancel(t[0]));
	OK(soda_move_cancel(t[1]));
	FAILS(soda_move_wait(t[1], TIMEOUT_MS, NULL), -ECANCELED); /* while t[0] is held */
	assert_int_equal(soda_move_wait(t[0], SOON_MS, NULL), -EINPROGRESS);
	gate.closed = false;
	FAILS(wait_for(t[0], NULL), -ECANCELED);
	OK(wait_for(t[2], &step));
	assert_int_equal(step, 1);
	check_next(0, 1, data);
	down();
}

/* What the program takes back while the agent reads is not published. */
static void test_taken_back(void **state)
{
	struct soda_move_ticket *t;

	up(agent_shm(), 2, 0);
	gate.closed = true;
	t = post_all();
	await_gate();
	soda_mover_take_back(place.mover);
	gate.closed = false;
	FAILS(wait_for(t, NULL), -EIO);
	check_none(0);
	assert_int_equal(place.agent.dpu.movement.published, 0);
	down();
}

/* The process that was read has ended: it may have been another one with its number. */
static void test_dead(void **state)
{
	struct soda_move_ticket *t;

	up(agent_shm(), 2, 0);
	gate.closed = true;
	t = post_all();
	await_gate();
	gate.dead = true;
	gate.closed = false;
	FAILS(wait_for(t, NULL), -EIO);
	t = post_all();
	FAILS(wait_for(t, NULL), -EIO);
	assert_int_equal(gate.reads, 1); /* of the second nothing was read */
	gate.dead = false;
	check_none(0);
	OK(wait_for(post_all(), NULL));
	check_next(0, 1, data);
	down();
}

/* The producer goes while the agent reads: neither waits long, and nothing is shown. */
static void test_disconnected(void **state)
{
	struct soda_move_piece p = { .from = data, .bytes = BYTES };
	struct soda_move_step step;

	up(agent_shm(), 2, 0);
	gate.closed = true;
	for (int i = 0; i < 5; i++)
		OK(soda_move(place.buffer, &p, 1, NULL));
	await_gate();
	soda_move_disconnect(place.mover);
	FAILS(soda_move_next(place.reader, 0, -1, &step), -EPIPE);
	gate.closed = false;
	soda_move_close(place.reader);
	stop_agent();
	assert_int_equal(place.agent.dpu.movement.published, 0);
	assert_int_equal(gate.reads, 1);
}

/* Two clients with long lists of tickets: the second is served before the first one's are over. */
static void test_turns(void **state)
{
	struct soda_move_buffer_options how = { .bytes = PAGE, .mode = 0400 };
	struct soda_move_piece p = { .from = data, .bytes = PAGE };
	struct soda_move_ticket *t[SODA_MOVE_GETTERS + 1], *last = NULL;
	struct soda_move_buffer *b[SODA_MOVE_GETTERS + 1];
	struct soda_mover *m[SODA_MOVE_GETTERS + 1];
	char name[2] = "a";

	start_agent(agent_shm(), BUDGET);
	for (unsigned i = 0; i <= SODA_MOVE_GETTERS; i++, name[0]++) {
		OK(soda_move_connect(address(), &m[i]));
		OK(soda_move_reserve(m[i], name, &how, &b[i]));
	}
	gate.closed = true;
	/* as many clients as getters have theirs held, and the first one has more */
	for (unsigned i = 0; i < SODA_MOVE_GETTERS; i++)
		OK(soda_move(b[i], &p, 1, &t[i]));
	while (gate.waiting < SODA_MOVE_GETTERS)
		poll(NULL, 0, 1);
	for (unsigned i = 0; i < 30; i++)
		OK(soda_move(b[0], &p, 1, i == 29 ? &last : NULL));
	OK(soda_move(b[SODA_MOVE_GETTERS], &p, 1, &t[SODA_MOVE_GETTERS]));
	gate.closed = false;
	for (unsigned i = 0; i <= SODA_MOVE_GETTERS; i++)
		OK(wait_for(t[i], NULL));
	OK(wait_for(last, NULL));
	for (unsigned i = 0; i <= SODA_MOVE_GETTERS; i++)
		soda_move_disconnect(m[i]);
	stop_agent();
}

enum { LONG = 9 << 20, PART = 4 << 20, LONGS = SODA_MOVE_GETTERS + 2 };

/* Gets that take a getter several reads: more clients with one each than there are getters. */
struct longs {
	uint8_t *data;
	struct soda_mover *m[LONGS];
	struct soda_move_buffer *b[LONGS];
	struct soda_move_ticket *t[LONGS];
};

static void await_reads(unsigned reads, unsigned waiting)
{
	for (int ms = 0; (gate.reads < reads || gate.waiting < waiting) && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	assert_int_equal(gate.reads, reads);
	assert_int_equal(gate.waiting, waiting);
}

/* Until the agent has so many clients that wait for a getter. */
static void await_turns(unsigned n)
{
	struct soda_movement *m = &place.agent.dpu.movement;
	unsigned waiting = 0;

	for (int ms = 0; waiting < n && ms < TIMEOUT_MS; ms++) {
		poll(NULL, 0, 1);
		waiting = 0;
		pthread_mutex_lock(&m->lock);
		for (const struct soda_move_client *c = m->turn; c; c = c->next_turn)
			waiting++;
		pthread_mutex_unlock(&m->lock);
	}
	assert_int_equal(waiting, n);
}

static void long_post(struct longs *l, unsigned i, uint64_t bytes)
{
	struct soda_move_buffer_options how = { .bytes = bytes, .copies = 1, .mode = 0400 };
	struct soda_move_piece p = { .from = l->data, .bytes = bytes };
	char name[2] = { (char)('a' + i), 0 };

	OK(soda_move_connect(address(), &l->m[i]));
	OK(soda_move_reserve(l->m[i], name, &how, &l->b[i]));
	OK(soda_move(l->b[i], &p, 1, &l->t[i]));
}

/* As many as there are getters are held in their first read. */
static void longs_up(struct longs *l)
{
	memset(l, 0, sizeof(*l));
	start_agent(agent_shm(), BUDGET);
	l->data = malloc(LONG);
	assert_non_null(l->data);
	for (size_t i = 0; i < LONG; i++)
		l->data[i] = (uint8_t)(i * 5 + i / 4099);
	gate.from = (uintptr_t)l->data;
	gate.to = gate.from + LONG;
	for (unsigned i = 0; i < SODA_MOVE_GETTERS; i++)
		long_post(l, i, LONG);
	await_reads(SODA_MOVE_GETTERS, SODA_MOVE_GETTERS);
}

static void longs_down(struct longs *l)
{
	for (unsigned i = 0; i < LONGS; i++)
		soda_move_disconnect(l->m[i]);
	stop_agent();
	free(l->data);
}

/* Who has little to be fetched does not wait for those who have much. */
static void test_long_gets(void **state)
{
	struct soda_move_reader *reader;
	struct soda_move_step step;
	struct longs l;

	longs_up(&l);
	long_post(&l, SODA_MOVE_GETTERS, PAGE);
	await_turns(1);
	gate.from = (uintptr_t)l.data + PART; /* the rest of the long ones stays held */
	OK(wait_for(l.t[SODA_MOVE_GETTERS], NULL));
	for (unsigned i = 0; i < SODA_MOVE_GETTERS; i++)
		assert_int_equal(soda_move_wait(l.t[i], SOON_MS, NULL), -EINPROGRESS);
	gate.to = 0;
	for (unsigned i = 0; i < SODA_MOVE_GETTERS; i++)
		OK(wait_for(l.t[i], NULL));
	assert_int_equal(place.agent.dpu.movement.read_bytes, SODA_MOVE_GETTERS * LONG + PAGE);
	OK(soda_move_open(address(), "a", 0, &reader));
	OK(soda_move_next(reader, 0, TIMEOUT_MS, &step));
	assert_memory_equal(step.data, l.data, LONG);
	soda_move_close(reader);
	longs_down(&l);
}

/* Gets that wait for a turn between two reads: cancelled, or their producer goes. */
static void test_long_gets_end(void **state)
{
	struct soda_buffers *buffers = &place.agent.dpu.movement.buffers;
	struct soda_move_buffer_options small = { .bytes = PAGE, .mode = 0400 };
	struct soda_move_buffer *other;
	unsigned last = LONGS - 1;
	char name[2] = "A";
	struct longs l;

	longs_up(&l);
	for (unsigned i = SODA_MOVE_GETTERS; i < LONGS; i++)
		long_post(&l, i, LONG);
	await_turns(LONGS - SODA_MOVE_GETTERS);
	gate.from = (uintptr_t)l.data + PART;
	await_reads(LONGS + SODA_MOVE_GETTERS, SODA_MOVE_GETTERS); /* each has had its turn */
	soda_move_disconnect(l.m[last]);
	l.m[last] = NULL;
	for (unsigned i = 0; i < last; i++, name[0]++) {
		OK(soda_move_cancel(l.t[i]));
		/* an answered call: the agent knows of the cancel */
		OK(soda_move_reserve(l.m[i], name, &small, &other));
		OK(soda_move_end(other));
	}
	gate.to = 0;
	for (unsigned i = 0; i < last; i++)
		FAILS(wait_for(l.t[i], NULL), -ECANCELED);
	for (unsigned i = 0; i < last; i++)
		OK(soda_move_end(l.b[i]));
	for (int ms = 0; buffers->reserved.all && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	assert_int_equal(buffers->reserved.all, 0);
	assert_int_equal(place.agent.dpu.movement.published, 0);
	assert_int_equal(agent_list_bytes(&place.agent), 0);
	longs_down(&l);
}

/* A child has the parent's connections in its memory, and may not use them. */
static void test_forked(void **state)
{
	struct soda_move_piece p = { .from = data, .bytes = BYTES };
	struct soda_move_step step;
	int status;
	pid_t pid;

	up(agent_shm(), 2, 0);
	pid = fork();
	if (!pid) {
		bool good = soda_move(place.buffer, &p, 1, NULL) == -ENOTSUP &&
			    soda_move_next(place.reader, 0, 0, &step) == -ENOTSUP &&
			    soda_move_end(place.buffer) == -ENOTSUP;

		soda_move_disconnect(place.mover);
		_exit(good ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	OK(wait_for(post_all(), NULL));
	check_next(0, 1, data);
	down();
}

CASES(moved)
CASES(placed)
CASES(unreadable)
CASES(refused)
CASES(many)
CASES(ended)
CASES(held)
CASES(lost)
CASES(none)
CASES(abused)
CASES(half)
CASES(longer)

#define EACH(X, transport)                                                                         \
	X(moved_##transport), X(placed_##transport), X(unreadable_##transport),                    \
		X(refused_##transport), X(many_##transport), X(ended_##transport),                 \
		X(held_##transport), X(lost_##transport), X(none_##transport),                     \
		X(abused_##transport), X(half_##transport), X(longer_##transport),                 \
		X(sent_##transport)

int main(int argc, char **argv)
{
	const struct CMUnitTest sockets[] = {
		EACH(cmocka_unit_test, tcp),	       EACH(cmocka_unit_test, shm),
		cmocka_unit_test(test_mangled),	       cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_taken_back),     cmocka_unit_test(test_dead),
		cmocka_unit_test(test_disconnected),   cmocka_unit_test(test_turns),
		cmocka_unit_test(test_long_gets),      cmocka_unit_test(test_long_gets_end),
		cmocka_unit_test(test_forked),	       cmocka_unit_test(test_parts),
		cmocka_unit_test(test_parts_given_up), cmocka_unit_test(test_ring),
		cmocka_unit_test(test_ring_and_calls), cmocka_unit_test(test_ring_abused),
	};
	const struct CMUnitTest rdma[] = { EACH(cmocka_unit_test, verbs) };

	real_ops = soda_source_ops;
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	if (argc > 1 && strcmp(argv[1], "verbs") == 0)
		return cmocka_run_group_tests_name("movement, verbs", rdma, NULL, NULL);
	return cmocka_run_group_tests_name("movement", sockets, NULL, NULL) +
	       cmocka_run_group_tests_name("movement, verbs", rdma, NULL, NULL);
}
