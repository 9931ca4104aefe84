/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions at their edges: what they refuse, and how they say it. */
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536 };

static struct world world;

static void begin(void)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	start(&cfg);
}

static void child_sizes(const void *arg)
{
	size_t odd[] = { 1, 4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, (5 << 20) + 3 };

	begin();
	errno = 0;
	CHECK(!soda_alloc(0, 0) && errno == EINVAL, "%d", errno);
	CHECK(!soda_alloc(4096, 1) && errno == EINVAL, "%d", errno);
	CHECK(!soda_alloc(4096, 0x80000000) && errno == EINVAL, "%d", errno);
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		char *p = alloc_checked(odd[i]);

		CHECK_EQ((uintptr_t)p % CHUNK, 0);
		for (size_t b = 0; b < odd[i]; b += 4096)
			CHECK_EQ(p[b], 0);
		p[odd[i] - 1] = 1;
		CHECK_EQ(p[odd[i] - 1], 1);
		soda_free(p);
	}
	soda_free(NULL);
	CHECK_EQ(soda_try_free(NULL), 0);
}

static void test_sizes(void **state)
{
	expect_passes(child_sizes, NULL);
}

/* ENOSPC at the allocation, and what is there goes on. */
static void child_capacity(const void *arg)
{
	size_t quarter = WORLD_CAPACITY / 4;
	char *p;

	begin();
	p = alloc_checked(quarter);
	p[quarter - 1] = 3;
	errno = 0;
	CHECK(!soda_alloc(WORLD_CAPACITY, 0) && errno == ENOSPC, "%s", strerror(errno));
	CHECK(soda_last_error()[0], "no sentence");
	CHECK(!soda_alloc(SIZE_MAX / 2, 0), "half of everything");
	CHECK(errno == ENOSPC || errno == ENOMEM, "%s", strerror(errno));
	CHECK(!soda_alloc(SIZE_MAX, 0), "everything");
	CHECK_EQ(p[quarter - 1], 3);
	soda_free(p);
	soda_free(alloc_checked(WORLD_CAPACITY / 2)); /* the reservation came back */
}

static void test_capacity(void **state)
{
	expect_passes(child_capacity, NULL);
}

static void child_try_free(const void *arg)
{
	char *p, *q;
	int local;

	begin();
	p = alloc_checked(4 * CHUNK);
	p[0] = 1;
	CHECK_EQ(soda_try_free(p + 1), -EINVAL);
	CHECK_EQ(soda_try_free(p + CHUNK), -EINVAL);
	CHECK_EQ(soda_try_free(&local), -EINVAL);
	CHECK_EQ(soda_try_free((void *)8), -EINVAL);
	q = malloc(1);
	CHECK_EQ(soda_try_free(q), -EINVAL);
	free(q);
	CHECK_EQ(p[0], 1);
	CHECK_EQ(soda_try_free(p), 0);
	CHECK_EQ(soda_try_free(p), -EINVAL);
}

static void test_try_free(void **state)
{
	expect_passes(child_try_free, NULL);
}

enum { CLOSED = 16 };

/* Everything that the program has closed comes back, of an object whose loads stores follow, too.
 */
static void child_closed_to_all(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct soda_stats s;
	char *p, *q;

	cfg.server = world.address;
	cfg.fault_timeout_ms = 10000;
	start(&cfg);
	p = alloc_checked(CLOSED * CHUNK);
	q = alloc_checked(CLOSED * CHUNK);
	for (int round = 0; round < 8; round++) { /* after some of them loads are made writable */
		for (int i = 0; i < CLOSED; i++) {
			CHECK_EQ(p[i * CHUNK], round ? i + round : 0);
			p[i * CHUNK] = q[i * CHUNK] = (char)(i + round + 1);
		}
		CHECK_EQ(mprotect(p + 5 * CHUNK + 8192, 4096, PROT_NONE), 0);
		CHECK_EQ(mprotect(p + (7 + round % 8) * CHUNK, 4096, PROT_NONE), 0);
		CHECK_EQ(soda_advise(p, CLOSED * CHUNK, SODA_COLD), 0);
		CHECK_EQ(soda_sync(q, CLOSED * CHUNK), 0);
		CHECK_EQ(mprotect(p, CLOSED * CHUNK, PROT_READ | PROT_WRITE), 0);
	}
	for (int i = 0; i < CLOSED; i++)
		CHECK_EQ(p[i * CHUNK], i + 8);
	CHECK_EQ(soda_get_stats(&s, sizeof(s)), 0);
	CHECK(s.reconnects <= 2, "%llu reconnections", (unsigned long long)s.reconnects);
	soda_free(p);
	soda_free(q);
}

