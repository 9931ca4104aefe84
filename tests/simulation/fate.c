/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes wrong. */
#include "base/limits.h"
#include "net.h"
#include "fibers.h"
#include "sealing/sealing.h"
#include "trust/tenants.h"
#include "world.h"
#include "seeds/seeds.h"

static enum sim_process victim; /* of a pool, where one server is struck at a time */

/* From the end of a fault on, so long until its last consequences are known to everybody. */
static uint64_t aftermath(void)
{
	uint64_t ms = plan.fault_ms + plan.connect_ms + 3000;

	if (plan.handler) /* what is under way has twice the time */
		ms += plan.fault_ms;
	if (plan.agent)
		ms += plan.agent_settings.timeout_ms + 5000;
	if (plan.mirrored)
		ms += SODA_SILENT_MS + SODA_COPIES_AWAY_MS + SODA_COPIES_CONNECT_MS;
	return ms * SIM_MS;
}

static void until(uint64_t *what, uint64_t ns)
{
	if (*what < ns)
		*what = ns;
}

static void disturb(uint64_t length_ns)
{
	until(&sim_history.disturbed_ns, sim_now() + length_ns + aftermath());
}

static void fault_begins(void)
{
	sim_history.in_force++;
}

static void fault_ends(void)
{
	sim_history.in_force--;
	disturb(0);
}

bool sim_fate_explains(uint64_t began_ns)
{
	uint64_t silent = sim_net_silent_until();

	return sim_history.in_force || began_ns <= sim_history.disturbed_ns ||
	       silent == SIM_NEVER || began_ns <= silent + aftermath();
}

void sim_fate_settle(void)
{
	uint64_t silent;

	while ((silent = sim_net_silent_until()) == SIM_NEVER)
		sim_sleep(SIM_S, "the end of a silence");
	until(&sim_history.disturbed_ns, silent + aftermath());
	if (sim_now() < sim_history.disturbed_ns)
		sim_sleep(sim_history.disturbed_ns - sim_now(), "the end of all faults");
}

/* One of the time-outs that count, or a little less, or more. */
static uint64_t about_a_timeout(void)
{
	const uint64_t list[] = { plan.connect_ms,
				  plan.fault_ms,
				  plan.server.grace_ms,
				  SODA_CONNECT_MS,
				  plan.agent_settings.timeout_ms,
				  plan.agent_settings.grace_ms };
	uint64_t ms = list[sim_below(plan.agent ? 6 : 3)];

	if (ms > 10000) /* so long nothing is to stand still */
		ms = 10000;
	return ms * SIM_MS / 2 + sim_below(ms * SIM_MS);
}

/* What it takes until several, one after another, have lost patience. */
static uint64_t a_long_time(void)
{
	uint64_t sum = 0;

	for (uint64_t n = sim_between(1, 5); n; n--)
		sum += about_a_timeout();
	return sum;
}

/* Anything from nothing on. */
static uint64_t some_time(void)
{
	static const uint64_t lengths[] = { SIM_MS, 20 * SIM_MS, 300 * SIM_MS, 2 * SIM_S };

	if (sim_chance(60))
		return 1 + sim_below(lengths[sim_below(4)]);
	return sim_chance(50) ? about_a_timeout() : a_long_time();
}

/* Programs do something in it, and do not come to an end. */
static uint64_t a_moment(void)
{
	static const uint64_t lengths[] = { 20 * SIM_US, 500 * SIM_US, 10 * SIM_MS };

	return 1 + sim_below(lengths[sim_below(3)]);
}

/* Where one is struck at a time: that one. */
static enum sim_process some_server(void)
{
	if (plan.one_at_a_time)
		return victim;
	return plan.servers > 1 ? SIM_SERVER + (unsigned)sim_below(plan.servers) : SIM_SERVER;
}

static void some_link(enum sim_process *client_p, enum sim_process *server_p)
{
	bool first = sim_chance(50);

	if (plan.one_at_a_time) /* the agent leads to all of them */
		first = false;
	*client_p = plan.agent && !first ? SIM_AGENT : SIM_HOST;
	*server_p = plan.agent && first ? SIM_AGENT : some_server();
}

