/* SPDX-License-Identifier: BSD-3-Clause */
/* --stats: what the program did with fabric memory, on standard error at its end. */
#include "run.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/conf.h"
#include "soda.h"

enum { SITES = 512, SHOWN = 5 };

/* Where allocations came from: open addressing, never removed; full: the rest is not told apart. */
static struct site {
	_Atomic(const void *) caller;
	_Atomic uint64_t bytes, calls;
} sites[SITES];

static _Atomic uint64_t fam_peak;

void run_report_site(const void *caller, size_t bytes)
{
	size_t at = ((uintptr_t)caller >> 2) % SITES;
	uint64_t now = atomic_load(&soda_agent.fam_bytes), peak = atomic_load(&fam_peak);

	if (!run_settings.stats)
		return;
	while (now > peak && !atomic_compare_exchange_weak(&fam_peak, &peak, now))
		;
	for (size_t i = 0; i < SITES; i++, at = (at + 1) % SITES) {
		const void *found = NULL;

		if (!atomic_compare_exchange_strong(&sites[at].caller, &found, caller) &&
		    found != caller)
			continue;
		atomic_fetch_add(&sites[at].bytes, bytes);
		atomic_fetch_add(&sites[at].calls, 1);
		return;
	}
}

static int by_bytes(const void *a, const void *b)
{
	const struct site *x = a, *y = b;

	return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static void show_site(const struct site *s)
{
	const char *file = "?", *slash;
	char size[16], where[256];
	Dl_info info;

	if (dladdr(s->caller, &info) && info.dli_fname) {
		slash = strrchr(info.dli_fname, '/');
		file = slash ? slash + 1 : info.dli_fname;
		if (info.dli_sname)
			snprintf(where, sizeof(where), "%s+0x%zx (%s)", info.dli_sname,
				 (size_t)((const char *)s->caller - (char *)info.dli_saddr), file);
		else
			snprintf(where, sizeof(where), "%s+0x%zx", file,
				 (size_t)((const char *)s->caller - (char *)info.dli_fbase));
	} else {
		snprintf(where, sizeof(where), "%p", s->caller);
	}
	dprintf(run_settings.stats_fd, "  %10s in %6llu  %s\n", soda_format_size(s->bytes, size),
		(unsigned long long)s->calls, where);
}

void run_report(void)
{
	struct soda_stats st;
	char a[16], b[16], c[16], d[16];

	run_inside++;
	if (atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING) {
		if (atomic_load(&soda_agent.life) == SODA_LIFE_NEW)
			dprintf(run_settings.stats_fd,
				"soda run: no block or mapping of %s or more: no fabric "
				"memory was used\n",
				soda_format_size(run_settings.threshold, a));
		run_inside--;
		return;
	}
	soda_get_stats(&st, sizeof(st));
	if (st.fam_bytes > fam_peak)
		fam_peak = st.fam_bytes;
	dprintf(run_settings.stats_fd,
		"soda run: fabric memory reserved, at most %s, resident at most %s of %s\n"
		"  faults     %10llu  of these first touches %llu, joined %llu\n"
		"  fetched    %10s  prefetched %llu chunks; a fetching fault: median %llu us, 99 "
		"%% in %llu us\n"
		"  written    %10s\n"
		"most was allocated by\n",
		soda_format_size(fam_peak, a), soda_format_size(st.resident_peak_bytes, b),
		soda_format_size(st.buffer_bytes, c), (unsigned long long)st.faults,
		(unsigned long long)st.zero_fills, (unsigned long long)st.faults_joined,
		soda_format_size(st.bytes_fetched, d), (unsigned long long)st.prefetched,
		(unsigned long long)st.fault_p50_ns / 1000,
		(unsigned long long)st.fault_p99_ns / 1000,
		soda_format_size(st.bytes_written_back, (char[16]){ 0 }));
	qsort(sites, SITES, sizeof(sites[0]), by_bytes);
	for (int i = 0; i < SHOWN && sites[i].bytes; i++)
		show_site(&sites[i]);
	run_inside--;
}
