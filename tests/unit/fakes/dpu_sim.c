/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/fakes/dpu_sim.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/lock.h"

struct pending {
	struct soda_fill *fill;
	uint64_t due;
	uint64_t *snapshot; /* what the server sent: as it was when asked */
};

struct sim {
	struct sim_config cfg;
	struct soda_prefetch *p;
	uint32_t owner[SIM_REGIONS], pages[SIM_REGIONS];
	uint32_t *version[SIM_REGIONS]; /* of each page */
	struct pending pending[SODA_FILLS_MAX];
	unsigned underway;
	uint32_t waiting; /* requests that wait for fetches */
	uint64_t now, now_ns;
	struct sim_result result;
};

struct late {
	struct soda_cache_waiter waiter;
	struct sim *sim;
	struct sim_access access;
};

static uint64_t content(uint32_t region, uint32_t page, uint32_t version)
{
	return (uint64_t)region << 56 | (uint64_t)version << 32 | page;
}

static uint32_t region_of(const struct sim *sim, uint32_t owner)
{
	for (uint32_t i = 0; i < SIM_REGIONS; i++)
		if (sim->pages[i] && sim->owner[i] == owner)
			return i;
	fail_msg("a fetch for owner %u, which does not exist", owner);
	return 0;
}

static void check_bytes(struct sim *sim, const struct sim_access *a, const uint8_t *memory)
{
	for (uint32_t i = 0; i < a->pages; i++) {
		uint64_t got, want = content(a->region, a->page + i,
					     sim->version[a->region][a->page + i]);

		memcpy(&got, memory + (size_t)i * SIM_PAGE, sizeof(got));
		if (got != want)
			fail_msg("region %u page %u: %016llx, expected %016llx", a->region,
				 a->page + i, (unsigned long long)got, (unsigned long long)want);
	}
}

static void late_done(struct soda_cache_waiter *w, int status, const struct soda_cache_ref *ref)
{
	struct late *late = (struct late *)w;
	uint64_t bytes = (uint64_t)late->access.pages * SIM_PAGE;

	late->sim->waiting--;
	if (status) {
		late->sim->result.missed += bytes;
		late->sim->result.late--;
		late->sim->result.misses++;
	} else {
		check_bytes(late->sim, &late->access, ref->memory);
		soda_cache_release(soda_prefetch_cache(late->sim->p), ref->slot);
	}
	free(late);
}

static void end_fill(struct sim *sim, struct pending *done)
{
	const struct soda_fill *f = done->fill;

	for (uint32_t k = 0; k < f->runs_n; k++)
		for (uint32_t at = f->runs[k].at; at < f->runs[k].at + f->runs[k].bytes;
		     at += SIM_PAGE)
			memcpy(f->memory + at, &done->snapshot[at / SIM_PAGE], 8);
	free(done->snapshot);
	soda_prefetch_filled(sim->p, done->fill, 0);
	*done = sim->pending[--sim->underway];
}

static void begin_fill(struct sim *sim, struct soda_fill *fill)
{
	uint32_t region = region_of(sim, fill->owner), first = (uint32_t)(fill->offset / SIM_PAGE);
	struct pending *p = &sim->pending[sim->underway++];

	p->fill = fill;
	p->due = sim->now + sim->cfg.fill_takes;
	p->snapshot = calloc(sim->cfg.entry_bytes / SIM_PAGE, sizeof(uint64_t));
	assert_non_null(p->snapshot);
	for (uint32_t k = 0; k < fill->runs_n; k++) {
		uint32_t from = fill->runs[k].at / SIM_PAGE;
		uint32_t to = from + fill->runs[k].bytes / SIM_PAGE;

		assert_true(first + to <= sim->pages[region]);
		for (uint32_t i = from; i < to; i++)
			p->snapshot[i] =
				content(region, first + i, sim->version[region][first + i]);
	}
	sim->result.fetched += fill->bytes;
}

