/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registry that --server may name, etcd://HOST:PORT[,...]/POOL: which servers the agent begins
 * with, and a thread that tells soda_dpu_servers of those that come and go.  While etcd is away
 * nothing changes.
 */
#ifndef SODA_DPU_AGENT_REGISTRY_H
#define SODA_DPU_AGENT_REGISTRY_H

#include "dpu_agent/life/agent.h"

/*
 * If opt->server names a registry, ask it, and set opt->registered.  0; -EINVAL: also for options
 * of a registry without one; errors of soda_registry_resolve(); logged.
 */
int soda_dpu_registry_find(struct soda_dpu_options *opt);
/* Behind soda_dpu_start(), whose options these were.  0, also without a registry; an error, logged.
 */
int soda_dpu_registry_follow(struct soda_dpu *dpu);
/* Before soda_dpu_stop(): the agent is told of no change from now on. */
void soda_dpu_registry_stop(void);

#endif
