/* SPDX-License-Identifier: BSD-3-Clause */
/* The DPU agent, as its main.c puts it together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/session/tenants.h"
#include "fibers.h"
#include "net.h"
#include "nodes.h"

static struct soda_dpu dpu;
static struct soda_dpu_options opt;
static struct soda_listener *listener;
static bool ending; /* its store goes, or has gone */

static void on_log(int level, const char *line, void *arg)
{
	sim_note("log %d: %s", level, line);
}

void sim_agent_boot(const struct sim_agent_settings *s)
{
	struct soda_listener_options how = { .workers = s->workers };
	struct soda_conf_error err = { "" };
	struct soda_why why = { "" };

	soda_log_setup("agent", SODA_LOG_LVL_INFO, on_log, NULL);
	if (soda_conf_defaults(&soda_dpu_conf, &opt, &err))
		sim_fail("the agent's options: %s", err.text);
	opt.server = (char *)(uintptr_t)s->servers;
	opt.daemon.workers = s->workers;
	opt.completers = s->completers;
	opt.channels = s->channels;
	opt.write_budget = s->write_budget;
	opt.client_credit = s->client_credit;
	opt.window = s->window;
	opt.cache_bytes = s->cache_bytes;
	opt.static_bytes = s->static_bytes;
	opt.grace_ms = s->grace_ms;
	opt.timeout_ms = s->timeout_ms;
	opt.base = s->base;
	opt.aggregate = s->aggregate;
	opt.async = s->async;
	opt.dynamic = s->dynamic;
	opt.limit = s->limit;
	opt.store_bytes = s->store;
	opt.seal = s->seal;
	opt.seal_files = SODA_SEAL_FILES_ALLOW;
	opt.seal_key_file = (char *)(uintptr_t)s->seal_key;
	opt.seal_state = (char *)(uintptr_t)s->seal_state;
	if (s->seal)
		opt.seal_keep_ms = (uint32_t)s->seal_keep_ms;
	opt.tenants = (char *)(uintptr_t)s->tenants;
	opt.key_file = (char *)(uintptr_t)s->key_file;
	opt.move_bytes = s->move;
	if (s->source)
		soda_source_ops = *s->source;
	opt.daemon.allow_other = s->store || s->move; /* its clients are then of its machine */
	if (s->policy)
		opt.policy = (char *)(uintptr_t)s->policy;
	how.guard = s->tenants ? &dpu.tenants.guard : NULL;
	if (soda_dpu_start(&dpu, &opt) ||
	    soda_listener_open(sim_net_address(SIM_AGENT), &soda_dpu_service, &dpu, &how, &listener,
			       &why) ||
	    soda_listener_start(listener))
		sim_fail("the agent cannot start: %s", why.text);
}

/* No point. False: a thread of the agent has the store's lock, or there is no store. */
static bool check_now(void)
{
	struct soda_why why = { "" };
	int ret =
		ending || !dpu.paging.store ? -EBUSY : soda_node_check_now(dpu.paging.store, &why);

	if (ret && ret != -EBUSY)
		sim_fail("INVARIANT: the node's store: %s", why.text);
	return !ret;
}

void sim_agent_check(void)
{
	sim_hold(true);
	check_now();
	sim_hold(false);
}

bool sim_agent_forced(uint64_t *forced_p)
{
	struct soda_node_stats stats;
	bool known;

	sim_hold(true);
	known = check_now();
	if (known)
		soda_node_stats(dpu.paging.store, &stats);
	sim_hold(false);
	if (known)
		*forced_p = stats.forced;
	return known;
}

bool sim_agent_movement(struct sim_agent_movement *out)
{
	struct soda_movement *m = &dpu.movement;

	if (ending || !sim_lock_is_free(&m->lock) || !sim_lock_is_free(&m->buffers.lock))
		return false;
	sim_hold(true);
	*out = (struct sim_agent_movement){ .reserved = m->buffers.reserved.all,
					    .list_bytes = m->lists.all,
					    .buffers = m->buffers.n,
					    .rings = atomic_load(&m->rings),
					    .idle = !m->turn && !m->stores };
	for (const struct soda_buffer *b = m->buffers.list; b; b = b->next)
		out->named += b->counted;
	for (unsigned i = 0; i < SODA_MOVE_GETTERS_MOST; i++)
		out->idle = out->idle && !m->getters[i].client;
	sim_hold(false);
	return true;
}

static void end_tenant(void *arg, struct soda_tenant *tenant)
{
	soda_sessions_end_tenant(arg, tenant);
}

void sim_agent_reload(void)
{
	soda_tenants_reload(&dpu.tenants, end_tenant, &dpu.sessions);
}

uint64_t sim_agent_used(const char *tenant)
{
	for (struct soda_tenant *t = dpu.tenants.list; t; t = t->next)
		if (!strcmp(t->name, tenant))
			return soda_agent_tenant(t)->used;
	return 0;
}

void sim_agent_end(void)
{
	ending = true;
	soda_listener_stop_accepting(listener);
	soda_listener_close(listener);
	listener = NULL;
	soda_dpu_stop(&dpu, 2000);
}
