/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/scrape.h"

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAMILIES_MAX = 1024, SERIES_MAX = 65536, NAME_MAX_BYTES = 128 };

struct span {
	const char *at;
	size_t n;
};

struct check {
	unsigned line;
	const char *problem; /* the first, or NULL */
	char family[NAME_MAX_BYTES], type[16];
	bool helped, sampled;
	char *families[FAMILIES_MAX];
	unsigned families_n;
	struct span series[SERIES_MAX];
	unsigned series_n;
	/* of the histogram at hand */
	double last_le, last_count, count;
	bool has_sum, has_count;
	bool in_histogram;
};

static bool fail(struct check *c, const char *problem)
{
	if (!c->problem)
		c->problem = problem;
	return false;
}

static size_t name_length(const char *s, bool colon)
{
	size_t n = 0;

	while (isalnum((unsigned char)s[n]) || s[n] == '_' || (colon && s[n] == ':'))
		n++;
	return n && !isdigit((unsigned char)*s) ? n : 0;
}

static bool is_utf8_continuation(char byte)
{
	return (byte & 0xc0) == 0x80;
}

/* Escapes are \\, \n and, in labels, \"; anything else after a backslash is wrong. */
static bool escapes_are_right(struct check *c, const char *s, size_t n, bool quotes)
{
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)s[i] >= 0xc2 && !is_utf8_continuation(s[i + 1]))
			return fail(c, "text that is not UTF-8");
		if (s[i] != '\\')
			continue;
		i++;
		if (i == n || !(s[i] == '\\' || s[i] == 'n' || (quotes && s[i] == '"')))
			return fail(c, "wrong escape");
	}
	return true;
}

/* HELP and TYPE lines */

static bool take_help(struct check *c, const char *line)
{
	size_t n = name_length(line, true);

	if (!n || n >= NAME_MAX_BYTES || line[n] != ' ')
		return fail(c, "HELP without a name");
	for (unsigned i = 0; i < c->families_n; i++)
		if (strlen(c->families[i]) == n && !strncmp(c->families[i], line, n))
			return fail(c, "a family twice");
	if (c->families_n == FAMILIES_MAX)
		return fail(c, "too many families");
	if (c->helped && !c->sampled)
		return fail(c, "the family before has no samples");
	snprintf(c->family, sizeof(c->family), "%.*s", (int)n, line);
	c->families[c->families_n++] = strndup(line, n);
	*c->type = 0;
	c->helped = true;
	c->sampled = false;
	return line[n + 1] ? escapes_are_right(c, line + n, strlen(line + n), false)
			   : fail(c, "an empty HELP");
}

static bool take_type(struct check *c, const char *line)
{
	static const char *const types[] = { "counter", "gauge", "histogram" };
	size_t n = strlen(c->family);

	if (!c->helped || *c->type || c->sampled || strncmp(line, c->family, n) || line[n] != ' ')
		return fail(c, "TYPE is not right behind its HELP");
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(line + n + 1, types[i]))
			snprintf(c->type, sizeof(c->type), "%s", types[i]);
	if (!*c->type)
		return fail(c, "unknown type");
	if (!strcmp(c->type, "counter") && (n < 6 || strcmp(c->family + n - 6, "_total")))
		return fail(c, "a counter whose name does not end with _total");
	return true;
}

/* Samples */

/* {a="b",c="d"}: its length; le_p: the value of the label le. 0: wrong. */
static size_t labels_length(struct check *c, const char *s, struct span *le_p)
{
	const char *at = s + 1;

	*le_p = (struct span){ NULL, 0 };
	while (*at != '}') {
		size_t n = name_length(at, false), k = 0;

		if (!n || at[n] != '=' || at[n + 1] != '"')
			return fail(c, "a label without name or value");
		const char *value = at + n + 2;

		while (value[k] && value[k] != '"')
			k += value[k] == '\\' && value[k + 1] ? 2 : 1;
		if (value[k] != '"')
			return fail(c, "a label value without an end");
		if (!escapes_are_right(c, value, k, true))
			return 0;
		if (n == 2 && !strncmp(at, "le", 2))
			*le_p = (struct span){ value, k };
		at = value + k + 1;
		if (*at == ',' && at[1] != '}')
			at++;
		else if (*at != '}')
			return fail(c, "labels are not separated by commas");
	}
	return (size_t)(at - s) + 1;
}

