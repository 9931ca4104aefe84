/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory server, for calls.c and fuzz_hello.c. */
#include <unistd.h>

#include "calls.h"
#include "mem_server/life/server.h"
#include "mem_server/session/client.h"

enum { CAPACITY = 64 << 20, QUOTA = 24 << 20, PATIENCE_MS = 30000 };

static struct soda_server server;
const struct soda_service *fuzz_service = &soda_server_service;
void *fuzz_svc = &server;

void fuzz_service_start(void)
{
	soda_store_init(&server.store, CAPACITY);
	soda_store_populate_later(&server.store);
	FUZZ_MUST(soda_files_init(&server.files, &server.store, fuzz_export_dir()) == 0);
	server.pool = (struct soda_region_pool){
		.store = &server.store,
		.files = &server.files,
		.quota = QUOTA,
		.max_regions = 8,
		.close_ms = 1000,
	};
	server.sessions.pool = &server.pool;
	server.sessions.max_clients = 64;
	FUZZ_MUST(soda_sessions_start(&server.sessions) == 0);
}

void fuzz_service_begin(struct fuzz_input *in)
{
}

/* A client without connections is freed at once: then nothing is promised any more. */
void fuzz_service_end(void)
{
	uint64_t end = soda_client_now_ms() + PATIENCE_MS;
	bool empty = false;

	while (!empty) {
		pthread_mutex_lock(&server.sessions.lock);
		empty = !server.sessions.clients && !server.sessions.leaving;
		pthread_mutex_unlock(&server.sessions.lock);
		empty = empty && soda_store_free_bytes(&server.store) == CAPACITY;
		FUZZ_MUST(empty || soda_client_now_ms() < end);
		if (!empty)
			usleep(20);
	}
}