static void break_some(void)
{
	enum sim_process client, server;
	enum sim_break how = (enum sim_break)sim_below(SIM_BREAKS);
	unsigned n = sim_chance(30) ? (unsigned)sim_between(2, 6) : 1;

	some_link(&client, &server);
	disturb(100 * SIM_MS); /* a client that hears of it later */
	while (n-- && sim_net_break(client, server, how))
		;
}

static void cut_link(void)
{
	enum sim_process client, server;

	some_link(&client, &server);
	fault_begins();
	sim_net_cut(client, server, true);
	sim_sleep(some_time(), "a network that is cut");
	sim_net_cut(client, server, false);
	fault_ends();
}

static void cut(enum sim_process client, bool on)
{
	for (unsigned i = 0; client != SIM_HOST && i < plan.servers; i++)
		sim_net_cut(client, SIM_SERVER + i, on);
	if (client == SIM_HOST)
		sim_net_cut(client, SIM_AGENT, on);
}

/* The agent is alone: one side goes, the other one soon, and they come back as they like. */
static void cut_both(void)
{
	enum sim_process first = sim_chance(30) ? SIM_HOST : SIM_AGENT;
	enum sim_process other = first == SIM_HOST ? SIM_AGENT : SIM_HOST;

	fault_begins();
	cut(first, true);
	sim_sleep(a_moment(), "a network that is cut");
	cut(other, true);
	sim_sleep(a_long_time(), "two networks that are cut");
	if (sim_chance(50)) {
		cut(first, false);
		first = other;
	} else {
		cut(other, false);
	}
	sim_sleep(sim_chance(50) ? a_moment() : some_time(), "a network that is cut");
	cut(first, false);
	fault_ends();
}

static void delay_one(void)
{
	enum sim_process client, server;
	uint64_t length = some_time();

	some_link(&client, &server);
	disturb(length);
	sim_net_delay_one(client, server, length);
	if (plan.one_at_a_time)
		sim_sleep(length, "a connection that stands still");
}

static enum sim_process some_process(void)
{
	return plan.agent && !plan.one_at_a_time && sim_chance(50) ? SIM_AGENT : some_server();
}

static void stop_one(void)
{
	enum sim_process p = sim_chance(15) ? SIM_HOST : some_process();
	uint64_t length = some_time();

	if (plan.one_at_a_time && p == SIM_HOST)
		p = victim;
	sim_note("FAULT process %d is stopped for %.3f ms", p, (double)length / 1e6);
	fault_begins();
	sim_stop(p, true);
	sim_sleep(length, "a process that is stopped");
	sim_stop(p, false);
	sim_net_continue(p);
	fault_ends();
}

static void *boot_server(void *arg)
{
	sim_server(sim_process())->boot(&plan.server);
	return NULL;
}

static void *boot_agent(void *arg)
{
	sim_agent_boot(&plan.agent_settings);
	return NULL;
}

static void *end_server(void *arg)
{
	sim_server(sim_process())->end();
	return NULL;
}

static void *end_agent(void *arg)
{
	sim_agent_end();
	return NULL;
}

void sim_fate_boot(enum sim_process p)
{
	sim_join(sim_spawn(p, "main", p == SIM_AGENT ? boot_agent : boot_server, NULL));
}

static void restart(enum sim_process p, uint64_t length, bool silently, bool gently)
{
	sim_note("FAULT process %d %s%s for %.3f ms", p, gently ? "ends" : "is killed",
		 silently ? ", silently," : "", (double)length / 1e6);
	fault_begins();
	sim_history.killed = sim_history.killed || p >= SIM_SERVER;
	sim_history.drained = sim_history.drained || (gently && p >= SIM_SERVER);
	if (gently)
		sim_join(sim_spawn(p, "main", p == SIM_AGENT ? end_agent : end_server, NULL));
	sim_kill(p);
	sim_net_kill(p, silently && !gently);
	sim_fd_kill(p);
	sim_memory_fresh(p);
	sim_copies_look();
	if (p == SIM_AGENT && plan.agent_settings.seal && !plan.agent_settings.seal_state)
		sim_history.keys_lost_ns = sim_now();
	sim_sleep(length, "a process that is not there");
	sim_fate_boot(p);
	if (p == SIM_AGENT && plan.agent_settings.tenants && plan.server.tenants && sim_chance(50))
		sim_tenants_steal();
	fault_ends();
}

