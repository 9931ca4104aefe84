/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_REPORT_H
#define LIGRA_REPORT_H

#include "run.h"

struct report {
	const struct graph *g;
	const struct options *options;
	const struct result *result;
	struct measured measured;
	double load_seconds;
	uint64_t object_bytes; /* the most that was allocated at a time while it ran */
	bool verified;
};

/* One JSON object, one member a line.  0; -EIO, -ENOSPC and the like; -ENOMEM. */
int report_write(const char *path, const struct report *r, struct error *err);

#endif
