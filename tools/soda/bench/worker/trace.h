/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A page trace as accesses: one object, in which the objects of the trace lie one behind the other.
 * A record that says that a chunk came is a load, one of a store a store.
 */
#ifndef SODA_BENCH_TRACE_H
#define SODA_BENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct soda_bench_trace {
	uint32_t chunk_bytes;
	uint32_t chunks; /* of all objects, as far as the trace touches them */
	uint32_t n;	 /* accesses */
	uint32_t stores; /* of these */
	uint32_t *access;
	uint16_t *thread; /* of each */
};

/* In an access: it is a store. */
#define SODA_BENCH_STORE 0x80000000u

/*
 * 0; -ENOMEM, an error of reading, -EPROTO (not a trace, or an empty one): why
 * says which.  To be freed with soda_bench_trace_free.
 */
int soda_bench_trace_load(const char *path, struct soda_bench_trace *trace, char *why,
			  size_t why_bytes);
/* Its stores become loads: for memory that is only read. */
void soda_bench_trace_read_only(struct soda_bench_trace *trace);
void soda_bench_trace_free(struct soda_bench_trace *trace);

#endif