static void fetch(struct sim *sim)
{
	struct soda_fill *fill;

	for (unsigned i = 0; i < sim->underway;)
		if (sim->pending[i].due <= sim->now)
			end_fill(sim, &sim->pending[i]);
		else
			i++;
	while (sim->underway < sim->cfg.workers && (fill = soda_prefetch_take(sim->p)))
		begin_fill(sim, fill);
	for (unsigned i = 0; i < sim->underway && !sim->cfg.fill_takes;)
		end_fill(sim, &sim->pending[i]);
}

static void do_read(struct sim *sim, const struct sim_access *a)
{
	uint64_t offset = (uint64_t)a->page * SIM_PAGE;
	uint32_t bytes = a->pages * SIM_PAGE;
	struct late *late = calloc(1, sizeof(*late));
	struct soda_cache_ref ref;

	assert_non_null(late);
	late->waiter.done = late_done;
	late->sim = sim;
	late->access = *a;
	sim->result.requests++;
	sim->result.asked += bytes;
	sim->waiting++; /* before: it may be told at once */
	switch (soda_prefetch_read(sim->p, sim->owner[a->region], offset, bytes, NULL,
				   &late->waiter, &ref)) {
	case SODA_CACHE_LATE:
		sim->result.late++;
		return;
	case SODA_CACHE_HIT:
		sim->result.hits++;
		check_bytes(sim, a, ref.memory);
		soda_cache_release(soda_prefetch_cache(sim->p), ref.slot);
		break;
	case SODA_CACHE_MISS:
		sim->result.misses++;
		sim->result.missed += bytes;
	}
	sim->waiting--;
	free(late);
}

static void do_write(struct sim *sim, const struct sim_access *a)
{
	struct soda_cache *cache = soda_prefetch_cache(sim->p);
	uint64_t offset = (uint64_t)a->page * SIM_PAGE, bytes = (uint64_t)a->pages * SIM_PAGE;

	soda_cache_written(cache, sim->owner[a->region], offset, bytes);
	for (uint32_t i = 0; i < a->pages; i++)
		sim->version[a->region][a->page + i]++;
	soda_cache_written(cache, sim->owner[a->region], offset, bytes);
}

static uint64_t clock_now(void *arg)
{
	const struct sim *sim = arg;

	return sim->now_ns;
}

static const struct soda_prefetch_ops sim_ops = { .now_ns = clock_now };

uint64_t sim_now_ns(const struct sim *sim)
{
	return sim->now_ns;
}

void sim_sleep(struct sim *sim, uint64_t ns)
{
	sim->now_ns += ns;
}

struct sim *sim_open(const struct sim_config *cfg, const uint32_t pages[SIM_REGIONS])
{
	struct sim *sim = calloc(1, sizeof(*sim));
	struct soda_prefetch_options opt = { .cache_bytes = cfg->cache_bytes,
					     .entry_bytes = cfg->entry_bytes,
					     .policy = cfg->policy,
					     .always = cfg->always,
					     .limit = cfg->limit,
					     .seed = 1 };

	assert_non_null(sim);
	sim->cfg = *cfg;
	assert_int_equal(soda_prefetch_create(&opt, &sim_ops, sim, &sim->p), 0);
	soda_prefetch_net(sim->p, (uint64_t)(cfg->ratio * 1e9), 1000000000);
	soda_prefetch_intra(sim->p, 1000000000, 1000000000);
	for (uint32_t i = 0; i < SIM_REGIONS; i++) {
		struct soda_owner_name name = { .id = { 1, i },
						.bytes = (uint64_t)pages[i] * SIM_PAGE };

		if (!pages[i])
			continue;
		sim->pages[i] = pages[i];
		sim->version[i] = calloc(pages[i], sizeof(uint32_t));
		assert_non_null(sim->version[i]);
		assert_int_equal(soda_prefetch_open(sim->p, &name, &sim->owner[i]), 0);
	}
	return sim;
}

static void tick(struct sim *sim)
{
	sim->now++;
	sim->now_ns += sim->cfg.think_ns ? sim->cfg.think_ns : 10000;
}

