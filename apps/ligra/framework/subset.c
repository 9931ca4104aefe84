/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/framework/subset.h"

#include "ligra/framework/ligra.h"

#include <errno.h>
#include <stdlib.h>

struct vertex_subset subset_none(struct ligra *l)
{
	return (struct vertex_subset){ .vertices = l->g->vertices, .mem = l->mem };
}

struct vertex_subset subset_all(struct ligra *l)
{
	struct vertex_subset s = subset_none(l);

	s.size = s.vertices;
	return s;
}

/* Room for `most` members; false: out of memory. */
static bool make_list(struct ligra *l, struct vertex_subset *s, uint64_t most)
{
	if (l->failed)
		return false;
	s->list = malloc((most ? most : 1) * sizeof(*s->list));
	if (!s->list)
		l->failed = soda_graph_fail(l->err, ENOMEM, "out of memory for a vertex-subset");
	return s->list;
}

struct vertex_subset subset_bitmap(struct ligra *l)
{
	struct vertex_subset s = subset_none(l);
	void *bits;

	if (!l->failed)
		l->failed =
			mem_alloc(l->mem, subset_bitmap_bytes(&s), "vertex-subset", &bits, l->err);
	if (!l->failed)
		s.bits = bits;
	return s;
}

struct vertex_subset subset_single(struct ligra *l, uint32_t v)
{
	struct vertex_subset s = subset_none(l);

	if (make_list(l, &s, 1)) {
		s.list[0] = v;
		s.size = 1;
	}
	return s;
}

void subset_free(struct vertex_subset *s)
{
	free(s->list);
	mem_free(s->mem, s->bits, subset_bitmap_bytes(s));
	s->list = NULL;
	s->bits = NULL;
	s->size = 0;
}

void subset_replace(struct vertex_subset *s, struct vertex_subset by)
{
	subset_free(s);
	*s = by;
}

static inline bool set_bit(uint64_t *bits, uint32_t v)
{
	uint64_t bit = (uint64_t)1 << v % 64;

	return !(__atomic_fetch_or(&bits[v / 64], bit, __ATOMIC_RELAXED) & bit);
}

bool subset_to_bits(struct ligra *l, struct vertex_subset *s)
{
	struct vertex_subset dense;

	if (!s->list)
		return true;
	dense = subset_bitmap(l);
	if (!dense.bits)
		return false;
	dense.size = s->size;
	for (uint64_t i = 0; i < s->size; i++)
		set_bit(dense.bits, s->list[i]);
	subset_replace(s, dense);
	return true;
}

struct vertex_subset subset_join(struct ligra *l, struct vertex_subset *a, struct vertex_subset *b)
{
	struct vertex_subset both;

	if (!a->size || !b->size) {
		both = a->size ? *a : *b;
		subset_free(a->size ? b : a);
		return both;
	}
	if (!subset_to_bits(l, a) || !subset_to_bits(l, b)) {
		subset_free(a);
		subset_free(b);
		return subset_none(l);
	}
	for (uint64_t i = 0; i < subset_words(a); i++)
		a->bits[i] |= b->bits[i];
	a->size += b->size;
	subset_free(b);
	return *a;
}

static uint64_t edges_of_list(const struct vertex_subset *s, const struct csr *csr)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < s->size; i++)
		sum += csr_degree(csr, s->list[i]);
	return sum;
}

static uint64_t edges_of_word(uint64_t word, uint64_t first, const struct csr *csr)
{
	uint64_t sum = 0;

	for (; word; word &= word - 1)
		sum += csr_degree(csr, first + (uint64_t)__builtin_ctzll(word));
	return sum;
}

uint64_t subset_edges(const struct vertex_subset *s, const struct csr *csr, uint64_t enough)
{
	uint64_t sum = 0;

	if (s->list)
		return edges_of_list(s, csr);
	if (s->size == s->vertices)
		return csr->edges;
	if (s->size > enough)
		return s->size;
#pragma omp parallel for reduction(+ : sum) schedule(dynamic, 1024)
	for (uint64_t i = 0; i < subset_words(s); i++)
		if (sum <= enough)
			sum += edges_of_word(subset_word(s, i), i * 64, csr);
	return sum;
}

void collector_open(struct ligra *l, uint64_t most, bool wanted, struct collector *c_p)
{
	struct collector c = { .subset = subset_none(l), .wanted = wanted };

	if (wanted && most <= c.subset.vertices / SUBSET_LIST_FRACTION)
		make_list(l, &c.subset, most);
	else if (wanted)
		c.subset = subset_bitmap(l);
	c.wanted = c.subset.list || c.subset.bits;
	*c_p = c;
}

void collector_flush(struct collector *c, struct found *f)
{
	uint64_t added = 0, at;

	if (c->subset.bits) {
		for (uint32_t i = 0; i < f->count; i++)
			added += set_bit(c->subset.bits, f->vertices[i]);
		__atomic_fetch_add(&c->size, added, __ATOMIC_RELAXED);
	} else if (c->wanted) {
		at = __atomic_fetch_add(&c->size, f->count, __ATOMIC_RELAXED);
		for (uint32_t i = 0; i < f->count; i++)
			c->subset.list[at + i] = f->vertices[i];
	}
	f->count = 0;
}

struct vertex_subset collector_close(struct collector *c)
{
	c->subset.size = c->size;
	if (!c->size)
		subset_free(&c->subset);
	return c->subset;
}
