/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A router whose rank has left is gone with its program, maybe before its answers have come: what
 * the router of the other rank makes of its last RELAYs.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "routing/jobs.h"

static struct soda_msg_jobs jobs;
static struct soda_msg_job *job;
static struct soda_why why;
static uint64_t number;

/* Rank 1, which is here, of two; rank 0 is the other router's. */
static void join(void)
{
	static const uint8_t places[] = { 0, 1 };
	static const char addresses[] = "tcp://127.0.0.1:1\0tcp://127.0.0.1:2";
	const struct soda_wire_msg_place place = { "leave", places, addresses, sizeof(addresses) };
	const struct soda_peer_info who = { .address = "test", .local = true };
	struct soda_wire_msg_join j = { .version = SODA_MSG_VERSION,
					.rank = 1,
					.ranks = 2,
					.life = 1,
					.agents = 2,
					.here = 1,
					.name_bytes = 5 };
	bool made;

	assert_int_equal(soda_msg_jobs_init(&jobs, 16 << 20, &soda_msg_tuning_usual), 0);
	for (j.role = SODA_MSG_PUSHES; j.role <= SODA_MSG_PULLS; j.role++)
		assert_int_equal(
			soda_msg_job_join(&jobs, &j, &place, &who, &jobs, &job, &made, &why), 0);
	number = 0;
}

static void leave(void)
{
	soda_msg_job_leave(&jobs, job, 1);
	soda_msg_job_put(job, true);
	soda_msg_job_put(job, true);
	soda_msg_jobs_destroy(&jobs);
}

/* A RELAY without packets of the other router. */
static int relay(struct soda_wire_msg_relay r)
{
	uint8_t body[SODA_WIRE_MSG_RELAY_BYTES] = { 0 }, taken[1];
	struct soda_msg_routed routed;

	r.number = ++number;
	return soda_msg_job_relay(job, &job->links[0], body, &r, taken, &routed, &why);
}

/* It has ended the phase, so it has heard that this one is done: that answer alone was lost. */
static void behind_a_phase(void **state)
{
	join();
	assert_int_equal(relay((struct soda_wire_msg_relay){ .done = 1 }), 0);
	assert_int_equal(soda_msg_job_finish(&jobs, job, 1, 0, &why), 0);
	assert_int_equal(job->phase, 0);
	assert_int_equal(relay((struct soda_wire_msg_relay){ .phase = 1, .done = 1, .left = 1 }),
			 0);
	assert_int_equal(job->phase, 1);
	assert_false(job->broken);
	leave();
}

static void in_a_phase(void **state)
{
	join();
	assert_int_equal(relay((struct soda_wire_msg_relay){ .done = 1 }), 0);
	assert_int_equal(soda_msg_job_finish(&jobs, job, 1, 0, &why), 0);
	assert_int_equal(relay((struct soda_wire_msg_relay){ .done = 1, .left = 1 }), -ECANCELED);
	assert_non_null(strstr(why.text, "rank 0 of the job leave has gone"));
	leave();
}

static void behind_a_collective(void **state)
{
	const struct soda_wire_msg_reduce part = { 1, SODA_MSG_OP_SUM, 40 },
					  mine = { 1, SODA_MSG_OP_SUM, 2 };

	join();
	assert_int_equal(soda_msg_job_reduce(&jobs, job, 1, &mine, &why), 0);
	assert_int_equal(relay((struct soda_wire_msg_relay){ .reduce = part }), 0);
	assert_int_equal(job->reduced, 0);
	assert_int_equal(relay((struct soda_wire_msg_relay){ .left = 1 }), 0);
	assert_int_equal(job->reduced, 1);
	assert_int_equal(job->result, 42);
	assert_false(job->broken);
	leave();
}

static void in_a_collective(void **state)
{
	const struct soda_wire_msg_reduce part = { 1, SODA_MSG_OP_SUM, 40 },
					  mine = { 1, SODA_MSG_OP_SUM, 2 };

	join();
	assert_int_equal(soda_msg_job_reduce(&jobs, job, 1, &mine, &why), 0);
	assert_int_equal(relay((struct soda_wire_msg_relay){ .reduce = part, .left = 1 }),
			 -ECANCELED);
	assert_true(job->broken);
	leave();
}

static void before_a_collective(void **state)
{
	const struct soda_wire_msg_reduce mine = { 1, SODA_MSG_OP_BARRIER, 0 };

	join();
	assert_int_equal(soda_msg_job_reduce(&jobs, job, 1, &mine, &why), 0);
	assert_int_equal(relay((struct soda_wire_msg_relay){ .left = 1 }), -ECANCELED);
	assert_true(job->broken);
	leave();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(behind_a_phase),
					    cmocka_unit_test(in_a_phase),
					    cmocka_unit_test(behind_a_collective),
					    cmocka_unit_test(in_a_collective),
					    cmocka_unit_test(before_a_collective) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
