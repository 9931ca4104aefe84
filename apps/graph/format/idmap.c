/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/idmap.h"

#include "graph/format/source.h"

#include <errno.h>
#include <stdlib.h>

#define PAGE_IDS 65536u
#define PAGE_WORDS (PAGE_IDS / 64)
#define PAGES 65536u

struct soda_graph_idmap_page {
	uint64_t words[PAGE_WORDS]; /* bit i: id i of the page occurs */
	uint32_t ranks[PAGE_WORDS]; /* ids that occur before the word, in the whole map */
};

static int out_of_memory(struct soda_graph_error *err)
{
	return soda_graph_fail(err, ENOMEM, "out of memory for the vertex ids");
}

int soda_graph_idmap_create(struct soda_graph_idmap *map_p, struct soda_graph_error *err)
{
	struct soda_graph_idmap map = { .pages = calloc(PAGES, sizeof(*map.pages)) };

	if (!map.pages)
		return out_of_memory(err);
	*map_p = map;
	return 0;
}

void soda_graph_idmap_destroy(struct soda_graph_idmap *map)
{
	for (uint32_t i = 0; map->pages && i < PAGES; i++)
		free(map->pages[i]);
	free(map->pages);
	*map = (struct soda_graph_idmap){ 0 };
}

int soda_graph_idmap_add(struct soda_graph_idmap *map, uint32_t id, struct soda_graph_error *err)
{
	struct soda_graph_idmap_page **page = &map->pages[id / PAGE_IDS];

	if (!*page)
		*page = calloc(1, sizeof(**page));
	if (!*page)
		return out_of_memory(err);
	(*page)->words[id % PAGE_IDS / 64] |= (uint64_t)1 << id % 64;
	return 0;
}

int soda_graph_idmap_finish(struct soda_graph_idmap *map, struct soda_graph_error *err)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < PAGES; i++) {
		struct soda_graph_idmap_page *page = map->pages[i];

		for (uint32_t word = 0; page && word < PAGE_WORDS; word++) {
			page->ranks[word] = (uint32_t)count;
			count += (uint64_t)__builtin_popcountll(page->words[word]);
		}
	}
	if (count > SODA_GRAPH_VERTICES_MAX)
		return soda_graph_fail(err, ERANGE, "expected at most %u vertices", UINT32_MAX);
	map->count = count;
	return 0;
}

uint32_t soda_graph_idmap_vertex(const struct soda_graph_idmap *map, uint32_t id)
{
	const struct soda_graph_idmap_page *page = map->pages[id / PAGE_IDS];
	uint64_t bit = (uint64_t)1 << id % 64;
	uint32_t word = id % PAGE_IDS / 64;

	if (!page || !(page->words[word] & bit))
		return SODA_GRAPH_NONE;
	return page->ranks[word] + (uint32_t)__builtin_popcountll(page->words[word] & (bit - 1));
}

static uint32_t *page_labels(const struct soda_graph_idmap_page *page, uint32_t first,
			     uint32_t *labels)
{
	for (uint32_t i = 0; i < PAGE_WORDS; i++)
		for (uint64_t word = page->words[i]; word; word &= word - 1)
			*labels++ = first + i * 64 + (uint32_t)__builtin_ctzll(word);
	return labels;
}

void soda_graph_idmap_labels(const struct soda_graph_idmap *map, uint32_t *labels)
{
	for (uint32_t i = 0; i < PAGES; i++)
		if (map->pages[i])
			labels = page_labels(map->pages[i], i * PAGE_IDS, labels);
}
