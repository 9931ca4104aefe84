/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without jemalloc. */
#include "soda/bench/heap/heap.h"

const struct soda_heap_ops *soda_heap_plain(void)
{
	return NULL;
}
