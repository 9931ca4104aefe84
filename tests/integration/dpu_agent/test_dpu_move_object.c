/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Movement into objects in FAM: producers that place lists in ranges of an object of the memory
 * server, and consumers that map it once it is published; agents, servers and lists that fail.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"
#include "soda_move.h"

enum {
	WAIT_MS = 60000,
	PAGE = 4096,
	HALF = 1536 << 10,
	WORDS = 2 * HALF / 8 + 25, /* the object does not end with a page */
	BYTES = WORDS * 8,
	LISTS = 40,
	DIES_MS = 20000,
};

static struct world world;
static struct server agent;

struct job {
	const char *listen;
	const char *async;
};

static const struct job by_shm = { "shm://@soda-move-object-%d-%d", "--async=yes" };
static const struct job by_tcp = { "tcp://127.0.0.1:0", "--async=yes" };
static const struct job sync_shm = { "shm://@soda-move-object-%d-%d", "--async=no" };

static void up(const struct job *job)
{
	static int n;
	char listen[64];
	const char *args[] = { "--listen", listen,     "--server",  world.address, "--move-memory",
			       "16M",	   job->async, "--timeout", "2s",	   NULL };

	snprintf(listen, sizeof(listen), job->listen, (int)getpid(), n++);
	assert_int_equal(agent_start(&agent, args), 0);
}

static void down(void)
{
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), 0);
	server_forget(&agent);
}

#define OK(call)                                                                                   \
	do {                                                                                       \
		int ret_ = (call);                                                                 \
		CHECK(ret_ == 0, "%d: %s", ret_, soda_move_last_error());                          \
	} while (0)

static void move_all(struct soda_move_buffer *b, const void *from, uint64_t bytes)
{
	struct soda_move_piece piece = { .from = from, .bytes = bytes };
	struct soda_move_ticket *t;

	OK(soda_move(b, &piece, 1, &t));
	OK(soda_move_wait(t, WAIT_MS, NULL));
}

static uint64_t *make_words(uint64_t seed)
{
	static uint64_t memory[2][WORDS];
	static unsigned used;
	uint64_t *words = memory[used++];

	CHECK(used <= 2, "more of them than there is memory for");
	for (size_t i = 0; i < WORDS; i++)
		words[i] = mix(i, seed);
	return words;
}

/* What a program sees that opens it, straight or through the agent. */
static const uint64_t *open_published(const char *name, const char *dpu)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	const uint64_t *seen;
	size_t bytes;

	if (dpu)
		cfg.dpu = dpu;
	else
		cfg.server = world.address;
	cfg.buffer = "2M"; /* less than the object */
	start(&cfg);
	seen = soda_open_published(name, &bytes);
	CHECK(seen, "%s", soda_last_error());
	CHECK_EQ(bytes, BYTES);
	return seen;
}

static void child_places(const void *arg)
{
	static uint64_t column[2 * HALF / 8];
	uint64_t *words = make_words(1);
	struct soda_move_buffer *first, *rest;
	struct soda_move_object *o, *other;
	struct soda_move_piece pieces[2];
	struct soda_move_ticket *t;
	const uint64_t *seen;
	struct soda_mover *m;
	uint64_t step;

	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_object_alloc(m, BYTES, &o));
	OK(soda_move_object_range(o, 0, HALF, 0, &first));
	OK(soda_move_object_range(o, HALF, BYTES - HALF, 1, &rest));
	/* every other word, then a gap, and a constant at the end */
	for (size_t i = 0; i < HALF / 8; i++)
		column[2 * i] = words[i];
	pieces[0] = (struct soda_move_piece){
		.from = column, .bytes = 8, .stride = 16, .count = HALF / 8 - 100
	};
	pieces[1] = (struct soda_move_piece){ .bytes = 400, .fill = 'x', .offset = HALF - 400 };
	OK(soda_move(first, pieces, 2, &t));
	move_all(rest, (const char *)words + HALF, BYTES - HALF);
	OK(soda_move_wait(t, WAIT_MS, &step));
	CHECK_EQ(step, 1);
	CHECK_EQ(soda_move_object_publish(o, "two words"), -EINVAL);
	OK(soda_move_object_publish(o, "placed"));
	CHECK_EQ(soda_move_object_publish(o, "placed"), -EALREADY);
	CHECK_EQ(soda_move(first, pieces, 2, &t), -EROFS);
	OK(soda_move_object_alloc(m, PAGE, &other));
	CHECK_EQ(soda_move_object_publish(other, "placed"), -EEXIST);
	OK(soda_move_object_free(other));
	seen = open_published("placed", arg);
	OK(soda_move_object_free(o)); /* others have it still */
	soda_move_disconnect(m);
	for (size_t i = 0; i < WORDS; i++) {
		uint64_t want = i < HALF / 8 - 100  ? words[i]
				: i < HALF / 8 - 50 ? 0
				: i < HALF / 8	    ? 0x7878787878787878
						    : words[i];

		CHECK(seen[i] == want, "word %zu: %llx", i, (unsigned long long)seen[i]);
	}
}

