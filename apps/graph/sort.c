/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/sort.h"

#include "graph/format/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_KEYS ((size_t)1 << 18)
#define READER_BYTES ((size_t)256 << 10)
#define NO_KEY UINT64_MAX /* SODA_GRAPH_NONE to SODA_GRAPH_NONE, which is no edge */

/*
 * A key is an edge's ends in one number and, if the sorter is weighted, the bits of its weight in a
 * second one: numbers that are not negative have the order of their bits.
 */
struct key {
	uint64_t ends, weight;
};

struct run {
	uint64_t begin, end; /* in the temporary file */
};

struct soda_graph_sorter {
	char *folder;
	bool unique;
	unsigned words;		/* of a key: 1, or 2 if weighted */
	uint64_t *keys, *spare; /* `room` keys each; keys are added to `keys` */
	size_t room, most, count;
	uint64_t *sorted; /* keys or spare: the only run, in memory */
	size_t taken;	  /* of it */
	int fd;		  /* of the temporary file, -1: none */
	uint64_t spilled; /* its length */
	struct run *runs;
	size_t run_count;
	/* Merging: a tree of losers over as many leaves, a power of two. */
	struct soda_graph_reader *readers;
	struct key *heads; /* the next one of each leaf */
	uint32_t *losers;  /* of each inner node; [0] is the winner */
	size_t leaves;
	uint64_t merged; /* keys */
	uint64_t last;	 /* ends that were given; NO_KEY: none */
};

static size_t key_bytes(const struct soda_graph_sorter *s)
{
	return s->words * sizeof(*s->keys);
}

static bool is_before(struct key a, struct key b)
{
	return a.ends != b.ends ? a.ends < b.ends : a.weight < b.weight;
}

static int out_of_memory(struct soda_graph_error *err)
{
	return soda_graph_fail(err, ENOMEM, "out of memory for sorting edges");
}

int soda_graph_sorter_create(const char *folder, size_t memory, bool unique, bool weighted,
			     struct soda_graph_sorter **sorter_p, struct soda_graph_error *err)
{
	struct soda_graph_sorter *s = calloc(1, sizeof(*s));

	if (!s)
		return out_of_memory(err);
	s->fd = -1;
	s->last = NO_KEY;
	s->unique = unique;
	s->words = weighted ? 2 : 1;
	s->most = memory / 2 / key_bytes(s);
	s->folder = strdup(folder);
	if (!s->folder) {
		free(s);
		return out_of_memory(err);
	}
	*sorter_p = s;
	return 0;
}

static int grow(struct soda_graph_sorter *s, struct soda_graph_error *err)
{
	size_t room = s->room ? 2 * s->room : FIRST_KEYS;
	uint64_t *keys;

	if (room > s->most)
		room = s->most;
	keys = realloc(s->keys, room * key_bytes(s));
	if (!keys)
		return out_of_memory(err);
	s->keys = keys;
	s->room = room;
	return 0;
}

/* Sort the keys that were added, in place or into `spare`. */
static int sort(struct soda_graph_sorter *s, struct soda_graph_error *err)
{
	uint64_t *spare = realloc(s->spare, s->room * key_bytes(s));
	size_t kept = 0;

	if (!spare)
		return out_of_memory(err);
	s->spare = spare;
	s->sorted = soda_graph_radix_sort(s->keys, s->spare, s->count, s->words);
	if (!s->unique)
		return 0;
	for (size_t i = 0; i < s->count; i++) {
		const uint64_t *key = s->sorted + i * s->words;

		if (kept && *key == s->sorted[(kept - 1) * s->words])
			continue;
		for (unsigned w = 0; w < s->words; w++)
			s->sorted[kept * s->words + w] = key[w];
		kept++;
	}
	s->count = kept;
	return 0;
}

