/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/helper.h"

#include "base/log.h"
#include "base/numa/numa_node.h"

static int here = SODA_NODE_ANY; /* node of threads and slots; soda_numa_detect sets it */

void soda_numa_detect(const struct soda_conn *control)
{
	char name[SODA_DEVICE_NAME];
	int device = soda_conn_device(control, name);

	here = soda_node_near(device);
	if (here >= 0 && here == device)
		soda_log_info("threads and buffers on NUMA node %d, that of %s", here, name);
	else if (here >= 0)
		soda_log_info("threads and buffers on NUMA node %d, as it was set", here);
	else
		soda_log_info("nothing is bound to a NUMA node: %s",
			      device >= 0 ? "there is one, or it was switched off"
					  : "no network device with one is in use");
}

void soda_numa_run_here(void)
{
	soda_node_run(here);
}

void soda_numa_place(void *addr, size_t bytes)
{
	soda_node_prefer(here, addr, bytes);
}
