/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of soda_move_alloc(): shared with an agent on the same machine, whether that may read the
 * program's memory or not, and the program's own over tcp.  The agent without its main() and
 * libsoda-move are in one process.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent_here.h"
#include "movement/mover.h"
#include "soda_move.h"
#include "wire/field.h"

enum {
	TIMEOUT_MS = AGENT_TIMEOUT_MS,
	PAGE = 4096,
	BYTES = 300 * 1024 + 77,
	LONG = 9 * 1024 * 1024 + 13, /* more than a part of a get, and than a SEND */
	BUDGET = 64 << 20,
};

/* How the program reaches the agent. */
enum reach { READS, STREAMS, TCP };

static struct agent agent;
static struct soda_source_ops real_ops;
static struct soda_mover *mover;
static struct soda_move_buffer *buffer;
static struct soda_move_reader *reader;
static uint8_t own[BYTES], want[BYTES];
static _Atomic bool closed; /* reads of the program's memory wait */
static _Atomic unsigned waiting;

static int no_pidfd(pid_t pid)
{
	return -EPERM;
}

static ssize_t gated_readv(pid_t pid, const struct iovec *local, unsigned long local_n,
			   const struct iovec *remote, unsigned long remote_n)
{
	waiting++;
	for (int ms = 0; closed && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	waiting--;
	return real_ops.readv(pid, local, local_n, remote, remote_n);
}

static const char *address(void)
{
	return soda_listener_address(agent.listener);
}

static void start_agent(enum reach reach)
{
	closed = false;
	soda_source_ops = real_ops;
	soda_source_ops.readv = gated_readv;
	if (reach == STREAMS)
		soda_source_ops.pidfd_open = no_pidfd;
	agent_start(&agent, BUDGET);
	agent_listen(&agent, reach == TCP ? "tcp://127.0.0.1:0" : agent_shm());
}

static void stop_agent(void)
{
	agent_stop(&agent);
	soda_source_ops = real_ops;
}

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

static void up(enum reach reach, unsigned copies)
{
	struct soda_move_buffer_options how = { .bytes = BYTES, .copies = copies, .mode = 0444 };

	start_agent(reach);
	OK(soda_move_connect(address(), &mover));
	assert_int_equal(soda_move_way(mover), reach == READS ? SODA_MOVE_READS : SODA_MOVE_STREAM);
	OK(soda_move_reserve(mover, "heat", &how, &buffer));
	OK(soda_move_open(address(), "heat", 0, &reader));
}

static void await_nothing_reserved(void)
{
	uint64_t left = 1;

	for (int ms = 0; left && ms < TIMEOUT_MS; ms++) {
		left = agent_move_bytes(&agent);
		poll(NULL, 0, !!left);
	}
	assert_int_equal(left, 0);
}

static void down(void)
{
	soda_move_close(reader);
	soda_move_disconnect(mover);
	await_nothing_reserved();
	assert_int_equal(agent_list_bytes(&agent), 0);
	stop_agent();
}

static uint8_t *alloc(uint64_t bytes)
{
	void *memory = NULL;

	OK(soda_move_alloc(mover, bytes, &memory));
	assert_int_equal((uintptr_t)memory % PAGE, 0);
	return memory;
}

static void fill(uint8_t *memory, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++)
		memory[i] = (uint8_t)(i * 7 + i / 251 + seed);
}

static struct soda_move_ticket *post(const struct soda_move_piece *pieces, size_t n)
{
	struct soda_move_ticket *t = NULL;

	OK(soda_move(buffer, pieces, n, &t));
	return t;
}

static uint64_t move_now(const struct soda_move_piece *pieces, size_t n)
{
	uint64_t step = 0;

	OK(soda_move_wait(post(pieces, n), TIMEOUT_MS, &step));
	return step;
}

static void check_step(uint64_t number, const void *content)
{
	struct soda_move_step step;

	OK(soda_move_next(reader, number - 1, TIMEOUT_MS, &step));
	assert_int_equal(step.number, number);
	assert_memory_equal(step.data, content, BYTES);
	OK(soda_move_release(reader, &step));
}

