/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Format strings: https://arrow.apache.org/docs/format/CDataInterface.html; numbers of types and
 * what their tables have: Schema.fbs of the Arrow format.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "movement/arrow/schema.h"

enum { /* union Type */
       T_NULL = 1,
       T_INT,
       T_FLOAT,
       T_BINARY,
       T_UTF8,
       T_BOOL,
       T_DECIMAL,
       T_DATE,
       T_TIME,
       T_TIMESTAMP,
       T_INTERVAL,
       T_LIST,
       T_STRUCT,
       T_UNION,
       T_FIXED_BINARY,
       T_FIXED_LIST,
       T_MAP,
       T_DURATION,
       T_LARGE_BINARY,
       T_LARGE_UTF8,
       T_LARGE_LIST,
};

#define INT(bits, sign)                                                                            \
	{                                                                                          \
		SODA_ARROW_FIXED, (bits) / 8, T_INT, 2, { 4, 1 }, { bits, sign }, NULL             \
	}
#define ENUM(id, width, value)                                                                     \
	{                                                                                          \
		SODA_ARROW_FIXED, width, id, 1, { 2 }, { value }, NULL                             \
	}
#define TIME(unit, bits)                                                                           \
	{                                                                                          \
		SODA_ARROW_FIXED, (bits) / 8, T_TIME, 2, { 2, 4 }, { unit, bits }, NULL            \
	}
#define PLAIN(layout, width, id)                                                                   \
	{                                                                                          \
		layout, width, id, 0, { 0 }, { 0 }, NULL                                           \
	}

static const struct {
	const char *format;
	struct soda_arrow_type type;
} known[] = {
	{ "n", PLAIN(SODA_ARROW_NOTHING, 0, T_NULL) },
	{ "b", PLAIN(SODA_ARROW_BITS, 0, T_BOOL) },
	{ "c", INT(8, 1) },
	{ "C", INT(8, 0) },
	{ "s", INT(16, 1) },
	{ "S", INT(16, 0) },
	{ "i", INT(32, 1) },
	{ "I", INT(32, 0) },
	{ "l", INT(64, 1) },
	{ "L", INT(64, 0) },
	{ "e", ENUM(T_FLOAT, 2, 0) },
	{ "f", ENUM(T_FLOAT, 4, 1) },
	{ "g", ENUM(T_FLOAT, 8, 2) },
	{ "z", PLAIN(SODA_ARROW_VARIABLE, 4, T_BINARY) },
	{ "Z", PLAIN(SODA_ARROW_VARIABLE, 8, T_LARGE_BINARY) },
	{ "u", PLAIN(SODA_ARROW_VARIABLE, 4, T_UTF8) },
	{ "U", PLAIN(SODA_ARROW_VARIABLE, 8, T_LARGE_UTF8) },
	{ "tdD", ENUM(T_DATE, 4, 0) },
	{ "tdm", ENUM(T_DATE, 8, 1) },
	{ "tts", TIME(0, 32) },
	{ "ttm", TIME(1, 32) },
	{ "ttu", TIME(2, 64) },
	{ "ttn", TIME(3, 64) },
	{ "tDs", ENUM(T_DURATION, 8, 0) },
	{ "tDm", ENUM(T_DURATION, 8, 1) },
	{ "tDu", ENUM(T_DURATION, 8, 2) },
	{ "tDn", ENUM(T_DURATION, 8, 3) },
	{ "tiM", ENUM(T_INTERVAL, 4, 0) },
	{ "tiD", ENUM(T_INTERVAL, 8, 1) },
	{ "tin", ENUM(T_INTERVAL, 16, 2) },
	{ "+l", PLAIN(SODA_ARROW_LIST, 4, T_LIST) },
	{ "+L", PLAIN(SODA_ARROW_LIST, 8, T_LARGE_LIST) },
	{ "+s", PLAIN(SODA_ARROW_STRUCT, 0, T_STRUCT) },
	/* whether its keys are sorted, a flag of the schema says */
	{ "+m", { SODA_ARROW_LIST, 4, T_MAP, 1, { 1 }, { 0 }, NULL } },
};

