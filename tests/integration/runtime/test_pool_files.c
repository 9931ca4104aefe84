/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files on a pool of three servers, each with an export directory of its own: WRITABLE and PRIVATE
 * ones lie on the first server of the list that has them; READ_ONLY ones are read from any that has
 * the same content, also when the one that serves them is killed, stands still, or has another
 * content when it has started anew.
 *
 * SODA_TEST_SEEDS: how many seeds, beside the two of every run; SODA_TEST_SEED: only that one.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { SERVERS = 3, PAGE = 4096, BYTES = 24 << 20, PAGES = BYTES / PAGE, SMALL = 64 << 10 };
enum { THREADS = 2, FAULT_MS = 10000, SOON_MS = 700 };

static unsigned slow = 1; /* times are so many times as long: SODA_TEST_PATIENCE */
static struct world worlds[SERVERS];
static struct front front;

static void open_pool(void)
{
	char list[SERVERS * 160] = "";

	for (int i = 0; i < SERVERS; i++) {
		world_open(&worlds[i], i == 1 ? WORLD_SHM : WORLD_DEFAULT, NULL);
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%.128s", i ? "," : "",
			 worlds[i].address);
	}
	front_open(&front, list);
}

/* noisy: a bit for each server that may have warned. */
static void close_pool(unsigned noisy)
{
	front_close(&front);
	for (int i = 0; i < SERVERS; i++)
		if (noisy >> i & 1)
			world_close_noisy(&worlds[i]);
		else
			world_close(&worlds[i]);
}

static void start_here(const char *redundancy, unsigned fault_ms)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	if (redundancy)
		setenv("SODA_REDUNDANCY", redundancy, 1);
	cfg.server = front.address;
	cfg.buffer = "8M";
	cfg.threads = THREADS;
	cfg.fault_timeout_ms = fault_ms * slow;
	start(&cfg);
}

/* The word that each page of content `kind` has at its beginning. */
static uint64_t value_of(size_t page, unsigned kind)
{
	return (page + 1) * 0x9e3779b97f4a7c15u + kind;
}

/* Of `kind`: two kinds are of one size. */
static void export(unsigned server, const char *name, unsigned kind)
{
	static uint64_t data[BYTES / 8];

	for (size_t page = 0; page < PAGES; page++)
		data[page * PAGE / 8] = value_of(page, kind);
	world_write_file(&worlds[server], name, data, sizeof(data));
}

static char *open_data(size_t *bytes_p)
{
	char *p = soda_alloc_file("data", 0, SODA_READ_ONLY, bytes_p);

	CHECK(p != NULL, "%s", soda_last_error());
	return p;
}

static void look(const char *p, size_t page, unsigned kind)
{
	uint64_t got = *(const volatile uint64_t *)(p + page * PAGE);

	CHECK(got == value_of(page, kind), "page %zu: %llx", page, (unsigned long long)got);
}

struct scan {
	const char *p;
	_Atomic bool stop;
	double longest[THREADS];
};

/* Two threads go through the file again and again, until the parent says that it is enough. */
static void scan_pages(void *arg, unsigned me)
{
	struct scan *s = arg;

	if (me == THREADS) {
		turn_pass();
		turn_await();
		atomic_store(&s->stop, true);
		return;
	}
	for (size_t page = me; !atomic_load(&s->stop); page = (page + 17) % PAGES) {
		double from = now_seconds(), took;

		look(s->p, page, 1);
		took = now_seconds() - from;
		if (took > s->longest[me])
			s->longest[me] = took;
		if (page % 16 == 0)
			sleep_ms(2); /* leave processors to other tests */
	}
}

static void scan(const char *p)
{
	struct scan s = { .p = p };

	run_threads(THREADS + 1, scan_pages, &s);
	printf("longest access %.0f ms\n",
	       1e3 * (s.longest[0] > s.longest[1] ? s.longest[0] : s.longest[1]));
	for (size_t page = 0; page < PAGES; page++)
		look(p, page, 1);
}

static void child_scans(const void *arg)
{
	size_t bytes = 0;
	char *p;

	start_here(arg, FAULT_MS);
	p = open_data(&bytes);
	CHECK_EQ(bytes, BYTES);
	scan(p);
	soda_free(p);
	CHECK_EQ(soda_shutdown(), 0);
}

