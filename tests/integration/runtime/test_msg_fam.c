/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages straight out of fabric memory, and into it: libsoda-msg copies them in the program's
 * thread, which faults meanwhile, with a page buffer that has room for a fraction of the data.
 */
#include <soda_msg.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { BYTES = 12 << 20, WORDS = BYTES / 8, WAIT_MS = 60000 };

static struct world world;
static struct server agent;

struct copies {
	struct soda_msg_job *job;
	uint64_t *from, *to;
	size_t bytes; /* that have arrived */
};

/* A message's first word says where it was in `from`. */
static void keep(struct copies *c, const struct soda_message *m)
{
	uint64_t at;

	CHECK(m->bytes >= sizeof(at), "%zu bytes", m->bytes);
	memcpy(&at, m->data, sizeof(at));
	CHECK(at < WORDS && m->bytes <= BYTES - at * 8, "word %llu", (unsigned long long)at);
	memcpy(c->to + at, m->data, m->bytes);
	c->bytes += m->bytes;
}

static int pull_all(struct copies *c)
{
	struct soda_message m;
	int ret;

	while ((ret = soda_msg_pull(c->job, &m)) == 0)
		keep(c, &m);
	CHECK(ret == -EAGAIN || ret == -ENODATA, "pull: %s", soda_msg_last_error());
	return ret;
}

static void wait_for(struct copies *c, unsigned what)
{
	CHECK(!soda_msg_wait(c->job, what, WAIT_MS), "wait: %s", soda_msg_last_error());
}

/* All of `from`, in messages of these sizes. */
static void push_all(struct copies *c)
{
	static const size_t sizes[] = { 8, 4096, 24, 40000, 65544, 1 << 20, 1000 };
	size_t bytes;

	for (size_t at = 0, i = 0; at < BYTES; at += bytes, i++) {
		int ret;

		bytes = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
		bytes = bytes < BYTES - at ? bytes : BYTES - at;
		c->from[at / 8] = at / 8;
		while ((ret = soda_msg_push(c->job, 0, c->from + at / 8, bytes)) == -EAGAIN) {
			pull_all(c);
			wait_for(c, SODA_MSG_PULL | SODA_MSG_PUSH);
		}
		CHECK(!ret, "push: %s", soda_msg_last_error());
	}
}

static void child(const void *arg)
{
	struct soda_msg_options how = { .agent = agent.address, .job = "fam", .ranks = 1 };
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct copies c = { 0 };

	cfg.server = world.address;
	cfg.buffer = "3M"; /* an eighth of both objects */
	start(&cfg);
	c.from = alloc_checked(BYTES);
	c.to = alloc_checked(BYTES);
	for (size_t i = 0; i < WORDS; i++)
		c.from[i] = mix(i, 1);
	CHECK(!soda_msg_start(&how, &c.job), "start: %s", soda_msg_last_error());
	push_all(&c);
	CHECK_EQ(soda_msg_finish(c.job), 0);
	while (pull_all(&c) != -ENODATA)
		wait_for(&c, SODA_MSG_PULL);
	soda_msg_end(c.job);
	CHECK_EQ(c.bytes, BYTES);
	for (size_t i = 0; i < WORDS; i++)
		CHECK(c.to[i] == c.from[i] && (c.to[i] == i || c.to[i] == mix(i, 1)),
		      "word %zu: %llx", i, (unsigned long long)c.to[i]);
}

static void copied(void **state)
{
	const char *const args[] = { "--listen",
				     "tcp://127.0.0.1:0",
				     "--server",
				     "tcp://127.0.0.1:1",
				     "--msg-memory",
				     "4M",
				     NULL };
	struct trial t = { .child = child };
	struct outcome out;

	assert_int_equal(agent_start(&agent, args), 0);
	trial_run(&t, &out);
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), 0);
	server_forget(&agent);
	expect_quiet_success(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(copied) };

	return WORLD_RUN("msg_fam", &world, false, tests);
}