static bool add_series(struct check *c, const char *line, size_t n)
{
	for (unsigned i = 0; i < c->series_n; i++)
		if (c->series[i].n == n && !strncmp(c->series[i].at, line, n))
			return fail(c, "a series twice");
	if (c->series_n == SERIES_MAX)
		return fail(c, "too many series");
	c->series[c->series_n++] = (struct span){ line, n };
	return true;
}

static bool parse_value(const char *text, double *value_p)
{
	char *end;

	if (!*text || isspace((unsigned char)*text))
		return false;
	*value_p = strtod(text, &end);
	return end != text && !*end;
}

static bool end_histogram(struct check *c)
{
	bool right = c->has_sum && c->has_count && isinf(c->last_le) && c->last_count == c->count;

	if (!c->in_histogram)
		return true;
	c->in_histogram = false;
	return right ? true : fail(c, "a histogram that is not whole");
}

static bool take_bucket(struct check *c, const struct span *le, double value)
{
	char text[64];
	double bound;

	if (c->in_histogram && c->has_count)
		end_histogram(c);
	if (!c->in_histogram) {
		c->in_histogram = true;
		c->has_sum = c->has_count = false;
		c->last_le = -INFINITY;
		c->last_count = 0;
	}
	if (!le->at)
		return fail(c, "a bucket without le");
	snprintf(text, sizeof(text), "%.*s", (int)le->n, le->at);
	if (!parse_value(text, &bound) || bound <= c->last_le)
		return fail(c, "buckets out of order");
	if (value < c->last_count)
		return fail(c, "buckets that are not cumulative");
	c->last_le = bound;
	c->last_count = value;
	return true;
}

static bool take_histogram(struct check *c, const char *rest, const struct span *le, double value)
{
	if (!strcmp(rest, "_bucket"))
		return take_bucket(c, le, value);
	if (!c->in_histogram || le->at)
		return fail(c, "a sum or count without buckets");
	if (!strcmp(rest, "_sum"))
		c->has_sum = true;
	else if (!strcmp(rest, "_count"))
		c->has_count = true, c->count = value;
	else
		return fail(c, "a sample of another name");
	return true;
}

static bool take_sample(struct check *c, const char *line)
{
	size_t n = name_length(line, true), family = strlen(c->family), labels = 0;
	struct span le = { NULL, 0 };
	char rest[NAME_MAX_BYTES];
	double value;

	if (!n)
		return fail(c, "neither a comment nor a sample");
	if (!*c->type || n < family || n - family >= sizeof(rest) ||
	    strncmp(line, c->family, family))
		return fail(c, "a sample outside of its family");
	snprintf(rest, sizeof(rest), "%.*s", (int)(n - family), line + family);
	if (line[n] == '{')
		labels = labels_length(c, line + n, &le);
	if (c->problem || !add_series(c, line, n + labels))
		return false;
	if (line[n + labels] != ' ' || !parse_value(line + n + labels + 1, &value))
		return fail(c, "a sample without a value");
	c->sampled = true;
	if (!strcmp(c->type, "histogram"))
		return take_histogram(c, rest, &le, value);
	if (*rest || le.at)
		return fail(c, "a sample of another name");
	if (!strcmp(c->type, "counter") && !(value >= 0))
		return fail(c, "a counter below zero");
	return true;
}

static bool take_line(struct check *c, const char *line)
{
	if (!strncmp(line, "# HELP ", 7))
		return end_histogram(c) && take_help(c, line + 7);
	if (!strncmp(line, "# TYPE ", 7))
		return take_type(c, line + 7);
	return take_sample(c, line);
}

int prom_check(const char *text)
{
	struct check *c = calloc(1, sizeof(*c));
	char *copy = strdup(text), *rest = copy, *line;
	size_t n = strlen(text);
	int samples;

	if (n && text[n - 1] == '\n')
		copy[n - 1] = 0;
	else
		fail(c, "no line feed at the end");
	while (!c->problem && (line = strsep(&rest, "\n"))) {
		c->line++;
		take_line(c, line);
	}
	if (!c->problem && (!end_histogram(c) || !c->sampled))
		fail(c, "the end comes too early");
	samples = c->problem ? -1 : (int)c->series_n;
	if (c->problem)
		fprintf(stderr, "line %u: %s\n", c->line, c->problem);
	for (unsigned i = 0; i < c->families_n; i++)
		free(c->families[i]);
	free(copy);
	free(c);
	return samples;
}

bool prom_value(const char *text, const char *series, double *value_p)
{
	size_t n = strlen(series);

	for (const char *line = text; line && *line;) {
		if (!strncmp(line, series, n) && line[n] == ' ') {
			*value_p = strtod(line + n + 1, NULL);
			return true;
		}
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return false;
}
