/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/run/results.h"

#include <stdio.h>

#include "base/conf/conf.h"

static void add(struct soda_tree_row *sum, const struct soda_tree_row *row)
{
	sum->reserved_peak += row->reserved_peak;
	sum->resident_peak += row->resident_peak;
	sum->faults += row->faults;
	sum->zero_fills += row->zero_fills;
	sum->fetched += row->fetched;
	sum->sent += row->sent;
	sum->stalled_ns += row->stalled_ns;
}

/* One line; peaks are of one process: at different times, so that their sum would say nothing. */
static void show(const struct soda_tree_row *row, const char *who, bool peaks)
{
	char reserved[16] = "", resident[16] = "", fetched[16], sent[16];

	if (peaks) {
		soda_format_size(row->reserved_peak, reserved);
		soda_format_size(row->resident_peak, resident);
	}
	fprintf(stderr, "  %-24.24s %10s %10s %10llu %10llu %10s %10s %9.3f\n", who, reserved,
		resident, (unsigned long long)row->faults, (unsigned long long)row->zero_fills,
		soda_format_size(row->fetched, fetched), soda_format_size(row->sent, sent),
		(double)row->stalled_ns / 1e9);
}

static void show_all(const struct soda_tree *tree, uint32_t n)
{
	struct soda_tree_row sum = { 0 };
	bool unfinished = false;

	fprintf(stderr, "  %-24s %10s %10s %10s %10s %10s %10s %9s\n", "process", "reserved",
		"resident", "faults", "zeros for", "fetched", "written", "stalled s");
	for (uint32_t i = 0; i < n; i++) {
		const struct soda_tree_row *row = &tree->rows[i];
		bool ended = atomic_load(&row->written) == 2;
		char who[64];

		snprintf(who, sizeof(who), "%d %.*s%s", row->pid, (int)sizeof(row->program),
			 row->program, ended ? "" : " *");
		show(row, who, true);
		add(&sum, row);
		unfinished |= !ended;
	}
	show(&sum, "all", false);
	if (unfinished)
		fputs("  * was killed or became another program, or still runs: numbers of up to a "
		      "second before\n",
		      stderr);
}

void soda_run_table(const struct soda_run_end *end)
{
	const struct soda_tree *tree = end->tree;
	uint32_t all = atomic_load(&tree->rows_n), programs = atomic_load(&tree->programs);
	uint32_t n = soda_run_rows(tree);
	const struct soda_tree_row *only =
		n == 1 && atomic_load(&tree->rows[0].written) == 2 ? &tree->rows[0] : NULL;
	char peak[16], budget[16];

	if (!n && !end->quiet)
		fprintf(stderr,
			"soda run: no block or mapping of %s or more%s: no fabric memory was "
			"used\n",
			soda_format_size(end->threshold, budget),
			end->local ? ", and small ones were never more than --local has room for"
				   : "");
	if (only)
		fprintf(stderr, "%.*s", SODA_TREE_TOLD, only->told);
	if (!n || only)
		return;
	fprintf(stderr, "soda run: %u processes used fabric memory, %u others none", all,
		programs > all ? programs - all : 0);
	if (tree->budget)
		fprintf(stderr, "; together they were lent at most %s of %s",
			soda_format_size((uint64_t)atomic_load(&tree->peak), peak),
			soda_format_size((uint64_t)tree->budget, budget));
	fputs("\n", stderr);
	show_all(tree, n);
	if (all > n)
		fprintf(stderr, "  and %u more that there is no room for here\n", all - n);
}
