/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data connections that the kernel's TLS carries, between two network namespaces with a cable: what
 * somebody on the way sees of a program's memory, and can change of it.  Where the kernel has no
 * TLS, that nobody sends anything in clear instead; the rest runs in a guest (./check rdma).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../dpu_agent/tenancy.h"
#include "lib/peer.h"
#include "lib/proc.h"
#include "trust/identity.h"

#define HERE "10.213.78.1"
#define AGENT "tcp://" HERE ":7002"
#define SERVER "tcp://" HERE ":7001"
#define PROXY "tcp://" HERE ":7009"
#define MARK "words that nobody on the way is to see"
#define MIB (1ull << 20)

enum { PROXY_PORT = 7009, PROGRAM_MS = 240000 };

static struct tenancy of_server, of_agent;
static pid_t far; /* holds the other namespace */

/* Two machines */

static bool sh(const char *format, ...)
{
	char command[512];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	return system(command) == 0; /* NOLINT: constants, but for process ids */
}

/* Its loopback is up before it says so. */
static void be_far(int ready)
{
	char end;

	if (unshare(CLONE_NEWNET) == 0 && sh("ip link set lo up") && write(ready, "n", 1) == 1)
		(void)!read(ready, &end, 1);
	_exit(0);
}

/* This process and those that it starts are on one machine from here on. False: not possible here.
 */
static bool make_machines(void)
{
	char ready;
	int pair[2];

	if (unshare(CLONE_NEWNET) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return false;
	far = fork();
	if (!far) {
		close(pair[0]);
		be_far(pair[1]);
	}
	close(pair[1]); /* the other end stays open as long as this process */
	return read(pair[0], &ready, 1) == 1 &&
	       sh("ip link set lo up && ip link add v0 type veth peer name v1 netns %d && "
		  "ip addr add " HERE "/30 dev v0 && ip link set v0 up && "
		  "nsenter -t %d -n ip addr add 10.213.78.2/30 dev v1 && "
		  "nsenter -t %d -n ip link set v1 up",
		  (int)far, (int)far, (int)far);
}

/* Run f on the other machine: its result, an exit status. */
static int there(int (*f)(const void *), const void *arg)
{
	char path[64];
	int status, fd;
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)far);
	pid = fork();
	if (!pid) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		_exit(fd < 0 || setns(fd, CLONE_NEWNET) ? 99 : f(arg));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

/* Somebody on the way: passes on what both say, looks for MARK, and may change a byte of each. */

static struct proxy {
	uint16_t to;
	int listener;
	pthread_t thread;
	_Atomic uint64_t bytes[2], flip[2]; /* of all connections, by direction */
	_Atomic bool saw, stop;
} proxy;

struct passage {
	int ends[2];
	char last[2][sizeof(MARK)]; /* the end of what has passed, which a mark may begin in */
};

static void look(struct passage *p, int from, const char *bytes, size_t n)
{
	enum { KEEP = sizeof(MARK) - 2 };
	char seam[2 * KEEP];
	size_t some = n < KEEP ? n : KEEP;

	memcpy(seam, p->last[from], KEEP);
	memcpy(seam + KEEP, bytes, some);
	if (memmem(bytes, n, MARK, strlen(MARK)) || memmem(seam, KEEP + some, MARK, strlen(MARK)))
		proxy.saw = true;
	if (n >= KEEP)
		memcpy(p->last[from], bytes + n - KEEP, KEEP);
	else
		memset(p->last[from], 0, KEEP);
}

static bool pass(struct passage *p, int from)
{
	static _Thread_local char bytes[256 << 10];
	ssize_t n = recv(p->ends[from], bytes, sizeof(bytes), 0);
	uint64_t before, flip = proxy.flip[from];

	if (n <= 0)
		return false;
	before = atomic_fetch_add(&proxy.bytes[from], (uint64_t)n);
	if (flip && flip >= before && flip < before + (uint64_t)n)
		bytes[flip - before] ^= 1;
	look(p, from, bytes, (size_t)n);
	for (ssize_t at = 0, sent; at < n; at += sent) {
		sent = send(p->ends[!from], bytes + at, (size_t)(n - at), MSG_NOSIGNAL);
		if (sent < 0)
			return false;
	}
	return true;
}

static void *passage_main(void *arg)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(proxy.to),
				  .sin_addr.s_addr = inet_addr(HERE) };
	struct passage *p = arg;
	bool on;

	p->ends[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	on = connect(p->ends[1], (struct sockaddr *)&at, sizeof(at)) == 0;
	while (on) {
		struct pollfd fds[2] = { { p->ends[0], POLLIN, 0 }, { p->ends[1], POLLIN, 0 } };

		on = poll(fds, 2, PROGRAM_MS) > 0;
		for (int i = 0; on && i < 2; i++)
			on = !fds[i].revents || pass(p, i);
	}
	close(p->ends[0]);
	close(p->ends[1]);
	free(p);
	return NULL;
}

