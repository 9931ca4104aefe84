/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed objects: what the server has of them, what is refused, and that they outlive a
 * reconnection.  What happens to changed blocks: tests/integration/tools/test_bench_seal.c.
 */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/memory.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNKS = 96, BYTES = CHUNKS * CHUNK, WORDS = BYTES / 8, BUFFER = 32 * CHUNK };

static struct world world;
static const char mark[MEMORY_MARK] = "fifteen letters";

static void start_at_world(bool all)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char text[32];

	setenv("SODA_SEAL", all ? "1" : "0", 1);
	cfg.server = world.address;
	cfg.threads = 2;
	cfg.chunk_bytes = CHUNK;
	set_buffer(&cfg, BUFFER, text);
	start(&cfg);
}

static void fill_with_marks(char *data)
{
	for (size_t i = 0; i < BYTES; i += sizeof(mark))
		memcpy(data + i, mark, sizeof(mark));
}

static void check_marks(const char *data)
{
	for (size_t i = 0; i < BYTES; i += sizeof(mark))
		CHECK(memcmp(data + i, mark, sizeof(mark)) == 0, "at %zu", i);
}

static void child_marks(const void *arg)
{
	bool sealed = arg;
	char *data;

	start_at_world(sealed);
	data = alloc_checked(BYTES);
	fill_with_marks(data);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	check_marks(data);
	CHECK_EQ(stats_now().bytes_sealed != 0, sealed);
	CHECK_EQ(stats_now().bytes_opened != 0, sealed);
}

static size_t found;

static void look_for_marks(const void *arg)
{
	if (!turn_await())
		return;
	found = memory_count_marks(world.server.pid, mark);
	turn_pass();
}

/* First without sealing: the search finds what is there. */
static void test_no_plaintext(void **state)
{
	struct trial t = { .child = child_marks, .during = look_for_marks };
	struct outcome end;

	memory_skip_with_sanitizers();
	trial_run(&t, &end);
	expect_quiet_success(&end);
	assert_true(found >= BYTES / sizeof(mark));
	world_close(&world); /* another one: freed memory would still have them */
	world_open(&world, WORLD_DEFAULT, NULL);
	t.arg = "sealed";
	trial_run(&t, &end);
	expect_quiet_success(&end);
	assert_int_equal(found, 0);
}

static void child_one_object(const void *arg)
{
	char *data;

	start_at_world(false);
	data = soda_alloc(BYTES, SODA_SEALED);
	CHECK(data, "%s", soda_last_error());
	fill_with_marks(data);
	check_marks(data);
	CHECK(stats_now().bytes_sealed >= BYTES - BUFFER, "%llu",
	      (unsigned long long)stats_now().bytes_sealed);
	CHECK(stats_now().resident_peak_bytes <= BUFFER, "places for sealed chunks are counted");
	soda_free(data);
	CHECK_EQ(stats_now().seal_metadata_bytes, 0);
}

static void test_one_object(void **state)
{
	expect_passes(child_one_object, NULL);
}

/* Of what is written 0.6 %, for what is not nothing. */
static void child_metadata(const void *arg)
{
	uint64_t *data, before;

	start_at_world(true);
	data = alloc_checked((size_t)1 << 29);
	before = stats_now().seal_metadata_bytes;
	CHECK(before <= 4096, "%llu", (unsigned long long)before);
	memset(data, 1, BYTES);
	CHECK_EQ(soda_sync(data, BYTES), 0);
	CHECK(stats_now().seal_metadata_bytes <= BYTES / 1000 * 6 + 2 * 4096, "%llu",
	      (unsigned long long)stats_now().seal_metadata_bytes);
}

static void test_metadata(void **state)
{
	expect_passes(child_metadata, NULL);
}

/* Discarded chunks are zeros, also where one block of them is stored to afterwards. */
static void child_discard(const void *arg)
{
	uint64_t *data;

	start_at_world(true);
	data = alloc_checked(BYTES);
	for (size_t i = 0; i < WORDS; i++)
		data[i] = ~i;
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	CHECK_EQ(soda_advise(data, BYTES / 2, SODA_DISCARD), 0);
	for (size_t i = 0; i < WORDS / 2; i += CHUNK / 8)
		data[i + 512] = i;
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	for (size_t i = 0; i < WORDS; i++)
		CHECK(data[i] == (i >= WORDS / 2	   ? ~i
				  : i % (CHUNK / 8) == 512 ? i - 512
							   : 0),
		      "word %zu", i);
}

static void test_discard(void **state)
{
	expect_passes(child_discard, NULL);
}

static void expect_refusal(const void *object, int err, const char *word)
{
	CHECK(!object && errno == err, "errno %d", errno);
	CHECK(strstr(soda_last_error(), word), "%s", soda_last_error());
}

static void child_refusals(const void *arg)
{
	size_t bytes;
	void *data;

	start_at_world(true);
	expect_refusal(soda_alloc_file("file", 0, SODA_WRITABLE, &bytes), EINVAL,
		       "SODA_SEAL_KEY_FILE");
	expect_refusal(soda_alloc_file("file", 0, SODA_PRIVATE, &bytes), ENOTSUP,
		       "cannot be sealed");
	expect_refusal(soda_open_published("name", &bytes), ENOTSUP, "cannot be sealed");
	data = alloc_checked(CHUNK);
	CHECK_EQ(soda_publish(data, "name"), -ENOTSUP);
	CHECK(strstr(soda_last_error(), "sealed"), "%s", soda_last_error());
}

