/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a memory server has of a tenant beside what all daemons have (daemon/tenants.h): an account
 * of memory, and directories.
 */
#ifndef SODA_MEM_SERVER_TENANTS_H
#define SODA_MEM_SERVER_TENANTS_H

#include <stdbool.h>

#include "daemon/tenants.h"
#include "mem_server/store/store.h"

/* A directory of a tenant. */
struct soda_tenant_dir {
	int fd;
	bool writable;
};

struct soda_server_tenant {
	struct soda_tenant is;				      /* first */
	struct soda_account account;			      /* guarded by the store's lock */
	struct soda_tenant_dir dirs[SODA_TENANT_EXPORTS_MAX]; /* guarded by the tenants' lock */
	unsigned dirs_n;				      /* and so */
};

/* For soda_tenants_start(), whose arg is the store: its lock is taken within the tenants'. */
extern const struct soda_tenants_ops soda_server_tenants_ops;

static inline struct soda_server_tenant *soda_server_tenant(struct soda_tenant *tenant)
{
	return (struct soda_server_tenant *)tenant;
}

/*
 * Duplicates of all its directories' descriptors, the caller's to close.  How many; -ENOMEM: there
 * are no descriptors for all of them, and without one a name could lead to another file.
 */
int soda_tenant_dirs(struct soda_tenants *tenants, struct soda_tenant *tenant,
		     struct soda_tenant_dir dirs[SODA_TENANT_EXPORTS_MAX]);

#endif