static void places(const struct job *job)
{
	up(job);
	expect_passes(child_places, agent.address);
	expect_passes(child_places, NULL);
	assert_int_equal(peer_stat_at(agent.address, "move_steps"), 4);
	assert_int_equal(peer_stat_at(agent.address, "move_stored_bytes"),
			 2 * ((BYTES + PAGE - 1) / PAGE * PAGE));
	peer_await_none(agent.address, "move_reserved_bytes");
	down();
}

static void test_shm(void **state)
{
	places(&by_shm);
}

static void test_tcp(void **state)
{
	places(&by_tcp);
}

static void test_no_async(void **state)
{
	places(&sync_shm);
}

/* More lists than copies: each waits for the storer; the last one is what is seen. */
static void child_many(const void *arg)
{
	struct soda_move_ticket *t[LISTS];
	struct soda_move_buffer *b;
	struct soda_move_object *o;
	const uint64_t *seen;
	struct soda_mover *m;
	uint64_t step, *area;
	unsigned ended = 0;

	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_alloc(m, LISTS * PAGE, (void **)&area));
	OK(soda_move_object_alloc(m, BYTES, &o));
	OK(soda_move_object_range(o, 0, BYTES, 0, &b));
	for (int i = 0; i < LISTS; i++) {
		struct soda_move_piece p[2] = {
			{ .from = area + i * PAGE / 8, .bytes = PAGE },
			{ .bytes = BYTES - PAGE, .fill = (unsigned)i, .offset = PAGE },
		};

		for (int k = 0; k < PAGE / 8; k++)
			area[i * PAGE / 8 + k] = mix((uint64_t)k, (uint64_t)i);
		OK(soda_move(b, p, 2, &t[i]));
	}
	/* it waits for lists by the objects' connection, too */
	OK(soda_move_free(m, area));
	for (int i = 0; i < LISTS; i++) {
		OK(soda_move_wait(t[i], WAIT_MS, &step));
		CHECK_EQ(step, ++ended);
	}
	OK(soda_move_object_publish(o, "many"));
	seen = open_published("many", agent.address);
	for (size_t i = 0; i < WORDS; i++)
		CHECK(seen[i] ==
			      (i < PAGE / 8 ? mix(i, LISTS - 1) : (LISTS - 1) * 0x0101010101010101),
		      "word %zu: %llx", i, (unsigned long long)seen[i]);
	soda_move_disconnect(m);
}

static void many(const struct job *job)
{
	up(job);
	expect_passes(child_many, NULL);
	assert_int_equal(peer_stat_at(agent.address, "move_steps"), LISTS);
	down();
}

static void test_many_shm(void **state)
{
	many(&by_shm);
}

static void test_many_tcp(void **state)
{
	many(&by_tcp);
}

