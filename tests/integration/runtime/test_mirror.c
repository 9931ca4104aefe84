/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool with redundancy, mirror:2 on three servers or what SODA_TEST_REDUNDANCY says, under load
 * by two threads that verify each word they read: a server that is killed, or stands still, at a
 * time drawn by seed; what it had is rebuilt, on it or on another one, so that the next one may be
 * lost; and the loss of one too many.
 *
 * SODA_TEST_SEEDS: how many seeds of each, beside the few of every run; SODA_TEST_SEED: only that
 * one.  SODA_TEST_ONLY: that test alone; SODA_TEST_LOSSES: so many servers are killed at a time, of
 * those that may be (tests/torture/pool-seeds).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/memory.h"
#include "lib/world.h"

enum { SERVERS_MAX = 7, THREADS = 2, PAGE = 4096, WORDS = PAGE / 8, BYTES = 48 << 20 };
enum { PAGES = BYTES / PAGE, SLOW_MS = 400 };

/* One server more than a slab lies on, and how many of these may be lost; of stripes none. */
static const struct kind {
	const char *name;
	int servers, losses;
} kinds[] = { { "mirror:2", 3, 1 }, { "ec:2+1", 4, 1 }, { "ec:4+2", 7, 2 }, { "stripe:4", 5, 0 } };

static const struct kind *kind = kinds;
static int killed; /* servers at a time */
static struct world worlds[SERVERS_MAX];
static struct front front;

static void choose_kind(void)
{
	const char *name = getenv("SODA_TEST_REDUNDANCY");

	for (size_t i = 0; name && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, name))
			kind = &kinds[i];
	name = getenv("SODA_TEST_LOSSES");
	killed = name && atoi(name) > 0 && atoi(name) < kind->losses ? atoi(name) : kind->losses;
}

/* All servers, of which the program's list has so many. */
static void open_pool_with(int listed, const char *const *args)
{
	char list[SERVERS_MAX * 160] = "";

	for (int i = 0; i < kind->servers; i++) {
		world_open(&worlds[i], getenv("SODA_TEST_VERBS") ? WORLD_VERBS : WORLD_TCP, args);
		if (i < listed)
			snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%.128s",
				 i ? "," : "", worlds[i].address);
	}
	front_open(&front, list);
}

static void open_pool_of(int listed)
{
	open_pool_with(listed, NULL);
}

static void open_pool(void)
{
	open_pool_of(kind->servers);
}

static void close_pool(void)
{
	front_close(&front);
	for (int i = 0; i < kind->servers; i++)
		world_close_noisy(&worlds[i]);
}

/* A child that passes on a pool, of which its list has so many, whatever is done to that. */
static void run_case(void (*child)(const void *arg), void (*during)(const void *arg), int listed,
		     struct outcome *out)
{
	struct trial t = { .child = child, .during = during };

	open_pool_of(listed);
	trial_run(&t, out);
	expect_exit(out, 0);
	close_pool();
}

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* What a run of the load does, and came to. */
struct load {
	uint64_t seed;
	double seconds;
	char *p;
	uint32_t *version; /* of each page, in the process's own memory; a thread's own pages */
	_Atomic bool stop;
	bool reads_only;
	double longest[THREADS];
	uint64_t ops[THREADS], slow[THREADS]; /* slow: over SLOW_MS */
};

/* The word that a page's version has at this place; 0: never stored to. */
static uint64_t value(uint32_t page, uint32_t version)
{
	return version ? (page + 1ull) * 0x9e3779b97f4a7c15u + version * 0xbf58476d1ce4e5b9u : 0;
}

static uint64_t *word_of(const struct load *l, uint32_t page)
{
	return (uint64_t *)(l->p + (uint64_t)page * PAGE) + page % WORDS;
}

static void touch(struct load *l, unsigned me, uint32_t page, bool change)
{
	double from = now_seconds(), took;
	uint64_t *word = word_of(l, page);

	CHECK(*word == value(page, l->version[page]), "page %u, version %u: %llx, seed %llu", page,
	      l->version[page], (unsigned long long)*word, (unsigned long long)l->seed);
	if (change)
		*word = value(page, ++l->version[page]);
	took = now_seconds() - from;
	if (took > l->longest[me])
		l->longest[me] = took;
	l->ops[me]++;
	l->slow[me] += took > SLOW_MS / 1e3;
}

