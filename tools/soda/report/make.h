/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages, figures and tables are made by a Python package (tools/report) of the JSON written here.
 */
#ifndef SODA_TOOL_REPORT_MAKE_H
#define SODA_TOOL_REPORT_MAKE_H

/*
 * Make the page of a file of results; its name goes to standard output.  0; -ENOENT: what that
 * needs is not installed here; -EIO: it failed.  Both after a message that says what to do, and
 * that the numbers are kept; who: its first words.  At most five minutes.
 */
int soda_report_make(const char *who, const char *json, const char *page);

/* Become the package, with these arguments, the first of which is a name; returns after a message.
 */
void soda_report_exec(char **argv);

#endif
