/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "../world.h"
#include "tenants.h"

enum { WITHIN_S = 60 }; /* an old key is known so long beside the new one */

static uint64_t refused_since[SIM_TENANTS][SIM_PROCESSES]; /* 0: it is not */
static uint64_t any_removed_ns, most_quota;
static unsigned removed_now;

bool sim_tenants_has(enum sim_process p)
{
	return p == SIM_AGENT ? plan.agent && plan.agent_settings.tenants : plan.server.tenants;
}

bool sim_tenants_of_host(void)
{
	return sim_tenants_has(plan.agent ? SIM_AGENT : SIM_SERVER);
}

enum sim_tenant sim_tenants_other(void)
{
	return plan.same_tenant ? SIM_TENANT_HOST : SIM_TENANT_OTHER;
}

static void *reload(void *arg)
{
	if (sim_process() == SIM_AGENT)
		sim_agent_reload();
	else
		sim_server(sim_process())->reload();
	return NULL;
}

/* The file, and SIGHUP. */
static void publish(enum sim_process p)
{
	sim_tenants_write(p);
	sim_join(sim_spawn(p, "main", reload, NULL));
}

static void publish_all(void)
{
	for (enum sim_process p = SIM_AGENT; p < SIM_SERVER + plan.servers; p++)
		if (sim_tenants_has(p))
			publish(p);
}

void sim_tenants_rotate(enum sim_tenant t)
{
	struct sim_tenant_state *s = &sim_tenants[t];

	sim_note("tenant %d gets another key", t);
	memcpy(s->previous, s->key, sizeof(s->key));
	s->has_previous = true;
	s->previous_until = sim_now() / SIM_S + WITHIN_S;
	sim_tenants_new_key(s->key);
	publish_all();
	sim_sleep(1 + sim_below(2 * SIM_S), "a key to be handed over");
	sim_tenants_write_key(t);
	sim_note("tenant %d has another key", t);
}

uint64_t sim_tenants_most_quota(void)
{
	return most_quota > plan.tenant_quota ? most_quota : plan.tenant_quota;
}

uint64_t sim_tenants_charged(enum sim_tenant t, enum sim_process p)
{
	const char *name = sim_tenant_names[t];

	return p == SIM_AGENT ? sim_agent_used(name) : sim_server(p)->used_by(name, 0);
}

void sim_tenants_check(void)
{
	uint64_t quota = plan.agent_settings.tenants ? 0 : sim_tenants_most_quota();

	sim_hold(true);
	for (unsigned i = 0; plan.server.tenants && i < plan.servers; i++) {
		sim_server(SIM_SERVER + i)->used_by("host", quota);
		sim_server(SIM_SERVER + i)->used_by("agents", 0);
	}
	sim_hold(false);
}

void sim_tenants_change_quota(void)
{
	uint64_t *quota = &sim_tenants[SIM_TENANT_HOST].quota;

	most_quota = sim_tenants_most_quota();
	*quota = sim_between(4, 24) << 20;
	if (*quota > most_quota)
		most_quota = *quota;
	sim_note("the application's quota is %llu", (unsigned long long)*quota);
	publish_all();
}

void sim_tenants_remove(enum sim_tenant t, enum sim_process p, bool on)
{
	sim_note("FAULT tenant %d is %s of process %d", t, on ? "removed" : "one again", p);
	if (on)
		sim_tenants[t].removed |= 1ull << p;
	else
		sim_tenants[t].removed &= ~(1ull << p);
	refused_since[t][p] = 0;
	removed_now += on;
	publish(p);
	removed_now -= !on;
	any_removed_ns = sim_now();
	if (on)
		refused_since[t][p] = sim_now();
}

bool sim_tenants_removed_at(enum sim_tenant t, enum sim_process p, uint64_t ns)
{
	return refused_since[t][p] && refused_since[t][p] < ns;
}

bool sim_tenants_any_removed(uint64_t since_ns)
{
	return removed_now || (any_removed_ns && since_ns <= any_removed_ns + SIM_S);
}
