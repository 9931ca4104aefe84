/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/agent.h"

struct soda_agent soda_agent = { .api_lock = SODA_LOCK_INIT(SODA_RANK_API) };

static __thread struct soda_why last_error __attribute__((tls_model("initial-exec")));

void soda_explain(const struct soda_why *why)
{
	last_error = *why;
}

const char *soda_explained(void)
{
	return last_error.text;
}
