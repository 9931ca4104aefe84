/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A page trace: which chunks of which objects a program touched first, in which
 * order.  libsoda writes one (SODA_TRACE), `soda bench` replays it.  In the byte order
 * of the machine that wrote it:
 *
 *   head   64 bytes, struct soda_page_trace_head
 *   records of 8 bytes:  chunk within its object 32 | object 16 | thread 12 | kind 4
 *
 * The highest four bits are the kind; 0 is no record.  A file whose program was
 * killed has zeros behind its last record.
 */
#ifndef SODA_BASE_PAGE_TRACE_H
#define SODA_BASE_PAGE_TRACE_H

#include <stdint.h>

#define SODA_PAGE_TRACE_MAGIC "SODATRC" /* and its zero byte */
#define SODA_PAGE_TRACE_VERSION 1u

struct soda_page_trace_head {
	char magic[8];
	uint32_t version;
	uint32_t head_bytes; /* 64 */
	uint32_t chunk_bytes;
	uint32_t pid;
	uint64_t limit; /* records that the file has room for */
	uint64_t asked; /* records that were to be written; those beyond the limit were not */
	uint64_t zero[3];
};

enum soda_page_trace_kind {
	SODA_PAGE_TRACE_FETCH = 1, /* a chunk was fetched, on demand or ahead */
	SODA_PAGE_TRACE_ZERO = 2,  /* the first touch of a chunk that was never written */
	SODA_PAGE_TRACE_STORE =
		3, /* the first store since a fetch, a first touch, or a write-back */
};

static inline uint64_t soda_page_trace_record(enum soda_page_trace_kind kind, uint32_t thread,
					      uint16_t object, uint32_t chunk)
{
	return (uint64_t)kind << 60 | (uint64_t)(thread & 0xfff) << 48 | (uint64_t)object << 32 |
	       chunk;
}

static inline enum soda_page_trace_kind soda_page_trace_kind(uint64_t record)
{
	return (enum soda_page_trace_kind)(record >> 60);
}

static inline uint32_t soda_page_trace_thread(uint64_t record)
{
	return record >> 48 & 0xfff;
}

static inline uint16_t soda_page_trace_object(uint64_t record)
{
	return (uint16_t)(record >> 32);
}

static inline uint32_t soda_page_trace_chunk(uint64_t record)
{
	return (uint32_t)record;
}

#endif
