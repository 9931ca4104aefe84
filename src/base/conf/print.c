/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the option table as --help, as a man page in roff (man macros), and for tools/completion.
 */
#include "base/conf/conf.h"

#include <ctype.h>
#include <string.h>

#define HELP_INDENT 28
#define HELP_WIDTH 80
#define ROFF_WIDTH 68

/* Print text from column `at` on, wrapped at HELP_WIDTH and indented by HELP_INDENT. */
static void print_wrapped(FILE *out, const char *text, size_t at)
{
	const char *gap = "";

	for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
		size_t n = strcspn(text, " ");

		if (at + 1 + n > HELP_WIDTH) {
			fprintf(out, "\n%*s", HELP_INDENT, "");
			at = HELP_INDENT;
			gap = "";
		}
		fprintf(out, "%s%.*s", gap, (int)n, text);
		at += strlen(gap) + n;
		text += n;
		gap = " ";
	}
}

static const char *argument(const struct soda_option *opt)
{
	return opt->arg ? opt->arg : "VALUE";
}

/* "-c, --capacity SIZE" */
static void format_flag(const struct soda_option *opt, char *out, size_t bytes)
{
	char letter[8] = "";

	if (opt->letter)
		snprintf(letter, sizeof(letter), "-%c, ", opt->letter);
	if (opt->type == SODA_OPT_BOOL)
		snprintf(out, bytes, "%s--%s", letter, opt->name);
	else
		snprintf(out, bytes, "%s--%s %s", letter, opt->name, argument(opt));
}

/* The option's choices and default, in brackets, or nothing. */
static void format_values(const struct soda_option *opt, char *out, size_t bytes)
{
	size_t used = 0;

	out[0] = 0;
	for (size_t i = 0; opt->type == SODA_OPT_CHOICE && opt->choices[i] && used < bytes; i++)
		used += (size_t)snprintf(out + used, bytes - used, "%s%s", i ? ", " : " (one of ",
					 opt->choices[i]);
	if (used && used < bytes)
		used += (size_t)snprintf(out + used, bytes - used, "%s", opt->def ? "; " : ")");
	if (opt->def && used < bytes)
		snprintf(out + used, bytes - used, "%sdefault %s)", used ? "" : " (", opt->def);
}

void soda_conf_help(const struct soda_conf *conf, FILE *out)
{
	char flag[80], values[200];

	fprintf(out, "Usage: %s [OPTION]...%s%s\n%s\n\nOptions:\n", conf->program,
		*conf->args ? " " : "", conf->args, conf->summary);
	for (size_t i = 0; i < conf->options_n; i++) {
		const struct soda_option *opt = &conf->options[i];

		format_flag(opt, flag, sizeof(flag));
		format_values(opt, values, sizeof(values));
		fprintf(out, "  %-*s", HELP_INDENT - 3, flag);
		if (strlen(flag) > HELP_INDENT - 3)
			fprintf(out, "\n%*s", HELP_INDENT, "");
		else
			putc(' ', out);
		print_wrapped(out, opt->help, HELP_INDENT);
		if (*values)
			fprintf(out, "\n%*s", HELP_INDENT, "");
		print_wrapped(out, values, HELP_INDENT);
		putc('\n', out);
	}
	fprintf(out, "  %-*s print this and exit\n", HELP_INDENT - 3, "-h, --help");
	fprintf(out, "  %-*s print the version and exit\n", HELP_INDENT - 3, "--version");
}

/* At the beginning of a line: keep roff from taking the word for a request. */
static void guard(FILE *out, const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", out);
}

/* Plain text to roff: hyphens are minus signs, lines are short. */
static void print_roff(FILE *out, const char *text)
{
	size_t column = 0;

	guard(out, text);
	for (; *text; text++, column++) {
		if (*text == '\n' && text[1] == '\n') {
			fputs("\n.PP\n", out);
			text++;
			column = 0;
			guard(out, text + 1);
		} else if (*text == ' ' && column + strcspn(text + 1, " \n") > ROFF_WIDTH) {
			putc('\n', out);
			column = 0;
			guard(out, text + 1);
		} else if (*text == '\\' || *text == '-') {
			fputs(*text == '-' ? "\\-" : "\\e", out);
			column++;
		} else {
			putc(*text, out);
		}
	}
}

