/* SPDX-License-Identifier: BSD-3-Clause */
/* Members of JSON objects as the commands write and read them. */
#ifndef SODA_TOOL_JSON_H
#define SODA_TOOL_JSON_H

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void soda_json_set_count(json_t *into, const char *key, uint64_t value)
{
	json_object_set_new(into, key, json_integer((json_int_t)value));
}

/* null: not known, NAN. */
static inline void soda_json_set_real(json_t *into, const char *key, double value)
{
	json_object_set_new(into, key, isnan(value) ? json_null() : json_real(value));
}

/* null: there is none, NULL. */
static inline void soda_json_set_text(json_t *into, const char *key, const char *text)
{
	json_object_set_new(into, key, text ? json_string(text) : json_null());
}

/*
 * A string of any bytes, an argument or a path: JSON has text alone, so what is not, has '?' for
 * each byte beyond ASCII.
 */
static inline json_t *soda_json_text_of(const char *bytes)
{
	json_t *text = json_string(bytes);
	char *copy = text ? NULL : strdup(bytes);

	if (!copy)
		return text;
	for (char *c = copy; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	text = json_string(copy);
	free(copy);
	return text;
}

/* The words of a command, as soda_json_text_of() has each. */
static inline json_t *soda_json_command(char *const *argv)
{
	json_t *out = json_array();

	for (int i = 0; argv[i]; i++)
		json_array_append_new(out, soda_json_text_of(argv[i]));
	return out;
}

/* 0: it is not there. */
static inline uint64_t soda_json_count(const json_t *from, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(from, key));
}

/* "": it is not there. */
static inline const char *soda_json_text(const json_t *from, const char *key)
{
	const char *text = json_string_value(json_object_get(from, key));

	return text ? text : "";
}

/* Takes the reference; on standard output, with a line's end.  0, or -EIO. */
static inline int soda_json_print(json_t *all)
{
	int err = json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));

	json_decref(all);
	return err || putchar('\n') == EOF || fflush(stdout) ? -EIO : 0;
}

#endif
