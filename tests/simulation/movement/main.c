/* SPDX-License-Identifier: BSD-3-Clause */
/* simulation_movement: movement, by seed; ../README.md. */
#include "movement.h"
#include "net.h"
#include "seeds/seeds.h"

struct move_plan move_plan;
bool move_calm;

enum { ROOM = 64 << 20, TIGHT = 256 << 10, END_S = 120 };

static void make_plan(uint64_t seed)
{
	static const unsigned slows[] = { 2, 8, 30, 100, 400 }, stalls[] = { 0, 0, 3, 20, 100 };

	sim_seed(seed);
	move_plan = (struct move_plan){
		.seed = seed,
		.producers = sim_chance(60) ? 1 : 2,
		.consumers = (unsigned)sim_below(MOVE_CONSUMERS + 1),
		.steps = (unsigned)sim_between(5, 60),
		.faults = sim_chance(30) ? 0 : (unsigned)sim_between(1, 6),
		.slow = slows[sim_below(5)],
		.stalls = stalls[sim_below(5)],
		.shares = sim_chance(75),
		.readable = sim_chance(70),
		.slow_read = sim_chance(40)   ? 0
			     : sim_chance(50) ? 20
					      : 500,
		.tight = sim_chance(15),
	};
	for (unsigned i = 0; i < MOVE_PROGRAMS; i++)
		move_plan.far[i] = sim_chance(25);
	move_plan.agent = (struct sim_agent_settings){
		.servers = "sim://server",
		.write_budget = 1 << 20,
		.client_credit = 16,
		.window = 64,
		.grace_ms = 2000,
		.timeout_ms = 2000,
		.workers = 1,
		.completers = 1,
		.channels = 1,
		.limit = 4,
		.move = move_plan.tight ? TIGHT : ROOM,
		.source = &move_source_ops,
	};
}

/* Movement's memory, whatever happens. */
static void check_budget(void)
{
	struct sim_agent_movement has;

	if (sim_agent_movement(&has) &&
	    (has.reserved > move_plan.agent.move || has.named > has.reserved))
		sim_fail("INVARIANT: movement has %llu bytes, of %llu; buffers with names %llu",
			 (unsigned long long)has.reserved, (unsigned long long)move_plan.agent.move,
			 (unsigned long long)has.named);
}

static bool is_empty(struct sim_agent_movement *has)
{
	return sim_agent_movement(has) && has->idle && !has->reserved && !has->buffers &&
	       !has->list_bytes && !has->rings;
}

/* All programs have gone. */
static void await_nothing(void)
{
	uint64_t until = sim_now() + END_S * SIM_S;
	struct sim_agent_movement has = { 0 };

	while (!is_empty(&has) && sim_now() < until)
		sim_sleep(100 * SIM_MS, "movement's last memory");
	if (!is_empty(&has))
		sim_fail("LEAK: %llu bytes of memory, %u buffers, %llu of lists, %u rings%s",
			 (unsigned long long)has.reserved, has.buffers,
			 (unsigned long long)has.list_bytes, has.rings,
			 has.idle ? "" : "; and a getter is at work");
}

static void await_programs(void)
{
	while (!move_all_ended()) {
		sim_sleep(5 * SIM_MS, "programs");
		check_budget();
	}
}

static void *world_main(void *arg)
{
	struct sim_fiber *faults;

	for (unsigned i = 0; i < move_plan.producers; i++)
		move_begin(i);
	for (unsigned i = 0; i < move_plan.consumers; i++)
		move_begin(MOVE_PRODUCERS + i);
	sim_limit(sim_now() + 3000 * SIM_S);
	faults = sim_spawn(SIM_WORLD, "faults", move_faults_main, NULL);
	sim_join(faults);
	if (!move_plan.faults)
		sim_sleep(sim_below(60 * SIM_S), "programs that nothing disturbs");
	move_settle();
	move_plan.slow_read = 0;
	move_calm = true;
	sim_note("all is calm");
	sim_limit(sim_now() + 600 * SIM_S);
	await_programs();
	await_nothing();
	return NULL;
}

static void run(void *arg)
{
	sim_note("producers %u, consumers %u, lists %u, faults %u,%s%s%s", move_plan.producers,
		 move_plan.consumers, move_plan.steps, move_plan.faults,
		 move_plan.shares ? " one machine," : "", move_plan.readable ? " readable," : "",
		 move_plan.tight ? " little memory" : "");
	sim_host_shares = move_plan.shares;
	for (unsigned i = 0; i < MOVE_PROGRAMS; i++) {
		sim_net_who[move_process(i)].user = 1000 + (i == MOVE_PROGRAMS - 1);
		sim_net_who[move_process(i)].far = move_plan.far[i];
	}
	sim_net_delay(20 * SIM_US, 30 * SIM_US);
	move_boot_agent();
	sim_join(sim_spawn(SIM_WORLD, "world", world_main, NULL));
}

static void one_seed(uint64_t seed)
{
	make_plan(seed);
	sim_run(move_plan.slow, move_plan.stalls, run, NULL);
}

int main(int argc, char **argv)
{
	static const struct sim_seeds program = { .name = "simulation_movement", .one = one_seed };

	return sim_seeds_main(argc, argv, &program);
}
