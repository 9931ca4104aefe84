/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/stats.h"

#include <stdio.h>
#include <string.h>

#include "host_agent/core/agent.h"
#include "host_agent/core/thread.h"
#include "host_agent/fault/fault.h"
#include "host_agent/move/kept.h"
#include "host_agent/move/sender.h"
#include "host_agent/object/guess.h"
#include "host_agent/object/region.h"
#include "host_agent/object/sealing.h"
#include "host_agent/object/unacked.h"
#include "host_agent/pool/member.h"
#include "host_agent/pool/rebuild.h"

/* Add an object's share of metadata_bytes(): its entries of the chunk table, in whole pages. */
static int add(struct soda_region *r, void *arg)
{
	uint64_t page = SODA_WIRE_PAGE, *sum = arg;
	uint64_t entries = (uint64_t)r->chunks * sizeof(struct soda_chunk);

	*sum += ((entries + page - 1) & ~(page - 1)) + sizeof(*r) + soda_guess_bytes(r) +
		soda_sealing_bytes(r);
	return 0;
}

/*
 * What the runtime's own tables take, the kernel's page tables apart.  Counted: touched pages of
 * the chunk table, of the fingerprints and of the unacknowledged chunks; thread contexts; object
 * records; the write-back queue; the runtime's own record.  Not counted: staging slots, which are
 * the page buffer's (buffer.h); sockets' and transports' buffers; jemalloc's own data.
 */
static uint64_t metadata_bytes(void)
{
	uint64_t sum = soda_threads_bytes() + soda_unacked_bytes() + soda_kept_bytes() +
		       soda_sender_queue_bytes() + sizeof(soda_agent) -
		       (SODA_MEMBERS_MAX - soda_members()) * sizeof(soda_agent.links[0]);

	soda_regions_lock();
	soda_regions_each(add, &sum);
	soda_regions_unlock();
	return sum;
}

static int add_seals(struct soda_region *r, void *arg)
{
	*(uint64_t *)arg += soda_sealing_bytes(r);
	return 0;
}

static uint64_t seal_metadata_bytes(void)
{
	uint64_t sum = 0;

	soda_regions_lock();
	soda_regions_each(add_seals, &sum);
	soda_regions_unlock();
	return sum;
}

#define FIELD(f, c)                                                                                \
	{                                                                                          \
		.name = #f, .offset = offsetof(struct soda_stats, f),                              \
		.bytes = sizeof(((struct soda_stats *)0)->f), .counter = c                         \
	}
#define COUNTER(f, c) FIELD(f, SODA_CNT_##c)
#define OTHER(f) FIELD(f, -1)

/*
 * The fields of soda_stats: counters are summed by this table, soda_stats_gather
 * fills the others.
 */