/* How the bytes of all steps have come. */
static void check_ways(uint64_t read, uint64_t shared, uint64_t streamed)
{
	assert_int_equal(agent.dpu.movement.read_bytes, read);
	assert_int_equal(agent.dpu.movement.shared_bytes, shared);
	assert_int_equal(agent.dpu.movement.streamed_bytes, streamed);
}

/* Whole, and elements apart up to its last byte; constants and gaps between. */
static void moved(enum reach reach)
{
	enum { N = 1000, STRIDE = 48, EACH = 8 };
	struct soda_move_piece p[3];
	uint64_t bytes = BYTES + N * EACH + 100;
	uint8_t *memory;

	up(reach, 2);
	memory = alloc(BYTES);
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(memory[i], 0);
	fill(memory, BYTES, 1);
	p[0] = (struct soda_move_piece){ .from = memory, .bytes = BYTES };
	assert_int_equal(move_now(p, 1), 1);
	check_step(1, memory);
	p[0] = (struct soda_move_piece){
		.from = memory + 16, .bytes = EACH, .stride = STRIDE, .count = N, .offset = 512
	};
	p[1] = (struct soda_move_piece){ .bytes = 100, .fill = 0xa5, .offset = 200 };
	p[2] = (struct soda_move_piece){ .from = memory + BYTES - 100,
					 .bytes = 100,
					 .offset = BYTES - 100 };
	assert_int_equal(move_now(p, 3), 2);
	memset(want, 0, BYTES);
	for (size_t i = 0; i < N; i++)
		memcpy(want + 512 + i * EACH, memory + 16 + i * STRIDE, EACH);
	memset(want + 200, 0xa5, 100);
	memcpy(want + BYTES - 100, memory + BYTES - 100, 100);
	check_step(2, want);
	check_ways(0, reach == TCP ? 0 : bytes, reach == TCP ? bytes : 0);
	OK(soda_move_free(mover, memory));
	OK(soda_move_free(mover, NULL));
	down();
}

/* Beside the program's own memory in one list: only who is read can have both. */
static void mixed(enum reach reach)
{
	uint8_t *memory;
	struct soda_move_piece p[] = {
		{ .from = own, .bytes = 50000 },
		{ .from = NULL, .bytes = 100000, .offset = 50000 },
		{ .from = own + 150000, .bytes = BYTES - 150000, .offset = 150000 },
	};

	up(reach, 2);
	memory = alloc(100000);
	fill(memory, 100000, 3);
	fill(own, BYTES, 5);
	p[1].from = memory;
	memcpy(want, own, BYTES);
	memcpy(want + 50000, memory, 100000);
	for (uint64_t i = 1; i <= 3; i++) {
		assert_int_equal(move_now(p, 3), i);
		check_step(i, want);
	}
	if (reach == READS)
		check_ways(3 * (BYTES - 100000), 3 * 100000, 0);
	else
		check_ways(0, 0, 3 * BYTES);
	down();
}

/* Lists of the one kind and the other, many at a time: steps are in the order of the calls. */
static void in_turns(enum reach reach)
{
	enum { ROUNDS = 6, N = SODA_MOVE_TICKETS_MAX };
	struct soda_move_ticket *t[N];
	struct soda_move_piece p = { .bytes = 20000 };
	uint64_t step;
	uint8_t *memory;

	up(reach, 2);
	memory = alloc(20000);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < N; i++) {
			/* runs of 1 to 4 of a kind, and now and then a constant alone */
			p.from = (i >> (round % 3)) & 1 ? own : memory;
			if (i % 13 == 12)
				p.from = NULL;
			t[i] = post(&p, 1);
		}
		for (unsigned i = 0; i < N; i++) {
			OK(soda_move_wait(t[i], TIMEOUT_MS, &step));
			assert_int_equal(step, round * N + i + 1);
		}
	}
	/* one that is cancelled, and one whose memory is not there, are in nobody's way */
	p.from = own;
	t[0] = post(&p, 1);
	p.from = memory;
	t[1] = post(&p, 1);
	p.from = (void *)(uintptr_t)16;
	t[2] = post(&p, 1);
	p.from = memory;
	t[3] = post(&p, 1);
	soda_move_cancel(t[1]);
	OK(soda_move_wait(t[0], TIMEOUT_MS, NULL));
	soda_move_wait(t[1], TIMEOUT_MS, NULL); /* it may have ended before */
	FAILS(soda_move_wait(t[2], TIMEOUT_MS, NULL), -EFAULT);
	OK(soda_move_wait(t[3], TIMEOUT_MS, NULL));
	down();
}

