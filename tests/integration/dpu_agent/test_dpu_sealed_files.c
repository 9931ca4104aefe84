/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soda-dpu-agent --seal --seal-key-file: files that programs write, and read, through the agent,
 * over tcp and over shm, without a key of their own.  What lies in the export directory, who else
 * can open it, what is refused, what was changed there, and the death of the agent and of the
 * server.  Deaths while it commits, by seed: tests/fault/test_sealed_death.c.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/memory.h"
#include "lib/world.h"

enum {
	CHUNK = 65536,
	CHUNKS = 40,
	BYTES = CHUNKS * CHUNK - 1000,
	PAGE = 4096,
	ROUND = (BYTES + PAGE - 1) / PAGE * PAGE,
	TABLE = ROUND / PAGE * 32,
	DATA_AT = (PAGE + TABLE + CHUNK - 1) / CHUNK * CHUNK, /* wire/sealed_file.h */
	TOTAL = DATA_AT + ROUND,
	NUMBERS = BYTES / 8,
};

#define SHORT "200ms"
#define LONG "4s"

static struct world world;
static const char mark[MEMORY_MARK] = "fifteen letters";
static char state_dir[64], keys[2][100];

static void write_key(unsigned which)
{
	snprintf(keys[which], sizeof(keys[which]), "%s.key%u", state_dir, which);
	write_seal_key(keys[which], which + 1);
}

/* The options of the agent, for the next one that starts. */
static void set_agent(int key, bool with_state)
{
	char options[400];

	snprintf(options, sizeof(options), "--seal --seal-key-file=%s%s%s", keys[key],
		 with_state ? " --seal-state=" : "", with_state ? state_dir : "");
	setenv("SODA_TEST_AGENT", options, 1);
}

/* grace: of the server, for programs that end without a word. */
static void open_world(bool shm, bool with_state, const char *grace)
{
	set_agent(0, with_state);
	setenv("SODA_MEM_SERVER_GRACE", grace, 1);
	if (shm)
		setenv("SODA_TEST_AGENT_SHM", "1", 1);
	else
		unsetenv("SODA_TEST_AGENT_SHM");
	world_open(&world, WORLD_TCP, NULL);
}

/* A case of each way; what lies in --seal-state goes with the files. */
static void each_way(bool with_state, const char *grace, void (*run)(void))
{
	DIR *dir;
	unsigned left = 0;

	for (int shm = 0; shm < 2; shm++) {
		open_world(shm, with_state, grace);
		run();
		world_close_noisy(&world);
	}
	if (!with_state)
		return;
	dir = opendir(state_dir);
	assert_non_null(dir);
	while (readdir(dir))
		left++;
	closedir(dir);
	assert_int_equal(left, 2);
}

/* A program; direct: of the memory server, which seals its files itself. */
static void begin(bool direct)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char text[32];

	if (direct) {
		setenv("SODA_SEAL", "1", 1);
		setenv("SODA_SEAL_KEY_FILE", keys[0], 1);
	}
	cfg.server = direct ? world.server_address : world.address;
	cfg.threads = 2;
	cfg.chunk_bytes = CHUNK;
	cfg.fault_timeout_ms = 50000;
	set_buffer(&cfg, 24 * CHUNK, text);
	start(&cfg);
}

/* One that has ended without closing its file has it for a moment more. */
static void *open_checked(const char *name, size_t bytes, unsigned flags)
{
	double until = now_seconds() + 20;
	size_t got = 0;
	void *p;

	while (!(p = soda_alloc_file(name, bytes, flags, &got)) && errno == EBUSY &&
	       now_seconds() < until)
		sleep_ms(20);
	CHECK(p, "%s", soda_last_error());
	CHECK_EQ(got, bytes ? bytes : BYTES);
	return p;
}

static void fill(char *data, unsigned round)
{
	fill_text(data, BYTES, mark, round);
}

static void check_filled(const char *data, unsigned round)
{
	check_text(data, BYTES, mark, round);
}

static void child_makes(const void *arg)
{
	char *data;

	begin(false);
	data = open_checked("file", BYTES, SODA_WRITABLE | SODA_CREATE);
	for (size_t i = 0; i < BYTES; i += PAGE)
		CHECK(!data[i], "byte %zu of a new file", i);
	fill(data, 0);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	check_filled(data, 0);
	soda_free(data);
}

/* What lies in the directory has nothing of it. */
static void check_file(void)
{
	char *file = world_read_file(&world, "file", TOTAL);

	assert_memory_equal(file, "SODASEAL", 8);
	assert_null(memmem(file, TOTAL, mark, sizeof(mark) - 1));
	free(file);
}

