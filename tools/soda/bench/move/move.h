/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench move`, the parts and how they meet:
 *
 *   move.c        options, and what is measured on which transport
 *   stage.c       an agent, a mover, the memory that is handed over, and whether it arrived
 *   host.c        how long soda_move() takes, and what CPU time the process spends until it is done
 *   throughput.c  tickets one behind the other, and in turns the plain transport
 *   arrow.c       tables of Arrow, in five ways, and in turns their bytes unplaced
 *   report.c      tables and JSON
 *
 * What is plain: where the agent reads memory itself, this process's process_vm_readv(2) of the
 * same pieces; where data travel by tcp, WRITEs to a memory server (bench/transport); by verbs
 * perftest's ib_read_bw between two processes of its own, or, where that is not installed, READs
 * from a memory server.
 */
#ifndef SODA_BENCH_MOVE_H
#define SODA_BENCH_MOVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "soda/bench/transport/transport.h"
#include "soda/stage/daemon.h"
#include "soda_move.h"

enum {
	SODA_BENCH_MOVE_LIST_MAX = 16,
	SODA_BENCH_MOVE_CALLS_MAX = 10000,
	SODA_BENCH_MOVE_COLUMNS_MAX = 128,
	SODA_BENCH_MOVE_STRATEGIES = 5,
};

/* The transports that programs reach the agent by. */
enum {
	SODA_BENCH_MOVE_SHM,
	SODA_BENCH_MOVE_TCP,
	SODA_BENCH_MOVE_VERBS,
	SODA_BENCH_MOVE_TRANSPORTS,
};
extern const char *const soda_bench_move_transports[SODA_BENCH_MOVE_TRANSPORTS];

struct soda_bench_move_plan {
	uint64_t host_sizes[SODA_BENCH_MOVE_LIST_MAX], sizes[SODA_BENCH_MOVE_LIST_MAX];
	uint64_t arrow_sizes[SODA_BENCH_MOVE_LIST_MAX];
	uint32_t depths[SODA_BENCH_MOVE_LIST_MAX], columns[SODA_BENCH_MOVE_LIST_MAX];
	unsigned host_n, sizes_n, depths_n, arrow_n, columns_n;
	uint32_t calls, rounds, pieces;
	double seconds; /* of a side in a round */
	bool transports[SODA_BENCH_MOVE_TRANSPORTS];
	bool shared;	    /* the source is memory of soda_move_alloc() */
	const char *device; /* verbs: an address of the RDMA device */
};

struct soda_bench_move_stage {
	const struct soda_bench_move_plan *plan;
	pid_t owner; /* the agent's address contains this number */
	int transport;
	struct soda_bench_daemon server, agent;
	struct soda_mover *mover;
	uint8_t *source; /* the largest size, in whole pages; shared: the mover's */
	uint64_t source_bytes;
	uint64_t stamp;	 /* what was last written into the source */
	uint8_t *target; /* memory of a memfd, two of the largest size of throughput; shm only */
	uint64_t target_bytes;
	struct soda_transport_link plain; /* tcp and verbs */
};

/* One buffer, and a list of pieces that fills it. */
struct soda_bench_move_load {
	struct soda_move_buffer *buffer;
	const char *name;
	uint64_t bytes;
	struct soda_move_piece pieces[SODA_MOVE_PIECES_MAX];
	uint32_t pieces_n;
};

/*
 * stage.c.  All return 0, or negative errno after a message.  Stage and load may be closed whatever
 * their opening has returned, if they were zero before.
 */
int soda_bench_move_stage_open(struct soda_bench_move_stage *stage);
void soda_bench_move_stage_close(struct soda_bench_move_stage *stage);
int soda_bench_move_load_open(const struct soda_bench_move_stage *stage, const char *name,
			      uint64_t bytes, unsigned copies, struct soda_bench_move_load *load);
void soda_bench_move_load_close(struct soda_bench_move_load *load);
/* Change every page of the source. No ticket may be under way. */
void soda_bench_move_stamp(struct soda_bench_move_stage *stage);
/* Read the last step as a consumer: it must be the source's content. */
int soda_bench_move_verify(const struct soda_bench_move_stage *stage,
			   const struct soda_bench_move_load *load, uint64_t step);
/*
 * Hold step `number` of a buffer as a consumer; *reader_p is to be closed, also after a failure,
 * which is complained of.
 */
int soda_bench_move_step(const struct soda_bench_move_stage *stage, const char *name,
			 uint64_t number, struct soda_move_reader **reader_p,
			 struct soda_move_step *step_p);
/* Hand the load over, and wait for a ticket. */
int soda_bench_move_post(const struct soda_bench_move_load *load,
			 struct soda_move_ticket **ticket_p);
int soda_bench_move_await(struct soda_move_ticket *ticket, uint64_t *step_p);
int soda_bench_move_complain(const char *what, int err, const char *why);

struct soda_bench_move_host {
	uint64_t bytes;
	double median_us, max_us; /* of soda_move() */
	double cpu_us;		  /* median: of the process, from there until the ticket's end */
};

/* Pearson's, of all calls: with the size, and with its logarithm; NAN: nothing varies. */
struct soda_bench_move_correlation {
	double size, log_size;
};

/* host.c: rows as plan->host_sizes. 0, or negative errno after a message. */
int soda_bench_move_host(struct soda_bench_move_stage *stage, struct soda_bench_move_host *rows,
			 struct soda_bench_move_correlation *correlation_p);

struct soda_bench_move_rate {
	uint64_t bytes;
	uint32_t depth;
	double gb, plain_gb, ratio; /* GB a second; medians over the rounds, the ratio of ratios */
	const char *plain;	    /* what that was, a constant */
};

/* throughput.c: one point. 0, or negative errno after a message. */
int soda_bench_move_throughput(struct soda_bench_move_stage *stage, uint64_t bytes, uint32_t depth,
			       struct soda_bench_move_rate *rate_p);

struct soda_bench_move_arrow {
	uint32_t columns;
	uint64_t bytes; /* of all columns */
	unsigned strategy;
	double host_us;		    /* CPU time of the process, a table */
	double gb, plain_gb, ratio; /* as above; plain: the same bytes, handed over as one piece */
	double agent_cpu_s;	    /* of the agent, a GB */
};

/* arrow.c: a row for each of SODA_BENCH_MOVE_STRATEGIES. 0, or negative errno after a message. */
int soda_bench_move_arrow(struct soda_bench_move_stage *stage, uint32_t columns, uint64_t bytes,
			  struct soda_bench_move_arrow *rows);
const char *soda_bench_move_strategy(unsigned i);

/* report.c: into `out`, or as tables where that is NULL. */
void soda_bench_move_report_host(const struct soda_bench_move_stage *stage,
				 const struct soda_bench_move_host *rows,
				 const struct soda_bench_move_correlation *correlation,
				 json_t *out);
void soda_bench_move_report_rate(const struct soda_bench_move_stage *stage,
				 const struct soda_bench_move_rate *rate, bool first, json_t *out);
void soda_bench_move_report_arrow(const struct soda_bench_move_stage *stage,
				  const struct soda_bench_move_arrow *rows, bool first,
				  json_t *out);
/* The object that all are added to. */
json_t *soda_bench_move_report_new(const struct soda_bench_move_plan *plan);

#endif
