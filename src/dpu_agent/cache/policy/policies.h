/* SPDX-License-Identifier: BSD-3-Clause */
/* The policies that are built in. */
#ifndef SODA_DPU_POLICIES_H
#define SODA_DPU_POLICIES_H

#include "soda_cache_policy.h"

extern const struct soda_cache_policy soda_cache_policy_random, soda_cache_policy_stream;

/* By name; NULL: not built in. */
const struct soda_cache_policy *soda_cache_policy_builtin(const char *name);

#endif
