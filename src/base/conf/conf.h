/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One table of options per program defines its environment variables, its
 * flags, its INI keys, its --help and its man page.  Values land in a struct of
 * the program's, at the option's offset.  Later sources win, in the order in
 * which the program applies them: defaults, INI file, environment, flags.
 */
#ifndef SODA_BASE_CONF_H
#define SODA_BASE_CONF_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum soda_option_type {
	SODA_OPT_STRING,  /* char *, owned by the struct (soda_conf_free) */
	SODA_OPT_LIST,	  /* the same, separated by commas: given again in one source, it appends */
	SODA_OPT_SIZE,	  /* uint64_t bytes: "4G", "64K", "512MiB", "100" */
	SODA_OPT_TIME_MS, /* uint32_t milliseconds: "5s", "250ms", "2m"; bare number: seconds */
	SODA_OPT_UINT,	  /* uint32_t */
	SODA_OPT_CHOICE,  /* uint32_t: index into choices */
	SODA_OPT_BOOL,	  /* bool: yes/no/on/off/true/false/1/0; as a flag: no argument needed */
};

struct soda_option {
	const char *name; /* "buffer": flag --buffer, INI key buffer */
	char letter;	  /* short flag, or 0 */
	const char *env;  /* "SODA_BUFFER", or NULL */
	enum soda_option_type type;
	size_t offset;		    /* of the value in the program's struct */
	const char *arg;	    /* "SIZE", for --help */
	const char *def;	    /* default, as text; NULL: none (NULL, 0) */
	uint64_t min, max;	    /* of numbers, of bytes of a string; max 0: no limit */
	const char *const *choices; /* NULL-terminated: of SODA_OPT_CHOICE all that there are, of
				       others words that a shell offers */
	int allow_off;	  /* "off" is accepted, and stored as UINT32_MAX (uint32_t types) */
	const char *help; /* one or two sentences */
};

struct soda_conf {
	const char *program;	 /* "soda-mem-server" */
	const char *summary;	 /* one line */
	const char *args;	 /* synopsis of positional arguments, or "" */
	const char *description; /* a paragraph or more, separated by "\n\n" */
	const char *epilogue;	 /* man page only: roff sections appended, or NULL */
	const struct soda_option *options;
	size_t options_n;
};

/* A message for the user: which option, what was given, what is expected. */
struct soda_conf_error {
	char text[256];
};

/*
 * Each of these fills the program's struct at `values` from one source.  0; -EINVAL, with a
 * message; -ENOMEM; of a file, the error of opening it.  An empty environment variable counts as
 * unset.
 */
int soda_conf_defaults(const struct soda_conf *conf, void *values, struct soda_conf_error *err);
int soda_conf_environment(const struct soda_conf *conf, void *values, struct soda_conf_error *err);
/* An INI file: keys without a section or in [program]; an unknown key is an error. */
int soda_conf_file(const struct soda_conf *conf, const char *path, void *values,
		   struct soda_conf_error *err);
/*
 * Flags by getopt_long: --help and --version print and exit 0; --man prints the
 * man page, --.table the table (build time).  *first_p: index of the first positional argument in
 * argv.  Stops at the first positional argument.
 */
int soda_conf_flags(const struct soda_conf *conf, int argc, char **argv, void *values, int *first_p,
		    struct soda_conf_error *err);
/* Set one option by its name. source: where the text comes from, for the message. */
int soda_conf_set(const struct soda_conf *conf, const char *name, const char *text, void *values,
		  const char *source, struct soda_conf_error *err);
/* The same, but a SODA_OPT_LIST is appended to. */
int soda_conf_add(const struct soda_conf *conf, const char *name, const char *text, void *values,
		  const char *source, struct soda_conf_error *err);
/* Write a message to err; returns r. */
int soda_conf_fail(struct soda_conf_error *err, int r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * misspelt.c.  A variable of the environment that is none of the options' and nearly one, as
 * SODA_BUFER: an unknown flag is an error, an unknown variable may be another program's.  Returns
 * the option's, and of the other *given_p and its *length_p; NULL: there is none.
 */
const char *soda_conf_misspelt(const struct soda_conf *conf, const char **given_p, int *length_p);
/* Free the strings at `values`. */
void soda_conf_free(const struct soda_conf *conf, void *values);
/* Print --help, and the man page in roff. */
void soda_conf_help(const struct soda_conf *conf, FILE *out);
void soda_conf_man(const struct soda_conf *conf, FILE *out);
/*
 * Print the table for tools/completion, which makes of it what shells offer: lines of fields that
 * tabs separate, "program", its name, positional arguments and summary; for each option "option",
 * its name, letter, type, argument, choices with commas between them, and help.
 */
void soda_conf_table(const struct soda_conf *conf, FILE *out);

/* "4G" -> bytes; powers of 1024; K M G T, optional B or iB. 0, -EINVAL, -ERANGE. */
int soda_parse_size(const char *text, uint64_t *bytes_p);
/* "5s" -> ms. 0, -EINVAL, -ERANGE. */
int soda_parse_time_ms(const char *text, uint32_t *ms_p);
/* 1536 -> "1.5 KiB" into out; returns out. */
char *soda_format_size(uint64_t bytes, char out[16]);

#endif
