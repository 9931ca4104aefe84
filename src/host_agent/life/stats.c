/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/stats.h"

#include <stdio.h>
#include <string.h>

#include "host_agent/core/agent.h"
#include "host_agent/core/thread.h"
#include "host_agent/move/sender.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/owed.h"
#include "host_agent/object/region.h"

/* The chunk table is touched in whole pages, an object's entries at a time. */
static int add(struct soda_region *r, void *arg)
{
	uint64_t page = SODA_WIRE_PAGE, *sum = arg;
	uint64_t entries = (uint64_t)r->chunks * sizeof(struct soda_chunk);

	*sum += ((entries + page - 1) & ~(page - 1)) + sizeof(*r) + soda_guess_bytes(r);
	return 0;
}

/*
 * What the runtime's own tables take, the kernel's page tables apart.  Counted: touched pages of
 * the chunk table, of the fingerprints and of what is owed; thread contexts; object records; the
 * write-back queue; the runtime's own record.  Not counted: staging slots, which are the page
 * buffer's (buffer.h); sockets' and transports' buffers; jemalloc's own data.
 */
static uint64_t metadata_bytes(void)
{
	uint64_t sum = soda_threads_bytes() + soda_owed_bytes() + soda_sender_queue_bytes() +
		       sizeof(soda_agent);

	soda_regions_lock();
	soda_regions_each(add, &sum);
	soda_regions_unlock();
	return sum;
}

#define SUM(c) soda_threads_sum(SODA_CNT_##c)

void soda_stats_gather(struct soda_stats *out)
{
	struct soda_buffer *b = &soda_agent.buffer;
	uint64_t chunk = soda_agent.chunk_shift ? soda_chunk_bytes() : 0;

	*out = (struct soda_stats){
		.faults = SUM(FAULTS),
		.faults_joined = SUM(JOINED),
		.zero_fills = SUM(ZERO_FILLS),
		.local_refaults = SUM(LOCAL_REFAULTS),
		.wp_faults = SUM(WP_FAULTS),
		.fetches = SUM(FETCHES),
		.prefetched = SUM(PREFETCHED),
		.prefetch_useless = SUM(PREFETCH_USELESS),
		.bytes_fetched = SUM(BYTES_FETCHED),
		.bytes_written_back = SUM(BYTES_WRITTEN),
		.evicted_clean = SUM(EVICTED_CLEAN),
		.evicted_dirty = SUM(EVICTED_DIRTY),
		.evict_waits = SUM(EVICT_WAITS),
		.reconnects = soda_agent.reconnects,
		.errors = SUM(ERRORS),
		.fam_bytes = soda_agent.fam_bytes,
		.buffer_bytes = (uint64_t)b->limit * chunk,
		.resident_bytes = (uint64_t)soda_buffer_used(b) * chunk,
		.resident_peak_bytes = (uint64_t)b->peak * chunk,
		.pinned_bytes = (uint64_t)b->pinned * chunk,
		.metadata_bytes = metadata_bytes(),
		.fault_p50_ns = soda_threads_percentile_ns(50),
		.fault_p99_ns = soda_threads_percentile_ns(99),
		.polled = SUM(POLLED),
		.slept = SUM(SLEPT),
		.mode = soda_agent.settings.mode,
		.chunk_bytes = (uint32_t)chunk,
		.installed = SUM(INSTALLED),
		.stalled_ns = SUM(STALLED_NS),
	};
}

#define ROW(f)                                                                                     \
	{                                                                                          \
#f, offsetof(struct soda_stats, f), sizeof(((struct soda_stats *)0)->f)            \
	}

static const struct {
	const char *name;
	size_t offset, bytes;
} rows[] = {
	ROW(faults),
	ROW(faults_joined),
	ROW(zero_fills),
	ROW(local_refaults),
	ROW(wp_faults),
	ROW(fetches),
	ROW(prefetched),
	ROW(prefetch_useless),
	ROW(bytes_fetched),
	ROW(bytes_written_back),
	ROW(evicted_clean),
	ROW(evicted_dirty),
	ROW(evict_waits),
	ROW(reconnects),
	ROW(errors),
	ROW(fam_bytes),
	ROW(buffer_bytes),
	ROW(resident_bytes),
	ROW(resident_peak_bytes),
	ROW(pinned_bytes),
	ROW(metadata_bytes),
	ROW(fault_p50_ns),
	ROW(fault_p99_ns),
	ROW(polled),
	ROW(slept),
	ROW(mode),
	ROW(chunk_bytes),
	ROW(installed),
	ROW(stalled_ns),
};

size_t soda_stats_json(char *out, size_t bytes)
{
	struct soda_stats s;
	size_t at;

	soda_stats_gather(&s);
	at = (size_t)snprintf(out, bytes, "{\"soda_stats\": {");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && at < bytes; i++) {
		const char *field = (const char *)&s + rows[i].offset;
		uint64_t v = 0;

		memcpy(&v, field,
		       rows[i].bytes); /* little-endian: a narrow field fills the low bytes */
		if (rows[i].bytes == sizeof(uint32_t))
			v = *(const uint32_t *)field;
		at += (size_t)snprintf(out + at, bytes - at, "%s\"%s\": %llu", i ? ", " : "",
				       rows[i].name, (unsigned long long)v);
	}
	if (at < bytes)
		at += (size_t)snprintf(out + at, bytes - at, "}}\n");
	return at < bytes ? at : bytes - 1;
}
