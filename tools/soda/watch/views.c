/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/watch/views.h"

#include <math.h>
#include <string.h>

#define N(rows) (sizeof(rows) / sizeof((rows)[0]))

static const struct soda_top_row program_rows[] = {
	{ SODA_TOP_HEADING, "Page faults", NULL, NULL, NULL },
	{ SODA_TOP_COUNT, "faults", "faults", NULL,
	  "Touches of pages that were not mapped, all threads." },
	{ SODA_TOP_SHARE, "without network", "faults-fetches", "faults",
	  "Faults that fetched nothing: first touches, or a chunk that another thread was "
	  "fetching." },
	{ SODA_TOP_COUNT, "first stores", "wp_faults", NULL,
	  "First stores to a clean chunk or page: they make it dirty." },
	{ SODA_TOP_TIME, "median fetch", "fault_p50_ns", NULL,
	  "Half of the fetching faults since the start took no longer." },
	{ SODA_TOP_TIME, "99th percentile", "fault_p99_ns", NULL,
	  "99 of 100 fetching faults since the start took no longer." },
	{ SODA_TOP_SHARE, "polled", "polled", "polled+slept",
	  "Answers that were awaited by polling; the others were awaited asleep." },
	{ SODA_TOP_HEADING, "Traffic", NULL, NULL, NULL },
	{ SODA_TOP_BYTES, "fetched", "bytes_fetched", NULL, "Data that came from the server." },
	{ SODA_TOP_BYTES, "written back", "bytes_written_back", NULL,
	  "Dirty data that went to the server." },
	{ SODA_TOP_COUNT, "chunks on demand", "fetches", NULL,
	  "Chunks fetched because of a fault." },
	{ SODA_TOP_COUNT, "chunks ahead", "prefetched", NULL, "Chunks fetched before a fault." },
	{ SODA_TOP_SHARE, "ahead, useful", "prefetched-prefetch_useless", "prefetched",
	  "Of the chunks fetched ahead, those that were not dropped unused." },
	{ SODA_TOP_HEADING, "Page buffer", NULL, NULL, NULL },
	{ SODA_TOP_FULL, "resident", "resident_bytes", "buffer_bytes",
	  "Memory in the page buffer, of its limit. Full is normal." },
	{ SODA_TOP_SIZE, "pinned", "pinned_bytes", NULL, "Of it, pinned by soda_advise." },
	{ SODA_TOP_SIZE, "allocated", "fam_bytes", NULL, "All objects together." },
	{ SODA_TOP_COUNT, "evicted clean", "evicted_clean", NULL, "Chunks dropped." },
	{ SODA_TOP_COUNT, "evicted dirty", "evicted_dirty", NULL,
	  "Chunks written back, then dropped." },
	{ SODA_TOP_COUNT, "kept by a store", "local_refaults", NULL,
	  "Chunks that were being written back to be dropped when a store to them came." },
	{ SODA_TOP_COUNT, "waits for room", "evict_waits", NULL,
	  "Faults that waited for a write-back: the network or the server is too slow." },
	{ SODA_TOP_HEADING, "Redundancy", NULL, NULL, NULL },
	{ SODA_TOP_LEVEL, "copies missing", "copies_missing", NULL,
	  "Slabs of objects that have one copy instead of two." },
	{ SODA_TOP_BYTES, "rebuilt", "rebuilt_bytes", NULL,
	  "Data copied for copies that are made anew." },
	{ SODA_TOP_HEADING, "Node's store", NULL, NULL, NULL },
	{ SODA_TOP_SIZE, "objects there", "store_object_bytes", NULL,
	  "Of what is allocated, objects in the agent's store, which programs have in common; they "
	  "are not in the page buffer, nor in the traffic." },
	{ SODA_TOP_BYTES, "mapped", "store_bytes_mapped", NULL,
	  "Data that faults mapped from there." },
	{ SODA_TOP_BYTES, "asked for", "store_bytes_asked", NULL,
	  "Data that the agent was asked for; what is mapped beside it others had brought." },
	{ SODA_TOP_HEADING, "Trouble", NULL, NULL, NULL },
	{ SODA_TOP_LEVEL, "reconnections", "reconnects", NULL, "Since the start." },
	{ SODA_TOP_LEVEL, "failed faults", "errors", NULL, "Since the start: should be 0." },
};

