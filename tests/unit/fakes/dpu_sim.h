/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dynamic cache on a fake server, one thread, without time: a fetch takes as
 * long as a number of requests, and the clock goes on with each request.  Each page of the fake
 * server says whose it is and how often it was written, and every hit is checked against that.
 */
#ifndef SODA_TEST_DPU_SIM_H
#define SODA_TEST_DPU_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "dpu_agent/cache/dynamic/prefetch.h"

enum { SIM_REGIONS = 16, SIM_PAGE = 4096 };

/* A request of a trace. */
struct sim_access {
	uint32_t region; /* below SIM_REGIONS */
	uint32_t page, pages;
	bool write;
};

struct sim_trace {
	const char *name;
	struct sim_access *list;
	uint32_t n, room;
	uint32_t pages[SIM_REGIONS]; /* how large each region is; 0: none */
};

struct sim_config {
	const struct soda_cache_policy *policy;
	uint64_t cache_bytes;
	uint32_t entry_bytes;
	uint32_t fill_takes; /* requests from the beginning of a fetch to its end */
	unsigned workers;    /* fetches under way at a time */
	bool always;
	enum soda_prefetch_limit limit;
	double ratio;	   /* R of the model */
	uint64_t think_ns; /* from one request to the next on the fake clock; 0: 10 us */
	uint32_t window;   /* most requests that wait for fetches at a time; 0: any number */
	uint32_t batch;	   /* requests that come at once, before a worker sees the first; 0: 1 */
};

struct sim_result {
	uint64_t requests, hits, late, misses;
	uint64_t asked, missed, fetched, useless; /* bytes */
	struct soda_prefetch_stats stats;
};

struct sim;

/* What the cache takes from the server, and what would be taken without it. */
static inline double sim_traffic(const struct sim_result *r)
{
	return (double)(r->missed + r->fetched) / (double)r->asked;
}
static inline double sim_hit_rate(const struct sim_result *r)
{
	return (double)(r->hits + r->late) / (double)r->requests;
}

struct sim *sim_open(const struct sim_config *cfg, const uint32_t pages[SIM_REGIONS]);
void sim_do(struct sim *sim, const struct sim_access *access);
/* The fake clock. */
uint64_t sim_now_ns(const struct sim *sim);
void sim_sleep(struct sim *sim, uint64_t ns);
/* The region closes, and is another owner from now on. */
void sim_reopen(struct sim *sim, uint32_t region);
void sim_get(struct sim *sim, struct sim_result *result);
/* The same without stats and useless, for a look at each request. */
const struct sim_result *sim_peek(const struct sim *sim);
struct soda_prefetch *sim_prefetch(struct sim *sim);
uint32_t sim_owner(const struct sim *sim, uint32_t region);
/* Ends every fetch under way; checks that nothing is held. */
void sim_close(struct sim *sim);

/* All of a trace. */
struct sim_result sim_run(const struct sim_config *cfg, const struct sim_trace *trace);

void trace_add(struct sim_trace *t, uint32_t region, uint32_t page, uint32_t pages, bool write);
void trace_free(struct sim_trace *t);
/* Lines "r|w REGION PAGE BYTES", maybe gzipped. */
bool trace_load(struct sim_trace *t, const char *path);

/* Seeded; seed_of() reads SODA_TEST_SEED or takes the time, and prints it. */
uint64_t seed_of(void);
uint64_t roll(uint64_t *dice);

#endif
