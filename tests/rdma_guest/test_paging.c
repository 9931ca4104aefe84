/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole runtime over verbs, in the guest: a server and a program that pages, every
 * byte that comes back checked.  Small, because the guest's processor is emulated.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum {
	CHUNK = 65536,
	CHUNK_WORDS = CHUNK / 8,
	CHUNKS = 96,
	STEP = 64, /* words between those that are looked at: 512 bytes */
	THREADS = 2,
	LIMIT_S = 150,
	FILE_BYTES = (1 << 20) + 12345, /* no multiple of anything */
};

static struct world world;

/* How a case reaches the server, and with which mode. */
struct way {
	const char *prefix, *query;
	uint32_t mode;
};

static void set_up(const struct way *w, char address[384], struct soda_config *cfg, char text[32])
{
	snprintf(address, 384, "%s%s%s", w->prefix, world.address, w->query);
	*cfg = (struct soda_config)SODA_CONFIG_INIT;
	cfg->server = address;
	cfg->threads = THREADS;
	cfg->mode = w->mode;
	cfg->fault_timeout_ms = 60000;
	cfg->connect_timeout_ms = 30000;
	set_buffer(cfg, smallest_buffer(*cfg) + 8 * CHUNK, text);
}

static uint64_t *begin(const struct way *w)
{
	struct soda_config cfg;
	char address[384], text[32];

	set_up(w, address, &cfg, text);
	start(&cfg);
	return alloc_checked(CHUNKS * CHUNK);
}

static void run(void (*child)(const void *arg), const struct way *w, struct outcome *out)
{
	trial_run(&(struct trial){ .child = child, .arg = w, .seconds = LIMIT_S }, out);
}

/* Thread i has every THREADS-th of the words that are looked at. */
struct field {
	uint64_t *words;
	uint64_t round;
};

static void fill(void *arg, unsigned thread)
{
	struct field *f = arg;

	for (size_t i = thread * STEP; i < CHUNKS * CHUNK_WORDS; i += THREADS * STEP)
		f->words[i] = mix(i, f->round);
}

static void check_all(void *arg, unsigned thread)
{
	struct field *f = arg;

	for (size_t i = thread * STEP; i < CHUNKS * CHUNK_WORDS; i += THREADS * STEP) {
		CHECK(f->words[i] == mix(i, f->round), "word %zu: %llx", i,
		      (unsigned long long)f->words[i]);
		CHECK(f->words[i + 1] == 0, "word %zu", i + 1);
	}
}

static void check_random(void *arg, unsigned thread)
{
	struct dice d = { .state = thread + 1 };
	struct field *f = arg;

	for (int n = 0; n < 400; n++) {
		size_t i = dice_roll(&d) % (CHUNKS * CHUNK_WORDS / STEP) * STEP;

		CHECK(f->words[i] == mix(i, f->round), "word %zu: %llx", i,
		      (unsigned long long)f->words[i]);
	}
}

static void pass_over(struct field *f)
{
	for (f->round = 1; f->round <= 2; f->round++) {
		run_threads(THREADS, fill, f);
		run_threads(THREADS, check_all, f);
		run_threads(THREADS, check_random, f);
	}
}

