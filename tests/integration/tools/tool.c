/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tool.h"

struct program run;
char tmp[] = "/tmp/soda-test-bench-XXXXXX";

void refused(int status, const char *message)
{
	if (run.status != status || !strstr(run.err, message))
		print_error("status %d, said: %s\n", run.status, run.err);
	assert_int_equal(run.status, status);
	assert_non_null(strstr(run.err, message));
	assert_string_equal(run.out, "");
}

json_t *answer(void)
{
	json_error_t why;
	json_t *out = json_loads(run.out, 0, &why);

	if (run.status || !out)
		print_error("status %d, said: %s\n%s\n", run.status, run.err, run.out);
	assert_int_equal(run.status, 0);
	assert_non_null(out);
	return out;
}

uint64_t count(const json_t *in, const char *key)
{
	const json_t *value = json_object_get(in, key);

	if (!json_is_integer(value))
		print_error("%s is missing\n", key);
	assert_true(json_is_integer(value));
	assert_true(json_integer_value(value) >= 0);
	return (uint64_t)json_integer_value(value);
}

void positive(const json_t *in, const char *key)
{
	const json_t *value = json_object_get(in, key);

	if (!json_is_real(value) || json_real_value(value) <= 0)
		print_error("%s is missing or not positive\n", key);
	assert_true(json_is_real(value) && json_real_value(value) > 0);
}

int make_tmp(void **state)
{
	return mkdtemp(tmp) ? 0 : -1;
}

int remove_tmp(void **state)
{
	return rmdir(tmp);
}
