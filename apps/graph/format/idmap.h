/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ids of an edge list, which may begin anywhere and have gaps, to vertices
 * 0, 1, 2 ... in the same order.  A bitmap with ranks, in pages that exist
 * where ids do: 1.5 bits an id in use, whatever the number of edges; always in
 * local memory.
 */
#ifndef SODA_GRAPH_IDMAP_H
#define SODA_GRAPH_IDMAP_H

#include "graph/format/source.h"

#include <stdint.h>

struct soda_graph_idmap_page;

struct soda_graph_idmap {
	struct soda_graph_idmap_page **pages; /* by id / ids of a page; NULL: none of them occurs */
	uint64_t count;			      /* ids that occur; after soda_graph_idmap_finish() */
};

/* An empty map.  0 or -ENOMEM. */
int soda_graph_idmap_create(struct soda_graph_idmap *map_p, struct soda_graph_error *err);

/* NULL pages are a no-op. */
void soda_graph_idmap_destroy(struct soda_graph_idmap *map);

/* Note that an id occurs.  0 or -ENOMEM. */
int soda_graph_idmap_add(struct soda_graph_idmap *map, uint32_t id, struct soda_graph_error *err);

/* No id comes after this.  0; -ERANGE: more vertices than can be numbered. */
int soda_graph_idmap_finish(struct soda_graph_idmap *map, struct soda_graph_error *err);

/* The vertex of an id that occurs; SODA_GRAPH_NONE for another. */
uint32_t soda_graph_idmap_vertex(const struct soda_graph_idmap *map, uint32_t id);

/* Write the ids that occur, ascending; labels has room for `count`. */
void soda_graph_idmap_labels(const struct soda_graph_idmap *map, uint32_t *labels);

#endif
