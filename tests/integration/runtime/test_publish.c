/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Published objects: one program makes them, others read them.  The oracle: every word that a
 * reader sees is the publisher's last one, whatever becomes of the publisher; or the read is an
 * error.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, WORDS = CHUNK / 8, CHUNKS = 160, READERS = 2 };

/* The last chunk is short. */
static const size_t words = (size_t)CHUNKS * WORDS - 700;

static struct world world;
static _Atomic int *step; /* what the programs of a case wait for, one after the other */

static void start_small(const char *address)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = address;
	cfg.buffer = "4M";
	cfg.threads = 4;
	cfg.fault_timeout_ms = 30000;
	start(&cfg);
}

static void await_step(int n)
{
	while (atomic_load(step) < n)
		sleep_ms(1);
}

static void fill(uint64_t *data, uint64_t round)
{
	for (size_t i = 0; i < words; i++)
		data[i] = mix(i, round);
}

static void check_words(const uint64_t *data, size_t from, size_t to, uint64_t round)
{
	for (size_t i = from; i < to; i++)
		CHECK(data[i] == mix(i, round), "word %zu: %llx", i, (unsigned long long)data[i]);
}

static uint64_t *publish_round(const char *name, uint64_t round)
{
	uint64_t *data = alloc_checked(words * 8);

	fill(data, round);
	CHECK(soda_publish(data, name) == 0, "%s", soda_last_error());
	return data;
}

static const uint64_t *open_checked(const char *name)
{
	size_t bytes = 0;
	const uint64_t *data = soda_open_published(name, &bytes);

	CHECK(data, "%s: %s", name, soda_last_error());
	CHECK_EQ(bytes, words * 8);
	return data;
}

static void let_go(const void *data)
{
	soda_free((void *)(uintptr_t)data);
}

static void expect_absent(const char *name)
{
	CHECK(!soda_open_published(name, NULL), "%s is there", name);
	CHECK_EQ(errno, ENOENT);
	CHECK(soda_last_error()[0], "%s", name);
}

/* A program of the case: process and library of its own. */
static pid_t program(void (*run)(int number), int number)
{
	pid_t pid = fork();

	CHECK(pid >= 0, "%s", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	start_small(world.address);
	run(number);
	exit(0);
}

static void expect_end(pid_t pid, int signal)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(signal ? WIFSIGNALED(status) && WTERMSIG(status) == signal : !status, "%x", status);
}

/* Readers come before and after the publisher has freed it, and the name is free after the last. */

static void read_twice(int number)
{
	const uint64_t *data;

	await_step(1);
	data = open_checked("index.1");
	check_words(data, 0, words, 1);
	atomic_fetch_add(step, 1);
	await_step(READERS + 2); /* the publisher has freed it */
	check_words(data, 0, words, 1);
	if (number == 0) {
		const uint64_t *again = open_checked("index.1");

		check_words(again, 0, words, 1);
		let_go(again);
	}
	let_go(data);
}

static void child_readers(const void *arg)
{
	pid_t readers[READERS];
	uint64_t *data;
	const uint64_t *again;

	atomic_store(step, 0);
	for (int i = 0; i < READERS; i++)
		readers[i] = program(read_twice, i);
	start_small(world.address);
	expect_absent("index.1");
	data = publish_round("index.1", 1);
	check_words(data, 0, words, 1);
	CHECK_EQ(touch_signal(&data[9], true), SIGSEGV);
	CHECK_EQ(touch_signal(&data[words - 1], true), SIGSEGV);
	CHECK_EQ(soda_advise(data, words * 8, SODA_DISCARD), -EACCES);
	CHECK_EQ(soda_advise(data, words * 8, SODA_COLD), 0);
	check_words(data, 0, words, 1);
	atomic_store(step, 1);
	await_step(READERS + 1);
	let_go(data);
	atomic_fetch_add(step, 1);
	for (int i = 0; i < READERS; i++)
		expect_end(readers[i], 0);
	/* the servers learn of it a moment later */
	for (int i = 0; i < LOOKS && (again = soda_open_published("index.1", NULL)); i++) {
		let_go(again);
		sleep_ms(10);
	}
	expect_absent("index.1");
	data = publish_round("index.1", 2);
	again = open_checked("index.1");
	check_words(again, 0, words, 2);
	let_go(data);
	check_words(again, 0, words, 2);
}

