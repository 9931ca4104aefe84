/* SPDX-License-Identifier: BSD-3-Clause */
/* simulation_several: programs that meet on one server, by seed; ../README.md. */
#include "../disk.h"
#include "../seeds/seeds.h"
#include "several.h"

struct several_plan several_plan;
bool several_calm;

static uint64_t one_of(const uint64_t *list, unsigned n)
{
	return list[sim_below(n)];
}
#define ONE_OF(...)                                                                                \
	one_of((const uint64_t[]){ __VA_ARGS__ }, sizeof((const uint64_t[]){ __VA_ARGS__ }) / 8)

static struct several_settings make_program(void)
{
	struct several_settings s = {
		.chunk_bytes = (uint32_t)ONE_OF(4096, 8192, 16384, 65536),
		.prefetch = (uint32_t)ONE_OF(0, 0, 4, 16),
		.evict = sim_chance(70) ? "ghost" : "fifo",
		.handler = sim_chance(25),
	};

	s.buffer_chunks = 8 + (uint32_t)ONE_OF(0, 4, 16, 60);
	return s;
}

static void make_plan(uint64_t seed)
{
	static const unsigned slows[] = { 2, 8, 30, 100, 400 }, stalls[] = { 0, 0, 3, 20, 100 };

	sim_seed(seed);
	several_plan = (struct several_plan){
		.seed = seed,
		.programs = (unsigned)sim_between(2, SIM_HOSTS),
		.ops = 120,
		.faults = sim_chance(20) ? 0 : (unsigned)sim_between(1, 8),
		.slow = slows[sim_below(5)],
		.stalls = stalls[sim_below(5)],
		.by_agent = sim_chance(50),
		.poisons = sim_chance(70),
		.connect_ms = (uint32_t)ONE_OF(1000, 5000),
		.fault_ms = (uint32_t)ONE_OF(1000, 3000, 10000),
		.delay_ns = ONE_OF(5 * SIM_US, 30 * SIM_US, 300 * SIM_US),
	};
	several_plan.jitter_ns = several_plan.delay_ns * ONE_OF(0, 1, 10);
	for (unsigned i = 0; i < several_plan.programs; i++)
		several_plan.program[i] = make_program();
	several_plan.server = (struct sim_server_settings){
		.capacity = 64ull << 20,
		.grace_ms = (uint32_t)ONE_OF(1000, 5000, 60000),
		.max_clients = 1000,
		.workers = (uint32_t)sim_between(1, 3),
		.files = true,
	};
	several_plan.agent = (struct sim_agent_settings){
		.servers = "sim://server",
		.write_budget = ONE_OF(64, 256, 4096) << 10,
		.client_credit = ONE_OF(128, 1024, 16384) << 10,
		.window = ONE_OF(256, 4096) << 10,
		.cache_bytes = ONE_OF(4, 16) << 20,
		.static_bytes = 1 << 20,
		.grace_ms = (uint32_t)ONE_OF(1000, 5000, 60000),
		.timeout_ms = (uint32_t)ONE_OF(500, 2000, 10000),
		.workers = (uint32_t)sim_between(1, 3),
		.completers = (uint32_t)sim_between(1, 2),
		.channels = (uint32_t)sim_between(1, 3),
		.aggregate = sim_chance(80),
		.async = true,
		.dynamic = sim_chance(60),
		.limit = (uint32_t)sim_between(0, 2),
	};
	if (several_plan.by_agent && sim_chance(50)) {
		several_plan.agent.store = ONE_OF(8, 16, 32) * several_plan.program[0].chunk_bytes;
		for (unsigned i = 1; i < several_plan.programs; i++) /* those that share it */
			if (sim_chance(70))
				several_plan.program[i].chunk_bytes =
					several_plan.program[0].chunk_bytes;
	}
}

static void say_plan(void)
{
	sim_note("plan: %u programs, %u faults, %s%s%s, server's grace %u ms, agent's %u ms, "
		 "points between decisions %u, stalls %u",
		 several_plan.programs, several_plan.faults,
		 several_plan.by_agent ? "by an agent" : "direct",
		 several_plan.agent.store ? " with a store" : "",
		 several_plan.by_agent && several_plan.agent.dynamic ? ", dynamic" : "",
		 several_plan.server.grace_ms, several_plan.agent.grace_ms, several_plan.slow,
		 several_plan.stalls);
	for (unsigned i = 0; i < several_plan.programs; i++)
		sim_note("plan: program %u has chunks of %u, a buffer of %u, prefetch %u, %s%s", i,
			 several_plan.program[i].chunk_bytes, several_plan.program[i].buffer_chunks,
			 several_plan.program[i].prefetch, several_plan.program[i].evict,
			 several_plan.program[i].handler ? ", handler" : "");
}

/* All have gone. */
static void await_nothing(void)
{
	uint64_t until = sim_now() + 300 * SIM_S;

	while (sim_server(SIM_SERVER)->used() && sim_now() < until)
		sim_sleep(100 * SIM_MS, "the server's last memory");
	if (sim_server(SIM_SERVER)->used())
		sim_fail("LEAK: the server has %llu bytes, and nobody has anything",
			 (unsigned long long)sim_server(SIM_SERVER)->used());
}

static void *world_main(void *arg)
{
	struct sim_fiber *faults;

	for (unsigned i = 0; i < several_plan.programs; i++)
		several_begin(i);
	sim_limit(sim_now() + 3000 * SIM_S);
	faults = sim_spawn(SIM_WORLD, "faults", several_faults_main, NULL);
	sim_join(faults);
	several_settle();
	several_calm = true;
	sim_note("all is mended");
	sim_wake(&several_calm, SIM_FIBERS);
	sim_limit(sim_now() + 1500 * SIM_S);
	while (!several_all_ended()) {
		sim_sleep(50 * SIM_MS, "programs");
		if (several_plan.by_agent)
			sim_agent_check();
	}
	await_nothing();
	several_model_end();
	return NULL;
}

static void run(void *arg)
{
	say_plan();
	sim_host_shares = several_plan.agent.store;
	for (unsigned i = 0; i < several_plan.programs; i++)
		sim_net_who[several_process(i)].user = SIM_DISK_USER;
	sim_net_delay(several_plan.delay_ns, several_plan.jitter_ns);
	sim_disk_make();
	several_model_begin();
	several_boot(SIM_SERVER);
	if (several_plan.by_agent)
		several_boot(SIM_AGENT);
	sim_join(sim_spawn(SIM_WORLD, "world", world_main, NULL));
	sim_net_check();
}

static void one_seed(uint64_t seed)
{
	make_plan(seed);
	sim_run(several_plan.slow, several_plan.stalls, run, NULL);
}

int main(int argc, char **argv)
{
	static const struct sim_seeds program = { .name = "simulation_several",
						  .one = one_seed,
						  .say = sim_host_say };

	return sim_seeds_main(argc, argv, &program);
}
