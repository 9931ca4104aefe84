/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/mapped.h"

#include "host_agent/core/agent.h"

void soda_mapped_read(const struct soda_mr *mr, uint64_t offset, uint32_t bytes)
{
	struct soda_static_map *s = mr->map ? NULL : soda_mr_mapped_static(mr, offset, bytes);
	struct iovec all;
	size_t ignored;

	if (!s || s->bytes <= SODA_MAPPED_MOST)
		return;
	/* relaxed: nothing hangs on it, and two that both let go do no harm */
	if (atomic_fetch_add_explicit(&s->read, bytes, memory_order_relaxed) + bytes <
	    SODA_MAPPED_MOST)
		return;
	atomic_store_explicit(&s->read, 0, memory_order_relaxed);
	all = (struct iovec){ (void *)(uintptr_t)s->memory, s->bytes };
	soda_agent.pager->drop(&all, 1, &ignored); /* what fails is tried again in a while */
}
