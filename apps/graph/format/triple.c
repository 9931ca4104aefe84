/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/triple.h"

#include "graph/format/csr_source.h"
#include "graph/format/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *soda_graph_path(const char *path, const char *suffix)
{
	char *joined;

	return asprintf(&joined, "%s%s", path, suffix) < 0 ? NULL : joined;
}

/* In the order in which a triple comes to its place. */
static const struct {
	const char *suffix;
	unsigned part;
} files[] = {
	{ ".idx", SODA_GRAPH_PART_OUT },	 { ".adj", SODA_GRAPH_PART_OUT },
	{ ".in.idx", SODA_GRAPH_PART_IN },	 { ".in.adj", SODA_GRAPH_PART_IN },
	{ ".in.config", SODA_GRAPH_PART_IN },	 { ".labels", SODA_GRAPH_PART_LABELS },
	{ ".weights", SODA_GRAPH_PART_WEIGHTS }, { ".in.weights", SODA_GRAPH_PART_IN_WEIGHTS },
	{ ".config", SODA_GRAPH_PART_OUT },
};
enum { FILES = sizeof(files) / sizeof(*files) };

static void remove_file(const char *path, const char *suffix)
{
	char *name = soda_graph_path(path, suffix);

	if (name)
		unlink(name);
	free(name);
}

void soda_graph_triple_remove(const char *path)
{
	for (size_t i = FILES; i-- > 0;)
		remove_file(path, files[i].suffix);
}

unsigned soda_graph_info_parts(const struct soda_graph_info *info)
{
	unsigned parts = SODA_GRAPH_PART_OUT;

	if (!info->complete)
		return parts;
	if (info->labelled)
		parts |= SODA_GRAPH_PART_LABELS;
	if (info->weighted)
		parts |= SODA_GRAPH_PART_WEIGHTS;
	if (!info->symmetric)
		parts |= SODA_GRAPH_PART_IN;
	if (!info->symmetric && info->weighted)
		parts |= SODA_GRAPH_PART_IN_WEIGHTS;
	return parts;
}

/* The parts of the triple that PATH.config describes; 0: there is none that can be read. */
static unsigned parts_there(const char *path)
{
	struct soda_graph_error unused;
	struct soda_graph_info info;

	if (soda_graph_info_read(path, &info, &unused))
		return 0;
	return soda_graph_info_parts(&info);
}

int soda_graph_triple_check_free(const char *path, unsigned parts, struct soda_graph_error *err)
{
	unsigned strange = parts & ~parts_there(path);
	int ret = 0;

	for (size_t i = 0; i < FILES && !ret; i++) {
		char *name = soda_graph_path(path, files[i].suffix);
		struct stat st;

		if (!name)
			ret = soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
		else if (files[i].part & strange && !lstat(name, &st))
			ret = soda_graph_fail(err, EINVAL,
					      "%s: is there and no part of a graph %s that would "
					      "be replaced: remove it, or choose another output",
					      name, path);
		free(name);
	}
	return ret;
}

static int move_file(const char *from, const char *path, const char *suffix,
		     struct soda_graph_error *err)
{
	char *old = soda_graph_path(from, suffix), *name = soda_graph_path(path, suffix);
	int ret = 0;

	if (!old || !name)
		ret = soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	else if (rename(old, name))
		ret = soda_graph_fail(err, errno, "%s: cannot move the graph there: %s", name,
				      strerror(errno));
	free(old);
	free(name);
	return ret;
}

int soda_graph_triple_move(const char *from, const char *path, unsigned parts,
			   struct soda_graph_error *err)
{
	unsigned before = parts_there(path);
	int ret = soda_graph_triple_check_free(path, parts, err);

	if (ret)
		return ret;
	if (before)
		remove_file(path, ".config");
	for (size_t i = 0; i < FILES && !ret; i++) {
		if (files[i].part & parts)
			ret = move_file(from, path, files[i].suffix, err);
		else if (files[i].part & before)
			remove_file(path, files[i].suffix);
	}
	return ret;
}

