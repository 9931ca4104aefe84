/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More edges than fit into memory, into ascending order (from, to): full
 * buffers are sorted by all threads and spilled as runs, which are merged in
 * the end.  However the edges lie, memory stays what was allowed.
 *
 *	filling --finish--> merging
 */
#ifndef SODA_GRAPH_SORT_H
#define SODA_GRAPH_SORT_H

#include <stddef.h>
#include <stdint.h>

#include "graph/format/source.h"

struct soda_graph_sorter;

/*
 * folder: where a temporary file without a name may be made, as large as the
 * edges (8 bytes each), if they do not fit into `memory` bytes.  unique: equal
 * edges become one.  0 or -ENOMEM.
 */
int soda_graph_sorter_create(const char *folder, size_t memory, bool unique,
			     struct soda_graph_sorter **sorter_p, struct soda_graph_error *err);

/* No other call at the same time.  0; -ENOMEM; -EIO, -ENOSPC and the like. */
int soda_graph_sorter_add(struct soda_graph_sorter *s, const struct soda_graph_edge *edges,
			  size_t count, struct soda_graph_error *err);

/* All edges have been added. 0; -ENOMEM; -EIO, -ENOSPC and the like. */
int soda_graph_sorter_finish(struct soda_graph_sorter *s, struct soda_graph_error *err);

/* How much of the merge is done. */
double soda_graph_sorter_fraction(const struct soda_graph_sorter *s);

/* The next edges: how many, at most `max`; 0 at the end; -EIO. */
long soda_graph_sorter_next(struct soda_graph_sorter *s, struct soda_graph_edge *edges, size_t max,
			    struct soda_graph_error *err);

/* Does nothing with NULL. */
void soda_graph_sorter_destroy(struct soda_graph_sorter *s);

/*
 * radix.c.  Sort by all threads, a byte at a time, bytes that are the same in all keys
 * for free.  Returns which of `keys` and `spare`, each of `count`, holds the
 * result.
 */
uint64_t *soda_graph_radix_sort(uint64_t *keys, uint64_t *spare, size_t count);

#endif