/* Several parts of a get; and memory that is freed while it is under way is there until its end. */
static void freed(enum reach reach)
{
	struct soda_move_buffer_options how = { .bytes = LONG, .copies = 2, .mode = 0444 };
	struct soda_move_piece p = { .bytes = LONG };
	struct soda_move_reader *far = NULL;
	struct soda_move_buffer *b = NULL;
	struct soda_move_step step;
	uint8_t *memory, *copy = malloc(LONG);

	up(reach, 1);
	OK(soda_move_reserve(mover, "long", &how, &b));
	OK(soda_move_open(address(), "long", 0, &far));
	for (uint64_t i = 1; i <= 3; i++) {
		memory = alloc(LONG);
		fill(memory, LONG, (unsigned)i);
		memcpy(copy, memory, LONG);
		p.from = memory;
		OK(soda_move(b, &p, 1, NULL)); /* nobody asks for it */
		OK(soda_move_free(mover, memory));
		FAILS(soda_move_free(mover, memory), -EINVAL);
		OK(soda_move_next(far, i - 1, TIMEOUT_MS, &step));
		assert_int_equal(step.number, i);
		assert_memory_equal(step.data, copy, LONG);
		OK(soda_move_release(far, &step));
	}
	soda_move_close(far);
	free(copy);
	down();
}

/* What cannot be had, and how much there is of it. */
static void test_refused(void **state)
{
	void *memory[SODA_MOVE_AREAS], *more = NULL;

	up(READS, 1);
	FAILS(soda_move_alloc(mover, 0, &more), -EINVAL);
	FAILS(soda_move_alloc(mover, UINT64_MAX, &more), -EINVAL);
	FAILS(soda_move_alloc(mover, (1ull << 40) + 1, &more), -EINVAL);
	FAILS(soda_move_alloc(mover, BUDGET, &more), -ENOSPC);
	assert_non_null(strstr(soda_move_last_error(), "--move-memory"));
	for (unsigned i = 0; i < SODA_MOVE_AREAS; i++)
		memory[i] = alloc(1);
	FAILS(soda_move_alloc(mover, 1, &more), -EBUSY);
	FAILS(soda_move_free(mover, own), -EINVAL);
	FAILS(soda_move_free(mover, (uint8_t *)memory[0] + 1), -EINVAL);
	OK(soda_move_free(mover, memory[5]));
	memory[5] = alloc(PAGE + 1);
	memset(memory[5], 1, PAGE + 1);
	for (unsigned i = 0; i < SODA_MOVE_AREAS; i += 2)
		OK(soda_move_free(mover, memory[i]));
	assert_null(more);
	down(); /* with the others */
}

/* The agent has gone: the memory is the program's, and stays until that frees it. */
static void test_lost(void **state)
{
	uint8_t *memory[2];
	struct soda_move_piece p = { .bytes = 100 };
	struct soda_move_ticket *t;
	void *more;

	up(READS, 1);
	memory[0] = alloc(BYTES);
	memory[1] = alloc(BYTES);
	p.from = memory[0];
	move_now(&p, 1);
	stop_agent();
	fill(memory[0], BYTES, 9);
	if (soda_move(buffer, &p, 1, &t) == 0) /* that it is lost may not be known yet */
		FAILS(soda_move_wait(t, TIMEOUT_MS, NULL), -ENOTCONN);
	FAILS(soda_move_alloc(mover, 1, &more), -ENOTCONN);
	fill(want, BYTES, 9);
	assert_memory_equal(memory[0], want, BYTES);
	FAILS(soda_move_free(mover, memory[0]), -ENOTCONN);
	FAILS(soda_move_free(mover, memory[0]), -EINVAL);
	soda_move_close(reader);
	soda_move_disconnect(mover);
}

