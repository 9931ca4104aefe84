/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/object.h"

int soda_object_create_locked(const char *file, size_t bytes, unsigned flags,
			      struct soda_region **region_p, struct soda_why *why)
{
	bool first = atomic_load(&soda_agent.fam_bytes) == 0;
	int ret = soda_agent_start(NULL, why);

	if (!ret)
		ret = soda_region_create(file, bytes, flags, region_p, why);
	if (!ret)
		soda_agent_resize(first);
	return ret;
}
