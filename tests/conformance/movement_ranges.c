/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists that are placed in ranges of an object, as movement sees them: what paging does is a table
 * of functions here, which writes to memory of the test's, late, or not at all.  The agent without
 * its main() and libsoda-move are in one process.
 *
 *   test_movement_ranges [verbs [CASE]]: only where SODA_TEST_VERBS names an address
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

#include <cmocka.h>

#include "agent_here.h"
#include "movement/mover.h"
#include "soda_move.h"
#include "wire/field.h"

enum {
	TIMEOUT_MS = AGENT_TIMEOUT_MS,
	PAGE = 4096,
	AT = 3 * PAGE,
	BYTES = 150 * PAGE + 77,
	OBJECT = AT + BYTES,
	ROOM = AT + 151 * PAGE + 1000, /* some that is not written */
	REGION = 7,
	BUDGET = 16 << 20,
};

static struct agent agent;
static struct soda_mover *mover;
static struct soda_move_object *object; /* made by hand: no session has a region here */
static struct soda_move_buffer *buffer;
static uint8_t fam[ROOM], own[BYTES];
static _Atomic int refusal;
static _Atomic bool closed; /* writes wait */
static _Atomic unsigned writes, waiting;

static int fake_check(struct soda_session *s, uint32_t id, uint64_t offset, uint64_t bytes,
		      struct soda_why *why)
{
	return id == REGION && offset % PAGE == 0 && bytes % PAGE == 0 &&
			       offset + bytes <= ROOM / PAGE * PAGE
		       ? 0
		       : -EINVAL;
}

/*
 * The notice that a WRITE is done orders it before the check; it travels through memory that is
 * mapped twice, which ThreadSanitizer takes for two.
 */
static pthread_mutex_t fam_lock = PTHREAD_MUTEX_INITIALIZER;

