/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an agent has of a tenant beside what all daemons have (daemon/tenants.h): how much of the
 * memory server's memory its programs may have by way of this agent.  To the server they all are
 * the agent's tenant, whose quota bounds what they have together.
 *
 * Anonymous objects count, with their size; files are the memory server's affair.  Any thread, no
 * lock: two programs that ask at once never exceed the quota together.
 */
#ifndef SODA_DPU_TENANTS_H
#define SODA_DPU_TENANTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "daemon/tenants.h"

struct soda_agent_tenant {
	struct soda_tenant is;	/* first */
	_Atomic uint64_t quota; /* 0: no limit */
	_Atomic uint64_t used;
};

/* For soda_tenants_start(); it takes no arg. */
extern const struct soda_tenants_ops soda_agent_tenants_ops;

static inline struct soda_agent_tenant *soda_agent_tenant(struct soda_tenant *tenant)
{
	return (struct soda_agent_tenant *)tenant;
}

/* tenant NULL: an open agent, nothing is counted, and so below. 0; -EDQUOT, with the sentence. */
int soda_quota_charge(struct soda_tenant *tenant, uint64_t bytes, struct soda_why *why);
/* What a program has already: counted, whatever the quota is. */
void soda_quota_note(struct soda_tenant *tenant, uint64_t bytes);
void soda_quota_refund(struct soda_tenant *tenant, uint64_t bytes);

#endif
