/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of the three agents: INI files, flags, values by name, and the library's settings.
 *   which table and what 8 | text: the file; or the flags, one a line; or NAME=VALUE lines
 */
#include <unistd.h>

#include "base/conf/conf.h"
#include "dpu_agent/base/options.h"
#include "fuzz/fuzz.h"
#include "host_agent/core/settings.h"
#include "mem_server/life/server.h"

enum { ARGS_MAX = 32 };

static const struct soda_conf *const tables[] = { &soda_server_conf, &soda_dpu_conf,
						  &soda_settings_conf };

union values {
	struct soda_server_options server;
	struct soda_dpu_options dpu;
	struct soda_settings settings;
};

/* What was said of an error is a sentence. */
static void check(int ret, const struct soda_conf_error *err)
{
	MUST(ret <= 0);
	MUST(memchr(err->text, 0, sizeof(err->text)));
	if (ret < 0)
		MUST(err->text[0]);
}

static void read_file(const struct soda_conf *conf, const struct fuzz_input *in,
		      union values *values)
{
	struct soda_conf_error err = { "" };
	char path[256];

	fuzz_write(fuzz_path("options.ini", path), in->at, in->left);
	check(soda_conf_file(conf, path, values, &err), &err);
}

/* --help and its like, however short: they print a page and end the program. */
static bool exits(const char *arg)
{
	static const char *const pages[] = { "--help", "--version", "--man", "--.table" };
	size_t n = strcspn(arg, "=");

	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++)
		if (n > 2 && !strncmp(arg, pages[i], n))
			return true;
	return arg[0] == '-' && arg[1] != '-' && strchr(arg, 'h');
}

static void read_flags(const struct soda_conf *conf, char *text, union values *values)
{
	struct soda_conf_error err = { "" };
	char *argv[ARGS_MAX + 2] = { (char *)(uintptr_t) "program" }, *rest = text;
	int argc = 1, first;

	while (argc <= ARGS_MAX && (argv[argc] = strsep(&rest, "\n")))
		argc += !exits(argv[argc]);
	argv[argc] = NULL;
	check(soda_conf_flags(conf, argc, argv, values, &first, &err), &err);
}

static void set_values(const struct soda_conf *conf, char *text, union values *values)
{
	char *rest = text, *line;

	while ((line = strsep(&rest, "\n"))) {
		struct soda_conf_error err = { "" };
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value++ = 0;
		for (size_t i = 0; i < conf->options_n; i++)
			if (!strcmp(conf->options[i].name, line))
				check(soda_conf_add(conf, line, value, values, "fuzz", &err), &err);
	}
}

/* The library's: strings of the struct that a program fills, one a line, then numbers. */
static void load_settings(char *text)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	const char **fields[] = { &cfg.server, &cfg.dpu, &cfg.buffer, &cfg.evict, &cfg.mechanisms };
	struct soda_settings settings;
	struct soda_why why = { "" };
	char *rest = text, *line;

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		line = strsep(&rest, "\n");
		*fields[i] = line && *line ? line : NULL;
	}
	line = strsep(&rest, "\n");
	if (line)
		sscanf(line, "%zu %u %u %u %u %u %u", &cfg.chunk_bytes, &cfg.mode, &cfg.on_error,
		       &cfg.threads, &cfg.evict_high_pct, &cfg.poll_us, &cfg.fault_timeout_ms);
	if (soda_settings_load(&cfg, &settings, &why) == 0)
		soda_settings_free(&settings);
	else
		MUST(why.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	uint8_t how = fuzz_u8(&in);
	const struct soda_conf *conf = tables[how / 4 % 3];
	struct soda_conf_error err = { "" };
	char *text = malloc(in.left + 1);
	union values values;

	MUST(text);
	if (in.left)
		memcpy(text, in.at, in.left);
	text[in.left] = 0;
	memset(&values, 0, sizeof(values));
	MUST(soda_conf_defaults(conf, &values, &err) == 0);
	switch (how % 4) {
	case 0:
		read_file(conf, &in, &values);
		break;
	case 1:
		read_flags(conf, text, &values);
		break;
	case 2:
		set_values(conf, text, &values);
		break;
	default:
		load_settings(text);
	}
	soda_conf_free(conf, &values);
	free(text);
	return 0;
}
