/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More edges than fit into memory, into ascending order (from, to, weight): full
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
 * edges (8 bytes each, 16 if weighted), if they do not fit into `memory` bytes.  unique: equal
 * edges become one, the lightest of them.  0 or -ENOMEM.
 */
int soda_graph_sorter_create(const char *folder, size_t memory, bool unique, bool weighted,
			     struct soda_graph_sorter **sorter_p, struct soda_graph_error *err);

/*
 * No other call at the same time.  weights: of each edge, at least 0; NULL unless the sorter is
 * weighted.  0; -ENOMEM; -EIO, -ENOSPC and the like.
 */
int soda_graph_sorter_add(struct soda_graph_sorter *s, const struct soda_graph_edge *edges,
			  const double *weights, size_t count, struct soda_graph_error *err);

/* All edges have been added. 0; -ENOMEM; -EIO, -ENOSPC and the like. */
int soda_graph_sorter_finish(struct soda_graph_sorter *s, struct soda_graph_error *err);

/* How much of the merge is done. */
double soda_graph_sorter_fraction(const struct soda_graph_sorter *s);

/*
 * The next edges: how many, at most `max`; 0 at the end; -EIO.  weights receives theirs; NULL
 * unless the sorter is weighted.
 */
long soda_graph_sorter_next(struct soda_graph_sorter *s, struct soda_graph_edge *edges,
			    double *weights, size_t max, struct soda_graph_error *err);

/* Does nothing with NULL. */
void soda_graph_sorter_destroy(struct soda_graph_sorter *s);

/*
 * radix.c.  Sort by all threads, a byte at a time, bytes that are the same in all keys
 * for free.  A key is `words` numbers, 1 or 2, the first of which counts most.  Returns which of
 * `keys` and `spare`, each of `count` keys, holds the result.
 */
uint64_t *soda_graph_radix_sort(uint64_t *keys, uint64_t *spare, size_t count, unsigned words);

#endif