static const struct soda_top_row server_rows[] = {
	{ SODA_TOP_HEADING, "Requests", NULL, NULL, NULL },
	{ SODA_TOP_BYTES, "read", "bytes_read", NULL, "Data sent to clients." },
	{ SODA_TOP_COUNT, "READs", "reads", NULL,
	  "READ requests. Clients on shared memory read without asking." },
	{ SODA_TOP_LATENCY, "READ time", "read_time", NULL,
	  "From the request's header to the last byte handed to the network." },
	{ SODA_TOP_BYTES, "written", "bytes_written", NULL, "Data received from clients." },
	{ SODA_TOP_COUNT, "WRITEs", "writes", NULL, "WRITE requests." },
	{ SODA_TOP_LATENCY, "WRITE time", "write_time", NULL,
	  "From the request's header to its last byte in memory." },
	{ SODA_TOP_HEADING, "Memory", NULL, NULL, NULL },
	{ SODA_TOP_FULL, "promised", "used_bytes", "capacity_bytes",
	  "Memory promised to clients, of the capacity." },
	{ SODA_TOP_LEVEL, "regions", "regions", NULL, "Open regions of all clients." },
	{ SODA_TOP_BYTES, "loaded", "bytes_loaded", NULL, "Data read from files." },
	{ SODA_TOP_BYTES, "synchronised", "bytes_synced", NULL, "Data written to files." },
	{ SODA_TOP_HEADING, "Process", NULL, NULL, NULL },
	{ SODA_TOP_CPU, "processor", "cpu_ns", NULL, "Of one processor; all threads." },
	{ SODA_TOP_COUNT, "refused",
	  "requests_bad+peers_rejected+hellos_refused+opens_refused+calls_refused", NULL,
	  "Requests and connections refused: wrong, or over a limit." },
	{ SODA_TOP_LEVEL, "lost clients", "clients_expired", NULL,
	  "Since the start: clients that did not come back within the grace time." },
	{ SODA_TOP_LEVEL, "failed syncs", "syncs_failed", NULL, "Since the start: should be 0." },
};

