/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda run --stats`, of all processes. */
#ifndef SODA_TOOL_RUN_TABLE_H
#define SODA_TOOL_RUN_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tree/tree.h"

/*
 * Print on standard error what the processes did with fabric memory: of one all that it has told,
 * of several a table, a process a line, and the sum.  Where there was none: why, unless quiet.
 */
void soda_run_table(const struct soda_tree *tree, uint64_t threshold, uint64_t local, bool quiet);

#endif