static void child_paging(const void *arg)
{
	struct field f = { .words = begin(arg) };

	pass_over(&f);
	CHECK(stats_now().bytes_fetched > 0 && stats_now().bytes_written_back > 0,
	      "nothing travelled");
	CHECK_EQ(stats_now().reconnects, 0);
	soda_free(f.words);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_inline(void **state)
{
	struct outcome out;

	run(child_paging, &(struct way){ "", "", SODA_MODE_INLINE }, &out);
	expect_quiet_success(&out);
}

static void test_handler(void **state)
{
	struct outcome out;

	run(child_paging, &(struct way){ "", "", SODA_MODE_HANDLER }, &out);
	expect_quiet_success(&out);
}

/* Queue pairs that end under load: the same data, over new ones and with new keys. */
static void child_cut(const void *arg)
{
	struct field f = { .words = begin(arg) };

	pass_over(&f);
	CHECK(stats_now().reconnects > 0, "no connection was lost: nothing was tested");
}

static void test_cut(void **state)
{
	struct outcome out;

	run(child_cut, &(struct way){ "fault+", "?do=cut&after=60&count=1", SODA_MODE_INLINE },
	    &out);
	expect_exit(&out, 0);
}

static uint8_t byte_at(size_t i, uint64_t round)
{
	return (uint8_t)mix(i, round);
}

static void check_bytes(const uint8_t *p, uint64_t round)
{
	for (size_t i = 0; i < FILE_BYTES; i++)
		CHECK(p[i] == byte_at(i, round), "byte %zu: %u", i, p[i]);
}

static void child_files(const void *arg)
{
	struct soda_config cfg;
	char address[384], text[32];
	size_t bytes = 0;
	uint8_t *p;

	set_up(arg, address, &cfg, text);
	start(&cfg);
	p = soda_alloc_file("data", 0, SODA_READ_ONLY, &bytes);
	CHECK(p, "%s", soda_last_error());
	CHECK_EQ(bytes, FILE_BYTES);
	check_bytes(p, 0);
	soda_free(p);
	p = soda_alloc_file("data", 0, SODA_WRITABLE, &bytes);
	CHECK(p, "%s", soda_last_error());
	check_bytes(p, 0);
	for (size_t i = 0; i < FILE_BYTES; i++)
		p[i] = byte_at(i, 1);
	CHECK_EQ(soda_sync(p, bytes), 0);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_files(void **state)
{
	uint8_t *data = malloc(FILE_BYTES);
	struct outcome out;
	char *after;

	for (size_t i = 0; i < FILE_BYTES; i++)
		data[i] = byte_at(i, 0);
	world_write_file(&world, "data", data, FILE_BYTES);
	run(child_files, &(struct way){ "", "", SODA_MODE_INLINE }, &out);
	expect_quiet_success(&out);
	after = world_read_file(&world, "data", FILE_BYTES);
	for (size_t i = 0; i < FILE_BYTES; i++)
		assert_int_equal((uint8_t)after[i], byte_at(i, 1));
	free(after);
	free(data);
}

/* What is not there is not replaced by anything else, and the message says what is missing. */
static void child_nobody(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = arg;
	cfg.connect_timeout_ms = 20000;
	CHECK(soda_init(&cfg) < 0, "somebody answered");
	CHECK(strstr(soda_last_error(), "verbs://"), "%s", soda_last_error());
}

static void test_nobody(void **state)
{
	struct outcome out;
	char address[128];

	snprintf(address, sizeof(address), "%.*s:1",
		 (int)(strrchr(world.address, ':') - world.address), world.address);
	trial_run(&(struct trial){ .child = child_nobody, .arg = address, .seconds = LIMIT_S },
		  &out);
	expect_exit(&out, 0);
}

/* Locked memory has a limit: what is needed and what is allowed is said, before anything is tried.
 */
static void child_memlock(const void *arg)
{
	const struct rlimit limit = { 65536, 65536 };
	struct soda_config cfg = SODA_CONFIG_INIT;

	cfg.server = world.address;
	cfg.connect_timeout_ms = 20000;
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	CHECK_EQ(setresuid(65534, 65534, 65534), 0); /* and no capability */
	CHECK(soda_init(&cfg) < 0, "64 KiB were enough");
	CHECK(strstr(soda_last_error(), "locked memory") && strstr(soda_last_error(), "64 KiB"),
	      "%s", soda_last_error());
}

static void test_memlock(void **state)
{
	struct outcome out;

	trial_run(&(struct trial){ .child = child_memlock, .seconds = LIMIT_S }, &out);
	expect_exit(&out, 0);
}

static int open_world(void **state)
{
	world_open(&world, WORLD_VERBS, NULL);
	return 0;
}

static int close_world(void **state)
{
	world_close(&world);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_inline, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_handler, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_cut, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_files, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_nobody, open_world, close_world),
		cmocka_unit_test_setup_teardown(test_memlock, open_world, close_world),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("paging over verbs", tests, NULL, NULL);
}
