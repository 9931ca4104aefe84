/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda seal`: keys, and sealed files printed where they lie and by their server. */
#include <sys/stat.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { BYTES = 12000, DATA_AT = 65536 };

static struct world world;
static char key[100], other[100], file[128], content[BYTES + 1];

static void tool(const char *const *args, struct program *p)
{
	assert_int_equal(program_run("tools/soda/soda", args, p), 0);
}

static void expect_refused(const char *const *args, const char *word)
{
	struct program p;

	tool(args, &p);
	assert_int_equal(p.status, 1);
	if (!strstr(p.err, word))
		fail_msg("no '%s' in: %s", word, p.err);
}

static void child_makes(const void *arg)
{
	char *data;

	setenv("SODA_SERVER", world.address, 1);
	setenv("SODA_SEAL", "1", 1);
	setenv("SODA_SEAL_KEY_FILE", key, 1);
	data = soda_alloc_file("file", BYTES, SODA_WRITABLE | SODA_CREATE, NULL);
	CHECK(data, "%s", soda_last_error());
	memcpy(data, content, BYTES);
	soda_free(data);
}

static int setup(void **state)
{
	struct program p;
	struct stat st;

	snprintf(key, sizeof(key), "%s/key", world.dir);
	snprintf(other, sizeof(other), "%s/other", world.dir);
	snprintf(file, sizeof(file), "%s/file", world.export_dir);
	for (int i = 0; i < BYTES; i++)
		content[i] = (char)('a' + (i / 16 + i) % 26);
	tool((const char *const[]){ "seal", "key", key, NULL }, &p);
	assert_int_equal(p.status, 0);
	assert_int_equal(stat(key, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	tool((const char *const[]){ "seal", "key", "--json", other, NULL }, &p);
	assert_int_equal(p.status, 0);
	assert_non_null(strstr(p.out, "\"key_file\": \""));
	assert_non_null(strstr(p.out, other));
	expect_refused((const char *const[]){ "seal", "key", key, NULL }, "may need its key");
	expect_passes(child_makes, NULL);
	return 0;
}

static void test_prints(void **state)
{
	char address[200];
	struct program p;

	tool((const char *const[]){ "seal", "cat", file, "--key-file", key, NULL }, &p);
	assert_int_equal(p.status, 0);
	assert_string_equal(p.out, content);
	assert_string_equal(p.err, "");
	snprintf(address, sizeof(address), "%s/file", world.address);
	tool((const char *const[]){ "seal", "cat", address, "-k", key, NULL }, &p);
	assert_string_equal(p.err, "");
	assert_int_equal(p.status, 0);
	assert_string_equal(p.out, content);
	expect_refused((const char *const[]){ "seal", "cat", address, "-k", other, NULL },
		       "is sealed with the key");
	strcat(address, "none");
	expect_refused((const char *const[]){ "seal", "cat", address, "-k", key, NULL },
		       "filenone");
}

static void test_shows(void **state)
{
	struct program p;

	tool((const char *const[]){ "seal", "show", file, "-k", key, NULL }, &p);
	assert_int_equal(p.status, 0);
	assert_non_null(strstr(p.out, "bytes    12000\n"));
	assert_non_null(strstr(p.out, "root     "));
	tool((const char *const[]){ "seal", "show", "--json", file, "-k", key, NULL }, &p);
	assert_non_null(strstr(p.out, "\"commits\""));
}

static void test_refuses(void **state)
{
	struct program p;
	char address[200], *bytes = world_read_file(&world, "file", DATA_AT + 3 * 4096);

	expect_refused((const char *const[]){ "seal", "cat", file, "-k", other, NULL },
		       "is sealed with the key");
	expect_refused((const char *const[]){ "seal", "cat", key, "-k", key, NULL }, "cut off");
	expect_refused((const char *const[]){ "seal", "cat", "/none", "-k", key, NULL }, "No such");
	tool((const char *const[]){ "seal", "cat", file, NULL }, &p);
	assert_int_equal(p.status, 2);
	tool((const char *const[]){ "seal", "cat", "tcp://host", "-k", key, NULL }, &p);
	assert_int_equal(p.status, 2);

	/* the second block: the first one is printed, and nothing else */
	bytes[DATA_AT + 5000] ^= 1;
	world_write_file(&world, "file", bytes, DATA_AT + 3 * 4096);
	tool((const char *const[]){ "seal", "cat", file, "-k", key, NULL }, &p);
	assert_int_equal(p.status, 1);
	assert_int_equal(strlen(p.out), 4096);
	assert_memory_equal(p.out, content, 4096);
	assert_non_null(strstr(p.err, "bytes from 4096 on were changed"));
	snprintf(address, sizeof(address), "%s/file", world.address);
	expect_refused((const char *const[]){ "seal", "cat", address, "-k", key, NULL },
		       "what is there was changed");
	bytes[4096] ^= 1;
	world_write_file(&world, "file", bytes, DATA_AT + 3 * 4096);
	expect_refused((const char *const[]){ "seal", "show", file, "-k", key, NULL }, "table");
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_prints, setup),
		cmocka_unit_test(test_shows),
		cmocka_unit_test(test_refuses),
	};

	return WORLD_RUN("seal_tool", &world, true, tests);
}