static void make(void)
{
	expect_passes(child_makes, NULL);
	check_file();
}

/* Programs one after the other, with the agent and without, which have one key. */

struct turn {
	bool direct;
	unsigned flags, round;					     /* that it finds */
	enum { JUST_READS, SYNCS, FREES, SHUTS_DOWN, FORGETS } ends; /* the next one, how */
};

static void child_goes_on(const void *arg)
{
	const struct turn *t = arg;
	char *data;

	begin(t->direct);
	data = open_checked("file", 0, t->flags);
	check_filled(data, t->round);
	if (t->ends == JUST_READS)
		return;
	fill(data, t->round + 1);
	if (t->ends == SYNCS)
		CHECK_EQ(soda_sync(data, BYTES), 0);
	if (t->ends == SYNCS || t->ends == FORGETS)
		_exit(0);
	if (t->ends == FREES)
		soda_free(data); /* as of any file */
	else
		CHECK_EQ(soda_shutdown(), 0);
}

static void run_programs(void)
{
	static const struct turn turns[] = {
		{ false, SODA_READ_ONLY, 0, JUST_READS }, { false, SODA_WRITABLE, 0, SYNCS },
		{ true, SODA_READ_ONLY, 1, JUST_READS },  { false, SODA_WRITABLE, 1, FORGETS },
		{ false, SODA_READ_ONLY, 1, JUST_READS }, { false, SODA_WRITABLE, 1, FREES },
		{ true, SODA_WRITABLE, 2, SYNCS },	  { false, SODA_READ_ONLY, 3, JUST_READS },
		{ false, SODA_WRITABLE, 3, SHUTS_DOWN },  { false, SODA_WRITABLE, 4, SYNCS },
		{ true, SODA_READ_ONLY, 5, JUST_READS },
	};

	make();
	for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
		expect_passes(child_goes_on, &turns[i]);
		check_file();
	}
}

static void test_program_after_program(void **state)
{
	each_way(false, SHORT, run_programs);
}

/* One thread commits while another one stores, which evicts, and faults again. */

static _Atomic bool committed;

static void store_or_commit(void *arg, unsigned thread)
{
	uint64_t *words = arg;

	for (int i = 0; !thread && i < 6; i++)
		CHECK_EQ(soda_sync(words, BYTES), 0);
	if (!thread)
		committed = true;
	for (uint64_t round = 1; thread && !committed; round++)
		for (size_t i = 0; i < NUMBERS && !committed; i += 509)
			words[i] = round << 32 | i;
}

static void child_both(const void *arg)
{
	begin(false);
	run_threads(2, store_or_commit, open_checked("both", BYTES, SODA_WRITABLE | SODA_CREATE));
	_exit(0); /* some was evicted after the last commit */
}

static void child_after_both(const void *arg)
{
	const uint64_t *words;

	begin(false);
	words = open_checked("both", 0, SODA_WRITABLE);
	for (size_t i = 0; i < NUMBERS; i++)
		CHECK(!words[i] || (uint32_t)words[i] == i, "word %zu is 0x%llx", i,
		      (unsigned long long)words[i]);
}

static void run_commits(void)
{
	for (int i = 0; i < 6; i++) {
		expect_passes(child_both, NULL);
		expect_passes(child_after_both, NULL);
	}
}

static void test_commits_beside_stores(void **state)
{
	each_way(false, SHORT, run_commits);
}

/* The server's memory has nothing of it either; READ_ONLY is of any part, and may be cached. */

static size_t found;

static void child_shows(const void *arg)
{
	char *data;

	begin(false);
	data = open_checked("file", 0, SODA_WRITABLE);
	fill(data, 0);
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	check_filled(data, 0);
}

static void look(const void *arg)
{
	if (!turn_await())
		return;
	found = memory_count_marks(world.server.pid, mark);
	turn_pass();
}

static void run_looks(void)
{
	struct trial t = { .child = child_shows, .during = look, .seconds = 60 };
	struct outcome out;

	make();
	trial_run(&t, &out);
	expect_exit(&out, 0);
	assert_int_equal(found, 0);
}

static void test_no_plaintext(void **state)
{
	memory_skip_with_sanitizers();
	each_way(false, SHORT, run_looks);
}

