/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of options that several benchmarks have. */
#ifndef SODA_BENCH_PATTERN_H
#define SODA_BENCH_PATTERN_H

#include "soda/bench/worker/worker.h"

/*
 * The patterns by name: seq ... alternate, trace:FILE, and where files are shared, shared.
 * Sets the plan's pattern, whether it stores, and for a trace its file, chunk and size.
 * 0, or -EINVAL after a message that begins with `who`.
 */
int soda_bench_pattern_parse(const char *who, const char *text, bool may_share,
			     struct soda_bench_plan *plan);
/*
 * The rest of what fault and dpu check alike, of a plan with its threads, bytes and chunk_bytes:
 * the pattern as above, a chunk size, chunks for each thread, a page buffer as below, a policy
 * (NULL: none is named).  0, or -EINVAL after a message.
 */
int soda_bench_plan_fill(const char *who, const char *pattern, bool may_share, const char *buffer,
			 const char *evict, struct soda_bench_plan *plan);
/* "rand", "trace:FILE"; into out, which it returns. */
const char *soda_bench_pattern_name(const struct soda_bench_plan *plan, char *out, size_t bytes);
/* The page buffer: "1/3" of bytes, or a size. 0, -EINVAL. */
int soda_bench_parse_buffer(const char *text, uint64_t bytes, uint64_t *buffer_p);

/* NULL ends them. */
extern const char *const soda_bench_touch_names[]; /* enum soda_bench_touch */
extern const char *const soda_bench_mode_names[];  /* enum soda_mode */

#endif
