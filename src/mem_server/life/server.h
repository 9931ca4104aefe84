/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory server as a whole: its parts, and what transports call.
 *
 * Threads: main (signals, drain), the reaper (session/clients.c), and the transports'.
 * Lock order: a region set's `control`, the clients' lock, a region set's `lock`, a
 * file's sync_lock, the files' lock, the tenants' lock, the store's lock.
 */
#ifndef SODA_MEM_SERVER_SERVER_H
#define SODA_MEM_SERVER_SERVER_H

#include "daemon/metrics.h"
#include "daemon/options.h"
#include "mem_server/files/files.h"
#include "mem_server/session/region.h"
#include "mem_server/session/clients.h"
#include "mem_server/store/store.h"
#include "registry/registry.h"
#include "transport/api/service.h"

/* The options; options.c has the table. */
struct soda_server_options {
	struct soda_daemon_options daemon; /* first */
	char *export_dir;		   /* NULL: none */
	char *tenants;			   /* a file; NULL: everybody is served */
	char *domain;			   /* its failure domain; NULL: it is one of its own */
	char *registry;			   /* of its pool, etcd://...; NULL: it is not registered */
	char *pool_address;		   /* as it is registered; NULL: as it listens */
	struct soda_registry_login etcd;
	uint64_t capacity; /* 0: 80 % of the memory available */
	uint64_t quota;	   /* 0: none */
	uint32_t grace_ms, close_ms;
	bool own_clients;
	uint32_t max_regions;
	bool hugepages, populate;
};

extern const struct soda_conf soda_server_conf;

struct soda_mem_server {
	struct soda_store store;
	struct soda_files files;
	struct soda_region_pool pool;
	struct soda_clients clients;
	struct soda_tenants tenants;
	const char *domain;  /* NULL: none; set before start, then constant, and so below */
	uint64_t started_ns; /* soda_now_ns() */
	char address[SODA_ADDRESS_MAX + 1];	   /* as it is registered */
	struct soda_registry_keeper *registration; /* NULL: it is not; the main thread's */
};

extern const struct soda_service soda_server_service;

/*
 * registration.c: the server as a member of a pool that has a registry (registry/keep.h).
 */

/* What --pool and its options ask.  0, or -EINVAL, logged; without --pool 0. */
int soda_server_registration_check(const struct soda_server_options *opt);
/*
 * Begin to be registered, as --pool-address, or by the first of the addresses that the server
 * listens on.  0, or an error, logged; without --pool 0.  That etcd does not answer is none.
 */
int soda_server_registration_start(struct soda_mem_server *server,
				   const struct soda_server_options *opt,
				   const char *const *addresses, size_t n);
void soda_server_registration_stop(struct soda_mem_server *server);

/*
 * Say all statistics to m; arg: the struct soda_mem_server. Any thread; takes the clients' lock,
 * for a moment each.
 */
void soda_server_walk(void *arg, struct soda_metrics *m);
/* The same for one who may see the clients of one tenant only. arg: a struct soda_server_view. */
struct soda_server_view {
	struct soda_mem_server *server;
	const struct soda_tenant *of; /* NULL: all clients, and all tenants */
};
void soda_server_walk_view(void *arg, struct soda_metrics *m);

#endif
