/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for another thread say in the log who they wait for, and end when it is done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/wait.h"

static char said[2048];

static void note(int level, const char *line, void *arg)
{
	strncat(said, line, sizeof(said) - strlen(said) - 1);
}

struct door {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool open;
};

static void *open_it(void *arg)
{
	struct door *d = arg;

	pthread_mutex_lock(&d->lock);
	d->open = true;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* Wait for the door as if the wait had begun age_ms ago. */
static void await_door(uint64_t age_ms)
{
	struct door d = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false };
	struct soda_wait wait;
	pthread_t thread;

	said[0] = 0;
	soda_wait_begin(&wait, "the door to open");
	wait.began_ns -= age_ms * SODA_MS_NS;
	wait.told_ns = wait.began_ns;
	pthread_mutex_lock(&d.lock);
	if (age_ms) /* its first turn tells, and needs no other thread */
		soda_wait_turn(&wait, &d.changed, &d.lock);
	assert_false(d.open);
	assert_int_equal(pthread_create(&thread, NULL, open_it, &d), 0);
	while (!d.open)
		soda_wait_turn(&wait, &d.changed, &d.lock);
	pthread_mutex_unlock(&d.lock);
	soda_wait_end(&wait);
	soda_wait_join(thread, "the one who opens it");
}

static void check_short_waits_are_silent(void **state)
{
	await_door(0);
	assert_string_equal(said, "");
}

static void check_long_waits_say_their_name(void **state)
{
	await_door(SODA_WAIT_TELL_MS + 1000);
	assert_non_null(strstr(said, "has waited for 11 s for the door to open"));
	assert_non_null(strstr(said, "the wait for the door to open has ended after 11 s"));
}

static void check_futexes_say_it_too(void **state)
{
	_Atomic uint32_t word = 1;
	struct soda_wait wait;

	said[0] = 0;
	soda_wait_begin(&wait, "a word to change");
	soda_wait_futex(&wait, &word, 0); /* it has: at once, and silently */
	assert_string_equal(said, "");
	wait.began_ns = wait.told_ns -= (SODA_WAIT_TELL_MS + 1000) * SODA_MS_NS;
	soda_wait_futex(&wait, &word, 1);
	assert_non_null(strstr(said, "has waited for 11 s for a word to change"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_short_waits_are_silent),
		cmocka_unit_test(check_long_waits_say_their_name),
		cmocka_unit_test(check_futexes_say_it_too),
	};

	soda_log_setup("test", SODA_LOG_LVL_INFO, note, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
