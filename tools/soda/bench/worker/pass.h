/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A team of threads that runs passes over a memory under test.  Accesses are drawn
 * before the clocks start; a round's clocks run over its measured passes only, from
 * the moment when every thread is ready to the moment when the last one is done, for
 * rmw the final sync included.
 */
#ifndef SODA_BENCH_PASS_H
#define SODA_BENCH_PASS_H

#include "soda/bench/worker/worker.h"

struct soda_bench_team;

/*
 * The memory must be open; fills it first if it is not filled.  0, -EINVAL, -ENOMEM,
 * -EAGAIN (threads), -ESTALE (the trace has changed), errors of reading a trace, and
 * errors of sync.
 */
int soda_bench_team_create(const struct soda_bench_plan *plan,
			   const struct soda_bench_memory *memory, uint64_t *words,
			   struct soda_bench_team **team_p);
void soda_bench_team_destroy(struct soda_bench_team *team);

/* flags: enum soda_bench_round. */
void soda_bench_team_round(struct soda_bench_team *team, uint32_t flags,
			   struct soda_bench_sample *sample);

#endif
