/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong. */
#include "base/limits.h"
#include "movement.h"
#include "net.h"
#include "seeds/seeds.h"

static unsigned in_force;
static uint64_t disturbed_ns;

/* A call that waits for its answer, and what it was about. */
static const uint64_t aftermath = (SODA_MOVE_CALL_MS + SODA_CONNECT_MS + 10000) * SIM_MS;

static void disturb(uint64_t length_ns)
{
	uint64_t until = sim_now() + length_ns + aftermath;

	disturbed_ns = disturbed_ns < until ? until : disturbed_ns;
}

void move_disturb(void)
{
	disturb(0);
}

bool move_excused(uint64_t began_ns)
{
	uint64_t silent = sim_net_silent_until();

	return in_force || began_ns <= disturbed_ns || silent == SIM_NEVER ||
	       (silent && began_ns <= silent + aftermath);
}

static uint64_t some_time(void)
{
	static const uint64_t lengths[] = { SIM_MS, 20 * SIM_MS, 300 * SIM_MS, 3 * SIM_S,
					    40 * SIM_S };

	return 1 + sim_below(lengths[sim_below(5)]);
}

static unsigned some_program(void)
{
	unsigned i = (unsigned)sim_below(move_plan.producers + move_plan.consumers);

	return i < move_plan.producers ? i : MOVE_PRODUCERS + i - move_plan.producers;
}

static void *boot(void *arg)
{
	sim_agent_boot(&move_plan.agent);
	return NULL;
}

static void *end(void *arg)
{
	sim_agent_end();
	return NULL;
}

void move_boot_agent(void)
{
	sim_join(sim_spawn(SIM_AGENT, "main", boot, NULL));
}

static void gone(enum sim_process p, bool silently)
{
	sim_kill(p);
	sim_net_kill(p, silently);
	sim_fd_kill(p);
}

static void restart_agent(void)
{
	uint64_t length = sim_chance(50) ? some_time() : 1;
	bool gently = sim_chance(30), silently = !gently && sim_chance(30);

	sim_note("FAULT the agent %s for %.3f ms", gently ? "ends" : "is killed",
		 (double)length / 1e6);
	if (gently)
		sim_join(sim_spawn(SIM_AGENT, "main", end, NULL));
	gone(SIM_AGENT, silently);
	sim_memory_fresh(SIM_AGENT);
	sim_sleep(length, "an agent that is not there");
	move_boot_agent();
}

static void restart_program(void)
{
	unsigned i = some_program();

	sim_note("FAULT program %u is killed", i);
	move_killed(i);
	gone(move_process(i), sim_chance(20));
	sim_sleep(sim_chance(50) ? some_time() : 1, "a program that is not there");
	move_begin(i);
}

static void stop_one(void)
{
	enum sim_process p = sim_chance(40) ? SIM_AGENT : move_process(some_program());

	sim_note("FAULT process %d is stopped", p);
	sim_stop(p, true);
	sim_sleep(some_time(), "a process that is stopped");
	sim_stop(p, false);
	sim_net_continue(p);
}

static void break_one(void)
{
	enum sim_break how = (enum sim_break)sim_below(SIM_BREAKS);

	sim_net_break(move_process(some_program()), SIM_AGENT, how);
}

static void delay_one(void)
{
	uint64_t length = some_time();

	sim_net_delay_one(move_process(some_program()), SIM_AGENT, length);
	sim_sleep(length, "a connection that stands still");
}

static void cut(void)
{
	enum sim_process p = move_process(some_program());

	sim_net_cut(p, SIM_AGENT, true);
	sim_sleep(some_time(), "a network that is cut");
	sim_net_cut(p, SIM_AGENT, false);
}

static void starve(void)
{
	sim_note("FAULT the agent lacks memory, or descriptors");
	sim_starve(SIM_AGENT, sim_chance(50) ? (unsigned)sim_between(5, 500) : 0,
		   (unsigned)sim_between(0, 300));
	sim_sleep(some_time(), "memory");
	sim_starve(SIM_AGENT, 0, 0);
}

void *move_faults_main(void *arg)
{
	static void (*const faults[])(
		void) = { restart_agent, restart_program, restart_program, stop_one,
			  break_one,	 break_one,	  delay_one,	   cut,
			  starve };

	for (unsigned i = 0; i < move_plan.faults; i++) {
		sim_sleep(sim_chance(70) ? sim_below(20 * SIM_MS) : some_time(), "a fault");
		in_force++;
		faults[sim_below(sizeof(faults) / sizeof(faults[0]))]();
		in_force--;
		disturb(SIM_S);
	}
	return NULL;
}

void move_settle(void)
{
	uint64_t silent;

	while ((silent = sim_net_silent_until()) == SIM_NEVER)
		sim_sleep(SIM_S, "the end of a silence");
	if (disturbed_ns && disturbed_ns < silent + aftermath)
		disturbed_ns = silent + aftermath;
	if (sim_now() < disturbed_ns)
		sim_sleep(disturbed_ns - sim_now() + 1, "the end of all faults");
}
