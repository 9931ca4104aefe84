/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sixteen programs at once through one agent: one is killed in the middle of its work,
 * one floods the agent with requests, whose answers it takes late or never, one sends
 * garbage.  The others end with the right data.
 *
 * With an argument it measures instead: `test_dpu_sixteen bench [ROUNDS [k][f][g]]` prints
 * how long the others take beside these of the three (killed, flood, garbage), and without.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"

enum {
	CHUNK = 65536,
	WORDS = CHUNK / 8,
	CHUNKS = 96,
	GOOD = 13,
	KILLED = GOOD, /* their numbers */
	FLOOD,
	GARBAGE,
	ALL,
	VISITS = 1500,
	DEEP = 256, /* requests */
	LIMIT_S = 200,
};

static struct world world;

static struct shared {
	_Atomic int ready, go, over;
	_Atomic uint64_t visits[ALL]; /* or floods, or connections */
	double seconds[ALL];
} * shared;

static pid_t pids[ALL];

static void await_go(void)
{
	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		sleep_ms(1);
}

/* Good ones, and the one that is killed */

static void visit(uint64_t *fam, uint32_t *rounds, struct dice *d)
{
	size_t chunk = dice_roll(d) % CHUNKS;
	uint64_t *at = &fam[chunk * WORDS];

	for (size_t i = 0; i < WORDS; i += 512)
		CHECK(at[i] == mix(chunk * WORDS + i, rounds[chunk]), "chunk %zu, word %zu", chunk,
		      i);
	if (dice_roll(d) % 2)
		return;
	rounds[chunk]++;
	for (size_t i = 0; i < WORDS; i += 512)
		at[i] = mix(chunk * WORDS + i, rounds[chunk]);
}

static void work(unsigned number)
{
	struct dice d = { .state = 1000 + number };
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint32_t rounds[CHUNKS] = { 0 };
	uint64_t *fam;
	double begin;

	cfg.server = world.address;
	cfg.buffer = "2M";
	cfg.threads = 1;
	cfg.fault_timeout_ms = LIMIT_S * 1000;
	start(&cfg);
	fam = alloc_checked(CHUNKS * CHUNK);
	for (size_t i = 0; i < CHUNKS * WORDS; i++)
		fam[i] = mix(i, 0);
	await_go();
	begin = now_seconds();
	while (number == KILLED || atomic_load(&shared->visits[number]) < VISITS) {
		visit(fam, rounds, &d);
		atomic_fetch_add(&shared->visits[number], 1);
	}
	CHECK_EQ(soda_sync(NULL, 0), 0);
	shared->seconds[number] = now_seconds() - begin;
	for (size_t i = 0; i < CHUNKS * WORDS; i++)
		CHECK(fam[i] == mix(i, i % 512 ? 0 : rounds[i / WORDS]), "word %zu", i);
	soda_free(fam);
}

/* The flood */

/* As many requests as the connection takes: how many. */
static unsigned post_many(struct soda_conn *conn, const struct soda_mr *mr, uint8_t *data)
{
	unsigned n = 0;
	int ret = 0;

	while (n < DEEP && !ret) {
		uint64_t offset = n % CHUNKS * CHUNK;
		uint8_t *at = data + n * CHUNK;

		ret = n % 4 ? soda_conn_post_read(conn, mr, offset, CHUNK, at, n)
			    : soda_conn_post_write(conn, mr, offset, CHUNK, at, n);
		n += !ret;
	}
	CHECK(!ret || ret == -EAGAIN, "%d", ret);
	CHECK_EQ(soda_conn_flush(conn, false), 0);
	return n;
}

static void take_all(struct soda_conn *conn, unsigned left)
{
	struct soda_done done[64];

	while (left) {
		int n = soda_conn_poll(conn, done, 64, LIMIT_S * 1000000000ll, 0);

		CHECK(n > 0, "%d: %u answers are missing", n, left);
		left -= (unsigned)n;
	}
}

static void flood(void)
{
	enum { TAKEN = 4 };
	uint8_t *data = calloc(DEEP, CHUNK);
	struct soda_conn *taken[TAKEN], *never;
	struct soda_mr mr;
	struct peer p;

	CHECK_EQ(peer_join(&p, world.address), 0);
	CHECK_EQ(peer_open(&p, 1, NULL, CHUNKS * CHUNK, 0, &mr, NULL), 0);
	CHECK_EQ(peer_connect_data(&p, &never), 0);
	for (int i = 0; i < TAKEN; i++)
		CHECK_EQ(peer_connect_data(&p, &taken[i]), 0);
	await_go();
	post_many(never, &mr, data);
	while (!atomic_load(&shared->over)) {
		unsigned n[TAKEN];

		for (int i = 0; i < TAKEN; i++)
			n[i] = post_many(taken[i], &mr, data);
		for (int i = 0; i < TAKEN; i++)
			take_all(taken[i], n[i]);
		atomic_fetch_add(&shared->visits[FLOOD], 1);
	}
	for (int i = 0; i < TAKEN; i++)
		soda_conn_close(taken[i]);
	soda_conn_close(never);
	peer_vanish(&p);
	free(data);
}

/* The garbage */

static int connect_raw(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_port = htons((uint16_t)atoi(strrchr(world.address, ':') + 1));
	CHECK(!connect(fd, (struct sockaddr *)&to, sizeof(to)), "%s", strerror(errno));
	return fd;
}