static void *proxy_main(void *arg)
{
	struct pollfd fd = { proxy.listener, POLLIN, 0 };

	while (!proxy.stop) {
		struct passage *p = poll(&fd, 1, 50) > 0 ? calloc(1, sizeof(*p)) : NULL;
		pthread_t thread;

		if (!p)
			continue;
		p->ends[0] = accept4(proxy.listener, NULL, NULL, SOCK_CLOEXEC);
		if (pthread_create(&thread, NULL, passage_main, p) == 0)
			pthread_detach(thread);
	}
	return NULL;
}

static void proxy_begin(const char *to, uint64_t flip_said, uint64_t flip_heard)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(PROXY_PORT),
				  .sin_addr.s_addr = inet_addr(HERE) };
	int one = 1;

	memset(&proxy, 0, sizeof(proxy));
	proxy.to = (uint16_t)atoi(strrchr(to, ':') + 1);
	proxy.flip[0] = flip_said;
	proxy.flip[1] = flip_heard;
	proxy.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(proxy.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(proxy.listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(proxy.listener, 64), 0);
	assert_int_equal(pthread_create(&proxy.thread, NULL, proxy_main, NULL), 0);
}

static void proxy_end(void)
{
	proxy.stop = true;
	pthread_join(proxy.thread, NULL);
	close(proxy.listener);
}

/* Programs there */

/* 12 MiB of MARK, of which 4 MiB are in the node; stored to, evicted and loaded again. */
static const char script[] =
	"m=b'" MARK "'; n=12<<20; b=bytearray(n); w=m*(4096//len(m)); k=len(w)\n"
	"for i in range(0,n,4096): b[i:i+k]=w\n"
	"print(sum(b[i:i+k]==w for i in range(0,n,4096)))";
enum { PAGES = 12 << 8, PROGRAM_BYTES = 8 << 20 };

/* Who a program is, and how it goes about it. */
struct as {
	struct tenancy *tenancy; /* of whom it means to reach, by way of the proxy */
	const char *tls;
};

static int run_program(const void *arg)
{
	const struct as *as = arg;
	static const char *const python[] = { "run", "--server",    PROXY, "--quiet", "--mem",
					      "8M",  "--threshold", "1M",  "--",      "python3",
					      "-c",  script,	    NULL };
	static struct program p;

	setenv("SODA_TLS", as->tls, 1);
	setenv("SODA_KEY_FILE", tenancy_key(as->tenancy, "physics"), 1);
	setenv("SODA_SERVER_NAME", as->tenancy->content.server, 1);
	if (program_run_within("tools/soda/soda", python, PROGRAM_MS, &p))
		return 97;
	if (p.status == 0 && atoi(p.out) == PAGES)
		return 0;
	fprintf(stderr, "status %d, out %s, err %s\n", p.status, p.out, p.err);
	return strstr(p.err, "travel in clear")		     ? 1
	       : strstr(p.err, "server's kernel has no TLS") ? 2
							     : 3;
}

static struct soda_identity *identity(enum soda_tls_mode mode)
{
	struct soda_identity *as = NULL;
	struct soda_conf_error err;

	if (soda_identity_load(NULL, tenancy_key(&of_server, "physics"), "mem1", SERVER, &as,
			       &err) ||
	    soda_identity_encrypt(mode, NULL, "mem1", SERVER, &as, &err))
		exit(96);
	return as;
}

/* A data connection as SODA_TLS has it, to the address: 0, or the negative errno, less 1. */
struct attempt {
	const char *to, *text;
	enum soda_tls_mode mode;
};

static int connect_data(const void *arg)
{
	const struct attempt *a = arg;
	struct soda_identity *as = identity(a->mode);
	struct soda_conn *conn = NULL;
	struct peer peer;
	int ret = peer_join_as(&peer, a->to, as);

	if (ret == 0)
		ret = peer_connect_data(&peer, &conn);
	if (!a->text)
		return ret ? 1 : 0;
	if (ret == -EACCES && strstr(peer.why.text, a->text))
		return 0;
	fprintf(stderr, "%d: %s\n", ret, peer.why.text);
	return 1;
}

/* Cases */

static const struct as hidden = { &of_server, "require" };

static void start_server(struct server *s, const char *tls)
{
	assert_int_equal(SERVER_START(s, "--listen", SERVER, "--tenants", of_server.file, "--tls",
				      tls, "--capacity", "256M", "--log-level", "debug"),
			 0);
}

