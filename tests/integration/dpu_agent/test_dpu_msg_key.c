/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The key of a messages job, at an agent: what passes is of no use to those who see it, neither as
 * a rank nor as another agent.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "integration/mem_server/relay.h"
#include "lib/peer.h"
#include "lib/proc.h"
#include "trust/job_key.h"
#include "wire/field.h"

#define KEY "a key that nobody guesses"
/* Behind a JOIN: the name, which agent each of the two ranks has, and where agents are. */
#define BEHIND "job\0\1tcp://127.0.0.1:1\0tcp://127.0.0.1:2"

enum { JOIN_BYTES = SODA_WIRE_MSG_JOIN_BYTES + sizeof(BEHIND), LINK_BYTES = 3 };

static struct server memory, agent;

static void up(void)
{
	assert_int_equal(SERVER_START(&memory, "--capacity", "64M"), 0);
	const char *const args[] = {
		"--listen", "tcp://127.0.0.1:0", "--server", memory.address, "--msg-memory", "16M",
		NULL
	};

	assert_int_equal(agent_start(&agent, args), 0);
}

static void down(void)
{
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), 0);
	server_forget(&agent);
	assert_int_equal(server_stop(&memory), 0);
	server_forget(&memory);
}

static int ask(struct peer *peer, int type, const void *body, size_t bytes, void *reply,
	       size_t room, size_t *n_p)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };

	peer->why = (struct soda_why){ "" };
	return soda_conn_call(peer->control, (enum soda_msg)type, &iov, 1, reply, room, n_p,
			      PEER_TIMEOUT_MS, &peer->why);
}

static void challenge(struct peer *peer, struct soda_wire_msg_challenge *c)
{
	uint8_t body[4], reply[SODA_WIRE_MSG_CHALLENGE_BYTES];
	size_t n;

	soda_wire_put_u32(body, SODA_MSG_VERSION);
	if (ask(peer, SODA_MSG_MESSAGES_CHALLENGE, body, sizeof(body), reply, sizeof(reply), &n))
		fail_msg("%s", peer->why.text);
	assert_int_equal(soda_wire_get_msg_challenge(reply, n, c), 0);
}

static int say_join(struct peer *peer, const uint8_t *join)
{
	uint8_t reply[4];
	size_t n;

	return ask(peer, SODA_MSG_MESSAGES_JOIN, join, JOIN_BYTES, reply, sizeof(reply), &n);
}

/* Rank 0, which this agent has, of two. */
static void make_join(uint32_t role, uint8_t join[JOIN_BYTES])
{
	const struct soda_wire_msg_join j = { .version = SODA_MSG_VERSION,
					      .role = role,
					      .ranks = 2,
					      .life = 1,
					      .agents = 2,
					      .name_bytes = 3 };

	soda_wire_put_msg_join(join, &j);
	memcpy(join + SODA_WIRE_MSG_JOIN_BYTES, BEHIND, sizeof(BEHIND));
}

/* On a connection of its own, which stays. */
static void join_as(struct peer *peer, const char *address, const struct soda_job_pair *pair,
		    uint8_t join[JOIN_BYTES])
{
	struct soda_wire_msg_challenge c;

	assert_int_equal(peer_join(peer, address), 0);
	challenge(peer, &c);
	assert_int_equal(soda_job_sign_join(pair, &c, join, JOIN_BYTES), 0);
}

static void refused(struct peer *peer, const uint8_t *join, const char *why)
{
	assert_int_equal(say_join(peer, join), -EACCES);
	if (!strstr(peer->why.text, why))
		fail_msg("%s", peer->why.text);
}

/* A stranger that has seen all that a rank has said is no rank. */
static void test_what_was_seen(void **state)
{
	uint8_t seen[JOIN_BYTES], other[JOIN_BYTES];
	struct soda_wire_msg_challenge c;
	struct soda_job_pair pair, wrong;
	struct peer rank, stranger;
	struct relay r;

	up();
	assert_int_equal(soda_job_pair_make(KEY, "job", &pair), 0);
	relay_begin(&r, agent.address, 0, 0);
	make_join(SODA_MSG_PUSHES, seen);
	join_as(&rank, r.address, &pair, seen);
	if (say_join(&rank, seen))
		fail_msg("%s", rank.why.text);
	/* on another connection, with and without a challenge of its own, and once more */
	assert_int_equal(peer_join(&stranger, agent.address), 0);
	refused(&stranger, seen, "after CHALLENGE");
	challenge(&stranger, &c);
	refused(&stranger, seen, "proof of the job's key is wrong");
	refused(&stranger, seen, "after CHALLENGE");
	peer_vanish(&stranger);
	/* signed, and changed: the other role; and by another key */
	make_join(SODA_MSG_PULLS, other);
	join_as(&stranger, agent.address, &pair, other);
	other[16 + SODA_MSG_KEY_BYTES] ^= 2; /* the part's number */
	refused(&stranger, other, "proof of the job's key is wrong");
	peer_vanish(&stranger);
	assert_int_equal(soda_job_pair_make(KEY "!", "job", &wrong), 0);
	make_join(SODA_MSG_PULLS, other);
	join_as(&stranger, agent.address, &wrong, other);
	refused(&stranger, other, "of another key or user");
	peer_vanish(&stranger);
	/* the shown half of the right one, which was seen, with a proof by one's own */
	memcpy(wrong.shown, pair.shown, sizeof(wrong.shown));
	make_join(SODA_MSG_PULLS, other);
	join_as(&stranger, agent.address, &wrong, other);
	refused(&stranger, other, "proof of the job's key is wrong");
	peer_vanish(&stranger);
	/* who has the key comes in */
	make_join(SODA_MSG_PULLS, other);
	join_as(&stranger, agent.address, &pair, other);
	if (say_join(&stranger, other))
		fail_msg("%s", stranger.why.text);
	peer_leave(&stranger);
	peer_leave(&rank);
	relay_end(&r);
	assert_true(relay_saw(&r, pair.shown, sizeof(pair.shown)));
	assert_false(relay_saw(&r, KEY, strlen(KEY)));
	assert_false(relay_saw(&r, pair.seed, sizeof(pair.seed)));
	down();
}