/* arg is not the redundancy. */
static void child_scans_any(const void *arg)
{
	child_scans(NULL);
}

static unsigned long long stat_of(unsigned server, const char *key)
{
	return world_stat(worlds[server].address, key);
}

static bool exports(unsigned server)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/data", worlds[server].export_dir);
	return !access(path, F_OK);
}

/*
 * Until the others have said what they have: they are asked when the program knows what the first
 * one has.
 */
static void let_it_learn(void)
{
	for (unsigned server = 1; server < SERVERS; server++)
		for (int i = 0;
		     exports(server) && i < LOOKS / 10 && !stat_of(server, "files_hashed"); i++)
			sleep_ms(100);
}

static void kill_first(const void *arg)
{
	if (!turn_await())
		return;
	let_it_learn();
	world_kill(&worlds[0]);
	sleep_ms(SOON_MS * slow);
	turn_pass();
}

static void stop_first(const void *arg)
{
	if (!turn_await())
		return;
	let_it_learn();
	process_halt(worlds[0].server.pid);
	sleep_ms(3 * SOON_MS * slow);
	turn_pass();
	sleep_ms(SOON_MS * slow);
	kill(worlds[0].server.pid, SIGCONT);
}

static void run_case(void (*child)(const void *), void (*during)(const void *), const void *arg,
		     struct outcome *out)
{
	const struct trial t = { .child = child, .during = during, .arg = arg };

	trial_run(&t, out);
}

/* The pool's list begins with server 0, so that it serves. */
static void test_killed(void **state)
{
	static const char *const redundancy[] = { NULL, "stripe:2", "mirror:2" };
	struct outcome out;

	for (int i = 0; i < 3; i++) {
		open_pool();
		for (unsigned server = 0; server < SERVERS; server++)
			export(server, "data", 1);
		run_case(child_scans, kill_first, redundancy[i], &out);
		expect_exit(&out, 0);
		if (i < 2) /* it was open on the first alone */
			expect_says(&out, "which has the same content");
		world_restart(&worlds[0]);
		close_pool(7);
	}
}

static void test_stopped(void **state)
{
	struct outcome out;

	open_pool();
	for (unsigned server = 0; server < SERVERS; server++)
		export(server, "data", 1);
	run_case(child_scans, stop_first, NULL, &out);
	expect_exit(&out, 0);
	expect_says(&out, "which has the same content");
	close_pool(7);
}

/* The next server has another file of that name and size, which is not read. */
static void test_other_content(void **state)
{
	struct outcome out;
	char said[256];

	open_pool();
	export(0, "data", 1);
	export(1, "data", 2);
	export(2, "data", 1);
	run_case(child_scans, kill_first, NULL, &out);
	expect_exit(&out, 0);
	snprintf(said, sizeof(said), "data: %s has another content under that name",
		 worlds[1].address);
	expect_says(&out, said);
	snprintf(said, sizeof(said), "it is read from %s from now on", worlds[2].address);
	expect_says(&out, said);
	world_restart(&worlds[0]);
	close_pool(7);
}

/* The server that reads came from is another one, with another content: the next is asked. */
static void restart_changed(const void *arg)
{
	if (!turn_await())
		return;
	let_it_learn();
	export(0, "data", 3); /* what is open stays as it is */
	sleep_ms(100);
	world_kill(&worlds[0]);
	world_restart(&worlds[0]);
	sleep_ms(3 * SOON_MS * slow);
	turn_pass();
}

static void test_changed_there(void **state)
{
	struct outcome out;

	open_pool();
	for (unsigned server = 0; server < SERVERS; server++)
		export(server, "data", 1);
	run_case(child_scans, restart_changed, NULL, &out);
	expect_exit(&out, 0);
	expect_says(&out, "which has the same content");
	close_pool(7);
}

/* The first server is drained: the file goes on elsewhere, and the command finds it empty. */
/* Both servers that are read from start anew, one after the other, and no third one has the file.
 */
static void restart_both(const void *arg)
{
	if (!turn_await())
		return;
	let_it_learn();
	for (int i = 0; i < LOOKS && !stat_of(2, "bytes_read"); i++)
		sleep_ms(10); /* until there are two copies */
	world_kill(&worlds[0]);
	world_kill(&worlds[2]);
	world_restart(&worlds[0]);
	sleep_ms(300);
	world_restart(&worlds[2]);
	sleep_ms(3 * SOON_MS * slow);
	turn_pass();
}

