/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits of tests: what does not count, and what is said when one is over. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"

/* A child that stands still for longer than its limit, in the middle of it, is not over it. */
static void test_standing_still(void **state)
{
	enum { LIMIT_MS = LIMIT_LOOK_MS + 500, STILL_MS = LIMIT_MS + 100 };
	struct limit limit;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		limit_begin(&limit, LIMIT_MS);
		raise(SIGSTOP);
		_exit(limit_over(&limit));
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	usleep(STILL_MS * 1000);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_over(void **state)
{
	struct limit limit;

	limit_begin(&limit, 20);
	assert_false(limit_over(&limit));
	usleep(20000);
	assert_true(limit_over(&limit));
}

/* What limit_tell() writes to standard error. */
static void hear(const char *what, char *text, size_t bytes)
{
	int said = memfd_create("said", 0), kept = dup(STDERR_FILENO);
	ssize_t n;

	dup2(said, STDERR_FILENO);
	limit_tell(what);
	dup2(kept, STDERR_FILENO);
	n = pread(said, text, bytes - 1, 0);
	text[n > 0 ? n : 0] = 0;
	close(said);
	close(kept);
}

/* Also of a child's child. */
static void test_tell(void **state)
{
	char text[16384], name[] = "stands-there", byte;
	int stands[2];
	pid_t pid;

	assert_int_equal(pipe(stands), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			prctl(PR_SET_NAME, name);
		}
		close(stands[1]);
		pause();
	}
	close(stands[1]);
	assert_int_equal(read(stands[0], &byte, 1), 0);
	hear("a test", text, sizeof(text));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(stands[0]);
	assert_non_null(strstr(text, "a test: over its limit"));
	assert_non_null(strstr(text, name));
	assert_null(strstr(text, "that is not all"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_standing_still),
		cmocka_unit_test(test_over),
		cmocka_unit_test(test_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
