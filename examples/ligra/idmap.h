/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ids of an edge list, which may begin anywhere and have gaps, to vertices
 * 0, 1, 2 ... in the same order.  A bitmap with ranks, in pages that exist
 * where ids do: 1.5 bits an id in use, whatever the number of edges; always in
 * local memory.
 */
#ifndef LIGRA_IDMAP_H
#define LIGRA_IDMAP_H

#include "error.h"

#include <stdint.h>

struct idmap_page;

struct idmap {
	struct idmap_page **pages; /* by id / ids of a page; NULL: none of them occurs */
	uint64_t count;		   /* ids that occur; after idmap_finish() */
};

/* An empty map.  0 or -ENOMEM. */
int idmap_create(struct idmap *map_p, struct error *err);

/* NULL pages are a no-op. */
void idmap_destroy(struct idmap *map);

/* Note that an id occurs.  0 or -ENOMEM. */
int idmap_add(struct idmap *map, uint32_t id, struct error *err);

/* No id comes after this.  0; -ERANGE: more vertices than can be numbered. */
int idmap_finish(struct idmap *map, struct error *err);

/* The vertex of an id that occurs; VERTEX_NONE for another. */
uint32_t idmap_vertex(const struct idmap *map, uint32_t id);

/* Write the ids that occur, ascending; labels has room for `count`. */
void idmap_labels(const struct idmap *map, uint32_t *labels);

#endif
