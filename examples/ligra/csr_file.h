/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A graph as a binary file: a header, then the parts as they lie in memory,
 * each on a page boundary, with its checksum.  For this program and this
 * byte order: written once, outside of a memory limit, then streamed into
 * fabric memory through a buffer of 1 MiB.
 */
#ifndef LIGRA_CSR_FILE_H
#define LIGRA_CSR_FILE_H

#include "graph.h"

/* Write a graph of which all parts are loaded.  0; -EIO, -ENOSPC and the like. */
int csr_file_write(const char *path, const struct graph *g, struct error *err);

/* 1 if the file begins as one of these, 0 if not, or what open(2) says. */
int csr_file_probe(const char *path, struct error *err);

/*
 * Load the parts in `parts` (PART_BIT()s) into `mem`; the caller destroys the
 * graph.  0; -EINVAL: cut off, damaged, or of another version; -EIO, -ENOMEM.
 */
int csr_file_load(const char *path, unsigned parts, struct mem *mem, struct graph *g_p,
		  struct error *err);

#endif