void sim_do(struct sim *sim, const struct sim_access *a)
{
	uint32_t batch = sim->cfg.batch ? sim->cfg.batch : 1;

	tick(sim);
	if (a->write)
		do_write(sim, a);
	else
		do_read(sim, a);
	if (sim->result.requests % batch == 0)
		soda_prefetch_step(sim->p);
	fetch(sim);
	while (sim->cfg.window && sim->waiting >= sim->cfg.window) {
		soda_prefetch_step(sim->p);
		tick(sim);
		fetch(sim);
	}
}

void sim_reopen(struct sim *sim, uint32_t region)
{
	struct soda_owner_name name = { .id = { sim->now, region },
					.bytes = (uint64_t)sim->pages[region] * SIM_PAGE };

	while (sim->underway)
		end_fill(sim, &sim->pending[0]);
	soda_prefetch_close(sim->p, sim->owner[region], true);
	while (soda_prefetch_take(sim->p))
		fail_msg("a fetch for an owner that is gone");
	assert_int_equal(soda_prefetch_open(sim->p, &name, &sim->owner[region]), 0);
}

void sim_get(struct sim *sim, struct sim_result *result)
{
	soda_prefetch_stats(sim->p, &sim->result.stats);
	sim->result.useless = sim->result.stats.cache.bytes_useless;
	*result = sim->result;
}

const struct sim_result *sim_peek(const struct sim *sim)
{
	return &sim->result;
}

struct soda_prefetch *sim_prefetch(struct sim *sim)
{
	return sim->p;
}

uint32_t sim_owner(const struct sim *sim, uint32_t region)
{
	return sim->owner[region];
}

void sim_close(struct sim *sim)
{
	while (sim->underway)
		end_fill(sim, &sim->pending[0]);
	soda_cache_check(soda_prefetch_cache(sim->p));
	soda_prefetch_stop(sim->p);
	for (uint32_t i = 0; i < SIM_REGIONS; i++) {
		if (sim->pages[i])
			soda_prefetch_close(sim->p, sim->owner[i], true);
		free(sim->version[i]);
	}
	soda_prefetch_destroy(sim->p);
	free(sim);
}

struct sim_result sim_run(const struct sim_config *cfg, const struct sim_trace *trace)
{
	struct sim *sim = sim_open(cfg, trace->pages);
	struct sim_result result;

	for (uint32_t i = 0; i < trace->n; i++)
		sim_do(sim, &trace->list[i]);
	while (sim->underway)
		end_fill(sim, &sim->pending[0]);
	sim_get(sim, &result);
	sim_close(sim);
	return result;
}

void trace_add(struct sim_trace *t, uint32_t region, uint32_t page, uint32_t pages, bool write)
{
	if (t->n == t->room) {
		t->room = t->room ? 2 * t->room : 1024;
		t->list = realloc(t->list, t->room * sizeof(*t->list));
		assert_non_null(t->list);
	}
	assert_true(region < SIM_REGIONS);
	if (page + pages > t->pages[region])
		t->pages[region] = page + pages;
	t->list[t->n++] = (struct sim_access){ region, page, pages, write };
}

void trace_free(struct sim_trace *t)
{
	free(t->list);
	*t = (struct sim_trace){ 0 };
}

bool trace_load(struct sim_trace *t, const char *path)
{
	unsigned region, bytes;
	gzFile in = gzopen(path, "r");
	char line[64], kind;
	unsigned page;

	if (!in)
		return false;
	while (gzgets(in, line, sizeof(line)))
		if (sscanf(line, "%c %u %u %u", &kind, &region, &page, &bytes) == 4)
			trace_add(t, region, page, bytes / SIM_PAGE, kind == 'w');
	gzclose(in);
	return t->n > 0;
}

uint64_t seed_of(void)
{
	const char *given = getenv("SODA_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : soda_now_ns();

	print_message("seed: SODA_TEST_SEED=%llu\n", (unsigned long long)seed);
	return seed | 1;
}

uint64_t roll(uint64_t *dice)
{
	*dice ^= *dice >> 12;
	*dice ^= *dice << 25;
	*dice ^= *dice >> 27;
	return *dice * 0x2545f4914f6cdd1dull;
}
