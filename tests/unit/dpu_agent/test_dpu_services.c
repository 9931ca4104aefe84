/* SPDX-License-Identifier: BSD-3-Clause */
/* A service beside paging follows the life of a client that pages. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "lib/echo_service.h"
#include "unit/fakes/fake_upstream.h"

enum { REGION = 3 };

static struct echo echo;

static int calm(void **state)
{
	fake_options_reset();
	echo = (struct echo){ 0 };
	return 0;
}

/* Broken once for the lost server, connected again at its return, gone after all. */
static void follows_a_client(void **state)
{
	struct program p = { 0 };

	echo.busy = true; /* it does not let the session end while the client is away */
	fake_up();
	assert_int_equal(echo_register(&echo, &fake_dpu.sessions), 0);
	program_hello(&p);
	assert_int_equal(program_open(&p, REGION, 4, 0), 0);
	assert_int_equal(program_call(&p, (enum soda_msg)ECHO_SAY, "hello", 5), 0);
	assert_int_equal(program_call(&p, (enum soda_msg)(ECHO_LAST + 1), "hello", 5), -ENOTSUP);
	assert_int_equal(echo.created, 1);
	assert_int_equal(echo.connected, 1);
	fake_cut(0, -ECONNREFUSED);
	AWAIT(echo.broken);
	assert_int_equal(echo.gone, 0);
	fake_mend();
	program_return(&p);
	AWAIT(echo.connected == 2);
	assert_int_equal(program_call(&p, (enum soda_msg)ECHO_COUNT, NULL, 0), 0);
	assert_int_equal(echo.created, 1); /* the state of before */
	assert_int_equal(program_close(&p, REGION), 0);
	echo.busy = false;
	program_vanish(&p);
	AWAIT(!fake_sessions());
	AWAIT(echo.destroyed == 1);
	assert_int_equal(echo.gone, 1);
	assert_int_equal(fake_down(), 0);
}

/* Ranges that are another's, or nobody's to have. */
static void ranges(void **state)
{
	static const struct soda_agent_service bad[] = {
		{ .name = "hello", .first = SODA_MSG_HELLO, .last = SODA_MSG_HELLO },
		{ .name = "read", .first = SODA_MSG_READ, .last = SODA_MSG_WRITE },
		{ .name = "reply", .first = SODA_MSG_OK, .last = SODA_MSG_REFUSED },
		{ .name = "across", .first = 40, .last = ECHO_SAY },
		{ .name = "backwards", .first = ECHO_SAY + 1, .last = ECHO_SAY },
	};
	static const struct soda_agent_service paging = { .name = "paging",
							  .first = SODA_MSG_OPEN,
							  .last = SODA_MSG_OPEN };

	fake_up();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(soda_services_register(&fake_dpu.sessions.services, &bad[i], NULL),
				 -EINVAL);
	assert_int_equal(soda_services_register(&fake_dpu.sessions.services, &paging, NULL),
			 -EEXIST);
	assert_int_equal(fake_down(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(follows_a_client, calm),
		cmocka_unit_test_setup(ranges, calm),
	};

	return cmocka_run_group_tests_name("dpu_services", tests, NULL, NULL);
}
