/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/doctor/doctor.h"

enum {
	INDENT = 33,	/* of what is found: behind the verdict and the check's name */
	NARROWEST = 72, /* a terminal with fewer columns breaks lines itself */
};

static const char *const verdict_names[] = {
	[SODA_VERDICT_OK] = "ok",
	[SODA_VERDICT_NOTE] = "note",
	[SODA_VERDICT_WARNING] = "warning",
	[SODA_VERDICT_FAILURE] = "failure",
};

/* On a terminal: how a verdict begins. */
static const char *const colours[] = {
	[SODA_VERDICT_OK] = "\033[32m",
	[SODA_VERDICT_NOTE] = "",
	[SODA_VERDICT_WARNING] = "\033[33m",
	[SODA_VERDICT_FAILURE] = "\033[1;31m",
};

/* Columns of the terminal; 0: lines are not broken here. */
static unsigned terminal_columns(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		return 0;
	return size.ws_col < NARROWEST ? 0 : size.ws_col;
}

static bool is_coloured(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && (!no || !*no) && term && strcmp(term, "dumb");
}

static void print_finding(const struct soda_finding *f, unsigned columns, bool coloured)
{
	bool colour = coloured && *colours[f->verdict];

	printf("%s%-8s%s %-23s ", colour ? colours[f->verdict] : "", verdict_names[f->verdict],
	       colour ? "\033[m" : "", f->check);
	soda_tool_wrap(stdout, f->found, INDENT, columns);
	if (!*f->advice)
		return;
	printf("%*s-> ", INDENT, "");
	soda_tool_wrap(stdout, f->advice, INDENT + 3, columns);
}

/* The names of the checks with this verdict, one after the other. */
static void list_checks(const struct soda_findings *all, enum soda_verdict verdict)
{
	const char *before = ": ";

	for (size_t i = 0; i < all->n; i++) {
		if (all->list[i].verdict != verdict)
			continue;
		printf("%s%s", before, all->list[i].check);
		before = ", ";
	}
}

static bool is_verdict(const struct soda_findings *all, const char *check,
		       enum soda_verdict verdict)
{
	for (size_t i = 0; i < all->n; i++)
		if (!strcmp(all->list[i].check, check) && all->list[i].verdict == verdict)
			return true;
	return false;
}

static void print_summary(const struct soda_findings *all)
{
	enum soda_verdict worst = soda_findings_worst(all);

	printf("Programs %s fabric memory here",
	       is_verdict(all, "program.memory", SODA_VERDICT_FAILURE) ? "do not get" : "get");
	if (worst == SODA_VERDICT_WARNING)
		printf("; some are slow, or fail");
	else if (worst == SODA_VERDICT_FAILURE)
		printf("; what fails");
	if (worst >= SODA_VERDICT_WARNING)
		list_checks(all, worst);
	else
		printf(is_verdict(all, "kernel.batch", SODA_VERDICT_OK)
			       ? ", at full speed"
			       : "; evictions cost more than on Linux 6.13 and later");
	printf(".\n\n");
}

int soda_doctor_show(const struct soda_findings *all, bool quiet)
{
	size_t failures = soda_findings_count(all, SODA_VERDICT_FAILURE);
	size_t warnings = soda_findings_count(all, SODA_VERDICT_WARNING);
	int least = quiet ? SODA_VERDICT_WARNING : SODA_VERDICT_OK;
	unsigned columns = terminal_columns();
	bool coloured = is_coloured();

	if (!quiet)
		print_summary(all);
	for (int verdict = SODA_VERDICT_FAILURE; verdict >= least; verdict--)
		for (size_t i = 0; i < all->n; i++)
			if (all->list[i].verdict == (enum soda_verdict)verdict)
				print_finding(&all->list[i], columns, coloured);
	if (!quiet)
		printf("\n%zu checks: %zu failure%s, %zu warning%s\n", all->n, failures,
		       failures == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s");
	return fflush(stdout);
}

int soda_doctor_show_commands(const struct soda_findings *all)
{
	size_t shown = 0;

	for (int verdict = SODA_VERDICT_FAILURE; verdict >= SODA_VERDICT_NOTE; verdict--)
		for (size_t i = 0; i < all->n; i++) {
			const struct soda_finding *f = &all->list[i];

			if (f->verdict != (enum soda_verdict)verdict ||
			    (verdict == SODA_VERDICT_NOTE && !*f->command))
				continue;
			printf("# %s %s: %s\n", verdict_names[verdict], f->check, f->found);
			if (*f->command)
				printf("%s%s\n", verdict == SODA_VERDICT_NOTE ? "# " : "",
				       f->command);
			else if (*f->advice)
				printf("# no command: %s\n", f->advice);
			shown++;
		}
	if (!shown)
		puts("# nothing is missing");
	return fflush(stdout);
}

static json_t *checks_of(const struct soda_findings *all)
{
	json_t *checks = json_array();

	for (size_t i = 0; i < all->n; i++) {
		const struct soda_finding *f = &all->list[i];
		json_t *check = json_object();

		soda_json_set_text(check, "check", f->check);
		soda_json_set_text(check, "verdict", verdict_names[f->verdict]);
		json_object_set_new(check, "found", soda_json_text_of(f->found));
		soda_json_set_text(check, "advice", *f->advice ? f->advice : NULL);
		soda_json_set_text(check, "command", *f->command ? f->command : NULL);
		json_array_append_new(checks, check);
	}
	return checks;
}

int soda_doctor_show_json(const struct soda_findings *all)
{
	json_t *out = json_object();

	soda_json_set_text(out, "format", "soda-doctor");
	soda_json_set_count(out, "version", 1);
	json_object_set_new(out, "machine", soda_machine_describe());
	soda_json_set_text(out, "verdict", verdict_names[soda_findings_worst(all)]);
	soda_json_set_count(out, "failures", soda_findings_count(all, SODA_VERDICT_FAILURE));
	soda_json_set_count(out, "warnings", soda_findings_count(all, SODA_VERDICT_WARNING));
	json_object_set_new(out, "checks", checks_of(all));
	return soda_json_print(out);
}