static void restart_one(void)
{
	enum sim_process p = some_process();
	uint64_t length = sim_chance(50) ? some_time() : 1;
	bool silently = sim_chance(30);

	restart(p, length, silently, sim_chance(25));
}

/* The agent before a pool, for no longer than nobody need notice, or its connections to the host.
 */
static void strike_agent(void)
{
	if (sim_chance(40)) {
		restart(SIM_AGENT, sim_chance(50) ? 1 : 1 + sim_below(300 * SIM_MS), false,
			sim_chance(25));
		return;
	}
	disturb(100 * SIM_MS);
	for (uint64_t n = sim_between(1, 4); n; n--)
		sim_net_break(SIM_HOST, SIM_AGENT, (enum sim_break)sim_below(SIM_BREAK_SILENT));
}

static void starve_one(void)
{
	enum sim_process p = some_process();
	uint64_t length = some_time();

	sim_note("FAULT process %d lacks memory or descriptors for %.3f ms", p,
		 (double)length / 1e6);
	fault_begins();
	sim_history.starved = true;
	if (sim_chance(50))
		sim_starve(p, (unsigned)sim_between(5, 500), 0);
	else
		sim_starve(p, 0, (unsigned)sim_between(5, 500));
	sim_sleep(length, "memory");
	sim_starve(p, 0, 0);
	fault_ends();
}

static void starve_pages(void)
{
	uint64_t length = some_time();

	if (length > 100 * SIM_MS) /* a half of a page may be awaited for ten seconds */
		length = 100 * SIM_MS;
	sim_note("FAULT the host lacks pages for %.3f ms", (double)length / 1e6);
	fault_begins();
	sim_host_pager_fails((unsigned)sim_between(10, 2000));
	sim_sleep(length, "pages");
	sim_host_pager_fails(0);
	fault_ends();
}

/* What others do with the address space is in the way. */
static void slow_pages(void)
{
	uint64_t length = some_time();

	sim_note("FAULT the host's pages take long for %.3f ms", (double)length / 1e6);
	fault_begins();
	sim_host_pager_slows((unsigned)sim_between(100, 5000));
	sim_sleep(length, "quick pages");
	sim_host_pager_slows(0);
	fault_ends();
}

static void change_network(void)
{
	static const uint64_t delays[] = { 5 * SIM_US, 50 * SIM_US, 2 * SIM_MS };
	uint64_t delay = delays[sim_below(3)];

	sim_note("FAULT the network takes %.3f ms from now on", (double)delay / 1e6);
	disturb(SIM_S);
	sim_net_delay(delay, delay * sim_below(10));
}

/* What is read for the store fails, and those that wait for it ask again. */
static void refuse_reads(void)
{
	uint64_t length = some_time();

	sim_note("FAULT the server refuses READs for %.3f ms", (double)length / 1e6);
	fault_begins();
	sim_net_refuse_reads((unsigned)sim_between(20, 700));
	sim_sleep(length, "READs that are not refused");
	sim_net_refuse_reads(0);
	fault_ends();
}

/* Of one server alone, which nobody needs as long as there is another copy. */
static void fault_of_victim(void)
{
	uint64_t dice = sim_below(100);

	if (plan.agent && sim_chance(25))
		strike_agent();
	else if (dice < 35)
		break_some();
	else if (dice < 50)
		cut_link();
	else if (dice < 60)
		delay_one();
	else if (dice < 75)
		stop_one();
	else if (dice < 93)
		restart_one();
	else
		starve_one();
}

/* A tenant is none any more somewhere, and all that it had there is freed; then it is one again. */
static void remove_tenant(enum sim_tenant t, enum sim_process p)
{
	fault_begins();
	if (t != SIM_TENANT_OTHER)
		sim_history.killed = sim_history.removed = true;
	sim_tenants_remove(t, p, true);
	sim_copies_look();
	sim_sleep(some_time(), "a tenant that is not one");
	if (sim_tenants_removed_at(t, p, sim_now() - 2 * SIM_S) && sim_tenants_charged(t, p))
		sim_fail("LEAK: a tenant that is none any more has memory");
	sim_tenants_remove(t, p, false);
	if (t == SIM_TENANT_HOST && p == SIM_AGENT) {
		sim_history.parted_ns = sim_now();
		if (plan.agent_settings.seal)
			sim_history.keys_lost_ns = sim_now();
	}
	fault_ends();
}

