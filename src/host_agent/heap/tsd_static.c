/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Machines, and builds of jemalloc, whose instructions move-tsd does not know: jemalloc's data of a
 * thread are thread-local data of the static kind, each thread has them, and libsoda cannot be
 * loaded late.
 */
#include "host_agent/heap/heap.h"

int soda_heap_data_map(void)
{
	soda_heap_mine.data = 1;
	return 0;
}

void soda_heap_data_unmap(void)
{
}
