/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tenants that a server serves, as its file says, now: docs/internals/tenants.md.
 *
 * A tenant's record stays until the server ends, also when the file does not have it any more, so
 * that clients, accounts and statistics point to it without counting.
 */
#ifndef SODA_MEM_SERVER_TENANTS_H
#define SODA_MEM_SERVER_TENANTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "mem_server/store/store.h"
#include "trust/proof.h"
#include "trust/tenants_file.h"
#include "base/flow.h"

/* A directory of a tenant. */
struct soda_tenant_dir {
	int fd;
	bool writable;
};

struct soda_tenant {
	struct soda_tenant *next; /* constant once it is in the list, and so below */
	char name[SODA_WIRE_TENANT_MAX + 1];
	uint32_t number;	     /* counted from 1 */
	struct soda_account account; /* guarded by the store's lock */
	struct soda_flow flow;	     /* of its data connections on tcp */
	_Atomic uint64_t reads, writes, bytes_read, bytes_written, refused;
	/* guarded by the tenants' lock, from here on */
	bool removed;
	struct soda_tenant_entry entry; /* without its directories */
	uint8_t key_id[SODA_WIRE_KEY_ID_BYTES], previous_id[SODA_WIRE_KEY_ID_BYTES];
	struct soda_tenant_dir dirs[SODA_TENANT_EXPORTS_MAX];
	unsigned dirs_n;
};

struct soda_tenants {
	const char *path; /* set before start, then constant, and so below; NULL: an open server */
	struct soda_store *store;
	char server[SODA_WIRE_TENANT_MAX + 1];
	struct soda_guard guard;
	pthread_mutex_t lock;	  /* taken before the store's */
	struct soda_tenant *list; /* guarded by lock; in the order of the file when they came */
	uint32_t n;
};

/* Read the file. 0, or an error that has been logged. */
int soda_tenants_start(struct soda_tenants *tenants, struct soda_store *store, const char *path);
/*
 * Read it again.  With an error, which is logged, nothing changes.  gone: called, without the lock,
 * for each tenant that the file has lost.
 */
void soda_tenants_reload(struct soda_tenants *tenants,
			 void (*gone)(void *arg, struct soda_tenant *tenant), void *arg);
/* When no client is there any more. */
void soda_tenants_stop(struct soda_tenants *tenants);

/* What may change: */
enum soda_role soda_tenant_role(struct soda_tenants *tenants, const struct soda_tenant *tenant);
/* Whether it has a rate. */
bool soda_tenant_limited(struct soda_tenants *tenants, const struct soda_tenant *tenant);
bool soda_tenant_removed(struct soda_tenants *tenants, const struct soda_tenant *tenant);
/* Duplicates of its directories' descriptors, the caller's to close. How many. */
unsigned soda_tenant_dirs(struct soda_tenants *tenants, const struct soda_tenant *tenant,
			  struct soda_tenant_dir dirs[SODA_TENANT_EXPORTS_MAX]);

#endif