static int fake_write(struct soda_session *s, uint32_t id, uint64_t offset, uint8_t *data,
		      uint64_t bytes)
{
	waiting++;
	for (int ms = 0; closed && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	waiting--;
	if (fake_check(s, id, offset, bytes, NULL) < 0)
		return -EINVAL;
	writes++;
	if (refusal)
		return refusal;
	pthread_mutex_lock(&fam_lock);
	memcpy(fam + offset, data, bytes);
	pthread_mutex_unlock(&fam_lock);
	return 0;
}

static const struct soda_agent_regions fakes = { fake_check, fake_write };

#define OK(call)                                                                                   \
	do {                                                                                       \
		int ret_ = (call);                                                                 \
		if (ret_)                                                                          \
			fail_msg("%s: %d: %s", #call, ret_, soda_move_last_error());               \
	} while (0)

static void up(const char *where, unsigned copies)
{
	closed = false;
	refusal = 0;
	writes = 0;
	memset(fam, 'f', sizeof(fam));
	for (size_t i = 0; i < BYTES; i++)
		own[i] = (uint8_t)(i * 7 + i / 251);
	agent_start(&agent, BUDGET);
	agent.dpu.sessions.regions = &fakes;
	agent_listen(&agent, where);
	OK(soda_move_connect(soda_listener_address(agent.listener), &mover));
	object = calloc(1, sizeof(*object));
	assert_non_null(object);
	*object = (struct soda_move_object){ .mover = mover, .bytes = OBJECT, .region = REGION };
	mover->objects = object; /* freed with it */
	OK(soda_move_object_range(object, AT, BYTES, copies, &buffer));
}

static void await_nothing_reserved(void)
{
	uint64_t left = 1;

	for (int ms = 0; left && ms < TIMEOUT_MS; ms++) {
		left = agent_move_bytes(&agent) + agent_list_bytes(&agent);
		poll(NULL, 0, !!left);
	}
	assert_int_equal(left, 0);
}

static void down(void)
{
	soda_move_disconnect(mover);
	closed = false;
	await_nothing_reserved();
	agent_stop(&agent);
}

static struct soda_move_ticket *hand_over(uint64_t bytes, uint64_t offset)
{
	struct soda_move_piece p = { .from = own, .bytes = bytes, .offset = offset };
	struct soda_move_ticket *t;

	OK(soda_move(buffer, &p, 1, &t));
	return t;
}

static void await_waiting(void)
{
	for (int ms = 0; !waiting && ms < TIMEOUT_MS; ms++)
		poll(NULL, 0, 1);
	assert_int_equal(waiting, 1);
}

static void check_fam(uint8_t before, uint64_t from, uint64_t to)
{
	pthread_mutex_lock(&fam_lock);
	for (uint64_t i = 0; i < ROOM; i++) {
		uint64_t at = i - AT;
		uint8_t want = i < AT || at >= 151 * PAGE ? before
			       : at >= from && at < to	  ? own[at - from]
							  : 0;

		if (fam[i] != want)
			fail_msg("byte %llu: %u, expected %u", (unsigned long long)i, fam[i], want);
	}
	pthread_mutex_unlock(&fam_lock);
}

/* Whole pages of the range, and nothing beside; what no piece covers is zeros. */
static void placed(const char *where)
{
	uint64_t step;

	up(where, 0);
	OK(soda_move_wait(hand_over(BYTES, 0), TIMEOUT_MS, &step));
	assert_int_equal(step, 1);
	check_fam('f', 0, BYTES);
	OK(soda_move_wait(hand_over(5000, 123), TIMEOUT_MS, &step));
	assert_int_equal(step, 2);
	check_fam('f', 123, 5123);
	OK(soda_move_end(buffer));
	await_nothing_reserved();
	down();
}

/* What the server refuses is the ticket's error, and that of publishing; the next one goes on. */
static void refused(const char *where)
{
	static const int errors[] = { -EACCES, -EIO, -EINVAL, -ENOSPC, -ECANCELED, -EFAULT };
	struct soda_move_buffer *none;
	uint64_t step = 0;

	up(where, 1);
	object->region = REGION + 1;
	assert_int_equal(soda_move_object_range(object, AT, BYTES, 0, &none), -EINVAL);
	object->region = REGION;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		refusal = errors[i];
		assert_int_equal(soda_move_wait(hand_over(BYTES, 0), TIMEOUT_MS, &step), -EIO);
	}
	refusal = 0;
	OK(soda_move_wait(hand_over(BYTES, 0), TIMEOUT_MS, &step));
	assert_int_equal(step, 1);
	check_fam('f', 0, BYTES);
	assert_int_equal(soda_move_object_publish(object, "torn"), -EIO);
	assert_true(*soda_move_last_error());
	OK(soda_move_wait(hand_over(BYTES, 0), TIMEOUT_MS, NULL)); /* not sealed by that */
	down();
}

/* Lists wait for those before them to be written, in their order, and can be cancelled until then.
 */
static void late(const char *where)
{
	struct soda_move_ticket *t[4];
	uint64_t step = 0;

	up(where, 1);
	closed = true;
	t[0] = hand_over(BYTES, 0);
	await_waiting();
	for (int i = 1; i < 4; i++)
		t[i] = hand_over((uint64_t)i * 1000, 0);
	assert_int_equal(soda_move_test(t[0], NULL), -EINPROGRESS);
	OK(soda_move_cancel(t[0])); /* too late: it is being written */
	OK(soda_move_cancel(t[2]));
	/* by tcp it is not on its way yet, and ends when its turn comes */
	if (soda_move_way(mover) == SODA_MOVE_READS)
		assert_int_equal(soda_move_wait(t[2], TIMEOUT_MS, NULL), -ECANCELED);
	assert_int_equal(soda_move_wait(t[3], 100, NULL), -EINPROGRESS);
	closed = false;
	OK(soda_move_wait(t[0], TIMEOUT_MS, &step));
	assert_int_equal(step, 1);
	OK(soda_move_wait(t[1], TIMEOUT_MS, &step));
	assert_int_equal(step, 2);
	if (soda_move_way(mover) != SODA_MOVE_READS)
		assert_int_equal(soda_move_wait(t[2], TIMEOUT_MS, NULL), -ECANCELED);
	OK(soda_move_wait(t[3], TIMEOUT_MS, &step));
	assert_int_equal(step, 3);
	check_fam('f', 0, 3000);
	assert_int_equal(writes, 3);
	down();
}

/* The program goes while a list is written: the agent's memory goes when that has ended. */
static void left(const char *where)
{
	up(where, 2);
	closed = true;
	for (int i = 0; i < 5; i++)
		hand_over(BYTES, 0);
	await_waiting();
	soda_move_disconnect(mover);
	assert_true(agent_move_bytes(&agent) > 0);
	closed = false;
	await_nothing_reserved();
	agent_stop(&agent);
}

CASES(placed)
CASES(refused)
CASES(late)
CASES(left)

#define EACH(transport)                                                                            \
	cmocka_unit_test(placed_##transport), cmocka_unit_test(refused_##transport),               \
		cmocka_unit_test(late_##transport), cmocka_unit_test(left_##transport)

int main(int argc, char **argv)
{
	const struct CMUnitTest sockets[] = { EACH(tcp), EACH(shm) }, rdma[] = { EACH(verbs) };

	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	if (argc > 1 && strcmp(argv[1], "verbs") == 0)
		return cmocka_run_group_tests_name("ranges, verbs", rdma, NULL, NULL);
	return cmocka_run_group_tests_name("ranges of objects", sockets, NULL, NULL) +
	       cmocka_run_group_tests_name("ranges, verbs", rdma, NULL, NULL);
}
