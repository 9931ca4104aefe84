/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ends at a bad moment: exit() in a signal handler that has interrupted a call of the library; and
 * threads that begin and end, and free, while another one waits for a server that does not answer.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNKS = 64, WORDS = CHUNKS * CHUNK / 8, PATIENCE_MS = 20000 };

static struct world world;

static _Atomic bool calls; /* main is about to be in the call */
static uint64_t *file;
static const char *file_name; /* each case has its own: one that has ended by force may have it */

static void begin(void)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.buffer = "16M";
	cfg.threads = 4;
	cfg.fault_timeout_ms = PATIENCE_MS;
	cfg.log_level = SODA_LOG_ERROR;
	start(&cfg);
}

static uint64_t *stored(void)
{
	uint64_t *fam = alloc_checked(WORDS * 8);

	for (size_t i = 0; i < WORDS; i += 64)
		fam[i] = mix(i, 1);
	return fam;
}

static void open_file(void)
{
	size_t bytes;

	file = soda_alloc_file(file_name, CHUNK, SODA_WRITABLE | SODA_CREATE, &bytes);
	CHECK(file, "%s", soda_last_error());
	*file = 1;
}

/* exit() is not async-signal-safe, and is what handlers of SIGTERM call. */
static void on_term(int sig)
{
	if (file)
		*file = 2;
	exit(3);
}

static void *send_term(void *main_thread)
{
	while (!atomic_load(&calls))
		sleep_ms(1);
	sleep_ms(200); /* it only decides where the signal meets main */
	CHECK_EQ(pthread_kill(*(pthread_t *)main_thread, SIGTERM), 0);
	return NULL;
}

