/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Edges out of binary offsets and targets, as GAP's files and Ligra's triples
 * have them.  Everything is checked as it streams by: offsets ascend from 0 to
 * the number of edges, targets are vertices, weights, where they are asked for, in their range.
 */
#ifndef SODA_GRAPH_CSR_SOURCE_H
#define SODA_GRAPH_CSR_SOURCE_H

#include "graph/format/source.h"

struct soda_graph_csr_file {
	const char *path; /* for messages */
	int fd;		  /* becomes the source's */
	uint64_t begin;	  /* of the first number in the file */
};

struct soda_graph_csr_layout {
	const char *format;
	uint64_t vertices, edges;
	bool symmetric;
	unsigned offset_bytes; /* 4 or 8 */
	bool closed;	       /* the last offset is the number of edges */
	bool weighted;
	struct soda_graph_csr_file offsets, targets;
	struct soda_graph_csr_file weights; /* 64-bit floats, as many as targets; if weighted */
};

/*
 * The caller has checked the files' sizes.  Closes the descriptors in the end, also on failure.  0
 * or -ENOMEM.
 */
int soda_graph_csr_open(const struct soda_graph_csr_layout *layout,
			struct soda_graph_source **source_p, struct soda_graph_error *err);

#endif