static void work(void *arg, unsigned me)
{
	struct load *l = arg;
	uint64_t state = (l->seed + 1) * 0x9e3779b97f4a7c15u + me;

	while (!atomic_load(&l->stop)) {
		uint64_t r = draw(&state);

		touch(l, me, (uint32_t)(r >> 8) % (PAGES / THREADS) * THREADS + me,
		      r & 1 && !l->reads_only);
	}
}

static struct load load;

static void start_patient_load(uint64_t seed, uint32_t fault_timeout_ms)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	setenv("SODA_REDUNDANCY", kind->name, 1);
	setenv("SODA_SLAB", "4M", 1);
	cfg.server = front.address;
	cfg.buffer = "16M";
	cfg.threads = THREADS;
	cfg.fault_timeout_ms = fault_timeout_ms;
	start(&cfg);
	load = (struct load){ .seed = seed };
	load.version = calloc(PAGES, sizeof(*load.version));
	load.p = alloc_checked(BYTES);
	CHECK_EQ(soda_set_name(load.p, "table"), 0);
	for (uint32_t page = 0; page < PAGES; page++)
		touch(&load, 0, page, true);
}

static void start_load(uint64_t seed)
{
	start_patient_load(seed, 20000);
}

static void stop_when_told(void *arg, unsigned index)
{
	if (index < THREADS) {
		work(arg, index);
		return;
	}
	turn_await();
	atomic_store(&load.stop, true);
}

/* Load until the parent says that it is enough. The longest stall in seconds. */
static double run_load(void)
{
	double longest = 0;

	atomic_store(&load.stop, false);
	memset(load.longest, 0, sizeof(load.longest));
	memset(load.ops, 0, sizeof(load.ops));
	memset(load.slow, 0, sizeof(load.slow));
	turn_pass();
	run_threads(THREADS + 1, stop_when_told, &load);
	for (unsigned i = 0; i < THREADS; i++)
		longest = load.longest[i] > longest ? load.longest[i] : longest;
	return longest;
}

static void verify_all(void)
{
	for (uint32_t page = 0; page < PAGES; page++)
		touch(&load, 0, page, false);
}

static void await_copies(void)
{
	for (int i = 0; stats_now().copies_missing && i < LOOKS; i++)
		sleep_ms(10);
	CHECK_EQ(stats_now().copies_missing, 0);
}

/* As many as may be lost are killed under load, and come back; with their copies, others are. */
static void child_killed(const void *arg)
{
	double longest;

	start_load(*(const uint64_t *)arg);
	longest = run_load();
	printf("seed %llu: longest stall %.0f ms\n", (unsigned long long)load.seed, longest * 1e3);
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	verify_all();
	await_copies();
	CHECK(stats_now().copies_rebuilt > 0, "a server had slabs");
	longest = run_load();
	printf("seed %llu: longest stall %.0f ms\n", (unsigned long long)load.seed, longest * 1e3);
	verify_all();
	await_copies();
	soda_free(load.p);
	CHECK_EQ(soda_shutdown(), 0);
}

static struct world *one_of(unsigned i)
{
	return &worlds[i % (unsigned)kind->servers];
}

static void during_killed(const void *arg)
{
	uint64_t state = (*(const uint64_t *)arg + 1) * 0x94d049bb133111ebu;

	for (int round = 0; round < 2; round++) {
		unsigned first = (unsigned)draw(&state);

		if (!turn_await())
			return;
		for (int i = 0; i < killed; i++) {
			sleep_ms(draw(&state) % 300);
			world_kill(one_of(first + i));
		}
		sleep_ms(draw(&state) % 700);
		for (int i = 0; i < killed; i++)
			world_restart(one_of(first + i));
		sleep_ms(100);
		turn_pass();
	}
}

