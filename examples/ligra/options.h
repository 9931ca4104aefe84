/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_OPTIONS_H
#define LIGRA_OPTIONS_H

#include "graph_input.h"
#include "pagerank.h"

enum command { COMMAND_BFS, COMMAND_PAGERANK, COMMAND_CONVERT, COMMAND_VERIFY };

struct options {
	enum command command;
	char **files; /* what follows the command; NULL at the end */
	int file_count;
	struct graph_input input;
	enum mem_kind memory;
	bool has_source;
	uint64_t source; /* an id of the input */
	struct pagerank_params pagerank;
	unsigned threads; /* 0: OpenMP's choice */
	unsigned repeat;
	bool verify;
	const char *json, *result; /* files to write, or NULL */
};

/* What --help prints. */
extern const char options_help[];

/* Ends the process: with 0 after --help, with 2 and a sentence for what it does not understand. */
void options_parse(int argc, char **argv, struct options *o_p);

#endif
