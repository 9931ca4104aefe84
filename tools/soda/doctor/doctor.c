/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda doctor`: what to look at, and in which form the answer is wanted. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "soda/base/tool.h"
#include "soda/doctor/doctor.h"

struct options {
	char *server, *dpu;
	uint32_t timeout_ms;
	bool json, quiet, fix;
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
	OPTION("fix", 0, BOOL, fix,
	       .help = "Print the commands that would repair what is missing, and run none: most "
		       "of them are for root. Those that only some programs need are comments."),
	OPTION("json", 'j', BOOL, json,
	       .help = "Print JSON: format soda-doctor, a list of checks with verdict, what was "
		       "found, advice, and the command that does it, if there is one."),
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
		"what to do. The worst come first, below a line that sums them up. The exit status "
		"is 1 if there is a failure, and 0 otherwise, warnings or not.",
	.epilogue = ".SH ENVIRONMENT\n.TP\n.BR SODA_SERVER \", \" SODA_DPU\nwhat programs are"
		    " configured with; other variables of\n.BR soda (7)\ncount for the program that"
		    " is tried.\n"
		    ".SH EXIT STATUS\n0: no failure; 1: at least one; 2: wrong usage.\n"
		    ".SH SEE ALSO\n.BR soda\\-stat (1),\n.BR soda\\-mem\\-server (1),\n"
		    ".BR soda\\-dpu\\-agent (1),\n.BR soda (7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
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
	if (opt.json)
		err = soda_doctor_show_json(&all);
	else if (opt.fix)
		err = soda_doctor_show_commands(&all);
	else
		err = soda_doctor_show(&all, opt.quiet);
	soda_conf_free(&conf, &opt);
	return err || soda_findings_worst(&all) == SODA_VERDICT_FAILURE ? SODA_EXIT_FAILED
									: SODA_EXIT_OK;
}