static void test_refusals(void **state)
{
	world_write_file(&world, "file", mark, sizeof(mark));
	expect_passes(child_refusals, NULL);
}

static void child_small_buffer(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char text[32];

	cfg.server = world.address;
	cfg.threads = 2;
	cfg.chunk_bytes = CHUNK;
	setenv("SODA_SEAL", "0", 1);
	set_buffer(&cfg, smallest_buffer(cfg), text);
	start(&cfg);
	CHECK(!soda_alloc(BYTES, SODA_SEALED) && errno == ENOMEM, "errno %d", errno);
	CHECK(strstr(soda_last_error(), "SODA_BUFFER"), "%s", soda_last_error());
	memset(alloc_checked(BYTES), 1, BYTES);
}

static void test_small_buffer(void **state)
{
	expect_passes(child_small_buffer, NULL);
}

/* Pin chunk after chunk, until no more may be. Returns how many are. */
static size_t pin_most(char *data)
{
	size_t n = 0;

	while (n < CHUNKS && !soda_advise(data + n * CHUNK, CHUNK, SODA_PIN))
		n++;
	CHECK(n < BUFFER / CHUNK && stats_now().pinned_bytes == n * CHUNK, "%zu", n);
	return n;
}

/* The first sealed object takes room of the buffer, of which what is pinned has left just enough.
 */
static void child_pinned(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char text[32], *data, *sealed;
	size_t pinned;

	cfg.server = world.address;
	cfg.threads = 1;
	cfg.chunk_bytes = CHUNK;
	setenv("SODA_SEAL", "0", 1);
	set_buffer(&cfg, BUFFER, text);
	start(&cfg);
	data = alloc_checked(BYTES);
	pinned = pin_most(data);
	CHECK(!soda_alloc(BYTES, SODA_SEALED) && errno == ENOMEM, "errno %d", errno);
	CHECK(strstr(soda_last_error(), "pinned"), "%s", soda_last_error());
	memset(data, 1, BYTES);
	CHECK_EQ(soda_advise(data, 2 * CHUNK, SODA_UNPIN), 0);
	sealed = soda_alloc(BYTES, SODA_SEALED);
	CHECK(sealed, "%s", soda_last_error());
	memset(sealed, 2, BYTES);
	for (size_t i = 0; i < BYTES; i += 512)
		CHECK(data[i] == 1 && sealed[i] == 2, "at %zu", i);
	CHECK_EQ(stats_now().pinned_bytes, (pinned - 2) * CHUNK);
}

static void test_pinned(void **state)
{
	expect_passes(child_pinned, NULL);
}

/* With the smallest buffer there are two places; all threads store, and read what others stored. */
static void store_and_check(void *arg, unsigned thread)
{
	uint64_t *data = arg;

	for (size_t i = thread; i < WORDS; i += 2)
		data[i] = i * 3;
	for (size_t i = thread; i < WORDS; i += 2)
		CHECK(data[i] == i * 3, "word %zu", i);
}

static void child_least(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	char text[32];

	cfg.server = world.address;
	cfg.threads = 2;
	cfg.chunk_bytes = *(const size_t *)arg;
	setenv("SODA_SEAL", "1", 1);
	set_buffer(&cfg, smallest_buffer(cfg), text);
	start(&cfg);
	run_threads(2, store_and_check, alloc_checked(BYTES));
}

static void test_least(void **state)
{
	static const size_t chunks[] = { 4096, 65536, 1 << 20 };

	for (size_t i = 0; i < 3; i++)
		expect_passes(child_least, &chunks[i]);
}

/* The server forgets the object: what is resident stays, and is sealed anew there. */
static void child_server_starts_anew(const void *arg)
{
	uint64_t *data;

	start_at_world(true);
	data = alloc_checked(BYTES);
	for (size_t i = 0; i < WORDS; i++)
		data[i] = i;
	CHECK_EQ(soda_sync(data, BYTES), 0);
	turn_pass();
	CHECK(turn_await(), "the parent is gone");
	CHECK_EQ(touch_signal(data, false), SIGBUS);
	for (size_t i = 0; i < WORDS; i += CHUNK / 8)
		if (!touch_signal(&data[i], false))
			CHECK(data[i] == i, "word %zu", i);
	CHECK_EQ(soda_advise(data, BYTES, SODA_DISCARD), 0);
	for (size_t i = 0; i < WORDS; i++)
		data[i] = ~i;
	CHECK_EQ(soda_advise(data, BYTES, SODA_COLD), 0);
	for (size_t i = 0; i < WORDS; i++)
		CHECK(data[i] == ~i, "word %zu", i);
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
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_plaintext),
		cmocka_unit_test(test_one_object),
		cmocka_unit_test(test_metadata),
		cmocka_unit_test(test_discard),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_small_buffer),
		cmocka_unit_test(test_pinned),
		cmocka_unit_test(test_least),
		cmocka_unit_test(test_server_starts_anew),
	};

	return WORLD_RUN("sealed", &world, true, tests);
}