static void test_closed_to_all(void **state)
{
	expect_passes(child_closed_to_all, NULL);
}

enum bad_free { FREE_FOREIGN, FREE_INTERIOR, FREE_TWICE };

static void child_bad_free(const void *arg)
{
	char *p;
	int local;

	begin();
	p = alloc_checked(4 * CHUNK);
	switch (*(const enum bad_free *)arg) {
	case FREE_FOREIGN:
		soda_free(&local);
		break;
	case FREE_INTERIOR:
		soda_free(p + CHUNK);
		break;
	case FREE_TWICE:
		soda_free(p);
		soda_free(p);
		break;
	}
}

static void test_bad_free_aborts(void **state)
{
	for (enum bad_free f = FREE_FOREIGN; f <= FREE_TWICE; f++) {
		struct trial t = { .child = child_bad_free, .arg = &f };
		struct outcome out;

		trial_run(&t, &out);
		expect_signal(&out, SIGABRT);
		expect_one_line(&out, "soda_free", NULL);
	}
}

static void child_gone(const void *arg)
{
	uint64_t *p, *q;

	begin();
	p = alloc_checked(4 * CHUNK);
	q = alloc_checked(4 * CHUNK);
	p[0] = q[0] = 5;
	soda_free(p);
	CHECK_EQ(touch_signal(p, false), SIGSEGV);
	CHECK_EQ(touch_signal(p, true), SIGSEGV);
	CHECK_EQ(q[0], 5);
	CHECK_EQ(touch_signal(q + 4 * CHUNK / 8, false), SIGSEGV); /* just behind the object */
	CHECK_EQ(soda_shutdown(), 0);
	CHECK_EQ(touch_signal(q, false), SIGSEGV);
	CHECK_EQ(touch_signal(q + CHUNK / 8, true), SIGSEGV);
	CHECK(!soda_alloc(CHUNK, 0), "an object after the end");
	CHECK(soda_sync(NULL, 0) < 0, "sync after the end");
	CHECK(soda_init(NULL) < 0, "a second start");
}

static void test_addresses_that_are_gone(void **state)
{
	expect_passes(child_gone, NULL);
}

static void child_init(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT, bad = SODA_CONFIG_INIT;

	bad.chunk_bytes = 3 * 4096;
	CHECK_EQ(soda_init(&bad), -EINVAL);
	CHECK(strstr(soda_last_error(), "chunk"), "what?");
	bad.chunk_bytes = 4 << 20;
	CHECK_EQ(soda_init(&bad), -EINVAL);
	bad = cfg;
	bad.mode = 9;
	CHECK_EQ(soda_init(&bad), -EINVAL);
	bad = cfg;
	bad.buffer = "a third";
	CHECK_EQ(soda_init(&bad), -EINVAL);
	CHECK(strstr(soda_last_error(), "a third"), "what?");
	bad = cfg;
	bad.evict = "clairvoyant";
	CHECK_EQ(soda_init(&bad), -EINVAL);
	bad = cfg;
	bad.struct_bytes = 0;
	CHECK_EQ(soda_init(&bad), -EINVAL);
	cfg.server = world.address;
	start(&cfg);
	CHECK_EQ(soda_init(&cfg), -EALREADY);
	soda_free(alloc_checked(1));
	CHECK_EQ(soda_init(NULL), -EALREADY);
}

static void test_init(void **state)
{
	expect_passes(child_init, NULL);
}

