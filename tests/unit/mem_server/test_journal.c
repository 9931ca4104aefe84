/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The journal of sealed files: wherever a sync is broken off, what opens the file next finds all of
 * the content before it, or all of what it was to write.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "mem_server/files/journal.h"
#include "wire/sealed_file.h"

enum { PAGE = 4096, DATA_PAGES = 20 };

static const struct soda_journal_range ranges[] = {
	{ 0, 2 * PAGE },
	{ 65536, 3 * PAGE },
	{ 65536 + 10 * PAGE, 10 * PAGE },
};
enum { RANGES = sizeof(ranges) / sizeof(ranges[0]) };

static struct soda_sealed_layout layout;
static uint8_t *before, *after, *got;
static int fd;

static void header(uint8_t *page, uint64_t commits)
{
	struct soda_sealed_header h = { .cipher = 1,
					.bytes = DATA_PAGES * PAGE,
					.commits = commits };

	soda_sealed_put_header(page, &h);
}

static int setup(void **state)
{
	char path[] = "/tmp/soda-journal-XXXXXX";

	fd = mkstemp(path);
	unlink(path);
	soda_sealed_layout(DATA_PAGES * PAGE, &layout);
	before = malloc(layout.total);
	after = malloc(layout.total);
	got = malloc(layout.total);
	memset(before, 'b', layout.total);
	header(before, 1);
	memcpy(after, before, layout.total);
	for (int i = 0; i < RANGES; i++)
		memset(after + ranges[i].offset, 'a' - i, ranges[i].bytes);
	header(after, 2);
	return fd < 0;
}

static int teardown(void **state)
{
	free(before);
	free(after);
	free(got);
	return close(fd);
}

static void begin(void)
{
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, before, layout.total, 0), layout.total);
	assert_int_equal(soda_journal_write(fd, layout.total, after, ranges, RANGES), 0);
}

static off_t size(void)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_size;
}

static void expect(const uint8_t *content)
{
	uint64_t total = 0;
	struct soda_why why;

	assert_int_equal(soda_journal_look(fd, (uint64_t)size(), "file", &total, &why), 0);
	assert_int_equal(total, layout.total);
	assert_int_equal(soda_journal_recover(fd, total), 0);
	assert_int_equal(size(), layout.total);
	assert_int_equal(pread(fd, got, layout.total, 0), layout.total);
	assert_memory_equal(got, content, layout.total);
}

static void whole_journal_is_done_again(void **state)
{
	static uint8_t noise[PAGE];

	memset(noise, '?', sizeof(noise));
	begin();
	expect(after);
	/* and whatever the sync had got to of its places */
	for (int i = 0; i < RANGES; i++) {
		begin();
		for (uint64_t at = i ? 0 : PAGE; at < ranges[i].bytes; at += PAGE)
			assert_int_equal(pwrite(fd, noise, PAGE, (off_t)(ranges[i].offset + at)),
					 PAGE);
		expect(after);
	}
}

static void torn_journal_changes_nothing(void **state)
{
	off_t whole;

	begin();
	whole = size();
	for (off_t cut = (off_t)layout.total; cut < whole; cut += 1000) {
		begin();
		assert_int_equal(ftruncate(fd, cut), 0);
		expect(before);
	}
	for (off_t at = (off_t)layout.total; at < whole; at += 999) {
		/* of the trailer's page only the first 32 bytes count */
		off_t byte = at > whole - PAGE + 31 ? whole - PAGE + at % 32 : at;
		uint8_t b;

		begin();
		assert_int_equal(pread(fd, &b, 1, byte), 1);
		b ^= 1;
		assert_int_equal(pwrite(fd, &b, 1, byte), 1);
		expect(before);
	}
}

/* What a file is, and what is refused. */
static void files_are_told_apart(void **state)
{
	struct soda_why why = { "" };
	uint64_t total = 1;

	assert_int_equal(soda_journal_look(fd, 0, "file", &total, &why), 0);
	assert_int_equal(total, 0);
	assert_int_equal(soda_journal_make(fd), 0);
	assert_int_equal(soda_journal_look(fd, PAGE, "file", &total, &why), 0);
	assert_int_equal(total, 0);
	begin();
	assert_int_equal(soda_journal_look(fd, layout.total - 1, "file", &total, &why), -EINVAL);
	assert_non_null(strstr(why.text, "cut off"));
	assert_int_equal(pwrite(fd, "\xff", 1, 9), 1);
	assert_int_equal(soda_journal_look(fd, layout.total, "file", &total, &why), -EINVAL);
	assert_non_null(strstr(why.text, "damaged"));
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	assert_int_equal(soda_journal_look(fd, layout.total, "file", &total, &why), -EINVAL);
	assert_non_null(strstr(why.text, "not sealed"));
}

/* A whole journal whose ranges lie elsewhere: somebody else's. */
static void ranges_outside_are_refused(void **state)
{
	const struct soda_journal_range outside = { layout.total, PAGE };
	uint8_t *memory = calloc(1, layout.total + PAGE);

	begin();
	assert_int_equal(soda_journal_end(fd, layout.total), 0);
	assert_int_equal(soda_journal_write(fd, layout.total, memory, &outside, 1), 0);
	assert_int_equal(soda_journal_recover(fd, layout.total), -EINVAL);
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_journal_is_done_again),
		cmocka_unit_test(torn_journal_changes_nothing),
		cmocka_unit_test(files_are_told_apart),
		cmocka_unit_test(ranges_outside_are_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
