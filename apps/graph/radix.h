/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SODA_GRAPH_RADIX_H
#define SODA_GRAPH_RADIX_H

#include <stddef.h>
#include <stdint.h>

/*
 * Sort by all threads, a byte at a time, bytes that are the same in all keys
 * for free.  Returns which of `keys` and `spare`, each of `count`, holds the
 * result.
 */
uint64_t *soda_graph_radix_sort(uint64_t *keys, uint64_t *spare, size_t count);

#endif