static void child_environment(const void *arg)
{
	setenv("SODA_SERVER", world.address, 1);
	setenv("SODA_BUFFER", "24M", 1);
	setenv("SODA_CHUNK", "128K", 1);
	soda_free(alloc_checked(1 << 20));
	CHECK_EQ(stats_now().buffer_bytes, 24 << 20);
	CHECK_EQ(stats_now().chunk_bytes, 128 << 10);
}

static void child_bad_environment(const void *arg)
{
	setenv("SODA_CHUNK", "large", 1);
	CHECK(!soda_alloc(1, 0) && errno == EINVAL, "%s", strerror(errno));
	CHECK(strstr(soda_last_error(), "SODA_CHUNK"), "which variable?");
}

static void test_environment(void **state)
{
	expect_passes(child_environment, NULL);
	expect_passes(child_bad_environment, NULL);
}

static void child_small_things(const void *arg)
{
	struct soda_stats s, part;
	char name[300];
	char *p;

	CHECK(strcmp(soda_version(), SODA_VERSION) == 0, "%s", soda_version());
	CHECK(strcmp(soda_last_error(), "") == 0, "before anything");
	begin();
	p = alloc_checked(3 * CHUNK);
	CHECK_EQ(soda_get_stats(NULL, 0), -EINVAL);
	memset(&part, 0x5a, sizeof(part));
	CHECK_EQ(soda_get_stats(&part, 16), 0);
	CHECK_EQ(part.zero_fills, 0x5a5a5a5a5a5a5a5all);
	p[0] = 1;
	p[CHUNK] = 1;
	s = stats_now();
	CHECK_EQ(s.zero_fills, 2);
	CHECK_EQ(s.bytes_fetched, 0); /* a first touch costs no traffic */
	CHECK_EQ(s.fam_bytes, 3 * CHUNK);
	CHECK_EQ(soda_set_name(p, "vertices"), 0);
	CHECK_EQ(soda_set_name(p + 1, "x"), -EINVAL);
	CHECK_EQ(soda_set_name(p, NULL), -EINVAL);
	memset(name, 'a', sizeof(name));
	name[255] = '\0';
	CHECK_EQ(soda_set_name(p, name), 0);
	name[255] = 'a';
	name[256] = '\0';
	CHECK_EQ(soda_set_name(p, name), -EINVAL);
	CHECK(soda_last_error()[0], "no sentence");
	errno = 42;
	CHECK_EQ(soda_try_free(name), -EINVAL);
	CHECK_EQ(errno, 42); /* who returns int leaves errno alone */
	soda_free(p);
	CHECK_EQ(errno, 42);
}

static void test_small_things(void **state)
{
	expect_passes(child_small_things, NULL);
}

/* A page that was read and never written is not sent. */
static void child_never_written(const void *arg)
{
	volatile char *p;

	begin();
	p = alloc_checked(64 * CHUNK);
	for (int i = 0; i < 64; i++)
		CHECK_EQ(p[i * CHUNK], 0);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(soda_advise((void *)p, 64 * CHUNK, SODA_COLD), 0);
	CHECK_EQ(stats_now().bytes_written_back, 0);
	p[5 * CHUNK + 100] = 1;
	CHECK_EQ(soda_advise((void *)p, 64 * CHUNK, SODA_COLD), 0);
	CHECK(stats_now().bytes_written_back <= CHUNK, "%llu",
	      (unsigned long long)stats_now().bytes_written_back);
	CHECK_EQ(p[5 * CHUNK + 100], 1);
	CHECK_EQ(p[6 * CHUNK], 0);
}

static void test_never_written_never_sent(void **state)
{
	expect_passes(child_never_written, NULL);
}

/* Servers that are none. */
struct no_server {
	const char *address;
	int error;
};

static void child_no_server(const void *arg)
{
	const struct no_server *n = arg;
	struct soda_config cfg = SODA_CONFIG_INIT;
	double begin_s = now_seconds();
	int ret;

	cfg.server = n->address;
	cfg.connect_timeout_ms = 700;
	ret = soda_init(&cfg);
	CHECK(ret == n->error, "%s: %s, expected %s", n->address, strerror(-ret),
	      strerror(-n->error));
	CHECK(now_seconds() - begin_s < 60, "took %.1f s", now_seconds() - begin_s);
	CHECK(strstr(soda_last_error(), n->address) || n->error == -EINVAL, "whom?");
	/* and no silent fall-back, also by way of the environment */
	setenv("SODA_SERVER", n->address, 1);
	setenv("SODA_CONNECT_TIMEOUT", "700ms", 1);
	CHECK(!soda_alloc(4096, 0), "an object without its server");
	CHECK(errno == -n->error, "%s", strerror(errno));
}