static bool same_file(const char *path, const char *suffix, const char *other,
		      const char *other_suffix)
{
	char *x = soda_graph_path(path, suffix), *y = soda_graph_path(other, other_suffix);
	struct stat s, t;
	bool same = x && y && !stat(x, &s) && !stat(y, &t) && s.st_dev == t.st_dev &&
		    s.st_ino == t.st_ino;

	free(x);
	free(y);
	return same;
}

bool soda_graph_triple_has(const char *path, const char *file)
{
	for (size_t i = 0; i < FILES; i++)
		if (same_file(path, files[i].suffix, file, ""))
			return true;
	return false;
}

bool soda_graph_triple_shares(const char *path, const char *input)
{
	bool shares = soda_graph_triple_has(path, input);

	for (size_t i = 0; i < FILES && !shares; i++) {
		char *file = soda_graph_path(input, files[i].suffix);

		shares = file && soda_graph_triple_has(path, file);
		free(file);
	}
	return shares;
}

/* The facts after the number of vertices; bits of `seen`. Only a weighted graph has the last. */
enum fact {
	FACT_EDGES,
	FACT_SYMMETRIC,
	FACT_LABELLED,
	FACT_IDX,
	FACT_ADJ,
	FACT_LABELS,
	FACT_WEIGHTS,
	FACTS
};

static const struct {
	const char *name;
	int base;
	uint64_t most;
} facts[FACTS] = {
	[FACT_EDGES] = { "edges", 10, INT64_MAX / 64 },
	[FACT_SYMMETRIC] = { "symmetric", 10, 1 },
	[FACT_LABELLED] = { "labelled", 10, 1 },
	[FACT_IDX] = { "crc-idx", 16, UINT32_MAX },
	[FACT_ADJ] = { "crc-adj", 16, UINT32_MAX },
	[FACT_LABELS] = { "crc-labels", 16, UINT32_MAX },
	[FACT_WEIGHTS] = { "crc-weights", 16, UINT32_MAX },
};

static void set_fact(struct soda_graph_info *info, enum fact fact, uint64_t value)
{
	switch (fact) {
	case FACT_EDGES:
		info->edges = value;
		break;
	case FACT_SYMMETRIC:
		info->symmetric = value;
		break;
	case FACT_LABELLED:
		info->labelled = value;
		break;
	case FACT_IDX:
		info->idx_sum = (uint32_t)value;
		break;
	case FACT_ADJ:
		info->adj_sum = (uint32_t)value;
		break;
	case FACT_WEIGHTS:
		info->weighted = true;
		info->weights_sum = (uint32_t)value;
		break;
	default:
		info->labels_sum = (uint32_t)value;
	}
}

static bool parse_number(const char *text, int base, uint64_t most, uint64_t *value_p)
{
	char *end;

	errno = 0;
	*value_p = strtoull(text, &end, base);
	return *text > ' ' && *text != '-' && *text != '+' && !*end && !errno && *value_p <= most;
}

/* Parse a line NAME VALUE; returns the fact, or -1. */
static int parse_fact(const char *line, struct soda_graph_info *info)
{
	for (int i = 0; i < FACTS; i++) {
		size_t length = strlen(facts[i].name);
		uint64_t value;

		if (strncmp(line, facts[i].name, length) != 0 || line[length] != ' ')
			continue;
		if (!parse_number(line + length + 1, facts[i].base, facts[i].most, &value))
			return -1;
		set_fact(info, i, value);
		return i;
	}
	return -1;
}

static int parse_lines(const char *path, char *text, struct soda_graph_info *info,
		       struct soda_graph_error *err)
{
	unsigned seen = 0, number = 1;
	char *rest, *line = strtok_r(text, "\r\n", &rest);