static void test_both_started_anew(void **state)
{
	struct outcome out;

	for (int i = 0; i < SERVERS; i++) { /* whom a program asks first follows from its pid */
		open_pool();
		export(0, "data", 1);
		export(2, "data", 1);
		run_case(child_scans, restart_both, "mirror:2", &out);
		expect_exit(&out, 0);
		close_pool(7);
	}
}

static void drain_first(const void *arg)
{
	const char *const args[] = { "pool", "drain", worlds[0].address, "--patience", "4s", NULL };
	static struct program program;

	if (!turn_await())
		return;
	let_it_learn();
	assert_int_equal(program_run("tools/soda/soda", args, &program), 0);
	if (program.status != (arg ? 1 : 0) || (!strstr(program.out, arg ? arg : "is empty") &&
						!strstr(program.err, arg ? arg : "is empty")))
		fail_msg("%s%s", program.out, program.err);
	turn_pass();
}

static void test_drained(void **state)
{
	static const char held[] = "no other server exports the same content";
	struct outcome out;

	for (int alone = 0; alone < 2; alone++) {
		open_pool();
		export(0, "data", 1);
		if (!alone)
			export(2, "data", 1);
		run_case(child_scans_any, drain_first, alone ? held : NULL, &out);
		expect_exit(&out, 0);
		if (!alone)
			expect_says(&out, "is drained: it is read from");
		close_pool(7);
	}
}

/* Behind an agent: it is killed, and then once more with the server that is read. */
static void kill_agent(const void *arg)
{
	if (!turn_await())
		return;
	let_it_learn();
	for (int round = 0; round < 2; round++) {
		front_kill(&front);
		if (round)
			world_kill(&worlds[0]);
		sleep_ms(100);
		front_restart(&front);
		sleep_ms(SOON_MS * slow);
	}
	turn_pass();
}

static void test_agent_killed(void **state)
{
	static const char *const redundancy[] = { NULL, "mirror:2" };
	struct outcome out;

	front_required();
	for (int i = 0; i < 2; i++) {
		open_pool();
		export(0, "data", 1);
		export(2, "data", 1); /* an agent that was started anew cannot map what is shared */
		run_case(child_scans, kill_agent, redundancy[i], &out);
		expect_exit(&out, 0);
		world_restart(&worlds[0]);
		close_pool(7);
	}
}

/* What there is of the agent's for a file that is kept: its static cache, or the node's store. */
static bool has_store(void)
{
	const char *options = getenv(front_options());

	return options && strstr(options, "--store");
}

/* A file in the agent's static cache is read from there alone. */
static void child_cached(const void *arg)
{
	size_t bytes = 0;
	char *p;

	start_here(NULL, FAULT_MS);
	p = open_data(&bytes);
	CHECK_EQ(soda_advise(p, bytes, SODA_STATIC_CACHE), 0);
	turn_pass();
	CHECK(turn_await());
	for (size_t page = 0; page < PAGES; page++)
		look(p, page, 1);
	turn_pass();
	CHECK(turn_await());
	soda_free(p);
	CHECK_EQ(soda_shutdown(), 0);
}

static void look_at_cache(const void *arg)
{
	unsigned long long read;

	if (!turn_await())
		return;
	assert_true(world_stat(front.address,
			       has_store() ? "store_pinned_bytes" : "static_used_bytes") >= BYTES);
	read = stat_of(0, "bytes_read");
	turn_pass();
	if (!turn_await())
		return;
	assert_int_equal(stat_of(0, "bytes_read"), read);
	turn_pass();
}

static void test_cached(void **state)
{
	struct outcome out;
	char *options;

	front_required();
	options = strdup(getenv(front_options()));
	if (has_store()) /* half of it may be kept */
		setenv(front_options(), "--store 64M", 1);
	open_pool();
	setenv(front_options(), options, 1);
	free(options);
	export(0, "data", 1);
	run_case(child_cached, look_at_cache, NULL, &out);
	expect_exit(&out, 0);
	close_pool(0);
}

/* With redundancy reads are shared by two servers. */

