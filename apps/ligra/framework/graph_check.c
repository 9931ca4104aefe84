/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads all of a graph, by all threads, in blocks whose checksums are put together in order. */
#include "ligra/framework/graph.h"

#include <errno.h>
#include <inttypes.h>
#include <zlib.h>

#define BLOCK ((size_t)1 << 20)

/* The first error of a part, in the file's order. */
struct flaw {
	size_t at; /* byte; SIZE_MAX: nothing */
	uint64_t least, most, found;
};

static void note(struct flaw *flaw, size_t at, uint64_t least, uint64_t most, uint64_t found)
{
	if (at < flaw->at)
		*flaw = (struct flaw){ at, least, most, found };
}

static void check_targets(const struct graph *g, const uint32_t *targets, size_t at, size_t count,
			  struct flaw *flaw)
{
	for (size_t i = 0; i < count; i++)
		if (targets[i] >= g->vertices)
			note(flaw, at + i * sizeof(*targets), 0, g->vertices - 1, targets[i]);
}

static void check_offsets(const struct graph *g, const uint64_t *offsets, size_t at, size_t count,
			  struct flaw *flaw)
{
	/* The offset before the block, which the block before checks. */
	uint64_t last = at ? offsets[-1] : 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t most = at || i ? g->edges : 0;

		if (offsets[i] < last || offsets[i] > most)
			note(flaw, at + i * sizeof(*offsets), last, most, offsets[i]);
		last = offsets[i];
	}
}

/* A weight that is found wrong is told as its bits. */
static void check_weights(const double *weights, size_t at, size_t count, struct flaw *flaw)
{
	union {
		double number;
		uint64_t bits;
	} most = { .number = SODA_GRAPH_WEIGHT_MAX }, found;

	for (size_t i = 0; i < count; i++) {
		found.number = weights[i];
		if (found.bits > most.bits) /* or not a number, or negative */
			note(flaw, at + i * sizeof(*weights), 0, most.bits, found.bits);
	}
}

static void check_block(const struct graph *g, enum graph_part part, size_t at, size_t bytes,
			struct flaw *flaw)
{
	const char *block = (const char *)graph_part(g, part) + at;

	if (part == PART_OUT_TARGETS || part == PART_IN_TARGETS)
		check_targets(g, (const uint32_t *)block, at, bytes / sizeof(uint32_t), flaw);
	else if (part == PART_OUT_WEIGHTS || part == PART_IN_WEIGHTS)
		check_weights((const double *)block, at, bytes / sizeof(double), flaw);
	else if (part != PART_LABELS)
		check_offsets(g, (const uint64_t *)block, at, bytes / sizeof(uint64_t), flaw);
}

static int check_part(const struct graph *g, enum graph_part part, struct soda_graph_error *err)
{
	const unsigned char *bytes = graph_part(g, part);
	size_t size = graph_part_bytes(g, part);
	struct flaw first = { .at = SIZE_MAX };
	uint32_t sum = 0;

#pragma omp parallel for ordered schedule(static, 1)
	for (size_t at = 0; at < size; at += BLOCK) {
		size_t step = size - at < BLOCK ? size - at : BLOCK;
		struct flaw flaw = { .at = SIZE_MAX };
		uint32_t block = (uint32_t)crc32_z(0, bytes + at, step);

		check_block(g, part, at, step, &flaw);
#pragma omp ordered
		{
			sum = (uint32_t)crc32_combine(sum, block, (off_t)step);
			if (flaw.at < first.at)
				first = flaw;
		}
	}
	if (first.at != SIZE_MAX)
		return soda_graph_fail(err, EBADMSG,
				       "%s: byte %zu: expected a number from %" PRIu64
				       " to %" PRIu64 ", found %" PRIu64,
				       graph_part_name(part), first.at, first.least, first.most,
				       first.found);
	if (sum != g->sum[part])
		return soda_graph_fail(err, EBADMSG,
				       "%s: damaged: checksum %08" PRIx32 ", expected %08" PRIx32,
				       graph_part_name(part), sum, g->sum[part]);
	return 0;
}

int graph_check(const struct graph *g, struct soda_graph_error *err)
{
	int ret = 0;

	for (int part = 0; part < PARTS && !ret; part++) {
		if (!graph_part_is_alias(g, part) && graph_part(g, part))
			ret = check_part(g, part, err);
	}
	return ret;
}
