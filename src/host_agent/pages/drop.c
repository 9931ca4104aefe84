/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/install.h"

#include <sys/uio.h>

#include "base/log.h"
#include "base/tracepoint.h"
#include "host_agent/object/region.h"

static void sort(uint32_t *ids, int n)
{
	for (int i = 1; i < n; i++) {
		uint32_t v = ids[i];
		int k = i;

		for (; k > 0 && ids[k - 1] > v; k--)
			ids[k] = ids[k - 1];
		ids[k] = v;
	}
}

/* The chunk's state once its pages have gone: where its content is now. */
static void gone(uint32_t id)
{
	struct soda_chunk *c = &soda_agent.table[id];
	uint32_t w = soda_chunk_load(c);

	SODA_TP_EVICT(id);
	soda_chunk_settle(c, w & SODA_CW_BACKED ? SODA_CHUNK_REMOTE : SODA_CHUNK_ZERO, 0, 0,
			  SODA_CW_QUEUED);
}

static _Atomic bool left_pages, told;

void soda_drop_refused(int err, bool partly)
{
	if (partly)
		atomic_store(&left_pages, true);
	if (!atomic_exchange(&told, true))
		soda_log_error("the kernel does not take pages of fabric memory back (%s), so that "
			       "they stay in memory beyond the page buffer: has the program sealed "
			       "them, or does a filter forbid madvise()?",
			       soda_strerror(err));
}

bool soda_drop_left_pages(void)
{
	return atomic_load_explicit(&left_pages, memory_order_relaxed);
}

static void keep(uint32_t id)
{
	soda_replace_insert(&soda_agent.replacer, id);
	soda_chunk_settle(&soda_agent.table[id], SODA_CHUNK_CLEAN, 0, 0, 0);
}

/* The chunks as address ranges, neighbours joined; returns how many ranges. */
static int ranges_of(const uint32_t *ids, int n, struct iovec runs[SODA_DROP_MAX])
{
	char *end = NULL;
	int k = 0;

	for (int i = 0; i < n; i++) {
		char *at = soda_chunk_address(ids[i]);
		uint32_t bytes = soda_region_chunk_bytes(soda_region_of(ids[i]), ids[i]);

		if (at == end)
			runs[k - 1].iov_len += bytes;
		else
			runs[k++] = (struct iovec){ at, bytes };
		end = at + bytes;
	}
	return k;
}

int soda_drop_chunks(uint32_t *ids, int n)
{
	struct iovec runs[SODA_DROP_MAX] = { { NULL, 0 } };
	size_t left;
	int ret, dropped = 0;

	sort(ids, n);
	ret = soda_agent.page_ops->drop(runs, ranges_of(ids, n, runs), &left);
	for (; dropped < n && left; dropped++) { /* in the order of the ranges */
		size_t bytes = soda_region_chunk_bytes(soda_region_of(ids[dropped]), ids[dropped]);

		if (left < bytes)
			soda_drop_refused(ret, true);
		left -= left < bytes ? left : bytes;
		gone(ids[dropped]);
	}
	if (dropped < n)
		soda_drop_refused(ret, false);
	for (int i = dropped; i < n; i++)
		keep(ids[i]);
	if (dropped)
		soda_buffer_give(&soda_agent.buffer, dropped);
	return dropped;
}