static void read_from_both(const void *arg)
{
	if (!turn_await())
		return;
	for (int i = 0;
	     i < LOOKS && (stat_of(0, "bytes_read") < BYTES || stat_of(2, "bytes_read") < BYTES);
	     i++)
		sleep_ms(10);
	assert_true(stat_of(0, "bytes_read") >= BYTES);
	assert_true(stat_of(2, "bytes_read") >= BYTES);
	turn_pass();
}

static void test_shared(void **state)
{
	struct outcome out;

	open_pool();
	export(0, "data", 1);
	export(2, "data", 1);
	run_case(child_scans, read_from_both, "mirror:2", &out);
	expect_quiet_success(&out);
	close_pool(0);
}

/*
 * In the node's store: two programs, which each read from two servers, and one copy.  On a machine
 * that is too slow READs that are late are asked for at the other server as well, some of which
 * come as data: few (MOST_LATE).
 */

enum { STORE_CHUNK = 64 << 10, QUARTER = PAGES / 4, MOST_LATE = BYTES / 8 };

static char *open_stored(void)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	size_t bytes = 0;
	char *p;

	setenv("SODA_REDUNDANCY", "mirror:2", 1);
	setenv("SODA_CHUNK", "64K", 1);
	cfg.server = front.address;
	cfg.buffer = "8M";
	cfg.threads = THREADS;
	cfg.fault_timeout_ms = FAULT_MS * slow;
	start(&cfg);
	p = open_data(&bytes);
	CHECK_EQ(bytes, BYTES);
	for (size_t page = 0; page < QUARTER; page++)
		look(p, page, 1);
	return p;
}

/* It came by way of the store. */
static void read_stored(const char *p)
{
	struct soda_stats stats;

	for (size_t page = 0; page < PAGES; page++)
		look(p, page, 1);
	stats = stats_now();
	CHECK(stats.store_maps >= (BYTES - MOST_LATE) / STORE_CHUNK, "%llu chunks were mapped",
	      (unsigned long long)stats.store_maps);
	CHECK(stats.bytes_fetched <= MOST_LATE, "%llu bytes came as data",
	      (unsigned long long)stats.bytes_fetched);
	CHECK_EQ(soda_shutdown(), 0);
}

/* The second one of a pair, from the first one's byte on. */
static void run_second(int from)
{
	char byte;
	char *p = open_stored();

	CHECK_EQ(read(from, &byte, 1), 1);
	read_stored(p);
}

static void child_pair(const void *arg)
{
	int pipes[2], status = 0;
	pid_t second;
	char *p;

	CHECK_EQ(pipe(pipes), 0);
	second = fork();
	CHECK(second >= 0, "fork");
	if (!second) {
		run_second(pipes[0]);
		_exit(0);
	}
	p = open_stored();
	turn_pass();
	CHECK(turn_await());
	CHECK_EQ(write(pipes[1], "", 1), 1);
	read_stored(p);
	CHECK_EQ(waitpid(second, &status, 0), second);
	CHECK_EQ(status, 0);
}

static void until_both_are_open_twice(const void *arg)
{
	if (!turn_await())
		return;
	let_it_learn();
	for (int i = 0; i < LOOKS && (stat_of(0, "regions") < 2 || stat_of(2, "regions") < 2); i++)
		sleep_ms(10);
	assert_int_equal(stat_of(2, "regions"), 2);
	sleep_ms(200 * slow); /* and read */
	turn_pass();
}

static void test_one_copy(void **state)
{
	struct outcome out;

	front_required();
	if (!has_store()) {
		puts("SKIP: the agent has no store");
		skip();
	}
	/* nobody reads ahead, which would be read from the servers beside */
	if (getenv("SODA_TEST_POOL_NODE"))
		setenv("SODA_TEST_POOL_AGENT", "--dynamic=no", 1);
	setenv(front_options(), "--store 64M --dynamic=no", 1);
	open_pool();
	export(0, "data", 1);
	export(2, "data", 1);
	run_case(child_pair, until_both_are_open_twice, NULL, &out);
	expect_exit(&out, 0);
	assert_in_range(world_stat(front.address, "store_fills"), (BYTES - MOST_LATE) / STORE_CHUNK,
			BYTES / STORE_CHUNK);
	assert_int_equal(world_stat(front.address, "store_objects"), 1);
	assert_in_range(stat_of(0, "bytes_read") + stat_of(2, "bytes_read"), BYTES,
			BYTES + 2 * MOST_LATE);
	/* how much depends on how fast each of the two answers */
	assert_true(stat_of(2, "bytes_read") > 0);
	close_pool(0);
}

