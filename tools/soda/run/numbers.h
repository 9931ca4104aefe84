/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda run --report`.  What the program did is in memory that it shares (base/run.h), so that a
 * program that crashes has its page, too.  Its numbers are written as JSON (format soda-run;
 * tools/report reads it).
 */
#ifndef SODA_TOOL_RUN_NUMBERS_H
#define SODA_TOOL_RUN_NUMBERS_H

/*
 * Before the program starts: that its numbers can be written, and the memory for samples, which
 * the program finds by its environment.  Whether a page can be drawn does not keep it from
 * running.  path: of the page.  0, or -1 with one line on standard error.
 */
int soda_run_numbers_open(const char *path);
/*
 * Write its numbers and the page; without what that needs the numbers remain, and it is said how
 * the page is made.  argv: the program's; status: its exit status, or 128 + its signal.
 */
void soda_run_numbers_close(const char *path, char *const *argv, int status);

#endif
