/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/move/limit.h"

#include <errno.h>

#include "base/limits.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/channel.h"
#include "host_agent/move/evict.h"
#include "host_agent/object/region.h"
#include "host_agent/object/sealing.h"

enum { DEFAULT_BUFFER_MIN = 16 << 20 };

static _Atomic int64_t added; /* chunks, by soda_limit_add() */

static int64_t sealing_slots(void)
{
	return soda_agent.settings.seal || soda_sealing_on() ? SODA_SEALING_SLOTS_MIN : 0;
}

int64_t soda_limit_minimum(uint32_t threads)
{
	return soda_settings_minimum(&soda_agent.settings, threads, sealing_slots());
}

int64_t soda_limit_unpinned(void)
{
	return soda_limit_minimum(soda_agent.settings.threads) +
	       soda_channels_staging(atomic_load(&soda_agent.buffer.limit));
}

int64_t soda_limit_wanted(void)
{
	const struct soda_settings *s = &soda_agent.settings;
	uint64_t bytes = s->buffer_bytes;
	int64_t minimum = soda_limit_minimum(s->threads), chunks;

	if (!bytes) {
		bytes = atomic_load(&soda_agent.fam_bytes) / s->buffer_den * s->buffer_num;
		if (!s->buffer && bytes < DEFAULT_BUFFER_MIN)
			bytes = DEFAULT_BUFFER_MIN;
		/* a part of what is left when an object goes: what is pinned stays */
		minimum += atomic_load(&soda_agent.buffer.pinned);
	}
	chunks = (int64_t)(bytes >> soda_agent.chunk_shift);
	return (chunks < minimum ? minimum : chunks) + soda_limit_added();
}

int64_t soda_limit_added(void)
{
	return atomic_load(&added);
}

int soda_limit_check(struct soda_why *why)
{
	return soda_settings_check_buffer(&soda_agent.settings, sealing_slots(), why);
}

/*
 * Only now the buffer's size is known, and so how many shards suit it.  No chunk is resident yet;
 * the lock keeps the keeper out, which may be auditing the object already.
 */
static void fit_replacer(uint64_t limit)
{
	soda_regions_lock();
	soda_replace_init(&soda_agent.replacer, soda_agent.replacer.policy, soda_agent.table,
			  limit);
	soda_regions_unlock();
}

/* Only a buffer whose size is given can be shared. */
bool soda_limit_is_lent(void)
{
	return soda_lender && soda_agent.settings.buffer_bytes;
}

/* Fit to the limit what depends on it. */
static void fit(void)
{
	int64_t limit = atomic_load(&soda_agent.buffer.limit);

	soda_replace_resize(&soda_agent.replacer, (uint64_t)limit);
	soda_channels_resize(limit);
	soda_sealing_fit(limit);
}

int64_t soda_limit_shrink(int64_t chunks, uint64_t deadline_ns)
{
	struct soda_buffer *b = &soda_agent.buffer;
	int64_t over;
	sigset_t saved;

	soda_signals_block(&saved);
	soda_buffer_widen(b, -chunks);
	fit();
	soda_evict_down(deadline_ns);
	over = -atomic_load(&b->free);
	if (over > 0) { /* no thread gets a credit before these are the limit's again */
		over = over < chunks ? over : chunks;
		soda_buffer_widen(b, over);
		chunks -= over;
	}
	soda_signals_restore(&saved);
	return chunks;
}

void soda_limit_grown(void)
{
	sigset_t saved;

	soda_signals_block(&saved);
	fit();
	soda_signals_restore(&saved);
}

void soda_limit_add(int64_t chunks)
{
	soda_lock_acquire(&soda_agent.api_lock);
	atomic_fetch_add(&added, chunks);
	if (soda_limit_is_lent()) {
		soda_buffer_widen(&soda_agent.buffer, chunks);
		soda_limit_grown();
	} else {
		soda_limit_resize(false);
	}
	soda_lock_release(&soda_agent.api_lock);
}

bool soda_limit_refit(void)
{
	soda_limit_resize(false);
	return atomic_load(&soda_agent.buffer.limit) >=
	       soda_limit_minimum(soda_agent.settings.threads);
}

int soda_limit_refit_first(struct soda_why *why)
{
	int ret;

	if (soda_limit_refit())
		return 0;
	ret = soda_lender->begin_with(soda_limit_minimum(soda_agent.settings.threads), why);
	if (!ret)
		soda_limit_grown();
	return ret ? -ENOMEM : 0;
}

void soda_limit_resize(bool first)
{
	sigset_t saved;

	soda_signals_block(&saved);
	if (!soda_limit_is_lent())
		soda_buffer_resize(&soda_agent.buffer, soda_limit_wanted());
	if (first)
		fit_replacer((uint64_t)soda_limit_wanted());
	fit();
	soda_evict_down(soda_now_ns() + SODA_BUFFER_SHRINK_MS * SODA_MS_NS);
	soda_signals_restore(&saved);
}