/* Promise R4. */
static void test_readers(void **state)
{
	expect_passes(child_readers, NULL);
}

/* The publisher is killed while others read. */

static void publish_and_stay(int number)
{
	publish_round("index.2", 5);
	atomic_store(step, 1);
	for (;;)
		pause();
}

static void read_and_go_on(int number)
{
	const uint64_t *data;

	await_step(1);
	data = open_checked("index.2");
	atomic_fetch_add(step, 1);
	do
		check_words(data, 0, words, 5);
	while (atomic_load(step) < READERS + 2);
	check_words(data, 0, words, 5);
}

static void child_publisher_is_killed(const void *arg)
{
	pid_t publisher, readers[READERS];

	atomic_store(step, 0);
	publisher = program(publish_and_stay, 0);
	for (int i = 0; i < READERS; i++)
		readers[i] = program(read_and_go_on, i);
	await_step(READERS + 1);
	kill(publisher, SIGKILL);
	expect_end(publisher, SIGKILL);
	sleep_ms(300);
	atomic_fetch_add(step, 1);
	for (int i = 0; i < READERS; i++)
		expect_end(readers[i], 0);
}

/* Promise R4. */
static void test_the_publisher_is_killed(void **state)
{
	expect_passes(child_publisher_is_killed, NULL);
}

/* Threads store while another one publishes: each ends by SIGSEGV, and no store is lost. */

enum { STORERS = 3 };

static uint64_t *stored_to;
static volatile uint64_t last[STORERS]; /* the last word that each thread has stored */
static _Atomic int storers;

static _Thread_local sigjmp_buf *out;

static void leave(int signal)
{
	if (!out)
		_exit(98);
	siglongjmp(*out, 1);
}

/* The thread's place in each chunk. */
static volatile uint64_t *place(unsigned index, uint64_t n)
{
	return stored_to + n % CHUNKS * WORDS + 8 + index;
}

static void store_until_refused(unsigned index)
{
	sigjmp_buf end;

	out = &end;
	if (sigsetjmp(end, 1))
		return;
	for (uint64_t n = 1;; n++) {
		*place(index, n) = n;
		last[index] = n;
		if (n == 2 * CHUNKS)
			atomic_fetch_add(&storers, 1);
	}
}

static void publish_meanwhile(void)
{
	while (atomic_load(&storers) < STORERS)
		sleep_ms(1);
	CHECK(soda_publish(stored_to, "stores") == 0, "%s", soda_last_error());
}

static void store_or_publish(void *arg, unsigned index)
{
	if (index == STORERS)
		publish_meanwhile();
	else
		store_until_refused(index);
}

/* The last store may have come, though the thread could not note it. */
static void check_stores(const uint64_t *data, const uint64_t *reader)
{
	for (unsigned t = 0; t < STORERS; t++)
		for (uint64_t back = 0; back < CHUNKS - 1; back++) {
			uint64_t n = last[t] - back;
			size_t at = (size_t)(n % CHUNKS) * WORDS + 8 + t;

			CHECK(data[at] == n, "thread %u: %llu, not %llu", t,
			      (unsigned long long)data[at], (unsigned long long)n);
			CHECK_EQ(reader[at], n);
		}
	for (size_t i = 0; i < words; i++)
		CHECK_EQ(data[i], reader[i]);
}

static void child_stores_meanwhile(const void *arg)
{
	struct sigaction on = { .sa_handler = leave };
	const uint64_t *reader;

	start_small(world.address);
	stored_to = alloc_checked(words * 8);
	sigaction(SIGSEGV, &on, NULL);
	run_threads(STORERS + 1, store_or_publish, NULL);
	reader = open_checked("stores");
	check_stores(stored_to, reader);
}

