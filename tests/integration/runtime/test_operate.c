/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool of servers as its operator sees it: failure domains, in which no slab has two copies, not
 * after a rebuild either; redundancy object by object; servers that are drained under load; and
 * what `soda pool` says of all that.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { SERVERS = 4, MIB = 1 << 20, BYTES = 24 * MIB };
/* CODES: whether this build has erasure codes. */

static struct world worlds[SERVERS];
static char list[SERVERS * 160];
static struct front front;

/* NULL: without a domain. */
static void open_pool(const char *const domains[SERVERS])
{
	list[0] = '\0';
	for (int i = 0; i < SERVERS; i++) {
		const char *more[] = { "--domain", domains[i], NULL };

		world_open(&worlds[i], WORLD_TCP, domains[i] ? more : NULL);
		worlds[i].more = NULL; /* `more` goes */
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%.128s", i ? "," : "",
			 worlds[i].address);
	}
	front_open(&front, list);
}

static void close_pool(void)
{
	front_close(&front);
	for (int i = 0; i < SERVERS; i++)
		world_close_noisy(&worlds[i]);
}

static unsigned long long stat_of(unsigned server, const char *key)
{
	return world_stat(worlds[server].address, key);
}

static const char *first_missing(const char *const *words, const char *text)
{
	while (*words && strstr(text, *words))
		words++;
	return *words;
}

/*
 * `soda pool status` ends with that code, and says the words (NULL ends them), in JSON or not: once
 * the programs have told the servers, which they do once a second.
 */
static void expect_status(int status, const char *const *words, bool json)
{
	const char *const args[] = { "pool", "status", list, json ? "--json" : NULL, NULL };
	static struct program program;
	const char *missing = "";

	for (int i = 0; (missing || program.status != status) && i < LOOKS / 10; i++) {
		if (i)
			sleep_ms(100);
		assert_int_equal(program_run("tools/soda/soda", args, &program), 0);
		missing = first_missing(words, program.out);
	}
	if (missing || program.status != status)
		fail_msg("status %d, no %s in %s%s", program.status,
			 missing ? missing : "word more", program.out, program.err);
}
#define EXPECT_STATUS(status, json, ...)                                                           \
	expect_status(status, (const char *const[]){ __VA_ARGS__, NULL }, json)

/* `soda pool events` of the pool, beside the test. */
static struct {
	pid_t pid;
	FILE *lines;
} watcher;