/*
 * By seed: servers are killed, stand still, and get another file, all but one of those that have
 * the right one.
 */
static void hurt(struct dice *dice, unsigned sound)
{
	unsigned server = (sound + 1 + (unsigned)(dice_roll(dice) % (SERVERS - 1))) % SERVERS;
	struct world *w = &worlds[server];
	uint64_t kind = dice_roll(dice) % 4;

	if (kind) {
		world_kill(w);
		sleep_ms((unsigned)(dice_roll(dice) % 1500));
		if (kind == 1)
			export(server, "data", 1 + (unsigned)(dice_roll(dice) % 2));
		world_restart(w);
	} else {
		process_halt(w->server.pid);
		sleep_ms((unsigned)(dice_roll(dice) % 2000));
		kill(w->server.pid, SIGCONT);
	}
	sleep_ms((unsigned)(dice_roll(dice) % 500));
}

static void hurt_by_seed(const void *arg)
{
	struct dice dice = { *(const uint64_t *)arg };
	unsigned sound = (unsigned)(dice_roll(&dice) % SERVERS);

	if (!turn_await())
		return;
	let_it_learn();
	for (int i = 0; i < 6; i++)
		hurt(&dice, sound);
	turn_pass();
}

static void child_by_seed(const void *arg)
{
	child_scans(*(const uint64_t *)arg % 2 ? NULL : "mirror:2");
}

static void test_by_seed(void **state)
{
	const char *more = getenv("SODA_TEST_SEEDS"), *one = getenv("SODA_TEST_SEED");
	uint64_t from = one ? strtoull(one, NULL, 0) : 1;
	uint64_t n = one ? 1 : more ? strtoull(more, NULL, 0) : 2;

	for (uint64_t seed = from; seed < from + n; seed++) {
		struct outcome out;

		printf("seed %llu\n", (unsigned long long)seed);
		open_pool();
		for (unsigned server = 0; server < SERVERS; server++)
			export(server, "data", 1);
		run_case(child_by_seed, hurt_by_seed, &seed, &out);
		expect_exit(&out, 0);
		close_pool(7);
	}
}

/* Sealed files: copies of one ciphertext. */

static char key_path[100];
static bool agent_seals; /* and no program has the key */

static void write_key(void)
{
	snprintf(key_path, sizeof(key_path), "/tmp/soda-pool-files-%d.key", (int)getpid());
	write_seal_key(key_path, 1);
}

static void start_sealed(void)
{
	if (!agent_seals) {
		setenv("SODA_SEAL", "1", 1);
		setenv("SODA_SEAL_KEY_FILE", key_path, 1);
	}
	start_here(NULL, FAULT_MS);
}

/* On the pool, where the first server that exports a directory makes it; then again. */
static void child_seals(const void *arg)
{
	size_t *total_p = (size_t *)(uintptr_t)arg, bytes;
	char *p;

	start_sealed();
	p = soda_alloc_file("data", BYTES, SODA_WRITABLE | SODA_CREATE, NULL);
	CHECK(p != NULL, "%s", soda_last_error());
	for (size_t page = 0; page < PAGES; page++)
		*(uint64_t *)(p + page * PAGE) = value_of(page, 2);
	CHECK_EQ(soda_sync(p, BYTES), 0);
	CHECK_EQ(soda_try_free(p), 0);
	p = soda_alloc_file("data", 0, SODA_WRITABLE, &bytes);
	CHECK(p != NULL, "%s", soda_last_error());
	CHECK_EQ(bytes, BYTES);
	for (size_t page = 0; page < PAGES; page++) {
		look(p, page, 2);
		*(uint64_t *)(p + page * PAGE) = value_of(page, 1);
	}
	CHECK_EQ(soda_try_free(p), 0);
	CHECK_EQ(soda_shutdown(), 0);
	*total_p = 1;
}

