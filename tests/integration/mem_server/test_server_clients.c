/* SPDX-License-Identifier: BSD-3-Clause */
/* A real memory server: clients that go, come back, or do not; restart and drain. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"
#include "soda.h"

#define MIB (1ull << 20)

static struct server server;
static struct peer watcher; /* asks for statistics */

static void start(const char *const *args)
{
	assert_int_equal(server_start(&server, args), 0);
	assert_int_equal(peer_join(&watcher, server.address), 0);
}
#define START(...) start((const char *const[]){ __VA_ARGS__, NULL })

static void expect_end(int status)
{
	assert_int_equal(status, 0);
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
}

static void stop(void)
{
	peer_leave(&watcher);
	expect_end(server_stop(&server));
}

/* At most ten seconds. */
static void await_stat(const char *name, uint64_t value)
{
	for (int i = 0; i < LOOKS && peer_stat(&watcher, name) != value; i++)
		usleep(10000);
	assert_int_equal(peer_stat(&watcher, name), value);
}

static void check_dead_client(void **state)
{
	static uint8_t page[4096];
	struct peer peer, again;
	struct soda_mr mr;

	START("--capacity", "64M", "--grace", "300ms");
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_int_equal(peer_open(&peer, 1, NULL, 4 * MIB, 0, &mr, NULL), 0);
	assert_int_equal(peer_read(&peer, &mr, 0, page, sizeof(page)), 0);
	peer_vanish(&peer);
	assert_int_equal(peer_stat(&watcher, "used_bytes"), 4 * MIB);
	await_stat("used_bytes", 0);
	assert_int_equal(peer_stat(&watcher, "clients"), 1);
	assert_int_equal(peer_stat(&watcher, "clients_expired"), 1);
	/* It may come back as somebody new, and is told so. */
	assert_int_equal(peer_return(&again, server.address, &peer.welcome, 2), 0);
	assert_int_equal(again.welcome.known, 0);
	assert_int_equal(again.welcome.instance_id, peer.welcome.instance_id);
	assert_int_not_equal(again.welcome.client_id, peer.welcome.client_id);
	peer_leave(&again);
	stop();
}

static void check_return_in_time(void **state)
{
	static uint8_t page[4096], got[4096];
	struct peer peer, again;
	struct soda_mr mr;

	START("--capacity", "64M", "--grace", "30s");
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_int_equal(peer_open(&peer, 1, NULL, 4 * MIB, 0, &mr, NULL), 0);
	memset(page, 0x5a, sizeof(page));
	assert_int_equal(peer_write(&peer, &mr, MIB, page, sizeof(page)), 0);
	peer_vanish(&peer);
	assert_int_equal(peer_return(&again, server.address, &peer.welcome, 2), 0);
	assert_int_equal(again.welcome.known, 1);
	assert_int_equal(again.welcome.client_id, peer.welcome.client_id);
	assert_int_equal(peer_read(&again, &mr, MIB, got, sizeof(got)), 0);
	assert_memory_equal(got, page, sizeof(got));
	peer_leave(&again);
	assert_int_equal(peer_stat(&watcher, "used_bytes"), 0);
	stop();
}

static void expect_stale(const struct soda_wire_welcome *was, uint64_t epoch)
{
	struct peer peer;

	assert_int_equal(peer_return(&peer, server.address, was, epoch), -ESTALE);
}

/* A newer connection puts an end to the older ones before it is answered. Promise R6. */
static void check_epochs(void **state)
{
	static uint8_t page[4096];
	struct peer peer, newer;
	struct soda_wire_welcome forged;
	struct soda_conn *conn;
	struct soda_mr mr;

	START("--capacity", "64M");
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_int_equal(peer_open(&peer, 1, NULL, 4 * MIB, 0, &mr, NULL), 0);
	assert_int_equal(peer_read(&peer, &mr, 0, page, sizeof(page)), 0);
	expect_stale(&peer.welcome, 1);
	forged = peer.welcome;
	forged.secret ^= 1;
	expect_stale(&forged, 5);
	assert_int_equal(peer_return(&newer, server.address, &peer.welcome, 5), 0);
	assert_int_equal(newer.welcome.known, 1);
	assert_int_not_equal(peer_read(&peer, &mr, 0, page, sizeof(page)), 0);
	assert_int_not_equal(peer_call(&peer, SODA_MSG_SYNC, 1), 0);
	assert_int_equal(peer_connect_data(&peer, &conn), -ESTALE);
	assert_int_equal(peer_read(&newer, &mr, 0, page, sizeof(page)), 0);
	expect_stale(&peer.welcome, 4);
	assert_int_equal(peer_stat(&watcher, "hellos_refused"), 4);
	assert_int_equal(peer_stat(&watcher, "clients_returned"), 1);
	peer_vanish(&peer);
	/* A data connection needs its client's name and word. */
	forged.client_id ^= 1;
	peer = (struct peer){ .welcome = forged, .epoch = 5 };
	strcpy(peer.address, server.address);
	assert_int_equal(peer_connect_data(&peer, &conn), -ESTALE);
	peer_leave(&newer);
	stop();
}

