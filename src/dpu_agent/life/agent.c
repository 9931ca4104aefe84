/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/life/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "dpu_agent/session/keeper.h"

enum { THREADS_MAX = 4, FLAGS = SODA_WIRE_AGENT_EARLY | SODA_WIRE_AGENT_ASKS };

uint64_t soda_dpu_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static unsigned processors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > 2 * THREADS_MAX ? 2 * THREADS_MAX : (unsigned)n;
}

static unsigned choose(uint32_t wanted, unsigned automatic)
{
	unsigned n = wanted ? wanted : automatic;

	return n ? n : 1;
}

int soda_dpu_start(struct soda_dpu *dpu, const struct soda_dpu_options *opt)
{
	unsigned half = processors() / 2;
	unsigned automatic = processors() < THREADS_MAX ? processors() : THREADS_MAX;
	unsigned workers = choose(opt->workers, automatic);
	unsigned completers = choose(opt->completers, half);
	int ret;

	*dpu = (struct soda_dpu){ .opt = opt, .started_ms = soda_dpu_now_ms() };
	dpu->async = opt->async && !opt->base;
	while (!(dpu->id & ~FLAGS))
		if (getrandom(&dpu->id, sizeof(dpu->id), 0) != sizeof(dpu->id))
			return -EIO;
	dpu->id = (dpu->id & ~FLAGS) | (dpu->async ? SODA_WIRE_AGENT_EARLY : 0) |
		  (opt->dynamic && !opt->base ? SODA_WIRE_AGENT_ASKS : 0);
	dpu->sessions.agent = dpu->sessions.newest = dpu->id;
	dpu->aggregate = opt->aggregate && !opt->base;
	/* a hand-off to a thread that no processor is free for only costs its wake-up */
	dpu->near = dpu->async && processors() < workers + completers;
	dpu->channels = choose(opt->channels, dpu->async && !dpu->near ? half : workers);
	soda_schedule_init(&dpu->schedule, opt->window);
	ret = soda_caches_start(dpu);
	if (ret < 0)
		return ret;
	ret = soda_completers_start(&dpu->completers, dpu->async ? completers : 0);
	return ret < 0 ? ret : soda_keeper_start(dpu);
}

unsigned soda_dpu_stop(struct soda_dpu *dpu, uint32_t patience_ms)
{
	soda_caches_stop(dpu);
	soda_keeper_stop(dpu, patience_ms);
	soda_completers_stop(&dpu->completers);
	soda_caches_destroy(dpu);
	soda_blocks_free();
	return dpu->sessions.lost;
}