static void start_watching(void)
{
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	watcher.pid = fork();
	assert_true(watcher.pid >= 0);
	if (!watcher.pid) {
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execl(build_path("tools/soda/soda"), "soda", "pool", "events", list, "-i", "100ms",
		      "-t", "120s", (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	watcher.lines = fdopen(fds[0], "r");
	assert_non_null(watcher.lines);
}

/* Read on until a line has both. The limit of the whole test bounds the wait. */
static void expect_event(const char *event, const char *with)
{
	char line[1024];

	do {
		if (!fgets(line, sizeof(line), watcher.lines))
			fail_msg("the events end without %s %s", event, with);
	} while (!strstr(line, event) || !strstr(line, with));
}

static void stop_watching(void)
{
	kill(watcher.pid, SIGTERM);
	waitpid(watcher.pid, NULL, 0);
	fclose(watcher.lines);
}

/* The program tells of its slabs once a second. */
static unsigned long long slabs_here(int from, int to)
{
	unsigned long long n = 0;

	for (int i = from; i <= to; i++)
		n += stat_of(i, "pool_slabs_here");
	return n;
}

static void start_program(const char *redundancy)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	setenv("SODA_REDUNDANCY", redundancy, 1);
	setenv("SODA_SLAB", "2M", 1);
	cfg.server = front.address;
	cfg.buffer = "8M";
	cfg.threads = 2;
	start(&cfg);
}

/* Each page has a word that says which page and round it is of. */
static uint64_t *word_of(char *p, size_t page)
{
	return (uint64_t *)(p + page * 4096 + page % 512 * 8);
}

static void store(char *p, size_t bytes, uint64_t round)
{
	for (size_t i = 0; i < bytes / 4096; i++)
		*word_of(p, i) = mix(i, round);
}

static void verify(char *p, size_t bytes, uint64_t round)
{
	for (size_t i = 0; i < bytes / 4096; i++)
		CHECK(*word_of(p, i) == mix(i, round), "page %zu of round %llu", i,
		      (unsigned long long)round);
}

static void await_missing(bool some)
{
	for (int i = 0; !stats_now().copies_missing == some && i < LOOKS; i++)
		sleep_ms(10);
	CHECK(!!stats_now().copies_missing == some);
}

/* What `soda top` shows of this program has a row with these words, in this order. */
static void check_top(const char *address, const char *domain, const char *state)
{
	char line[1024], command[640];
	bool found = false;
	FILE *top;

	snprintf(command, sizeof(command), "COLUMNS=100 %s top --once --interval 100ms %d",
		 build_path("tools/soda/soda"), (int)getpid());
	top = popen(command, "r");
	CHECK(top, "popen");
	while (fgets(line, sizeof(line), top)) {
		const char *at = strstr(line, address);

		at = at ? strstr(at, domain) : NULL;
		found |= at && strstr(at, state);
	}
	CHECK_EQ(pclose(top), 0);
	CHECK(found, "no row of %s, %s, %s", address, domain, state);
}

/* One copy of everything is on the server that has a domain of its own, as the others share one. */
static void child_domains(const void *arg)
{
	char *p;

	start_program("mirror:2");
	p = alloc_checked(BYTES);
	store(p, BYTES, 1);
	CHECK_EQ(soda_sync(p, BYTES), 0);
	turn_pass();
	CHECK(turn_await()); /* the first server has been killed: rebuilt in its domain */
	await_missing(true);
	await_missing(false);
	verify(p, BYTES, 1);
	check_top(worlds[0].address, "rack1", "away");
	check_top(worlds[3].address, "rack2", "up");
	turn_pass();
	CHECK(turn_await()); /* the fourth was killed: nobody else can have what it had */
	await_missing(true);
	store(p, BYTES, 2);
	sleep_ms(4500); /* longer than it takes until others are asked */
	CHECK_EQ(stats_now().copies_missing, BYTES / (2 * MIB));
	verify(p, BYTES, 2);
	CHECK(!soda_alloc(BYTES, 0));
	CHECK(strstr(soda_last_error(), "2 failure domains (--domain), and those lie in 1"), "%s",
	      soda_last_error());
	turn_pass();
	CHECK(turn_await()); /* it is there again */
	await_missing(false);
	verify(p, BYTES, 2);
	turn_pass();
	CHECK(turn_await());
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_domains(const void *arg)
{
	static const char *const fourth[] = { "--domain", "rack2", NULL };

	if (!turn_await())
		return;
	assert_int_equal(stat_of(3, "used_bytes"), BYTES);
	assert_int_equal(stat_of(0, "used_bytes") + stat_of(1, "used_bytes") +
				 stat_of(2, "used_bytes"),
			 BYTES);
	EXPECT_STATUS(0, true, "\"copies_missing\":0}", "\"domain\":\"rack1\"", "\"domains\":2",
		      "\"slabs\":12,", "\"used_bytes\":50331648");
	EXPECT_STATUS(0, false, "4 of 4 servers, 2 failure domains", "no copy is missing");
	start_watching();
	expect_event("\"came\"", "\"pid\":");
	world_kill(&worlds[0]);
	turn_pass();
	if (!turn_await())
		return;
	expect_event("\"state\"", "\"to\":\"unreachable\"");
	expect_event("\"rebuilt\"", "\"copies\":");
	assert_int_equal(stat_of(3, "used_bytes"), BYTES);
	assert_int_equal(stat_of(1, "used_bytes") + stat_of(2, "used_bytes"), BYTES);
	for (int i = 0; slabs_here(1, 2) != BYTES / (2 * MIB) && i < LOOKS / 10; i++)
		sleep_ms(100);
	assert_int_equal(slabs_here(1, 2), BYTES / (2 * MIB));
	world_kill(&worlds[3]);
	turn_pass();
	if (!turn_await())
		return;
	expect_event("\"missing\"", "\"to\":12");
	EXPECT_STATUS(1, true, "\"copies_missing\":12}", "\"state\":\"unreachable\"",
		      "\"free_bytes\":null");
	EXPECT_STATUS(1, false, "2 of 4 servers, 1 failure domain,", "12 slabs miss a copy");
	assert_int_equal(stat_of(1, "used_bytes") + stat_of(2, "used_bytes"), BYTES);
	worlds[3].more = fourth;
	world_restart(&worlds[3]);
	turn_pass();
	if (!turn_await())
		return;
	assert_int_equal(stat_of(3, "used_bytes"), BYTES);
	expect_event("\"restarted\"", worlds[3].address);
	expect_event("\"missing\"", "\"to\":0");
	stop_watching();
	turn_pass();
}

static void test_domains(void **state)
{
	static const char *const domains[SERVERS] = { "rack1", "rack1", "rack1", "rack2" };
	struct trial t = { .child = child_domains, .during = during_domains };
	struct outcome out;

	open_pool(domains);
	trial_run(&t, &out);
	expect_exit(&out, 0);
	close_pool();
}

/* All in one domain: refused with the numbers; without redundancy, and of stripes, all is well. */
static void child_one_domain(const void *arg)
{
	start_program(arg);
	if (strcmp(arg, "mirror:2")) {
		soda_free(alloc_checked(BYTES));
	} else {
		CHECK(!soda_alloc(BYTES, 0));
		CHECK_EQ(errno, ENOSPC);
		CHECK(strstr(soda_last_error(), "4 of the pool's 4 servers"), "%s",
		      soda_last_error());
		CHECK(strstr(soda_last_error(), "mirror:2 needs servers in 2 failure domains"),
		      "%s", soda_last_error());
	}
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_one_domain(void **state)
{
	static const char *const domains[SERVERS] = { "r", "r", "r", "r" };

	open_pool(domains);
	expect_passes(child_one_domain, "mirror:2");
	expect_passes(child_one_domain, "none");
	expect_passes(child_one_domain, "stripe:4");
	close_pool();
}

/*
 * One object on two servers and one on one, in one process; the flag counts, not SODA_REDUNDANCY.
 * When a server has been killed, and lost its memory, only the other one has lost chunks.
 */
static void child_objects(const void *arg)
{
	unsigned lost = 0;
	char *twice, *once;

	start_program(arg);
	once = alloc_checked(1);
	soda_free(once); /* with the process's own redundancy */
	twice = soda_alloc(BYTES, SODA_MIRROR(2));
	once = soda_alloc(BYTES, SODA_NO_REDUNDANCY);
	CHECK(twice && once, "%s", soda_last_error());
	store(twice, BYTES, 1);
	store(once, BYTES, 2);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(soda_advise(once, BYTES, SODA_COLD), 0);
	CHECK_EQ(soda_advise(twice, BYTES, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await());
	for (int i = 0; !stats_now().copies_rebuilt && i < LOOKS; i++)
		sleep_ms(10);
	verify(twice, BYTES, 1);
	for (size_t i = 0; i < BYTES / 4096; i += 512)
		if (touch_signal(word_of(once, i), false))
			lost++;
		else
			CHECK_EQ(*word_of(once, i), mix(i, 2));
	CHECK(lost > 0 && lost < BYTES / (2 * MIB), "%u slabs are lost", lost);
	CHECK(!soda_alloc(BYTES, SODA_MIRROR(2) | SODA_NO_REDUNDANCY));
	CHECK_EQ(errno, EINVAL);
	CHECK(!soda_alloc(BYTES, SODA_MIRROR(3)));
	CHECK_EQ(errno, EINVAL);
	CHECK(!soda_alloc(BYTES, SODA_EC(3, 1)));
	CHECK_EQ(errno, EINVAL);
	CHECK(strstr(soda_last_error(), "SODA_EC(k, m)"), "%s", soda_last_error());
	CHECK(!soda_alloc(BYTES, SODA_EC(4, 1)));
	CHECK_EQ(errno, ENOTSUP);
	CHECK(strstr(soda_last_error(), "ec:4+1 needs 5 servers"), "%s", soda_last_error());
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_objects(const void *arg)
{
	unsigned long long used = 0;

	if (!turn_await())
		return;
	for (int i = 0; i < SERVERS; i++)
		used += stat_of(i, "used_bytes");
	assert_int_equal(used, 3ull * BYTES);
	world_kill(&worlds[1]);
	world_restart(&worlds[1]);
	turn_pass();
}

static void test_objects(void **state)
{
	static const char *const domains[SERVERS];
	static const char *const processes[] = { "none", "mirror:2" };

	for (int i = 0; i < 2; i++) {
		struct trial t = { .child = child_objects,
				   .during = during_objects,
				   .arg = processes[i] };
		struct outcome out;

		open_pool(domains);
		trial_run(&t, &out);
		expect_exit(&out, 0);
		close_pool();
	}
}

/* With a single server there is no redundancy to be had, and none is not refused. */
static void child_single(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char *p;

	cfg.server = arg;
	start(&cfg);
	CHECK(!soda_alloc(BYTES, SODA_MIRROR(2)));
	CHECK_EQ(errno, ENOTSUP);
	CHECK(strstr(soda_last_error(), "SODA_SERVER"), "%s", soda_last_error());
	p = soda_alloc(BYTES, SODA_NO_REDUNDANCY);
	CHECK(p, "%s", soda_last_error());
	store(p, BYTES, 1);
	verify(p, BYTES, 1);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_single(void **state)
{
	world_open(&worlds[0], WORLD_TCP, NULL);
	expect_passes(child_single, worlds[0].address);
	world_close(&worlds[0]);
}

/* Two threads that store to and verify objects of both kinds until they are told to stop. */
struct load {
	char *objects[2];
	uint64_t *versions[2]; /* of each page */
	_Atomic bool stop;
};

static struct load load;

static void touch(unsigned object, size_t page, bool change)
{
	uint64_t *word = word_of(load.objects[object], page);
	uint64_t version = load.versions[object][page];

	CHECK(*word == (version ? mix(page, version) : 0), "object %u, page %zu, version %llu",
	      object, page, (unsigned long long)version);
	if (change)
		*word = mix(page, ++load.versions[object][page]);
}

static void work(void *arg, unsigned index)
{
	struct dice dice = { .state = index + 1 };

	if (index == 2) {
		turn_await();
		atomic_store(&load.stop, true);
	}
	while (!atomic_load(&load.stop)) {
		uint64_t r = dice_roll(&dice);

		touch(r >> 60 & 1, (r >> 8) % (BYTES / 4096 / 2) * 2 + index, r & 1);
		if (!(r >> 4 & 15))
			sleep_ms(2); /* leave processors to other tests */
	}
}

static void run_load(void)
{
	atomic_store(&load.stop, false);
	turn_pass();
	run_threads(3, work, NULL);
}

static void touch_all(bool change)
{
	for (unsigned object = 0; object < 2; object++)
		for (size_t page = 0; page < BYTES / 4096; page++)
			touch(object, page, change);
}

/*
 * Three servers are drained under load one after the other, and killed, the second before it is
 * used as before again; nothing is lost, of the object without redundancy neither.  Pieces of
 * erasure codes have one server to go to, so that the first one comes back before the second goes.
 */
struct kind {
	unsigned flags;
	bool sealed;
};

static bool is_coded(const struct kind *kind)
{
	return kind->flags == SODA_EC(2, 1);
}

static void child_drained(const void *arg)
{
	const struct kind *kind = arg;
	char *more;

	setenv("SODA_REBUILD_RATE", "1G", 1);
	if (kind->sealed)
		setenv("SODA_SEAL", "1", 1);
	start_program("none");
	load.objects[0] = alloc_checked(BYTES);
	load.objects[1] = soda_alloc(BYTES, kind->flags);
	CHECK(load.objects[1], "%s", soda_last_error());
	for (int i = 0; i < 2; i++)
		load.versions[i] = calloc(BYTES / 4096, sizeof(uint64_t));
	touch_all(true);
	run_load(); /* one is drained */
	CHECK(stats_now().copies_moved > 0);
	CHECK_EQ(stats_now().copies_expelled, 0);
	touch_all(false);
	turn_pass();
	CHECK(turn_await()); /* and has been killed */
	touch_all(true);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	touch_all(false);
	more = soda_alloc(BYTES, SODA_MIRROR(2));
	CHECK(more, "%s", soda_last_error());
	soda_free(more);
	run_load(); /* another one */
	touch_all(false);
	turn_pass();
	CHECK(turn_await()); /* is killed */
	touch_all(true);
	CHECK_EQ(stats_now().copies_missing, 0);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	touch_all(false);
	soda_free(load.objects[0]);
	touch(1, 7, true);
	CHECK_EQ(soda_shutdown(), 0);
}

/* `soda pool drain` ends with that code, and says the words. */
static void drain(int server, int status, const char *option, const char *words)
{
	const char *const args[] = { "pool", "drain", worlds[server].address, "--patience", "3s",
				     option, NULL };
	static struct program program;

	assert_int_equal(program_run("tools/soda/soda", args, &program), 0);
	if (program.status != status ||
	    (!strstr(program.out, words) && !strstr(program.err, words)))
		fail_msg("%d, and not %d and '%s': %s%s", program.status, status, words,
			 program.out, program.err);
}

static void during_drained(const void *arg)
{
	static const int order[2] = { 1, 3 };
	const struct kind *kind = arg;

	for (int i = 0; i < 2; i++) {
		if (!turn_await())
			return;
		drain(order[i], 0, NULL, "is empty");
		assert_int_equal(stat_of(order[i], "used_bytes"), 0);
		if (i == 0)
			EXPECT_STATUS(0, true, "\"state\":\"draining\"");
		turn_pass();
		if (!turn_await())
			return;
		world_kill(&worlds[order[i]]);
		if (is_coded(kind) && i == 0)
			world_restart(&worlds[order[i]]);
		turn_pass();
	}
}

static void test_drained(void **state)
{
	static const char *const domains[SERVERS];

	static const struct kind kinds[] = { { 0, false },
					     { SODA_MIRROR(2), false },
					     { SODA_MIRROR(2), true },
					     { SODA_STRIPE(2), false },
					     { SODA_EC(2, 1), false },
					     { SODA_EC(2, 1), true } };

	for (int i = 0; i < (CODES ? 6 : 4); i++) {
		struct trial t = { .child = child_drained,
				   .during = during_drained,
				   .arg = &kinds[i] };
		struct outcome out;

		open_pool(domains);
		trial_run(&t, &out);
		expect_exit(&out, 0);
		if (strstr(out.err, "failed") || strstr(out.err, "lost with"))
			fail_msg("%s", out.err);
		close_pool();
	}
}

/*
 * While one server is drained under load another one, or itself, is killed, and comes back; an
 * object is made and freed meanwhile.  Nothing is lost, and in the end nothing misses a copy.
 */
struct disturbance {
	uint64_t seed;
	const char *redundancy;
	unsigned times; /* what servers have in all: a region takes 2 MiB or more */
};

static void child_disturbed(const void *arg)
{
	const struct disturbance *d = arg;

	setenv("SODA_REBUILD_RATE", "16M", 1);
	start_program(d->redundancy);
	for (int i = 0; i < 2; i++) {
		load.objects[i] = alloc_checked(BYTES);
		load.versions[i] = calloc(BYTES / 4096, sizeof(uint64_t));
	}
	touch_all(true);
	for (int round = 0; round < 2; round++) {
		char *more = alloc_checked(BYTES / 2);

		store(more, BYTES / 2, 1);
		run_load();
		verify(more, BYTES / 2, 1);
		soda_free(more);
		touch_all(false);
		await_missing(false);
	}
	CHECK_EQ(soda_sync(NULL, 0), 0);
	touch_all(false);
	CHECK_EQ(stats_now().errors, 0);
	turn_pass();
	CHECK(turn_await()); /* there is nothing left of copies that were given up */
	CHECK_EQ(soda_shutdown(), 0);
}

static unsigned long long used_in_all(void)
{
	unsigned long long used = 0;

	for (int i = 0; i < SERVERS; i++)
		used += stat_of(i, "used_bytes");
	return used;
}

static pid_t start_drain(int server)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
	dup2(STDOUT_FILENO, STDERR_FILENO);
	execl(build_path("tools/soda/soda"), "soda", "pool", "drain", worlds[server].address,
	      (char *)NULL);
	_exit(127);
}

static void during_disturbed(const void *arg)
{
	const struct disturbance *d = arg;
	struct dice dice = { .state = d->seed * 0x9e3779b97f4a7c15u };
	unsigned long long in_all = d->times * (unsigned long long)BYTES;

	for (int round = 0; round < 2; round++) {
		int drained = (int)(dice_roll(&dice) % SERVERS);
		int killed = (int)(dice_roll(&dice) % SERVERS);
		pid_t pid;

		if (!turn_await())
			return;
		pid = start_drain(drained);
		sleep_ms(dice_roll(&dice) % 1500);
		world_kill(&worlds[killed]);
		sleep_ms(dice_roll(&dice) % 1500);
		world_restart(&worlds[killed]);
		sleep_ms(200);
		kill(pid, SIGTERM);
		waitpid(pid, NULL, 0);
		if (killed != drained)
			drain(drained, 0, "--cancel", "as before");
		turn_pass();
	}
	if (!turn_await())
		return;
	for (int i = 0; used_in_all() != in_all && i < LOOKS / 10; i++)
		sleep_ms(100);
	assert_int_equal(used_in_all(), in_all);
	turn_pass();
}

/* SODA_TEST_SEEDS: how many, beside the few of every run; SODA_TEST_SEED: only that one. */
static void test_disturbed(void **state)
{
	static const char *const domains[SERVERS];
	const char *more = getenv("SODA_TEST_SEEDS"), *one = getenv("SODA_TEST_SEED");
	uint64_t from = one ? strtoull(one, NULL, 0) : 1;
	uint64_t n = one ? 1 : more ? strtoull(more, NULL, 0) : 2;

	for (uint64_t seed = from; seed < from + n; seed++)
		for (int coded = 0; coded <= CODES; coded++) {
			struct disturbance d = { seed, coded ? "ec:2+1" : "mirror:2",
						 coded ? 6 : 4 };
			struct trial t = { .child = child_disturbed,
					   .during = during_disturbed,
					   .arg = &d };
			struct outcome out;

			printf("%s, seed %llu\n", d.redundancy, (unsigned long long)seed);
			open_pool(domains);
			trial_run(&t, &out);
			expect_exit(&out, 0);
			close_pool();
		}
}

/* Where the drain cannot finish it says why; a server that is drained takes nothing new. */
static void child_held(const void *arg)
{
	char *p;

	start_program("mirror:2");
	p = alloc_checked(BYTES);
	store(p, BYTES, 1);
	turn_pass();
	CHECK(turn_await());
	CHECK(!soda_alloc(BYTES, 0));
	CHECK(strstr(soda_last_error(), "those lie in 1"), "%s", soda_last_error());
	verify(p, BYTES, 1);
	turn_pass();
	CHECK(turn_await());
	for (int i = 0; !soda_alloc(4096, 0) && i < LOOKS; i++)
		sleep_ms(10);
	CHECK_EQ(stats_now().copies_moved, 0);
	CHECK_EQ(stats_now().copies_missing, 0);
	verify(p, BYTES, 1);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_held(const void *arg)
{
	if (!turn_await())
		return;
	drain(3, 1, NULL, "no other server that it can reach may take it");
	turn_pass();
	if (!turn_await())
		return;
	drain(3, 0, "--cancel", "as before");
	turn_pass();
}

static void test_held(void **state)
{
	static const char *const domains[SERVERS] = { "r", "r", "r", "s" };
	struct trial t = { .child = child_held, .during = during_held };
	struct outcome out;

	open_pool(domains);
	trial_run(&t, &out);
	expect_exit(&out, 0);
	close_pool();
}

/* A program that has no other server. */
static void child_alone(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char *p;

	cfg.server = worlds[0].address;
	start(&cfg);
	p = alloc_checked(BYTES);
	store(p, BYTES, 1);
	turn_pass();
	CHECK(turn_await());
	CHECK(!soda_alloc(4096, 0));
	CHECK(strstr(soda_last_error(), "drained"), "%s", soda_last_error());
	verify(p, BYTES, 1);
	CHECK_EQ(soda_shutdown(), 0);
}

static void during_alone(const void *arg)
{
	if (!turn_await())
		return;
	drain(0, 1, NULL, "it knows no other server");
	turn_pass();
}

static void test_alone(void **state)
{
	struct trial t = { .child = child_alone, .during = during_alone };
	struct outcome out;

	world_open(&worlds[0], WORLD_TCP, NULL);
	trial_run(&t, &out);
	expect_exit(&out, 0);
	drain(0, 0, NULL, "is empty");
	world_close(&worlds[0]);
	drain(0, 1, "--cancel", "is the server running there?");
}

static void test_bad_domain(void **state)
{
	static const char *const bad[] = { "", "two words", "a/b", "\xc3\xa9" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const char *const args[] = { "--listen", "tcp://127.0.0.1:0", "--domain", bad[i],
					     NULL };
		static struct program program;

		assert_int_equal(program_run("src/mem_server/soda-mem-server", args, &program), 0);
		if (!program.status || !strstr(program.err, "domain"))
			fail_msg("'%s': %d %s", bad[i], program.status, program.err);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_domains),	   cmocka_unit_test(test_one_domain),
		cmocka_unit_test(test_objects),	   cmocka_unit_test(test_single),
		cmocka_unit_test(test_drained),	   cmocka_unit_test(test_disturbed),
		cmocka_unit_test(test_held),	   cmocka_unit_test(test_alone),
		cmocka_unit_test(test_bad_domain),
	};

	return cmocka_run_group_tests_name("operate", tests, NULL, NULL);
}