/* A child shares the memory, and not the connection. */
static void test_forked(void **state)
{
	struct soda_move_piece p = { .bytes = BYTES };
	uint8_t *memory;
	int status;
	pid_t pid;

	up(READS, 1);
	memory = alloc(BYTES);
	pid = fork();
	if (!pid) {
		void *more;

		fill(memory, BYTES, 4);
		_exit(soda_move_alloc(mover, 1, &more) == -ENOTSUP &&
				      soda_move_free(mover, memory) == -ENOTSUP
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	p.from = memory;
	move_now(&p, 1);
	fill(want, BYTES, 4);
	check_step(1, want);
	down();
}

/* By hand */

static uint8_t answer[SODA_WIRE_MAX_CONTROL];
static size_t answer_bytes;

static int ask(struct soda_conn *conn, int type, const void *body, size_t bytes, int *fd_p)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct soda_why why;

	return soda_conn_call_fd(conn, (enum soda_msg)type, &iov, 1, answer, sizeof(answer),
				 &answer_bytes, fd_p, TIMEOUT_MS, &why);
}

static int ask_number(struct soda_conn *conn, int type, uint64_t number, size_t bytes, int *fd_p)
{
	uint8_t body[8];

	soda_wire_put_u64(body, number);
	return ask(conn, type, body, bytes, fd_p);
}

/* A client, without a ring, with a buffer of 300 bytes. */
static struct soda_conn *join(void)
{
	static const uint8_t token[SODA_MOVE_TOKEN_BYTES] = "a random number";
	struct soda_wire_move_start start = { .version = SODA_MOVE_VERSION,
					      .token_at = (uintptr_t)token };
	struct soda_wire_move_reserve r = { 300, 2, 0444, 0 };
	uint8_t body[SODA_WIRE_MOVE_START_BYTES], ask_name[SODA_WIRE_MOVE_RESERVE_BYTES + 4];
	struct soda_wire_welcome welcome;
	struct soda_conn *conn = NULL;
	struct soda_why why;

	if (soda_conn_join(address(), 0, &conn, &welcome, &why))
		fail_msg("%s", why.text);
	memcpy(start.token, token, sizeof(token));
	soda_wire_put_move_start(body, &start);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_START, body, sizeof(body), NULL), 0);
	soda_wire_put_move_reserve(ask_name, &r);
	memcpy(ask_name + SODA_WIRE_MOVE_RESERVE_BYTES, "hand", 4);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_RESERVE, ask_name, sizeof(ask_name), NULL), 0);
	return conn;
}

static uint8_t *alloc_by_hand(struct soda_conn *conn, uint64_t bytes, uint32_t number)
{
	uint64_t size = soda_move_area_tail_at(bytes) + SODA_MOVE_AREA_TAIL_BYTES;
	void *memory;
	int fd = -1;

	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_ALLOC, bytes, 8, &fd), 0);
	assert_int_equal(answer_bytes, 4);
	assert_int_equal(soda_wire_get_u32(answer), number);
	assert_true(fd >= 0);
	assert_int_not_equal(ftruncate(fd, PAGE), 0); /* it is sealed */
	assert_int_not_equal(ftruncate(fd, (off_t)size + PAGE), 0);
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(memory != MAP_FAILED);
	close(fd);
	return memory;
}

static int post_by_hand(struct soda_conn *conn, uint64_t number, const struct soda_wire_piece *p,
			uint32_t n)
{
	struct soda_wire_move_post head = { number, 0, n };
	uint8_t body[SODA_WIRE_MOVE_POST_BYTES + 4 * SODA_WIRE_PIECE_BYTES];

	soda_wire_put_move_post(body, &head);
	for (uint32_t i = 0; i < n; i++)
		soda_wire_put_piece(body + SODA_WIRE_MOVE_POST_BYTES + i * SODA_WIRE_PIECE_BYTES,
				    &p[i]);
	return ask(conn, SODA_MSG_MOVE_POST, body,
		   SODA_WIRE_MOVE_POST_BYTES + n * SODA_WIRE_PIECE_BYTES, NULL);
}

/* The notice of the next ticket, which may have come already. */
static int end_of(struct soda_conn *conn, uint64_t number)
{
	struct soda_wire_notice n;

	while (!answer_bytes)
		assert_int_equal(ask_number(conn, SODA_MSG_MOVE_AWAIT, TIMEOUT_MS, 4, NULL), 0);
	assert_int_equal(answer_bytes % SODA_WIRE_NOTICE_BYTES, 0);
	soda_wire_get_notice(answer, &n);
	assert_true(n.ticket == number);
	assert_int_equal(n.step != 0, n.status == SODA_ST_OK);
	answer_bytes -= SODA_WIRE_NOTICE_BYTES;
	memmove(answer, answer + SODA_WIRE_NOTICE_BYTES, answer_bytes);
	return soda_status_to_errno(n.status);
}

