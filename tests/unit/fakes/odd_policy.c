/* SPDX-License-Identifier: BSD-3-Clause */
/* A shared object that must be refused: of another version of the interface. */
#include "soda_cache_policy.h"

const struct soda_cache_policy soda_cache_policy __attribute__((visibility("default"))) = {
	.abi = SODA_CACHE_POLICY_ABI + 1,
	.struct_bytes = sizeof(struct soda_cache_policy),
	.name = "odd",
};
