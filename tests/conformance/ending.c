/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a listener ends.  Its acceptor is held where it takes its wake-ups in, as on a machine
 * whose processors are busy: this program's read(2) is wrapped.
 */
#include "conformance.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { OTHERS_MS = 100, END_S = 5, TIMES = 200 };

static struct {
	_Atomic bool armed; /* the next read is held */
	sem_t reads, go_on;
} gate;

/* as the linker's --wrap names them */
ssize_t __real_read(int fd, void *to, size_t bytes);
ssize_t __wrap_read(int fd, void *to, size_t bytes);

ssize_t __wrap_read(int fd, void *to, size_t bytes)
{
	if (atomic_exchange(&gate.armed, false)) {
		sem_post(&gate.reads);
		sem_wait(&gate.go_on);
	}
	return __real_read(fd, to, bytes);
}

static void *close_listener(void *arg)
{
	soda_listener_close(arg);
	return NULL;
}

/* The order to end comes while the acceptor takes the one to refuse in: it takes both. */
static void test_two_orders(void **state)
{
	static const struct variant tcp = { .name = "tcp", .listen = "tcp://127.0.0.1:0" };
	struct timespec end;
	pthread_t closer;
	struct env e;

	env_start(&e, &tcp, NULL);
	sem_init(&gate.reads, 0, 0);
	sem_init(&gate.go_on, 0, 0);
	atomic_store(&gate.armed, true);
	soda_listener_stop_accepting(e.listener);
	sem_wait(&gate.reads);
	assert_int_equal(pthread_create(&closer, NULL, close_listener, e.listener), 0);
	usleep(OTHERS_MS * 1000);
	sem_post(&gate.go_on);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += END_S * fake_patience();
	assert_int_equal(pthread_timedjoin_np(closer, NULL, &end), 0);
	e.listener = NULL;
	env_stop(&e);
}

/* A listener that is closed before all of its threads have begun; and another takes its place. */
static void test_at_once(void **state)
{
	static const struct variant tcp = { .name = "tcp", .listen = "tcp://127.0.0.1:0" };
	struct env e;

	for (int i = 0; i < TIMES; i++) {
		env_start(&e, &tcp, NULL);
		env_stop(&e);
	}
}

int run_ending(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_two_orders),
					    cmocka_unit_test(test_at_once) };

	return cmocka_run_group_tests_name("ending", tests, NULL, NULL);
}