static void child_scans_sealed(const void *arg)
{
	size_t bytes = 0;
	char *p;

	start_sealed();
	p = open_data(&bytes);
	CHECK_EQ(bytes, BYTES);
	scan(p);
	soda_free(p);
	CHECK_EQ(soda_shutdown(), 0);
}

/* Which server has made it, and its bytes there. */
static unsigned find_file(const char *name, size_t *bytes_p)
{
	char path[200];
	struct stat st;

	for (unsigned i = 0; i < SERVERS; i++) {
		snprintf(path, sizeof(path), "%s/%s", worlds[i].export_dir, name);
		if (!stat(path, &st)) {
			*bytes_p = (size_t)st.st_size;
			return i;
		}
	}
	fail_msg("no server has %s", name);
	return 0;
}

static void seal_and_kill(void)
{
	size_t *done = shared_memory(sizeof(*done)), bytes = 0;
	struct outcome out;
	unsigned at;
	char *file;

	open_pool();
	expect_passes(child_seals, done);
	assert_int_equal(*done, 1);
	at = find_file("data", &bytes);
	file = world_read_file(&worlds[at], "data", bytes);
	assert_null(memmem(file, bytes, &(uint64_t){ value_of(7, 1) }, 8)); /* not in clear */
	for (unsigned i = 0; i < SERVERS; i++)
		if (i != at)
			world_write_file(&worlds[i], "data", file, bytes);
	free(file);
	run_case(child_scans_sealed, kill_first, NULL, &out);
	expect_exit(&out, 0);
	expect_says(&out, "which has the same content");
	world_restart(&worlds[0]);
	close_pool(7);
}

static void test_sealed(void **state)
{
	write_key();
	seal_and_kill();
	unlink(key_path);
}

static void test_sealed_by_agent(void **state)
{
	char options[200], *before;

	front_required();
	before = strdup(getenv(front_options()));
	write_key();
	agent_seals = true;
	snprintf(options, sizeof(options), "--seal --seal-key-file=%s", key_path);
	setenv(front_options(), options, 1);
	seal_and_kill();
	setenv(front_options(), before, 1);
	free(before);
	agent_seals = false;
	unlink(key_path);
}

/* Nobody else has it: it is waited for, and goes on where it was. */
static void child_alone(const void *arg)
{
	unsigned lost = 0;
	char *p;

	start_here(NULL, FAULT_MS);
	p = open_data(NULL);
	look(p, 0, 1);
	turn_pass();
	CHECK(turn_await());
	look(p, 0, 1); /* resident */
	for (size_t page = 0; page < PAGES; page += 16)
		look(p, page, 1);
	turn_pass();
	CHECK(turn_await());
	/* what has come there meanwhile is nothing that was opened; what is resident stays */
	for (size_t page = 0; page < PAGES; page += 16)
		if (touch_signal((uint64_t *)(p + page * PAGE), false))
			lost++;
		else
			look(p, page, 1);
	CHECK(lost > PAGES / 16 / 2 && lost < PAGES / 16, "%u", lost);
	soda_free(p);
	CHECK_EQ(soda_shutdown(), 0);
}

static void lose_the_only(const void *arg)
{
	if (!turn_await())
		return;
	let_it_learn();
	world_kill(&worlds[0]);
	turn_pass();
	sleep_ms(2 * SOON_MS * slow);
	world_restart(&worlds[0]);
	if (!turn_await())
		return;
	export(0, "data", 3);
	world_kill(&worlds[0]);
	world_restart(&worlds[0]);
	sleep_ms(3 * SOON_MS * slow);
	turn_pass();
}

static void test_nobody_else(void **state)
{
	struct outcome out;

	open_pool();
	export(0, "data", 1);
	export(1, "data", 2);
	run_case(child_alone, lose_the_only, NULL, &out);
	expect_exit(&out, 0);
	expect_says(&out, "no other server is known to have the same content");
	expect_says(&out, "what is not resident of it is an error");
	close_pool(7);
}

/* WRITABLE, CREATE and PRIVATE. */

