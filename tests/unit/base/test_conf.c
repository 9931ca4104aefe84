/* SPDX-License-Identifier: BSD-3-Clause */
/* Options: every type, every source, and what people mistype. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/conf/conf.h"

struct values {
	char *name;
	char *listen;
	uint64_t size;
	uint32_t time_ms;
	uint32_t count;
	uint32_t color;
	bool loud;
};

static const char *const colors[] = { "red", "green", NULL };

static const struct soda_option options[] = {
	{ .name = "name",
	  .letter = 'n',
	  .type = SODA_OPT_STRING,
	  .help = "A name.",
	  .offset = offsetof(struct values, name) },
	{ .name = "listen",
	  .type = SODA_OPT_LIST,
	  .arg = "ADDRESS",
	  .def = "nowhere",
	  .offset = offsetof(struct values, listen),
	  .help = "Addresses." },
	{ .name = "size",
	  .letter = 's',
	  .env = "SODA_TEST_SIZE",
	  .type = SODA_OPT_SIZE,
	  .arg = "SIZE",
	  .offset = offsetof(struct values, size),
	  .def = "1M",
	  .min = 4096,
	  .max = 1ull << 40,
	  .help = ".A size - with a leading dot and a \\ in it." },
	{ .name = "time",
	  .type = SODA_OPT_TIME_MS,
	  .offset = offsetof(struct values, time_ms),
	  .def = "5s",
	  .allow_off = 1,
	  .help = "A time." },
	{ .name = "count",
	  .type = SODA_OPT_UINT,
	  .offset = offsetof(struct values, count),
	  .def = "3",
	  .max = 10,
	  .allow_off = 1,
	  .help = "A count." },
	{ .name = "color",
	  .type = SODA_OPT_CHOICE,
	  .offset = offsetof(struct values, color),
	  .def = "green",
	  .choices = colors,
	  .help = "A color." },
	{ .name = "loud",
	  .type = SODA_OPT_BOOL,
	  .offset = offsetof(struct values, loud),
	  .help = "A switch." },
};

static const struct soda_conf conf = {
	.program = "prog",
	.summary = "try the options",
	.args = "[FILE]",
	.description = "One paragraph.\n\nAnother.",
	.epilogue = ".SH SEE ALSO\nnothing\n",
	.options = options,
	.options_n = sizeof(options) / sizeof(options[0]),
};

static struct values *defaults(void)
{
	static struct values v;
	struct soda_conf_error err;

	soda_conf_free(&conf, &v);
	assert_int_equal(soda_conf_defaults(&conf, &v, &err), 0);
	return &v;
}

static void check_sizes(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t bytes;
	} cases[] = {
		{ "0", 0, 0 },
		{ "100", 0, 100 },
		{ "100B", 0, 100 },
		{ "64K", 0, 65536 },
		{ "64k", 0, 65536 },
		{ "512MiB", 0, 512ull << 20 },
		{ "4GB", 0, 4ull << 30 },
		{ "2T", 0, 2ull << 40 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "16777215T", 0, 16777215ull << 40 },
		{ "16777216T", -ERANGE, 0 },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "99999999999T", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "12Q", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 },
		{ "1 ", -EINVAL, 0 },
		{ "K", -EINVAL, 0 },
		{ "1.5G", -EINVAL, 0 },
		{ "1/3", -EINVAL, 0 },
		{ "1Kx", -EINVAL, 0 },
		{ "0x10", -EINVAL, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t bytes = 7;

		assert_int_equal(soda_parse_size(cases[i].text, &bytes), cases[i].r);
		assert_int_equal(bytes, cases[i].r ? 7 : cases[i].bytes);
	}
}

static void check_times(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint32_t ms;
	} cases[] = {
		{ "5", 0, 5000 },
		{ "5s", 0, 5000 },
		{ "250ms", 0, 250 },
		{ "2m", 0, 120000 },
		{ "1h", 0, 3600000 },
		{ "0", 0, 0 },
		{ "4294967294ms", 0, 4294967294u },
		{ "4294967295ms", -ERANGE, 0 },
		{ "99999999999999999999s", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "s", -EINVAL, 0 },
		{ "-1s", -EINVAL, 0 },
		{ "5 s", -EINVAL, 0 },
		{ "5us", -EINVAL, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t ms = 7;

		assert_int_equal(soda_parse_time_ms(cases[i].text, &ms), cases[i].r);
		assert_int_equal(ms, cases[i].r ? 7 : cases[i].ms);
	}
}

static void check_format(void **state)
{
	char out[16];

	assert_string_equal(soda_format_size(0, out), "0 B");
	assert_string_equal(soda_format_size(1023, out), "1023 B");
	assert_string_equal(soda_format_size(1536, out), "1.5 KiB");
	assert_string_equal(soda_format_size(4ull << 30, out), "4 GiB");
	assert_string_equal(soda_format_size(UINT64_MAX, out), "15.9 EiB");
}

static void check_defaults(void **state)
{
	struct values *v = defaults();

	assert_null(v->name);
	assert_string_equal(v->listen, "nowhere");
	assert_int_equal(v->size, 1 << 20);
	assert_int_equal(v->time_ms, 5000);
	assert_int_equal(v->count, 3);
	assert_int_equal(v->color, 1);
	assert_false(v->loud);
}

static void check_bad_values(void **state)
{
	static const struct {
		const char *name, *text, *says;
	} cases[] = {
		{ "size", "12Q", "test: size: '12Q' is not a size in bytes" },
		{ "size", "", "test: size: '' is not" },
		{ "size", "-1", "test: size: '-1' is not" },
		{ "size", "99999999999T", "too large" },
		{ "size", "1K", "at least 4 KiB, at most 1 TiB" },
		{ "size", "2T", "at least 4 KiB, at most 1 TiB" },
		{ "size", "off", "is not a size" },
		{ "time", "soon", "a time such as" },
		{ "count", "11", "at most 10" },
		{ "count", "1K", "whole number" },
		{ "count", "4294967295", "too large" },
		{ "color", "blue", "none of red, green" },
		{ "loud", "perhaps", "yes or no" },
		{ "colour", "red", "unknown key 'colour'" },
	};
	struct values *v = defaults();
	struct soda_conf_error err;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(
			soda_conf_set(&conf, cases[i].name, cases[i].text, v, "test", &err),
			-EINVAL);
		if (!strstr(err.text, cases[i].says))
			fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
	}
	assert_int_equal(v->size, 1 << 20);
}

static void check_off(void **state)
{
	struct values *v = defaults();
	struct soda_conf_error err;

	assert_int_equal(soda_conf_set(&conf, "time", "off", v, "test", &err), 0);
	assert_int_equal(soda_conf_set(&conf, "count", "off", v, "test", &err), 0);
	assert_int_equal(v->time_ms, UINT32_MAX);
	assert_int_equal(v->count, UINT32_MAX);
}

static void check_environment(void **state)
{
	struct values *v = defaults();
	struct soda_conf_error err;

	setenv("SODA_TEST_SIZE", "8K", 1);
	assert_int_equal(soda_conf_environment(&conf, v, &err), 0);
	assert_int_equal(v->size, 8192);
	setenv("SODA_TEST_SIZE", "", 1);
	assert_int_equal(soda_conf_environment(&conf, v, &err), 0);
	assert_int_equal(v->size, 8192);
	setenv("SODA_TEST_SIZE", "much", 1);
	assert_int_equal(soda_conf_environment(&conf, v, &err), -EINVAL);
	assert_non_null(strstr(err.text, "SODA_TEST_SIZE"));
	unsetenv("SODA_TEST_SIZE");
}

/* One slip of a finger is told; another name, and the right one, are not. */
static void check_misspelt(void **state)
{
	static const char *const slips[] = { "SODA_TEST_SIZ", "SODA_TEST_SIZEE", "SODA_TEST_SISE",
					     "SODA_TEST_SIEZ" };
	static const char *const others[] = { "SODA_TEST_SIZE", "SODA_TEST_SIGHT", "SODA_TEST",
					      "SODA_TEST_SIZE_OF_ALL_THAT_IS_THERE_OR_WILL_BE" };
	const char *given = NULL;
	int length = 0;

	for (size_t i = 0; i < sizeof(slips) / sizeof(slips[0]); i++) {
		setenv(slips[i], "1G", 1);
		assert_string_equal(soda_conf_misspelt(&conf, &given, &length), "SODA_TEST_SIZE");
		assert_int_equal(length, strlen(slips[i]));
		assert_memory_equal(given, slips[i], (size_t)length);
		unsetenv(slips[i]);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		setenv(others[i], "1G", 1);
		assert_null(soda_conf_misspelt(&conf, &given, &length));
		unsetenv(others[i]);
	}
}

