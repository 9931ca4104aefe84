/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of etcd's JSON gateway read answers, also such as no healthy etcd gives:
 * gateways of this test's own, on loopback, that answer as they are told.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/memory.h"
#include "registry/etcd.h"

#define GRANTED "{\"header\":{\"revision\":\"1\"},\"ID\":\"7\",\"TTL\":\"10\"}"

struct answer {
	int status;
	const char *body;
};

struct gateway {
	int fd, port;
	pthread_t thread;
	struct answer answer; /* to all; body NULL: as etcd does */
	struct answer old;    /* of etcd, to a token that is older than its users */
	const char *token;    /* that it gives; NULL: one of its own */
	bool restless;	      /* its users change with each token that it gives */
	_Atomic int users;    /* how often they have changed */
	_Atomic int given;    /* the change that the last token is of */
	_Atomic int asked, authenticated;
};

static struct gateway gateways[2];

static _Atomic int left_behind; /* blocks that were given back with a token in them */

void __real_free(void *p);
void __wrap_free(void *p);

/* All calls of free() in this program, but for those of shared libraries. */
void __wrap_free(void *p)
{
	if (p && memmem(p, malloc_usable_size(p), "token-", 6))
		atomic_fetch_add(&left_behind, 1);
	__real_free(p);
}

/* One request, as far as its body has come with it: what is answered does not depend on more. */
static bool read_request(int fd, char *text, size_t bytes)
{
	const char *length, *end;
	size_t n = 0;

	for (;;) {
		ssize_t r = read(fd, text + n, bytes - 1 - n);

		if (r <= 0)
			return false;
		n += (size_t)r;
		text[n] = '\0';
		end = strstr(text, "\r\n\r\n");
		length = strcasestr(text, "content-length:");
		if (end && length && n >= (size_t)(end + 4 - text) + strtoul(length + 15, NULL, 10))
			return true;
	}
}

static struct answer authenticate(struct gateway *g, char *text, size_t bytes)
{
	atomic_fetch_add(&g->authenticated, 1);
	atomic_store(&g->given, atomic_load(&g->users));
	if (g->token)
		snprintf(text, bytes, "{\"header\":{},\"token\":\"%s\"}", g->token);
	else
		snprintf(text, bytes, "{\"header\":{},\"token\":\"token-%d\"}",
			 atomic_load(&g->given));
	if (g->restless)
		atomic_fetch_add(&g->users, 1);
	return (struct answer){ 200, text };
}

static struct answer choose(struct gateway *g, const char *request, char *text, size_t bytes)
{
	char valid[32];

	atomic_fetch_add(&g->asked, 1);
	if (g->answer.body)
		return g->answer;
	if (strstr(request, "/auth/authenticate"))
		return authenticate(g, text, bytes);
	snprintf(valid, sizeof(valid), "token-%d\r\n", atomic_load(&g->users));
	if (g->old.body && !strstr(request, valid))
		return g->old;
	return (struct answer){ 200, GRANTED };
}

