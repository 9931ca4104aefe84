/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options from text: one function sets one value, and the four sources (defaults,
 * environment, INI file, flags) are loops around it; the last two are in file.c and flags.c.  Text
 * to number is in parse.c, --help and the man page in print.c.
 */
#include "base/conf/conf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int soda_conf_fail(struct soda_conf_error *err, int r, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	return r;
}

static bool owns_string(const struct soda_option *opt)
{
	return opt->type == SODA_OPT_STRING || opt->type == SODA_OPT_LIST;
}

static const struct soda_option *find(const struct soda_conf *conf, const char *name)
{
	for (size_t i = 0; i < conf->options_n; i++)
		if (!strcmp(conf->options[i].name, name))
			return &conf->options[i];
	return NULL;
}

/* What is expected as a value of the option, for messages. */
static const char *expected(const struct soda_option *opt)
{
	switch (opt->type) {
	case SODA_OPT_SIZE:
		return "a size in bytes such as 4096, 64K, 512M or 4G";
	case SODA_OPT_TIME_MS:
		return opt->allow_off ? "a time such as 250ms, 5s or 2m, or off"
				      : "a time such as 250ms, 5s or 2m";
	case SODA_OPT_UINT:
		return opt->allow_off ? "a whole number, or off" : "a whole number";
	default:
		return "yes or no";
	}
}

static int check_range(const struct soda_option *opt, const char *text, uint64_t value,
		       const char *source, struct soda_conf_error *err)
{
	char low[16], high[16];

	if (value >= opt->min && (!opt->max || value <= opt->max))
		return 0;
	if (opt->type == SODA_OPT_SIZE) {
		soda_format_size(opt->min, low);
		soda_format_size(opt->max, high);
	} else {
		snprintf(low, sizeof(low), "%llu", (unsigned long long)opt->min);
		snprintf(high, sizeof(high), "%llu", (unsigned long long)opt->max);
	}
	return soda_conf_fail(err, -EINVAL, "%s: %s: %s is out of range: at least %s%s%s%s%s",
			      source, opt->name, text, low, opt->max ? ", at most " : "",
			      opt->max ? high : "", opt->type == SODA_OPT_TIME_MS ? " ms" : "",
			      opt->allow_off ? ", or off" : "");
}

static int set_string(const struct soda_option *opt, const char *text, char **value, bool append,
		      struct soda_conf_error *err)
{
	char *copy;

	if (append && *value && **value) {
		if (asprintf(&copy, "%s,%s", *value, text) < 0)
			copy = NULL;
	} else {
		copy = strdup(text);
	}
	if (!copy)
		return soda_conf_fail(err, -ENOMEM, "%s: out of memory", opt->name);
	free(*value);
	*value = copy;
	return 0;
}

static int set_choice(const struct soda_option *opt, const char *text, uint32_t *value,
		      const char *source, struct soda_conf_error *err)
{
	char list[160] = "";

	for (uint32_t i = 0; opt->choices[i]; i++) {
		if (!strcmp(opt->choices[i], text)) {
			*value = i;
			return 0;
		}
		if (strlen(list) + strlen(opt->choices[i]) + 3 < sizeof(list)) {
			strcat(list, i ? ", " : "");
			strcat(list, opt->choices[i]);
		}
	}
	return soda_conf_fail(err, -EINVAL, "%s: %s: '%.60s' is none of %s", source, opt->name,
			      text, list);
}

static int parse_bool(const char *text, bool *value_p)
{
	static const char *const words[] = { "no", "yes", "off", "on", "false", "true", "0", "1" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcasecmp(words[i], text))
			continue;
		*value_p = i & 1;
		return 0;
	}
	return -EINVAL;
}

static int parse_uint(const char *text, uint32_t *value_p)
{
	uint64_t value;
	size_t n = strlen(text);
	int r;

	/* A bare number is a size without a unit. */
	if (!n || strspn(text, "0123456789") != n)
		return -EINVAL;
	r = soda_parse_size(text, &value);
	if (r || value >= UINT32_MAX)
		return r ? r : -ERANGE;
	*value_p = (uint32_t)value;
	return 0;
}