static void remove_some(void)
{
	enum sim_process p = some_server();
	enum sim_tenant t = plan.agent ? SIM_TENANT_AGENT : SIM_TENANT_HOST;

	if (sim_chance(50) || !plan.server.tenants)
		t = SIM_TENANT_OTHER;
	if (!plan.server.tenants || (plan.agent_settings.tenants && sim_chance(50)))
		p = SIM_AGENT;
	if (p == SIM_AGENT && !plan.one_at_a_time && sim_chance(50))
		t = SIM_TENANT_HOST;
	else if (p == SIM_AGENT)
		t = SIM_TENANT_OTHER;
	remove_tenant(t, p);
}

/*
 * What the operator does, and programs do not see.  An agent's key binds the tokens of its programs
 * as well, which get new ones then: it is rotated when all is well, and stays that until they have.
 */
static void rotate_some(void)
{
	enum sim_tenant t = sim_chance(50) ? SIM_TENANT_HOST : sim_tenants_other();

	if (!plan.agent_settings.key_file || sim_chance(60)) {
		sim_tenants_rotate(t);
		return;
	}
	if (plan.agent_settings.tenants)
		sim_fate_settle();
	sim_tenants_rotate(SIM_TENANT_AGENT);
	if (plan.agent_settings.tenants)
		sim_sleep(plan.server.grace_ms * SIM_MS / 2 + 3 * SIM_S, "tokens to be renewed");
}

static void change_tenants(void)
{
	uint64_t dice = sim_below(100);

	if (dice < 50)
		rotate_some();
	else if (dice < 70 && plan.tenant_quota)
		sim_tenants_change_quota();
	else
		remove_some();
}

/* Nobody is told, and it is found when somebody reads it. */
static void change_some(void)
{
	bool sealed = plan.sealed || plan.agent_settings.seal;

	for (uint64_t n = sealed ? sim_below(6) : 0; n; n--) {
		sim_seal_change_one(plan.one_at_a_time ? victim : SIM_WORLD);
		sim_copies_look(); /* it may be written anew before anybody looks again */
	}
}

static void one_fault(void)
{
	uint64_t dice = sim_below(100);

	change_some();
	if ((plan.server.tenants || plan.agent_settings.tenants) && sim_chance(20)) {
		change_tenants();
		return;
	}
	if (plan.one_at_a_time) {
		fault_of_victim();
		return;
	}
	if (plan.agent_settings.store && sim_chance(15))
		refuse_reads();
	else if (dice < 35)
		break_some();
	else if (dice < 43 || (dice < 51 && !plan.agent))
		cut_link();
	else if (dice < 51)
		cut_both();
	else if (dice < 57)
		delay_one();
	else if (dice < 60)
		slow_pages();
	else if (dice < 72)
		stop_one();
	else if (dice < 84)
		restart_one();
	else if (dice < 90)
		starve_one();
	else if (dice < 95)
		starve_pages();
	else
		change_network();
}

/*
 * A fault while a server, any, is drained: what it has moves away, as far as there is another one
 * for it, and nothing new is allocated there.
 */
static void fault_in_drain(void)
{
	enum sim_process p = SIM_SERVER + (unsigned)sim_below(plan.servers);

	fault_begins();
	sim_note("FAULT %s is drained", sim_net_name(p));
	sim_server(p)->drain(true);
	sim_sleep(sim_chance(50) ? a_moment() : sim_below(2 * SIM_S), "a drain to go on");
	one_fault();
	sim_sleep(sim_chance(50) ? a_moment() : sim_below(5 * SIM_S), "a drain");
	sim_note("%s is drained no more", sim_net_name(p));
	sim_server(p)->drain(false);
	fault_ends();
}

