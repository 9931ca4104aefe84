/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a page trace. */
#include "soda/bench/worker/trace.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/page_trace.h"

enum { OBJECTS = 65536, RECORDS_MAX = 1u << 30 };

static bool head_fits(const struct soda_page_trace_head *head)
{
	uint32_t chunk = head->chunk_bytes;

	return memcmp(head->magic, SODA_PAGE_TRACE_MAGIC, sizeof(head->magic)) == 0 &&
	       head->version == SODA_PAGE_TRACE_VERSION && head->head_bytes == sizeof(*head) &&
	       chunk >= 4096 && chunk <= 2u << 20 && (chunk & (chunk - 1)) == 0;
}

/* The records, those of a killed program's last moment (zero) included. */
static int read_records(FILE *in, struct soda_page_trace_head *head, uint64_t **records_p,
			uint32_t *n_p)
{
	struct stat st;
	uint64_t n, *records;

	if (fread(head, sizeof(*head), 1, in) != 1 || !head_fits(head))
		return -EPROTO;
	if (fstat(fileno(in), &st))
		return -errno;
	n = ((uint64_t)st.st_size - sizeof(*head)) / sizeof(*records);
	if (n > head->asked)
		n = head->asked;
	if (n == 0 || n > RECORDS_MAX)
		return -EPROTO;
	records = malloc(n * sizeof(*records));
	if (!records)
		return -ENOMEM;
	if (fread(records, sizeof(*records), n, in) != n) {
		free(records);
		return -EIO;
	}
	*records_p = records;
	*n_p = (uint32_t)n;
	return 0;
}

static bool record_valid(uint64_t record)
{
	return soda_page_trace_kind(record) >= SODA_PAGE_TRACE_FETCH &&
	       soda_page_trace_kind(record) <= SODA_PAGE_TRACE_STORE;
}

/* first[o]: where object o begins.  The chunks of all, or 0: too many. */
static uint32_t place_objects(const uint64_t *records, uint32_t n, uint64_t *first)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t end = (uint64_t)soda_page_trace_chunk(records[i]) + 1;
		uint64_t *most = &first[soda_page_trace_object(records[i])];

		if (record_valid(records[i]) && end > *most)
			*most = end;
	}
	for (uint32_t o = 0; o < OBJECTS; o++) {
		uint64_t chunks = first[o];

		first[o] = sum;
		sum += chunks;
	}
	return sum < SODA_BENCH_STORE ? (uint32_t)sum : 0;
}

static int fill(struct soda_bench_trace *trace, const uint64_t *records, uint32_t n)
{
	uint64_t *first = calloc(OBJECTS, sizeof(*first));

	trace->access = malloc(n * sizeof(*trace->access));
	trace->thread = malloc(n * sizeof(*trace->thread));
	if (!first || !trace->access || !trace->thread) {
		free(first);
		return -ENOMEM;
	}
	trace->chunks = place_objects(records, n, first);
	for (uint32_t i = 0; i < n && trace->chunks; i++) {
		bool store = soda_page_trace_kind(records[i]) == SODA_PAGE_TRACE_STORE;

		if (!record_valid(records[i]))
			continue;
		trace->access[trace->n] = (uint32_t)(first[soda_page_trace_object(records[i])] +
						     soda_page_trace_chunk(records[i])) |
					  (store ? SODA_BENCH_STORE : 0);
		trace->thread[trace->n++] = (uint16_t)soda_page_trace_thread(records[i]);
		trace->stores += store;
	}
	free(first);
	return trace->n ? 0 : -EPROTO;
}

int soda_bench_trace_load(const char *path, struct soda_bench_trace *trace, char *why,
			  size_t why_bytes)
{
	struct soda_page_trace_head head;
	uint64_t *records = NULL;
	FILE *in = fopen(path, "rb");
	uint32_t n = 0;
	int err;

	memset(trace, 0, sizeof(*trace));
	if (!in) {
		err = -errno;
		snprintf(why, why_bytes, "%s: %s", path, strerror(-err));
		return err;
	}
	err = read_records(in, &head, &records, &n);
	if (!err) {
		trace->chunk_bytes = head.chunk_bytes;
		err = fill(trace, records, n);
	}
	free(records);
	fclose(in);
	if (err) {
		soda_bench_trace_free(trace);
		snprintf(why, why_bytes, "%s: %s", path,
			 err == -EPROTO ? "not a page trace of this version, or an empty one"
					: strerror(-err));
	}
	return err;
}

void soda_bench_trace_read_only(struct soda_bench_trace *trace)
{
	for (uint32_t i = 0; i < trace->n; i++)
		trace->access[i] &= ~SODA_BENCH_STORE;
	trace->stores = 0;
}

void soda_bench_trace_free(struct soda_bench_trace *trace)
{
	free(trace->access);
	free(trace->thread);
	memset(trace, 0, sizeof(*trace));
}
