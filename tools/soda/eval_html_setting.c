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
	fprintf(out, "; SODA %s.</p>\n", text_of(m, "soda"));
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
	bool memory = soda_eval_readahead_none(report->plan->out);

	for (uint32_t i = 0; i < report->plan->modes_n; i++)
		asked |= report->plan->modes[i] == SODA_EVAL_SSD;
	if (!asked)
		return;
	fputs("<li>ssd: the files are mapped, their pages dropped from the page cache before each "
	      "run. ",
	      out);
	if (memory)
		fputs("<b class=\"bad\">This folder is in memory (tmpfs): what is called ssd is "
		      "none.</b></li>\n",
		      out);
	else if (kib == SODA_EVAL_READAHEAD_KIB)
		fprintf(out, "Readahead of the disk: %lld KiB, set for the run.</li>\n", kib);
	else if (kib)
		fprintf(out,
			"<b>Readahead of the disk: %lld KiB</b>; %u, which would be fair, could "
			"not be set.</li>\n",
			kib, SODA_EVAL_READAHEAD_KIB);
	else
		fputs("<b>The disk does not say what its readahead is.</b></li>\n", out);
}

/* Whose processors these are: the first thing to know of any time below. */
static void put_emulated(FILE *out, const struct soda_eval_report *report)
{
	const struct soda_eval_plan *plan = report->plan;

	fprintf(out,
		"<ul><li><b>Emulated:</b> memory server and agent run outside of the capped "
		"cgroup, as if on other nodes, <b>but share the same %lld processors</b> with the "
		"application; a memory node and a DPU have cores of their own.",
		(long long)json_integer_value(json_object_get(report->machine, "processors")));
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

/* All that were typed. */
static void put_commands(FILE *out, const struct soda_eval_report *report)
{
	const json_t *command;
	size_t i;

	json_array_foreach(report->results->commands, i, command)
	{
		fputs("<p><code>", out);
		soda_eval_html_text(out, text_of(command, "text"));
		fputs("</code> <span class=\"nowrap\">", out);
		soda_eval_html_text(out, text_of(json_object_get(command, "machine"), "date"));
		fputs("</span></p>\n", out);
	}
}

static void put_modes(FILE *out, const struct soda_eval_plan *plan)
{
	static const char *const texts[SODA_EVAL_MODES] = {
		[SODA_EVAL_DRAM] = "all in local memory, not capped",
		[SODA_EVAL_SSD] = "graph files of the local disk, mapped (mmap)",
		[SODA_EVAL_MEMSERVER] =
			"fabric memory: the memory server directly, without an agent",
		[SODA_EVAL_BASE] = "through the DPU agent, a plain proxy",
		[SODA_EVAL_AGG] = "base, and task aggregation",
		[SODA_EVAL_ASYNC] = "base, and asynchronous forwarding",
		[SODA_EVAL_STATIC] = "base, and the static cache, which holds vertex data",
		[SODA_EVAL_DYNAMIC] = "base, and the dynamic cache, which holds edge data",
		[SODA_EVAL_AGG_ASYNC] = "base, and aggregation and asynchronous forwarding",
		[SODA_EVAL_ALL] = "the agent with everything on",
	};

	fputs("<table><tr><th>mode</th><th class=\"left\"></th></tr>\n", out);
	for (uint32_t i = 0; i < plan->modes_n; i++) {
		fputs("<tr><td class=\"nowrap\">", out);
		soda_eval_html_mode(out, plan->modes[i]);
		fprintf(out, "</td><td class=\"left\">%s</td></tr>\n", texts[plan->modes[i]]);
	}
	fputs("</table>\n", out);
}

void soda_eval_html_setting(FILE *out, const struct soda_eval_report *report)
{
	const struct soda_eval_plan *plan = report->plan;
	char chunk[16];

	fputs("<h2>How it was measured</h2>\n", out);
	put_commands(out, report);
	put_machine(out, report);
	put_modes(out, plan);
	put_emulated(out, report);
	fprintf(out,
		"<li>%u threads, PageRank %u iterations; chunks of %s; the page buffer is "
		"a third of what the application computes on, less its own arrays where they "
		"are small and stay in local memory.</li>\n",
		plan->threads, plan->iterations, soda_format_size(plan->chunk_bytes, chunk));
	fputs("<li>Memory of the application is capped ", out);
	soda_eval_html_text(out, report->cap);
	fputs("; a run is invalid after a kill by the limit, or if anonymous and shared memory "
	      "(smaps Pss) exceed it.</li>\n<li>Each run is a process of its own; modes take "
	      "turns; numbers and bars are medians, whiskers and small numbers the least and the "
	      "most, where a kind was run more than once. Every result is verified by a "
	      "serial reference, or is byte for byte what that has found right before. A time is "
	      "the algorithm&#39;s, without loading; nothing of the "
	      "graph is resident when it begins. Before it, as much memory as the page buffer "
	      "holds is touched and given back, in every mode: what a virtual machine&#39;s host "
	      "takes to find memory is in none of the times.</li>\n",
	      out);
	fprintf(out, "<li>Application and agent meet over %s, everything else is tcp. ",
		plan->shm ? "shared memory" : "tcp");
	put_cache(out, plan);
	put_readahead(out, report);
	fputs("</ul>\n<p class=\"note\">The paper: J. Wahlgren, G. Schieffer, M. Gokhale, R. "
	      "Pearce, I. Peng, &#34;Disaggregated Memory with SmartNIC Offloading: a Case Study "
	      "on Graph Processing&#34;, SBAC-PAD 2024. Figures have its numbers; what they show "
	      "is this machine&#39;s. Its values stand beside ours where they are known with "
	      "certainty; where none stands, none is known here.</p>\n",
	      out);
	if (report->no_figures[0]) {
		fputs("<p class=\"bad\">", out);
		soda_eval_html_text(out, report->no_figures);
		fputs("</p>\n", out);
	}
}
