/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/life/agent.h"

#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/lock.h"
#include "dpu_agent/session/keeper.h"
#include "dpu_agent/session/tenants.h"
#include "pool/erasure.h"

enum { THREADS_MAX = 4 };

static unsigned processors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > 2 * THREADS_MAX ? 2 * THREADS_MAX : (unsigned)n;
}

int soda_dpu_start(struct soda_dpu *dpu, const struct soda_dpu_options *opt)
{
	unsigned cpus = processors();
	unsigned workers = opt->daemon.workers	? opt->daemon.workers
			   : cpus < THREADS_MAX ? cpus
						: THREADS_MAX;
	const struct soda_msg_tuning tuning = { .inbox_bytes = opt->msg_inbox,
						.transfer_bytes = opt->msg_transfer,
						.wait_us = opt->msg_wait_us,
						.threads = opt->msg_threads };
	bool async = opt->async && !opt->base;
	bool codes;
	int ret;

	*dpu = (struct soda_dpu){ .opt = opt, .sessions.opt = opt, .started_ns = soda_now_ns() };
	ret = soda_dpu_servers_start(&dpu->sessions.servers, opt);
	if (ret < 0)
		return ret;
	codes = dpu->sessions.servers.pool && soda_erasure_built();
	while (!(dpu->id & ~SODA_WIRE_AGENT_FLAGS))
		if (getrandom(&dpu->id, sizeof(dpu->id), 0) != sizeof(dpu->id))
			return -EIO;
	dpu->id = (dpu->id & ~SODA_WIRE_AGENT_FLAGS) | (async ? SODA_WIRE_AGENT_EARLY : 0) |
		  (opt->dynamic && !opt->base ? SODA_WIRE_AGENT_ASKS : 0) |
		  (opt->store_bytes ? SODA_WIRE_AGENT_STORES : 0) |
		  (opt->tenants && dpu->sessions.servers.proves ? SODA_WIRE_AGENT_TOKENS : 0) |
		  (dpu->sessions.servers.pool ? SODA_WIRE_AGENT_POOL : 0) |
		  (codes ? SODA_WIRE_AGENT_CODES : 0);
	if (soda_erasure_built()) /* also for the pool of an agent that is the server */
		soda_erasure_start();
	dpu->sessions.agent = dpu->sessions.newest = dpu->id;
	ret = soda_tenants_start(&dpu->tenants, opt->tenants, &soda_agent_tenants_ops, NULL);
	if (ret < 0)
		return ret;
	if (opt->tenants)
		dpu->sessions.tenants = &dpu->tenants;
	ret = soda_paging_start(&dpu->paging, &dpu->sessions, workers, cpus);
	if (ret == 0 && opt->move_bytes)
		ret = soda_movement_start(&dpu->movement, &dpu->sessions, opt->move_bytes);
	if (ret == 0 && opt->msg_bytes)
		ret = soda_messages_start(&dpu->messages, &dpu->sessions, opt->msg_bytes, &tuning);
	return ret < 0 ? ret : soda_keeper_start(&dpu->sessions);
}

unsigned soda_dpu_stop(struct soda_dpu *dpu, uint32_t patience_ms)
{
	soda_paging_drain(&dpu->paging);
	soda_keeper_stop(&dpu->sessions, patience_ms);
	soda_movement_stop(&dpu->movement); /* its threads may have sessions' last references */
	soda_paging_stop(&dpu->paging);
	soda_router_stop(&dpu->messages);
	soda_shares_free(&dpu->sessions.shares);
	soda_tenants_stop(&dpu->tenants);
	soda_dpu_servers_stop(&dpu->sessions.servers);
	return dpu->sessions.lost;
}
