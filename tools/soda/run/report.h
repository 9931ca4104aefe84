/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda run --report`: a page about what the program did with fabric memory. */
#ifndef SODA_TOOL_RUN_REPORT_H
#define SODA_TOOL_RUN_REPORT_H

/*
 * Before the program starts: that its numbers can be written, and the memory for samples, which
 * the program finds by its environment.  Whether a page can be drawn does not keep it from
 * running.  0, or -1 with one line on standard error.
 */
int soda_run_report_open(const char *path);

/*
 * Run the program as a child that gets the signals of this process, and write its numbers and
 * the page; without what that needs the numbers remain, and it is said how the page is made.
 * Returns the exit status for `soda run`: the program's, or 128 + its signal.
 */
int soda_run_report_run(const char *path, const char *program, char **argv);

#endif
