/* SPDX-License-Identifier: BSD-3-Clause */
/* The three programs, an application, and what goes wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk.h"
#include "net.h"
#include "seeds/seeds.h"
#include "soda.h"
#include "trust/tenants.h"
#include "world.h"

static void on_log(int level, const char *line, void *arg)
{
	sim_note("log %d: %s", level, line);
}

static void *host_main(void *arg)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	struct sim_fiber *workers[SIM_THREADS], *fate;
	char buffer[32];
	int ret;

	snprintf(buffer, sizeof(buffer), "%llu",
		 (unsigned long long)plan.buffer_chunks * plan.chunk_bytes);
	if (plan.servers > 1) {
		setenv("SODA_SLAB", "2M", 1);
		setenv("SODA_REBUILD_RATE", plan.rebuild_rate, 1);
		setenv("SODA_REDUNDANCY",
		       plan.code       ? plan.code
		       : plan.mirrored ? "mirror:2"
				       : "none",
		       1);
	}
	if (plan.sealed_files && !plan.agent_settings.seal)
		setenv("SODA_SEAL_KEY_FILE", SIM_DISK_KEY, 1);
	if (sim_tenants_of_host()) {
		setenv("SODA_TENANT", "host", 1);
		setenv("SODA_KEY_FILE", SIM_TENANT_KEY_HOST, 1);
	}
	cfg.server = plan.agent ? NULL : plan.agent_settings.servers;
	cfg.dpu = plan.agent ? sim_net_address(SIM_AGENT) : NULL;
	cfg.buffer = buffer;
	cfg.evict = plan.evict;
	cfg.chunk_bytes = plan.chunk_bytes;
	cfg.threads = plan.threads;
	cfg.prefetch_chunks = plan.prefetch ? plan.prefetch : SODA_OFF;
	cfg.connect_timeout_ms = plan.connect_ms;
	cfg.fault_timeout_ms = plan.fault_ms;
	cfg.mode = plan.handler ? SODA_MODE_HANDLER : SODA_MODE_INLINE;
	cfg.log = on_log;
	cfg.log_level = 3 + 1;
	ret = soda_init(&cfg);
	if (ret)
		sim_fail("soda_init: %d %s", ret, soda_last_error());
	if (sim_watched_chunk >= 0)
		sim_watched = sim_host_word((uint32_t)sim_watched_chunk);
	for (unsigned i = 0; i < plan.threads; i++)
		workers[i] = sim_spawn(SIM_HOST, "application", sim_work_main, NULL);
	fate = sim_spawn(SIM_WORLD, "fate", sim_fate_main, NULL);
	sim_limit(sim_now() + 3000 * SIM_S);
	for (unsigned i = 0; i < plan.threads; i++)
		sim_join(workers[i]);
	sim_join(fate);
	sim_fate_mend();
	sim_note("all is mended");
	sim_limit(sim_now() + 600 * SIM_S + plan.agent_settings.seal_keep_ms * SIM_MS);
	sim_fate_settle();
	sim_work_end();
	ret = soda_shutdown();
	if (ret)
		sim_fail("WRONG CODE: soda_shutdown: %d", ret);
	return NULL;
}

static void run(void *arg)
{
	static char servers[SIM_SERVERS * 32];

	for (unsigned i = 0; i < plan.servers; i++)
		snprintf(servers + strlen(servers), 32, "%s%s", i ? "," : "",
			 sim_net_address(SIM_SERVER + i));
	plan.agent_settings.servers = servers;
	sim_tenants_make();
	sim_plan_print();
	sim_net_delay(plan.delay_ns, plan.jitter_ns);
	for (unsigned i = 0; i < plan.servers; i++)
		sim_fate_boot(SIM_SERVER + i);
	if (plan.agent)
		sim_fate_boot(SIM_AGENT);
	sim_join(sim_spawn(SIM_HOST, "main", host_main, NULL));
	sim_net_check();
}

static void one_seed(uint64_t seed)
{
	static const unsigned slows[] = { 2, 8, 30, 100, 400 }, stalls[] = { 0, 0, 3, 20, 100 };

	sim_seed(seed);
	sim_plan_make(seed);
	plan.slow = slows[sim_below(5)];
	plan.stalls = stalls[sim_below(5)];
	sim_run(plan.slow, plan.stalls, run, NULL);
}

int main(int argc, char **argv)
{
	static const struct sim_seeds program = { .name = "simulation",
						  .one = one_seed,
						  .say = sim_host_say,
						  .has_pool = sim_plan_has_pool };

	return sim_seeds_main(argc, argv, &program);
}
