/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/session/tenants.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "base/conf/conf.h"

/* Directories are the server's, which knows all programs of the agent as one tenant. */
static int prepare(void *arg, const struct soda_tenant_entry *entry, void **coming_p,
		   struct soda_conf_error *err)
{
	if (!entry->exports_n)
		return 0;
	return soda_conf_fail(err, -EINVAL,
			      "tenant %s: an agent exports no directories: those are the memory "
			      "server's, and in its file the agent's tenant's",
			      entry->name);
}

static void apply(void *arg, struct soda_tenant *tenant, const struct soda_tenant_entry *entry,
		  void *coming)
{
	atomic_store(&soda_agent_tenant(tenant)->quota, entry->quota);
}

const struct soda_tenants_ops soda_agent_tenants_ops = {
	.record_bytes = sizeof(struct soda_agent_tenant),
	.prepare = prepare,
	.apply = apply,
};

int soda_quota_charge(struct soda_tenant *tenant, uint64_t bytes, struct soda_why *why)
{
	struct soda_agent_tenant *t = soda_agent_tenant(tenant);
	char wanted[16], has[16], most[16];
	uint64_t used, quota;

	if (!t)
		return 0;
	used = atomic_load(&t->used);
	do {
		quota = atomic_load(&t->quota);
		if (quota && (used > quota || bytes > quota - used)) {
			snprintf(why->text, sizeof(why->text),
				 "%s wanted, but %s of this tenant's quota of %s are in use: free "
				 "something, or give it more in the agent's tenants file",
				 soda_format_size(bytes, wanted), soda_format_size(used, has),
				 soda_format_size(quota, most));
			return -EDQUOT;
		}
	} while (!atomic_compare_exchange_weak(&t->used, &used, used + bytes));
	return 0;
}

void soda_quota_note(struct soda_tenant *tenant, uint64_t bytes)
{
	if (tenant)
		atomic_fetch_add(&soda_agent_tenant(tenant)->used, bytes);
}

void soda_quota_refund(struct soda_tenant *tenant, uint64_t bytes)
{
	if (tenant)
		atomic_fetch_sub(&soda_agent_tenant(tenant)->used, bytes);
}