static int say_link(struct peer *peer, const struct soda_job_pair *router, const uint8_t *join,
		    uint8_t link[SODA_WIRE_MSG_LINK_BYTES + LINK_BYTES])
{
	struct soda_wire_msg_place place;
	struct soda_wire_msg_join j;
	struct soda_wire_msg_link l = {
		.version = SODA_MSG_VERSION, .ranks = 2, .agents = 2, .from = 1, .life = 1
	};
	struct soda_wire_msg_challenge c;
	uint8_t reply[4];
	size_t n;

	assert_int_equal(soda_wire_get_msg_join(join, JOIN_BYTES, &j, &place), 0);
	memcpy(l.key, j.key, sizeof(l.key));
	memcpy(l.grant, j.grant, sizeof(l.grant));
	l.shape = soda_wire_msg_shape(&j, &place);
	soda_wire_put_msg_link(link, &l);
	memcpy(link + SODA_WIRE_MSG_LINK_BYTES, "job", LINK_BYTES);
	challenge(peer, &c);
	assert_int_equal(soda_job_sign_link(router, c.nonce, link, "job", LINK_BYTES), 0);
	return ask(peer, SODA_MSG_MESSAGES_LINK, link, SODA_WIRE_MSG_LINK_BYTES + LINK_BYTES, reply,
		   sizeof(reply), &n);
}

/* An agent of the job is one to which a rank of it has said so. */
static void test_agents(void **state)
{
	uint8_t join[JOIN_BYTES], its[JOIN_BYTES], link[SODA_WIRE_MSG_LINK_BYTES + LINK_BYTES];
	struct soda_wire_msg_challenge there = { .nonce = { 1 } };
	struct soda_job_pair pair, router, liar;
	struct peer rank, other;
	struct soda_why why;
	uint8_t reply[4];
	size_t n;

	up();
	assert_int_equal(soda_job_pair_make(KEY, "job", &pair), 0);
	assert_int_equal(soda_job_pair_draw(&router), 0);
	assert_int_equal(soda_job_pair_draw(&liar), 0);
	make_join(SODA_MSG_PUSHES, join);
	join_as(&rank, agent.address, &pair, join);
	assert_int_equal(say_join(&rank, join), 0);
	/* what rank 1 says to its agent, which is number 1 */
	make_join(SODA_MSG_PUSHES, its);
	its[8] = 1;
	its[60] = 1;
	memcpy(there.router, router.shown, sizeof(there.router));
	assert_int_equal(soda_job_sign_join(&pair, &there, its, JOIN_BYTES), 0);
	/* with what was granted to the agent of rank 0, to another one, or with nothing */
	assert_int_equal(peer_join(&other, agent.address), 0);
	assert_int_equal(say_link(&other, &router, join, link), -EACCES);
	assert_non_null(strstr(other.why.text, "proof of the job's key is wrong"));
	assert_int_equal(say_link(&other, &liar, its, link), -EACCES);
	why = other.why;
	assert_non_null(strstr(why.text, "proof of the job's key is wrong"));
	memset(link + SODA_WIRE_MSG_LINK_KEY, 0, SODA_MSG_KEY_BYTES);
	assert_int_equal(
		ask(&other, SODA_MSG_MESSAGES_LINK, link, sizeof(link), reply, sizeof(reply), &n),
		-EACCES);
	/* the agent itself; and what it has said, said again by others */
	if (say_link(&other, &router, its, link))
		fail_msg("%s", other.why.text);
	peer_vanish(&other);
	assert_int_equal(peer_join(&other, agent.address), 0);
	challenge(&other, &there);
	assert_int_equal(
		ask(&other, SODA_MSG_MESSAGES_LINK, link, sizeof(link), reply, sizeof(reply), &n),
		-EACCES);
	peer_vanish(&other);
	peer_vanish(&rank);
	down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_was_seen),
		cmocka_unit_test(test_agents),
	};
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	return cmocka_run_group_tests_name("dpu_msg_key", tests, NULL, NULL);
}
