/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A server's tenants, as a file:
 *
 *   [server]
 *   name = mem1
 *
 *   [tenant physics]
 *   role = client
 *   key = 64 hexadecimal digits
 *   previous = 64 hexadecimal digits
 *   previous-until = 2026-12-31T23:59:59Z
 *   quota = 16G
 *   rate = 500M
 *   requests = 20000
 *   weight = 2
 *   export = ro /srv/graphs
 *   export = rw /srv/physics
 *
 * The keys are the server's (docs/internals/tenants.md).  Nothing is taken from a file with an
 * error, which names the line and what was expected.
 */
#ifndef SODA_TRUST_TENANTS_FILE_H
#define SODA_TRUST_TENANTS_FILE_H

#include <stdbool.h>
#include <time.h>

#include "base/conf/conf.h"
#include "base/limits.h"
#include "trust/crypto.h"
#include "wire/proof.h"

enum soda_role {
	SODA_ROLE_CLIENT,
	SODA_ROLE_AGENT, /* may connect by way of DPU agents, whose programs all are this tenant */
	SODA_ROLE_OPERATOR, /* sees everybody's statistics */
};

enum {
	SODA_TENANT_WEIGHT_MAX = 100,
	SODA_TENANT_REQUESTS_MAX = 1000000000,
	SODA_TENANT_EXPORT_PATH_MAX = 180, /* its line has at most 200 bytes, as libinih reads it */
};

extern const char *const soda_role_names[]; /* by enum soda_role, then NULL */

struct soda_tenant_export {
	char *path; /* absolute */
	bool writable;
};

struct soda_tenant_entry {
	char name[SODA_WIRE_TENANT_MAX + 1];
	uint8_t key[SODA_KEY_BYTES];
	uint8_t previous[SODA_KEY_BYTES];
	bool has_previous;
	time_t previous_until;
	enum soda_role role;
	uint64_t quota;	   /* 0: none */
	uint64_t rate;	   /* bytes a second; 0: no limit, and so the next */
	uint64_t requests; /* READs and WRITEs a second */
	uint32_t weight;   /* beside other tenants; 0: none is given, which is 1 */
	struct soda_tenant_export exports[SODA_TENANT_EXPORTS_MAX];
	unsigned exports_n;
};

struct soda_tenants_file {
	char server[SODA_WIRE_TENANT_MAX + 1];
	struct soda_tenant_entry *tenants; /* a soda_secret_new() of room for so many */
	unsigned n, room;
};

/*
 * Read a file that soda_private_open() takes.  0: *file_p is the caller's, to be freed; errors of
 * soda_private_open, -EINVAL, -ENOMEM, -EIO, -E2BIG: more than SODA_TENANTS_MAX.
 */
int soda_tenants_file_read(const char *path, struct soda_tenants_file *file_p,
			   struct soda_conf_error *err);
/* The same of a text, for what tests it; path: for the messages. */
int soda_tenants_file_parse(const char *text, size_t bytes, const char *path,
			    struct soda_tenants_file *file_p, struct soda_conf_error *err);
/*
 * Put a file of mode 0600 in the place of the one there, or none: a reader sees the old or the new
 * one.  0 or negative errno.
 */
int soda_tenants_file_write(const char *path, const struct soda_tenants_file *file,
			    struct soda_conf_error *err);
/* Wipes the keys. */
void soda_tenants_file_free(struct soda_tenants_file *file);

/* NULL: there is none. */
struct soda_tenant_entry *soda_tenants_file_find(const struct soda_tenants_file *file,
						 const char *name);
/* A new one, with nothing but its name. 0; -EEXIST, -ENOMEM, -E2BIG, -EINVAL: the name. */
int soda_tenants_file_add(struct soda_tenants_file *file, const char *name,
			  struct soda_tenant_entry **entry_p, struct soda_conf_error *err);
void soda_tenants_file_remove(struct soda_tenants_file *file, struct soda_tenant_entry *entry);

/*
 * "ro /srv/graphs", appended.  0; -EINVAL: also of a path that a line of the file could not hold;
 * -E2BIG, -ENOMEM.
 */
int soda_tenant_export_add(struct soda_tenant_entry *entry, const char *text,
			   struct soda_conf_error *err);

/* "2026-12-31T23:59:59Z" */
#define SODA_UTC_BYTES 32
char *soda_utc_format(time_t at, char out[SODA_UTC_BYTES]);

/*
 * Write a file of mode 0600 in the place of the one there, whose owner it gets: by a new file
 * beside it, synchronised, and renamed.  0 or negative errno.
 */
int soda_private_write(const char *path, const char *text, size_t bytes,
		       struct soda_conf_error *err);

#endif