/* Promise R4. */
static void test_stores_meanwhile(void **state)
{
	for (int i = 0; i < 3; i++)
		expect_passes(child_stores_meanwhile, NULL);
}

/* What was discarded here, and may still be on the server, is zeros to all. */
static void child_discarded(const void *arg)
{
	const uint64_t *reader;
	uint64_t *data;

	start_small(world.address);
	data = alloc_checked(words * 8);
	fill(data, 3);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(soda_advise(data, (size_t)40 * CHUNK, SODA_COLD), 0);
	CHECK_EQ(soda_advise(data, (size_t)40 * CHUNK, SODA_DISCARD), 0);
	CHECK_EQ(data[5], 0); /* a load of zeros */
	data[WORDS + 1] = 7;
	CHECK(soda_publish(data, "discarded") == 0, "%s", soda_last_error());
	reader = open_checked("discarded");
	for (size_t i = 0; i < (size_t)40 * WORDS; i++)
		CHECK_EQ(reader[i], i == WORDS + 1 ? 7 : 0);
	check_words(reader, (size_t)40 * WORDS, words, 3);
	for (size_t i = 0; i < words; i++)
		CHECK_EQ(data[i], reader[i]);
}

static void test_discarded(void **state)
{
	expect_passes(child_discarded, NULL);
}

/* An object that nobody has ever touched: zeros, and nothing is lost on the way. */
static void child_untouched(const void *arg)
{
	const uint64_t *reader;
	uint64_t *data;

	start_small(world.address);
	data = alloc_checked(words * 8);
	CHECK_EQ(soda_publish(data, "untouched"), 0);
	reader = open_checked("untouched");
	for (size_t i = 0; i < words; i += 100)
		CHECK(reader[i] == 0 && data[i] == 0, "%zu", i);
	CHECK_EQ(touch_signal(data, true), SIGSEGV);
}

static void test_untouched(void **state)
{
	expect_passes(child_untouched, NULL);
}

static void expect_refusal(int ret, int want, const char *text)
{
	CHECK_EQ(ret, want);
	CHECK(strstr(soda_last_error(), text), "%s", soda_last_error());
}

static void check_file(unsigned flags)
{
	uint64_t *file = soda_alloc_file("file", 0, flags, NULL);

	CHECK(file, "%s", soda_last_error());
	expect_refusal(soda_publish(file, "f"), -EINVAL, "file");
	soda_free(file);
}

static void child_refusals(const void *arg)
{
	uint64_t *data, *second, *block;
	char name[257];

	CHECK_EQ(soda_publish(&name, "early"), -EINVAL);
	start_small(world.address);
	data = publish_round("refusals", 1);
	second = alloc_checked(words * 8);
	fill(second, 2);
	expect_refusal(soda_publish(data, "refusals"), -EALREADY, "refusals");
	expect_refusal(soda_publish(data, "other"), -EALREADY, "refusals");
	expect_refusal(soda_publish((void *)(uintptr_t)open_checked("refusals"), "x"), -EALREADY,
		       "refusals");
	expect_refusal(soda_publish(second, "refusals"), -EEXIST, "refusals");
	second[0]++; /* stores are allowed again */
	second[0]--;
	expect_refusal(soda_publish(&second[WORDS], "part"), -EINVAL, "part of an object");
	expect_refusal(soda_publish(&name, "local"), -EINVAL, "object");
	expect_refusal(soda_publish(second, ""), -EINVAL, "name");
	expect_refusal(soda_publish(second, NULL), -EINVAL, "name");
	expect_refusal(soda_publish(second, "two words"), -EINVAL, "printable");
	memset(name, 'n', 256);
	name[256] = 0;
	expect_refusal(soda_publish(second, name), -EINVAL, "255");
	CHECK(!soda_open_published(name, NULL), "too long");
	CHECK_EQ(errno, EINVAL);
	CHECK(!soda_open_published("two words", NULL), "no such name");
	CHECK_EQ(errno, EINVAL);
	name[255] = 0;
	block = soda_malloc(1 << 20);
	if (block) { /* a library without jemalloc has no heap */
		expect_refusal(soda_publish(block, "block"), -EINVAL, "heap");
		soda_free(block);
	}
	check_file(SODA_READ_ONLY);
	check_file(SODA_PRIVATE);
	check_file(SODA_WRITABLE);
	/* an object's name is no file's, and a file's none of an object's */
	expect_absent("file");
	CHECK(!soda_alloc_file("refusals", 0, SODA_READ_ONLY, NULL), "a file?");
	CHECK_EQ(errno, ENOENT);
	CHECK_EQ(soda_publish(second, name), 0);
	check_words(open_checked(name), 0, words, 2);
	CHECK_EQ(soda_try_free(second), 0);
}