static const struct {
	const char *name;
	size_t offset, bytes;
	int counter; /* enum soda_thread_counter, of a field of 64 bits; -1: none */
} rows[] = {
	COUNTER(faults, FAULTS),
	COUNTER(faults_joined, JOINED),
	COUNTER(zero_fills, ZERO_FILLS),
	COUNTER(local_refaults, LOCAL_REFAULTS),
	COUNTER(wp_faults, WP_FAULTS),
	COUNTER(fetches, FETCHES),
	COUNTER(prefetched, PREFETCHED),
	COUNTER(prefetch_useless, PREFETCH_USELESS),
	COUNTER(bytes_fetched, BYTES_FETCHED),
	COUNTER(bytes_written_back, BYTES_WRITTEN),
	COUNTER(bytes_cleaned, BYTES_CLEANED),
	COUNTER(evicted_clean, EVICTED_CLEAN),
	COUNTER(evicted_dirty, EVICTED_DIRTY),
	COUNTER(evict_waits, EVICT_WAITS),
	OTHER(reconnects),
	COUNTER(errors, ERRORS),
	OTHER(fam_bytes),
	OTHER(buffer_bytes),
	OTHER(resident_bytes),
	OTHER(resident_peak_bytes),
	OTHER(pinned_bytes),
	OTHER(metadata_bytes),
	OTHER(fault_p50_ns),
	OTHER(fault_p99_ns),
	COUNTER(polled, POLLED),
	COUNTER(slept, SLEPT),
	OTHER(mode),
	OTHER(chunk_bytes),
	COUNTER(installed, INSTALLED),
	COUNTER(stalled_ns, STALLED_NS),
	COUNTER(store_maps, STORE_MAPS),
	COUNTER(store_asks, STORE_ASKS),
	COUNTER(store_bytes_mapped, STORE_BYTES_MAPPED),
	COUNTER(store_bytes_asked, STORE_BYTES_ASKED),
	OTHER(store_object_bytes),
	OTHER(copies_missing),
	OTHER(copies_expelled),
	OTHER(copies_rebuilt),
	OTHER(rebuilt_bytes),
	COUNTER(bytes_sealed, BYTES_SEALED),
	COUNTER(bytes_opened, BYTES_OPENED),
	OTHER(seal_metadata_bytes),
	OTHER(fault_max_ns),
	OTHER(copies_moved),
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void gather(struct soda_stats *out)
{
	struct soda_buffer *b = &soda_agent.buffer;
	uint64_t chunk = soda_agent.chunk_shift ? soda_chunk_bytes() : 0;
	struct soda_rebuild_counts copies;

	soda_rebuild_count(&copies);
	*out = (struct soda_stats){
		.copies_missing = soda_rebuild_missing(),
		.copies_expelled = copies.expelled,
		.copies_rebuilt = copies.completed,
		.rebuilt_bytes = copies.bytes,
		.copies_moved = copies.moved,
		.reconnects = soda_agent.reconnects,
		.fam_bytes = soda_agent.fam_bytes,
		.buffer_bytes = (uint64_t)b->limit * chunk,
		.resident_bytes = (uint64_t)soda_buffer_used(b) * chunk,
		.resident_peak_bytes = (uint64_t)b->peak * chunk,
		.pinned_bytes = (uint64_t)b->pinned * chunk,
		.metadata_bytes = metadata_bytes(),
		.fault_p50_ns = soda_threads_percentile_ns(50),
		.fault_p99_ns = soda_threads_percentile_ns(99),
		.fault_max_ns = soda_threads_percentile_ns(100),
		.mode = soda_agent.settings.mode,
		.chunk_bytes = (uint32_t)chunk,
		.store_object_bytes = soda_agent.store_object_bytes,
		.seal_metadata_bytes = seal_metadata_bytes(),
	};
	for (int i = 0; i < ROWS; i++)
		if (rows[i].counter >= 0)
			*(uint64_t *)((char *)out + rows[i].offset) =
				soda_threads_sum((enum soda_thread_counter)rows[i].counter);
}

void soda_stats_gather(struct soda_stats *out)
{
	soda_handler_await();
	gather(out);
}

size_t soda_stats_json(char *out, size_t bytes)
{
	struct soda_stats s;
	size_t at;

	gather(&s);
	at = (size_t)snprintf(out, bytes, "{\"soda_stats\": {");
	for (size_t i = 0; i < ROWS && at < bytes; i++) {
		const char *field = (const char *)&s + rows[i].offset;
		uint64_t v = 0;

		/* little-endian: a narrow field fills the low bytes */
		memcpy(&v, field, rows[i].bytes);
		if (rows[i].bytes == sizeof(uint32_t))
			v = *(const uint32_t *)field;
		at += (size_t)snprintf(out + at, bytes - at, "%s\"%s\": %llu", i ? ", " : "",
				       rows[i].name, (unsigned long long)v);
	}
	if (at + sizeof("}}\n") < bytes)
		at += soda_member_list(out + at, bytes - at - sizeof("}}\n"));
	if (at < bytes)
		at += (size_t)snprintf(out + at, bytes - at, "}}\n");
	return at < bytes ? at : bytes - 1;
}