static void child_writes(const void *arg)
{
	uint64_t *p, *copy;
	size_t bytes;

	start_here("mirror:2", FAULT_MS);
	p = soda_alloc_file("log", SMALL, SODA_WRITABLE, NULL);
	CHECK(p != NULL, "%s", soda_last_error());
	CHECK_EQ(p[0], 2); /* of server 1, the first that has it */
	p[0] = 12;
	p[SMALL / 8 - 1] = 13;
	copy = soda_alloc_file("log", 0, SODA_PRIVATE, &bytes);
	CHECK(!copy && errno == EBUSY, "%s",
	      soda_last_error()); /* and that of server 2 is not it */
	CHECK_EQ(soda_sync(p, SMALL), 0);
	soda_free(p);
	copy = soda_alloc_file("log", 0, SODA_PRIVATE, &bytes);
	CHECK(copy != NULL, "%s", soda_last_error());
	CHECK_EQ(bytes, SMALL);
	CHECK_EQ(copy[0], 12);
	copy[0] = 14;
	soda_free(copy);
	CHECK(!soda_alloc_file("none", 0, SODA_WRITABLE, NULL) && errno == ENOENT, "%s",
	      soda_last_error());
	CHECK(strstr(soda_last_error(), "none of the pool's 3 servers has it") != NULL, "%s",
	      soda_last_error());
	p = soda_alloc_file("new", SMALL, SODA_WRITABLE | SODA_CREATE, NULL);
	CHECK(p != NULL, "%s", soda_last_error());
	p[1] = 15;
	CHECK_EQ(soda_try_free(p), 0);
	p = soda_alloc_file("new", 0, SODA_WRITABLE | SODA_CREATE, &bytes);
	CHECK(p != NULL, "%s", soda_last_error());
	CHECK_EQ(bytes, SMALL);
	CHECK_EQ(p[1], 15);
	soda_free(p);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_writable(void **state)
{
	static uint64_t data[SMALL / 8];
	uint64_t *file;

	open_pool();
	data[0] = 2;
	world_write_file(&worlds[1], "log", data, SMALL);
	data[0] = 3;
	world_write_file(&worlds[2], "log", data, SMALL);
	expect_passes(child_writes, NULL);
	file = (uint64_t *)world_read_file(&worlds[1], "log", SMALL);
	assert_int_equal(file[0], 12);
	assert_int_equal(file[SMALL / 8 - 1], 13);
	free(file);
	file = (uint64_t *)world_read_file(&worlds[2], "log", SMALL);
	assert_int_equal(file[0], 3);
	free(file);
	close_pool(0);
}

/* The first server of the list may have the file, and is away: a later one's is not taken. */
static void child_away(const void *arg)
{
	start_here(NULL, SOON_MS);
	turn_pass();
	CHECK(turn_await());
	CHECK(!soda_alloc_file("log", 0, SODA_WRITABLE, NULL), "the first is away");
	CHECK(!soda_alloc_file("new", SMALL, SODA_WRITABLE | SODA_CREATE, NULL), "likewise");
	CHECK(soda_alloc_file("log", 0, SODA_READ_ONLY, NULL) != NULL, "%s", soda_last_error());
	CHECK_EQ(soda_shutdown(), 0);
}

static void kill_then_go(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&worlds[0]);
	sleep_ms(100);
	turn_pass();
}

static void test_away(void **state)
{
	static uint64_t data[SMALL / 8];
	struct outcome out;

	open_pool();
	world_write_file(&worlds[1], "log", data, SMALL);
	run_case(child_away, kill_then_go, NULL, &out);
	expect_exit(&out, 0);
	world_restart(&worlds[0]);
	close_pool(7);
}

int main(void)
{
	const char *patience = getenv("SODA_TEST_PATIENCE");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),	      cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_agent_killed),  cmocka_unit_test(test_cached),
		cmocka_unit_test(test_other_content), cmocka_unit_test(test_changed_there),
		cmocka_unit_test(test_nobody_else),   cmocka_unit_test(test_writable),
		cmocka_unit_test(test_away),	      cmocka_unit_test(test_drained),
		cmocka_unit_test(test_sealed),	      cmocka_unit_test(test_sealed_by_agent),
		cmocka_unit_test(test_shared),	      cmocka_unit_test(test_both_started_anew),
		cmocka_unit_test(test_by_seed),	      cmocka_unit_test(test_one_copy),
	};

	slow = patience ? (unsigned)atoi(patience) : 1;
	return cmocka_run_group_tests_name("pool_files", tests, NULL, NULL);
}