	if (!line || !parse_number(line, 10, SODA_GRAPH_VERTICES_MAX, &info->vertices) ||
	    !info->vertices)
		return soda_graph_fail(err, EINVAL,
				       "%s:1: expected the number of vertices, 1 to %" PRIu64
				       ", found '%.40s'",
				       path, SODA_GRAPH_VERTICES_MAX, line ? line : "");
	while ((line = strtok_r(NULL, "\r\n", &rest))) {
		int fact = parse_fact(line, info);

		number++;
		if (fact < 0)
			return soda_graph_fail(
				err, EINVAL,
				"%s:%u: expected edges, symmetric, labelled, crc-idx, "
				"crc-adj, crc-labels or crc-weights and a value, found '%.40s'",
				path, number, line);
		seen |= 1u << fact;
	}
	info->complete = (seen | 1u << FACT_WEIGHTS) == (1u << FACTS) - 1;
	if (seen && !info->complete)
		return soda_graph_fail(err, EINVAL, "%s: cut off after line %u: expected %d lines",
				       path, number, FACT_WEIGHTS + 1);
	return 0;
}

int soda_graph_info_parse(const char *path, const char *text, size_t bytes,
			  struct soda_graph_info *info_p, struct soda_graph_error *err)
{
	char copy[SODA_GRAPH_CONFIG_MAX + 1];
	struct soda_graph_info info = { 0 };
	int ret;

	if (bytes > SODA_GRAPH_CONFIG_MAX)
		return soda_graph_fail(err, EINVAL, "%s: expected a file of at most %d bytes", path,
				       SODA_GRAPH_CONFIG_MAX);
	memcpy(copy, text, bytes);
	copy[bytes] = 0;
	ret = parse_lines(path, copy, &info, err);
	if (!ret)
		*info_p = info;
	return ret;
}

static int read_config(const char *name, struct soda_graph_info *info_p,
		       struct soda_graph_error *err)
{
	char text[SODA_GRAPH_CONFIG_MAX + 1];
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return soda_graph_fail(err, errno, "%s: cannot open: %s", name, strerror(errno));
	got = pread(fd, text, sizeof(text), 0);
	close(fd);
	if (got < 0)
		return soda_graph_fail(err, errno, "%s: cannot read: %s", name, strerror(errno));
	return soda_graph_info_parse(name, text, (size_t)got, info_p, err);
}

int soda_graph_info_read(const char *path, struct soda_graph_info *info_p,
			 struct soda_graph_error *err)
{
	char *name = soda_graph_path(path, ".config");
	int ret;

	if (!name)
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	ret = read_config(name, info_p, err);
	free(name);
	return ret;
}

int soda_graph_info_write(const char *path, const struct soda_graph_info *info,
			  struct soda_graph_error *err)
{
	char *name = soda_graph_path(path, ".config");
	struct soda_graph_writer w;
	char text[512];
	int length, ret;

	if (!name)
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	length =
		snprintf(text, sizeof(text),
			 "%" PRIu64 "\nedges %" PRIu64 "\nsymmetric %d\nlabelled %d\n"
			 "crc-idx %08" PRIx32 "\ncrc-adj %08" PRIx32 "\ncrc-labels %08" PRIx32 "\n",
			 info->vertices, info->edges, info->symmetric, info->labelled,
			 info->idx_sum, info->adj_sum, info->labels_sum);
	if (info->weighted)
		length += snprintf(text + length, sizeof(text) - (size_t)length,
				   "crc-weights %08" PRIx32 "\n", info->weights_sum);
	ret = soda_graph_writer_open(&w, name, err);
	if (!ret) {
		ret = soda_graph_writer_put(&w, text, (size_t)length, err);
		ret = soda_graph_writer_close(&w, ret, err);
	}
	free(name);
	return ret;
}

static int open_file(const char *path, const char *suffix, int *fd_p, uint64_t *bytes_p,
		     struct soda_graph_error *err)
{
	char *name = soda_graph_path(path, suffix);
	struct stat st;
	int ret = 0;

	if (!name)
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	*fd_p = open(name, O_RDONLY | O_CLOEXEC);
	if (*fd_p < 0 || fstat(*fd_p, &st))
		ret = soda_graph_fail(err, errno, "%s: cannot open: %s", name, strerror(errno));
	else
		*bytes_p = (uint64_t)st.st_size;
	free(name);
	return ret;
}

