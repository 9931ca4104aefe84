/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SODA_GRAPH_THREADS_H
#define SODA_GRAPH_THREADS_H

#ifdef _OPENMP
#include <omp.h>
#endif

/* Threads of the next parallel loop; one where the compiler has no OpenMP. */
static inline unsigned soda_graph_threads(void)
{
#ifdef _OPENMP
	return (unsigned)omp_get_max_threads();
#else
	return 1;
#endif
}

#endif
