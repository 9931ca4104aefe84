/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory server, as main.c puts it together. */
#include <stdio.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/log.h"
#include "disk.h"
#include "fibers.h"
#include "mem_server/life/server.h"
#include "net.h"
#include "nodes.h"

static struct soda_mem_server server;
static struct soda_listener *listener;

static void on_log(int level, const char *line, void *arg)
{
	sim_note("log %d: %s", level, line);
}

static void boot(const struct sim_server_settings *s)
{
	struct soda_listener_options how = { .workers = s->workers };
	struct soda_why why = { "" };
	char address[32];

	snprintf(address, sizeof(address), "sim://%s", sim_net_name(sim_process()));
	soda_log_setup("server", SODA_LOG_LVL_INFO, on_log, NULL);
	soda_store_init(&server.store, s->capacity);
	soda_store_populate_later(&server.store);
	sim_disk_kill();
	if (soda_files_init(&server.files, &server.store, s->files ? SIM_DISK_EXPORT : NULL))
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
	    soda_listener_open(address, &soda_server_service, &server, &how, &listener, &why) ||
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
	.page = page,
	.used = used,
	.drain = drain,
};
