/* SPDX-License-Identifier: BSD-3-Clause */
/* The DPU agent: the parts put together, and the service that transports call. */
#ifndef SODA_DPU_AGENT_AGENT_H
#define SODA_DPU_AGENT_AGENT_H

#include "daemon/metrics.h"
#include "dpu_agent/paging/caches.h"
#include "dpu_agent/base/options.h"
#include "dpu_agent/paging/gate.h"
#include "dpu_agent/session/session.h"
#include "dpu_agent/upstream/complete.h"
#include "dpu_agent/paging/schedule.h"
#include "transport/api/service.h"

struct soda_dpu {
	const struct soda_dpu_options *opt; /* set before start, then constant, and so below */
	bool async, aggregate;
	unsigned channels; /* for READs, a session */
	bool near;	   /* async: workers wait for answers that come soon themselves */
	uint32_t id;	   /* random at the start: soda_wire_welcome.agent, until it loses data */
	uint64_t started_ms;
	struct soda_completers completers;
	struct soda_sessions sessions;
	struct soda_schedule schedule;
	struct soda_gates gates;
	_Atomic uint64_t reserved_bytes; /* the sessions' memory given for WRITEs, in all */
	struct soda_caches caches;
};

extern const struct soda_service soda_dpu_service;

/* opt stays the caller's, until stop. 0, negative errno. */
int soda_dpu_start(struct soda_dpu *dpu, const struct soda_dpu_options *opt);
/*
 * No client is connected any more: bring accepted writes to the server for at most
 * patience_ms, end the threads, free.  How many sessions lost some.
 */
unsigned soda_dpu_stop(struct soda_dpu *dpu, uint32_t patience_ms);

/* Say all statistics to m; arg: the struct soda_dpu. Any thread; takes the sessions' locks, for a
 * moment each. */
void soda_dpu_walk(void *arg, struct soda_metrics *m);

/* CLOCK_MONOTONIC. */
uint64_t soda_dpu_now_ms(void);

#endif