static void stop_server(struct server *s)
{
	assert_int_equal(server_stop(s), 0);
	server_forget(s);
}

static void need_kernel(void)
{
	char why[SODA_TLS_WHY];

	if (soda_tls_kernel(why) == 0)
		return;
	print_message("SKIP: %s\n", why);
	skip();
}

/* The same observer sees all of it where TLS is for calls alone. */
static void hides_data(void **state)
{
	struct server s;

	need_kernel();
	start_server(&s, "on");
	proxy_begin(SERVER, 0, 0);
	assert_int_equal(there(run_program, &(struct as){ &of_server, "on" }), 0);
	assert_true(proxy.saw);
	proxy_end();
	proxy_begin(SERVER, 0, 0);
	assert_int_equal(there(run_program, &hidden), 0);
	assert_false(proxy.saw);
	assert_true(proxy.bytes[0] > PROGRAM_BYTES && proxy.bytes[1] > PROGRAM_BYTES);
	proxy_end();
	stop_server(&s);
	/* nor is there a way in clear to a server that requires it, from the other machine */
	start_server(&s, "require");
	assert_int_equal(there(connect_data, &(struct attempt){ SERVER, NULL, SODA_TLS_REQUIRE }),
			 0);
	assert_int_equal(there(connect_data,
			       &(struct attempt){ SERVER, "this server forbids", SODA_TLS_ON }),
			 0);
	stop_server(&s);
}

/* What is changed on the way is not taken: the connection is lost, another one made, the data
 * right. */
static void survives_changes(void **state)
{
	struct server s;

	need_kernel();
	start_server(&s, "require");
	for (int i = 0; i < 2; i++) {
		proxy_begin(SERVER, i ? 0 : 3 * MIB, i ? 3 * MIB : 0);
		assert_int_equal(there(run_program, &hidden), 0);
		assert_true(proxy.bytes[i] > 3 * MIB);
		assert_false(proxy.saw);
		proxy_end();
	}
	stop_server(&s);
}

/* An agent's listener, whose server is on the same machine. */
static void agent_likewise(void **state)
{
	static const struct as hidden_of_agent = { &of_agent, "require" };
	const char *args[] = { "--listen",	AGENT,	 "--server", SERVER,	   "--tenants",
			       of_agent.file,	"--tls", "require",  "--key-file", NULL,
			       "--server-name", "mem1",	 NULL };
	struct server s, agent;

	need_kernel();
	start_server(&s, "require");
	args[9] = tenancy_key(&of_server, "node7");
	assert_int_equal(agent_start(&agent, args), 0);
	proxy_begin(AGENT, 0, 0);
	assert_int_equal(there(run_program, &hidden_of_agent), 0);
	assert_false(proxy.saw);
	assert_true(proxy.bytes[0] > PROGRAM_BYTES && proxy.bytes[1] > PROGRAM_BYTES);
	proxy_end();
	stop_server(&agent);
	stop_server(&s);
}

/* One of the two kernels has none: refused with a sentence that says whose, and nothing in clear.
 */
static void refuses_without(void **state)
{
	char why[SODA_TLS_WHY];
	struct server s;

	/* a kernel is asked by way of loopback: without one it cannot be had */
	assert_true(sh("ip link set lo down"));
	start_server(&s, "on");
	assert_true(sh("ip link set lo up"));
	proxy_begin(SERVER, 0, 0);
	assert_int_equal(there(run_program, &hidden), soda_tls_kernel(why) ? 1 : 2);
	assert_false(proxy.saw);
	assert_true(sh("nsenter -t %d -n ip link set lo down", (int)far));
	assert_int_equal(there(run_program, &hidden), 1);
	assert_true(sh("nsenter -t %d -n ip link set lo up", (int)far));
	assert_false(proxy.saw);
	proxy_end();
	stop_server(&s);
}

static int set_up(void **state)
{
	tenancy_open(&of_server, "mem1");
	tenancy_add(&of_server, "physics");
	tenancy_add(&of_server, "node7")->role = SODA_ROLE_AGENT;
	tenancy_save(&of_server);
	tenancy_open(&of_agent, "node7");
	tenancy_add(&of_agent, "physics");
	tenancy_save(&of_agent);
	return 0;
}

static int tear_down(void **state)
{
	tenancy_close(&of_server);
	tenancy_close(&of_agent);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hides_data),
		cmocka_unit_test(survives_changes),
		cmocka_unit_test(agent_likewise),
		cmocka_unit_test(refuses_without),
	};
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	if (access(build_path("src/run/libsoda-run.so"), R_OK)) {
		printf("SKIP: there is no libsoda-run with a sanitizer\n");
		return 77;
	}
	if (!make_machines()) {
		printf("SKIP: network namespaces, ip and nsenter are needed\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
