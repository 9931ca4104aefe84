/* SPDX-License-Identifier: BSD-3-Clause */
/* Access sequences: sequential, uniform, Zipf, with a hot part, from a trace. */
#include "soda/bench/worker/access.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A stream of random numbers: splitmix64. */
struct stream {
	uint64_t state;
};

static uint64_t stream_next(struct stream *stream)
{
	uint64_t bits = soda_bench_mix(stream->state);

	stream->state += 0x9e3779b97f4a7c15u;
	return bits;
}

/* Uniform in [0, n), n < 2^32, without the bias of a remainder worth speaking of. */
static uint32_t stream_below(struct stream *stream, uint32_t n)
{
	return (uint32_t)(((stream_next(stream) >> 32) * n) >> 32);
}

/* Uniform in [0, 1). */
static double stream_fraction(struct stream *stream)
{
	return (double)(stream_next(stream) >> 11) * 0x1p-53;
}

void soda_bench_fill(uint64_t *words, uint64_t n, uint64_t seed)
{
	for (uint64_t i = 0; i < n; i++)
		words[i] = soda_bench_value(i, seed);
}

static void shuffle(uint32_t *order, uint32_t n, uint64_t seed)
{
	struct stream stream = { soda_bench_mix(seed) };

	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t other = stream_below(&stream, i), kept = order[i - 1];

		order[i - 1] = order[other];
		order[other] = kept;
	}
}

static int create_zipf(struct soda_bench_access *access)
{
	uint32_t n = access->chunks;
	double total = 0;

	access->sum = malloc(n * sizeof(*access->sum));
	access->order = malloc(n * sizeof(*access->order));
	if (!access->sum || !access->order) {
		soda_bench_access_destroy(access);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		access->sum[i] = total += pow(i + 1.0, -SODA_BENCH_ZIPF_EXPONENT);
	for (uint32_t i = 0; i < n; i++)
		access->sum[i] /= total;
	shuffle(access->order, n, access->seed);
	return 0;
}

int soda_bench_access_create(struct soda_bench_access *access, enum soda_bench_pattern pattern,
			     uint32_t chunks, uint32_t threads, uint64_t seed)
{
	memset(access, 0, sizeof(*access));
	if (threads == 0 || chunks < threads)
		return -EINVAL;
	access->pattern = pattern;
	access->chunks = chunks;
	access->threads = threads;
	access->seed = seed;
	return pattern == SODA_BENCH_ZIPF ? create_zipf(access) : 0;
}

int soda_bench_access_replay(struct soda_bench_access *access, struct soda_bench_trace *trace,
			     uint32_t threads)
{
	int err = soda_bench_access_create(access, SODA_BENCH_TRACE, trace->chunks, threads, 0);

	if (err)
		return err;
	access->trace = *trace;
	memset(trace, 0, sizeof(*trace));
	return 0;
}

void soda_bench_access_destroy(struct soda_bench_access *access)
{
	free(access->sum);
	free(access->order);
	soda_bench_trace_free(&access->trace);
	access->sum = NULL;
	access->order = NULL;
}

uint32_t soda_bench_access_first(const struct soda_bench_access *access, uint32_t thread)
{
	return (uint32_t)((uint64_t)access->chunks * thread / access->threads);
}

uint32_t soda_bench_access_share(const struct soda_bench_access *access, uint32_t thread)
{
	return soda_bench_access_first(access, thread + 1) -
	       soda_bench_access_first(access, thread);
}

/* Write one thread's accesses out of the trace to out, unless that is NULL; returns how many. */
static uint32_t replay(const struct soda_bench_access *access, uint32_t thread, uint32_t *out)
{
	const struct soda_bench_trace *trace = &access->trace;
	uint32_t n = 0;

	for (uint32_t i = 0; i < trace->n; i++) {
		if (trace->thread[i] % access->threads != thread)
			continue;
		if (out)
			out[n] = trace->access[i];
		n++;
	}
	return n;
}

uint32_t soda_bench_access_count(const struct soda_bench_access *access, uint32_t thread)
{
	return access->pattern == SODA_BENCH_TRACE ? replay(access, thread, NULL)
						   : soda_bench_access_share(access, thread);
}

uint32_t soda_bench_access_hot(uint32_t chunks)
{
	return chunks < 10 ? 1 : chunks / 10;
}

bool soda_bench_access_stores(const struct soda_bench_access *access)
{
	return access->pattern == SODA_BENCH_RMW || access->trace.stores;
}

static uint32_t draw_hot(const struct soda_bench_access *access, struct stream *stream)
{
	uint32_t hot = soda_bench_access_hot(access->chunks);

	if (access->chunks == hot || stream_fraction(stream) < SODA_BENCH_HOT_SHARE)
		return stream_below(stream, hot);
	return hot + stream_below(stream, access->chunks - hot);
}

/* The smallest rank whose sum exceeds the fraction. */
static uint32_t zipf_rank(const struct soda_bench_access *access, double fraction)
{
	uint32_t low = 0, high = access->chunks - 1;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (access->sum[middle] > fraction)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static enum soda_bench_pattern pattern_of(const struct soda_bench_access *access, uint64_t pass)
{
	if (access->pattern == SODA_BENCH_ALTERNATE)
		return pass % 2 ? SODA_BENCH_RAND : SODA_BENCH_SEQ;
	return access->pattern;
}

void soda_bench_access_pass(const struct soda_bench_access *access, uint64_t pass, uint32_t thread,
			    uint32_t *out)
{
	enum soda_bench_pattern pattern = pattern_of(access, pass);
	uint32_t first = soda_bench_access_first(access, thread);
	uint32_t n = soda_bench_access_share(access, thread);
	struct stream stream = { soda_bench_mix(
		access->seed ^ soda_bench_mix(access->reader << 48 | pass << 16 | thread)) };

	if (pattern == SODA_BENCH_TRACE) {
		replay(access, thread, out);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		switch (pattern) {
		case SODA_BENCH_RAND:
			out[i] = stream_below(&stream, access->chunks);
			break;
		case SODA_BENCH_RMW:
			out[i] = first + stream_below(&stream, n);
			break;
		case SODA_BENCH_ZIPF:
			out[i] = access->order[zipf_rank(access, stream_fraction(&stream))];
			break;
		case SODA_BENCH_HOT:
			out[i] = draw_hot(access, &stream);
			break;
		default: /* seq, shared */
			out[i] = first + i;
			break;
		}
	}
}