static const struct soda_top_row agent_rows[] = {
	{ SODA_TOP_HEADING, "Programs", NULL, NULL, NULL },
	{ SODA_TOP_BYTES, "read", "client_read_bytes", NULL, "Data sent to programs." },
	{ SODA_TOP_COUNT, "READs", "client_reads", NULL, "READs answered." },
	{ SODA_TOP_LATENCY, "READ time", "read_time", NULL, "From arrival to answer." },
	{ SODA_TOP_BYTES, "written", "client_write_bytes", NULL, "Data taken from programs." },
	{ SODA_TOP_COUNT, "WRITEs", "client_writes", NULL, "WRITEs taken." },
	{ SODA_TOP_LATENCY, "WRITE time", "write_time", NULL, "From arrival to acknowledgement." },
	{ SODA_TOP_HEADING, "Network", NULL, NULL, NULL },
	{ SODA_TOP_BYTES, "on demand", "net_demand_bytes", NULL,
	  "Read from the server because a program waits for it." },
	{ SODA_TOP_BYTES, "prefetch", "net_prefetch_bytes", NULL,
	  "Read ahead for the dynamic cache." },
	{ SODA_TOP_BYTES, "preload", "net_preload_bytes", NULL, "Read for the static cache." },
	{ SODA_TOP_BYTES, "write-back", "net_writeback_bytes", NULL, "Written to the server." },
	{ SODA_TOP_SIZE, "under way", "server_bytes_under_way", NULL,
	  "Asked of the server and not answered yet." },
	{ SODA_TOP_HEADING, "Dynamic cache", NULL, NULL, NULL },
	{ SODA_TOP_SHARE, "hits", "cache_hits+cache_late_hits",
	  "cache_hits+cache_late_hits+cache_misses",
	  "Requests that it had, late ones included, of those that it was asked for." },
	{ SODA_TOP_SHARE, "late hits", "cache_late_hits", "cache_hits+cache_late_hits+cache_misses",
	  "Of all of them, those that waited for a fetch under way." },
	{ SODA_TOP_SHARE, "useless", "cache_useless_bytes", "cache_filled_bytes",
	  "Data fetched ahead that went without having been asked for." },
	{ SODA_TOP_COUNT, "evictions", "cache_evictions", NULL,
	  "Entries that made room for others." },
	{ SODA_TOP_LEVEL, "cached objects", "cache_owners_on", NULL,
	  "Files and regions for which it fetches ahead." },
	{ SODA_TOP_LEVEL, "ended objects", "cache_owners_ended", NULL,
	  "Files and regions for which the budget has ended that: they wasted what they had." },
	{ SODA_TOP_SHARE, "network", "net_demand_bytes+net_prefetch_bytes+net_preload_bytes",
	  "client_read_bytes",
	  "Data read from the server, of what programs were sent; above 103 % only where they read"
	  " the static cache themselves." },
	{ SODA_TOP_HEADING, "Static cache", NULL, NULL, NULL },
	{ SODA_TOP_FULL, "static in use", "static_used_bytes", "static_capacity_bytes",
	  "Memory of frozen ranges, of what there may be." },
	{ SODA_TOP_COUNT, "static hits", "static_hits", NULL,
	  "Requests answered from it by the agent; most programs read it without asking." },
	{ SODA_TOP_HEADING, "Node's store", NULL, NULL, NULL },
	{ SODA_TOP_FULL, "store in use", "store_used_bytes", "store_capacity_bytes",
	  "Memory of files that programs have in common, of what there may be. Full is normal." },
	{ SODA_TOP_LEVEL, "members", "store_members", NULL,
	  "Times that programs have joined with a file." },
	{ SODA_TOP_BYTES, "brought", "store_filled_bytes", NULL,
	  "Data brought into it; what programs map that was there already causes nothing." },
	{ SODA_TOP_COUNT, "found there", "store_hits", NULL,
	  "READs of programs for chunks that another one had brought meanwhile." },
	{ SODA_TOP_BYTES, "evicted", "store_evicted_bytes", NULL, "Data that made room." },
	{ SODA_TOP_SHARE, "ahead, used", "store_ahead_used_bytes", "store_ahead_bytes",
	  "Of what the agent read ahead into it, what a program has used since." },
	{ SODA_TOP_COUNT, "evicted in use", "store_forced", NULL,
	  "Chunks that threads had just mapped: the store is too small." },
	{ SODA_TOP_HEADING, "Batches", NULL, NULL, NULL },
	{ SODA_TOP_COUNT, "batches", "batches", NULL, "Doorbells rung at the server." },
	{ SODA_TOP_MEAN, "requests each", "batched_requests", "batches",
	  "How many requests travelled together, on average." },
	{ SODA_TOP_COUNT, "merged", "reads_merged+writes_merged", NULL,
	  "Requests that travelled as one with a neighbour." },
	{ SODA_TOP_COUNT, "writes delayed", "writes_delayed", NULL,
	  "WRITEs not acknowledged at once: the agent's memory for them was full." },
	{ SODA_TOP_HEADING, "Process", NULL, NULL, NULL },
	{ SODA_TOP_CPU, "processor", "cpu_ns", NULL, "Of one processor; all threads." },
	{ SODA_TOP_BYTES, "copied", "copied_bytes", NULL,
	  "Data that had to be copied within the agent." },
	{ SODA_TOP_COUNT, "refused", "requests_bad+peers_rejected+hellos_refused+calls_refused",
	  NULL, "Requests and connections refused." },
	{ SODA_TOP_LEVEL, "lost writes", "writes_lost", NULL,
	  "Since the start: acknowledged, and could not be written. Should be 0." },
};

#define COLUMN(k, e, w)                                                                            \
	{                                                                                          \
		.kind = (k), .expr = (e), .whole = (w)                                             \
	}