/* One stands still for 500 ms, which nobody minds, or longer, and then it is given up. */
static void child_stopped(const void *arg)
{
	double longest;

	start_load(*(const uint64_t *)arg);
	run_load();
	CHECK_EQ(stats_now().copies_expelled, 0);
	longest = run_load();
	printf("seed %llu: longest stall %.0f ms\n", (unsigned long long)load.seed, longest * 1e3);
	CHECK(stats_now().copies_expelled > 0, "it was silent for too long");
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	verify_all();
	await_copies();
	verify_all();
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_stopped(const void *arg)
{
	uint64_t state = (*(const uint64_t *)arg + 1) * 0x94d049bb133111ebu;
	static const unsigned still_ms[2] = { 500, 2500 };

	for (int round = 0; round < 2; round++) {
		struct world *w = &worlds[draw(&state) % (unsigned)kind->servers];

		if (!turn_await())
			return;
		sleep_ms(draw(&state) % 200);
		process_halt(w->server.pid);
		sleep_ms(still_ms[round]);
		kill(w->server.pid, SIGCONT);
		sleep_ms(100);
		turn_pass();
	}
}

/* SODA_TEST_PAUSES: how often one stands still; each time any of them. */
static int pauses(void)
{
	const char *many = getenv("SODA_TEST_PAUSES");

	return many ? atoi(many) : 4;
}

/*
 * Reads while one stands still for 500 ms, again and again: they come from the other copy, and
 * nobody is given up.
 */
static void child_late(const void *arg)
{
	uint64_t ops, slow;
	double longest;

	start_load(*(const uint64_t *)arg);
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	load.reads_only = true;
	longest = run_load();
	ops = load.ops[0] + load.ops[1];
	slow = load.slow[0] + load.slow[1];
	printf("seed %llu: longest read %.0f ms, %llu of %llu over %d ms\n",
	       (unsigned long long)load.seed, longest * 1e3, (unsigned long long)slow,
	       (unsigned long long)ops, SLOW_MS);
	/* one that waits for the server does so for most of the pause, and both threads soon do */
	CHECK(slow < (uint64_t)pauses(), "%llu of %llu reads took longer than %d ms",
	      (unsigned long long)slow, (unsigned long long)ops, SLOW_MS);
	CHECK_EQ(stats_now().copies_expelled, 0);
	CHECK_EQ(stats_now().copies_rebuilt, 0);
	verify_all();
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_late(const void *arg)
{
	uint64_t state = (*(const uint64_t *)arg + 1) * 0x94d049bb133111ebu;

	if (!turn_await())
		return;
	for (int n = pauses(); n > 0; n--) {
		struct world *w = &worlds[draw(&state) % (unsigned)kind->servers];

		process_halt(w->server.pid);
		sleep_ms(500);
		kill(w->server.pid, SIGCONT);
		sleep_ms(300);
	}
	turn_pass();
}

static void by_seed(void (*child)(const void *arg), void (*during)(const void *arg), uint64_t few)
{
	const char *more = getenv("SODA_TEST_SEEDS"), *one = getenv("SODA_TEST_SEED");
	uint64_t from = one ? strtoull(one, NULL, 0) : 1;
	uint64_t n = one ? 1 : more ? strtoull(more, NULL, 0) : few;

	for (uint64_t seed = from; seed < from + n; seed++) {
		struct trial t = { .child = child,
				   .arg = &seed,
				   .during = during,
				   .seconds = CASE_SECONDS + 2 * (unsigned)pauses() };
		struct outcome out;

		open_pool();
		trial_run(&t, &out);
		expect_exit(&out, 0);
		close_pool();
	}
}

static void test_killed(void **state)
{
	by_seed(child_killed, during_killed, 2);
}

/*
 * The agent before the pool is killed and started anew under load; then a server and the agent
 * together, so that both come back, in any order.
 */
static void child_agent(const void *arg)
{
	double longest;

	start_load(*(const uint64_t *)arg);
	for (int round = 0; round < 2; round++) {
		longest = run_load();
		printf("seed %llu: longest stall %.0f ms, %llu copies given up\n",
		       (unsigned long long)load.seed, longest * 1e3,
		       (unsigned long long)stats_now().copies_expelled);
		CHECK_EQ(soda_sync(load.p, BYTES), 0);
		verify_all();
		await_copies();
	}
	soda_free(load.p);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_agent(const void *arg)
{
	uint64_t state = (*(const uint64_t *)arg + 1) * 0x94d049bb133111ebu;

	for (int round = 0; round < 2; round++) {
		struct world *w = one_of((unsigned)draw(&state));

		if (!turn_await())
			return;
		sleep_ms(draw(&state) % 300);
		if (round && draw(&state) & 1)
			world_kill(w);
		sleep_ms(draw(&state) % 50);
		front_kill_some(&front, (unsigned)draw(&state));
		sleep_ms(draw(&state) % 50);
		if (round && w->server.pid)
			world_kill(w);
		sleep_ms(draw(&state) % 300);
		front_restart(&front);
		sleep_ms(draw(&state) % 500);
		if (round)
			world_restart(w);
		sleep_ms(300);
		turn_pass();
	}
}

static void test_agent_killed(void **state)
{
	if (getenv("SODA_TEST_POOL_AGENT"))
		by_seed(child_agent, during_agent, 2);
}

/* An object that is asked for while the agent is away: nobody can say that there is no room. */
static void child_alloc_away(const void *arg)
{
	char *p;

	(void)arg;
	start_load(1);
	turn_pass();
	CHECK(turn_await());
	p = soda_alloc(BYTES / 8, 0);
	CHECK(p);
	memset(p, 1, BYTES / 8);
	CHECK_EQ(soda_sync(p, BYTES / 8), 0);
	soda_free(p);
	verify_all();
	turn_pass();
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_alloc_away(const void *arg)
{
	(void)arg;
	if (!turn_await())
		return;
	front_kill_some(&front, 0);
	turn_pass();
	sleep_ms(300);
	front_restart(&front);
	turn_await();
}

static void test_alloc_away(void **state)
{
	struct trial t = { .child = child_alloc_away, .during = during_alloc_away };
	struct outcome out;

	if (!getenv("SODA_TEST_POOL_AGENT")) {
		print_message("SKIP: there is no agent before this pool\n");
		skip();
	}
	open_pool();
	trial_run(&t, &out);
	expect_exit(&out, 0);
	close_pool();
}

/*
 * What the program has sent, once for all copies, and with erasure codes once for parity, too:
 * through an agent, and through two in a row, once from the first to the second.  The last one
 * keeps what it may have to send again, or to compute parity from; on a machine that is too slow to
 * do that soon enough some goes twice.  An emulated one is so slow that a server may be given up,
 * and rebuilt, which is counted with what is stored.
 */
static void child_once(const void *arg)
{
	uint64_t *sent = (uint64_t *)(uintptr_t)arg;

	start_load(1);
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	*sent = stats_now().bytes_written_back;
	verify_all();
	turn_pass();
	CHECK(turn_await());
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_once(const void *arg)
{
	const uint64_t *sent = arg;
	uint64_t had, stored;

	if (!turn_await())
		return;
	had = world_stat(front.agent_address,
			 kind == kinds ? "writes_recalled_bytes" : "writes_encoded_bytes");
	stored = world_stat(front.agent_address, "client_write_bytes");
	printf("%llu bytes sent for %llu stored, %llu from what the agent had\n",
	       (unsigned long long)*sent, (unsigned long long)stored, (unsigned long long)had);
	if (getenv("SODA_TEST_VERBS"))
		assert_true(*sent + had <= stored);
	else
		assert_int_equal(*sent + had, stored);
	assert_true(*sent < BYTES + BYTES / 4);
	assert_true(had > *sent / (kind == kinds ? 2 : 4));
	if (front.node.pid)
		assert_int_equal(world_stat(front.address, "net_writeback_bytes"), *sent);
	turn_pass();
}

static void test_sent_once(void **state)
{
	uint64_t *sent = shared_memory(sizeof(*sent));
	struct trial t = { .child = child_once, .during = during_once, .arg = sent };
	struct outcome out;

	open_pool();
	trial_run(&t, &out);
	expect_exit(&out, 0);
	close_pool();
}

static void test_stopped(void **state)
{
	by_seed(child_stopped, during_stopped, 1);
}

static void test_late(void **state)
{
	by_seed(child_late, during_late, 1);
}

/*
 * All servers are out of reach for a while, as the program's own link is down: no copy is worse
 * than another one, so none is given up.
 */
static void child_cut_off(const void *arg)
{
	start_load(1);
	run_load();
	CHECK_EQ(stats_now().copies_expelled, 0);
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	CHECK_EQ(stats_now().copies_expelled, 0);
	verify_all();
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_cut_off(const void *arg)
{
	if (!turn_await())
		return;
	sleep_ms(100);
	for (int i = 0; i < kind->servers; i++)
		kill(worlds[i].server.pid, SIGSTOP); /* at once: as a link is cut */
	sleep_ms(4000); /* all of them count as silent, and their sessions end */
	for (int i = 0; i < kind->servers; i++)
		kill(worlds[i].server.pid, SIGCONT);
	sleep_ms(500);
	turn_pass();
}

static void test_cut_off(void **state)
{
	struct outcome out;

	run_case(child_cut_off, during_cut_off, kind->servers, &out);
	expect_says(&out, "lost the memory server");
}

/*
 * A file of a server that stands still is written: that call may take as long as a disk, and yet
 * what has a copy elsewhere goes on.
 */

enum { FILE_BYTES = 64 << 10, FILE_PATIENCE_MS = 600000, OPS = 50 };

static char *file;

static void sync_file(struct load *l)
{
	while (!atomic_load(&l->stop)) {
		file[0]++;
		CHECK_EQ(soda_sync(file, FILE_BYTES), 0);
	}
}

static void await_ops(struct load *l)
{
	uint64_t before[THREADS];

	memcpy(before, l->ops, sizeof(before));
	for (unsigned i = 0; i < THREADS; i++)
		while (*(volatile uint64_t *)&l->ops[i] < before[i] + OPS)
			sleep_ms(10);
}

/* Nothing here has a limit but the case: the call itself would have one of ten minutes. */
static void see_it_given_up(struct load *l)
{
	await_ops(l);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* it stands still */
	while (!stats_now().copies_expelled)
		sleep_ms(10);
	await_ops(l);
	turn_pass();
	atomic_store(&l->stop, true);
}

static void work_beside_file(void *arg, unsigned index)
{
	if (index < THREADS)
		work(arg, index);
	else if (index == THREADS)
		sync_file(arg);
	else
		see_it_given_up(arg);
}

static void child_file_call(const void *arg)
{
	size_t bytes;

	start_patient_load(1, FILE_PATIENCE_MS);
	file = soda_alloc_file("log", 0, SODA_WRITABLE, &bytes);
	CHECK(file, "%s", soda_last_error());
	CHECK_EQ(bytes, FILE_BYTES);
	run_threads(THREADS + 2, work_beside_file, &load);
	verify_all();
	await_copies();
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_file_call(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(worlds[0].server.pid);
	turn_pass();
	turn_await();
	kill(worlds[0].server.pid, SIGCONT);
}

static void test_file_call(void **state)
{
	struct trial t = { .child = child_file_call, .during = during_file_call };
	char *content;
	struct outcome out;

	if (front_seals() || getenv("SODA_SEAL")) {
		print_message("SKIP: the file is not sealed, so a program that seals has none\n");
		skip();
	}
	content = calloc(1, FILE_BYTES);
	open_pool();
	world_write_file(&worlds[0], "log", content, FILE_BYTES);
	free(content);
	trial_run(&t, &out);
	expect_exit(&out, 0);
	close_pool();
}

enum { CHUNKS = PAGES / 16 };

/* How many chunks cannot be had; all others are right. */
static unsigned count_lost(void)
{
	unsigned lost = 0;

	for (uint32_t page = 0; page < PAGES; page += 16) {
		if (touch_signal(word_of(&load, page), false))
			lost++;
		else
			touch(&load, 0, page, false);
	}
	return lost;
}

/* One too many: what was only there is lost, and nothing else. */
static void child_both(const void *arg)
{
	unsigned lost;

	start_load(1);
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	CHECK_EQ(soda_advise(load.p, BYTES, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await());
	while (stats_now().reconnects < (unsigned)kind->losses + 1)
		sleep_ms(10);
	lost = count_lost();
	CHECK(lost > 0 && lost < CHUNKS, "%u of %d chunks are lost", lost, CHUNKS);
	CHECK_EQ(soda_sync(load.p, BYTES), -EIO);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_both(const void *arg)
{
	if (!turn_await())
		return;
	for (int i = 0; i <= kind->losses; i++)
		world_kill(&worlds[i]);
	sleep_ms(500);
	for (int i = 0; i <= kind->losses; i++)
		world_restart(&worlds[i]);
	turn_pass();
}

static void test_both_lost(void **state)
{
	struct outcome out;

	run_case(child_both, during_both, kind->servers, &out);
	expect_says(&out, "are lost with tcp://");
	expect_says(&out, "page at offset");
}

/* With no server to spare, one of which has ended: what works, and what is refused. */
static void child_degraded(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char there[64], *p;

	setenv("SODA_REDUNDANCY", kind->name, 1);
	setenv("SODA_STRICT", "on", 1);
	cfg.server = front.address;
	start(&cfg);
	p = alloc_checked(8 << 20);
	memset(p, 7, 8 << 20);
	CHECK_EQ(soda_sync(p, 8 << 20), 0);
	turn_pass();
	CHECK(turn_await());
	for (int i = 0; !stats_now().copies_missing && i < LOOKS; i++)
		sleep_ms(10);
	p[0] = 8;
	CHECK_EQ(soda_sync(p, 8 << 20), -EIO);
	CHECK(strstr(soda_last_error(), "SODA_STRICT"), "%s", soda_last_error());
	CHECK(!soda_alloc(8 << 20, 0));
	snprintf(there, sizeof(there), "%d of the pool's %d servers", kind->servers - 2,
		 kind->servers - 1);
	CHECK(strstr(soda_last_error(), there), "%s", soda_last_error());
	CHECK_EQ(soda_advise(p, 8 << 20, SODA_COLD), 0);
	for (int i = 0; i < 8 << 20; i += 512)
		CHECK(p[i] == (i ? 7 : 8), "byte %d", i);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_degraded(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&worlds[1]);
	turn_pass();
}

static void test_degraded(void **state)
{
	struct outcome out;

	run_case(child_degraded, during_degraded, kind->servers - 1, &out);
	expect_says(&out, "go on without it");
}

/* A server comes back with no room for what it had: that is rebuilt on the third one. */
static void child_shrunk(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t bytes = 32 << 20;
	char *p;

	setenv("SODA_REDUNDANCY", kind->name, 1);
	setenv("SODA_SLAB", "4M", 1);
	cfg.server = front.address;
	cfg.buffer = "16M";
	start(&cfg);
	p = alloc_checked(bytes);
	memset(p, 7, bytes);
	CHECK_EQ(soda_sync(p, bytes), 0);
	turn_pass();
	CHECK(turn_await());
	for (int i = 0; !stats_now().copies_expelled && i < LOOKS; i++)
		sleep_ms(10);
	await_copies();
	for (uint64_t i = 0; i < bytes; i += 512)
		CHECK(p[i] == 7, "byte %llu", (unsigned long long)i);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_shrunk(const void *arg)
{
	static const char *const little[] = { "--quota", "1M", NULL };

	if (!turn_await())
		return;
	world_kill(&worlds[0]);
	sleep_ms(500);
	worlds[0].more = little;
	world_restart(&worlds[0]);
	turn_pass();
}

static void test_shrunk(void **state)
{
	struct outcome out;

	run_case(child_shrunk, during_shrunk, kind->servers, &out);
	expect_says(&out, "cannot be rebuilt on tcp://");
}

static void child_refused(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	setenv("SODA_REDUNDANCY", arg, 1);
	cfg.server = worlds[0].address;
	CHECK(soda_init(&cfg) < 0);
	CHECK(strstr(soda_last_error(), "SODA_REDUNDANCY"), "%s", soda_last_error());
}

static void test_refused(void **state)
{
	open_pool();
	expect_passes(child_refused, "mirror:2");
	expect_passes(child_refused, "ec:4+2");
	expect_passes(child_refused, "ec:4+0");
	expect_passes(child_refused, "ec:3+1");
	expect_passes(child_refused, "mirror:9");
	close_pool();
}

/* By the program, or by the agent. */
static void seal(void)
{
	setenv("SODA_SEAL", front_seals() ? "0" : "1", 1);
}

/* Sealed: what so many servers have as may be lost is changed there, all of it. */
static void child_spoilt(const void *arg)
{
	seal();
	start_load(1);
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	CHECK_EQ(soda_advise(load.p, BYTES, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await());
	verify_all();
	CHECK(stats_now().copies_expelled > 0, "a server had copies of slabs");
	await_copies();
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	verify_all();
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_spoilt(const void *arg)
{
	if (!turn_await())
		return;
	for (int i = 0; i < kind->losses; i++)
		memory_spoil_ciphertext(worlds[i].server.pid);
	turn_pass();
}

/* It is found, and the other copy, or other pieces, are read and copied: nothing is lost. */
static void test_spoilt(void **state)
{
	struct outcome out;

	memory_skip_with_sanitizers();
	run_case(child_spoilt, during_spoilt, kind->servers, &out);
	expect_says(&out,
		    kind == kinds ? "the copy there is given up" : "the piece there is given up");
}

/* One more than that: what is read is right, or an error, and sync says so. */
static void child_spoilt_beyond(const void *arg)
{
	seal();
	start_load(1);
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	CHECK_EQ(soda_advise(load.p, BYTES, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await());
	CHECK(count_lost() > 0, "nothing is lost");
	CHECK_EQ(soda_sync(load.p, BYTES), -EIO);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_spoilt_beyond(const void *arg)
{
	if (!turn_await())
		return;
	for (int i = 0; i <= kind->losses; i++)
		memory_spoil_ciphertext(worlds[i].server.pid);
	turn_pass();
}

static void test_spoilt_beyond(void **state)
{
	struct outcome out;

	memory_skip_with_sanitizers();
	run_case(child_spoilt_beyond, during_spoilt_beyond, kind->servers, &out);
	expect_says(&out, "every touch of them is an error");
}

/* A server stands still and goes on: what asks it waits, and nothing is given up or lost. */
static void child_waits(const void *arg)
{
	start_load(3);
	run_load();
	CHECK_EQ(soda_sync(load.p, BYTES), 0);
	CHECK_EQ(soda_advise(load.p, BYTES, SODA_COLD), 0);
	verify_all();
	CHECK_EQ(stats_now().copies_expelled, 0);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_waits(const void *arg)
{
	if (!turn_await())
		return;
	for (int i = 0; i < 2; i++) {
		sleep_ms(200);
		process_halt(worlds[2 * i].server.pid);
		sleep_ms(i ? 2500 : 700);
		kill(worlds[2 * i].server.pid, SIGCONT);
	}
	turn_pass();
}

static void test_waited_for(void **state)
{
	struct outcome out;

	run_case(child_waits, during_waits, kind->servers, &out);
}

/*
 * Chunks are written for the first time, and one server has its pieces while another stands still:
 * the first one loses its memory then.  It gets them again.
 */
enum { FIRST_PAGES = 12 * 256 };

static void sync_meanwhile(void *arg, unsigned index)
{
	if (index == 0) {
		CHECK_EQ(soda_sync(load.p, FIRST_PAGES * PAGE), 0);
		return;
	}
	sleep_ms(200);
	turn_pass();
	turn_await(); /* one has lost its memory, and the other goes on */
}

static void child_first(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	setenv("SODA_REDUNDANCY", kind->name, 1);
	setenv("SODA_SLAB", "2M", 1); /* each with another order of its pieces */
	cfg.server = front.address;
	cfg.buffer = "32M";
	cfg.fault_timeout_ms = 20000;
	start(&cfg);
	load.version = calloc(PAGES, sizeof(*load.version));
	load.p = alloc_checked(FIRST_PAGES * PAGE);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* one stands still */
	for (uint32_t page = 0; page < FIRST_PAGES; page++)
		touch(&load, 0, page, true);
	run_threads(2, sync_meanwhile, NULL);
	CHECK_EQ(soda_sync(load.p, FIRST_PAGES * PAGE), 0);
	CHECK_EQ(soda_advise(load.p, FIRST_PAGES * PAGE, SODA_COLD), 0);
	for (uint32_t page = 0; page < FIRST_PAGES; page++)
		touch(&load, 0, page, false);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_first(const void *arg)
{
	if (!turn_await())
		return;
	process_halt(worlds[3].server.pid);
	turn_pass();
	if (turn_await()) {
		world_kill(&worlds[0]);
		world_restart(&worlds[0]);
		sleep_ms(300);
	}
	kill(worlds[3].server.pid, SIGCONT);
	turn_pass();
}

static void test_first_sent(void **state)
{
	struct outcome out;

	/* by chance some slab has its pieces in an order in which the first one gets its own */
	for (int round = 0; round < 3; round++)
		run_case(child_first, during_first, 4, &out);
}

/* Fewer servers than a chunk has pieces: refused, with the numbers. */
static void child_few(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	setenv("SODA_REDUNDANCY", kind->name, 1);
	cfg.server = front.address;
	CHECK(soda_init(&cfg) < 0);
	CHECK(strstr(soda_last_error(), "stripe:4 needs 4 servers or more"), "%s",
	      soda_last_error());
	setenv("SODA_REDUNDANCY", "none", 1);
	CHECK_EQ(soda_init(&cfg), 0);
	CHECK(!soda_alloc(BYTES, SODA_STRIPE(4)));
	CHECK_EQ(errno, ENOTSUP);
	CHECK(!soda_alloc(BYTES, SODA_STRIPE(3)));
	CHECK_EQ(errno, EINVAL);
	CHECK(soda_alloc(BYTES, SODA_STRIPE(2)), "%s", soda_last_error());
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_few_servers(void **state)
{
	open_pool_of(3);
	expect_passes(child_few, NULL);
	close_pool();
}

/* An object whose last chunk is one page: of pieces of it that lie behind that there is nothing. */
static void child_part(const void *arg)
{
	const size_t pages = 3 * (65536 / PAGE) + 1;
	uint64_t *p;

	start_load(1);
	p = alloc_checked(pages * PAGE);
	for (uint64_t round = 1; round <= 3; round++) {
		for (size_t i = 0; i < pages; i++)
			p[i * WORDS + i % WORDS] = mix(i, round);
		CHECK_EQ(soda_sync(p, pages * PAGE), 0);
		CHECK_EQ(soda_advise(p, pages * PAGE, SODA_COLD), 0);
		for (size_t i = 0; i < pages; i++)
			CHECK_EQ(p[i * WORDS + i % WORDS], mix(i, round));
	}
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_part(void **state)
{
	open_pool();
	expect_passes(child_part, NULL);
	close_pool();
}

/*
 * An object is freed of which a chunk is on its way to a server that is away, and comes back: its
 * recovery must not wait for chunks that are gone already.
 */
static void child_freed(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	uint64_t *p;

	setenv("SODA_REDUNDANCY", kind->name, 1);
	cfg.server = front.address;
	cfg.fault_timeout_ms = 2000;
	start(&cfg);
	p = alloc_checked(FIRST_PAGES * PAGE);
	for (size_t i = 0; i < FIRST_PAGES; i++)
		p[i * WORDS] = i + 1;
	CHECK_EQ(soda_sync(p, FIRST_PAGES * PAGE), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone"); /* one is killed */
	for (size_t i = FIRST_PAGES / 2; i < FIRST_PAGES; i++)
		p[i * WORDS] = i + 2;
	CHECK(soda_sync(p, FIRST_PAGES * PAGE) != 0);
	turn_pass();
	soda_free(p);
	CHECK_EQ(stats_now().fam_bytes, 0);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_freed(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&worlds[1]);
	turn_pass();
	if (!turn_await())
		return;
	sleep_ms(200);
	world_restart(&worlds[1]);
}

static void test_freed_while_away(void **state)
{
	static const char *const impatient[] = { "--grace", "100ms", NULL };
	struct trial t = { .child = child_freed, .during = during_freed };
	struct outcome out;

	open_pool_with(4, impatient); /* each has a piece */
	trial_run(&t, &out);
	expect_exit(&out, 0);
	close_pool();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),	      cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_late),	      cmocka_unit_test(test_both_lost),
		cmocka_unit_test(test_degraded),      cmocka_unit_test(test_shrunk),
		cmocka_unit_test(test_refused),	      cmocka_unit_test(test_spoilt),
		cmocka_unit_test(test_spoilt_beyond), cmocka_unit_test(test_agent_killed),
		cmocka_unit_test(test_alloc_away),    cmocka_unit_test(test_part),
		cmocka_unit_test(test_file_call),     cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_sent_once),
	};
	bool agent = getenv("SODA_TEST_POOL_AGENT"); /* test_sent_once is about what that keeps */

	/* nobody has another copy: what a server has is waited for, and lost with it */
	const struct CMUnitTest of_stripes[] = {
		cmocka_unit_test(test_waited_for),
		cmocka_unit_test(test_both_lost),
		cmocka_unit_test(test_part),
		cmocka_unit_test(test_spoilt_beyond),
		cmocka_unit_test(test_first_sent),
		cmocka_unit_test(test_few_servers),
		cmocka_unit_test(test_freed_while_away),
	};

	choose_kind();
	if (!kind->losses)
		return cmocka_run_group_tests_name("stripes", of_stripes, NULL, NULL);
	return run_cases("mirror", tests, sizeof(tests) / sizeof(tests[0]) - !agent, NULL, NULL);
}