/* A list that fails before it is written leaves the range as it was. */
static void child_fails(const void *arg)
{
	uint64_t *words = make_words(2), *other = make_words(3);
	char *gone = mmap(NULL, HALF, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct soda_move_piece bad[2] = { { .from = other, .bytes = HALF },
					  { .from = gone, .bytes = HALF, .offset = HALF } };
	struct soda_move_piece good = { .from = words, .bytes = BYTES };
	struct soda_move_ticket *t, *cancelled[8];
	struct soda_move_buffer *b, *none;
	struct soda_move_object *o, *none_o;
	const uint64_t *seen;
	struct soda_mover *m;

	OK(soda_move_connect(agent.address, &m));
	CHECK_EQ(soda_move_object_alloc(m, 0, &none_o), -EINVAL);
	CHECK_EQ(soda_move_object_alloc(m, 1ull << 40, &none_o), -ENOSPC);
	OK(soda_move_object_alloc(m, BYTES, &o));
	CHECK_EQ(soda_move_object_range(o, 8, PAGE, 0, &none), -EINVAL);
	CHECK_EQ(soda_move_object_range(o, 0, PAGE + 8, 0, &none), -EINVAL);
	CHECK_EQ(soda_move_object_range(o, 0, 0, 0, &none), -EINVAL);
	CHECK_EQ(soda_move_object_range(o, 0, BYTES + 1, 0, &none), -EINVAL);
	CHECK_EQ(soda_move_object_range(o, UINT64_MAX - PAGE + 1, PAGE, 0, &none), -EINVAL);
	CHECK_EQ(soda_move_object_range(o, 0, BYTES, 64, &none), -ENOSPC);
	CHECK_EQ(soda_move_object_range(o, 0, BYTES, 65, &none), -EINVAL);
	OK(soda_move_object_range(o, 0, BYTES, 2, &b));
	move_all(b, words, BYTES);
	OK(soda_move(b, bad, 2, &t));
	CHECK_EQ(soda_move_wait(t, WAIT_MS, NULL), -EFAULT);
	for (int i = 0; i < 8; i++)
		OK(soda_move(b, &good, 1, &cancelled[i]));
	for (int i = 0; i < 8; i++)
		soda_move_cancel(cancelled[i]);
	for (int i = 0; i < 8; i++) {
		int ret = soda_move_wait(cancelled[i], WAIT_MS, NULL);

		CHECK(ret == 0 || ret == -ECANCELED, "%d: %s", ret, soda_move_last_error());
	}
	OK(soda_move_object_publish(o, "failed"));
	seen = open_published("failed", agent.address);
	CHECK(!memcmp(seen, words, BYTES), "a list that failed has left something");
	soda_move_disconnect(m);
}

static void fails(const struct job *job)
{
	up(job);
	expect_passes(child_fails, NULL);
	peer_await_none(agent.address, "move_reserved_bytes");
	down();
}

static void test_fails_shm(void **state)
{
	fails(&by_shm);
}

static void test_fails_tcp(void **state)
{
	fails(&by_tcp);
}

/* The producer, the agent or the server dies while lists are written: nothing hangs or is shown. */
static void child_dies(const void *arg)
{
	uint64_t *words = make_words(4);
	struct soda_move_piece piece = { .from = words, .bytes = BYTES };
	struct soda_move_ticket *t[8];
	struct soda_move_buffer *b;
	struct soda_move_object *o;
	struct soda_mover *m;
	bool failed = false;
	int ret;

	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_object_alloc(m, BYTES, &o));
	OK(soda_move_object_range(o, 0, BYTES, 2, &b));
	for (int i = 0; i < 8; i++)
		OK(soda_move(b, &piece, 1, &t[i]));
	turn_pass();
	for (int i = 0; i < 8; i++) {
		ret = soda_move_wait(t[i], DIES_MS, NULL);
		CHECK(ret == 0 || ret == -ENOTCONN || ret == -EIO, "%d: %s", ret,
		      soda_move_last_error());
		failed = failed || ret;
	}
	turn_await();
	for (ret = 0; ret == 0;) /* some list, at last, finds the peer dead */
		ret = soda_move(b, &piece, 1, &t[0]) ?: soda_move_wait(t[0], DIES_MS, NULL);
	CHECK(ret == -ENOTCONN || ret == -EIO, "%d: %s", ret, soda_move_last_error());
	ret = soda_move_object_publish(o, "dead");
	CHECK(ret == -ENOTCONN || ret == -EIO, "%d: %s", ret, soda_move_last_error());
	soda_move_disconnect(m);
}

static void kill_agent(const void *arg)
{
	if (turn_await())
		server_kill(&agent);
	turn_pass();
}

static void kill_server(const void *arg)
{
	if (turn_await())
		world_kill(&world);
	turn_pass();
}

static void dies(const struct job *job, void (*kill_it)(const void *arg))
{
	const struct trial trial = { .child = child_dies, .during = kill_it };
	struct outcome out;

	up(job);
	trial_run(&trial, &out);
	expect_quiet_success(&out);
}

static void test_agent_dies(void **state)
{
	dies(&by_shm, kill_agent);
	server_forget(&agent);
}

static void test_server_dies(void **state)
{
	dies(&by_shm, kill_server);
	world_restart(&world);
	server_kill(&agent); /* it has logged what has happened */
	server_forget(&agent);
	dies(&by_tcp, kill_server);
	world_restart(&world);
	server_kill(&agent);
	server_forget(&agent);
}

static void child_killed(const void *arg)
{
	uint64_t *words = make_words(5);
	struct soda_move_piece piece = { .from = words, .bytes = BYTES };
	struct soda_move_buffer *b;
	struct soda_move_object *o;
	struct soda_mover *m;

	OK(soda_move_connect(agent.address, &m));
	OK(soda_move_object_alloc(m, BYTES, &o));
	OK(soda_move_object_range(o, 0, BYTES, 2, &b));
	for (int i = 0; i < 8; i++)
		OK(soda_move(b, &piece, 1, NULL));
	kill(getpid(), SIGKILL);
}

static void test_producer_dies(void **state)
{
	const struct trial trial = { .child = child_killed };
	struct outcome out;

	up(&by_shm);
	for (int i = 0; i < 4; i++) {
		trial_run(&trial, &out);
		expect_signal(&out, SIGKILL);
	}
	peer_await_none(agent.address, "move_reserved_bytes");
	expect_passes(child_places, agent.address);
	down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shm),	   cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_no_async),   cmocka_unit_test(test_many_shm),
		cmocka_unit_test(test_many_tcp),   cmocka_unit_test(test_fails_shm),
		cmocka_unit_test(test_fails_tcp),  cmocka_unit_test(test_producer_dies),
		cmocka_unit_test(test_agent_dies), cmocka_unit_test(test_server_dies),
	};

	return WORLD_RUN("dpu_move_object", &world, false, tests);
}
