/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page buffer's budget: one credit for each resident chunk, each chunk under way and each
 * staging slot.  A hard limit.  Lock-free, async-signal-safe.
 */
#ifndef SODA_HOST_BUFFER_H
#define SODA_HOST_BUFFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct soda_why;

struct soda_buffer {
	_Atomic int64_t free;	/* chunks; negative after the limit went down, or a kept one came
				   back */
	_Atomic int64_t limit;	/* chunks */
	_Atomic int64_t kept;	/* chunks that are resident beside the limit (move/kept.h) */
	_Atomic uint32_t freed; /* futex: goes up when credits come back and a thread waits */
	_Atomic uint32_t waiters;
	_Atomic int64_t peak;	/* most credits in use at once */
	_Atomic int64_t pinned; /* chunks */
	_Atomic int64_t
		sending; /* chunks queued or sent for write-back, to be dropped afterwards */
	uint32_t high_pct, low_pct; /* set before start, then constant */
};

void soda_buffer_init(struct soda_buffer *b, uint32_t high_pct, uint32_t low_pct);
/* Change the limit; credits in use are not taken back here. */
void soda_buffer_resize(struct soda_buffer *b, int64_t limit);
/* Change the limit by so much, beside others that do. AS. */
void soda_buffer_widen(struct soda_buffer *b, int64_t chunks);
/* Take a credit if there is one. */
bool soda_buffer_take(struct soda_buffer *b);
void soda_buffer_give(struct soda_buffer *b, int64_t n);
/*
 * n resident chunks count beside the limit from now on, and their credits come back; n < 0: they
 * count in it again, also where no credit is free. AS.
 */
void soda_buffer_keep(struct soda_buffer *b, int64_t n);
/* Wait until credits have come back, at most timeout_ns. */
void soda_buffer_wait(struct soda_buffer *b, int64_t timeout_ns);

/* Count one more pinned chunk; false: fewer than `keep` chunks would be left for the others. */
bool soda_buffer_pin(struct soda_buffer *b, int64_t keep);
void soda_buffer_unpin(struct soda_buffer *b);

/* Resident chunks, kept ones included, chunks under way and staging slots. */
static inline int64_t soda_buffer_used(const struct soda_buffer *b)
{
	return atomic_load_explicit(&b->limit, memory_order_relaxed) +
	       atomic_load_explicit(&b->kept, memory_order_relaxed) -
	       atomic_load_explicit(&b->free, memory_order_relaxed);
}

/*
 * How many chunks should be evicted now: 0 while fewer than high_pct of the limit are in use, else
 * as many as leave low_pct.  Chunks that `sending` or `kept` counts are no longer in use.
 */
int64_t soda_buffer_excess(const struct soda_buffer *b);

/*
 * Where several processes share one page buffer (`soda run`): who lends this one its part of it.
 * The limit is then what was lent; it grows by need and shrinks where others need it more.
 */
struct soda_lender {
	/*
	 * The runtime starts: lend at least `least` of at most `most` chunks. 0, or a negative
	 * error with its reason.
	 */
	int (*begin)(int64_t least, int64_t most, int64_t *limit_p, struct soda_why *why);
	/*
	 * Still at the start, when nothing is resident: so many chunks are the least now.  Wait
	 * until they are lent, and widen the buffer's limit to them.  As begin; -EINVAL without a
	 * reason: that is more than may be lent.
	 */
	int (*begin_with)(int64_t least, struct soda_why *why);
	/* Widen the limit of this process's buffer, if there is more to lend. Never waits. AS. */
	bool (*more)(void);
};
/* Set before the runtime starts, then constant. NULL: the buffer is this process's own. */
extern const struct soda_lender *soda_lender;

/* Before something is evicted or refused for want of room: whether there is more now. AS. */
static inline bool soda_buffer_more(void)
{
	return soda_lender && soda_lender->more();
}

#endif