static int set_number(const struct soda_option *opt, const char *text, void *slot,
		      const char *source, struct soda_conf_error *err)
{
	uint64_t bytes = 0;
	uint32_t number = 0;
	int r;

	if (opt->allow_off && opt->type != SODA_OPT_SIZE && !strcasecmp(text, "off")) {
		*(uint32_t *)slot = UINT32_MAX;
		return 0;
	}
	if (opt->type == SODA_OPT_SIZE)
		r = soda_parse_size(text, &bytes);
	else if (opt->type == SODA_OPT_TIME_MS)
		r = soda_parse_time_ms(text, &number);
	else
		r = parse_uint(text, &number);
	if (r == -ERANGE)
		return soda_conf_fail(err, -EINVAL, "%s: %s: '%.60s' is too large", source,
				      opt->name, text);
	if (r)
		return soda_conf_fail(err, -EINVAL, "%s: %s: '%.60s' is not %s", source, opt->name,
				      text, expected(opt));
	r = check_range(opt, text, opt->type == SODA_OPT_SIZE ? bytes : number, source, err);
	if (r)
		return r;
	if (opt->type == SODA_OPT_SIZE)
		*(uint64_t *)slot = bytes;
	else
		*(uint32_t *)slot = number;
	return 0;
}

static int set(const struct soda_option *opt, const char *text, void *values, bool append,
	       const char *source, struct soda_conf_error *err)
{
	void *slot = (char *)values + opt->offset;

	switch (opt->type) {
	case SODA_OPT_STRING:
		if (opt->max && strlen(text) > opt->max)
			return soda_conf_fail(err, -EINVAL,
					      "%s: %s: %zu bytes are too many: at most %llu: "
					      "'%.60s...'",
					      source, opt->name, strlen(text),
					      (unsigned long long)opt->max, text);
		return set_string(opt, text, slot, false, err);
	case SODA_OPT_LIST:
		return set_string(opt, text, slot, append, err);
	case SODA_OPT_CHOICE:
		return set_choice(opt, text, slot, source, err);
	case SODA_OPT_BOOL:
		if (parse_bool(text, slot))
			return soda_conf_fail(err, -EINVAL, "%s: %s: '%.60s' is not %s", source,
					      opt->name, text, expected(opt));
		return 0;
	default:
		return set_number(opt, text, slot, source, err);
	}
}

int soda_conf_set(const struct soda_conf *conf, const char *name, const char *text, void *values,
		  const char *source, struct soda_conf_error *err)
{
	const struct soda_option *opt = find(conf, name);

	if (!opt)
		return soda_conf_fail(err, -EINVAL, "%s: unknown key '%.60s'", source, name);
	return set(opt, text, values, false, source, err);
}

int soda_conf_add(const struct soda_conf *conf, const char *name, const char *text, void *values,
		  const char *source, struct soda_conf_error *err)
{
	const struct soda_option *opt = find(conf, name);

	if (!opt)
		return soda_conf_fail(err, -EINVAL, "%s: unknown key '%.60s'", source, name);
	return set(opt, text, values, true, source, err);
}

static void clear(const struct soda_option *opt, void *values)
{
	void *slot = (char *)values + opt->offset;

	if (owns_string(opt))
		*(char **)slot = NULL;
	else if (opt->type == SODA_OPT_SIZE)
		*(uint64_t *)slot = 0;
	else if (opt->type == SODA_OPT_BOOL)
		*(bool *)slot = false;
	else
		*(uint32_t *)slot = 0;
}

int soda_conf_defaults(const struct soda_conf *conf, void *values, struct soda_conf_error *err)
{
	for (size_t i = 0; i < conf->options_n; i++)
		clear(&conf->options[i], values);
	for (size_t i = 0; i < conf->options_n; i++) {
		const struct soda_option *opt = &conf->options[i];
		int r = opt->def ? set(opt, opt->def, values, false, "default", err) : 0;

		if (r)
			return r;
	}
	return 0;
}

int soda_conf_environment(const struct soda_conf *conf, void *values, struct soda_conf_error *err)
{
	for (size_t i = 0; i < conf->options_n; i++) {
		const struct soda_option *opt = &conf->options[i];
		const char *text = opt->env ? getenv(opt->env) : NULL;
		int r = text && *text ? set(opt, text, values, false, opt->env, err) : 0;

		if (r)
			return r;
	}
	return 0;
}

void soda_conf_free(const struct soda_conf *conf, void *values)
{
	for (size_t i = 0; i < conf->options_n; i++) {
		const struct soda_option *opt = &conf->options[i];

		if (!owns_string(opt))
			continue;
		free(*(char **)((char *)values + opt->offset));
		clear(opt, values);
	}
}
