/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/policy/policies.h"

#include <string.h>

static const struct soda_cache_policy *const builtin[] = {
	&soda_cache_policy_random,
	&soda_cache_policy_stream,
};

const struct soda_cache_policy *soda_cache_policy_builtin(const char *name)
{
	for (size_t i = 0; i < sizeof(builtin) / sizeof(builtin[0]); i++)
		if (strcmp(builtin[i]->name, name) == 0)
			return builtin[i];
	return NULL;
}
