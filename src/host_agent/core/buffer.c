/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/buffer.h"

#include "base/lock.h"

const struct soda_lender *soda_lender;

void soda_buffer_init(struct soda_buffer *b, uint32_t high_pct, uint32_t low_pct)
{
	*b = (struct soda_buffer){ .high_pct = high_pct, .low_pct = low_pct };
}

void soda_buffer_resize(struct soda_buffer *b, int64_t limit)
{
	int64_t old = atomic_exchange(&b->limit, limit);

	soda_buffer_give(b, limit - old);
}

void soda_buffer_widen(struct soda_buffer *b, int64_t chunks)
{
	atomic_fetch_add(&b->limit, chunks);
	soda_buffer_give(b, chunks);
}

bool soda_buffer_take(struct soda_buffer *b)
{
	int64_t left = atomic_fetch_sub_explicit(&b->free, 1, memory_order_acquire) - 1;
	int64_t used;

	if (left < 0) {
		atomic_fetch_add_explicit(&b->free, 1, memory_order_relaxed);
		return false;
	}
	used = atomic_load_explicit(&b->limit, memory_order_relaxed) - left;
	if (used > atomic_load_explicit(&b->peak, memory_order_relaxed))
		atomic_store_explicit(&b->peak, used, memory_order_relaxed);
	return true;
}

void soda_buffer_give(struct soda_buffer *b, int64_t n)
{
	/*
	 * release pairs with the acquire of soda_buffer_take; seq_cst, so that either this thread
	 * sees the waiter or the waiter (soda_buffer_wait) sees the credit
	 */
	atomic_fetch_add(&b->free, n);
	if (atomic_load(&b->waiters)) {
		atomic_fetch_add(&b->freed, 1);
		soda_futex_wake(&b->freed, INT32_MAX);
	}
}

void soda_buffer_keep(struct soda_buffer *b, int64_t n)
{
	/* in this order fewer are never said to be used than are */
	if (n > 0)
		atomic_fetch_add(&b->kept, n);
	soda_buffer_give(b, n);
	if (n < 0)
		atomic_fetch_add(&b->kept, n);
}

void soda_buffer_wait(struct soda_buffer *b, int64_t timeout_ns)
{
	uint32_t seen = atomic_load(&b->freed);

	atomic_fetch_add(&b->waiters, 1);
	if (atomic_load(&b->free) <= 0)
		soda_futex_wait(&b->freed, seen, timeout_ns);
	atomic_fetch_sub(&b->waiters, 1);
}

bool soda_buffer_pin(struct soda_buffer *b, int64_t keep)
{
	int64_t n = atomic_fetch_add(&b->pinned, 1) + 1;

	if (n <= atomic_load(&b->limit) - keep)
		return true;
	atomic_fetch_sub(&b->pinned, 1);
	return false;
}

void soda_buffer_unpin(struct soda_buffer *b)
{
	atomic_fetch_sub(&b->pinned, 1);
}

int64_t soda_buffer_excess(const struct soda_buffer *b)
{
	int64_t limit = atomic_load_explicit(&b->limit, memory_order_relaxed);
	int64_t used = limit - atomic_load_explicit(&b->free, memory_order_relaxed) -
		       atomic_load_explicit(&b->sending, memory_order_relaxed);

	if (used * 100 < limit * b->high_pct)
		return 0;
	return used - limit * b->low_pct / 100;
}
