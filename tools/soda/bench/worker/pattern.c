/* SPDX-License-Identifier: BSD-3-Clause */
/* Patterns and buffers as people write them. */
#include "soda/bench/worker/pattern.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/conf/conf.h"
#include "soda/bench/worker/trace.h"

const char *const soda_bench_touch_names[] = { "word", "page", "all", NULL };
const char *const soda_bench_mode_names[] = { "auto", "inline", "handler", NULL };

#define TRACE "trace:"

static const char *const names[] = {
	[SODA_BENCH_SEQ] = "seq",	[SODA_BENCH_RAND] = "rand",
	[SODA_BENCH_RMW] = "rmw",	[SODA_BENCH_ZIPF] = "zipf",
	[SODA_BENCH_HOT] = "hot",	[SODA_BENCH_ALTERNATE] = "alternate",
	[SODA_BENCH_SHARED] = "shared",
};

static int complain(const char *who, const char *text)
{
	fprintf(stderr, "%s: %s\n", who, text);
	return -EINVAL;
}

static int parse_trace(const char *who, const char *path, struct soda_bench_plan *plan)
{
	struct soda_bench_trace trace;
	char why[256];
	int n = snprintf(plan->trace, sizeof(plan->trace), "%s", path);

	if (n < 0 || (size_t)n >= sizeof(plan->trace))
		snprintf(why, sizeof(why), "the name of the trace is too long");
	else if (soda_bench_trace_load(path, &trace, why, sizeof(why)) == 0) {
		plan->pattern = SODA_BENCH_TRACE;
		plan->stores = trace.stores > 0;
		plan->chunk_bytes = trace.chunk_bytes;
		plan->bytes = (uint64_t)trace.chunks * trace.chunk_bytes;
		soda_bench_trace_free(&trace);
		return 0;
	}
	return complain(who, why);
}

int soda_bench_pattern_parse(const char *who, const char *text, bool may_share,
			     struct soda_bench_plan *plan)
{
	if (strncmp(text, TRACE, strlen(TRACE)) == 0)
		return parse_trace(who, text + strlen(TRACE), plan);
	for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) != 0 || (i == SODA_BENCH_SHARED && !may_share))
			continue;
		plan->pattern = i;
		plan->stores = i == SODA_BENCH_RMW;
		return 0;
	}
	fprintf(stderr,
		"%s: no pattern '%.80s'; expected seq, rand, rmw, zipf, hot, alternate,%s or "
		"trace:FILE\n",
		who, text, may_share ? " shared" : "");
	return -EINVAL;
}

const char *soda_bench_pattern_name(const struct soda_bench_plan *plan, char *out, size_t bytes)
{
	if (plan->pattern == SODA_BENCH_TRACE)
		snprintf(out, bytes, TRACE "%s", plan->trace);
	else
		snprintf(out, bytes, "%s", names[plan->pattern]);
	return out;
}

int soda_bench_parse_buffer(const char *text, uint64_t bytes, uint64_t *buffer_p)
{
	unsigned a, b;
	char end;

	if (!strchr(text, '/'))
		return soda_parse_size(text, buffer_p);
	if (sscanf(text, "%u/%u%c", &a, &b, &end) != 2 || a == 0 || b == 0 || a > b)
		return -EINVAL;
	*buffer_p = (uint64_t)((unsigned __int128)bytes * a / b);
	return 0;
}

int soda_bench_plan_fill(const char *who, const char *pattern, bool may_share, const char *buffer,
			 const char *evict, struct soda_bench_plan *plan)
{
	if (plan->chunk_bytes & (plan->chunk_bytes - 1))
		return complain(who, "--chunk must be a power of two from 4K to 2M");
	if (soda_bench_pattern_parse(who, pattern, may_share, plan))
		return -EINVAL;
	if (plan->bytes / plan->chunk_bytes < plan->threads)
		return complain(who, "--size must be at least one chunk a thread");
	if (soda_bench_parse_buffer(buffer, plan->bytes, &plan->buffer_bytes) ||
	    plan->buffer_bytes < plan->chunk_bytes)
		return complain(
			who, "--buffer must be a size (64M) or a fraction (1/3), at least a chunk");
	if (evict && strlen(evict) >= sizeof(plan->evict))
		return complain(who, "--evict: too long");
	snprintf(plan->evict, sizeof(plan->evict), "%s", evict ? evict : "");
	return 0;
}
