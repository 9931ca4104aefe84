/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The graph that a command line asks for: a binary triple that SODA wrote is
 * loaded as it is; every other input becomes one first, in the temporary folder.
 */
#ifndef LIGRA_LOAD_H
#define LIGRA_LOAD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "graph/format/source.h"
#include "ligra/framework/graph.h"

struct graph_input {
	const char *path; /* NULL: generate an R-MAT graph */
	struct soda_graph_random rmat;
	bool symmetric;
	bool weighted; /* with the weights of the file, which must have them */
};

/*
 * graph_input.c.  Load at least `parts` into `mem` and drop the others; the caller destroys the
 * graph.  0, or the error of the loader, with the file and what was expected.
 */
int graph_input_load(const struct graph_input *input, unsigned parts, struct mem *mem,
		     struct graph *g_p, struct soda_graph_error *err);

/*
 * graph_load.c.  Load the parts in `parts` (PART_BIT()s) of the triple that SODA wrote to
 * `path`, check them (graph_check(); not if mem->trusted), and drop nothing else; the caller
 * destroys the graph.  In memory that is files (served, mmap) each part is one,
 * otherwise it is read into an object.
 * 0; -EINVAL: not such a triple, of the wrong size; -EBADMSG: damaged; -EIO,
 * -ENOMEM; what open(2) or soda_alloc_file() say.
 */
int graph_load(const char *path, unsigned parts, struct mem *mem, struct graph *g_p,
	       struct soda_graph_error *err);

/*
 * file_io.c: arrays to and from files through a local buffer, because a system call
 * cannot be given fabric memory.
 */

/* Write the whole array at the offset.  0 or -EIO, -ENOSPC and the like. */
int file_write_array(int fd, const char *path, const void *array, size_t bytes, off_t offset,
		     struct soda_graph_error *err);

/* Read the whole array, by all threads.  0; -EINVAL: the file ends before; -EIO; -ENOMEM. */
int file_read_array(int fd, const char *path, void *array, size_t bytes, off_t offset,
		    struct soda_graph_error *err);

#endif