static int make_file(struct soda_graph_sorter *s, struct soda_graph_error *err)
{
	s->fd = open(s->folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (s->fd < 0)
		return soda_graph_fail(err, errno,
				       "%s: cannot make a temporary file for sorting: %s",
				       s->folder, strerror(errno));
	return 0;
}

static int spill(struct soda_graph_sorter *s, struct soda_graph_error *err)
{
	size_t bytes;
	struct run *runs;
	int ret = s->fd < 0 ? make_file(s, err) : 0;

	if (!ret)
		ret = sort(s, err);
	if (ret)
		return ret;
	runs = realloc(s->runs, (s->run_count + 1) * sizeof(*runs));
	if (!runs)
		return out_of_memory(err);
	s->runs = runs;
	bytes = s->count * key_bytes(s);
	ret = soda_graph_write_at(s->fd, s->folder, s->sorted, bytes, s->spilled, err);
	if (ret)
		return ret;
	s->runs[s->run_count++] = (struct run){ s->spilled, s->spilled + bytes };
	s->spilled += bytes;
	s->count = 0;
	return 0;
}

int soda_graph_sorter_add(struct soda_graph_sorter *s, const struct soda_graph_edge *edges,
			  const double *weights, size_t count, struct soda_graph_error *err)
{
	uint64_t *key;

	for (size_t i = 0; i < count; i++) {
		if (s->count == s->room) {
			int ret = s->room < s->most ? grow(s, err) : spill(s, err);

			if (ret)
				return ret;
		}
		key = s->keys + s->count++ * s->words;
		*key = (uint64_t)edges[i].from << 32 | edges[i].to;
		if (weights)
			memcpy(key + 1, &weights[i], sizeof(*weights));
	}
	return 0;
}

static int load_head(struct soda_graph_sorter *s, size_t leaf, struct soda_graph_error *err)
{
	struct soda_graph_reader *r = &s->readers[leaf];
	int ret;

	if (leaf >= s->run_count || soda_graph_reader_at_end(r)) {
		s->heads[leaf].ends = NO_KEY;
		return 0;
	}
	ret = soda_graph_reader_u64(r, &s->heads[leaf].ends, err);
	return ret || s->words == 1 ? ret : soda_graph_reader_u64(r, &s->heads[leaf].weight, err);
}

/* Play two subtrees' heads: the smaller one goes up, the node notes the other one. */
static uint32_t play(struct soda_graph_sorter *s, size_t node)
{
	uint32_t a, b;

	if (node >= s->leaves)
		return (uint32_t)(node - s->leaves);
	a = play(s, 2 * node);
	b = play(s, 2 * node + 1);
	s->losers[node] = is_before(s->heads[b], s->heads[a]) ? a : b;
	return s->losers[node] == a ? b : a;
}

static int start_merge(struct soda_graph_sorter *s, struct soda_graph_error *err)
{
	int ret = 0;

	for (s->leaves = 1; s->leaves < s->run_count;)
		s->leaves *= 2;
	s->readers = calloc(s->leaves, sizeof(*s->readers));
	s->heads = calloc(s->leaves, sizeof(*s->heads));
	s->losers = calloc(s->leaves, sizeof(*s->losers));
	if (!s->readers || !s->heads || !s->losers)
		return out_of_memory(err);
	for (size_t i = 0; i < s->leaves && !ret; i++) {
		if (i < s->run_count)
			ret = soda_graph_reader_open(&s->readers[i], s->fd, s->folder,
						     s->runs[i].begin, s->runs[i].end, READER_BYTES,
						     err);
		if (!ret)
			ret = load_head(s, i, err);
	}
	if (!ret)
		s->losers[0] = play(s, 1);
	return ret;
}

int soda_graph_sorter_finish(struct soda_graph_sorter *s, struct soda_graph_error *err)
{
	int ret;

	if (s->fd < 0)
		return s->count ? sort(s, err) : 0;
	ret = s->count ? spill(s, err) : 0;
	if (ret)
		return ret;
	free(s->keys);
	free(s->spare);
	s->keys = s->spare = s->sorted = NULL;
	return start_merge(s, err);
}

double soda_graph_sorter_fraction(const struct soda_graph_sorter *s)
{
	uint64_t all = s->fd < 0 ? s->count : s->spilled / key_bytes(s);

	return all ? (double)(s->fd < 0 ? s->taken : s->merged) / (double)all : 1;
}

/* Replace the winner's head by its run's next key, and find the new winner. */
static int advance(struct soda_graph_sorter *s, struct soda_graph_error *err)
{
	uint32_t winner = s->losers[0];
	int ret = load_head(s, winner, err);

	for (size_t node = (winner + s->leaves) / 2; node; node /= 2) {
		uint32_t other = s->losers[node];

		if (is_before(s->heads[other], s->heads[winner])) {
			s->losers[node] = winner;
			winner = other;
		}
	}
	s->losers[0] = winner;
	s->merged++;
	return ret;
}

static struct soda_graph_edge edge_of(uint64_t ends)
{
	return (struct soda_graph_edge){ (uint32_t)(ends >> 32), (uint32_t)ends };
}

static long next_in_memory(struct soda_graph_sorter *s, struct soda_graph_edge *edges,
			   double *weights, size_t max)
{
	size_t count = s->count - s->taken < max ? s->count - s->taken : max;

	for (size_t i = 0; i < count; i++) {
		const uint64_t *key = s->sorted + (s->taken + i) * s->words;

		edges[i] = edge_of(*key);
		if (weights)
			memcpy(&weights[i], key + 1, sizeof(*weights));
	}
	s->taken += count;
	return (long)count;
}

long soda_graph_sorter_next(struct soda_graph_sorter *s, struct soda_graph_edge *edges,
			    double *weights, size_t max, struct soda_graph_error *err)
{
	size_t count = 0;

	if (s->fd < 0)
		return next_in_memory(s, edges, weights, max);
	while (count < max && s->heads[s->losers[0]].ends != NO_KEY) {
		struct key key = s->heads[s->losers[0]];
		int ret = advance(s, err);

		if (ret)
			return ret;
		if (s->unique && key.ends == s->last)
			continue;
		s->last = key.ends;
		edges[count] = edge_of(key.ends);
		if (weights)
			memcpy(&weights[count], &key.weight, sizeof(*weights));
		count++;
	}
	return (long)count;
}

void soda_graph_sorter_destroy(struct soda_graph_sorter *s)
{
	if (!s)
		return;
	for (size_t i = 0; s->readers && i < s->run_count; i++)
		soda_graph_reader_close(&s->readers[i]);
	if (s->fd >= 0)
		close(s->fd);
	free(s->readers);
	free(s->heads);
	free(s->losers);
	free(s->runs);
	free(s->keys);
	free(s->spare);
	free(s->folder);
	free(s);
}
