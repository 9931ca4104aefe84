/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of `soda bench transport` share.
 *
 *   transport.c  options, which points are measured on which server
 *   run.c        one point: READ and WRITE on a data connection; how a point is printed
 *   send.c       SEND: calls that are echoed
 *   perftest.c   perftest's programs
 */
#ifndef SODA_BENCH_TRANSPORT_H
#define SODA_BENCH_TRANSPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "transport/api/transport.h"

enum soda_transport_request {
	SODA_TRANSPORT_READ,
	SODA_TRANSPORT_WRITE,
	SODA_TRANSPORT_SEND,
	SODA_TRANSPORT_REQUESTS,
};

enum { SODA_TRANSPORT_SENDERS_MAX = 64 };

/* A server's connections, and the region that requests go to. */
struct soda_transport_link {
	struct soda_conn *control, *data;
	struct soda_mr mr;
	uint8_t *buffers; /* depth of them, of the largest size */
	uint32_t max_bytes;
	bool in_place;
};

struct soda_transport_point {
	enum soda_transport_request request;
	uint32_t bytes, depth;
};

struct soda_transport_result {
	uint64_t requests;
	double seconds, cpu_seconds; /* cpu: of this process */
	double median_us, p99_us;    /* depth 1; else 0; SEND: half of there and back */
};

/* Reach the server with room for what is measured. 0; negative errno, why says more. */
int soda_transport_link_open(struct soda_transport_link *l, const char *address, uint32_t max_bytes,
			     uint32_t max_depth, struct soda_why *why);
void soda_transport_link_close(struct soda_transport_link *l);

/* Keep `depth` requests under way for that long. 0 or the connection's error. */
int soda_transport_measure(struct soda_transport_link *l, const struct soda_transport_point *p,
			   double seconds, struct soda_transport_result *result_p);

/*
 * Messages of that size, each echoed by the server, over as many control connections (clients) as
 * are to be under way.  At most SODA_WIRE_MAX_CONTROL bytes, SODA_TRANSPORT_SENDERS_MAX deep.
 */
int soda_transport_send(const char *address, const struct soda_transport_point *p, double seconds,
			struct soda_transport_result *result_p, struct soda_why *why);

/* A control connection of a new client. 0; negative errno, why says more. */
int soda_transport_control(const char *address, struct soda_wire_welcome *w,
			   struct soda_conn **conn_p, struct soda_why *why);

/* Samples in microseconds, which are sorted, into the result. */
void soda_transport_percentiles(float *us, uint32_t n, struct soda_transport_result *r);

/* Where a row belongs; nodes < 0: nothing was bound. */
struct soda_transport_place {
	char transport[16];
	int client_node, server_node;
};

/* rows NULL: print. theirs: perftest's number, < 0: none. */
void soda_transport_head(void);
void soda_transport_row(const struct soda_transport_place *place,
			const struct soda_transport_point *p, const struct soda_transport_result *r,
			double theirs, json_t *rows);

/*
 * The same by ib_read_bw and its like of the package perftest, to an address of an RDMA
 * device: GB/s at depth > 1 or latency in microseconds at 1; < 0: it is not there or failed.
 */
double soda_perftest(const char *host, const struct soda_transport_point *p, uint32_t requests);

/* run.c.  Of this clock. */
double soda_transport_seconds(clockid_t clock);

#endif
