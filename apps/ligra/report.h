/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_REPORT_H
#define LIGRA_REPORT_H

#include "ligra/run.h"

struct report {
	const struct graph *g;
	const struct result *result;
	struct measured measured;
	double load_seconds;
	const struct mem *arrays; /* `peak` is what the application had at a time */
	bool verified;
};

/* One JSON object, one member a line.  0; -EIO, -ENOSPC and the like; -ENOMEM. */
int report_write(const char *path, const struct report *r, struct soda_graph_error *err);

#endif
