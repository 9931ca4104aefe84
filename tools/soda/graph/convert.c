/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda graph convert`: by way of a sorted binary triple, which is what most want anyway. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lock.h"
#include "graph/format/export.h"
#include "graph/format/stream.h"
#include "soda/graph/tool.h"

struct options {
	uint32_t to;
	uint64_t memory;
	bool symmetric, weights, json;
};

/* enum soda_graph_format and one more. */
static const char *const formats[] = { "ligra", "adjacency", "snap", "mtx", "gap", "auto", NULL };
#define FORMAT_AUTO (SODA_GRAPH_GAP + 1)

static const struct soda_option option_table[] = {
	OPTION("to", 0, CHOICE, to, .arg = "FORMAT", .def = "auto", .choices = formats,
	       .help = "ligra: the binary triple OUTPUT.config, .idx, .adj; adjacency: Ligra's "
		       "text; snap: an edge list; mtx: Matrix Market; gap: GAP's .sg. auto goes by "
		       "OUTPUT's ending: .txt and .el, .mtx, .sg, otherwise ligra."),
	OPTION("symmetric", 0, BOOL, symmetric,
	       .help = "Each edge in both directions, once, and no self-loops; without it the "
		       "edges stay as they are."),
	OPTION("weights", 0, BOOL, weights,
	       .help = "With the edges' weights, as 64-bit floats from 0 to 1e250: the third "
		       "number of a line in an edge list, real or integer values in Matrix Market, "
		       "those of WeightedAdjacencyGraph, OUTPUT.weights of a triple. GAP's .sg has "
		       "none. Where --symmetric makes equal edges one, the lightest stays."),
	OPTION("memory", 0, SIZE, memory, .arg = "SIZE", .def = "512M", .min = 1 << 20,
	       .help = "For sorting; what does not fit lies beside OUTPUT meanwhile, 8 bytes for "
		       "each edge, 16 with --weights."),
	OPTION("json", 'j', BOOL, json, .help = "Print what was written as one JSON object."),
};

static const struct soda_conf conf = {
	.program = "soda graph convert",
	.summary = "convert a graph from one format to another",
	.args = "INPUT OUTPUT",
	.description =
		"Reads edge lists as SNAP publishes them (comments, CRLF, ids with gaps), "
		"Matrix Market coordinate files (values are skipped without --weights), Ligra's "
		"AdjacencyGraph and, with --weights, WeightedAdjacencyGraph text, all of them "
		"gzipped or not, Ligra's binary triple (INPUT without its ending) and GAP's "
		".sg.\n\n"
		"Neighbours come out in ascending order. Ids with gaps are numbered anew, "
		"and the old ones kept beside a binary triple, as OUTPUT.labels, and in edge "
		"lists. A triple "
		"of a directed graph gets its in-edges as a second one: OUTPUT.in.config, "
		".in.idx, .in.adj. With --weights there are OUTPUT.weights and .in.weights, "
		"which Ligra does not read.\n\n"
		"The result is made in a hidden folder beside OUTPUT and takes its place "
		"when it is whole: a conversion that fails leaves what was there. The input "
		"is never replaced, nor is a file that has the name of one of a triple and "
		"is none.",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);

	return n >= k && strcmp(text + n - k, end) == 0;
}

static enum soda_graph_format format_of(const struct options *o, const char *output)
{
	if (o->to != FORMAT_AUTO)
		return o->to;
	if (ends_with(output, ".txt") || ends_with(output, ".el"))
		return SODA_GRAPH_SNAP;
	if (ends_with(output, ".mtx"))
		return SODA_GRAPH_MTX;
	return ends_with(output, ".sg") ? SODA_GRAPH_GAP : SODA_GRAPH_TRIPLE;
}

static bool same_file(const char *a, const char *b)
{
	struct stat s, t;

	return !stat(a, &s) && !stat(b, &t) && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

static int build(const struct options *o, const char *input, const char *path,
		 struct soda_graph_info *info_p, struct soda_graph_error *err)
{
	struct soda_graph_build how = { .path = path,
					.symmetric = o->symmetric,
					.weighted = o->weights,
					.memory = o->memory,
					.progress = soda_graph_tool_progress };
	struct soda_graph_source *source;
	int ret = soda_graph_source_open(input, &source, err);

	if (ret)
		return ret;
	ret = soda_graph_build(source, &how, info_p, err);
	source->close(source);
	return ret;
}

/* A device or a pipe is written to as it is; anything else is replaced when the file is whole. */
static bool replaced(const char *output)
{
	struct stat st;

	return stat(output, &st) || S_ISREG(st.st_mode);
}

/* By way of a triple in this folder, which is removed. */
static int export_through(const struct options *o, const char *folder, const char *input,
			  enum soda_graph_format format, const char *output,
			  struct soda_graph_info *info_p, struct soda_graph_error *err)
{
	char *path = soda_graph_path(folder, "/graph"), *whole = soda_graph_path(folder, "/file");
	const char *file = replaced(output) ? whole : output;
	int ret = path && whole ? build(o, input, path, info_p, err)
				: soda_graph_fail(err, ENOMEM, "out of memory for a path");

	if (!ret)
		ret = soda_graph_export(path, format, file, err);
	if (!ret && file == whole && rename(whole, output)) {
		ret = soda_graph_fail(err, errno, "%s: cannot write: %s", output, strerror(errno));
		unlink(whole);
	}
	if (path)
		soda_graph_triple_remove(path);
	free(path);
	free(whole);
	return ret;
}

/* Where a link points to is replaced, not the link; a device's folder is no place for files. */
static int export(const struct options *o, const char *input, enum soda_graph_format format,
		  const char *output, struct soda_graph_info *info_p, struct soda_graph_error *err)
{
	const char *tmp = getenv("TMPDIR");
	char *real = replaced(output) ? realpath(output, NULL) : NULL;
	char *beside = soda_graph_path(tmp ? tmp : "/tmp", "/file");
	const char *target = real ? real : output;
	char *folder = NULL;
	int ret = beside ? 0 : soda_graph_fail(err, ENOMEM, "out of memory for a path");

	if (!ret)
		ret = soda_graph_folder_make(replaced(output) ? target : beside, &folder, err);
	if (!ret) {
		ret = export_through(o, folder, input, format, target, info_p, err);
		rmdir(folder);
	}
	free(folder);
	free(beside);
	free(real);
	return ret;
}

/* Whether the output would replace the input, or a file of the triple that it is. */
static bool is_input(const char *input, enum soda_graph_format format, const char *output)
{
	return same_file(input, output) ||
	       (format == SODA_GRAPH_TRIPLE ? soda_graph_triple_shares(output, input)
					    : soda_graph_triple_has(input, output));
}

static int convert(const struct options *o, const char *input, const char *output)
{
	enum soda_graph_format format = format_of(o, output);
	uint64_t begin = soda_now_ns();
	struct soda_graph_error err;
	struct soda_graph_info info;
	int ret;

	if (is_input(input, format, output))
		ret = soda_graph_fail(
			&err, EINVAL,
			"%s: is the input, or a file of it would be replaced; expected "
			"another output",
			output);
	else if (format == SODA_GRAPH_TRIPLE)
		ret = build(o, input, output, &info, &err);
	else
		ret = export(o, input, format, output, &info, &err);
	if (ret)
		return soda_graph_tool_fail(conf.program, ret, &err);
	return soda_graph_tool_report(output, &info, begin, o->json);
}

int soda_command_graph_convert(int argc, char **argv)
{
	struct options o = { 0 };
	const char *paths[2];
	int n = soda_tool_options(&conf, argc, argv, &o, paths, 2);

	if (n >= 0 && n < 2)
		fprintf(stderr, "%s: from what to what? two paths; see --help\n", conf.program);
	return n < 2 ? SODA_EXIT_USAGE : convert(&o, paths[0], paths[1]);
}
