/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tenants: whose keys are what, the files in which programs and daemons find them, and an operator
 * who changes those while all runs.
 *
 *   files.c     the files
 *   operator.c  keys are rotated, quotas changed, tenants removed and added again
 *   intruder.c  clients that connect as somebody else
 *   private.c   files that only their owner reads
 */
#ifndef SODA_SIM_TENANTS_H
#define SODA_SIM_TENANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "../fibers.h"

/* The application's, the other client's (unless that is the application's, too), the agent's. */
enum sim_tenant { SIM_TENANT_HOST, SIM_TENANT_OTHER, SIM_TENANT_AGENT, SIM_TENANTS };

/* The key files. */
#define SIM_TENANT_KEY_HOST "/sim-key-host"
#define SIM_TENANT_KEY_OTHER "/sim-key-other"
#define SIM_TENANT_KEY_AGENT "/sim-key-agents"

/* The name of a process's tenants file; it outlives the seed. */
const char *sim_tenants_file(enum sim_process p);
/* What the operator says of a tenant. */
struct sim_tenant_state {
	uint8_t key[32], previous[32];
	bool has_previous;
	uint64_t previous_until; /* seconds of the clock */
	uint64_t quota;		 /* 0: none */
	uint64_t removed;	 /* a bit for each process whose file does not have it */
};
extern const char *const sim_tenant_names[SIM_TENANTS];
extern struct sim_tenant_state sim_tenants[SIM_TENANTS];
/* All files, with new keys, where the plan has tenants. */
void sim_tenants_make(void);
/* A key as nobody has it. */
void sim_tenants_new_key(uint8_t key[32]);
/* Write a process's tenants file, or a tenant's key file, anew. */
void sim_tenants_write(enum sim_process p);
void sim_tenants_write_key(enum sim_tenant t);

/* Whether this daemon has tenants; and whether the application is one of those it speaks with. */
bool sim_tenants_has(enum sim_process p);
bool sim_tenants_of_host(void);
/* Which one the other client is. */
enum sim_tenant sim_tenants_other(void);

/*
 * What the operator does; each daemon has read its file again when these return.
 *
 * A new key: daemons know it before the tenant's programs do, and the old one for a while.
 */
void sim_tenants_rotate(enum sim_tenant t);
/* Another quota for the application. */
void sim_tenants_change_quota(void);
/* The most that it ever was; 0: there is none. */
uint64_t sim_tenants_most_quota(void);
/* It is none any more there, or one again. */
void sim_tenants_remove(enum sim_tenant t, enum sim_process p, bool on);
/* The daemon serves it no more, and has known so since before then. */
bool sim_tenants_removed_at(enum sim_tenant t, enum sim_process p, uint64_t ns);
/* Some tenant was none somewhere since then, or shortly before. */
bool sim_tenants_any_removed(uint64_t since_ns);

/* Somebody connects there, and must not be let in. */
void sim_tenants_intrude(enum sim_process to);
/* A thief comes to an agent that has just begun before the application does, with its token. */
void sim_tenants_steal(void);
/* What is charged to it there. */
uint64_t sim_tenants_charged(enum sim_tenant t, enum sim_process p);
/* What accounts must add up to; no point. */
void sim_tenants_check(void);

/*
 * private.c: files with keys in them, which programs open by name.  Each is a memfd of the
 * kernel's: a program that has one open reads on in it when another takes its place.
 */

/* In the place of the one of this name, or none. The name begins with '/'. */
void sim_private_put(const char *path, const char *text, size_t bytes);
bool sim_private_owns(const char *path);
/* open(2) and stat(2) of one that is owned. */
int sim_private_open(const char *path);
int sim_private_stat(const char *path, struct stat *st);
/* By which name it can be opened where system calls do not lead here. */
const char *sim_private_name(const char *path, char out[32]);

#endif
