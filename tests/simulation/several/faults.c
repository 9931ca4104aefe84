/* SPDX-License-Identifier: BSD-3-Clause */
/* Things that go wrong. */
#include "../seeds/seeds.h"
#include "base/limits.h"
#include "base/log.h"
#include "several.h"
#include "soda.h"

static unsigned in_force;
static uint64_t disturbed_ns;

/* From the end of a fault on, so long until its last consequences are known to everybody. */
static uint64_t aftermath(void)
{
	uint64_t ms = 2ull * several_plan.fault_ms + several_plan.connect_ms + 3000;

	if (several_plan.by_agent)
		ms += several_plan.agent.timeout_ms + 5000;
	return ms * SIM_MS;
}

static void disturb(uint64_t length_ns)
{
	uint64_t until = sim_now() + length_ns + aftermath();

	disturbed_ns = disturbed_ns < until ? until : disturbed_ns;
}

bool several_excused(uint64_t began_ns)
{
	uint64_t silent = sim_net_silent_until();

	return in_force || began_ns <= disturbed_ns || silent == SIM_NEVER ||
	       (silent && began_ns <= silent + aftermath());
}

void several_excuse(const char *what, int err, uint64_t began_ns)
{
	if (!several_excused(began_ns))
		sim_fail("WRONG CODE: %s of program %u: %s (%s), and nothing was wrong for %.3f ms",
			 what, several_self(), soda_strerror(err), soda_last_error(),
			 (double)(sim_now() - disturbed_ns) / 1e6);
}

static uint64_t some_time(void)
{
	static const uint64_t lengths[] = { SIM_MS, 20 * SIM_MS, 300 * SIM_MS, 3 * SIM_S,
					    20 * SIM_S };

	return 1 + sim_below(lengths[sim_below(5)]);
}

static void *boot(void *arg)
{
	if (sim_process() == SIM_AGENT)
		sim_agent_boot(&several_plan.agent);
	else
		sim_server(sim_process())->boot(&several_plan.server);
	return NULL;
}

static void *end(void *arg)
{
	if (sim_process() == SIM_AGENT)
		sim_agent_end();
	else
		sim_server(sim_process())->end();
	return NULL;
}

void several_boot(enum sim_process p)
{
	sim_join(sim_spawn(p, "main", boot, NULL));
}

void several_gone(enum sim_process p, bool silently)
{
	sim_kill(p);
	sim_net_kill(p, silently);
	sim_fd_kill(p);
	sim_memory_fresh((int)p);
}

static void restart_daemon(void)
{
	enum sim_process p = several_plan.by_agent && sim_chance(50) ? SIM_AGENT : SIM_SERVER;
	uint64_t length = sim_chance(50) ? some_time() : 1;
	bool gently = sim_chance(30), silently = !gently && sim_chance(30);

	sim_note("FAULT %s %s for %.3f ms", sim_net_name(p), gently ? "ends" : "is killed",
		 (double)length / 1e6);
	if (gently)
		sim_join(sim_spawn(p, "main", end, NULL));
	several_gone(p, silently);
	if (p == SIM_SERVER)
		several_model_server_gone();
	sim_sleep(length, "a process that is not there");
	if (p == SIM_SERVER && sim_chance(30))
		several_model_rewrite((int)sim_below(SEVERAL_FILES), sim_chance(50));
	several_boot(p);
}

static void restart_program(void)
{
	unsigned i = (unsigned)sim_below(several_plan.programs);

	if (several_is_leaving(i))
		return;
	sim_note("FAULT program %u is killed", i);
	several_model_killed(i);
	several_gone(several_process(i), sim_chance(20));
	sim_sleep(sim_chance(50) ? some_time() : 1, "a program that is not there");
	several_begin(i);
}

static enum sim_process some_program(void)
{
	return several_process((unsigned)sim_below(several_plan.programs));
}

static void some_link(enum sim_process *client_p, enum sim_process *server_p)
{
	bool upstream = several_plan.by_agent && sim_chance(40);

	*client_p = upstream ? SIM_AGENT : some_program();
	*server_p = several_plan.by_agent && !upstream ? SIM_AGENT : SIM_SERVER;
}

static void stop_one(void)
{
	enum sim_process p = sim_chance(50)			       ? some_program()
			     : several_plan.by_agent && sim_chance(50) ? SIM_AGENT
								       : SIM_SERVER;
	uint64_t length = some_time();

	sim_note("FAULT %s is stopped for %.3f ms", sim_net_name(p), (double)length / 1e6);
	sim_stop(p, true);
	sim_sleep(length, "a process that is stopped");
	sim_stop(p, false);
	sim_net_continue(p);
}

static void break_some(void)
{
	enum sim_break how = (enum sim_break)sim_below(SIM_BREAKS);
	enum sim_process client, server;

	some_link(&client, &server);
	for (uint64_t n = sim_between(1, 4); n && sim_net_break(client, server, how); n--)
		;
}

static void delay_one(void)
{
	enum sim_process client, server;
	uint64_t length = some_time();

	some_link(&client, &server);
	sim_net_delay_one(client, server, length);
	sim_sleep(length, "a connection that stands still");
}

static void cut(void)
{
	enum sim_process client, server;

	some_link(&client, &server);
	sim_note("FAULT %s is cut off from %s", sim_net_name(client), sim_net_name(server));
	sim_net_cut(client, server, true);
	sim_sleep(some_time(), "a network that is cut");
	sim_net_cut(client, server, false);
}

static void starve(void)
{
	enum sim_process p = several_plan.by_agent && sim_chance(50) ? SIM_AGENT : SIM_SERVER;

	sim_note("FAULT %s lacks memory, or descriptors", sim_net_name(p));
	sim_starve(p, sim_chance(50) ? (unsigned)sim_between(5, 500) : 0,
		   (unsigned)sim_between(0, 300));
	sim_sleep(some_time(), "memory");
	sim_starve(p, 0, 0);
}

void *several_faults_main(void *arg)
{
	static void (*const faults[])(
		void) = { restart_daemon, restart_program, restart_program, stop_one,
			  break_some,	  break_some,	   delay_one,	    cut,
			  starve };
	unsigned all = several_plan.ops * several_plan.programs;

	for (unsigned i = 0; i < several_plan.faults; i++) {
		unsigned when = all / 2 * (i + 1) / (several_plan.faults + 1);

		while (several_done < when)
			sim_wait(&several_done, SIM_NEVER, "the time for a fault");
		sim_sleep(1 + sim_below(SIM_MS), "the time for a fault");
		in_force++;
		faults[sim_below(sizeof(faults) / sizeof(faults[0]))]();
		in_force--;
		disturb(SIM_S);
	}
	return NULL;
}

void several_settle(void)
{
	uint64_t silent;

	while ((silent = sim_net_silent_until()) == SIM_NEVER)
		sim_sleep(SIM_S, "the end of a silence");
	if (disturbed_ns && disturbed_ns < silent + aftermath())
		disturbed_ns = silent + aftermath();
	if (sim_now() < disturbed_ns)
		sim_sleep(disturbed_ns - sim_now() + 1, "the end of all faults");
}