/* The name of the page of "soda stat": soda-stat. */
static void page_name(const struct soda_conf *conf, char out[64])
{
	snprintf(out, 64, "%s", conf->program);
	for (; *out; out++)
		if (*out == ' ')
			*out = '-';
}

static void print_upper(FILE *out, const char *text)
{
	for (; *text; text++)
		putc(toupper((unsigned char)*text), out);
}

static void print_man_option(FILE *out, const struct soda_option *opt)
{
	char values[200];

	fputs(".TP\n", out);
	if (opt->letter)
		fprintf(out, "\\fB\\-%c\\fR, ", opt->letter);
	fputs("\\fB\\-\\-", out);
	print_roff(out, opt->name);
	if (opt->type != SODA_OPT_BOOL)
		fprintf(out, "\\fR \\fI%s", argument(opt));
	fputs("\\fR\n", out);
	print_roff(out, opt->help);
	format_values(opt, values, sizeof(values));
	if (*values) {
		putc('\n', out);
		print_roff(out, values + 1);
	}
	if (opt->env)
		fprintf(out, "\nEnvironment: \\fB%s\\fR.", opt->env);
	putc('\n', out);
}

void soda_conf_man(const struct soda_conf *conf, FILE *out)
{
	char name[64];

	page_name(conf, name);
	fputs(".TH ", out);
	print_upper(out, name);
	fprintf(out, " 1 \"\" \"SODA %s\" \"SODA\"\n.SH NAME\n", SODA_VERSION);
	print_roff(out, name);
	fputs(" \\- ", out);
	print_roff(out, conf->summary);
	fputs("\n.SH SYNOPSIS\n.B ", out);
	print_roff(out, conf->program);
	fputs("\n[\\fIOPTION\\fR]...\n", out);
	if (*conf->args) {
		print_roff(out, conf->args);
		putc('\n', out);
	}
	fputs(".SH DESCRIPTION\n", out);
	print_roff(out, conf->description);
	fputs("\n.SH OPTIONS\n", out);
	for (size_t i = 0; i < conf->options_n; i++)
		print_man_option(out, &conf->options[i]);
	fputs(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nPrint the options and exit.\n", out);
	fputs(".TP\n\\fB\\-\\-version\\fR\nPrint the version and exit.\n", out);
	if (conf->epilogue)
		fputs(conf->epilogue, out);
}

/* A field of the table: a tab or the end of a line would end it. */
static void print_field(FILE *out, const char *text)
{
	for (; *text; text++)
		putc(*text == '\t' || *text == '\n' ? ' ' : *text, out);
}

static void print_choices(FILE *out, const struct soda_option *opt)
{
	for (size_t i = 0; opt->choices && opt->choices[i]; i++) {
		fputs(i ? "," : "", out);
		print_field(out, opt->choices[i]);
	}
}

void soda_conf_table(const struct soda_conf *conf, FILE *out)
{
	static const char *const types[] = {
		[SODA_OPT_STRING] = "string", [SODA_OPT_LIST] = "list",
		[SODA_OPT_SIZE] = "size",     [SODA_OPT_TIME_MS] = "time",
		[SODA_OPT_UINT] = "number",   [SODA_OPT_CHOICE] = "choice",
		[SODA_OPT_BOOL] = "flag",
	};

	fprintf(out, "program\t%s\t%s\t", conf->program, conf->args);
	print_field(out, conf->summary);
	for (size_t i = 0; i < conf->options_n; i++) {
		const struct soda_option *opt = &conf->options[i];

		fprintf(out, "\noption\t%s\t%.1s\t%s\t%s\t", opt->name, &opt->letter,
			types[opt->type], opt->arg ? opt->arg : "");
		print_choices(out, opt);
		putc('\t', out);
		print_field(out, opt->help);
	}
	putc('\n', out);
}
