/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/fill.h"

#include "host_agent/pages/install.h"

/* At once: so much is zeros and a fault in vain where a thread stops being in order. */
enum { FILL_MAX = 32, FILL_BYTES = 256 << 10 };

bool (*soda_fill_allowed)(uint32_t id);

static uint32_t window_of(struct soda_region *r)
{
	uint32_t most = FILL_BYTES >> soda_agent.chunk_shift;
	uint32_t wanted = soda_agent.settings.prefetch_chunks;

	if (!soda_fill_allowed ||
	    atomic_load_explicit(&r->advice, memory_order_relaxed) == SODA_RANDOM)
		return 0;
	most = most < FILL_MAX ? most : FILL_MAX - 1;
	return wanted < most ? wanted : most;
}

/* Nobody is evicted for what nobody has asked for. */
static bool claim(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	if (soda_chunk_state(w) != SODA_CHUNK_ZERO || soda_buffer_excess(&soda_agent.buffer) ||
	    !soda_buffer_take(&soda_agent.buffer))
		return false;
	if (!soda_chunk_begin(c, &w, SODA_CHUNK_FETCHING)) {
		soda_buffer_give(&soda_agent.buffer, 1);
		return false;
	}
	/* asked now, so that whoever says no from now on can wait for those before */
	if (soda_fill_allowed(id))
		return true;
	soda_install_cancel(id);
	return false;
}

int soda_fill(struct soda_thread *t, struct soda_region *r, uint32_t id, int block)
{
	struct soda_install in[FILL_MAX] = { { .id = id, .block = (int16_t)block } };
	bool eager = atomic_load_explicit(&r->advice, memory_order_relaxed) == SODA_SEQUENTIAL;
	struct soda_plan plan = soda_streams_note(
		&t->fills, id, r->first, (int64_t)r->first + r->chunks, window_of(r), eager);
	uint32_t ahead = plan.stride == 1 && plan.first == (int64_t)id + 1 ? plan.n : 0, n = 1;

	for (; n <= ahead && claim(id + n); n++)
		in[n] = (struct soda_install){ .id = id + n, .block = -1, .ahead = true };
	if (n - 1 < plan.n)
		soda_streams_cut(&t->fills, &plan, n - 1);
	soda_count(t, SODA_CNT_ZERO_FILLS, n);
	return soda_install_zeros(r, in, n);
}