static void child_reads_a_part(const void *arg)
{
	char *data;
	int ret;

	begin(false);
	data = open_checked("file", 5 * CHUNK + 1, SODA_READ_ONLY);
	CHECK_EQ(memcmp(data, mark, sizeof(mark)), 0);
	CHECK_EQ(data[5 * CHUNK], mark[0]);
	ret = soda_advise(data, 4 * CHUNK, SODA_STATIC_CACHE);
	CHECK(!ret, "%d: %s", ret, soda_last_error());
	CHECK_EQ(soda_advise(data, 4 * CHUNK, SODA_COLD), 0);
	for (size_t i = 0; i < 4 * CHUNK; i += sizeof(mark))
		CHECK(!memcmp(data + i, mark, sizeof(mark)), "byte %zu", i);
	CHECK_EQ(touch_signal((uint64_t *)data, true), SIGSEGV);
}

static void child_sparse(const void *arg)
{
	bool makes = arg;
	char *data;

	begin(false);
	data = open_checked("sparse", BYTES, SODA_WRITABLE | SODA_CREATE);
	for (size_t i = 0; i < BYTES; i++)
		if (data[i] != (!makes && i == 7 * CHUNK + 3))
			CHECK(0, "byte %zu is %d", i, data[i]);
	data[7 * CHUNK + 3] = 1;
}

/* The operator's way to it, with the key. */
static void check_tool(void)
{
	char path[128];
	const char *const args[] = { "seal", "cat", path, "--key-file", keys[0], NULL };
	static struct program tool;

	snprintf(path, sizeof(path), "%s/file", world.export_dir);
	assert_int_equal(program_run("tools/soda/soda", args, &tool), 0);
	assert_int_equal(tool.status, 0);
	assert_int_equal(memcmp(tool.out, mark, sizeof(mark)), 0);
}

static void run_parts(void)
{
	make();
	check_tool();
	expect_passes(child_reads_a_part, NULL);
	expect_passes(child_sparse, "makes");
	expect_passes(child_sparse, NULL);
}

static void test_parts(void **state)
{
	each_way(false, SHORT, run_parts);
}

/* What is refused. */

static void child_refused(const void *arg)
{
	begin(false);
	expect_file_refused("plain", 0, SODA_WRITABLE, "is not sealed");
	expect_file_refused("file", 0, SODA_PRIVATE, "PRIVATE");
	expect_file_refused("file", BYTES + 5000, SODA_WRITABLE, "another size");
	expect_file_refused("file", BYTES - 1, SODA_WRITABLE, "cannot be changed");
	expect_file_refused("file", BYTES + 1, SODA_READ_ONLY, "cannot be changed");
	expect_file_refused("none", 0, SODA_WRITABLE, "");
	expect_file_refused("none", 0, SODA_READ_ONLY, "");
	/* the server could have put it in the place of a sealed one */
	expect_file_refused("plain", 0, SODA_READ_ONLY, "--seal-files");
	open_checked("file", 0, SODA_WRITABLE);
}

static void child_reads_plain(const void *arg)
{
	char *plain;

	begin(false);
	plain = soda_alloc_file("plain", 0, SODA_READ_ONLY, NULL);
	CHECK(plain, "%s", soda_last_error());
	CHECK_EQ(memcmp(plain, mark, sizeof(mark)), 0);
	expect_file_refused("plain", 0, SODA_WRITABLE, "is not sealed");
}

static void child_seals_itself(const void *arg)
{
	setenv("SODA_SEAL", "1", 1);
	setenv("SODA_SEAL_KEY_FILE", keys[0], 1);
	begin(false);
	expect_file_refused("file", 0, SODA_WRITABLE, "sealed by its program");
}

static void child_other_key(const void *arg)
{
	begin(false);
	expect_file_refused("file", 0, SODA_WRITABLE, "is sealed with the key");
	expect_file_refused("file", 0, SODA_READ_ONLY, "is sealed with the key");
	expect_file_refused("file", BYTES, SODA_WRITABLE | SODA_CREATE, "is sealed with the key");
	expect_file_refused("file", 0, SODA_WRITABLE, "is sealed with the key");
}

static void child_damaged(const void *arg)
{
	begin(false);
	expect_file_refused("file", 0, SODA_WRITABLE, arg);
	expect_file_refused("file", 0, SODA_READ_ONLY, arg);
}

static void change(size_t at)
{
	char *file = world_read_file(&world, "file", TOTAL);

	file[at] ^= 1;
	world_write_file(&world, "file", file, TOTAL);
	free(file);
}