static int flags(struct values *v, struct soda_conf_error *err, int *first_p, const char **argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	return soda_conf_flags(&conf, argc, (char **)argv, v, first_p, err);
}
#define FLAGS(v, err, first_p, ...)                                                                \
	flags(v, err, first_p, (const char *[]){ "prog", __VA_ARGS__, NULL })

static void check_flags(void **state)
{
	struct values *v = defaults();
	struct soda_conf_error err;
	int first = 0;

	assert_int_equal(FLAGS(v, &err, &first, "-n", "x", "--size=64K", "--loud", "--listen", "a",
			       "--listen=b,c", "file", "--count=9"),
			 0);
	assert_int_equal(first, 8);
	assert_string_equal(v->name, "x");
	assert_string_equal(v->listen, "a,b,c");
	assert_int_equal(v->size, 65536);
	assert_int_equal(v->count, 3);
	assert_true(v->loud);
	assert_int_equal(FLAGS(v, &err, &first, "--loud=no", "-s8K"), 0);
	assert_false(v->loud);
	assert_int_equal(v->size, 8192);
}

static void check_bad_flags(void **state)
{
	struct values *v = defaults();
	struct soda_conf_error err;
	int first = 0;

	assert_int_equal(FLAGS(v, &err, &first, "--frobnicate"), -EINVAL);
	assert_non_null(strstr(err.text, "'--frobnicate'"));
	assert_int_equal(FLAGS(v, &err, &first, "-x"), -EINVAL);
	assert_non_null(strstr(err.text, "'-x'"));
	assert_int_equal(FLAGS(v, &err, &first, "--size"), -EINVAL);
	assert_non_null(strstr(err.text, "needs a value"));
	assert_int_equal(FLAGS(v, &err, &first, "--help=me"), -EINVAL);
	assert_non_null(strstr(err.text, "takes no value"));
	assert_int_equal(FLAGS(v, &err, &first, "--size", "12Q"), -EINVAL);
	assert_non_null(strstr(err.text, "command line: size: '12Q'"));
}

