/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda doctor`: what to look at, and the answer as text or as JSON. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/doctor/doctor.h"

struct options {
	char *server, *dpu;
	uint32_t timeout_ms;
	bool json, quiet;
};

static const struct soda_option option_table[] = {
	OPTION("server", 's', STRING, server, .arg = "ADDRESS", .max = SODA_ADDRESS_MAX,
	       .help = "The memory server that a program would have. Default: SODA_SERVER, or a "
		       "private server."),
	OPTION("dpu", 'd', STRING, dpu, .arg = "ADDRESS", .max = SODA_ADDRESS_MAX,
	       .help = "The DPU agent that it would have instead. Default: SODA_DPU."),
	OPTION("timeout", 0, TIME_MS, timeout_ms, .arg = "TIME", .def = "5s", .min = 1,
	       .max = 600000,
	       .help = "Longest wait for an answer; the program that is tried has four times as "
		       "long."),
	OPTION("quiet", 'q', BOOL, quiet, .help = "Print warnings and failures only."),
	OPTION("json", 'j', BOOL, json,
	       .help = "Print JSON: format soda-doctor, a list of checks with verdict, what was "
		       "found, and advice."),
};

static const struct soda_conf conf = {
	.program = "soda doctor",
	.summary = "check what this machine has of what SODA needs",
	.args = "[ADDRESS]...",
	.description =
		"Tries userfaultfd as libsoda uses it, in both modes; looks at privileges, limits, "
		"cgroup, huge pages and RDMA devices; asks the server or agent that programs "
		"are configured with, and those at each ADDRESS, whether they are there and which "
		"version they have; and starts a program that allocates fabric memory, stores to "
		"it, has it evicted and loads it again. Nothing on the machine is changed. What "
		"holds for another user is found by running it as that user.\n\n"
		"Each check has a verdict: ok; note, where only some programs want what is not "
		"there; warning, where programs will be slow or some will fail; failure, where "
		"programs as they are configured have no fabric memory. With the last two it says "
		"what to do. The exit status is 1 if there is a failure, and 0 otherwise, warnings "
		"or not.",
	.epilogue = ".SH ENVIRONMENT\n.TP\n.BR SODA_SERVER \", \" SODA_DPU\nwhat programs are"
		    " configured with; other variables of\n.BR soda (7)\ncount for the program that"
		    " is tried.\n"
		    ".SH EXIT STATUS\n0: no failure; 1: at least one; 2: wrong usage.\n"
		    ".SH SEE ALSO\n.BR soda\\-stat (1),\n.BR soda\\-mem\\-server (1),\n"
		    ".BR soda\\-dpu\\-agent (1),\n.BR soda (7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static const char *const verdict_names[] = {
	[SODA_VERDICT_OK] = "ok",
	[SODA_VERDICT_NOTE] = "note",
	[SODA_VERDICT_WARNING] = "warning",
	[SODA_VERDICT_FAILURE] = "failure",
};

/* Who is to be asked. */
struct peers {
	size_t n;
	struct soda_doctor_peer list[SODA_DOCTOR_PEERS_MAX + 2];
};

static void add_peer(struct peers *peers, const char *address, const char *named_by)
{
	struct soda_doctor_peer *p = &peers->list[peers->n];

	if (!address || !*address)
		return;
	*p = (struct soda_doctor_peer){ .named_by = named_by };
	snprintf(p->address, sizeof(p->address), "%s", address);
	soda_make_printable(p->address);
	peers->n++;
}

static void find_peers(const struct options *opt, const char *const *names, int n,
		       struct peers *peers)
{
	if (opt->server || opt->dpu) {
		add_peer(peers, opt->server, "--server");
		add_peer(peers, opt->dpu, "--dpu");
	} else {
		add_peer(peers, getenv("SODA_SERVER"), "SODA_SERVER");
		add_peer(peers, getenv("SODA_DPU"), "SODA_DPU");
	}
	for (int i = 0; i < n; i++)
		add_peer(peers, names[i], "argument");
}

static bool any_verbs(const struct peers *peers)
{
	for (size_t i = 0; i < peers->n; i++)
		if (!strncmp(peers->list[i].address, "verbs://", 8))
			return true;
	return false;
}

static void examine(const struct options *opt, struct peers *peers, struct soda_findings *all)
{
	struct soda_doctor_facts facts = { .verbs_wanted = any_verbs(peers) };
	struct soda_doctor_trial trial;

	soda_doctor_read("", &facts);
	soda_doctor_measure(&facts);
	soda_doctor_probe(&facts);
	soda_judge_kernel(&facts, all);
	soda_judge_limits(&facts, all);
	soda_judge_memory(&facts, all);
	soda_judge_rdma(&facts, all);
	for (size_t i = 0; i < peers->n; i++) {
		soda_doctor_ask(&peers->list[i], (int)opt->timeout_ms);
		soda_judge_peer(&peers->list[i], all);
	}
	soda_doctor_try(opt->server, opt->dpu, (int)opt->timeout_ms, &trial);
	soda_judge_trial(&trial, all);
}

static enum soda_verdict worst_of(const struct soda_findings *all)
{
	enum soda_verdict worst = SODA_VERDICT_OK;

	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].verdict > worst)
			worst = all->list[i].verdict;
	return worst;
}

static int print_text(const struct soda_findings *all, bool quiet)
{
	for (size_t i = 0; i < all->n; i++) {
		const struct soda_finding *f = &all->list[i];

		if (quiet && f->verdict < SODA_VERDICT_WARNING)
			continue;
		printf("%-8s %-23s %s\n", verdict_names[f->verdict], f->check, f->found);
		if (*f->advice)
			printf("%-8s %-23s -> %s\n", "", "", f->advice);
	}
	if (!quiet)
		printf("\n%zu checks: %zu failures, %zu warnings\n", all->n,
		       soda_findings_count(all, SODA_VERDICT_FAILURE),
		       soda_findings_count(all, SODA_VERDICT_WARNING));
	return fflush(stdout);
}

static json_t *checks_of(const struct soda_findings *all)
{
	json_t *checks = json_array();

	for (size_t i = 0; i < all->n; i++) {
		const struct soda_finding *f = &all->list[i];
		json_t *check = json_object();

		soda_json_set_text(check, "check", f->check);
		soda_json_set_text(check, "verdict", verdict_names[f->verdict]);
		json_object_set_new(check, "found", soda_json_text_of(f->found));
		soda_json_set_text(check, "advice", *f->advice ? f->advice : NULL);
		json_array_append_new(checks, check);
	}
	return checks;
}

static int print_json(const struct soda_findings *all)
{
	json_t *out = json_object();

	soda_json_set_text(out, "format", "soda-doctor");
	soda_json_set_count(out, "version", 1);
	json_object_set_new(out, "machine", soda_machine_describe());
	soda_json_set_text(out, "verdict", verdict_names[worst_of(all)]);
	soda_json_set_count(out, "failures", soda_findings_count(all, SODA_VERDICT_FAILURE));
	soda_json_set_count(out, "warnings", soda_findings_count(all, SODA_VERDICT_WARNING));
	json_object_set_new(out, "checks", checks_of(all));
	return soda_json_print(out);
}

int soda_command_doctor(int argc, char **argv)
{
	static struct soda_findings all;
	static struct peers peers;
	const char *names[SODA_DOCTOR_PEERS_MAX];
	struct options opt = { 0 };
	int n = soda_tool_options(&conf, argc, argv, &opt, names, SODA_DOCTOR_PEERS_MAX), err;

	if (n < 0)
		return SODA_EXIT_USAGE;
	find_peers(&opt, names, n, &peers);
	examine(&opt, &peers, &all);
	err = opt.json ? print_json(&all) : print_text(&all, opt.quiet);
	soda_conf_free(&conf, &opt);
	return err || worst_of(&all) == SODA_VERDICT_FAILURE ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}