/* A number from `min` to INT32_MAX, in decimal digits; *text then stands behind it. */
static bool take_number(const char **text, int64_t min, int32_t *value_p)
{
	char *end;
	bool minus = **text == '-';
	long long value;

	if ((*text)[minus] < '0' || (*text)[minus] > '9')
		return false;
	errno = 0;
	value = strtoll(*text, &end, 10);
	if (errno || value < min || value > INT32_MAX)
		return false;
	*text = end;
	*value_p = (int32_t)value;
	return true;
}

/* d:PRECISION,SCALE[,BITS] */
static int get_decimal(const char *text, struct soda_arrow_type *type_p)
{
	int32_t precision, scale, bits = 128;

	if (!take_number(&text, 1, &precision) || *text++ != ',' ||
	    !take_number(&text, INT32_MIN, &scale))
		return -EINVAL;
	if (*text == ',') {
		text++;
		if (!take_number(&text, 1, &bits))
			return -EINVAL;
	}
	if (*text || (bits != 32 && bits != 64 && bits != 128 && bits != 256))
		return -EINVAL;
	*type_p = (struct soda_arrow_type){ .layout = SODA_ARROW_FIXED,
					    .width = (uint32_t)bits / 8,
					    .id = T_DECIMAL,
					    .numbers = 3,
					    .bytes = { 4, 4, 4 },
					    .value = { precision, scale, bits } };
	return 0;
}

/* ts[smun]:ZONE, which may be empty */
static int get_timestamp(const char *text, struct soda_arrow_type *type_p)
{
	static const char units[] = "smun";
	const char *unit = *text ? strchr(units, *text) : NULL;

	if (!unit || text[1] != ':')
		return -EINVAL;
	*type_p = (struct soda_arrow_type){ .layout = SODA_ARROW_FIXED,
					    .width = 8,
					    .id = T_TIMESTAMP,
					    .numbers = 1,
					    .bytes = { 2 },
					    .value = { (int32_t)(unit - units) },
					    .zone = text[2] ? text + 2 : NULL };
	return 0;
}

/* w:BYTES, +w:ELEMENTS */
static int get_fixed(const char *text, enum soda_arrow_layout layout, uint8_t id, int64_t min,
		     struct soda_arrow_type *type_p)
{
	int32_t n;

	if (!take_number(&text, min, &n) || *text)
		return -EINVAL;
	*type_p = (struct soda_arrow_type){ .layout = layout,
					    .width = (uint32_t)n,
					    .id = id,
					    .numbers = 1,
					    .bytes = { 4 },
					    .value = { n } };
	return 0;
}

/* Types of the Arrow format that are not implemented here. */
static bool is_other(const char *format)
{
	static const char *const others[] = { "+r", "vz", "vu", "+vl", "+vL" };

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (!strcmp(format, others[i]))
			return true;
	return !strncmp(format, "+ud:", 4) || !strncmp(format, "+us:", 4);
}

int soda_arrow_type_get(const char *format, struct soda_arrow_type *type_p)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (!strcmp(format, known[i].format)) {
			*type_p = known[i].type;
			return 0;
		}
	}
	if (!strncmp(format, "d:", 2))
		return get_decimal(format + 2, type_p);
	if (!strncmp(format, "ts", 2))
		return get_timestamp(format + 2, type_p);
	if (!strncmp(format, "w:", 2))
		return get_fixed(format + 2, SODA_ARROW_FIXED, T_FIXED_BINARY, 0, type_p);
	if (!strncmp(format, "+w:", 3))
		return get_fixed(format + 3, SODA_ARROW_FIXED_LIST, T_FIXED_LIST, 0, type_p);
	return is_other(format) ? -ENOTSUP : -EINVAL;
}
