/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory server, as main.c puts it together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "disk.h"
#include "fibers.h"
#include "mem_server/life/server.h"
#include "net.h"
#include "nodes.h"
#include "trust/tenants.h"

static struct soda_mem_server server;
static struct soda_listener *listener;

static void on_log(int level, const char *line, void *arg)
{
	sim_note("log %d: %s", level, line);
}

static void serve_tenants(const struct sim_server_settings *s, struct soda_listener_options *how)
{
	if (!s->tenants)
		return;
	if (soda_tenants_start(&server.tenants, sim_tenants_file(sim_process()),
			       &soda_server_tenants_ops, &server.store))
		sim_fail("the server cannot start");
	how->guard = &server.tenants.guard;
	server.clients.tenants = &server.tenants;
}

static void end_tenant(void *arg, struct soda_tenant *tenant)
{
	soda_clients_end_tenant(arg, tenant);
}

static void reload(void)
{
	soda_tenants_reload(&server.tenants, end_tenant, &server.clients);
}

/* What the tenant's clients have together; no more than what it has itself. */
static uint64_t of_clients(const struct soda_tenant *t)
{
	uint64_t sum = 0;

	for (const struct soda_client *c = server.clients.list; c; c = c->next)
		sum += c->tenant == t ? c->regions.account.used : 0;
	return sum;
}

static uint64_t used_by(const char *tenant, uint64_t quota)
{
	struct soda_tenant *t = server.tenants.list;
	uint64_t used, clients;

	while (t && strcmp(t->name, tenant))
		t = t->next;
	if (!t)
		return 0;
	used = soda_server_tenant(t)->account.used;
	if (!sim_lock_is_free(&server.store.lock) || !sim_lock_is_free(&server.clients.lock))
		return used;
	clients = of_clients(t);
	if (clients > used || (quota && used > quota))
		sim_fail("INVARIANT: tenant %s has %llu bytes, its clients %llu, and its quota was "
			 "never more than %llu",
			 tenant, (unsigned long long)used, (unsigned long long)clients,
			 (unsigned long long)quota);
	return used;
}

static void boot(const struct sim_server_settings *s)
{
	struct soda_listener_options how = { .workers = s->workers };
	struct soda_why why = { "" };

	soda_log_setup("server", SODA_LOG_LVL_INFO, on_log, NULL);
	soda_store_init(&server.store, s->capacity);
	soda_store_populate_later(&server.store);
	sim_disk_kill();
	serve_tenants(s, &how);
	if (soda_files_init(&server.files, &server.store,
			    s->files && !s->tenants ? SIM_DISK_EXPORT : NULL))
		sim_fail("the server cannot start");
	server.pool = (struct soda_region_pool){ .store = &server.store,
						 .files = &server.files,
						 .quota = s->quota,
						 .max_regions = 1000,
						 .close_ms = 1000 };
	server.clients.pool = &server.pool;
	server.clients.max_clients = s->max_clients;
	server.clients.grace_ms = s->grace_ms;
	server.clients.allow_other = s->local;
	server.started_ns = soda_now_ns();
	if (soda_clients_start(&server.clients) ||
	    soda_listener_open(sim_net_address(sim_process()), &soda_server_service, &server, &how,
			       &listener, &why) ||
	    soda_listener_start(listener))
		sim_fail("the server cannot start: %s", why.text);
}

static void end(void)
{
	soda_clients_drain(&server.clients);
	soda_listener_stop_accepting(listener);
	for (int i = 0; i < 20 && soda_clients_connected(&server.clients); i++)
		sim_sleep(50 * SIM_MS, "clients to leave");
	soda_listener_close(listener);
	listener = NULL;
	soda_clients_stop(&server.clients);
	if (server.tenants.path)
		soda_tenants_stop(&server.tenants);
}

static struct soda_client *find(uint64_t id)
{
	struct soda_client *c = server.clients.list;

	while (c && (c->id != id || c->left))
		c = c->next;
	return c;
}

static bool knows(uint64_t instance, uint64_t client)
{
	return server.clients.instance_id == instance && find(client);
}

static bool has_token(uint64_t client)
{
	const struct soda_client *c = find(client);
	unsigned older = c && c->tokens.at[1].number; /* the answer with the newest may be lost */

	return c && c->tokens.at[older].number && c->tokens.at[older].until_ms > sim_now() / SIM_MS;
}

static const void *page(uint64_t client, uint16_t region, uint64_t offset)
{
	struct soda_client *c = find(client);
	const struct soda_client_region *r = c ? c->regions.slots[region].region : NULL;

	if (!r || !(c->regions.slots[region].state & 0x80000000u))
		return NULL;
	return (r->file ? r->file->memory.map : r->own.map) + offset;
}

static uint64_t used(void)
{
	return server.store.used;
}

static void drain(bool away)
{
	atomic_store(&server.clients.moving, away);
}

/* Each server's object has it by a name of its own (link-agent). */
extern const struct sim_server sim_node;
const struct sim_server sim_node = {
	.boot = boot,
	.end = end,
	.knows = knows,
	.has_token = has_token,
	.page = page,
	.used = used,
	.drain = drain,
	.reload = reload,
	.used_by = used_by,
};
