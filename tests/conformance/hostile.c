/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients of a two-sided daemon on shm that write what they like into their queue:
 * their connection ends, counted, and nobody else is disturbed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conformance.h"
#include "transport/shm/queue.h"

static const struct variant variant = {
	"hostile, shm, two-sided",
	"shm://@soda-conformance-hostile-%d",
	"",
	SODA_ENGINE_AUTO,
	false,
	true,
};

/* A client made by hand. */
struct client {
	int fd, queue_fd;
	struct soda_queue q;
	uint32_t sent;
};

static int recv_welcome(int fd)
{
	uint8_t in[SODA_WIRE_FRAME_BYTES + SODA_WIRE_WELCOME_BYTES];
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { in, sizeof(in) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	int queue_fd;

	assert_int_equal(recvmsg(fd, &msg, MSG_WAITALL), sizeof(in));
	assert_int_equal(in[0], SODA_MSG_OK);
	assert_non_null(CMSG_FIRSTHDR(&msg));
	memcpy(&queue_fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(queue_fd));
	return queue_fd;
}

static void client_open(const struct env *e, struct client *c)
{
	struct soda_wire_hello h = { .magic = SODA_WIRE_MAGIC,
				     .version = SODA_WIRE_VERSION,
				     .kind = SODA_CONN_DATA,
				     .features = SODA_FEATURE_QUEUE,
				     .chunk_bytes = CHUNK_BYTES,
				     .client_id = 9,
				     .secret = FAKE_SECRET };
	uint8_t out[SODA_WIRE_FRAME_BYTES + SODA_WIRE_HELLO_BYTES];
	struct soda_why why;

	c->fd = raw_connect(e);
	c->sent = 0;
	raw_frame(out, SODA_MSG_HELLO, SODA_WIRE_HELLO_BYTES);
	soda_wire_put_hello(out + SODA_WIRE_FRAME_BYTES, &h);
	raw_send(c->fd, out, sizeof(out));
	c->queue_fd = recv_welcome(c->fd);
	assert_int_equal(soda_queue_map(c->queue_fd, &c->q, &why), 0);
	assert_int_equal(c->q.slot_bytes, CHUNK_BYTES);
}

static void put(struct client *c, uint32_t type, uint32_t slot, uint64_t page, uint32_t size,
		uint64_t place)
{
	struct soda_queue_request *r = &c->q.requests[c->sent++ % c->q.n];

	*r = (struct soda_queue_request){ .imm = type, .slot = slot };
	if (type == SODA_MSG_WRITE)
		soda_wire_put_write(r->body, &(struct soda_wire_write){ .region_id = 7,
									.page_offset = page,
									.size = size });
	else
		soda_wire_put_read(r->body, &(struct soda_wire_read){ .region_id = 7,
								      .page_offset = page,
								      .dest_addr = place,
								      .size = size });
}

static void ring(struct client *c)
{
	soda_queue_publish(&c->q.head->requests_tail, c->sent, &c->q.head->daemon_waits, c->fd);
}

/* The daemon hangs up on it. */
static void assert_thrown_out(struct env *e, struct client *c, unsigned rejected)
{
	await_count(e, &e->fake.rejected, rejected);
	assert_closed(c->fd);
	soda_queue_unmap(&c->q);
	close(c->queue_fd);
}

static void client_close(struct client *c)
{
	close(c->fd);
	soda_queue_unmap(&c->q);
	close(c->queue_fd);
}

/* Wait until so many events have come. */
static void await_events(struct client *c, uint32_t n)
{
	for (int i = 0; i < 5000 && atomic_load(&c->q.head->events_tail) < n; i++)
		usleep(1000);
	assert_int_equal(atomic_load(&c->q.head->events_tail), n);
}

static void test_bad_requests(void **state)
{
	static const struct {
		uint32_t type, slot, size;
		uint64_t place;
	} bad[] = {
		{ SODA_MSG_READ, 256, 4096, 0 },
		{ SODA_MSG_READ, UINT32_MAX, 4096, 0 },
		{ SODA_MSG_READ, 0, 0, 0 },
		{ SODA_MSG_READ, 0, 100, 0 },
		{ SODA_MSG_READ, 0, CHUNK_BYTES + 4096, 0 },
		{ SODA_MSG_WRITE, 0, 0xfffff000, 0 },
		{ SODA_MSG_READ, 0, 4096, 4096 },
		{ SODA_MSG_READ, 0, 4096, 1 },
		{ SODA_MSG_READ_REPLY, 0, 4096, 0 },
		{ 0, 0, 4096, 0 },
		{ 0xff, 0, 4096, 0 },
	};
	struct env *e = *state;
	struct client c;
	struct link l;

	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		client_open(e, &c);
		put(&c, SODA_MSG_READ, 3, 1, 4096, 0);
		put(&c, bad[i].type, bad[i].slot, 0, bad[i].size, bad[i].place);
		put(&c, SODA_MSG_READ, 5, 1, 4096, 0);
		ring(&c);
		assert_thrown_out(e, &c, i + 1);
		assert_works(&l);
	}
	link_close(&l);
}

