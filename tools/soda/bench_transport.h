/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of `soda bench transport` share. */
#ifndef SODA_BENCH_TRANSPORT_H
#define SODA_BENCH_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/transport/transport.h"

/* A server's connections, and the region that requests go to. */
struct soda_transport_link {
	struct soda_conn *control, *data;
	struct soda_mr mr;
	uint8_t *buffers; /* depth of them, of the largest size */
	uint32_t max_bytes;
	bool in_place;
};

struct soda_transport_point {
	bool write;
	uint32_t bytes, depth;
};

struct soda_transport_result {
	uint64_t requests;
	double seconds, cpu_seconds; /* cpu: of this process */
	double median_us, p99_us;    /* depth 1; else 0 */
};

/* Reach the server with room for what is measured. 0; negative errno, why says more. */
int soda_transport_link_open(struct soda_transport_link *l, const char *address, uint32_t max_bytes,
			     uint32_t max_depth, struct soda_why *why);
void soda_transport_link_close(struct soda_transport_link *l);

/* Keep `depth` requests under way for that long. 0 or the connection's error. */
int soda_transport_measure(struct soda_transport_link *l, const struct soda_transport_point *p,
			   double seconds, struct soda_transport_result *result_p);

/*
 * The same by ib_read_bw or ib_write_bw of the package perftest, to an address of an RDMA
 * device: GB/s at depth > 1 or latency in microseconds at 1; < 0: it is not there or failed.
 */
double soda_perftest(const char *host, const struct soda_transport_point *p, uint32_t requests);

#endif
