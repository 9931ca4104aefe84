/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/fakes/host_fixture.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "base/log.h"
#include "host_agent/life/advise.h"
#include "host_agent/life/object.h"
#include "host_agent/life/session.h"
#include "host_agent/move/audit.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/limit.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/sealing.h"
#include "host_agent/pages/mapping.h"
#include "host_agent/pages/uffd.h"

enum { PAGE = 4096 };

static _Atomic uint32_t errors;
static char last_error[512];
static uint64_t base_count[SODA_CNT_MAX];

static void on_log(int level, const char *line, void *arg)
{
	if (level > SODA_LOG_LVL_ERROR)
		return;
	fake_lock();
	errors++;
	snprintf(last_error, sizeof(last_error), "%s", line);
	fake_unlock();
}

static void load_settings(const struct host_options *o)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct soda_why why;
	char bytes[32];

	cfg.chunk_bytes = o->chunk_bytes ? o->chunk_bytes : 65536;
	snprintf(bytes, sizeof(bytes), "%llu",
		 (unsigned long long)(o->buffer_chunks ? o->buffer_chunks : 32) * cfg.chunk_bytes);
	cfg.buffer = bytes;
	cfg.evict = o->evict ? o->evict : "ghost";
	cfg.threads = o->threads ? o->threads : 1;
	cfg.prefetch_chunks = o->prefetch ? o->prefetch : SODA_OFF;
	cfg.evict_high_pct = o->high_pct;
	cfg.evict_low_pct = o->low_pct;
	cfg.fault_timeout_ms = o->fault_timeout_ms ? o->fault_timeout_ms : 20000;
	cfg.mode = SODA_MODE_INLINE;
	if (soda_settings_load(&cfg, &soda_agent.settings, &why))
		fake_fail("settings: %s", why.text);
}

void host_start(const struct host_options *o)
{
	struct soda_settings *s = &soda_agent.settings;
	struct soda_why why = { "" };
	int64_t chunks;

	errors = 0;
	last_error[0] = '\0';
	soda_log_setup("test", SODA_LOG_LVL_ERROR, on_log, NULL);
	load_settings(o);
	assert_int_equal(soda_closed_start(), 0);
	soda_agent.pid = getpid();
	soda_agent.page_ops = &soda_uffd_page_ops;
	soda_agent.chunk_shift = (uint32_t)__builtin_ctzll(s->chunk_bytes);
	soda_agent.block_shift = soda_agent.chunk_shift > 16 ? soda_agent.chunk_shift - 4 : 12;
	soda_agent.may_poll = false;
	soda_agent.processors = o->help ? 0 : UINT32_MAX;
	soda_agent.fam_bytes = 0;
	assert_int_equal(soda_objects_start(&why), 0);
	fake_page_ops_reset();
	fake_net_reset(o->seed);
	fake_net.direct = o->direct;
	fake_net.installs = fake_page_ops.peer = o->installs;
	chunks = (int64_t)(s->buffer_bytes >> soda_agent.chunk_shift);
	soda_buffer_init(&soda_agent.buffer, s->evict_high_pct, s->evict_low_pct);
	soda_buffer_resize(&soda_agent.buffer, chunks);
	soda_replace_init(&soda_agent.replacer, soda_policy_find(s->evict, &why), soda_agent.table,
			  (uint64_t)chunks);
	if (soda_session_open(&soda_agent.links[0], "fake://server", s->threads,
			      (int)s->connect_timeout_ms, &why))
		fake_fail("session: %s", why.text);
	soda_session_publish(&soda_agent.links[0]);
	atomic_store(&soda_agent.life, SODA_LIFE_RUNNING);
	for (int c = 0; c < SODA_CNT_MAX; c++)
		base_count[c] = soda_threads_sum((enum soda_thread_counter)c);
}

void host_stop(void)
{
	soda_session_stop(&soda_agent.links[0]);
	soda_closed_stop();
	soda_regions_forget();
	soda_sealing_stop();
	soda_threads_clear();
	munmap(soda_agent.table,
	       (soda_agent.bytes >> soda_agent.chunk_shift) * sizeof(struct soda_chunk));
	munmap(soda_agent.base, soda_agent.bytes);
	soda_settings_free(&soda_agent.settings);
	fake_net_reset(0);
	atomic_store(&soda_agent.life, SODA_LIFE_NEW);
}

struct soda_region *host_alloc(uint64_t bytes)
{
	struct soda_region *r = NULL;
	struct soda_why why = { "" };
	bool first = atomic_load(&soda_agent.fam_bytes) == 0;

	soda_lock_acquire(&soda_agent.api_lock);
	if (soda_object_create(NULL, bytes, 0, &r, &why))
		fake_fail("no object: %s", why.text);
	soda_limit_resize(first);
	soda_lock_release(&soda_agent.api_lock);
	return r;
}

void host_free(struct soda_region *r)
{
	struct soda_why why = { "" };

	fake_lock();
	fake_page_ops.discarding = true;
	fake_unlock();
	soda_lock_acquire(&soda_agent.api_lock);
	soda_object_destroy(r, &why);
	soda_limit_resize(false);
	soda_lock_release(&soda_agent.api_lock);
	fake_lock();
	fake_page_ops.discarding = false;
	fake_unlock();
}

