/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tenants that a daemon serves, as its file says, now: docs/internals/tenants.md.  Who may
 * connect, with what rate and weight, and what each has done; what else a daemon has of a tenant it
 * keeps behind the record (struct soda_tenants_ops).
 *
 * A tenant's record stays until the daemon ends, also when the file does not have it any more, so
 * that clients, accounts and statistics point to it without counting.
 */
#ifndef SODA_DAEMON_TENANTS_H
#define SODA_DAEMON_TENANTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/flow.h"
#include "base/shares.h"
#include "daemon/metrics.h"
#include "transport/api/service.h"
#include "trust/proof.h"
#include "trust/tenants_file.h"
#include "trust/token.h"

struct soda_tenant {
	struct soda_tenant *next; /* constant once it is in the list, and so the next two */
	char name[SODA_WIRE_TENANT_MAX + 1];
	uint32_t number;       /* counted from 1 */
	struct soda_flow flow; /* of its data connections on tcp */
	_Atomic uint64_t reads, writes, bytes_read, bytes_written, refused;
	/* guarded by the tenants' lock, from here on */
	bool removed;
	struct soda_tenant_entry entry; /* without its directories */
	uint8_t key_id[SODA_WIRE_KEY_ID_BYTES], previous_id[SODA_WIRE_KEY_ID_BYTES];
};

/*
 * What a daemon has of a tenant beside that.  Functions may be NULL, but not discard where prepare
 * gives it something; arg: of the start.
 */
struct soda_tenants_ops {
	size_t record_bytes; /* of the daemon's record, which begins with a struct soda_tenant */
	/*
	 * Check an entry of the file, and get ready what may fail. Without the tenants' lock.
	 * 0: *coming_p is given to apply, then to discard; a negative errno, with the sentence:
	 * nothing of the file is used.
	 */
	int (*prepare)(void *arg, const struct soda_tenant_entry *entry, void **coming_p,
		       struct soda_conf_error *err);
	/* The entry is the tenant's from now on. With the tenants' lock. */
	void (*apply)(void *arg, struct soda_tenant *t, const struct soda_tenant_entry *entry,
		      void *coming);
	void (*discard)(void *coming);
	/* The record's end. */
	void (*destroyed)(struct soda_tenant *t);
};

struct soda_tenants {
	const char *path; /* set before start, then constant, and so below; NULL: an open daemon */
	const struct soda_tenants_ops *ops;
	void *arg;
	char server[SODA_WIRE_TENANT_MAX + 1];
	struct soda_guard guard;
	pthread_mutex_t lock;	  /* the daemon's apply may take others within it */
	struct soda_tenant *list; /* guarded by lock; in the order of the file when they came */
	uint32_t n;
	_Atomic uint32_t there; /* of them, those that are not removed */
};

/* Read the file, if path is not NULL. 0, or an error that has been logged. */
int soda_tenants_start(struct soda_tenants *tenants, const char *path,
		       const struct soda_tenants_ops *ops, void *arg);
/*
 * Read it again.  With an error, which is logged, nothing changes.  gone: called, without the lock,
 * for each tenant that the file has lost.
 */
void soda_tenants_reload(struct soda_tenants *tenants,
			 void (*gone)(void *arg, struct soda_tenant *tenant), void *arg);
/* When no client is there any more. */
void soda_tenants_stop(struct soda_tenants *tenants);

/*
 * Whether a tenant may have this connection: -EPERM, with the sentence: by way of an agent, which
 * its role does not allow; or with a rate by shm, where nobody counts.
 */
int soda_tenant_admit(struct soda_tenants *tenants, const struct soda_tenant *tenant,
		      const struct soda_wire_hello *hello, const struct soda_peer_info *info,
		      struct soda_why *why);

/*
 * Whether what a connection has proved is of the process whose client id it names: key is that
 * client's (soda_client_key()), tenant the client's.  0; -EPERM: another tenant's client; -ESTALE:
 * another process's; with the sentence.
 */
int soda_tenant_owns(const struct soda_tenant *tenant, const uint8_t key[SODA_KEY_BYTES],
		     const struct soda_proved *proved, struct soda_why *why);

/*
 * The same of a HELLO that shows a token instead (SODA_FEATURE_TOKEN): tokens are what the client
 * was given. -EPERM; -ESTALE: also where it is no control connection's.
 */
int soda_tenant_adopts(const struct soda_tenant *tenant, struct soda_tokens *tokens,
		       const struct soda_wire_hello *hello, const struct soda_proved *proved,
		       struct soda_why *why);

/* What may change: */
enum soda_role soda_tenant_role(struct soda_tenants *tenants, const struct soda_tenant *tenant);
bool soda_tenant_removed(struct soda_tenants *tenants, const struct soda_tenant *tenant);
/* Which it is among those that there are, for places that they share; of NULL: nobody. */
struct soda_holder soda_tenant_holder(struct soda_tenants *tenants,
				      const struct soda_tenant *tenant);
/* Whether it has a rate. */
static inline bool soda_tenant_limited(const struct soda_tenant *tenant)
{
	return atomic_load(&tenant->flow.limited);
}

/* The tenant of this name, or number; NULL: there is none, or no more. */
const struct soda_tenant *soda_tenant_named(struct soda_tenants *tenants, const char *name,
					    size_t bytes);
const struct soda_tenant *soda_tenant_numbered(struct soda_tenants *tenants, uint32_t number);

/* A READ that was served, or a WRITE that was taken. */
void soda_tenant_count(struct soda_tenant *tenant, bool write, uint32_t bytes);

/*
 * Say the list of tenants, of one alone, or (of NULL) all.  own: within each tenant's item, what
 * the daemon adds.  Nothing is said of an open daemon.
 */
void soda_tenants_walk(struct soda_tenants *tenants, const struct soda_tenant *of,
		       void (*own)(void *arg, struct soda_metrics *m, struct soda_tenant *tenant),
		       void *arg, struct soda_metrics *m);

#endif
