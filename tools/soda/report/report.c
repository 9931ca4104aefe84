/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda report`: hands its arguments to the package that draws. */
#include <stdio.h>
#include <string.h>

#include "soda/base/tool.h"
#include "soda/report/make.h"

struct options {
	char *out;
};

static const struct soda_option option_table[] = {
	OPTION("out", 'o', STRING, out, .arg = "PAGE.html",
	       .help = "The page, if it is to have another name."),
};

static const struct soda_conf conf = {
	.program = "soda report",
	.summary = "pages, figures and tables from results",
	.args = "RESULTS.json...",
	.description = "Makes of results what people read, on any machine, at any time after they "
		       "were measured. Of results.json of soda eval: report.html beside it, and "
		       "figures/, SVG. Of the JSON that soda run --report writes: its page, of the "
		       "same name and .html. Of the JSON of soda bench fault or dpu: a table in "
		       "Markdown, on standard output; several files have one table. A page is one "
		       "file, light or dark as the reader has it, and can be printed.\n\n"
		       "Needs python3 with matplotlib and jinja2 (Debian: python3-matplotlib, "
		       "python3-jinja2). Results of another version of their format are refused.",
	.epilogue =
		".SH EXIT STATUS\n0 success, 1 results that cannot be read or a page that cannot "
		"be "
		"written, 2 wrong usage, 3 matplotlib or jinja2 is not installed, 127 python3 is "
		"not.\n"
		".SH SEE ALSO\n.BR soda (1),\n.BR soda\\-eval (1),\n.BR soda\\-run (1),\n"
		".BR soda\\-bench\\-fault (1),\n.BR soda\\-bench\\-dpu (1)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

enum { RESULTS_MAX = 32, PYTHON_MISSING = 127 };

int soda_command_report(int argc, char **argv)
{
	struct options opt = { 0 };
	const char *results[RESULTS_MAX];
	char *args[RESULTS_MAX + 4] = { argv[0] };
	int n = soda_tool_options(&conf, argc, argv, &opt, results, RESULTS_MAX), at = 1;

	if (n == 0)
		fputs("soda report: of which results? soda report RESULTS.json\n", stderr);
	if (n <= 0) {
		soda_conf_free(&conf, &opt);
		return SODA_EXIT_USAGE;
	}
	if (opt.out) {
		args[at++] = (char *)"--out";
		args[at++] = opt.out;
	}
	memcpy(&args[at], results, (size_t)n * sizeof(*results));
	soda_report_exec(args);
	soda_conf_free(&conf, &opt);
	return PYTHON_MISSING;
}
