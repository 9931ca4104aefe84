/* SPDX-License-Identifier: BSD-3-Clause */
/* report.html: what was measured, on what, how. */
#include <stdio.h>

#include "common/conf.h"
#include "eval_html.h"
#include "eval_readahead.h"

static const char *text_of(const json_t *from, const char *key)
{
	const char *text = json_string_value(json_object_get(from, key));

	return text ? text : "";
}

static void put_machine(FILE *out, const struct soda_eval_report *report)
{
	const json_t *m = report->machine;
	char memory[16];

	fputs("<p>", out);
	soda_eval_html_text(out, text_of(m, "cpu"));
	fprintf(out, ", %lld processors, %s of memory; Linux ",
		(long long)json_integer_value(json_object_get(m, "processors")),
		soda_format_size((uint64_t)json_integer_value(json_object_get(m, "memory_bytes")),
				 memory));
	soda_eval_html_text(out, text_of(m, "kernel"));
	fprintf(out, "; SODA %s; %s.</p>\n", text_of(m, "soda"), text_of(m, "date"));
}

/* The readahead that the runs on the disk had; 0: none, or not known. */
static long long readahead(const struct soda_eval_report *report)
{
	const json_t *run;
	long long kib = 0;
	size_t i;

	json_array_foreach(report->results->runs, i, run) if (json_object_get(run, "readahead_kib"))
		kib = json_integer_value(json_object_get(run, "readahead_kib"));
	return kib;
}

static void put_readahead(FILE *out, const struct soda_eval_report *report)
{
	bool asked = false;
	long long kib = readahead(report);

	for (uint32_t i = 0; i < report->plan->modes_n; i++)
		asked |= report->plan->modes[i] == SODA_EVAL_SSD;
	if (!asked)
		return;
	fputs("<li>ssd: the files are mapped, their pages dropped from the page cache before each "
	      "run. ",
	      out);
	if (kib == SODA_EVAL_READAHEAD_KIB)
		fprintf(out, "Readahead of the disk: %lld KiB, set for the run.</li>\n", kib);
	else if (kib)
		fprintf(out,
			"<b>Readahead of the disk: %lld KiB</b>; %u, which would be fair, could "
			"not be set.</li>\n",
			kib, SODA_EVAL_READAHEAD_KIB);
	else
		fputs("<b>The disk does not say what its readahead is.</b></li>\n", out);
}

static void put_emulated(FILE *out, const struct soda_eval_plan *plan)
{
	fputs("<li><b>Emulated:</b> memory server and agent run on this machine's processors, "
	      "beside the application; a DPU has cores of its own.",
	      out);
	if (plan->link.rate[0])
		fprintf(out,
			" The network is a pair of virtual interfaces, limited to %s from the "
			"server on (tc tbf).",
			plan->link.rate);
	else
		fputs(" The network is the loopback interface, which has no limit.", out);
	if (plan->cpu_pct)
		fprintf(out, " The agent has %u %% of a processor (cgroup).", plan->cpu_pct);
	fputs("</li>\n", out);
}

static void put_cache(FILE *out, const struct soda_eval_plan *plan)
{
	char cache[16];

	if (plan->cache_bytes)
		fprintf(out, "Dynamic cache of the agent: %s. ",
			soda_format_size(plan->cache_bytes, cache));
	else
		fputs("Dynamic cache of the agent: a sixteenth of the limit, as in the paper, at "
		      "least 8 MiB. ",
		      out);
	fputs("It holds edge data only in mode dynamic. Static cache: vertex data, all of "
	      "it.</li>\n",
	      out);
}

void soda_eval_html_setting(FILE *out, const struct soda_eval_report *report)
{
	const struct soda_eval_plan *plan = report->plan;
	char chunk[16];

	fputs("<p><code>", out);
	soda_eval_html_text(out, report->command);
	fputs("</code></p>\n", out);
	put_machine(out, report);
	fprintf(out,
		"<ul><li>%u threads, PageRank %u iterations; chunks of %s; the page buffer is "
		"a third of what the application computes on, less its own arrays where they "
		"are small and stay in local memory.</li>\n",
		plan->threads, plan->iterations, soda_format_size(plan->chunk_bytes, chunk));
	fputs("<li>Memory of the application is capped ", out);
	soda_eval_html_text(out, report->cap);
	fputs("; server and agent are outside of it, dram is not capped. A run is invalid after a "
	      "kill by the limit, or if anonymous and shared memory (smaps Pss) exceed it.</li>\n",
	      out);
	fprintf(out,
		"<li>%u runs of each kind, each a process of its own, in turns; bars are "
		"medians, whiskers the least and the most. Every result is verified by a "
		"serial reference. A time is the algorithm's, without loading; nothing of the "
		"graph is resident when it begins. Before it, as much memory as the page buffer "
		"holds is touched and given back, in every mode: what a virtual machine's host "
		"takes to find memory is in none of the times.</li>\n<li>",
		plan->repeat);
	fprintf(out, "Application and agent meet over %s, everything else is tcp. ",
		plan->shm ? "shared memory" : "tcp");
	put_cache(out, plan);
	put_readahead(out, report);
	put_emulated(out, plan);
	fputs("</ul>\n<p class=\"note\">The paper: J. Wahlgren, G. Schieffer, M. Gokhale, R. "
	      "Pearce, I. Peng, &#34;Disaggregated Memory with SmartNIC Offloading: a Case Study "
	      "on "
	      "Graph Processing&#34;, SBAC-PAD 2024. Figures have its numbers; what they show is "
	      "this machine's. Its values stand beside ours where they are known with certainty; "
	      "where none stands, none is known here.</p>\n",
	      out);
	if (report->no_figures[0]) {
		fputs("<p class=\"bad\">", out);
		soda_eval_html_text(out, report->no_figures);
		fputs("</p>\n", out);
	}
}
