/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tenants file for tests, in a directory of its own, and the keys of its tenants.  Each function
 * fails the running cmocka test where something goes wrong.
 */
#ifndef SODA_TEST_TENANCY_H
#define SODA_TEST_TENANCY_H

#include "trust/identity.h"
#include "trust/tenants_file.h"

struct tenancy {
	char dir[64]; /* tenancy_close() removes it, with the files of these functions */
	char file[96];
	struct soda_tenants_file content; /* as it will be saved */
};

/* Of a server of this name. No tenant, nothing saved. */
void tenancy_open(struct tenancy *t, const char *server);
void tenancy_close(struct tenancy *t);

/* A tenant with a key file. The entry is valid until the next one is added. */
struct soda_tenant_entry *tenancy_add(struct tenancy *t, const char *name);
struct soda_tenant_entry *tenancy_of(struct tenancy *t, const char *name);
/* A new key, in the file of the tenant's, too; the old one is right for an hour. Not saved yet. */
void tenancy_rotate(struct tenancy *t, const char *name);
void tenancy_save(const struct tenancy *t);

/* The path of a tenant's key file; a static buffer. */
const char *tenancy_key(const struct tenancy *t, const char *name);
/* Who proves that key to the server at an address. The caller's, to be freed. */
struct soda_identity *tenancy_identity(const struct tenancy *t, const char *name,
				       const char *address);

#endif