/* A socket of 127.0.0.1 that listens, or (backlog < 0) only holds its port. */
static int hold_port(char address[64], int backlog)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_return_code(bind(fd, (struct sockaddr *)&at, len), errno);
	assert_return_code(getsockname(fd, (struct sockaddr *)&at, &len), errno);
	if (backlog >= 0)
		assert_return_code(listen(fd, backlog), errno);
	snprintf(address, 64, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
	return fd;
}

static void expect_no_server(const char *address, int error)
{
	struct no_server n = { .address = address, .error = error };
	struct trial t = { .child = child_no_server, .arg = &n };
	struct outcome out;

	trial_run(&t, &out);
	expect_exit(&out, 0);
}

static void test_no_server(void **state)
{
	char address[64];
	int fd = hold_port(address, -1);

	expect_no_server(address, -ECONNREFUSED);
	close(fd);
	fd = hold_port(address, 5); /* accepts, never answers */
	expect_no_server(address, -ETIMEDOUT);
	close(fd);
	expect_no_server("shm:///nonexistent/soda.sock", -ENOENT);
	expect_no_server("tcp://127.0.0.1", -EINVAL);
	expect_no_server("carrier-pigeon://loft", -EINVAL);
}

/* Address space, in MiB, and descriptors. */
struct holdings {
	unsigned long mib, fds;
};

static struct holdings holdings(void)
{
	struct holdings h = { 0 };
	DIR *fds = opendir("/proc/self/fd");
	FILE *f = fopen("/proc/self/statm", "r");

	CHECK(fds && f && fscanf(f, "%lu", &h.mib) == 1);
	h.mib /= 256; /* pages */
	while (readdir(fds))
		h.fds++;
	fclose(f);
	closedir(fds);
	return h;
}

/* Starts that fail leave nothing behind, and do not stand in the way of one that succeeds. */
static void child_many_starts(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct holdings before, after;
	char *fam;

	cfg.server = arg;
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(soda_init(&cfg), -ECONNREFUSED);
		if (i == 0)
			before = holdings();
	}
	after = holdings();
	CHECK(after.mib <= before.mib + 64, "%lu MiB more", after.mib - before.mib);
	CHECK_EQ(after.fds, before.fds);
	begin();
	fam = alloc_checked(4 * CHUNK);
	memset(fam, 5, 4 * CHUNK);
	CHECK_EQ(soda_advise(fam, 4 * CHUNK, SODA_COLD), 0);
	CHECK_EQ(fam[3 * CHUNK], 5);
}

static void test_many_starts(void **state)
{
	char address[64];
	int fd = hold_port(address, -1);

	expect_passes(child_many_starts, address);
	close(fd);
}

static void test_not_a_soda_server(void **state)
{
	static const char greeting[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
	char address[64];
	int fd = hold_port(address, 5);
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		alarm(20);
		for (;;) {
			int c = accept(fd, NULL, NULL);

			(void)!write(c, greeting, sizeof(greeting) - 1);
			close(c);
		}
	}
	expect_no_server(address, -EPROTO);
	kill(pid, SIGKILL);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_capacity),
		cmocka_unit_test(test_try_free),
		cmocka_unit_test(test_closed_to_all),
		cmocka_unit_test(test_bad_free_aborts),
		cmocka_unit_test(test_addresses_that_are_gone),
		cmocka_unit_test(test_init),
		cmocka_unit_test(test_environment),
		cmocka_unit_test(test_small_things),
		cmocka_unit_test(test_never_written_never_sent),
		cmocka_unit_test(test_no_server),
		cmocka_unit_test(test_many_starts),
		cmocka_unit_test(test_not_a_soda_server),
	};

	return WORLD_RUN("api", &world, false, tests);
}
