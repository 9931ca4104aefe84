/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soda-dpu-agent --seal, with real programs, over tcp and over shm: what the server has, what is
 * refused, blocks that are changed there, and the death of the agent, with --seal-state and
 * without.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/memory.h"
#include "lib/peer.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNKS = 96, BYTES = CHUNKS * CHUNK, WORDS = BYTES / 8 };

static struct world world;
static const char mark[MEMORY_MARK] = "fifteen letters";
static char state_dir[64];

static void open_world(bool shm, bool with_state, const char *more)
{
	char options[160];

	if (with_state && !*state_dir) {
		snprintf(state_dir, sizeof(state_dir), "/dev/shm/soda-sealed-XXXXXX");
		assert_non_null(mkdtemp(state_dir));
		assert_int_equal(rmdir(state_dir), 0); /* the agent makes it */
	}
	snprintf(options, sizeof(options), "--seal%s%s %s", with_state ? " --seal-state=" : "",
		 with_state ? state_dir : "", more);
	setenv("SODA_TEST_AGENT", options, 1);
	if (shm)
		setenv("SODA_TEST_AGENT_SHM", "1", 1);
	else
		unsetenv("SODA_TEST_AGENT_SHM");
	world_open(&world, WORLD_TCP, NULL);
}

/* How many files of keys there are, in a directory that nobody else reads. */
static unsigned keys_left(void)
{
	DIR *dir = opendir(state_dir);
	struct stat st;
	unsigned n = 0;

	assert_non_null(dir);
	assert_int_equal(fstat(dirfd(dir), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

static char *begin(size_t bytes)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.buffer = "2M";
	cfg.threads = 2;
	cfg.fault_timeout_ms = 50000;
	start(&cfg);
	return bytes ? alloc_checked(bytes) : NULL;
}

static void fill_with_marks(char *data, size_t from, size_t to)
{
	for (size_t i = from; i < to; i += sizeof(mark))
		memcpy(data + i, mark, sizeof(mark));
}

static void check_marks(const char *data, size_t from, size_t to)
{
	for (size_t i = from; i < to; i += sizeof(mark))
		CHECK(memcmp(data + i, mark, sizeof(mark)) == 0, "at %zu", i);
}

static uint64_t agent_says(const char *name)
{
	struct peer tool;
	uint64_t value;

	assert_int_equal(peer_ask(&tool, world.address), 0);
	value = peer_stat(&tool, name);
	peer_leave(&tool);
	return value;
}

/* What is written is there again, and nowhere in the server. */

static void child_marks(const void *arg)
{
	char *data = begin(BYTES);

	fill_with_marks(data, 0, BYTES);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	check_marks(data, 0, BYTES);
	soda_free(data);
}

static size_t found;
static uint64_t sealed, metadata, damaged;

static void look(const void *arg)
{
	if (!turn_await())
		return;
	found = memory_count_marks(world.server.pid, mark);
	sealed = agent_says("sealed_bytes");
	metadata = agent_says("seal_metadata_bytes");
	turn_pass();
}

static void each_way(void (*child)(const void *arg), void (*during)(const void *arg), bool state,
		     void (*check)(const struct outcome *out))
{
	for (int shm = 0; shm < 2; shm++) {
		struct trial t = { .child = child, .during = during, .seconds = 120 };
		struct outcome out;

		open_world(shm, state, "");
		trial_run(&t, &out);
		check(&out);
		world_close_noisy(&world);
		if (state)
			assert_int_equal(keys_left(), 0);
	}
}

static void check_nothing_found(const struct outcome *out)
{
	expect_exit(out, 0);
	assert_true(sealed >= BYTES);
	assert_in_range(metadata, BYTES / 1000 * 5, BYTES / 1000 * 6 + 3 * 4096);
	assert_int_equal(found, 0);
}

static void test_no_plaintext(void **state)
{
	memory_skip_with_sanitizers();
	each_way(child_marks, look, false, check_nothing_found);
}

/* Changed blocks are SIGBUS, and counted. */

static void child_is_attacked(const void *arg)
{
	char *data = begin(BYTES);
	unsigned served = 0;

	fill_with_marks(data, 0, BYTES);
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	for (size_t i = 0; i < BYTES; i += CHUNK)
		served += touch_signal((uint64_t *)&data[i], false) != SIGBUS;
	CHECK_EQ(served, 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	CHECK_EQ(soda_advise(data, BYTES, SODA_DISCARD), 0);
	for (size_t i = 0; i < BYTES; i += 4096)
		CHECK(!data[i], "at %zu", i);
	fill_with_marks(data, 0, BYTES);
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	check_marks(data, 0, BYTES);
}

static void attack(const void *arg)
{
	if (!turn_await())
		return;
	found = memory_spoil_ciphertext(world.server.pid);
	turn_pass();
	if (!turn_await())
		return;
	damaged = agent_says("seal_damaged");
	turn_pass();
}

static void check_detected(const struct outcome *out)
{
	expect_exit(out, 0);
	assert_true(found >= BYTES / 4096);
	assert_true(damaged >= CHUNKS);
}

static void test_changed_blocks(void **state)
{
	memory_skip_with_sanitizers();
	each_way(child_is_attacked, attack, false, check_detected);
}

/* Single blocks of chunks, discarded ones, and what was never written. */

static void child_parts(const void *arg)
{
	uint64_t *data = (uint64_t *)begin(BYTES);

	for (size_t i = 0; i < WORDS; i += CHUNK / 8)
		data[i + 512] = i + 1;
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	for (size_t i = 0; i < WORDS; i += 512)
		CHECK(data[i] == (i % (CHUNK / 8) == 512 ? i - 511 : 0), "word %zu", i);
	CHECK_EQ(soda_advise(data, BYTES / 2, SODA_DISCARD), 0);
	for (size_t i = 0; i < WORDS; i += CHUNK / 8)
		data[i + 1024] = i + 2;
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	for (size_t i = 0; i < WORDS; i += 512)
		CHECK(data[i] == (i % (CHUNK / 8) == 1024		     ? i - 1022
				  : i % (CHUNK / 8) == 512 && i >= WORDS / 2 ? i - 511
									     : 0),
		      "word %zu", i);
	soda_free(data);
}

static void check_passed(const struct outcome *out)
{
	expect_exit(out, 0);
}

static void test_parts(void **state)
{
	each_way(child_parts, NULL, true, check_passed);
}

/* The agent dies. */

static void child_outlives(const void *arg)
{
	bool kept = arg;
	char *data = begin(BYTES);
	size_t read = 0;

	fill_with_marks(data, 0, BYTES);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	for (size_t i = 0; i < BYTES; i += CHUNK)
		if (!touch_signal((uint64_t *)&data[i], false)) {
			check_marks(data, i, i + CHUNK);
			read++;
		}
	CHECK(kept ? read == CHUNKS : read < CHUNKS, "%zu chunks could be read", read);
	CHECK_EQ(soda_advise(data, BYTES, SODA_DISCARD), 0);
	for (size_t i = 0; i < BYTES; i += 4096)
		CHECK(!data[i], "at %zu", i);
	fill_with_marks(data, 0, BYTES);
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	check_marks(data, 0, BYTES);
	CHECK_EQ(soda_sync(NULL, 0), 0);
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
	for (int shm = 0; shm < 2; shm++) {
		struct trial t = { .child = child_outlives,
				   .during = agent_dies,
				   .arg = kept ? "kept" : NULL,
				   .seconds = 120 };
		struct outcome out;

		open_world(shm, kept, "");
		trial_run(&t, &out);
		world_close_noisy(&world);
		expect_exit(&out, 0);
	}
}

static void test_agent_dies_with_the_keys(void **state)
{
	outlive(false);
}

static void test_next_agent_finds_the_keys(void **state)
{
	outlive(true);
}

/* An agent that does not seal is not what comes after one that does. */

static void child_meets_a_plain_agent(const void *arg)
{
	char *data = begin(BYTES);

	fill_with_marks(data, 0, BYTES);
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	for (size_t i = 0; i < BYTES; i += CHUNK)
		if (!touch_signal((uint64_t *)&data[i], false))
			check_marks(data, i, i + CHUNK);
}

static void plain_agent_comes(const void *arg)
{
	if (!turn_await())
		return;
	world_kill_agent(&world);
	setenv("SODA_TEST_AGENT", "", 1);
	world_restart_agent(&world);
	turn_pass();
	sleep_ms(500);
	world_kill_agent(&world); /* then the one that seals again */
	setenv("SODA_TEST_AGENT", "--seal", 1);
	world_restart_agent(&world);
}

static void test_plain_agent_is_refused(void **state)
{
	each_way(child_meets_a_plain_agent, plain_agent_comes, false, check_passed);
}

/* What cannot be sealed. */

static void child_refusals(const void *arg)
{
	char *data = begin(CHUNK);
	size_t bytes;
	char *file;

	CHECK(!soda_alloc_file("file", 0, SODA_WRITABLE, &bytes) && errno == ENOTSUP, "%d", errno);
	CHECK(strstr(soda_last_error(), "--seal"), "%s", soda_last_error());
	CHECK_EQ(soda_publish(data, "name"), -ENOTSUP);
	CHECK(strstr(soda_last_error(), "--seal"), "%s", soda_last_error());
	file = soda_alloc_file("file", 0, SODA_READ_ONLY, &bytes);
	CHECK(file, "%s", soda_last_error());
	CHECK_EQ(memcmp(file, mark, sizeof(mark)), 0);
}

static void test_refusals(void **state)
{
	struct trial t = { .child = child_refusals };
	struct outcome out;

	open_world(false, false, "");
	world_write_file(&world, "file", mark, sizeof(mark));
	trial_run(&t, &out);
	world_close_noisy(&world);
	expect_exit(&out, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_plaintext),
		cmocka_unit_test(test_changed_blocks),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_agent_dies_with_the_keys),
		cmocka_unit_test(test_next_agent_finds_the_keys),
		cmocka_unit_test(test_plain_agent_is_refused),
		cmocka_unit_test(test_refusals),
	};
	int failed = cmocka_run_group_tests_name("dpu_sealed", tests, NULL, NULL);

	if (*state_dir)
		rmdir(state_dir);
	return failed;
}
