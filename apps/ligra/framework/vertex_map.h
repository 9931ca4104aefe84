/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vertexMap and vertexFilter, generated for one function.  Not a usual header:
 * define VERTEX_STATE as a type and one of
 *	VERTEX_MAP    F: there is  void F(VERTEX_STATE *, uint32_t v)
 *	VERTEX_FILTER F: there is  bool F(VERTEX_STATE *, uint32_t v)
 * and include it.  There will be, applying F to each member of the subset in
 * parallel,
 *	void F_vertex_map(const struct vertex_subset *, VERTEX_STATE *)
 *	struct vertex_subset F_vertex_filter(struct ligra *, const struct vertex_subset *,
 *					     VERTEX_STATE *)
 * of which the latter returns those members for which F returned true.
 */
#include "ligra/framework/ligra.h"

#ifdef VERTEX_MAP

static inline void TEMPLATE_NAME(VERTEX_MAP, _vertex_map)(const struct vertex_subset *s,
							  VERTEX_STATE *state)
{
	if (s->list) {
#pragma omp parallel for schedule(static) if (s->size > SUBSET_PARALLEL)
		for (uint64_t i = 0; i < s->size; i++)
			VERTEX_MAP(state, s->list[i]);
		return;
	}
	if (!s->size)
		return;
#pragma omp parallel for schedule(dynamic, WORDS_AT_A_TIME)
	for (uint64_t i = 0; i < subset_words(s); i++)
		for (uint64_t word = subset_word(s, i); word; word &= word - 1)
			VERTEX_MAP(state, (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(word));
}

#endif
#ifdef VERTEX_FILTER

static inline uint64_t TEMPLATE_NAME(VERTEX_FILTER, _word)(uint64_t word, uint64_t first,
							   VERTEX_STATE *state)
{
	uint64_t kept = 0;

	for (; word; word &= word - 1)
		if (VERTEX_FILTER(state, (uint32_t)first + (uint32_t)__builtin_ctzll(word)))
			kept |= word & -word;
	return kept;
}

static inline struct vertex_subset TEMPLATE_NAME(VERTEX_FILTER,
						 _list_filter)(struct ligra *l,
							       const struct vertex_subset *s,
							       VERTEX_STATE *state)
{
	struct collector c;

	collector_open(l, s->size, true, &c);
#pragma omp parallel if (s->size > SUBSET_PARALLEL)
	{
		struct found f = { .count = 0 };

#pragma omp for schedule(static)
		for (uint64_t i = 0; i < s->size; i++)
			if (VERTEX_FILTER(state, s->list[i]))
				collector_add(&c, &f, s->list[i]);
		collector_flush(&c, &f);
	}
	return collector_close(&c);
}

static inline struct vertex_subset TEMPLATE_NAME(VERTEX_FILTER,
						 _vertex_filter)(struct ligra *l,
								 const struct vertex_subset *s,
								 VERTEX_STATE *state)
{
	struct vertex_subset kept;
	uint64_t size = 0;

	if (s->list)
		return TEMPLATE_NAME(VERTEX_FILTER, _list_filter)(l, s, state);
	kept = subset_bitmap(l);
	if (!kept.bits)
		return kept;
#pragma omp parallel for reduction(+ : size) schedule(dynamic, WORDS_AT_A_TIME)
	for (uint64_t i = 0; i < subset_words(s); i++) {
		kept.bits[i] =
			TEMPLATE_NAME(VERTEX_FILTER, _word)(subset_word(s, i), i * 64, state);
		size += (uint64_t)__builtin_popcountll(kept.bits[i]);
	}
	kept.size = size;
	if (!size)
		subset_free(&kept);
	return kept;
}

#endif
#undef VERTEX_MAP
#undef VERTEX_FILTER
#undef VERTEX_STATE