/* To a connection that is new, or that has been accepted as one of a client's. */
static void garble(struct dice *d, bool welcome)
{
	uint64_t rubbish[512];
	struct soda_conn *conn = NULL;
	struct peer p;
	int fd;

	for (size_t i = 0; i < 512; i++)
		rubbish[i] = dice_roll(d);
	if (welcome) {
		CHECK_EQ(peer_join(&p, world.address), 0);
		CHECK_EQ(peer_connect_data(&p, &conn), 0);
	}
	fd = welcome ? soda_conn_fd(conn) : connect_raw();
	send(fd, rubbish, 1 + dice_roll(d) % sizeof(rubbish), MSG_NOSIGNAL);
	if (!welcome) {
		close(fd);
		return;
	}
	soda_conn_close(conn);
	peer_leave(&p);
}

static void send_garbage(void)
{
	struct dice d = { .state = 99 };

	await_go();
	while (!atomic_load(&shared->over)) {
		garble(&d, dice_roll(&d) % 8 == 0);
		atomic_fetch_add(&shared->visits[GARBAGE], 1);
		sleep_ms(1);
	}
}

/* All of them */

static void begin_one(unsigned number)
{
	fflush(NULL);
	pids[number] = fork();
	assert_return_code(pids[number], errno);
	if (pids[number])
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGBUS, SIG_DFL); /* cmocka's */
	signal(SIGSEGV, SIG_DFL);
	alarm(LIMIT_S);
	if (number == FLOOD)
		flood();
	else if (number == GARBAGE)
		send_garbage();
	else
		work(number);
	exit(0);
}

/* Until fn has become true of the number. False: the process has ended. */
static bool await_visits(unsigned number, uint64_t least)
{
	while (atomic_load(&shared->visits[number]) < least) {
		siginfo_t info = { 0 };

		waitid(P_PID, (id_t)pids[number], &info, WEXITED | WNOHANG | WNOWAIT);
		if (info.si_pid)
			return false;
		sleep_ms(1);
	}
	return true;
}

static void end_one(unsigned number, int want)
{
	int status = 0;

	assert_int_equal(waitpid(pids[number], &status, 0), pids[number]);
	if (status != want)
		fail_msg("program %u: status %x", number, (unsigned)status);
}

static bool is_bad(unsigned number, const char *bad)
{
	return number >= GOOD && strchr(bad, "kfg"[number - GOOD]);
}

static void begin_all(const char *bad)
{
	int n = 0;

	memset(shared, 0, sizeof(*shared));
	for (unsigned i = 0; i < ALL; i++) {
		if (i < GOOD || is_bad(i, bad)) {
			begin_one(i);
			n++;
		}
	}
	for (int i = 0; i < LIMIT_S * 100 && atomic_load(&shared->ready) < n; i++)
		sleep_ms(10);
	assert_int_equal(atomic_load(&shared->ready), n);
	atomic_store(&shared->go, 1);
}

/* With those of the bad ones that are named. Seconds of the slowest good one. */
static double run(const char *bad)
{
	double slowest = 0;

	begin_all(bad);
	if (is_bad(KILLED, bad)) {
		assert_true(await_visits(KILLED, VISITS / 4));
		kill(pids[KILLED], SIGKILL);
		end_one(KILLED, SIGKILL);
	}
	if (is_bad(FLOOD, bad))
		assert_true(await_visits(FLOOD, 1));
	if (is_bad(GARBAGE, bad))
		assert_true(await_visits(GARBAGE, 20));
	for (unsigned i = 0; i < GOOD; i++) {
		end_one(i, 0);
		if (shared->seconds[i] > slowest)
			slowest = shared->seconds[i];
	}
	atomic_store(&shared->over, 1);
	for (unsigned i = FLOOD; i < ALL; i++)
		if (is_bad(i, bad))
			end_one(i, 0);
	return slowest;
}

static void open_world(void)
{
	setenv("SODA_TEST_AGENT", "--timeout=100s", 1);
	shared = shared_memory(sizeof(*shared));
	world_open(&world, WORLD_TCP, NULL);
}

static void test_sixteen(void **state)
{
	struct peer tool;

	open_world();
	run("kfg");
	assert_int_equal(peer_ask(&tool, world.address), 0);
	assert_true(peer_stat(&tool, "peers_rejected") >= 10);
	assert_int_equal(peer_stat(&tool, "writes_lost"), 0);
	peer_leave(&tool);
	world_close(&world);
}

struct plan {
	unsigned rounds;
	const char *bad;
};

static void measure(void **state)
{
	const struct plan *plan = *state;

	open_world();
	for (unsigned i = 0; i < plan->rounds; i++) {
		double alone = run(""), beside = run(plan->bad);

		printf("round %u: %.3f s alone, %.3f s beside %s: %.2f times; %llu floods, %llu"
		       " times garbage\n",
		       i, alone, beside, plan->bad, beside / alone,
		       (unsigned long long)atomic_load(&shared->visits[FLOOD]),
		       (unsigned long long)atomic_load(&shared->visits[GARBAGE]));
	}
	world_close(&world);
}

int main(int argc, char **argv)
{
	struct plan plan = { argc > 2 ? (unsigned)atoi(argv[2]) : 5, argc > 3 ? argv[3] : "kfg" };
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_sixteen) },
				bench[] = { cmocka_unit_test_prestate(measure, &plan) };

	if (argc > 1 && !strcmp(argv[1], "bench"))
		return cmocka_run_group_tests_name("measure", bench, NULL, NULL);
	return cmocka_run_group_tests_name("dpu sixteen", tests, NULL, NULL);
}