static void test_refusals(void **state)
{
	world_write_file(&world, "file", "some content", 12);
	expect_passes(child_refusals, NULL);
}

/* Another user's program does not find it, and has the name for itself. */
static void publish_as_nobody(int number)
{
	uint64_t *data;

	await_step(1);
	expect_absent("mine");
	data = publish_round("mine", 8);
	check_words(open_checked("mine"), 0, words, 8);
	let_go(data);
}

static void child_users(const void *arg)
{
	const uid_t nobody = 65534;
	pid_t pid;

	atomic_store(step, 0);
	pid = fork();
	if (!pid) {
		CHECK(!setgid(nobody) && !setuid(nobody), "%s", strerror(errno));
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		start_small(world.address);
		publish_as_nobody(0);
		exit(0);
	}
	start_small(world.address);
	publish_round("mine", 7);
	atomic_store(step, 1);
	expect_end(pid, 0);
	check_words(open_checked("mine"), 0, words, 7);
}

static void test_users(void **state)
{
	if (geteuid() || strncmp(world.address, "tcp", 3) != 0) {
		puts("SKIP: only root can become another user, who reaches the server by tcp");
		skip();
	}
	expect_passes(child_users, NULL);
}

/* The server gives no answer to the call, which it has had: nobody knows, until it is asked again.
 */
static void child_no_answer(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *data;

	cfg.server = world.address;
	cfg.threads = 2;
	cfg.fault_timeout_ms = 2000;
	cfg.log_level = SODA_LOG_ERROR;
	start(&cfg);
	data = alloc_checked(words * 8);
	fill(data, 6);
	CHECK_EQ(soda_sync(data, words * 8), 0);
	process_halt(world.server.pid);
	expect_refusal(soda_publish(data, "doubt"), -ETIMEDOUT, "same name");
	CHECK_EQ(touch_signal(data, true), SIGSEGV);
	expect_refusal(soda_publish(data, "other"), -EALREADY, "doubt");
	kill(world.server.pid, SIGCONT);
	for (int i = 0; i < LOOKS && soda_publish(data, "doubt"); i++)
		sleep_ms(20);
	expect_refusal(soda_publish(data, "doubt"), -EALREADY, "published already");
	check_words(open_checked("doubt"), 0, words, 6);
	CHECK_EQ(touch_signal(data, true), SIGSEGV);
}

static void test_no_answer(void **state)
{
	struct trial t = { .child = child_no_answer };
	struct outcome end;

	if (world.agent.pid) {
		puts("SKIP: an agent gives an answer of its own");
		skip();
	}
	trial_run(&t, &end);
	kill(world.server.pid, SIGCONT); /* whatever became of the child */
	expect_exit(&end, 0);
}

/*
 * The agent dies again and again while objects are published, whose content is on the server: each
 * is, at the latest when it is asked for once more.
 */

enum { TRIES = 24, SMALL_WORDS = 9 * WORDS + 5 };

