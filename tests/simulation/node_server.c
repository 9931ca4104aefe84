/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory server, as main.c puts it together. */
#include <stdlib.h>

#include "base/lock.h"
#include "base/log.h"
#include "disk.h"
#include "fibers.h"
#include "mem_server/life/server.h"
#include "nodes.h"

static struct soda_mem_server server;
static struct soda_listener *listener;

static void on_log(int level, const char *line, void *arg)
{
	sim_note("log %d: %s", level, line);
}

void sim_server_boot(const struct sim_server_settings *s)
{
	struct soda_listener_options how = { .workers = s->workers };
	struct soda_why why = { "" };

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
	    soda_listener_open("sim://server", &soda_server_service, &server, &how, &listener,
			       &why) ||
	    soda_listener_start(listener))
		sim_fail("the server cannot start: %s", why.text);
}

void sim_server_end(void)
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

bool sim_server_knows(uint64_t instance, uint64_t client)
{
	return server.clients.instance_id == instance && find(client);
}

const void *sim_server_page(uint64_t client, uint16_t region, uint64_t offset)
{
	struct soda_client *c = find(client);
	const struct soda_client_region *r = c ? c->regions.slots[region].region : NULL;

	if (!r || !(c->regions.slots[region].state & 0x80000000u))
		return NULL;
	return (r->file ? r->file->memory.map : r->own.map) + offset;
}

uint64_t sim_server_used(void)
{
	return server.store.used;
}

uint64_t sim_server_clients(void)
{
	static uint64_t changes, last;
	uint64_t sum = 0;

	for (struct soda_client *c = server.clients.list; c; c = c->next)
		sum = sum * 31 + c->id;
	changes += sum != last;
	last = sum;
	return changes;
}
