/* SPDX-License-Identifier: BSD-3-Clause */
/* What the commands share: their options. */
#include "soda/base/tool.h"

static int complain(const struct soda_conf *conf, const char *text)
{
	fprintf(stderr, "%s: %s\n", conf->program, text);
	return -1;
}

int soda_tool_options(const struct soda_conf *conf, int argc, char **argv, void *values,
		      const char **args, int max)
{
	struct soda_conf_error err;
	int first, n = 0;

	if (soda_conf_defaults(conf, values, &err) || soda_conf_environment(conf, values, &err))
		return complain(conf, err.text);
	for (;;) { /* flags, one positional argument, flags, ... */
		if (soda_conf_flags(conf, argc, argv, values, &first, &err))
			return complain(conf, err.text);
		if (first >= argc)
			return n;
		if (n == max) {
			snprintf(err.text, sizeof(err.text),
				 "unexpected argument '%.80s'; see --help", argv[first]);
			return complain(conf, err.text);
		}
		args[n++] = argv[first];
		argc -= first;
		argv += first;
	}
}