static void *serve(void *arg)
{
	static const char form[] = "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n"
				   "\r\n%s";
	struct gateway *g = arg;
	char request[4096], text[128], all[1024];
	int fd, n;

	while ((fd = accept4(g->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		if (read_request(fd, request, sizeof(request))) {
			struct answer a = choose(g, request, text, sizeof(text));

			n = snprintf(all, sizeof(all), form, a.status, strlen(a.body), a.body);
			if (send(fd, all, (size_t)n, MSG_NOSIGNAL) != n)
				print_message("a caller has gone\n");
		}
		close(fd);
	}
	return NULL;
}

static void begin(struct gateway *g)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(at);

	g->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(g->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(g->fd, (struct sockaddr *)&at, &bytes), 0);
	assert_int_equal(listen(g->fd, 16), 0);
	g->port = ntohs(at.sin_port);
	assert_int_equal(pthread_create(&g->thread, NULL, serve, g), 0);
}

static int begin_both(void **state)
{
	memset(gateways, 0, sizeof(gateways));
	for (int i = 0; i < 2; i++)
		begin(&gateways[i]);
	return 0;
}

static void end(struct gateway *g)
{
	if (g->fd < 0)
		return;
	shutdown(g->fd, SHUT_RDWR);
	pthread_join(g->thread, NULL);
	close(g->fd);
	g->fd = -1;
}

static int end_both(void **state)
{
	for (int i = 0; i < 2; i++)
		end(&gateways[i]);
	return 0;
}

/* Both, the first one asked first; user_file: NULL, nobody. */
static struct soda_etcd *connect_both(const char *user_file)
{
	const struct soda_registry_login login = { .user_file = user_file };
	struct soda_registry_name name;
	struct soda_etcd *etcd;
	struct soda_why why;
	char text[96];

	snprintf(text, sizeof(text), "etcd://127.0.0.1:%d,127.0.0.1:%d/p", gateways[0].port,
		 gateways[1].port);
	assert_int_equal(soda_registry_parse(text, &name, &why), 0);
	if (soda_etcd_open(&name, &login, &etcd, &why))
		fail_msg("%s", why.text);
	return etcd;
}

static int grant(struct soda_etcd *etcd, struct soda_why *why)
{
	char lease[SODA_ETCD_LEASE] = "";
	int ret = soda_etcd_grant(etcd, 10, lease, why);

	if (!ret)
		assert_string_equal(lease, "7");
	return ret;
}

/* Answers that are none of etcd's. */
static const struct answer strange[] = {
	{ 404, "404 page not found\n" },
	{ 403, "<html>Forbidden</html>" },
	{ 404, "{\"message\":\"no such route\"}" },
	{ 200, "It works!" },
	{ 200, "{\"status\":\"ok\"}" },
	{ 301, "" },
};

/* An endpoint that is no etcd hides none that is one, and is not asked again. */
static void check_hidden(void **state)
{
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		struct soda_etcd *etcd = connect_both(NULL);
		struct soda_why why = { "" };

		gateways[0].answer = strange[i];
		atomic_store(&gateways[0].asked, 0);
		if (grant(etcd, &why))
			fail_msg("%d %s: %s", strange[i].status, strange[i].body, why.text);
		assert_int_equal(grant(etcd, &why), 0);
		assert_int_equal(atomic_load(&gateways[0].asked), 1);
		soda_etcd_close(etcd);
	}
}

/* Where none is etcd that is said; where one is away, it may be again. */
static void check_none(void **state)
{
	struct soda_etcd *etcd = connect_both(NULL);
	struct soda_why why = { "" };

	gateways[0].answer = gateways[1].answer = strange[0];
	assert_int_equal(grant(etcd, &why), -EPROTO);
	assert_non_null(strstr(why.text, "is not etcd's JSON gateway"));
	end(&gateways[1]);
	assert_int_equal(grant(etcd, &why), -EIO);
	assert_non_null(strstr(why.text, "etcd cannot be asked"));
	soda_etcd_close(etcd);
}