static const struct soda_top_view views[] = {
	{ "program",
	  "faults",
	  program_rows,
	  N(program_rows),
	  { [SODA_TOP_BY_OPS] = COLUMN(SODA_TOP_COUNT, "faults", NULL),
	    [SODA_TOP_BY_IN] = COLUMN(SODA_TOP_BYTES, "bytes_fetched", NULL),
	    [SODA_TOP_BY_OUT] = COLUMN(SODA_TOP_BYTES, "bytes_written_back", NULL),
	    [SODA_TOP_BY_HITS] = COLUMN(SODA_TOP_SHARE, "faults-fetches", "faults"),
	    [SODA_TOP_BY_TIME] = COLUMN(SODA_TOP_TIME, "fault_p99_ns", NULL) } },
	{ "DPU agent",
	  "net_demand",
	  agent_rows,
	  N(agent_rows),
	  { [SODA_TOP_BY_OPS] = COLUMN(SODA_TOP_COUNT, "client_reads+client_writes", NULL),
	    [SODA_TOP_BY_IN] = COLUMN(SODA_TOP_BYTES, "client_read_bytes", NULL),
	    [SODA_TOP_BY_OUT] = COLUMN(SODA_TOP_BYTES, "client_write_bytes", NULL),
	    [SODA_TOP_BY_HITS] = COLUMN(SODA_TOP_SHARE, "cache_hits+cache_late_hits",
					"cache_hits+cache_late_hits+cache_misses"),
	    [SODA_TOP_BY_TIME] = COLUMN(SODA_TOP_LATENCY, "read_time", NULL),
	    [SODA_TOP_BY_CPU] = COLUMN(SODA_TOP_CPU, "cpu_ns", NULL) } },
	{ "memory server",
	  "capacity_bytes",
	  server_rows,
	  N(server_rows),
	  { [SODA_TOP_BY_OPS] = COLUMN(SODA_TOP_COUNT, "reads+writes", NULL),
	    [SODA_TOP_BY_IN] = COLUMN(SODA_TOP_BYTES, "bytes_read", NULL),
	    [SODA_TOP_BY_OUT] = COLUMN(SODA_TOP_BYTES, "bytes_written", NULL),
	    [SODA_TOP_BY_TIME] = COLUMN(SODA_TOP_LATENCY, "read_time", NULL),
	    [SODA_TOP_BY_CPU] = COLUMN(SODA_TOP_CPU, "cpu_ns", NULL) } },
	{ "?", NULL, NULL, 0, { { .expr = NULL } } },
};

_Static_assert(N(program_rows) <= SODA_TOP_ROWS_MAX, "a history each");
_Static_assert(N(server_rows) <= SODA_TOP_ROWS_MAX, "a history each");
_Static_assert(N(agent_rows) <= SODA_TOP_ROWS_MAX, "a history each");

const struct soda_top_view *soda_top_view_of(const json_t *counters)
{
	const struct soda_top_view *at = views;

	while (at->mark && !json_object_get(counters, at->mark))
		at++;
	return at;
}

/* Whether one of the keys of an expression is that one, or, with n > 0, has its first n letters. */
static bool names(const char *expr, const char *key, size_t n)
{
	for (; expr && *expr; expr += strspn(expr, "+-")) {
		size_t length = strcspn(expr, "+-");

		if (n ? !strncmp(expr, key, n)
		      : strlen(key) == length && !strncmp(expr, key, length))
			return true;
		expr += length;
	}
	return false;
}

/* The heading of the rows that name it; NULL: none does, or rows of two headings. */
static const char *heading_of(const struct soda_top_view *view, const char *key, size_t n)
{
	const char *heading = NULL, *found = NULL;

	for (size_t i = 0; i < view->rows_n; i++) {
		const struct soda_top_row *row = &view->rows[i];

		if (row->kind == SODA_TOP_HEADING)
			heading = row->label;
		else if (!names(row->expr, key, n) && !names(row->whole, key, n))
			continue;
		else if (!n)
			return heading;
		else if (found && found != heading)
			return NULL;
		else
			found = heading;
	}
	return found;
}

const char *soda_top_group_of(const struct soda_top_view *view, const char *key)
{
	const char *heading = heading_of(view, key, 0);
	size_t word = strcspn(key, "_");

	return heading || !key[word] ? heading : heading_of(view, key, word + 1);
}

static double latency(const struct soda_top_row *row, const struct soda_top_pair *pair)
{
	static _Thread_local struct soda_histogram h;

	memset(&h, 0, sizeof(h));
	return soda_top_recorded(pair, row->expr, &h) && soda_histogram_count(&h)
		       ? (double)soda_histogram_percentile(&h, 99)
		       : (double)NAN;
}

double soda_top_row_value(const struct soda_top_row *row, const struct soda_top_pair *pair)
{
	if (!row->expr)
		return (double)NAN;
	switch (row->kind) {
	case SODA_TOP_COUNT:
	case SODA_TOP_BYTES:
		return soda_top_rate(pair, row->expr);
	case SODA_TOP_CPU:
		return soda_top_rate(pair, row->expr) / 1e7;
	case SODA_TOP_SHARE:
		return soda_top_ratio(pair, row->expr, row->whole) * 100;
	case SODA_TOP_MEAN:
		return soda_top_ratio(pair, row->expr, row->whole);
	case SODA_TOP_LATENCY:
		return latency(row, pair);
	default:
		return soda_top_gauge(pair, row->expr);
	}
}
