/* SPDX-License-Identifier: BSD-3-Clause */
/* SODA_TRACE: what a program's page trace holds, record by record, and what it does not. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/page_trace.h"
#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, PAGE = 4096, CHUNKS = 64 };

static struct world world;
static char path[128];

static void begin(const char *limit)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	setenv("SODA_TRACE", path, 1);
	if (limit)
		setenv("SODA_TRACE_LIMIT", limit, 1);
	cfg.server = world.address;
	cfg.buffer = "64M";
	cfg.prefetch_chunks = SODA_OFF;
	start(&cfg);
}

static struct soda_page_trace_head read_trace(uint64_t *records, size_t max, size_t *n_p)
{
	struct soda_page_trace_head head;
	FILE *in = fopen(path, "rb");

	assert_non_null(in);
	assert_int_equal(fread(&head, sizeof(head), 1, in), 1);
	*n_p = fread(records, sizeof(*records), max, in);
	fclose(in);
	assert_memory_equal(head.magic, SODA_PAGE_TRACE_MAGIC, sizeof(head.magic));
	assert_int_equal(head.version, SODA_PAGE_TRACE_VERSION);
	assert_int_equal(head.head_bytes, sizeof(head));
	assert_int_equal(head.chunk_bytes, CHUNK);
	return head;
}

static void is_record(uint64_t record, enum soda_page_trace_kind kind, unsigned object,
		      uint32_t chunk)
{
	assert_int_equal(soda_page_trace_kind(record), kind);
	assert_int_equal(soda_page_trace_object(record), object);
	assert_int_equal(soda_page_trace_chunk(record), chunk);
}

static void child_sequence(const void *arg)
{
	volatile char *a, *b;

	begin(NULL);
	a = alloc_checked(CHUNKS * CHUNK);
	b = alloc_checked(CHUNKS * CHUNK);
	CHECK_EQ(a[5 * CHUNK], 0);     /* the first touch, a load */
	CHECK_EQ(a[5 * CHUNK + 1], 0); /* resident: no record */
	a[5 * CHUNK] = 1;	       /* the first store */
	b[9 * CHUNK] = 2;	       /* both at once */
	CHECK_EQ(soda_advise((void *)a, CHUNKS * CHUNK, SODA_COLD), 0);
	CHECK_EQ(a[5 * CHUNK], 1); /* from the server */
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_sequence(void **state)
{
	uint64_t records[16];
	size_t n;

	expect_passes(child_sequence, NULL);
	assert_int_equal(read_trace(records, 16, &n).asked, 5);
	assert_int_equal(n, 5);
	is_record(records[0], SODA_PAGE_TRACE_ZERO, 1, 5);
	is_record(records[1], SODA_PAGE_TRACE_STORE, 1, 5);
	is_record(records[2], SODA_PAGE_TRACE_ZERO, 2, 9);
	is_record(records[3], SODA_PAGE_TRACE_STORE, 2, 9);
	is_record(records[4], SODA_PAGE_TRACE_FETCH, 1, 5);
}

/* Threads have numbers of their own; the file is cut at the end also where the program just ends.
 */
static void touch_share(void *arg, unsigned index)
{
	volatile char *a = arg;

	for (unsigned i = 0; i < CHUNKS / 2; i++)
		CHECK_EQ(a[(index * CHUNKS / 2 + i) * CHUNK], 0);
}

static void child_threads(const void *arg)
{
	begin(NULL);
	run_threads(2, touch_share, alloc_checked(CHUNKS * CHUNK));
	exit(0);
}

static void test_threads(void **state)
{
	uint64_t records[CHUNKS + 1];
	uint32_t next[2] = { 0, CHUNKS / 2 }, thread[2];
	bool known[2] = { false, false };
	struct stat st;
	size_t n;

	expect_passes(child_threads, NULL);
	read_trace(records, CHUNKS + 1, &n);
	assert_int_equal(n, CHUNKS);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, sizeof(struct soda_page_trace_head) + n * sizeof(records[0]));
	for (size_t i = 0; i < n; i++) {
		unsigned half = soda_page_trace_chunk(records[i]) >= CHUNKS / 2;

		is_record(records[i], SODA_PAGE_TRACE_ZERO, 1, next[half]++);
		if (!known[half])
			thread[half] = soda_page_trace_thread(records[i]);
		known[half] = true;
		assert_int_equal(soda_page_trace_thread(records[i]), thread[half]);
	}
	assert_int_not_equal(thread[0], thread[1]);
}

/* A limit of 4 KiB has room for 504 records: the rest is lost, and counted. */
static void child_full(const void *arg)
{
	volatile char *a;

	begin("4K");
	a = alloc_checked(600 * CHUNK);
	for (int i = 0; i < 600; i++)
		CHECK_EQ(a[i * CHUNK], 0);
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_full(void **state)
{
	const struct trial t = { .child = child_full };
	uint64_t records[600];
	struct outcome out;
	size_t n;

	trial_run(&t, &out);
	expect_exit(&out, 0);
	expect_one_line(&out, "504 of 600 records", "SODA_TRACE_LIMIT", NULL);
	assert_int_equal(read_trace(records, 600, &n).asked, 600);
	assert_int_equal(n, 504);
	is_record(records[503], SODA_PAGE_TRACE_ZERO, 1, 503);
}

/* Another process may be writing to a file that exists: it is left alone. */
static void child_exists(const void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	setenv("SODA_TRACE", path, 1);
	cfg.server = world.address;
	CHECK_EQ(soda_init(&cfg), -EEXIST);
	CHECK(strstr(soda_last_error(), path) && strstr(soda_last_error(), "SODA_TRACE"), "%s",
	      soda_last_error());
}

static void test_exists(void **state)
{
	struct stat st;
	FILE *f = fopen(path, "w");

	fputs("mine", f);
	fclose(f);
	expect_passes(child_exists, NULL);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 4);
}

static int set_up(void **state)
{
	world_open(&world, WORLD_DEFAULT, NULL);
	snprintf(path, sizeof(path), "%s/trace", world.dir);
	return 0;
}

static int tear_down(void **state)
{
	world_close(&world);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sequence, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_threads, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_full, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_exists, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