/* Into the midst of it, or beyond its end. */
static uint64_t some_time_of_an_operation(void)
{
	static const uint64_t lengths[] = { SIM_US, 10 * SIM_US, 100 * SIM_US, SIM_MS };

	return 1 + sim_below(lengths[sim_below(4)]);
}

/* The middle of a rebuild, where there is one within that time. */
static void await_rebuild(void)
{
	uint64_t deadline = sim_now() + sim_between(1, 5) * SIM_S;
	unsigned begun = sim_history.begun;

	while (sim_history.begun == begun && sim_now() < deadline)
		sim_wait(&sim_history.begun, deadline, "a rebuild");
	sim_sleep(sim_chance(50) ? a_moment() : 1 + sim_below(200 * SIM_MS), "a rebuild to go on");
}

/*
 * One connection after another to the server on which a copy is rebuilt stands still for a moment:
 * what was sent there first arrives last.
 */
static void stagger_rebuild(void)
{
	for (uint64_t n = sim_between(5, 20); n && sim_history.begun != sim_history.ended; n--) {
		uint64_t length = 1 + sim_below(20 * SIM_MS);

		disturb(length);
		sim_net_delay_one(plan.agent ? SIM_AGENT : SIM_HOST, sim_history.rebuilt_on,
				  length);
		sim_sleep(1 + sim_below(10 * SIM_MS), "a rebuild to go on");
	}
}

/* Not only for all that the host has heard yet. */
static bool all_up(void)
{
	sim_model_look_at_host();
	for (unsigned i = 0; i < plan.servers; i++) {
		enum sim_process p = SIM_SERVER + i;
		struct sim_welcomed met = sim_model_met(p);

		if (!sim_host_believes(p).up || !sim_server(p)->knows(met.instance, met.client))
			return false;
	}
	return true;
}

void sim_fate_await_copies(void)
{
	uint64_t deadline;

	while (sim_net_silent_until() == SIM_NEVER)
		sim_sleep(SIM_S, "the end of a silence");
	deadline = sim_now() + aftermath() + 60 * SIM_S;
	while (!all_up() || sim_host_missing()) {
		if (sim_now() > deadline)
			sim_fail("BROKEN PROMISE: all servers are there for %llu s, and %llu slabs "
				 "lack a copy",
				 (unsigned long long)((aftermath() + 60 * SIM_S) / SIM_S),
				 (unsigned long long)sim_host_missing());
		sim_sleep(20 * SIM_MS, "the copies of slabs");
	}
}

/*
 * Some time after the last one's copies have been rebuilt; or at once the same one again, as long
 * as it has changed something that nobody has found.
 */
static void choose_victim(void)
{
	static unsigned since; /* faults of the same one */

	if (victim && ++since < 3 && sim_chance(50))
		return;
	if (victim)
		sim_fate_await_copies();
	if (victim && sim_seal_any_is_changed())
		return;
	victim = SIM_SERVER + (unsigned)sim_below(plan.servers);
	since = 0;
}

void *sim_fate_main(void *arg)
{
	for (unsigned i = 0; i < plan.faults; i++) {
		unsigned from = plan.ops * i / plan.faults, to = plan.ops * (i + 1) / plan.faults;
		unsigned when = (unsigned)sim_between(from, to - 1);

		while (sim_history.done < when)
			sim_wait(&sim_history.done, SIM_NEVER, "the time for a fault");
		if (plan.one_at_a_time)
			choose_victim();
		if (plan.mirrored && sim_chance(40)) {
			await_rebuild();
			if (sim_chance(50))
				stagger_rebuild();
		}
		sim_sleep(some_time_of_an_operation(), "the time for a fault");
		if (plan.drains && sim_chance(30))
			fault_in_drain();
		else
			one_fault();
		if (sim_chance(50))
			i--; /* at once another one, which is not counted */
		if (sim_chance(50))
			i++;
	}
	return NULL;
}

void sim_fate_mend(void)
{
	sim_net_delay(plan.delay_ns, plan.jitter_ns);
	sim_starve(SIM_AGENT, 0, 0);
	for (unsigned i = 0; i < plan.servers; i++)
		sim_starve(SIM_SERVER + i, 0, 0);
	sim_host_pager_fails(0);
	sim_net_refuse_reads(0);
}
