/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a listener ends.  Its acceptor is held where it takes its wake-ups in, as on a machine
 * whose processors are busy: this program's read(2) is wrapped.  And how a worker's ring ends when
 * one of its waits fails.
 */
#include "conformance.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/uring.h"

enum { OTHERS_MS = 100, END_S = 5, TIMES = 200, NO_REGION = 1000 };

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

static _Atomic bool ring_fails; /* at its next wait */

int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
	return atomic_exchange(&ring_fails, false) ? -EFAULT
						   : __real_io_uring_submit_and_wait(ring, n);
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

static bool may_cancel(void)
{
	struct io_uring_params params = { 0 };
	struct io_uring ring;
	int ret;

	if (soda_uring_begin(&ring, 4, &params))
		return false;
	ret = soda_uring_cancel_all(&ring);
	soda_uring_end(&ring);
	return !ret;
}

/* The kernel fails a worker's ring: its connections end, and others are served, by epoll. */
static void check_ring_fails(bool two_sided)
{
	const struct variant v = {
		.name = "tcp", .listen = "tcp://127.0.0.1:0", .decorate = "", .two_sided = two_sided
	};
	struct soda_listener_options options = { .workers = 1 };
	static uint8_t out[70000];
	struct link l;
	struct env e;
	int fd;

	env_start(&e, &v, &options);
	link_open(&e, &l, "", 0, 8);
	fd = raw_data(&e);
	/* once there is an answer the connection is no longer in the mailbox, and so it ends */
	raw_send(fd, out, raw_read_request(out, NO_REGION, 0, 4096, 1));
	assert_reply(fd, SODA_MSG_READ_REPLY, SODA_ST_INVALID, 1, 0);
	raw_send(fd, out, raw_write_request(out, 7, 0, 65536) + 30000);
	if (!two_sided) /* this one knows of a WRITE that is received */
		await_count(&e, &e.fake.holds, 1);
	atomic_store(&ring_fails, true);
	/* the worker wakes, and is to sleep again; or it was about to, and the socket is closed */
	assert_true(send(fd, out, 100, MSG_NOSIGNAL) <= 100);
	assert_closed(fd);
	assert_false(atomic_load(&ring_fails));
	await_count(&e, &e.fake.torn, !two_sided);
	for (int i = 0; i < 3; i++) {
		soda_conn_close(l.data);
		l.data = env_connect(&e, "", SODA_CONN_DATA, 8, NULL);
		assert_works(&l);
	}
	link_close(&l);
	env_stop(&e);
}

static void test_ring_fails(void **state)
{
	if (!may_cancel()) {
		print_message("SKIP: io_uring is not there, or older than Linux 6.0\n");
		skip();
	}
	check_ring_fails(false);
	check_ring_fails(true);
}

int run_ending(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_two_orders),
					    cmocka_unit_test(test_at_once),
					    cmocka_unit_test(test_ring_fails) };

	return cmocka_run_group_tests_name("ending", tests, NULL, NULL);
}