struct late {
	struct peer peer;
	int r;
};

static void *come_back(void *arg)
{
	struct late *late = arg;
	struct soda_wire_welcome was = late->peer.welcome;

	late->r = peer_return(&late->peer, server.address, &was, late->peer.epoch);
	return NULL;
}

/* Many reconnections at once: one at most is left, and nothing hangs. */
static void check_racing_epochs(void **state)
{
	enum { RACERS = 8 };
	static struct late racers[RACERS];
	pthread_t threads[RACERS];
	struct peer peer;
	int winners = 0;

	START("--capacity", "64M");
	assert_int_equal(peer_join(&peer, server.address), 0);
	for (unsigned i = 0; i < RACERS; i++) {
		racers[i].peer = (struct peer){ .welcome = peer.welcome, .epoch = 2 + i };
		assert_int_equal(pthread_create(&threads[i], NULL, come_back, &racers[i]), 0);
	}
	for (unsigned i = 0; i < RACERS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < RACERS; i++) {
		bool alive = !racers[i].r &&
			     !soda_conn_call(racers[i].peer.control, SODA_MSG_PING, NULL, 0, NULL,
					     0, NULL, 5000, &racers[i].peer.why);

		winners += alive;
		if (alive)
			assert_int_equal(racers[i].peer.epoch, 1 + RACERS);
		peer_vanish(&racers[i].peer);
	}
	assert_int_equal(winners, 1);
	peer_vanish(&peer);
	stop();
}

/* Send these bytes and no more; what the server answers until it closes the connection. */
static size_t send_raw(const void *bytes, size_t n, uint8_t *answer, size_t room)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval patience = { 20, 0 };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	size_t used = 0;
	ssize_t got;

	to.sin_port = htons((uint16_t)atoi(strrchr(server.address, ':') + 1));
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
	shutdown(fd, SHUT_WR);
	while ((got = recv(fd, answer + used, room - used, 0)) > 0)
		used += (size_t)got;
	assert_true(!got || errno == ECONNRESET);
	close(fd);
	return used;
}

static void expect_version_refused(void)
{
	const struct soda_wire_hello hello = { .magic = SODA_WIRE_MAGIC,
					       .version = 99,
					       .kind = SODA_CONN_CONTROL };
	struct soda_wire_frame frame = { .type = SODA_MSG_HELLO, .length = SODA_WIRE_HELLO_BYTES };
	uint8_t bytes[SODA_WIRE_FRAME_BYTES + SODA_WIRE_HELLO_BYTES], answer[512];

	soda_wire_put_frame(bytes, &frame);
	soda_wire_put_hello(bytes + SODA_WIRE_FRAME_BYTES, &hello);
	assert_true(send_raw(bytes, sizeof(bytes), answer, sizeof(answer)) > SODA_WIRE_FRAME_BYTES);
	soda_wire_get_frame(answer, &frame);
	assert_int_equal(frame.type, SODA_MSG_REFUSED);
	assert_int_equal(frame.status, SODA_ST_VERSION);
}

/* A clear refusal or a closed connection, a counter, and nobody else notices. */
static void check_bad_peers(void **state)
{
	static const uint8_t zeros[100], short_body[1];
	const struct iovec one = { (void *)(uintptr_t)short_body, 1 };
	const struct soda_wire_hello hello = { .chunk_bytes = 3000 };
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL, .timeout_ms = 60000 };
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;
	struct soda_why why;
	uint8_t answer[512];

	START("--capacity", "64M");
	send_raw(zeros, sizeof(zeros), answer, sizeof(answer));
	send_raw("GET / HTTP/1.1\r\n\r\n", 18, answer, sizeof(answer));
	send_raw("x", 1, answer, sizeof(answer));
	expect_version_refused();
	await_stat("peers_rejected", 4);
	assert_int_equal(soda_conn_connect(server.address, &hello, &opt, &conn, &welcome, &why),
			 -EINVAL);
	assert_non_null(strstr(why.text, "3000"));
	for (int type = SODA_MSG_OPEN; type <= SODA_MSG_NAME; type++)
		assert_int_equal(soda_conn_call(watcher.control, (enum soda_msg)type, &one, 1, NULL,
						0, NULL, 60000, &why),
				 type == SODA_MSG_PING ? -EMSGSIZE
						       : -EPROTO); /* an echo, of a byte */
	assert_int_equal(peer_stat(&watcher, "calls_refused"), SODA_MSG_NAME - SODA_MSG_OPEN);
	assert_int_equal(peer_stat(&watcher, "regions"), 0);
	stop();
}