/* Refused by the daemon, one by one; the connection goes on. */
static void test_refused_requests(void **state)
{
	static const unsigned status[] = { SODA_ST_INVALID, SODA_ST_INVALID, SODA_ST_OK };
	struct env *e = *state;
	struct client c;
	struct link l;

	link_open(e, &l, "", 0, 8);
	client_open(e, &c);
	put(&c, SODA_MSG_READ, 0, REGION_BYTES / 4096, 4096, 0);
	put(&c, SODA_MSG_WRITE, 1, 0xffffffffffff, 4096, 0);
	put(&c, SODA_MSG_READ, 2, 3, 4096, 0);
	ring(&c);
	await_events(&c, 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(c.q.events[i].kind, SODA_QUEUE_DONE);
		assert_int_equal(c.q.events[i].slot, i);
		assert_int_equal(c.q.events[i].status, status[i]);
	}
	assert_int_equal(wrong_bytes(soda_queue_slot(&c.q, 2), 7, 3 * 4096, 4096), 0);
	client_close(&c);
	link_close(&l);
}

static void test_slot_in_use(void **state)
{
	struct env *e = *state;
	struct client c;
	struct link l;

	link_open(e, &l, "", 0, 8);
	fake_stall(&e->fake, true);
	client_open(e, &c);
	put(&c, SODA_MSG_READ, 3, 1, 4096, 0);
	put(&c, SODA_MSG_READ, 3, 2, 4096, 0);
	ring(&c);
	await_count(e, &e->fake.rejected, 1);
	fake_stall(&e->fake, false);
	assert_thrown_out(e, &c, 1);
	assert_works(&l);
	link_close(&l);
}

/* More than the queue holds, at once or one by one. */
static void test_indices(void **state)
{
	static const uint32_t tails[] = { 257, 0x80000000, UINT32_MAX };
	struct env *e = *state;
	struct client c;
	struct link l;

	link_open(e, &l, "", 0, 8);
	for (unsigned i = 0; i < 3; i++) {
		client_open(e, &c);
		c.sent = tails[i];
		ring(&c);
		assert_thrown_out(e, &c, i + 1);
	}
	client_open(e, &c); /* says that it took answers which there never were */
	atomic_store(&c.q.head->events_head, 1);
	put(&c, SODA_MSG_READ, 0, 0, 4096, 0);
	ring(&c);
	assert_thrown_out(e, &c, 4);
	assert_works(&l);
	link_close(&l);
}

/* Takes no answers, and asks on. */
static void test_greedy(void **state)
{
	struct env *e = *state;
	struct client c;
	struct link l;

	link_open(e, &l, "", 0, 8);
	client_open(e, &c);
	for (unsigned i = 0; i < 1000 && !fake_count(&e->fake, &e->fake.rejected); i++) {
		put(&c, SODA_MSG_READ, i % c.q.n, 0, 4096, 0);
		ring(&c);
		for (int k = 0; k < 1000 && atomic_load(&c.q.head->events_tail) <= i &&
				!fake_count(&e->fake, &e->fake.rejected);
		     k++)
			usleep(100);
	}
	assert_thrown_out(e, &c, 1);
	assert_works(&l);
	link_close(&l);
}

/* The data of WRITEs change while the daemon uses them, then there is no memory behind the queue.
 */
