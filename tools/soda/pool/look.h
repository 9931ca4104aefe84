/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda pool`: a pool of memory servers as its operator sees it.  What the commands share: the
 * members of a list, each asked for its statistics, and the programs that use the pool, of which
 * every member has heard something (wire/pool.h).
 */
#ifndef SODA_TOOL_POOL_H
#define SODA_TOOL_POOL_H

#include "pool/pool.h"
#include "registry/registry.h"
#include "soda/base/source.h"
#include "wire/pool.h"

enum soda_pool_state {
	SODA_POOL_UP,
	SODA_POOL_DRAINING, /* what it has is to move to others */
	SODA_POOL_ENDING,   /* it has been told to end, by SIGTERM */
	SODA_POOL_UNREACHABLE,
};

extern const char *const soda_pool_states[]; /* "up", ... */

struct soda_pool_member {
	struct soda_stat_source source; /* its target is the address */
	enum soda_pool_state state;
	char why[256]; /* UNREACHABLE: what was said */
	/* Of the last answer, also where the server is unreachable now; "": there was none. */
	char domain[64], version[32], instance[24];
	uint64_t capacity, used, free_bytes, clients;
	bool clients_known; /* the answer had room for its list of clients */
};

/* A program that uses the pool: the sum, or the greatest, of what the members say. */
struct soda_pool_program {
	char id[24], address[64]; /* address: as one of the servers sees it */
	uint64_t pid;
	uint64_t slabs, missing, expelled, rebuilt, moved, rebuilt_bytes;
	uint64_t copies; /* of slabs, on the servers that can be reached */
	uint64_t used;	 /* bytes there */
};

struct soda_pool {
	struct soda_members list;
	struct soda_pool_member members[SODA_MEMBERS_MAX];
	struct soda_pool_program *programs; /* of the last look */
	size_t programs_n;
};

/*
 * list: addresses with commas between, or etcd://..., which is asked for them once, here, as login
 * says; NULL: what SODA_SERVER says.  0, or an error after a message that begins with `who`:
 * -EINVAL, or one of soda_registry_resolve().
 */
int soda_pool_open(struct soda_pool *pool, const char *who, const char *list,
		   const struct soda_registry_login *login);
/* With which exit code a command ends that soda_pool_open() has failed. */
int soda_pool_exit(int err);
/* Ask every member, each for at most so long, one after the other. */
void soda_pool_look(struct soda_pool *pool, int timeout_ms);
void soda_pool_close(struct soda_pool *pool, int timeout_ms);
/* Tell a server what it is to do. 0; errors of soda_conn_call(), with a sentence. */
int soda_pool_tell(struct soda_conn *conn, enum soda_wire_pool_ask ask, int timeout_ms,
		   struct soda_why *why);

/* Of the last look. */
uint64_t soda_pool_missing(const struct soda_pool *pool);
/* In how many failure domains the members lie that are up. */
uint32_t soda_pool_domains(const struct soda_pool *pool);

int soda_command_pool_add(int argc, char **argv);
int soda_command_pool_drain(int argc, char **argv);
int soda_command_pool_rebalance(int argc, char **argv);
int soda_command_pool_status(int argc, char **argv);
int soda_command_pool_events(int argc, char **argv);

#endif
