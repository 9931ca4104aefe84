/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ligra's binary graph, three files:
 *	PATH.config	text: the number of vertices
 *	PATH.idx	where each vertex's targets begin in the next, 64 bits each (Ligra
 *			built for small graphs: 32), as many as there are vertices
 *	PATH.adj	the targets, 32 bits each
 * A program that reads files of others has to know whether the graph is symmetric.
 * What SODA writes says so: after the number, where Ligra reads no further,
 * .config has a line for each further fact, targets are ascending, and a
 * directed graph has its in-edges as a second triple, PATH.in.  Where the
 * input's ids were not 0 .. vertices-1, PATH.labels has them, 32 bits each.
 * Where the input's weights were asked for, PATH.weights has the one of each
 * target, a 64-bit float, in the order of .adj, and so has PATH.in.weights.
 */
#ifndef SODA_GRAPH_TRIPLE_H
#define SODA_GRAPH_TRIPLE_H

#include "graph/format/source.h"

#define SODA_GRAPH_CONFIG_MAX 4096 /* bytes of a .config */

struct soda_graph_info {
	uint64_t vertices;
	bool complete; /* SODA wrote the file: the members below are known */
	uint64_t edges;
	bool symmetric, labelled, weighted;
	uint32_t idx_sum, adj_sum, labels_sum, weights_sum; /* CRC-32 of the files */
};

/*
 * What a .config says; `path` for messages.  0; -EINVAL with the line.  text
 * need not end in a zero byte.
 */
int soda_graph_info_parse(const char *path, const char *text, size_t bytes,
			  struct soda_graph_info *info_p, struct soda_graph_error *err);

/* Read and parse the file PATH.config. 0; -EINVAL; what open(2) says. */
int soda_graph_info_read(const char *path, struct soda_graph_info *info_p,
			 struct soda_graph_error *err);

/* Write PATH.config with all facts. 0; -EIO, -ENOSPC and the like. */
int soda_graph_info_write(const char *path, const struct soda_graph_info *info,
			  struct soda_graph_error *err);

/* "PATH" + "SUFFIX", for the caller to free.  NULL: out of memory. */
char *soda_graph_path(const char *path, const char *suffix);

/* Remove a triple's files, those of its in-edges and labels included. */
void soda_graph_triple_remove(const char *path);

/* Files that a triple may have; bits. */
enum soda_graph_triple_part {
	SODA_GRAPH_PART_OUT = 1,	 /* PATH.config, .idx, .adj */
	SODA_GRAPH_PART_LABELS = 2,	 /* PATH.labels */
	SODA_GRAPH_PART_IN = 4,		 /* PATH.in.config, .in.idx, .in.adj */
	SODA_GRAPH_PART_WEIGHTS = 8,	 /* PATH.weights */
	SODA_GRAPH_PART_IN_WEIGHTS = 16, /* PATH.in.weights */
};

/* The parts that the graph's triple has; SODA_GRAPH_PART_OUT alone where SODA did not write it. */
unsigned soda_graph_info_parts(const struct soda_graph_info *info);

/*
 * Whether a triple with these parts may be put there: 0, or -EINVAL with the name of a file that
 * stands there and is no part of the triple that PATH.config describes.  Such a file is somebody
 * else's: Ligra's text is often called .adj, a data set's classes .labels.
 */
int soda_graph_triple_check_free(const char *path, unsigned parts, struct soda_graph_error *err);

/*
 * Move a triple with these parts to another path of the same file system: PATH.config goes first
 * and comes last, so that there is never a mixture of two graphs that reads as one.  Parts of the
 * triple that was there, which this one has not, are removed; other files stay.
 * 0; -EINVAL as above; what rename(2) says.
 */
int soda_graph_triple_move(const char *from, const char *path, unsigned parts,
			   struct soda_graph_error *err);

/* Whether FILE is one of those that a triple of PATH may have. */
bool soda_graph_triple_has(const char *path, const char *file);

/* Whether the input, a file or the path of a triple, is or has a file of a triple of PATH. */
bool soda_graph_triple_shares(const char *path, const char *input);

#endif
