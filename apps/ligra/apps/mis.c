/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A maximal independent set: in each round those vertices enter that have no undecided neighbour
 * with a smaller number, and their neighbours are out.  chosen[v]: MIS_IN or MIS_OUT.
 */
#include "ligra/framework/app.h"
#include "ligra/verify/agreed.h"
#include "ligra/verify/verify.h"

enum { CANDIDATE = MIS_OUT + 1, WAITS, ENTERED };

struct mis {
	uint8_t *state;
};

static inline bool mis_update(struct mis *m, uint32_t s, uint32_t d)
{
	uint8_t state = __atomic_load_n(&m->state[s], __ATOMIC_RELAXED);

	if (state == ENTERED)
		__atomic_store_n(&m->state[d], MIS_OUT, __ATOMIC_RELAXED);
	else if (s < d && (state == CANDIDATE || state == WAITS))
		__atomic_store_n(&m->state[d], WAITS, __ATOMIC_RELAXED);
	return false;
}

/* OUT wins over WAITS. */
static inline bool mis_update_atomic(struct mis *m, uint32_t s, uint32_t d)
{
	uint8_t state = __atomic_load_n(&m->state[s], __ATOMIC_RELAXED), from = CANDIDATE;

	if (state == ENTERED)
		__atomic_store_n(&m->state[d], MIS_OUT, __ATOMIC_RELAXED);
	else if (s < d && (state == CANDIDATE || state == WAITS))
		__atomic_compare_exchange_n(&m->state[d], &from, WAITS, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
	return false;
}

static inline bool mis_cond(const struct mis *m, uint32_t d)
{
	uint8_t state = __atomic_load_n(&m->state[d], __ATOMIC_RELAXED);

	return state == CANDIDATE || state == WAITS;
}

#define EDGE_MAP mis
#define EDGE_STATE struct mis
#include "ligra/framework/edge_map.h"

static inline void begin(struct mis *m, uint32_t v)
{
	m->state[v] = CANDIDATE;
}

/* Vertices that entered stay for one more round, in which their neighbours become OUT. */
static inline bool decide(struct mis *m, uint32_t v)
{
	switch (m->state[v]) {
	case CANDIDATE:
		m->state[v] = ENTERED;
		return true;
	case WAITS:
		m->state[v] = CANDIDATE;
		return true;
	case ENTERED:
		m->state[v] = MIS_IN;
	}
	return false;
}

#define VERTEX_MAP begin
#define VERTEX_STATE struct mis
#include "ligra/framework/vertex_map.h"
#define VERTEX_FILTER decide
#define VERTEX_STATE struct mis
#include "ligra/framework/vertex_map.h"

static unsigned run(struct ligra *l, const struct app_params *params, void *result)
{
	struct mis m = { .state = result };
	struct vertex_subset frontier = subset_all(l);
	unsigned rounds = 0;

	begin_vertex_map(&frontier, &m);
	for (; frontier.size; rounds++) {
		mis_edge_map(l, &frontier, &m, EDGE_NO_OUTPUT);
		subset_replace(&frontier, decide_vertex_filter(l, &frontier, &m));
	}
	return rounds;
}

const struct app app_mis = {
	.name = "mis",
	.summary = "a maximal independent set",
	.run = run,
	.check = verify_mis_result,
	.entry_bytes = sizeof(uint8_t),
	.parts = PARTS_OUT | PARTS_IN,
	.symmetric_only = true,
};