/* A refusal of etcd's is its last word: no other endpoint is asked. */
static void check_refused(void **state)
{
	static const struct {
		struct answer answer;
		int ret;
		const char *words;
	} cases[] = {
		{ { 403, "{\"error\":\"permission denied\",\"code\":7}" }, -EACCES, "permission" },
		{ { 403, "{\"message\":\"permission denied\",\"code\":7}" },
		  -EACCES,
		  "permission" },
		{ { 404,
		    "{\"error\":{\"grpc_code\":5,\"http_code\":404,\"message\":\"not found\"}}" },
		  -ENOENT,
		  "not found" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct soda_etcd *etcd = connect_both(NULL);
		struct soda_why why = { "" };

		gateways[0].answer = cases[i].answer;
		assert_int_equal(grant(etcd, &why), cases[i].ret);
		assert_non_null(strstr(why.text, cases[i].words));
		assert_int_equal(atomic_load(&gateways[1].asked), 0);
		soda_etcd_close(etcd);
	}
}

static void write_user(char path[32])
{
	int fd;

	strcpy(path, "/tmp/soda-test-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "soda:word\n", 10), 10);
	close(fd);
}

/* How etcd says of a token that it is older than its users (JWT), or that it knows it no more. */
static const struct answer old[] = {
	{ 400, "{\"error\":\"etcdserver: revision of auth store is old\",\"code\":3}" },
	{ 500, "{\"message\":\"auth: revision in header is old\",\"code\":2}" },
	{ 401, "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}" },
	{ 200,
	  "{\"error\":{\"grpc_code\":16,\"http_code\":401,\"message\":\"invalid auth token\"}}" },
};

/* With the token that is old by now a call authenticates anew, and is done. */
static void check_old_token(void **state)
{
	struct gateway *g = &gateways[0];
	struct soda_etcd *etcd;
	struct soda_why why = { "" };
	char user[32];

	write_user(user);
	for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
		etcd = connect_both(user);
		g->old = old[i];
		atomic_store(&g->authenticated, 0);
		assert_int_equal(grant(etcd, &why), 0);
		assert_int_equal(grant(etcd, &why), 0);
		assert_int_equal(atomic_load(&g->authenticated), 1);
		atomic_fetch_add(&g->users, 1);
		if (grant(etcd, &why))
			fail_msg("%s: %s", old[i].body, why.text);
		assert_int_equal(atomic_load(&g->authenticated), 2);
		soda_etcd_close(etcd);
	}
	unlink(user);
}

/* Neither a token that is replaced nor the last one is left in memory that is given back. */
static void check_wiped(void **state)
{
	struct soda_why why = { "" };
	struct soda_etcd *etcd;
	char user[32];

	write_user(user);
	etcd = connect_both(user);
	gateways[0].old = old[0];
	atomic_store(&left_behind, 0);
	assert_int_equal(grant(etcd, &why), 0);
	atomic_fetch_add(&gateways[0].users, 1);
	assert_int_equal(grant(etcd, &why), 0);
	assert_int_equal(atomic_load(&gateways[0].authenticated), 2);
	soda_etcd_close(etcd);
	unlink(user);
	assert_int_equal(atomic_load(&left_behind), 0);
}

/* In a child: this process does not get to know the token. */
static void use_token(const char *user, int go)
{
	struct soda_why why = { "" };
	struct soda_etcd *etcd;
	char byte;

	if (read(go, &byte, 1) != 1)
		_exit(1);
	etcd = connect_both(user);
	if (grant(etcd, &why) || grant(etcd, &why))
		_exit(2);
	raise(SIGSTOP);
	soda_etcd_close(etcd);
	raise(SIGSTOP);
	_exit(0);
}

static void await_stop(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

/* A process has a token in no core file between calls, and nowhere once it is given back. */
static void check_not_in_memory(void **state)
{
	unsigned char hidden[MEMORY_KEY];
	char token[MEMORY_KEY + 1], user[32];
	int go[2], status;
	pid_t pid;

	memory_skip_with_sanitizers();
	write_user(user);
	assert_int_equal(pipe(go), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		use_token(user, go[0]);
	for (int i = 0; i < MEMORY_KEY; i += 16)
		snprintf(token + i, 17, "%08lx%08lx", random() ^ (long)pid, random());
	for (int i = 0; i < MEMORY_KEY; i++)
		hidden[i] = (unsigned char)token[i] ^ MEMORY_HIDE;
	gateways[0].token = token;
	assert_int_equal(write(go[1], "", 1), 1);
	await_stop(pid);
	assert_int_equal(memory_count_keys(pid, hidden, "??"), 1);
	assert_int_equal(memory_count_keys(pid, hidden, "dd"), 0);
	assert_int_equal(kill(pid, SIGCONT), 0);
	await_stop(pid);
	assert_int_equal(memory_count_keys(pid, hidden, "??"), 0);
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(go[0]);
	close(go[1]);
	unlink(user);
}

/* But once: where the new token is old, too, that is the call's outcome. */
static void check_old_again(void **state)
{
	struct gateway *g = &gateways[0];
	struct soda_why why = { "" };
	struct soda_etcd *etcd;
	char user[32];

	write_user(user);
	g->restless = true;
	for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
		etcd = connect_both(user);
		g->old = old[i];
		atomic_store(&g->authenticated, 0);
		assert_int_equal(grant(etcd, &why), -EACCES);
		assert_int_equal(atomic_load(&g->authenticated), 2);
		soda_etcd_close(etcd);
	}
	unlink(user);
}

/* Other refusals with those codes are no matter of tokens. */
static void check_not_old(void **state)
{
	struct gateway *g = &gateways[0];
	struct soda_why why = { "" };
	struct soda_etcd *etcd;
	char user[32];

	write_user(user);
	etcd = connect_both(user);
	g->restless = true;
	g->old = (struct answer){ 400,
				  "{\"error\":\"etcdserver: key is not provided\",\"code\":3}" };
	assert_int_equal(grant(etcd, &why), -EPROTO);
	assert_int_equal(atomic_load(&g->authenticated), 1);
	soda_etcd_close(etcd);
	unlink(user);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(check_hidden, begin_both, end_both),
		cmocka_unit_test_setup_teardown(check_none, begin_both, end_both),
		cmocka_unit_test_setup_teardown(check_refused, begin_both, end_both),
		cmocka_unit_test_setup_teardown(check_old_token, begin_both, end_both),
		cmocka_unit_test_setup_teardown(check_old_again, begin_both, end_both),
		cmocka_unit_test_setup_teardown(check_wiped, begin_both, end_both),
		cmocka_unit_test_setup_teardown(check_not_in_memory, begin_both, end_both),
		cmocka_unit_test_setup_teardown(check_not_old, begin_both, end_both),
	};

	cmocka_set_test_filter(getenv("SODA_TEST_ONLY")); /* NULL: all of them */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
