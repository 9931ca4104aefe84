/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A whole host agent on the fake page operations and the fake server: chunk table, buffer,
 * replacer, session, write-back thread.  Only faults are simulated (fake_store, fake_load),
 * and no signal is taken.
 */
#ifndef SODA_TESTS_HOST_FIXTURE_H
#define SODA_TESTS_HOST_FIXTURE_H

#include "host_agent/core/thread.h"
#include "host_agent/core/agent.h"
#include "host_agent/object/region.h"
#include "unit/fakes/fake_conn.h"
#include "unit/fakes/fake_page_ops.h"

struct host_options {
	uint32_t chunk_bytes;	/* 0: 64 KiB */
	uint32_t buffer_chunks; /* 0: 32 */
	uint32_t threads;	/* 0: 1 */
	uint32_t prefetch;	/* 0: off */
	uint32_t high_pct, low_pct;
	uint32_t fault_timeout_ms; /* 0: 20 s */
	const char *evict;
	bool direct;   /* the server's memory is mapped */
	bool installs; /* the server installs pages */
	bool help;     /* threads that fault write back themselves, as on a busy machine */
	uint64_t seed;
};

void host_start(const struct host_options *o);
void host_stop(void);
/* An anonymous object. */
struct soda_region *host_alloc(uint64_t bytes);
void host_free(struct soda_region *r);

/* The word at the start of page `page` of chunk `chunk` of the object. */
void *host_at(const struct soda_region *r, uint32_t chunk, uint32_t page);
uint32_t host_word(const struct soda_region *r, uint32_t chunk);
enum soda_chunk_state host_state(const struct soda_region *r, uint32_t chunk);
/* Store and load there; a fault that fails is a failure of the test. */
void host_store(const struct soda_region *r, uint32_t chunk, uint32_t page, uint64_t v);
uint64_t host_load(const struct soda_region *r, uint32_t chunk, uint32_t page);

/*
 * Wait until nothing is FETCHING or BUSY, nothing waits in the write-back queue, and, with
 * `answered`, nothing is on its way either.
 */
void host_settle(const struct soda_region *r, bool answered);
/* Wait until the chunk is in this state: what the write-back thread does comes in steps. */
void host_expect(const struct soda_region *r, uint32_t chunk, enum soda_chunk_state state);
/* As `soda_sync` of all of it. */
int host_sync(const struct soda_region *r);
/* SODA_COLD: written back and dropped. */
int host_cold(struct soda_region *r, uint32_t first, uint32_t n);
/* Nothing in the buffer's accounts that is not in the chunk table; everything quiet. */
void host_check(const struct soda_region *r);
/* Error lines logged since host_start; the last of them. */
uint32_t host_errors(void);
const char *host_last_error(void);
uint64_t host_count(enum soda_thread_counter c);

#endif