static void run_refusals(void)
{
	make();
	world_write_file(&world, "plain", mark, sizeof(mark));
	expect_passes(child_refused, NULL);
	expect_passes(child_seals_itself, NULL);
	world_kill_agent(&world);
	set_agent(1, false);
	world_restart_agent(&world);
	expect_passes(child_other_key, NULL);
	world_kill_agent(&world);
	set_agent(0, false);
	setenv("SODA_DPU_SEAL_FILES", "allow", 1);
	world_restart_agent(&world);
	expect_passes(child_reads_plain, NULL);
	world_kill_agent(&world);
	unsetenv("SODA_DPU_SEAL_FILES");
	world_restart_agent(&world);
	change(100);
	expect_passes(child_damaged, "header was changed");
	change(100);
	change(PAGE + 40);
	expect_passes(child_damaged, "table of tags was changed");
	change(PAGE + 40);
	check_file();
}

static void test_refusals(void **state)
{
	each_way(false, SHORT, run_refusals);
}

/* An agent that does not start. */
static void expect_no_start(const char *const *options, const char *word)
{
	const char *args[8] = { "--listen", "tcp://127.0.0.1:0", "--server", world.server_address };
	static struct program agent;
	size_t n = 4;

	while (*options)
		args[n++] = *options++;
	args[n] = NULL;
	assert_int_equal(program_run("src/dpu_agent/soda-dpu-agent", args, &agent), 0);
	assert_true(agent.status != 0);
	if (!strstr(agent.err, word))
		fail_msg("no \"%s\" in %s", word, agent.err);
}

static void test_options(void **state)
{
	char option[128];
	const char *const both[] = { "--seal", option, NULL }, *const alone[] = { option, NULL };

	open_world(false, false, SHORT);
	snprintf(option, sizeof(option), "--seal-key-file=%s", keys[1]);
	expect_no_start(alone, "give it --seal");
	chmod(keys[1], 0644);
	expect_no_start(both, "chmod 600");
	assert_int_equal(truncate(keys[1], 30), 0);
	chmod(keys[1], 0600);
	expect_no_start(both, keys[1]);
	unlink(keys[1]);
	expect_no_start(both, "No such file");
	write_key(1);
	world_close_noisy(&world);
}

/* Blocks that were changed at rest, or are another one's. */

static void child_meets_damage(const void *arg)
{
	char *data;

	begin(false);
	data = open_checked("file", 0, SODA_READ_ONLY);
	CHECK_EQ(touch_signal((uint64_t *)(data + 3 * CHUNK), false), SIGBUS);
	CHECK_EQ(touch_signal((uint64_t *)(data + 7 * CHUNK), false), SIGBUS);
	CHECK_EQ(touch_signal((uint64_t *)(data + 8 * CHUNK), false), 0);
}

static void run_damage(void)
{
	struct trial t = { .child = child_meets_damage };
	struct outcome out;
	char *file;

	make();
	file = world_read_file(&world, "file", TOTAL);
	file[DATA_AT + 3 * CHUNK + 17] ^= 1;
	memcpy(file + DATA_AT + 7 * CHUNK, file + DATA_AT + 9 * CHUNK, PAGE);
	world_write_file(&world, "file", file, TOTAL);
	free(file);
	trial_run(&t, &out);
	expect_exit(&out, 0);
	assert_non_null(strstr(out.err, "cannot be had"));
}

static void test_changed_blocks(void **state)
{
	each_way(false, SHORT, run_damage);
}

/* The agent dies: with its keys, or so that the next one finds them. */

static void child_outlives(const void *arg)
{
	bool kept = arg;
	char *data, *read, *made;
	size_t had = 0;

	begin(false);
	made = open_checked("made", BYTES, SODA_WRITABLE | SODA_CREATE);
	fill(made, 1);
	CHECK_EQ(soda_sync(made, BYTES), 0);
	data = open_checked("file", 0, SODA_WRITABLE);
	read = open_checked("other", 0, SODA_READ_ONLY);
	fill(data, 1);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	fill(data, 2);
	for (size_t i = 0; i < BYTES; i += PAGE) /* evicts a part of it */
		CHECK_EQ(read[i], mark[0]);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	check_filled(read, 0);
	for (size_t i = 0; i < BYTES; i += CHUNK)
		had += !touch_signal((uint64_t *)&data[i], false);
	CHECK(kept ? had == CHUNKS : had < CHUNKS, "%zu chunks could be read", had);
	if (kept) {
		check_filled(data, 2);
		CHECK_EQ(soda_sync(data, BYTES), 0);
		fill(data, 3);
		CHECK_EQ(soda_sync(data, BYTES), 0);
		check_filled(data, 3);
		check_filled(made, 1);
		CHECK_EQ(soda_sync(made, BYTES), 0);
		soda_free(data);
		soda_free(read);
		soda_free(made);
	} else {
		CHECK_EQ(soda_sync(data, BYTES), -EIO);
		_exit(0);
	}
}

