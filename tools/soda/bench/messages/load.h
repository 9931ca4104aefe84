/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages of `soda bench messages`, the same ones for each carrier: each rank sends so
 * many to ranks that random numbers name, itself among them.  Knows neither SODA nor MPI.
 */
#ifndef SODA_BENCH_MESSAGES_LOAD_H
#define SODA_BENCH_MESSAGES_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	SODA_BENCH_MSG_BYTES_MIN = 8,
	SODA_BENCH_MSG_BYTES_MAX = 1 << 20,
	SODA_BENCH_MSG_GATHERED = 60
				  << 10, /* what a program gathers for a rank, over MPI or SODA */
};

struct soda_bench_msg_load {
	uint32_t rank, ranks;
	uint32_t bytes;	   /* of a message; its first 8 are its value */
	uint64_t messages; /* that a rank sends */
	uint64_t seed;	   /* another one, other messages */
	uint64_t sent, sent_sum;
	uint64_t received, received_sum, wrong; /* wrong: another rank's, or of another size */
};

/* The rank's next message: its value, and to whom. */
static inline uint64_t soda_bench_msg_next(struct soda_bench_msg_load *load, uint32_t *to_p)
{
	/* the finalizer of MurmurHash3 over a counter, as SplitMix64 has it */
	uint64_t x = (load->seed << 48) + ((uint64_t)load->rank << 36) + ++load->sent;

	x *= 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	load->sent_sum += x;
	*to_p = (uint32_t)((x >> 32) * load->ranks >> 32);
	return x;
}

static inline void soda_bench_msg_take(struct soda_bench_msg_load *load, const void *data,
				       uint64_t bytes)
{
	uint64_t x = 0;

	memcpy(&x, data, sizeof(x));
	load->received++;
	load->received_sum += x;
	load->wrong += bytes != load->bytes || (x >> 32) * load->ranks >> 32 != load->rank;
}

/* What a rank tells of its part; the sums over all ranks decide. */
struct soda_bench_msg_sums {
	uint64_t sent, received, difference, wrong; /* difference: of the sums of values, wraps */
};

static inline void soda_bench_msg_begin(struct soda_bench_msg_load *load, uint64_t messages,
					uint64_t seed)
{
	load->messages = messages;
	load->seed = seed;
	load->sent = load->sent_sum = load->received = load->received_sum = load->wrong = 0;
}

/* Whether all that was sent has been received, once, by whom it was for. */
static inline bool soda_bench_msg_verified(const struct soda_bench_msg_sums *all)
{
	return all->sent == all->received && !all->difference && !all->wrong;
}

/* rank 0's line about a run: seconds, messages, 1 if verified. */
#define SODA_BENCH_MSG_LINE "soda-bench-messages %.9f %llu %d\n"

/* Of a slow sender: microseconds from push to pull, median, 99th of a hundred, the longest. */
#define SODA_BENCH_MSG_SLOW_LINE "soda-bench-messages-slow %.1f %.1f %.1f\n"

#endif
