/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed files whose server, agent or program is killed (SIGKILL) while the program commits, a
 * hundred times by seed.  Each time the file is read afterwards: it is as a soda_sync has left it,
 * the last one that returned or the one that was under way, in all of its blocks; and what lies in
 * the directory, journals of the server included, never has the program's text.
 *
 * SODA_TEST_AGENT_SEALS: the agent seals, and the program has no key.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum {
	CHUNK = 65536,
	PAGE = 4096,
	BYTES = 48 * CHUNK,
	BLOCKS = BYTES / PAGE,
	KILLS = 100,
	LATEST_US = 12000, /* a commit takes about half of that */
};

/* AGENT: where there is one. */
enum victim { SERVER_AND_PROGRAM, SERVER, PROGRAM, AGENT };

static struct world world;
static bool agent_seals;
static char key[100], state_dir[48]; /* of an agent that seals */
static const char mark[16] = "fifteen letters";

/* What the program tells the parent. */
static struct told {
	_Atomic uint64_t synced;  /* the last round of which soda_sync has returned 0 */
	_Atomic uint64_t started; /* the last one of which it was called */
	_Atomic pid_t pid;
	_Atomic bool stop;
} * told;

struct round {
	enum victim victim;
	unsigned delay_us, after; /* rounds */
};

static bool outlives(const struct round *r)
{
	return r->victim == SERVER || r->victim == AGENT;
}

/* A block of a round: the text, with numbers among it. */
static void fill_block(char *block, uint64_t n, uint64_t round)
{
	uint64_t numbers[2] = { round, n };

	for (size_t i = 0; i < PAGE; i += sizeof(mark))
		memcpy(block + i, mark, sizeof(mark));
	memcpy(block, numbers, sizeof(numbers));
}

/* Returns the round that all of it is of. */
static uint64_t check(const char *data)
{
	char block[PAGE];
	uint64_t round;

	memcpy(&round, data, sizeof(round));
	CHECK(round == told->synced || round == told->started, "round %llu, between %llu and %llu",
	      (unsigned long long)round, (unsigned long long)told->synced,
	      (unsigned long long)told->started);
	for (uint64_t n = 0; n < BLOCKS && round; n++) {
		fill_block(block, n, round);
		CHECK(!memcmp(data + n * PAGE, block, PAGE), "block %llu is not of round %llu",
		      (unsigned long long)n, (unsigned long long)round);
	}
	return round;
}

static char *open_file(size_t buffer)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	double until = now_seconds() + 20;
	char text[32], *data;

	if (!agent_seals) {
		setenv("SODA_SEAL", "1", 1);
		setenv("SODA_SEAL_KEY_FILE", key, 1);
	}
	cfg.server = world.address;
	cfg.threads = 2;
	cfg.chunk_bytes = CHUNK;
	set_buffer(&cfg, buffer, text);
	start(&cfg);
	/* the program before this one, which was killed, has it until the server notices */
	while (!(data = soda_alloc_file("file", BYTES, SODA_WRITABLE | SODA_CREATE, NULL)) &&
	       errno == EBUSY && now_seconds() < until)
		sleep_ms(20);
	CHECK(data, "%s", soda_last_error());
	return data;
}

/* Some blocks of a round, in an order that evicts some of them before the commit. */
static void store_round(char *data, uint64_t round)
{
	for (uint64_t n = 0; n < BLOCKS; n++)
		fill_block(data + n * PAGE, n, round);
}

static void child_commits(const void *arg)
{
	const struct round *r = arg;
	/*
	 * Who is to outlive its server has all of it in memory, so that nothing is lost; what an
	 * agent alone has acknowledged stays in memory in any case.
	 */
	char *data = open_file(r->victim == SERVER ? BYTES + 32 * CHUNK : 24 * CHUNK);
	uint64_t round = check(data);

	told->synced = told->started = round;
	told->pid = getpid();
	while (!told->stop) {
		store_round(data, ++round);
		told->started = round;
		CHECK_EQ(soda_sync(data, BYTES), 0);
		told->synced = round;
	}
}