static void agent_dies(const void *arg)
{
	if (!turn_await())
		return;
	world_kill_agent(&world);
	world_restart_agent(&world);
	turn_pass();
}

static void outlive(bool kept)
{
	struct trial t = { .child = child_outlives,
			   .during = agent_dies,
			   .arg = kept ? "kept" : NULL,
			   .seconds = 60 };
	const struct turn next = { false, SODA_WRITABLE, kept ? 3 : 1, JUST_READS };
	struct outcome out;
	char *file;

	make();
	file = world_read_file(&world, "file", TOTAL);
	world_write_file(&world, "other", file, TOTAL);
	free(file);
	trial_run(&t, &out);
	expect_exit(&out, 0);
	check_file();
	expect_passes(child_goes_on, &next);
}

static void run_without_keys(void)
{
	outlive(false);
}

static void run_with_keys(void)
{
	outlive(true);
}

static void test_agent_dies_with_the_keys(void **state)
{
	each_way(false, LONG, run_without_keys);
}

static void test_next_agent_finds_the_keys(void **state)
{
	each_way(true, LONG, run_with_keys);
}

/* The server starts anew, with the file as it was, or with one of earlier. */

static void child_sees_a_restart(const void *arg)
{
	bool older = arg;
	char *data;

	begin(false);
	data = open_checked("file", 0, SODA_WRITABLE);
	fill(data, 1);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	for (size_t i = 0; i < 4 * CHUNK; i += 8)
		memcpy(data + i, &i, 8);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	for (size_t i = 0; i < 4 * CHUNK; i += 8)
		CHECK(!memcmp(data + i, &i, 8), "at %zu", i);
	for (int i = 0; i < 200 && soda_sync(data, BYTES); i++) /* what was lost is said once */
		sleep_ms(10);
	CHECK_EQ(soda_sync(data, BYTES), older ? -EIO : 0);
	if (older)
		_exit(0);
	soda_free(data);
}

static char *earlier; /* of the file; NULL: it stays */

static void server_dies(const void *arg)
{
	if (!turn_await())
		return;
	world_kill(&world);
	if (arg)
		world_write_file(&world, "file", earlier, TOTAL);
	world_restart(&world);
	turn_pass();
}

static void child_after_restart(const void *arg)
{
	char *data;

	begin(false);
	data = open_checked("file", 0, SODA_READ_ONLY);
	for (size_t i = 0; i < 4 * CHUNK; i += 8)
		CHECK(!memcmp(data + i, &i, 8), "at %zu", i);
	for (size_t i = 4 * CHUNK; i < BYTES - 16; i += 2 * PAGE)
		CHECK(!memcmp(data + i, mark, sizeof(mark)), "at %zu", i);
}

static void restart(bool older)
{
	struct trial t = { .child = child_sees_a_restart,
			   .during = server_dies,
			   .arg = older ? "older" : NULL,
			   .seconds = 90 };
	struct outcome out;

	make();
	earlier = world_read_file(&world, "file", TOTAL);
	trial_run(&t, &out);
	free(earlier);
	expect_exit(&out, 0);
	check_file();
	if (!older)
		expect_passes(child_after_restart, NULL);
}

static void run_restart(void)
{
	restart(false);
}

static void run_rollback(void)
{
	restart(true);
}

static void test_server_starts_anew(void **state)
{
	each_way(false, LONG, run_restart);
}

static void test_file_of_earlier(void **state)
{
	each_way(false, LONG, run_rollback);
}

static int set_up(void **state)
{
	snprintf(state_dir, sizeof(state_dir), "/dev/shm/soda-sealed-XXXXXX");
	assert_non_null(mkdtemp(state_dir));
	write_key(0);
	write_key(1);
	return 0;
}

static int tear_down(void **state)
{
	unlink(keys[0]);
	unlink(keys[1]);
	rmdir(state_dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_program_after_program),
		cmocka_unit_test(test_commits_beside_stores),
		cmocka_unit_test(test_no_plaintext),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_changed_blocks),
		cmocka_unit_test(test_agent_dies_with_the_keys),
		cmocka_unit_test(test_next_agent_finds_the_keys),
		cmocka_unit_test(test_server_starts_anew),
		cmocka_unit_test(test_file_of_earlier),
	};

	return cmocka_run_group_tests_name("dpu_sealed_files", tests, set_up, tear_down);
}
