/* SPDX-License-Identifier: BSD-3-Clause */
/* Command-line flags: the option table as getopt_long() wants it. */
#include "base/conf/conf.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { /* beside the options' own values, which are their index + FIRST_OPTION */
       VAL_HELP = 256,
       VAL_VERSION,
       VAL_MAN,
       VAL_TABLE,
       FIRST_OPTION,
};

struct flags {
	const struct soda_conf *conf;
	struct option *longs;
	char *shorts;
	bool *seen; /* for each option: it was given before on this command line */
};

static void destroy(struct flags *flags)
{
	free(flags->longs);
	free(flags->shorts);
	free(flags->seen);
}

static int create(const struct soda_conf *conf, struct flags *flags)
{
	size_t n = conf->options_n, at = 0;
	char *letter;

	*flags = (struct flags){ .conf = conf };
	flags->longs = calloc(n + 5, sizeof(*flags->longs));
	flags->shorts = calloc(2 * n + 4, 1);
	flags->seen = calloc(n + 1, sizeof(*flags->seen));
	if (!flags->longs || !flags->shorts || !flags->seen) {
		destroy(flags);
		return -ENOMEM;
	}
	letter = stpcpy(flags->shorts,
			"+:h"); /* stop at a positional argument; ':' for a missing one */
	for (; at < n; at++) {
		const struct soda_option *opt = &conf->options[at];
		bool flag = opt->type == SODA_OPT_BOOL;

		flags->longs[at] =
			(struct option){ opt->name, flag ? optional_argument : required_argument,
					 NULL, FIRST_OPTION + (int)at };
		if (!opt->letter)
			continue;
		*letter++ = opt->letter;
		if (!flag)
			*letter++ = ':';
	}
	flags->longs[at++] = (struct option){ "help", no_argument, NULL, VAL_HELP };
	flags->longs[at++] = (struct option){ "version", no_argument, NULL, VAL_VERSION };
	flags->longs[at++] = (struct option){ "man", no_argument, NULL, VAL_MAN };
	/* no word, so that no abbreviation of an option becomes ambiguous by it */
	flags->longs[at] = (struct option){ ".table", no_argument, NULL, VAL_TABLE };
	return 0;
}

static const struct soda_option *find(const struct soda_conf *conf, int val)
{
	if (val >= FIRST_OPTION)
		return &conf->options[val - FIRST_OPTION];
	for (size_t i = 0; i < conf->options_n; i++)
		if (conf->options[i].letter == val)
			return &conf->options[i];
	return NULL;
}

static void print_and_exit(const struct soda_conf *conf, int val)
{
	if (val == VAL_VERSION)
		printf("%s %s\n", conf->program, SODA_VERSION);
	else if (val == VAL_MAN)
		soda_conf_man(conf, stdout);
	else if (val == VAL_TABLE)
		soda_conf_table(conf, stdout);
	else
		soda_conf_help(conf, stdout);
	exit(fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS);
}

static int complain(int val, char **argv, struct soda_conf_error *err)
{
	const char *given = argv[optind - 1];

	if (val == ':')
		snprintf(err->text, sizeof(err->text), "option '%.80s' needs a value; see --help",
			 given);
	else if (optopt && optopt < VAL_HELP)
		snprintf(err->text, sizeof(err->text), "unknown option '-%c'; see --help", optopt);
	else if (optopt)
		snprintf(err->text, sizeof(err->text), "option '%.80s' takes no value; see --help",
			 given);
	else
		snprintf(err->text, sizeof(err->text),
			 "unknown or ambiguous option '%.80s'; see --help", given);
	return -EINVAL;
}

/* Take one flag. A repeated list appends, another option replaces its earlier value. */
static int take(struct flags *flags, const struct soda_option *opt, void *values,
		struct soda_conf_error *err)
{
	bool *seen = &flags->seen[opt - flags->conf->options];
	int (*store)(const struct soda_conf *, const char *, const char *, void *, const char *,
		     struct soda_conf_error *) = *seen ? soda_conf_add : soda_conf_set;

	*seen = true;
	return store(flags->conf, opt->name, optarg ? optarg : "yes", values, "command line", err);
}

int soda_conf_flags(const struct soda_conf *conf, int argc, char **argv, void *values, int *first_p,
		    struct soda_conf_error *err)
{
	struct flags flags;
	int val, r = create(conf, &flags);

	snprintf(err->text, sizeof(err->text), "out of memory");
	optind = 0; /* glibc: start anew, because this may be the second reading */
	opterr = 0;
	while (!r && (val = getopt_long(argc, argv, flags.shorts, flags.longs, NULL)) != -1) {
		if (val == VAL_HELP || val == VAL_VERSION || val == VAL_MAN || val == VAL_TABLE ||
		    val == 'h')
			print_and_exit(conf, val);
		else if (val == '?' || val == ':')
			r = complain(val, argv, err);
		else
			r = take(&flags, find(conf, val), values, err);
	}
	destroy(&flags);
	if (!r)
		*first_p = optind;
	return r;
}