/* Open PATH.weights, which has a weight for each edge. */
static int open_weights(const char *path, const struct soda_graph_info *info, int *fd_p,
			struct soda_graph_error *err)
{
	uint64_t bytes;
	int ret = open_file(path, ".weights", fd_p, &bytes, err);

	if (!ret && bytes != info->edges * sizeof(double))
		ret = soda_graph_fail(err, EINVAL,
				      "%s.weights: expected %" PRIu64 " bytes for %" PRIu64
				      " edges, found %" PRIu64,
				      path, info->edges * sizeof(double), info->edges, bytes);
	return ret;
}

/* Check that the files' sizes fit each other. */
static int check_sizes(const char *path, const struct soda_graph_info *info, uint64_t idx_bytes,
		       uint64_t adj_bytes, struct soda_graph_error *err)
{
	if (idx_bytes != info->vertices * 8 && (info->complete || idx_bytes != info->vertices * 4))
		return soda_graph_fail(err, EINVAL,
				       "%s.idx: expected %" PRIu64 " offsets of 4 or 8 bytes, as "
				       "%s.config says, found %" PRIu64 " bytes",
				       path, info->vertices, path, idx_bytes);
	if (adj_bytes % sizeof(uint32_t))
		return soda_graph_fail(err, EINVAL,
				       "%s.adj: cut off at byte %" PRIu64
				       ": expected targets of 4 bytes",
				       path, adj_bytes);
	if (info->complete && adj_bytes != info->edges * sizeof(uint32_t))
		return soda_graph_fail(
			err, EINVAL,
			"%s.adj: expected %" PRIu64 " bytes for %" PRIu64 " edges, found %" PRIu64,
			path, info->edges * sizeof(uint32_t), info->edges, adj_bytes);
	return 0;
}

static int open_files(const char *path, const struct soda_graph_info *info, const char *idx,
		      const char *adj, const char *weights, struct soda_graph_source **source_p,
		      struct soda_graph_error *err)
{
	struct soda_graph_csr_layout layout = { .format = "Ligra binary",
						.vertices = info->vertices,
						.symmetric = info->symmetric,
						.offsets = { idx, -1, 0 },
						.targets = { adj, -1, 0 },
						.weighted = info->weighted,
						.weights = { weights, -1, 0 } };
	uint64_t idx_bytes, adj_bytes;
	int ret = open_file(path, ".idx", &layout.offsets.fd, &idx_bytes, err);

	if (!ret)
		ret = open_file(path, ".adj", &layout.targets.fd, &adj_bytes, err);
	if (!ret)
		ret = check_sizes(path, info, idx_bytes, adj_bytes, err);
	if (!ret && info->weighted)
		ret = open_weights(path, info, &layout.weights.fd, err);
	if (ret) {
		if (layout.offsets.fd >= 0)
			close(layout.offsets.fd);
		if (layout.targets.fd >= 0)
			close(layout.targets.fd);
		if (layout.weights.fd >= 0)
			close(layout.weights.fd);
		return ret;
	}
	layout.offset_bytes = idx_bytes == info->vertices * 8 ? 8 : 4;
	layout.edges = adj_bytes / sizeof(uint32_t);
	return soda_graph_csr_open(&layout, source_p, err);
}

int soda_graph_triple_open(const char *path, struct soda_graph_source **source_p,
			   struct soda_graph_error *err)
{
	char *idx = soda_graph_path(path, ".idx"), *adj = soda_graph_path(path, ".adj");
	char *weights = soda_graph_path(path, ".weights");
	struct soda_graph_info info;
	int ret = 0;

	if (!idx || !adj || !weights)
		ret = soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	if (!ret)
		ret = soda_graph_info_read(path, &info, err);
	if (!ret)
		ret = open_files(path, &info, idx, adj, weights, source_p, err);
	free(weights);
	free(idx);
	free(adj);
	return ret;
}