static void check_limits(void **state)
{
	struct peer peer, third;
	struct soda_mr mr;

	START("--capacity", "64M", "--max-clients", "2", "--max-regions", "3");
	assert_int_equal(peer_open(&watcher, 1, NULL, 1, 0, &mr, NULL), 0);
	assert_int_equal(peer_open(&watcher, 65535, NULL, 1, 0, &mr, NULL), 0);
	assert_int_equal(peer_open(&watcher, 0, NULL, 1, 0, &mr, NULL), 0);
	assert_int_equal(peer_open(&watcher, 2, NULL, 1, 0, &mr, NULL), -ENOMEM);
	assert_int_equal(peer_join(&peer, server.address), 0);
	peer_leave(&peer);
	await_stat("clients", 1);
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_int_equal(peer_join(&third, server.address), -EBUSY);
	assert_non_null(strstr(third.why.text, "--max-clients"));
	peer_leave(&peer);
	stop();
}

static void check_restart(void **state)
{
	struct soda_wire_welcome was;
	struct peer peer;

	START("--capacity", "64M");
	assert_int_equal(peer_join(&peer, server.address), 0);
	was = peer.welcome;
	server_kill(&server);
	server_forget(&server);
	peer_vanish(&peer);
	peer_vanish(&watcher);
	START("--capacity", "64M");
	assert_int_equal(peer_return(&peer, server.address, &was, 2), 0);
	assert_int_not_equal(peer.welcome.instance_id, was.instance_id);
	assert_int_equal(peer.welcome.known, 0);
	peer_leave(&peer);
	stop();
}

/* Clients may finish, newcomers may not come, what was written back is in the file. */
static void check_drain(void **state)
{
	static uint8_t page[4096], got[4096];
	char dir[] = "/tmp/soda-test-drain-XXXXXX", path[64];
	struct peer peer, late;
	struct soda_mr mr, more;
	int fd;

	assert_non_null(mkdtemp(dir));
	START("--capacity", "64M", "--export", dir, "--drain", "500ms");
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_int_equal(peer_open(&peer, 1, "f", 4096, SODA_WRITABLE | SODA_CREATE, &mr, NULL), 0);
	assert_int_equal(peer_read(&peer, &mr, 0, page, sizeof(page)), 0);
	memset(page, 0x77, sizeof(page));
	assert_int_equal(kill(server.pid, SIGTERM), 0);
	while (peer_open(&peer, 2, NULL, 1, 0, &more, NULL) != -ESHUTDOWN) {
		peer_call(&peer, SODA_MSG_CLOSE, 2);
		usleep(1000);
	}
	assert_true(peer_join(&late, server.address) < 0);
	assert_int_equal(peer_write(&peer, &mr, 0, page, sizeof(page)), 0);
	assert_int_equal(server_wait(&server, 50), -1);
	peer_vanish(&watcher);
	expect_end(server_wait(&server, 60000));
	peer_vanish(&peer);
	snprintf(path, sizeof(path), "%s/f", dir);
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, got, sizeof(got)), sizeof(got));
	close(fd);
	assert_memory_equal(got, page, sizeof(got));
	unlink(path);
	rmdir(dir);
}

static void check_drain_ends_with_the_last_client(void **state)
{
	struct timespec begin, end;

	START("--capacity", "64M", "--drain", "60s");
	assert_int_equal(kill(server.pid, SIGTERM), 0);
	assert_int_equal(server_wait(&server, 100), -1);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	peer_leave(&watcher);
	expect_end(server_wait(&server, 60000));
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true(end.tv_sec - begin.tv_sec < 10);
}

static void check_second_signal(void **state)
{
	START("--capacity", "64M", "--drain", "60s");
	assert_int_equal(kill(server.pid, SIGTERM), 0);
	assert_int_equal(server_wait(&server, 300), -1);
	assert_int_equal(kill(server.pid, SIGTERM), 0);
	assert_int_equal(server_wait(&server, 10000), 128 + SIGTERM);
	peer_vanish(&watcher);
	server_forget(&server);
}

/* The descriptor that a server's life hangs on. */
static void check_parent_gone(void **state)
{
	START("--capacity", "64M", "--drain", "60s");
	close(server.life_fd);
	server.life_fd = -1;
	expect_end(server_wait(&server, 10000));
	peer_vanish(&watcher);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_dead_client),
		cmocka_unit_test(check_return_in_time),
		cmocka_unit_test(check_epochs),
		cmocka_unit_test(check_racing_epochs),
		cmocka_unit_test(check_bad_peers),
		cmocka_unit_test(check_limits),
		cmocka_unit_test(check_restart),
		cmocka_unit_test(check_drain),
		cmocka_unit_test(check_drain_ends_with_the_last_client),
		cmocka_unit_test(check_second_signal),
		cmocka_unit_test(check_parent_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
