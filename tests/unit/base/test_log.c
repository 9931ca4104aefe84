/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines: one write each, cut, and never more than one line. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"

static char got[2048];

/* What one message writes to standard error. */
static const char *written(int level, const char *text)
{
	int saved = dup(2), fd = memfd_create("err", 0);
	ssize_t n;

	dup2(fd, 2);
	errno = 77;
	soda_log(level, "%s", text);
	assert_int_equal(errno, 77);
	dup2(saved, 2);
	n = pread(fd, got, sizeof(got) - 1, 0);
	got[n] = 0;
	close(saved);
	close(fd);
	return got;
}

static void check_lines(void **state)
{
	soda_log_setup("name", SODA_LOG_LVL_WARNING, NULL, NULL);
	assert_string_equal(written(SODA_LOG_LVL_ERROR, "it broke"), "name: error: it broke\n");
	assert_string_equal(written(SODA_LOG_LVL_WARNING, "it may"), "name: warning: it may\n");
	assert_string_equal(written(SODA_LOG_LVL_INFO, "it runs"), "");
	assert_string_equal(written(0, "no such level"), "");
	assert_string_equal(written(99, "no such level"), "");
}

static void check_forged_lines(void **state)
{
	soda_log_setup("name", SODA_LOG_LVL_DEBUG, NULL, NULL);
	assert_string_equal(written(SODA_LOG_LVL_INFO, "a\nname: error: b\x1b[2J\x7f"),
			    "name: info: a?name: error: b?[2J?\n");
}

static void check_long_lines(void **state)
{
	char text[1000];
	size_t n;

	soda_log_setup("name", SODA_LOG_LVL_DEBUG, NULL, NULL);
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	n = strlen(written(SODA_LOG_LVL_DEBUG, text));
	assert_true(n <= 512 && n > 500);
	assert_int_equal(got[n - 1], '\n');
	/* A name that leaves no room for the message. */
	soda_log_setup(text, SODA_LOG_LVL_DEBUG, NULL, NULL);
	n = strlen(written(SODA_LOG_LVL_DEBUG, "message"));
	assert_true(n <= 512);
	assert_int_equal(got[n - 1], '\n');
}

static void keep(int level, const char *line, void *arg)
{
	*(int *)arg = level;
	strcpy(got, line);
}

static void check_sink(void **state)
{
	int level = 0;

	soda_log_setup("name", SODA_LOG_LVL_INFO, keep, &level);
	soda_log_info("%d of %s", 3, "four");
	assert_int_equal(level, SODA_LOG_LVL_INFO);
	assert_string_equal(got, "3 of four");
}

static void check_errors(void **state)
{
	assert_string_equal(soda_strerror(ECONNREFUSED), "Connection refused");
	assert_string_equal(soda_strerror(-ECONNREFUSED), "Connection refused");
	assert_string_equal(soda_strerror(99999), "Unknown error");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_lines),	    cmocka_unit_test(check_forged_lines),
		cmocka_unit_test(check_long_lines), cmocka_unit_test(check_sink),
		cmocka_unit_test(check_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