/* Load `text` as an INI file. */
static int load(const char *text, struct values *v, struct soda_conf_error *err)
{
	char path[] = "/tmp/soda-test-conf-XXXXXX";
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	r = soda_conf_file(&conf, path, v, err);
	unlink(path);
	return r;
}

static void check_file(void **state)
{
	struct values *v = defaults();
	struct soda_conf_error err;

	assert_int_equal(load("# comment\n; another\nsize = 64K\n[prog]\n  count=7 ; inline\n"
			      "loud: yes\nlisten = a\nlisten = b\nname =\n",
			      v, &err),
			 0);
	assert_int_equal(v->size, 65536);
	assert_int_equal(v->count, 7);
	assert_true(v->loud);
	assert_string_equal(v->listen, "a,b");
	assert_string_equal(v->name, "");
}

static void check_bad_files(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "size = 64K\n\nsiez = 3\n", ":3: unknown key 'siez'" },
		{ "\nsize = 12Q\n", ":2: size: '12Q'" },
		{ "[other]\nsize = 64K\n", ":2: unknown section [other]" },
		{ "size = 64K\nnonsense\n", ":2: expected 'key = value'" },
		{ "nonsense\nsize = 12Q\n", "" },
		{ "[prog\nsize = 64K\n", ":1: expected" },
	};
	struct soda_conf_error err;
	char longest[4096];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(load(cases[i].text, defaults(), &err), -EINVAL);
		if (!strstr(err.text, cases[i].says))
			fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
	}
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	memcpy(longest, "name=", 5);
	assert_int_equal(load(longest, defaults(), &err), -EINVAL);
	assert_non_null(strstr(err.text, ":1: line is longer"));
	assert_int_equal(soda_conf_file(&conf, "/nonexistent/soda.ini", defaults(), &err), -ENOENT);
	assert_non_null(strstr(err.text, "/nonexistent/soda.ini"));
}

static void check_print(void **state)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	soda_conf_help(&conf, out);
	fflush(out);
	assert_non_null(strstr(text, "-s, --size SIZE"));
	assert_non_null(strstr(text, "(default 1M)"));
	assert_non_null(strstr(text, "(one of red, green; default green)"));
	rewind(out);
	soda_conf_man(&conf, out);
	fclose(out);
	assert_non_null(strstr(text, "\n\\&.A size \\- with a leading dot and a \\e in it."));
	assert_non_null(strstr(text, ".SH SEE ALSO"));
	free(text);
}

/* What shells are told: each line has its fields, whatever is in them. */
static void check_table(void **state)
{
	static const char *const lines[] = {
		"program\tprog\t[FILE]\ttry the options\n",
		"\noption\tname\tn\tstring\t\t\tA name.\n",
		"\noption\tlisten\t\tlist\tADDRESS\t\tAddresses.\n",
		"\noption\tsize\ts\tsize\tSIZE\t\t.A size",
		"\noption\tcolor\t\tchoice\t\tred,green\tA color.\n",
		"\noption\tloud\t\tflag\t\t\tA switch.\n",
	};
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	soda_conf_table(&conf, out);
	fclose(out);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		if (!strstr(text, lines[i]))
			fail_msg("no line %s in %s", lines[i], text);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_sizes),	     cmocka_unit_test(check_times),
		cmocka_unit_test(check_format),	     cmocka_unit_test(check_defaults),
		cmocka_unit_test(check_bad_values),  cmocka_unit_test(check_off),
		cmocka_unit_test(check_environment), cmocka_unit_test(check_misspelt),
		cmocka_unit_test(check_flags),	     cmocka_unit_test(check_bad_flags),
		cmocka_unit_test(check_file),	     cmocka_unit_test(check_bad_files),
		cmocka_unit_test(check_print),	     cmocka_unit_test(check_table),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	defaults();
	return failed;
}