static void test_changes(void **state)
{
	struct env *e = *state;
	struct client c;
	struct link l;

	e->fake.tolerant = true;
	link_open(e, &l, "", 0, 8);
	client_open(e, &c);
	for (unsigned i = 0; i < 4 * FAKE_KEPT; i++) {
		put(&c, SODA_MSG_WRITE, i, 1024 + i * 16, CHUNK_BYTES, 0);
		ring(&c);
		memset(soda_queue_slot(&c.q, i), (int)i, CHUNK_BYTES);
	}
	await_events(&c, 4 * FAKE_KEPT + 3 * FAKE_KEPT); /* the last ones are kept */
	assert_works(&l);
	/* memory that is there no more is memory of zeros */
	assert_int_equal(fallocate(c.queue_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   (off_t)c.q.bytes),
			 0);
	assert_true(ftruncate(c.queue_fd, 0) < 0);
	ring(&c);
	assert_works(&l);
	client_close(&c);
	await_count(e, &e->fake.gone, 1);
	link_close(&l);
}

static void test_garbage(void **state)
{
	struct env *e = *state;
	unsigned seed = 17;
	struct client c;
	struct link l;

	link_open(e, &l, "", 0, 8);
	for (unsigned round = 0; round < 100; round++) {
		uint32_t *words;
		unsigned n;

		client_open(e, &c);
		words = (uint32_t *)(round % 2 ? (void *)c.q.requests : (void *)c.q.head);
		n = round % 2 ? 2048 : 1024;
		for (unsigned i = 0; i < n; i++)
			words[i] = (uint32_t)rand_r(&seed) * (round % 3 ? 1u : 77777u);
		c.sent = round % 4 ? (uint32_t)rand_r(&seed) % 300 : 256;
		ring(&c);
		send(c.fd, &seed, 1 + round % 4, MSG_NOSIGNAL);
		if (round % 8 == 0)
			assert_works(&l);
		client_close(&c);
	}
	await_count(e, &e->fake.gone, 100);
	assert_works(&l);
	link_close(&l);
}

/* Bells without end. */
static void test_bells(void **state)
{
	static const uint8_t zeros[4096];
	struct env *e = *state;
	struct client c;
	struct link l;

	link_open(e, &l, "", 0, 8);
	client_open(e, &c);
	for (unsigned i = 0; i < 2000; i++)
		send(c.fd, zeros, sizeof(zeros), MSG_DONTWAIT | MSG_NOSIGNAL);
	assert_works(&l);
	put(&c, SODA_MSG_READ, 0, 1, 4096, 0);
	ring(&c);
	await_events(&c, 1);
	client_close(&c);
	assert_works(&l);
	link_close(&l);
}

/* Without the feature, or with chunks that no slot can have. */
static void test_hellos(void **state)
{
	static const uint32_t chunk[] = { 0, 100, 65537, 8 << 20 };
	struct env *e = *state;
	struct soda_wire_hello hello = { .epoch = 1, .client_id = 9, .secret = FAKE_SECRET };
	struct soda_conn_options opt = { .kind = SODA_CONN_DATA, .timeout_ms = TIMEOUT_MS };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;
	uint8_t out[256];
	int fd;

	for (unsigned i = 0; i < 4; i++) {
		hello.chunk_bytes = chunk[i];
		assert_int_equal(
			soda_conn_connect(e->address, &hello, &opt, &conn, &welcome, &e->why),
			-EPROTO);
		assert_non_null(strstr(e->why.text, "chunks of"));
	}
	fd = raw_connect(e);
	raw_send(fd, out, raw_hello(out, SODA_WIRE_MAGIC, SODA_WIRE_VERSION, SODA_CONN_DATA));
	raw_recv(fd, out, SODA_WIRE_FRAME_BYTES);
	assert_int_equal(out[0], SODA_MSG_REFUSED);
	assert_closed(fd);
}

#define HOSTILE(f)                                                                                 \
	{                                                                                          \
#f, f, env_setup, env_teardown, (void *)(uintptr_t)&variant                        \
	}

int run_hostile(void)
{
	struct CMUnitTest tests[] = {
		HOSTILE(test_bad_requests), HOSTILE(test_refused_requests),
		HOSTILE(test_slot_in_use),  HOSTILE(test_indices),
		HOSTILE(test_greedy),	    HOSTILE(test_changes),
		HOSTILE(test_garbage),	    HOSTILE(test_bells),
		HOSTILE(test_hellos),
	};

	return _cmocka_run_group_tests(variant.name, tests, sizeof(tests) / sizeof(tests[0]), NULL,
				       NULL);
}
