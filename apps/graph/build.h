/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From edges in any order to a binary triple with ascending neighbours.
 *
 * A directed graph keeps self-loops and repeated edges, so its edges are the
 * input's lines.  A symmetric one gets each edge in both directions, once,
 * and no self-loops.  (Ligra's converter makes the same choice.)
 * Ids with gaps become 0, 1, 2 ... in the same order: a vertex is an id that occurs.
 */
#ifndef SODA_GRAPH_BUILD_H
#define SODA_GRAPH_BUILD_H

#include "graph/format/triple.h"

struct soda_graph_build {
	const char *path; /* the triple's path, without the ending */
	bool symmetric;	  /* make a symmetric graph; a symmetric source makes one anyway */
	bool weighted;	  /* with the source's weights; the least where equal edges become one */
	size_t memory;	  /* for sorting; a little more is used beside it; 0: 512 MiB */
	/* Called often with the part of a step that is done; may be NULL. */
	void (*progress)(void *arg, const char *step, double fraction);
	void *arg;
};

/*
 * Read the source in one pass, or in two if its ids must be learnt first, and write the triple;
 * edges that do not fit in `memory` lie in a file without a name in the triple's folder.  The graph
 * is made in a hidden folder beside PATH and moved there when it is whole: on failure PATH's files
 * are what they were.  A file there that is no part of a triple is never replaced
 * (soda_graph_triple_check_free()).
 * 0, or the error of the source, of writing; -EINVAL: such a file; -ENOMEM.
 */
int soda_graph_build(struct soda_graph_source *source, const struct soda_graph_build *build,
		     struct soda_graph_info *info_p, struct soda_graph_error *err);

#endif