static void expect_term(void)
{
	static pthread_t me, sender;
	sigset_t term, old;

	me = pthread_self();
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	signal(SIGTERM, on_term);
	pthread_sigmask(SIG_BLOCK, &term, &old);
	CHECK_EQ(pthread_create(&sender, NULL, send_term, &me), 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

enum call { SYNC_ALL, SYNC_ONE, ALLOC, FREE, NAME, CALLS };

struct call_case {
	enum call call;
	bool silent;	/* the server does not answer meanwhile */
	bool with_file; /* a WRITABLE file is open */
};

static void do_call(enum call call, uint64_t *fam)
{
	switch (call) {
	case SYNC_ALL:
		soda_sync(NULL, 0);
		break;
	case SYNC_ONE:
		soda_sync(fam, WORDS * 8);
		break;
	case ALLOC:
		soda_free(soda_alloc(WORDS * 8, 0));
		break;
	case FREE:
		soda_free(fam);
		break;
	default:
		soda_set_name(fam, "name");
	}
}

static void child_exits_in_a_call(const void *arg)
{
	const struct call_case *c = arg;
	uint64_t *fam;

	begin();
	fam = stored();
	if (c->with_file)
		open_file();
	expect_term();
	if (c->silent)
		CHECK(process_halt(world.server.pid));
	atomic_store(&calls, true);
	for (;;) {
		do_call(c->call, fam);
		if (c->call == FREE)
			fam = alloc_checked(WORDS * 8);
		for (size_t i = 0; !c->silent && i < WORDS; i += 64)
			fam[i]++;
	}
}

static void run_call(const struct call_case *c, struct outcome *out)
{
	struct trial t = { .child = child_exits_in_a_call, .arg = c, .seconds = 120 };

	trial_run(&t, out);
	kill(world.server.pid, SIGCONT);
	if (out->hung)
		fail_msg("call %d, %s server: exit() in a handler hangs", c->call,
			 c->silent ? "silent" : "busy");
	expect_exit(out, 3);
}

/* May: ends | calls exit() in a handler, within a call of the library | it ends */
static void test_exit_in_a_handler(void **state)
{
	struct outcome out;

	for (int i = 0; i < 2 * CALLS; i++) {
		struct call_case c = { .call = i / 2, .silent = i & 1 };

		run_call(&c, &out);
		assert_string_equal(out.err, "");
	}
}

/* The call to the server that is interrupted cannot be ended, and its connection has no other. */
static void test_file_that_stays_behind(void **state)
{
	struct call_case c = { .call = ALLOC, .silent = true, .with_file = true };
	struct outcome out;

	if (world.agent.pid) {
		puts("SKIP: an agent gives an answer of its own");
		skip();
	}
	file_name = "behind";
	run_call(&c, &out);
	expect_says(&out, "1 WRITABLE files are not written back");
}

static void child_exits_with_a_file(const void *arg)
{
	uint64_t *fam;

	begin();
	fam = stored();
	open_file();
	CHECK_EQ(soda_sync(file, CHUNK), 0);
	expect_term();
	atomic_store(&calls, true);
	for (;;) {
		for (size_t i = 0; i < WORDS; i += 64)
			fam[i]++;
		CHECK_EQ(soda_sync(fam, WORDS * 8), 0);
	}
}

static void test_file_is_written(void **state)
{
	struct trial t = { .child = child_exits_with_a_file, .seconds = 120 };
	struct outcome out;
	uint64_t *content;

	file_name = "kept";
	trial_run(&t, &out);
	expect_exit(&out, 3);
	assert_string_equal(out.err, "");
	content = (void *)world_read_file(&world, "kept", CHUNK);
	assert_int_equal(*content, 2);
	free(content);
}

/* While another thread waits for the server, with all that it has stored. */
struct beside {
	pthread_t thread;
	_Atomic bool begun, ended;
	uint64_t *fam;
	void (*fn)(struct beside *b);
};

static void *run_beside(void *arg)
{
	struct beside *b = arg;

	atomic_store(&b->begun, true);
	b->fn(b);
	atomic_store(&b->ended, true);
	return NULL;
}

static void start_beside(struct beside *b)
{
	CHECK_EQ(pthread_create(&b->thread, NULL, run_beside, b), 0);
	while (!atomic_load(&b->begun))
		sleep_ms(1);
}

static void sync_all(struct beside *b)
{
	CHECK_EQ(soda_sync(NULL, 0), 0);
}

static void free_file(struct beside *b)
{
	CHECK_EQ(soda_try_free(b->fam), 0);
}

/* The thread's first block, and its end. */
static void use_heap(struct beside *b)
{
	char *p = soda_malloc(100);

	CHECK(p, "%s", soda_last_error());
	memset(p, 1, 100);
	soda_free(p);
}

/* Only the thread that ends waits for this. */
static void child_beside(const void *arg)
{
	bool of_file = *(const bool *)arg;
	struct beside waits = { .fn = of_file ? free_file : sync_all }, ends = { .fn = use_heap };
	struct beside frees = { .fn = free_file };

	begin();
	soda_free(soda_malloc(100)); /* the heap has room */
	waits.fam = stored();
	if (of_file) {
		open_file();
		waits.fam = file;
	}
	CHECK(process_halt(world.server.pid));
	start_beside(&waits);
	sleep_ms(200); /* so that it waits already */
	start_beside(&ends);
	for (int i = 0; i < PATIENCE_MS / 4 && !atomic_load(&ends.ended); i++)
		sleep_ms(1);
	CHECK(atomic_load(&ends.ended), "a thread's end waits for another one's write-back");
	CHECK(!atomic_load(&waits.ended), "it did not wait for the server");
	frees.fam = waits.fam;
	if (!of_file) { /* this one has to wait */
		start_beside(&frees);
		sleep_ms(50);
		CHECK(!atomic_load(&frees.ended));
	}
	kill(world.server.pid, SIGCONT);
	pthread_join(waits.thread, NULL);
	pthread_join(ends.thread, NULL);
	if (!of_file)
		pthread_join(frees.thread, NULL);
	CHECK_EQ(soda_try_free(waits.fam), -EINVAL);
}

static void test_beside(void **state)
{
	struct trial t = { .child = child_beside, .seconds = 120 };
	struct outcome out;

	if (world.agent.pid || strncmp(world.address, "tcp", 3) != 0) {
		puts("SKIP: an agent, and one-sided WRITEs, take the data without the server");
		skip();
	}
	for (int i = 0; i < 2; i++) {
		bool of_file = i;

		file_name = "beside";
		t.arg = &of_file;
		trial_run(&t, &out);
		kill(world.server.pid, SIGCONT);
		expect_quiet_success(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exit_in_a_handler),
		cmocka_unit_test(test_file_that_stays_behind),
		cmocka_unit_test(test_file_is_written),
		cmocka_unit_test(test_beside),
	};

	world_has_silent_servers();
	return WORLD_RUN("leave", &world, true, tests);
}
