/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent.h"

#include <unistd.h>

#include "calls.h"
#include "dpu_agent/life/agent.h"

enum { PATIENCE_MS = 30000 };

static struct soda_dpu dpu;
static struct soda_dpu_options options;
const struct soda_service *fuzz_service = &soda_dpu_service;
void *fuzz_svc = &dpu;

void fuzz_agent_start(const char *server, bool early)
{
	struct soda_conf_error err;

	FUZZ_MUST(soda_conf_defaults(&soda_dpu_conf, &options, &err) == 0);
	free(options.server);
	options.server = strdup(server);
	options.cache_bytes = 1 << 20;
	options.entry_bytes = 128 << 10;
	options.static_bytes = 8 << 20;
	options.write_budget = 4 << 20;
	options.buffers = 1 << 30;
	options.channels = options.completers = 1;
	options.grace_ms = 1000;
	options.async = early;
	FUZZ_MUST(soda_dpu_start(&dpu, &options) == 0);
}

/*
 * Sessions without connections end with the keeper's next look: it is made to look now, also at
 * those that it has looked at just now, and would leave alone for a while.
 */
void fuzz_agent_await_idle(void)
{
	uint64_t end = soda_dpu_now_ms() + PATIENCE_MS;
	bool empty = false;

	while (!empty) {
		pthread_mutex_lock(&dpu.sessions.lock);
		empty = !dpu.sessions.list && !dpu.sessions.ending;
		for (struct soda_session *s = dpu.sessions.list; s; s = s->next)
			s->rest_until_ms = 0;
		if (!empty)
			pthread_cond_broadcast(&dpu.sessions.changed);
		pthread_mutex_unlock(&dpu.sessions.lock);
		FUZZ_MUST(empty || soda_dpu_now_ms() < end);
		if (!empty)
			usleep(50);
	}
}