static uint64_t *publish_surely(uint64_t *data, const char *name)
{
	int ret = -1;

	for (int i = 0; i < LOOKS && (ret = soda_publish(data, name)); i++) {
		CHECK(ret == -ETIMEDOUT || ret == -EIO, "%d: %s", ret, soda_last_error());
		sleep_ms(20);
	}
	CHECK_EQ(ret, 0);
	return data;
}

static void child_agent_dies(const void *arg)
{
	uint64_t *data[TRIES];
	char name[32];

	start_small(world.address);
	for (int i = 0; i < TRIES; i++) {
		data[i] = alloc_checked(SMALL_WORDS * 8);
		for (size_t at = 0; at < SMALL_WORDS; at++)
			data[i][at] = mix(at, (uint64_t)i);
	}
	CHECK_EQ(soda_sync(NULL, 0), 0);
	turn_pass();
	for (int i = 0; i < TRIES; i++) {
		snprintf(name, sizeof(name), "try.%d", i);
		publish_surely(data[i], name);
		sleep_ms(20);
	}
	CHECK(turn_await(), "the parent is gone");
	for (int i = 0; i < TRIES; i++) {
		const uint64_t *reader;

		snprintf(name, sizeof(name), "try.%d", i);
		reader = soda_open_published(name, NULL);
		CHECK(reader, "%s", soda_last_error());
		for (size_t at = 0; at < SMALL_WORDS; at++)
			CHECK(reader[at] == mix(at, (uint64_t)i), "%s, word %zu", name, at);
	}
}

static void kill_agents(const void *arg)
{
	if (!turn_await())
		return;
	for (int i = 0; i < 6; i++) {
		sleep_ms(60 + 13 * (unsigned)i);
		world_kill_agent(&world);
		world_restart_agent(&world);
	}
	turn_pass();
}

static void test_the_agent_dies(void **state)
{
	struct trial t = { .child = child_agent_dies, .during = kill_agents };
	struct outcome end;

	if (!world.agent.pid) {
		puts("SKIP: there is no agent");
		skip();
	}
	trial_run(&t, &end);
	expect_exit(&end, 0);
}

/* The server starts anew: what is resident stays, and the rest is an error, also under a new
 * object. */
static void child_server_starts_anew(const void *arg)
{
	const uint64_t *reader;
	uint64_t *data;

	start_small(world.address);
	data = publish_round("anew", 1);
	reader = open_checked("anew");
	CHECK_EQ(soda_advise(data, words * 8, SODA_COLD), 0);
	check_words(reader, 0, WORDS, 1);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	check_words(reader, 0, WORDS, 1); /* resident */
	CHECK_EQ(touch_signal((uint64_t *)(uintptr_t)&reader[100 * WORDS], false), SIGBUS);
	CHECK_EQ(touch_signal(&data[100 * WORDS], false), SIGBUS);
	CHECK_EQ(touch_signal(data, true), SIGSEGV);
	expect_absent("anew");
	publish_round("anew", 2); /* of the same size */
	sleep_ms(300);
	CHECK_EQ(touch_signal((uint64_t *)(uintptr_t)&reader[90 * WORDS], false), SIGBUS);
	check_words(open_checked("anew"), 0, words, 2);
}

static void restart(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&world);
	world_restart(&world);
	sleep_ms(300);
	turn_pass();
}

static void test_server_starts_anew(void **state)
{
	struct trial t = { .child = child_server_starts_anew, .during = restart };
	struct outcome end;

	trial_run(&t, &end);
	expect_exit(&end, 0);
	expect_says(&end, "could not be opened again");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_readers),
		cmocka_unit_test(test_the_publisher_is_killed),
		cmocka_unit_test(test_stores_meanwhile),
		cmocka_unit_test(test_discarded),
		cmocka_unit_test(test_untouched),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_no_answer),
		cmocka_unit_test(test_the_agent_dies),
		cmocka_unit_test(test_server_starts_anew),
	};

	world_has_silent_servers();
	step = shared_memory(sizeof(*step));
	return WORLD_RUN("publish", &world, true, tests);
}