/* Pieces that name what is not there are refused, and what was there before stays. */
static void test_abused(void **state)
{
	const uint32_t area = SODA_WIRE_PIECE_AREA;
	const struct soda_wire_piece bad[] = {
		{ 0, 100, 100, 1, 0, area + 1 },
		{ 0, 100, 100, 1, 0, area + SODA_MOVE_AREAS },
		{ 0, 100, 100, 1, 0, UINT32_MAX },
		{ PAGE - 99, 100, 100, 1, 0, area },
		{ PAGE, 1, 1, 1, 0, area }, /* the page behind the data */
		{ UINT64_MAX - 10, 5, 5, 1, 0, area },
		{ UINT64_MAX - 10, 100, 100, 1, 0, area },
		{ 0, 1, PAGE, 2, 0, area },
		{ 0, 1, UINT64_MAX / 2, 3, 0, area },
		{ 5, 1, UINT64_MAX - 5, 2, 0, area },
		{ 0, 100, UINT64_MAX - PAGE, 2, 0, area },
	};
	struct soda_wire_piece good = { PAGE - 100, 100, 0, 1, 0, area };
	uint8_t body[16] = { 0 }, *memory;
	struct soda_conn *conn;

	start_agent(READS);
	conn = join();
	for (size_t bytes = 0; bytes < sizeof(body); bytes++) {
		if (bytes != 8)
			assert_int_equal(ask(conn, SODA_MSG_MOVE_ALLOC, body, bytes, NULL),
					 -EPROTO);
		if (bytes != 4)
			assert_int_equal(ask(conn, SODA_MSG_MOVE_FREE, body, bytes, NULL), -EPROTO);
	}
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_ALLOC, 0, 8, NULL), -EINVAL);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_ALLOC, UINT64_MAX, 8, NULL), -EINVAL);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_ALLOC, 1ull << 40, 8, NULL), -ENOSPC);
	assert_int_equal(post_by_hand(conn, 1, &good, 1), -EINVAL);
	memory = alloc_by_hand(conn, PAGE, 0);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(post_by_hand(conn, 1, &bad[i], 1), -EINVAL);
	assert_int_equal(post_by_hand(conn, 1, &good, 1), 0);
	assert_int_equal(end_of(conn, 1), 0);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_FREE, 1, 4, NULL), -EINVAL);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_FREE, UINT32_MAX, 4, NULL), -EINVAL);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_FREE, 0, 4, NULL), 0);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_FREE, 0, 4, NULL), -EINVAL);
	assert_int_equal(post_by_hand(conn, 2, &good, 1), -EINVAL);
	munmap(memory, 2 * PAGE);
	soda_conn_close(conn);
	stop_agent();
}