void *host_at(const struct soda_region *r, uint32_t chunk, uint32_t page)
{
	return soda_chunk_address(r->first + chunk) + (size_t)page * PAGE;
}

uint32_t host_word(const struct soda_region *r, uint32_t chunk)
{
	return soda_chunk_load(&soda_agent.table[r->first + chunk]);
}

enum soda_chunk_state host_state(const struct soda_region *r, uint32_t chunk)
{
	return soda_chunk_state(host_word(r, chunk));
}

void host_store(const struct soda_region *r, uint32_t chunk, uint32_t page, uint64_t v)
{
	assert_int_equal(fake_store(host_at(r, chunk, page), v), 0);
}

uint64_t host_load(const struct soda_region *r, uint32_t chunk, uint32_t page)
{
	uint64_t v;

	assert_int_equal(fake_load(host_at(r, chunk, page), &v), 0);
	return v;
}

static bool settled(uint32_t w, bool answered)
{
	enum soda_chunk_state s = soda_chunk_state(w);

	return s != SODA_CHUNK_FETCHING && s != SODA_CHUNK_BUSY && !(w & SODA_CW_QUEUED) &&
	       !(answered && w & SODA_CW_SENDING);
}

void host_settle(const struct soda_region *r, bool answered)
{
	uint64_t end = soda_now_ns() + 60000000000u;

	for (uint32_t i = 0; i < r->chunks; i++) {
		while (!settled(host_word(r, i), answered)) {
			if (soda_now_ns() > end)
				fake_fail("chunk %u stays as it is: %08x", i, host_word(r, i));
			/* What was fetched ahead is for the keeper to collect, in its time. */
			soda_fetch_collect_idle(soda_thread_self());
			usleep(50);
		}
	}
}

int host_sync(const struct soda_region *r)
{
	return soda_sync_chunks(r->first, r->chunks);
}

int host_cold(struct soda_region *r, uint32_t first, uint32_t n)
{
	struct soda_why why;
	size_t bytes = 0;

	for (uint32_t i = first; i < first + n; i++)
		bytes += soda_region_chunk_bytes(r, r->first + i);
	return soda_advise_range(r, host_at(r, first, 0), bytes, SODA_COLD, &why);
}

struct account {
	int64_t resident, pinned, listed, pages_missing, pages_left;
};

static struct account count_up(const struct soda_region *r)
{
	struct account a = { 0 };

	for (uint32_t i = 0; i < r->chunks; i++) {
		enum soda_chunk_state s = host_state(r, i);
		bool here = s == SODA_CHUNK_CLEAN || s == SODA_CHUNK_DIRTY;
		uint32_t pages = soda_region_chunk_bytes(r, r->first + i) / PAGE;
		uint32_t present = fake_resident(host_at(r, i, 0), pages * PAGE);

		a.resident += here;
		a.pinned += !!(host_word(r, i) & SODA_CW_PINNED);
		a.listed += soda_agent.table[r->first + i].list != 0;
		a.pages_missing += here ? pages - present : 0;
		a.pages_left += here ? 0 : present;
	}
	return a;
}

/* Slots for fetching ahead come on top, where there are any. */
static bool balanced(const struct account *a)
{
	const struct soda_buffer *b = &soda_agent.buffer;
	int64_t others =
		soda_buffer_used(b) - a->resident - soda_channels_pairs() - soda_sealing_slots();

	return a->listed == a->resident && !a->pages_missing && !a->pages_left &&
	       a->pinned == b->pinned && b->sending == 0 &&
	       (soda_agent.settings.prefetch_chunks ? others >= 0 : others == 0);
}

void host_check(const struct soda_region *r)
{
	uint64_t end = soda_now_ns() + 60000000000u;
	struct soda_why why = { "" };
	struct account a;

	/* A drop by the write-back thread is seen in the chunk before it is in the accounts. */
	for (;;) {
		host_settle(r, true);
		a = count_up(r);
		if (balanced(&a))
			break;
		if (soda_now_ns() > end)
			fake_fail("%lld resident, %lld listed, %lld pinned; the buffer has %lld "
				  "used, %lld pinned, %lld sending; %lld pages missing, %lld left",
				  (long long)a.resident, (long long)a.listed, (long long)a.pinned,
				  (long long)soda_buffer_used(&soda_agent.buffer),
				  (long long)soda_agent.buffer.pinned,
				  (long long)soda_agent.buffer.sending, (long long)a.pages_missing,
				  (long long)a.pages_left);
		usleep(100);
	}
	if (soda_audit_live(&why))
		fake_fail("%s", why.text);
	soda_replace_check(&soda_agent.replacer);
	assert_in_range(soda_agent.buffer.peak, 0, soda_agent.buffer.limit);
}

void host_expect(const struct soda_region *r, uint32_t chunk, enum soda_chunk_state state)
{
	uint64_t end = soda_now_ns() + 60000000000u;

	while (host_state(r, chunk) != state) {
		if (soda_now_ns() > end)
			fake_fail("chunk %u is %08x, not in state %d", chunk, host_word(r, chunk),
				  state);
		usleep(50);
	}
}

uint32_t host_errors(void)
{
	return atomic_load(&errors);
}

const char *host_last_error(void)
{
	return last_error;
}

uint64_t host_count(enum soda_thread_counter c)
{
	return soda_threads_sum(c) - base_count[c];
}
