/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LIGRA_OPTIONS_H
#define LIGRA_OPTIONS_H

#include "ligra/framework/app.h"
#include "ligra/load/load.h"

enum command { COMMAND_RUN, COMMAND_VERIFY };

struct options {
	enum command command;
	const struct app *app; /* to run */
	char **files;	       /* the arguments after the command; NULL at the end */
	int file_count;
	struct graph_input input;
	enum mem_kind memory, arrays; /* where the graph lies; where the application's arrays lie */
	bool has_arrays;
	bool has_source;
	uint64_t source; /* an id of the input */
	struct app_params params;
	unsigned threads; /* 0: OpenMP's choice */
	unsigned repeat;
	bool verify;
	bool trusted;	  /* no checksums: nothing of the graph is touched before the run */
	bool cache_edges; /* a DPU agent's dynamic cache is for the edges alone */
	uint64_t warm_bytes;
	const char *json, *result; /* files to write, or NULL */
};

/* Ends the process after --help, with 0, and after a message about a wrong option, with 2. */
void options_parse(int argc, char **argv, struct options *o_p);

#endif
