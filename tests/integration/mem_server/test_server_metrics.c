/* SPDX-License-Identifier: BSD-3-Clause */
/* The HTTP endpoint of a real memory server: what it says, and what it bears. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "lib/peer.h"
#include "lib/proc.h"
#include "lib/scrape.h"

#define MIB (1ull << 20)
#define SECOND_NS 1000000000ull

static struct server server;
static unsigned port;

static void start(void)
{
	assert_int_equal(SERVER_START(&server, "--capacity", "512M", "--metrics", "0",
				      "--log-level", "debug"),
			 0);
	for (int i = 0; i < LOOKS && !(port = http_find_port(server_log(&server))); i++)
		usleep(10000);
	assert_true(port);
}

static void stop(void)
{
	assert_int_equal(server_stop(&server), 0);
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
}

/* The numbers are those of what was done. */
static void check_values(void **state)
{
	static uint8_t page[65536];
	struct soda_mr mr;
	struct peer peer;
	const char *text;

	start();
	text = scraped(port);
	assert_true(scraped_value(text, "soda_mem_server_capacity_bytes") == 512 * MIB);
	assert_true(scraped_value(text, "soda_mem_server_clients") == 0);
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_int_equal(peer_open(&peer, 7, NULL, 4 * MIB, 0, &mr, NULL), 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(peer_write(&peer, &mr, i * 65536, page, 65536), 0);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(peer_read(&peer, &mr, i * 65536, page, 65536), 0);
	text = scraped(port);
	assert_true(scraped_value(text, "soda_mem_server_writes_total") == 10);
	assert_true(scraped_value(text, "soda_mem_server_reads_total") == 20);
	assert_true(scraped_value(text, "soda_mem_server_read_bytes_total") == 20 * 65536);
	assert_true(scraped_value(text, "soda_mem_server_used_bytes") == 4 * MIB);
	assert_true(scraped_value(text, "soda_mem_server_read_time_seconds_count") == 20);
	assert_true(scraped_value(text, "soda_mem_server_write_time_seconds_count") == 10);
	assert_true(scraped_value(text, "soda_mem_server_read_time_seconds_sum") > 0);
	assert_true(scraped_value(text, "soda_mem_server_cpu_seconds_total") > 0);
	assert_non_null(strstr(
		text,
		"soda_mem_server_info{program=\"soda-mem-server\",version=\"" SODA_VERSION "\""));
	assert_non_null(strstr(text, ",region=\"7\"} 4194304\n"));
	peer_leave(&peer);
	stop();
}

/* What clients call their regions cannot break the text, nor forge a line of it. */
static void check_hostile_names(void **state)
{
	static const char names[][40] = {
		"\7\0x\"} 1\nsoda_mem_server_forged 1\n",
		"\7\0\\",
		"\7\0\xff\xfe",
		"\7\0{}=,#",
	};
	struct soda_mr mr;
	struct peer peer;

	start();
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_int_equal(peer_open(&peer, 7, NULL, 4096, 0, &mr, NULL), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct iovec body = { (void *)(uintptr_t)names[i], 2 + strlen(names[i] + 2) };

		assert_int_equal(soda_conn_call(peer.control, SODA_MSG_NAME, &body, 1, NULL, 0,
						NULL, PEER_TIMEOUT_MS, &peer.why),
				 0);
		assert_null(strstr(scraped(port), "\nsoda_mem_server_forged"));
	}
	peer_leave(&peer);
	stop();
}

/* More clients than a Prometheus server should be asked to remember. */
static void check_many_clients(void **state)
{
	enum { PEERS = 100 };
	static struct peer peers[PEERS];
	const char *text;
	double shown = 0;

	start();
	for (int i = 0; i < PEERS; i++)
		assert_int_equal(peer_join(&peers[i], server.address), 0);
	text = scraped(port);
	assert_true(scraped_value(text, "soda_mem_server_clients") == PEERS);
	for (const char *at = text; (at = strstr(at, "\nsoda_mem_server_client_connected{")); at++)
		shown++;
	assert_true(shown == 64);
	assert_true(scraped_value(text, "soda_mem_server_items_left_out{list=\"client\"}") ==
		    PEERS - 64);
	for (int i = 0; i < PEERS; i++)
		peer_leave(&peers[i]);
	stop();
}

static void check_bad_requests(void **state)
{
	static const struct {
		const char *request;
		int status;
	} cases[] = {
		{ "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404 },
		{ "GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n", 404 },
		{ "GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404 },
		{ "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200 },
		{ "GET /metrics HTTP/1.0\r\n\r\n", 200 },
		{ "GET /metrics?name[]=x HTTP/1.1\r\nHost: x\r\n\r\n", 200 },
		{ "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200 },
		{ "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405 },
		{ "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 405 },
		{ "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 405 },
		{ "PUT /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "ffffffffffffffff\r\n",
		  405 },
		{ "DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405 },
		{ "TRACE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405 },
		{ "GET /metrics HTTP/1.1\r\n\r\n", 400 },
	};
	const char *answer;

	start();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = http_raw(port, cases[i].request, strlen(cases[i].request), 1, &answer);

		if (status != cases[i].status)
			fail_msg("%d to '%s'", status, cases[i].request);
	}
	assert_int_equal(http_raw(port, "PUT / HTTP/1.1\r\nHost: x\r\n\r\n", 27, 1, &answer), 405);
	assert_non_null(strstr(answer, "\r\nAllow: GET\r\n"));
	scraped(port);
	stop();
}

/* They go, or fall silent, before they have asked: both end. */
static void check_unfinished_requests(void **state)
{
	static const char *const requests[] = {
		"", "GET", "\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\nGET",
		"\x16\x03\x01\x02\x01\x01\xfc\x03\x03" /* TLS */
	};
	const char *answer;
	int fd;

	start();
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		fd = http_connect(port);
		assert_true(fd >= 0);
		assert_true(send(fd, requests[i], strlen(requests[i]), MSG_NOSIGNAL) >= 0);
		close(fd);
	}
	assert_int_equal(http_raw(port, requests[1], strlen(requests[1]), 0, &answer), 0);
	assert_string_equal(answer, "");
	scraped(port);
	stop();
}

/* Heads without end, and random bytes: refused within bounds, and others are served. */
static void check_garbage(void **state)
{
	static char huge[1 << 20];
	const char *answer;
	unsigned seed = 12345;

	start();
	memset(huge, 'a', sizeof(huge));
	memcpy(huge, "GET /", 5);
	assert_in_range(http_raw(port, huge, sizeof(huge), 1, &answer), 0, 499);
	assert_true(!strncmp(answer, "HTTP/1.1 4", 10) || !*answer);
	for (size_t i = 0; i < sizeof(huge) - 4; i += 4)
		memcpy(huge + i, "a:b\n", 4);
	memcpy(huge, "GET /metrics HTTP/1.1\r\nHost: x\r\n", 32);
	assert_in_range(http_raw(port, huge, sizeof(huge), 1, &answer), 0, 499);
	assert_false(!strncmp(answer, "HTTP/1.1 200", 12));
	for (int round = 0; round < 100; round++) {
		for (size_t i = 0; i < 512; i++)
			huge[i] = (char)rand_r(&seed);
		memcpy(huge + 508, "\r\n\r\n", 4);
		assert_in_range(http_raw(port, huge, 512, 1, &answer), 0, 499);
	}
	scraped(port);
	stop();
}

static void read_some(struct peer *peer, const struct soda_mr *mr)
{
	static uint8_t page[4096];

	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(peer_read(peer, mr, i * 4096, page, sizeof(page)), 0);
}

/*
 * More of them than there are places, each sending a byte now and then: clients of the
 * memory are served as ever, and a scrape has not to wait until they tire of it.
 */
static void check_slow_peers(void **state)
{
	enum { SLOW = 48 };
	static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ";
	int fds[SLOW];
	struct soda_mr mr;
	struct peer peer;
	const char *text;
	uint64_t begin;

	start();
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_int_equal(peer_open(&peer, 1, NULL, MIB, 0, &mr, NULL), 0);
	for (int i = 0; i < SLOW; i++) {
		fds[i] = http_connect(port);
		assert_true(fds[i] >= 0);
		assert_int_equal(send(fds[i], request, sizeof(request) - 1, MSG_NOSIGNAL),
				 sizeof(request) - 1);
	}
	for (int second = 0; second < 3; second++) {
		read_some(&peer, &mr);
		assert_true(peer_stat(&peer, "reads") != UINT64_MAX);
		for (int i = 0; i < SLOW; i++)
			(void)!send(fds[i], "x", 1, MSG_NOSIGNAL);
		usleep(300000);
	}
	begin = soda_now_ns();
	assert_int_equal(http_get(port, "/metrics", &text), 200);
	assert_true(soda_now_ns() - begin < 2 * SECOND_NS);
	for (int i = 0; i < SLOW; i++)
		close(fds[i]);
	peer_leave(&peer);
	stop();
}

static _Atomic int flooding;

static void *flood(void *arg)
{
	static const char request[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

	while (flooding) { /* some do not wait for the answer, some half close */
		int fd = http_connect(port);

		if (fd < 0)
			continue;
		(void)!send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL);
		if ((uintptr_t)arg & 1)
			shutdown(fd, SHUT_WR);
		if ((uintptr_t)arg & 2) {
			struct pollfd in = { .fd = fd, .events = POLLIN };

			poll(&in, 1, 100);
		}
		close(fd);
	}
	return NULL;
}

static void check_flood(void **state)
{
	pthread_t threads[4];
	struct soda_mr mr;
	struct peer peer;

	start();
	assert_int_equal(peer_join(&peer, server.address), 0);
	assert_int_equal(peer_open(&peer, 1, NULL, MIB, 0, &mr, NULL), 0);
	flooding = 1;
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, flood, (void *)i), 0);
	for (int i = 0; i < 20; i++)
		read_some(&peer, &mr);
	flooding = 0;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_true(scraped_value(scraped(port), "soda_mem_server_reads_total") == 2000);
	peer_leave(&peer);
	stop();
}

static void check_health(void **state)
{
	struct peer peer;
	const char *body;
	int status = 0;

	start();
	assert_int_equal(http_get(port, "/healthz", &body), 200);
	assert_string_equal(body, "ok\n");
	assert_int_equal(peer_join(&peer, server.address), 0);
	kill(server.pid, SIGTERM); /* and the peer keeps it up */
	for (int i = 0; i < LOOKS && status != 503; i++, usleep(10000))
		status = http_get(port, "/healthz", &body);
	assert_int_equal(status, 503);
	assert_string_equal(body, "draining\n");
	assert_int_equal(http_get(port, "/metrics", &body), 200);
	peer_leave(&peer);
	assert_int_equal(server_wait(&server, 60000), 0);
	server_forget(&server);
}

/* Whoever is connected does not keep the server from ending. */
static void check_end_with_visitors(void **state)
{
	int idle, half;

	start();
	idle = http_connect(port);
	half = http_connect(port);
	assert_true(idle >= 0 && half >= 0);
	assert_int_equal(send(half, "GET /met", 8, MSG_NOSIGNAL), 8);
	stop();
	close(idle);
	close(half);
}

static void check_options(void **state)
{
	static struct program program;
	char taken[32];
	const char *args[] = { "--capacity",	    "64M",	   "--listen",
			       "tcp://127.0.0.1:0", "--log-level", "warning",
			       "--metrics",	    "nonsense",	   NULL };

	start();
	assert_int_equal(program_run("src/mem_server/soda-mem-server", args, &program), 0);
	assert_int_equal(program.status, 1);
	assert_non_null(strstr(program.err, "metrics: 'nonsense' is not an address"));
	snprintf(taken, sizeof(taken), "127.0.0.1:%u", port);
	args[7] = taken;
	assert_int_equal(program_run("src/mem_server/soda-mem-server", args, &program), 0);
	assert_int_equal(program.status, 1);
	assert_non_null(strstr(program.err, "Address already in use"));
	stop();
	/* and by default there is none */
	assert_int_equal(SERVER_START(&server, "--capacity", "64M", "--log-level", "debug"), 0);
	assert_int_equal(http_find_port(server_log(&server)), 0);
	stop();
}

/* A build without libmicrohttpd says so, and there is nothing to test. */
static int has_metrics(void)
{
	static struct program program;
	const char *const args[] = { "--metrics",  "nonsense", "--listen", "tcp://127.0.0.1:0",
				     "--capacity", "64M",      NULL };

	return program_run("src/mem_server/soda-mem-server", args, &program) ||
	       !strstr(program.err, "this build has no HTTP server");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_values),
		cmocka_unit_test(check_hostile_names),
		cmocka_unit_test(check_many_clients),
		cmocka_unit_test(check_bad_requests),
		cmocka_unit_test(check_unfinished_requests),
		cmocka_unit_test(check_garbage),
		cmocka_unit_test(check_slow_peers),
		cmocka_unit_test(check_flood),
		cmocka_unit_test(check_health),
		cmocka_unit_test(check_end_with_visitors),
		cmocka_unit_test(check_options),
	};

	if (!has_metrics()) {
		puts("SKIP: built without libmicrohttpd");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
