/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench move`: tickets one behind the other, and in turns the plain transport. */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "soda/bench/move/move.h"
#include "soda/bench/worker/summary.h"

enum {
	COPIES = 2,
	PLAIN_DEPTH = 32,
	PERFTEST_BYTES = 1 << 30, /* of one READ of ib_read_bw's */
	PERFTEST_LEAST = 16,	  /* READs of a run */
	PERFTEST_MOST = 1 << 20,
};

static const char ib_read_bw[] = "ib_read_bw";

static double now(void)
{
	return soda_transport_seconds(CLOCK_MONOTONIC);
}

/* Keep `depth` tickets under way for that long; all that were handed over count. */
static int move_for(const struct soda_bench_move_load *load, uint32_t depth, double seconds,
		    double *gb_p, uint64_t *step_p)
{
	struct soda_move_ticket *tickets[SODA_MOVE_TICKETS_MAX];
	uint64_t posted = 0, ended = 0;
	double began = now();
	int err = 0;

	while (!err && (ended < posted || now() - began < seconds)) {
		while (!err && posted - ended < depth && (posted == 0 || now() - began < seconds)) {
			err = soda_bench_move_post(load, &tickets[posted % depth]);
			posted += !err;
		}
		if (!err && ended < posted) {
			err = soda_bench_move_await(tickets[ended % depth], step_p);
			ended++;
		}
	}
	*gb_p = (double)ended * (double)load->bytes / 1e9 / (now() - began);
	return err;
}

/* The load's pieces once, into one of two copies in turns. */
static int read_pieces(const struct soda_bench_move_stage *stage,
		       const struct soda_bench_move_load *load, uint64_t i)
{
	uint8_t *into = stage->target + i % COPIES * (stage->target_bytes / COPIES);

	for (uint32_t p = 0; p < load->pieces_n; p++) {
		const struct soda_move_piece *piece = &load->pieces[p];

		for (uint64_t at = 0; at < piece->bytes;) {
			struct iovec to = { into + piece->offset + at, piece->bytes - at };
			struct iovec from = { (uint8_t *)(uintptr_t)piece->from + at, to.iov_len };
			ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);

			if (n <= 0)
				return soda_bench_move_complain("process_vm_readv",
								n ? -errno : -EIO, NULL);
			at += (uint64_t)n;
		}
	}
	return 0;
}

static int read_for(const struct soda_bench_move_stage *stage,
		    const struct soda_bench_move_load *load, double seconds, double *gb_p)
{
	double began = now(), t = began;
	uint64_t n = 0;
	int err = 0;

	for (; !err && (n == 0 || t - began < seconds); n++, t = now())
		err = read_pieces(stage, load, n);
	*gb_p = (double)n * (double)load->bytes / 1e9 / (t - began);
	return err;
}

/* Requests of the size, at most as large as those that the link was made for, as many at a time as
 * the tickets' bytes would be. */
static int request_for(struct soda_bench_move_stage *stage, enum soda_transport_request request,
		       const struct soda_bench_move_load *load, uint32_t depth, double seconds,
		       double *gb_p)
{
	uint64_t most = stage->plain.max_bytes, bytes = load->bytes < most ? load->bytes : most;
	uint64_t under_way = depth * ((load->bytes + bytes - 1) / bytes);
	const struct soda_transport_point p = { request, (uint32_t)bytes,
						(uint32_t)(under_way < PLAIN_DEPTH ? under_way
										   : PLAIN_DEPTH) };
	struct soda_transport_result r;
	int err = soda_transport_measure(&stage->plain, &p, seconds, &r);

	if (err)
		return soda_bench_move_complain(stage->server.address, err, NULL);
	*gb_p = (double)r.requests * p.bytes / 1e9 / r.seconds;
	return 0;
}

/*
 * RDMA READs by ib_read_bw, about as long as seconds at the speed gb. It has at least two under
 * way, and a READ of it has as many bytes as a step.  < 0: it is not installed, or failed.
 */
static double perftest_for(const struct soda_bench_move_stage *stage,
			   const struct soda_bench_move_load *load, uint32_t depth, double seconds,
			   double gb)
{
	const struct soda_transport_point p = { SODA_TRANSPORT_READ, (uint32_t)load->bytes,
						depth > 1 ? depth : 2 };
	double requests = seconds * gb * 1e9 / (double)load->bytes;

	if (load->bytes > PERFTEST_BYTES)
		return -1;
	return soda_perftest(stage->plan->device, &p,
			     requests < PERFTEST_LEAST	? PERFTEST_LEAST
			     : requests < PERFTEST_MOST ? (uint32_t)requests
							: PERFTEST_MOST);
}

/* By verbs: the first round of a point decides for all of them who reads. */
static int verbs_for(struct soda_bench_move_stage *stage, const struct soda_bench_move_load *load,
		     uint32_t depth, double seconds, double gb, double *gb_p, const char **what_p)
{
	bool first = !**what_p;

	if (first || *what_p == ib_read_bw) {
		*what_p = ib_read_bw;
		*gb_p = perftest_for(stage, load, depth, seconds, gb);
		if (*gb_p > 0)
			return 0;
		if (!first)
			return soda_bench_move_complain(ib_read_bw, -EIO, "it prints no number");
	}
	*what_p = "READ";
	return request_for(stage, SODA_TRANSPORT_READ, load, depth, seconds, gb_p);
}

/* gb: what moving has just come to; *what_p: what is plain, "" in the first round. */
static int plain_for(struct soda_bench_move_stage *stage, const struct soda_bench_move_load *load,
		     uint32_t depth, double seconds, double gb, double *gb_p, const char **what_p)
{
	if (stage->transport == SODA_BENCH_MOVE_VERBS)
		return verbs_for(stage, load, depth, seconds, gb, gb_p, what_p);
	*what_p = stage->transport == SODA_BENCH_MOVE_SHM ? "process_vm_readv" : "WRITE";
	return stage->transport == SODA_BENCH_MOVE_SHM
		       ? read_for(stage, load, seconds, gb_p)
		       : request_for(stage, SODA_TRANSPORT_WRITE, load, depth, seconds, gb_p);
}

/* What is moved is new in each round, and read back at its end. */
static int one_round(struct soda_bench_move_stage *stage, const struct soda_bench_move_load *load,
		     uint32_t depth, double *gb_p, double *plain_gb_p, const char **plain_p)
{
	double seconds = stage->plan->seconds;
	uint64_t step = 0;
	int err;

	soda_bench_move_stamp(stage);
	err = move_for(load, depth, seconds, gb_p, &step);
	if (!err)
		err = soda_bench_move_verify(stage, load, step);
	return err ? err : plain_for(stage, load, depth, seconds, *gb_p, plain_gb_p, plain_p);
}

int soda_bench_move_throughput(struct soda_bench_move_stage *stage, uint64_t bytes, uint32_t depth,
			       struct soda_bench_move_rate *rate_p)
{
	double gb[SODA_BENCH_ROUNDS_MAX], plain[SODA_BENCH_ROUNDS_MAX],
		ratio[SODA_BENCH_ROUNDS_MAX];
	struct soda_bench_move_load load = { .buffer = NULL };
	const char *what = "";
	uint32_t rounds = stage->plan->rounds;
	int err = soda_bench_move_load_open(stage, "throughput", bytes, COPIES, &load);

	for (uint32_t i = 0; i <= rounds && !err; i++) { /* the first one warms up */
		uint32_t at = i ? i - 1 : 0;

		err = one_round(stage, &load, depth, &gb[at], &plain[at], &what);
		ratio[at] = gb[at] / plain[at];
	}
	soda_bench_move_load_close(&load);
	if (err)
		return err;
	*rate_p = (struct soda_bench_move_rate){ .bytes = bytes,
						 .depth = depth,
						 .gb = soda_bench_median(gb, rounds),
						 .plain_gb = soda_bench_median(plain, rounds),
						 .ratio = soda_bench_median(ratio, rounds),
						 .plain = what };
	return 0;
}
