/* SPDX-License-Identifier: BSD-3-Clause */
/* --stats: what the program did with fabric memory, on standard error at its end. */
#include "run/core/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/tree/tree.h"
#include "host_agent/fault/fault.h"
#include "soda.h"

enum { SITES = 512, SHOWN = 8 };

/*
 * Calls that allocate: a hash table with open addressing; when it is full, others are not counted.
 */
static struct site {
	_Atomic(const void *) caller;
	_Atomic uint64_t bytes, calls, faults;
} sites[SITES];

/* For each chunk: 1 + the index in `sites` of the call that has allocated it last; 0: none. */
static _Atomic uint16_t *owners;

static _Atomic uint64_t fam_peak;
static uint64_t began_ns; /* when the library was loaded */

/* Called on the path of a fault. AS. */
static void on_fault(uint32_t id)
{
	uint32_t n = owners ? atomic_load_explicit(&owners[id], memory_order_relaxed) : 0;

	if (n)
		atomic_fetch_add_explicit(&sites[n - 1].faults, 1, memory_order_relaxed);
}

void run_report_start(void)
{
	began_ns = soda_now_ns();
	if (run_settings.stats)
		soda_fault_seen = on_fault;
}

uint64_t run_report_lived_ns(uint64_t *cpu_ns_p)
{
	struct timespec cpu = { 0, 0 };

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	*cpu_ns_p = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
	return soda_now_ns() - began_ns;
}

void run_report_begin(void)
{
	size_t n = soda_agent.bytes >> soda_agent.chunk_shift;
	void *p;

	if (!run_settings.stats)
		return;
	p = (void *)syscall(SYS_mmap, NULL, n * sizeof(*owners), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p != MAP_FAILED)
		owners = p;
}

static struct site *find(const void *caller)
{
	size_t at = ((uintptr_t)caller >> 2) % SITES;

	for (size_t i = 0; i < SITES; i++, at = (at + 1) % SITES) {
		const void *found = NULL;

		if (atomic_compare_exchange_strong(&sites[at].caller, &found, caller) ||
		    found == caller)
			return &sites[at];
	}
	return NULL;
}

uint64_t run_report_peak(void)
{
	uint64_t now = atomic_load(&soda_agent.fam_bytes), peak = atomic_load(&fam_peak);

	while (now > peak && !atomic_compare_exchange_weak(&fam_peak, &peak, now))
		;
	return now > peak ? now : peak;
}

void run_report_site(const void *caller, const void *p, size_t bytes)
{
	struct site *site;

	if (!run_settings.stats)
		return;
	run_report_peak();
	run_inside++;
	caller = run_beyond_runtime(caller);
	run_inside--;
	site = find(caller);
	if (!site)
		return;
	atomic_fetch_add(&site->bytes, bytes);
	atomic_fetch_add(&site->calls, 1);
	if (!owners || !run_fam(p))
		return;
	for (uint32_t c = soda_chunk_of(p); c <= soda_chunk_of((const char *)p + bytes - 1); c++)
		atomic_store_explicit(&owners[c], (uint16_t)(site - sites + 1),
				      memory_order_relaxed);
}

static int by_bytes(const void *a, const void *b)
{
	const struct site *x = a, *y = b;

	return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

/* What is told, until it is printed. Written by the thread that ends the process. */
static char told[SODA_TREE_TOLD];

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...)
{
	size_t n = strlen(told);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(told + n, sizeof(told) - n, fmt, ap);
	va_end(ap);
}

static void show_sites(void)
{
	static struct site sorted[SITES]; /* a copy, because other threads still change sites */
	char size[16], where[256];

	memcpy(sorted, sites, sizeof(sorted));
	qsort(sorted, SITES, sizeof(sorted[0]), by_bytes);
	say("   allocated    calls     faults  by\n");
	for (int i = 0; i < SHOWN && sorted[i].bytes; i++) {
		run_symbol(sorted[i].caller, where, sizeof(where));
		say("  %10s %8llu %10llu  %s\n", soda_format_size(sorted[i].bytes, size),
		    (unsigned long long)sorted[i].calls, (unsigned long long)sorted[i].faults,
		    where);
	}
}

static void show_counters(const struct soda_stats *st)
{
	char a[16], b[16], c[16], d[16], e[16];

	say("soda run: fabric memory reserved, at most %s, resident at most %s of %s\n"
	    "  faults     %10llu  joined %llu; first touches: zeros for %llu chunks\n"
	    "  fetched    %10s  prefetched %llu chunks\n"
	    "  written    %10s\n"
	    "  stalled    %8.3f s  of all threads; a fetching fault: median %llu us, 99 %% in "
	    "%llu us\n",
	    soda_format_size(fam_peak, a), soda_format_size(st->resident_peak_bytes, b),
	    soda_format_size(run_share_budget() ? run_share_budget() : st->buffer_bytes, c),
	    (unsigned long long)st->faults, (unsigned long long)st->faults_joined,
	    (unsigned long long)st->zero_fills, soda_format_size(st->bytes_fetched, d),
	    (unsigned long long)st->prefetched, soda_format_size(st->bytes_written_back, e),
	    (double)st->stalled_ns / 1e9, (unsigned long long)st->fault_p50_ns / 1000,
	    (unsigned long long)st->fault_p99_ns / 1000);
}

/* Where the data are: without a server of its own the machine's memory is used as well. */
static void show_server(void)
{
	const char *server = soda_agent.settings.server;

	if (server && *server)
		say("  %s %.200s\n", soda_agent.settings.dpu ? "agent     " : "server    ", server);
	else
		say("  server     private, on this machine: name another one with --server\n");
}

void run_report(void)
{
	uint32_t life = atomic_load(&soda_agent.life);
	struct soda_stats st;
	char size[16];

	run_inside++;
	if (life == SODA_LIFE_RUNNING) {
		soda_get_stats(&st, sizeof(st));
		run_report_peak();
		show_counters(&st);
		show_server();
		show_sites();
	} else if (life == SODA_LIFE_NEW) {
		say("soda run: no block or mapping of %s or more: no fabric memory was used\n",
		    soda_format_size(run_settings.threshold, size));
	}
	if (told[0] && !run_share_note(told) && (life != SODA_LIFE_NEW || !run_settings.quiet))
		dprintf(run_settings.stats_fd, "%s", told);
	run_inside--;
}