/* Memory that a list names stays with the agent, also where its client wants it freed, or goes. */
static void test_named(void **state)
{
	struct soda_wire_piece p[2] = { { (uintptr_t)own, 100, 100, 1, 0, SODA_WIRE_PIECE_COPY },
					{ 0, 200, 200, 1, 100, SODA_WIRE_PIECE_AREA } };
	struct soda_conn *conn;
	uint8_t *memory;

	start_agent(READS);
	conn = join();
	memory = alloc_by_hand(conn, PAGE, 0);
	closed = true;
	assert_int_equal(post_by_hand(conn, 1, p, 2), 0);
	assert_int_equal(post_by_hand(conn, 2, p + 1, 1), 0); /* behind it */
	for (int ms = 0; !waiting && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	assert_int_equal(ask_number(conn, SODA_MSG_MOVE_FREE, 0, 4, NULL), -EBUSY);
	closed = false;
	assert_int_equal(end_of(conn, 1), 0);
	assert_int_equal(end_of(conn, 2), 0);
	closed = true;
	assert_int_equal(post_by_hand(conn, 3, p, 2), 0);
	for (int ms = 0; !waiting && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	munmap(memory, 2 * PAGE);
	soda_conn_close(conn);
	poll(NULL, 0, 20);
	closed = false;
	await_nothing_reserved();
	stop_agent();
	assert_int_equal(agent.dpu.movement.published, 2);
}

/* A client that has given up what it handed over: nothing of it is shown any more. */
static void test_taken_back(void **state)
{
	struct soda_wire_piece p = { 0, 300, 300, 1, 0, SODA_WIRE_PIECE_AREA + 1 };
	struct soda_move_area_tail *tail;
	uint8_t *first, *memory;
	struct soda_conn *conn;

	start_agent(STREAMS);
	conn = join();
	first = alloc_by_hand(conn, 1, 0);
	memory = alloc_by_hand(conn, PAGE, 1);
	tail = (struct soda_move_area_tail *)(void *)(memory + PAGE);
	assert_int_equal(post_by_hand(conn, 1, &p, 1), 0);
	assert_int_equal(end_of(conn, 1), 0);
	atomic_store(&tail->stands, 0);
	assert_int_equal(post_by_hand(conn, 2, &p, 1), 0);
	assert_int_equal(end_of(conn, 2), EIO);
	atomic_store(&tail->stands, UINT32_MAX); /* not what was agreed */
	assert_int_equal(post_by_hand(conn, 3, &p, 1), 0);
	assert_int_equal(end_of(conn, 3), EIO);
	p.fill--;
	p.bytes = 1;
	assert_int_equal(post_by_hand(conn, 4, &p, 1), 0);
	assert_int_equal(end_of(conn, 4), 0);
	assert_int_equal(agent.dpu.movement.published, 2);
	munmap(first, 2 * PAGE);
	munmap(memory, 2 * PAGE);
	soda_conn_close(conn);
	stop_agent();
}

/* A client that sends its data has one list under way at a time, and none of both kinds. */
static void test_sent(void **state)
{
	struct soda_wire_piece p[2] = { { 0, 100, 100, 1, 0, SODA_WIRE_PIECE_COPY },
					{ 0, 200, 200, 1, 100, SODA_WIRE_PIECE_AREA } };
	uint8_t *memory, put[SODA_WIRE_MOVE_PUT_BYTES + 100] = { 0 };
	struct soda_wire_move_put head = { 1, 0 };
	struct soda_conn *conn;

	start_agent(STREAMS);
	conn = join();
	memory = alloc_by_hand(conn, PAGE, 0);
	assert_int_equal(post_by_hand(conn, 1, p, 2), -EINVAL);
	assert_int_equal(post_by_hand(conn, 1, p, 1), 0);
	assert_int_equal(post_by_hand(conn, 2, p + 1, 1), -EBUSY);
	soda_wire_put_move_put(put, &head);
	assert_int_equal(ask(conn, SODA_MSG_MOVE_PUT, put, sizeof(put), NULL), 0);
	assert_int_equal(end_of(conn, 1), 0);
	assert_int_equal(post_by_hand(conn, 2, p + 1, 1), 0);
	assert_int_equal(end_of(conn, 2), 0);
	assert_int_equal(post_by_hand(conn, 3, p, 1), 0);
	munmap(memory, 2 * PAGE);
	soda_conn_close(conn); /* with one that is being sent */
	await_nothing_reserved();
	stop_agent();
}

#define EACH_REACH(what)                                                                           \
	static void what##_reads(void **state)                                                     \
	{                                                                                          \
		what(READS);                                                                       \
	}                                                                                          \
	static void what##_streams(void **state)                                                   \
	{                                                                                          \
		what(STREAMS);                                                                     \
	}                                                                                          \
	static void what##_tcp(void **state)                                                       \
	{                                                                                          \
		what(TCP);                                                                         \
	}

EACH_REACH(moved)
EACH_REACH(mixed)
EACH_REACH(in_turns)
EACH_REACH(freed)

#define TESTS(what)                                                                                \
	cmocka_unit_test(what##_reads), cmocka_unit_test(what##_streams),                          \
		cmocka_unit_test(what##_tcp)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS(moved),
		TESTS(mixed),
		TESTS(in_turns),
		TESTS(freed),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_forked),
		cmocka_unit_test(test_abused),
		cmocka_unit_test(test_named),
		cmocka_unit_test(test_taken_back),
		cmocka_unit_test(test_sent),
	};

	real_ops = soda_source_ops;
	return cmocka_run_group_tests_name("memory that programs share", tests, NULL, NULL);
}