/* No text, in none of the files. */
static void check_bytes(bool *journal_p)
{
	enum { TOTAL = CHUNK + BYTES };
	char path[128], *file;
	struct stat st;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/file", world.export_dir);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0 && !fstat(fd, &st));
	*journal_p = st.st_size > TOTAL;
	file = malloc((size_t)st.st_size + 1);
	n = read(fd, file, (size_t)st.st_size); /* less, where a server that lives goes on */
	assert_true(n > 0);
	assert_null(memmem(file, (size_t)n, mark, 15));
	free(file);
	close(fd);
}

/* The next agent finds the keys of the one that is killed. */
static int set_up(void **state)
{
	char options[300];

	snprintf(state_dir, sizeof(state_dir), "/dev/shm/soda-sealed-XXXXXX");
	assert_non_null(mkdtemp(state_dir));
	snprintf(key, sizeof(key), "%s.key", state_dir);
	write_seal_key(key, 7);
	if (agent_seals) {
		snprintf(options, sizeof(options), "--seal --seal-key-file=%s --seal-state=%s", key,
			 state_dir);
		setenv("SODA_TEST_AGENT", options, 1);
	}
	world_open(&world, WORLD_DEFAULT, NULL);
	return 0;
}

static int tear_down(void **state)
{
	char command[200];

	world_close_noisy(&world);
	/* with what the last agent has kept for a program that was killed */
	snprintf(command, sizeof(command), "rm -r %s %s", state_dir, key);
	return system(command);
}

static unsigned journals;

static void strike(const void *arg)
{
	const struct round *r = arg;
	double until = now_seconds() + 20;
	uint64_t at;
	bool journal;

	while (!told->pid && now_seconds() < until)
		sleep_ms(1);
	at = told->started + r->after;
	while (told->pid && told->started < at && now_seconds() < until)
		usleep(200);
	usleep(r->delay_us);
	if (!told->pid)
		return; /* the child is judged */
	if (r->victim == AGENT)
		world_kill_agent(&world);
	else if (r->victim != PROGRAM)
		world_kill(&world);
	if (!outlives(r))
		kill(told->pid, SIGKILL);
	if (r->victim == PROGRAM)
		return;
	check_bytes(&journal);
	journals += journal;
	if (r->victim == AGENT)
		world_restart_agent(&world);
	else
		world_restart(&world);
	if (!outlives(r))
		return;
	at = told->started + 1;
	while (told->synced < at && now_seconds() < until)
		sleep_ms(1);
	told->stop = true;
}

static void test_kills(void **state)
{
	const char *given = getenv("SODA_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)getpid();
	struct dice dice = { .state = seed };
	unsigned victims = world.agent.pid ? AGENT + 1 : AGENT;
	struct outcome end;

	printf("SODA_TEST_SEED=%llu\n", (unsigned long long)seed);
	for (unsigned i = 0; i < KILLS; i++) {
		struct round r = { .victim = (enum victim)(i % victims),
				   .delay_us = (unsigned)(dice_roll(&dice) % LATEST_US),
				   .after = 1 + (unsigned)(dice_roll(&dice) % 3) };
		struct trial t = {
			.child = child_commits, .during = strike, .arg = &r, .seconds = 60
		};

		told->pid = 0;
		told->stop = false;
		trial_run(&t, &end);
		if (outlives(&r))
			expect_exit(&end, 0);
		else
			expect_signal(&end, SIGKILL);
	}
	printf("%u of %u kills met a journal in the file\n", journals, KILLS);
	assert_true(told->synced > KILLS);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_kills) };

	/*
	 * A program that is killed has its file for that long.  One whose agent is killed must be
	 * back before it is over, also where others compile: else the server has freed it, and what
	 * it had evicted since the last commit is lost, as it is then told.
	 */
	agent_seals = getenv("SODA_TEST_AGENT_SEALS");
	setenv("SODA_MEM_SERVER_GRACE", getenv("SODA_TEST_AGENT") ? "1500ms" : "200ms", 1);
	told = shared_memory(sizeof(*told));
	return cmocka_run_group_tests_name("sealed_death", tests, set_up, tear_down);
}
