/* SPDX-License-Identifier: BSD-3-Clause */
/* The result of a run as a file, for a check by another process that has the memory for it. */
#ifndef LIGRA_RESULT_H
#define LIGRA_RESULT_H

#include "ligra/framework/app.h"

/* What an application computed: array has an entry for each vertex (struct app). */
struct result {
	const struct app *app;
	struct app_params params; /* iterations: those made */
	void *array;
};

size_t result_bytes(const struct app *app, uint64_t vertices);

/* 0; -EIO, -ENOSPC and the like. */
int result_write(const char *path, const struct graph *g, const struct result *r,
		 struct soda_graph_error *err);

/*
 * Into local memory; the caller frees r_p->array with free().  0; -EINVAL: not
 * a result, damaged, or of another graph; -EIO, -ENOMEM.
 */
int result_read(const char *path, const struct graph *g, struct result *r_p,
		struct soda_graph_error *err);

#endif
