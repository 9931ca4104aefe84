/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench messages`: options, and what is measured in which order. */
#include "soda/bench/messages/messages.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/conf/conf.h"
#include "base/limits.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/bench/messages/load.h"
#include "soda/stage/guard.h"
#include "soda/stage/patience.h"
#include "wire/msg_rings.h"

#define WHO "soda bench messages"

enum { DATA_MAX = 64 << 20, MESSAGES_MAX = 100000000, APP_RANKS_MAX = 8, WEAK_RANKS = 2 };

struct options {
	char *transports, *sizes, *ranks, *agents, *apps;
	char *flushes, *inboxes, *packets, *slots, *transfers, *threads, *weak;
	uint32_t messages, slow, rounds;
	bool json;
};

static const struct soda_option option_table[] = {
	OPTION("transports", 't', LIST, transports, .arg = "LIST", .def = "shm,tcp",
	       .help = "How ranks reach the agent, one after the other: shm, tcp."),
	OPTION("ranks", 'n', LIST, ranks, .arg = "N,...", .def = "4",
	       .help = "Ranks of a job, at most 64."),
	OPTION("agents", 'A', LIST, agents, .arg = "N,...", .def = "1,2",
	       .help = "Agents of a job, at most 8, for its rates; more than ranks are left out."),
	OPTION("sizes", 's', LIST, sizes, .arg = "SIZE,...", .def = "8,64,256,4K",
	       .help = "Bytes of a message, 8 to 1M; none: rates are not measured."),
	OPTION("messages", 'm', UINT, messages, .arg = "N", .def = "500000", .min = 1,
	       .max = MESSAGES_MAX,
	       .help = "Messages that each rank sends in a run; fewer, where they would be more "
		       "than 64 MiB."),
	OPTION("slow", 0, UINT, slow, .arg = "N", .def = "200", .min = 0, .max = 100000,
	       .help = "Messages of a slow sender, for the time that one takes; 0: not measured."),
	OPTION("rounds", 'r', UINT, rounds, .arg = "N", .def = "3", .min = 1,
	       .max = SODA_BENCH_ROUNDS_MAX, .help = "Rounds of each point, all sides in turns."),
	OPTION("apps", 'a', LIST, apps, .arg = "NAME,...",
	       .def = "histogram,transpose,triangles,sssp,particles",
	       .help = "Applications of the build tree's examples/messages; none: not run. One "
		       "that was not built is left out, with a line that says so."),
	OPTION("flushes", 0, LIST, flushes, .arg = "US,...", .def = "50,200,500,2000",
	       .help = "Sweep: microseconds that a message waits for others; none: no sweep."),
	OPTION("inboxes", 0, LIST, inboxes, .arg = "SIZE,...", .def = "128K,256K,512K,1M",
	       .help = "Sweep: the agent's memory for each rank; none: no sweep."),
	OPTION("packets", 0, LIST, packets, .arg = "SIZE,...", .def = "4K,16K,60K",
	       .help = "Sweep: bytes for one rank that travel together, from program to agent; "
		       "none: no sweep."),
	OPTION("slots", 0, LIST, slots, .arg = "N,...", .def = "1,2,4",
	       .help = "Sweep: so many of them for one rank may be under way; none: no sweep."),
	OPTION("transfers", 0, LIST, transfers, .arg = "SIZE,...", .def = "1K,4K,16K,48K",
	       .help = "Sweep: bytes that travel together from agent to agent, of two that reach "
		       "each other by tcp, ranks likewise; none: no sweep."),
	OPTION("threads", 0, LIST, threads, .arg = "N,...", .def = "1,2,4",
	       .help = "Sweep: the agent's threads that route at the same time; none: no sweep."),
	OPTION("weak", 0, LIST, weak, .arg = "N,...", .def = "1,2,4,8",
	       .help = "Weak scaling: agents, at most 8, each for two ranks; none: not measured."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object on standard output."),
};

static const struct soda_conf conf = {
	.program = WHO,
	.summary = "measure messages between ranks, beside MPI",
	.args = "",
	.description =
		"Each rank of a job sends messages to ranks that random numbers name, and takes "
		"those for it; a message's first 8 bytes are its value, and sums over all values "
		"and counts end the benchmark where a message was lost or came twice. The time is "
		"that from the moment when all ranks begin until all have everything.\n"
		"\n"
		"Beside it, in turns, the same messages over MPI, in three ways: one MPI_Isend for "
		"each message, with 64 of them and as many MPI_Irecv under way; gathered by the "
		"program itself, in buffers of 60 KiB for each rank; in rounds of MPI_Alltoallv. "
		"Of Open MPI and MPICH the better one counts, for each way; both are told to yield "
		"the processor where they wait, and so do the programs. They are found where SODA "
		"was built with them (the option mpi of meson); without them these columns are "
		"empty.\n"
		"\n"
		"Beside a call for each message (SODA) ranks also gather messages themselves, as "
		"over MPI, and hand them over with soda_msg_push_many(3) (many); its ratio is that "
		"by gathered.\n"
		"\n"
		"Rates are medians over the rounds, ratios medians of the rounds' ratios. agent ns "
		"is the agents' CPU time, their transports' included, for each message; not known "
		"where soda msg run has started them, which is where several are reached by shm. "
		"Several agents reach each other by tcp.\n"
		"\n"
		"A slow sender (--slow) is rank 0, which pushes a message to the last rank all 5 "
		"ms and does nothing else, so that it is sent on when its time is over (flush_us); "
		"the microseconds are those from push to pull. Of each of --transports and "
		"--agents, with the first of --ranks.\n"
		"\n"
		"Applications run with the first of --ranks (at most 8), by the first of "
		"--transports, and are routed in one of three places: process, by threads of each "
		"rank's own process, which reach each other by that transport, all on one "
		"processor; shared, by an agent on the ranks' processor; own, ranks on "
		"one processor, the agent on another one. That emulates a DPU by processor "
		"affinity: its cores have their own caches and memory besides. The seconds are "
		"what the application says; the m/c ratio (memory to communication) is the "
		"processor time of the ranks, which work on memory and hand messages over, by that "
		"of the agent, which moves them, where both share a processor. With a processor of "
		"its own for the agent a program can be (r + 1) / max(r, 1) times as fast at most, "
		"r being that ratio.\n"
		"\n"
		"Sweeps are of the first of --transports, --ranks and --sizes, with one agent "
		"unless their option says otherwise. Weak scaling has two ranks for each agent, "
		"and as many messages of each rank: on a machine of few processors the rate cannot "
		"grow, and what counts is cpu ns, the processor time of all ranks and agents for "
		"each message, their starts and ends included, which should stay.\n"
		"\n"
		"JSON: format soda-bench-messages, version 1. A value that is not known is null.",
	.epilogue = SODA_PATIENCE_MAN
	".SH EXIT STATUS\n0 success, 1 failure, 2 wrong usage.\n"
	".SH EXAMPLES\n.nf\nsoda bench messages \\-\\-sizes 8 \\-\\-apps none\n"
	"soda bench messages \\-\\-sizes none \\-\\-apps histogram \\-\\-json\n.fi\n"
	".SH SEE ALSO\n.BR soda (1),\n.BR soda\\-msg\\-run (1),\n"
	".BR soda\\-dpu\\-agent (1),\n.BR soda_msg_start (3)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

static int complain(const char *text)
{
	fprintf(stderr, WHO ": %s\n", text);
	return -EINVAL;
}

/* The parts of a list one after the other; NULL: the end. */
static const char *next_part(char **rest)
{
	const char *part = "";

	while (part && !*part)
		part = strsep(rest, ", ");
	return part;
}

/* "none": an empty list. */
static int parse_list(char *text, uint64_t least, uint64_t most, uint64_t *list, unsigned *n_p)
{
	const char *part;

	*n_p = 0;
	if (strcmp(text, "none") == 0)
		return 0;
	while ((part = next_part(&text))) {
		uint64_t *value = &list[*n_p];

		if (*n_p == SODA_BENCH_MSG_LIST_MAX || soda_parse_size(part, value) ||
		    *value < least || *value > most)
			return -EINVAL;
		(*n_p)++;
	}
	return *n_p ? 0 : -EINVAL;
}

static int parse_list32(char *text, uint64_t least, uint64_t most, uint32_t *list, unsigned *n_p)
{
	uint64_t wide[SODA_BENCH_MSG_LIST_MAX];
	int ret = parse_list(text, least, most, wide, n_p);

	for (unsigned i = 0; ret == 0 && i < *n_p; i++)
		list[i] = (uint32_t)wide[i];
	return ret;
}

static int parse_transports(char *text, bool *list)
{
	const char *part;
	bool any = false;

	while ((part = next_part(&text))) {
		int t = 0;

		while (t < SODA_BENCH_MSG_TRANSPORTS &&
		       strcmp(part, soda_bench_msg_transports[t]) != 0)
			t++;
		if (t == SODA_BENCH_MSG_TRANSPORTS)
			return -EINVAL;
		list[t] = any = true;
	}
	return any ? 0 : -EINVAL;
}

static int parse_apps(char *text, struct soda_bench_msg_plan *plan)
{
	const char *part;

	if (strcmp(text, "none") == 0)
		return 0;
	while ((part = next_part(&text))) {
		if (plan->apps_n == SODA_BENCH_MSG_LIST_MAX || strchr(part, '/'))
			return -EINVAL;
		plan->apps[plan->apps_n++] = part;
	}
	return 0;
}

static const struct sweep {
	const char *what, *option;
	size_t list; /* in struct options */
	uint64_t least, most;
	const char *variable; /* that says the value, to ranks or agents; NULL: another way */
	uint32_t agents;
	const char *bounds;
} sweeps[SODA_BENCH_MSG_SWEEPS] = {
	[SODA_BENCH_MSG_FLUSHES] = { "flush_us", "--flushes", offsetof(struct options, flushes), 1,
				     1000000, NULL, 1, "microseconds, at most 1000000" },
	[SODA_BENCH_MSG_INBOXES] = { "inbox_bytes", "--inboxes", offsetof(struct options, inboxes),
				     SODA_MSG_INBOX_LEAST, SODA_MSG_INBOX_MOST, NULL, 1,
				     "from 128K to 1M" },
	[SODA_BENCH_MSG_PACKETS] = { "packet_bytes", "--packets", offsetof(struct options, packets),
				     SODA_MSG_SLOT_LEAST, SODA_MSG_PACKET_MAX, "SODA_MSG_PACKET", 1,
				     "from 4K to 60K" },
	[SODA_BENCH_MSG_SLOTS] = { "slots", "--slots", offsetof(struct options, slots), 1,
				   SODA_RING_SLOTS, "SODA_MSG_SLOTS", 1, "from 1 to 4" },
	[SODA_BENCH_MSG_TRANSFERS] = { "transfer_bytes", "--transfers",
				       offsetof(struct options, transfers), 1, SODA_MSG_PACKET_MAX,
				       "SODA_DPU_MSG_TRANSFER", 2, "at most 60K" },
	[SODA_BENCH_MSG_THREADS] = { "threads", "--threads", offsetof(struct options, threads), 1,
				     1024, "SODA_DPU_MSG_THREADS", 1, "at most 1024" },
	[SODA_BENCH_MSG_WEAK] = { "weak_agents", "--weak", offsetof(struct options, weak), 1,
				  SODA_BENCH_MSG_AGENTS_MAX, NULL, 0, "at most 8" },
};

static int parse_sweeps(const struct options *opt, struct soda_bench_msg_plan *plan)
{
	for (int i = 0; i < SODA_BENCH_MSG_SWEEPS; i++) {
		const struct sweep *s = &sweeps[i];
		char *const *list = (char *const *)((const char *)opt + s->list);

		if (!parse_list(*list, s->least, s->most, plan->sweeps[i], &plan->sweeps_n[i]))
			continue;
		fprintf(stderr, WHO ": %s: %s, at most 16 of them, or none\n", s->option,
			s->bounds);
		return -EINVAL;
	}
	return 0;
}

/* The lists of opt are cut into their parts, which the plan points into. */
static int make_plan(const struct options *opt, struct soda_bench_msg_plan *plan)
{
	*plan = (struct soda_bench_msg_plan){ .messages = opt->messages,
					      .slow = opt->slow,
					      .rounds = opt->rounds };
	if (parse_transports(opt->transports, plan->transports))
		return complain("--transports: of shm and tcp");
	if (parse_list32(opt->ranks, 1, SODA_BENCH_MSG_RANKS_MAX, plan->ranks, &plan->ranks_n) ||
	    !plan->ranks_n)
		return complain("--ranks: numbers from 1 to 64, at most 16 of them");
	if (parse_list32(opt->agents, 1, SODA_BENCH_MSG_AGENTS_MAX, plan->agents,
			 &plan->agents_n) ||
	    !plan->agents_n)
		return complain("--agents: numbers from 1 to 8, at most 16 of them");
	if (parse_list32(opt->sizes, SODA_BENCH_MSG_BYTES_MIN, SODA_BENCH_MSG_BYTES_MAX,
			 plan->sizes, &plan->sizes_n))
		return complain("--sizes: from 8 to 1M, at most 16 of them, or none");
	if (parse_sweeps(opt, plan))
		return -EINVAL;
	if (parse_apps(opt->apps, plan))
		return complain("--apps: names of examples, at most 16 of them, or none");
	soda_bench_msg_find_mpis(plan);
	return 0;
}

struct work {
	struct soda_bench_msg_plan plan;
	bool json;
};

static struct soda_bench_msg_job job_of(const struct soda_bench_msg_plan *plan, pid_t owner,
					int transport, uint32_t ranks, uint32_t bytes)
{
	uint64_t most = DATA_MAX / bytes;

	return (struct soda_bench_msg_job){ .transport = transport,
					    .ranks = ranks,
					    .agents = 1,
					    .bytes = bytes,
					    .messages =
						    plan->messages < most ? plan->messages : most,
					    .flush_us = SODA_MSG_FLUSH_US,
					    .inbox_bytes = SODA_MSG_INBOX_MOST,
					    .owner = owner };
}

/* Messages a second, [round]. */
struct rounds {
	double soda[SODA_BENCH_ROUNDS_MAX], agent_ns[SODA_BENCH_ROUNDS_MAX];
	double many[SODA_BENCH_ROUNDS_MAX];
	double mpi[SODA_BENCH_MSG_MPIS][SODA_BENCH_MSG_WAYS][SODA_BENCH_ROUNDS_MAX];
};

static double rate_of(const struct soda_bench_msg_result *r)
{
	return (double)r->messages / r->seconds;
}

/* All sides once, in turns. */
static int one_round(const struct soda_bench_msg_plan *plan, struct soda_bench_msg_job *job,
		     uint32_t i, struct rounds *all)
{
	struct soda_bench_msg_result r;
	int err = soda_bench_msg_run_soda(job, false, &r);

	if (err)
		return err;
	all->soda[i] = rate_of(&r);
	/* the agent also routed the phase that is not measured, of a tenth */
	all->agent_ns[i] = r.agent_seconds * 1e9 / ((double)r.messages * 1.1);
	err = soda_bench_msg_run_soda(job, true, &r);
	if (err)
		return err;
	all->many[i] = rate_of(&r);
	for (int mpi = 0; mpi < SODA_BENCH_MSG_MPIS; mpi++)
		for (int way = 0; way < SODA_BENCH_MSG_WAYS && plan->mpi[mpi][0]; way++) {
			err = soda_bench_msg_run_mpi(job, mpi, plan->mpi[mpi], way, &r);
			if (err)
				return err;
			all->mpi[mpi][way][i] = rate_of(&r);
		}
	return 0;
}

static double median_ratio(const double *a, const double *b, uint32_t n)
{
	double ratios[SODA_BENCH_ROUNDS_MAX];

	for (uint32_t i = 0; i < n; i++)
		ratios[i] = a[i] / b[i];
	return soda_bench_median(ratios, n);
}

/* For each way the MPI whose median is the greater one. */
static void compare(const struct soda_bench_msg_plan *plan, const struct rounds *all,
		    struct soda_bench_msg_rate *rate)
{
	rate->many_ratio = NAN;
	for (int way = 0; way < SODA_BENCH_MSG_WAYS; way++) {
		rate->which[way] = -1;
		rate->mpi[way] = rate->ratio[way] = NAN;
		for (int mpi = 0; mpi < SODA_BENCH_MSG_MPIS; mpi++) {
			double median;

			if (!plan->mpi[mpi][0])
				continue;
			median = soda_bench_median(all->mpi[mpi][way], plan->rounds);
			if (rate->which[way] >= 0 && median <= rate->mpi[way])
				continue;
			rate->which[way] = mpi;
			rate->mpi[way] = median;
			rate->ratio[way] =
				median_ratio(all->soda, all->mpi[mpi][way], plan->rounds);
			if (way == SODA_BENCH_MSG_GATHER)
				rate->many_ratio =
					median_ratio(all->many, all->mpi[mpi][way], plan->rounds);
		}
	}
}

static int measure_rate(const struct soda_bench_msg_plan *plan, struct soda_bench_msg_job *job,
			struct soda_bench_msg_rate *rate)
{
	struct rounds *all = calloc(1, sizeof(*all));
	int err = all ? soda_bench_msg_agents_start(job) : -ENOMEM;

	for (uint32_t i = 0; i < plan->rounds && !err; i++)
		err = one_round(plan, job, i, all);
	soda_bench_msg_agents_stop(job);
	if (!err) {
		*rate = (struct soda_bench_msg_rate){ .transport = job->transport,
						      .ranks = job->ranks,
						      .agents = job->agents,
						      .bytes = job->bytes };
		rate->soda = soda_bench_median(all->soda, plan->rounds);
		rate->many = soda_bench_median(all->many, plan->rounds);
		rate->agent_ns = soda_bench_median(all->agent_ns, plan->rounds);
		compare(plan, all, rate);
	}
	free(all);
	return err;
}

static int measure_rates(const struct soda_bench_msg_plan *plan, pid_t owner, json_t *out)
{
	unsigned n = plan->ranks_n * plan->agents_n * plan->sizes_n;
	bool first = true;
	int err = 0;

	for (unsigned i = 0; i < SODA_BENCH_MSG_TRANSPORTS * n && !err; i++) {
		unsigned s = i % plan->sizes_n, rest = i / plan->sizes_n;
		struct soda_bench_msg_job job =
			job_of(plan, owner, (int)(i / n),
			       plan->ranks[rest / plan->agents_n % plan->ranks_n], plan->sizes[s]);
		struct soda_bench_msg_rate rate;

		job.agents = plan->agents[rest % plan->agents_n];
		if (!plan->transports[job.transport] || job.agents > job.ranks)
			continue;
		err = measure_rate(plan, &job, &rate);
		if (!err)
			soda_bench_msg_report_rate(&rate, first, out);
		first = false;
	}
	return err;
}

/* One run says enough: its messages are many. */
static int measure_slow(const struct soda_bench_msg_plan *plan, pid_t owner, json_t *out)
{
	unsigned n = SODA_BENCH_MSG_TRANSPORTS * plan->agents_n;
	bool first = true;
	int err = 0;

	for (unsigned i = 0; i < n && plan->slow && !err; i++) {
		struct soda_bench_msg_job job = job_of(plan, owner, (int)(i / plan->agents_n),
						       plan->ranks[0], SODA_BENCH_MSG_BYTES_MIN);
		struct soda_bench_msg_slow slow;

		job.agents = plan->agents[i % plan->agents_n];
		job.messages = plan->slow;
		if (!plan->transports[job.transport] || job.agents > job.ranks)
			continue;
		err = soda_bench_msg_agents_start(&job);
		if (!err)
			err = soda_bench_msg_run_slow(&job, &slow);
		soda_bench_msg_agents_stop(&job);
		if (!err)
			soda_bench_msg_report_slow(&job, &slow, first, out);
		first = false;
	}
	return err;
}

static int first_transport(const struct soda_bench_msg_plan *plan)
{
	return plan->transports[SODA_BENCH_MSG_SHM] ? SODA_BENCH_MSG_SHM : SODA_BENCH_MSG_TCP;
}

/* The run of the median seconds. */
static int run_app(const struct soda_bench_msg_plan *plan, struct soda_bench_msg_job *job,
		   const char *path, struct soda_bench_msg_result *r)
{
	double seconds[SODA_BENCH_ROUNDS_MAX], agent[SODA_BENCH_ROUNDS_MAX];
	double ranks[SODA_BENCH_ROUNDS_MAX];
	bool verified = true;
	int err = soda_bench_msg_agents_start(job);

	for (uint32_t i = 0; i < plan->rounds && !err; i++) {
		err = soda_bench_msg_run_app(job, path, r);
		seconds[i] = r->seconds;
		agent[i] = r->agent_seconds;
		ranks[i] = r->ranks_seconds;
		verified = verified && r->verified;
	}
	soda_bench_msg_agents_stop(job);
	if (!err) {
		r->seconds = soda_bench_median(seconds, plan->rounds);
		r->agent_seconds = soda_bench_median(agent, plan->rounds);
		r->ranks_seconds = soda_bench_median(ranks, plan->rounds);
		r->verified = verified;
	}
	return err;
}

/* The ratio is that of the shared processor, in all modes. */
static int measure_app(const struct soda_bench_msg_plan *plan, pid_t owner, const char *name,
		       bool *first_p, json_t *out)
{
	uint32_t ranks = plan->ranks[0] < APP_RANKS_MAX ? plan->ranks[0] : APP_RANKS_MAX;
	struct soda_bench_msg_app app = {
		.name = name, .mode = SODA_BENCH_MSG_SHARED, .ranks = ranks, .mc_ratio = NAN
	};
	/* shared first: it has the ratio */
	static const int modes[] = { SODA_BENCH_MSG_SHARED, SODA_BENCH_MSG_OWN,
				     SODA_BENCH_MSG_PROCESS };
	char path[PATH_MAX];
	int err = 0;

	if (!soda_bench_msg_find_app(name, path)) {
		fprintf(stderr, WHO ": %s: there is no such example in this build\n", name);
		return 0;
	}
	for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]) && !err; i++) {
		struct soda_bench_msg_job job =
			job_of(plan, owner, first_transport(plan), ranks, 8);

		job.mode = app.mode = modes[i];
		job.agents = 1;
		err = run_app(plan, &job, path, &app.result);
		if (app.mode == SODA_BENCH_MSG_SHARED)
			app.mc_ratio = app.result.ranks_seconds / app.result.agent_seconds;
		if (!err)
			soda_bench_msg_report_app(&app, *first_p, out);
		*first_p = false;
	}
	return err;
}

static int measure_apps(const struct soda_bench_msg_plan *plan, pid_t owner, json_t *out)
{
	bool first = true;
	int err = 0;

	for (unsigned i = 0; i < plan->apps_n && !err; i++)
		err = measure_app(plan, owner, plan->apps[i], &first, out);
	return err;
}

/* Processor time of all processes that have ended, of ranks and agents. */
static double children_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_CHILDREN, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int measure_point(const struct soda_bench_msg_plan *plan, struct soda_bench_msg_job *job,
			 struct soda_bench_msg_point *p)
{
	double rates[SODA_BENCH_ROUNDS_MAX];
	struct soda_bench_msg_result r;
	double before = children_seconds();
	int err = soda_bench_msg_agents_start(job);

	for (uint32_t i = 0; i < plan->rounds && !err; i++) {
		err = soda_bench_msg_run_soda(job, false, &r);
		rates[i] = rate_of(&r);
	}
	soda_bench_msg_agents_stop(job);
	if (err)
		return err;
	p->rate = soda_bench_median(rates, plan->rounds);
	/* a tenth more is sent in a phase that is not measured */
	p->cpu_ns = (children_seconds() - before) * 1e9 /
		    ((double)job->messages * 1.1 * job->ranks * plan->rounds);
	return 0;
}

/* The job of a point of a sweep. */
static struct soda_bench_msg_job job_of_point(const struct soda_bench_msg_plan *plan, pid_t owner,
					      int sweep, uint64_t value)
{
	const struct sweep *s = &sweeps[sweep];
	int transport = s->agents > 1 ? SODA_BENCH_MSG_TCP : first_transport(plan);
	uint32_t bytes = plan->sizes_n ? plan->sizes[0] : SODA_BENCH_MSG_BYTES_MIN;
	struct soda_bench_msg_job job = job_of(plan, owner, transport, plan->ranks[0], bytes);

	job.variable = s->variable;
	job.value = value;
	job.agents = s->agents;
	if (sweep == SODA_BENCH_MSG_FLUSHES)
		job.flush_us = (uint32_t)value;
	if (sweep == SODA_BENCH_MSG_INBOXES)
		job.inbox_bytes = value;
	if (sweep == SODA_BENCH_MSG_WEAK) {
		job.agents = (uint32_t)value;
		job.ranks = WEAK_RANKS * job.agents;
	}
	return job;
}

static int measure_sweep(const struct soda_bench_msg_plan *plan, pid_t owner, int sweep,
			 bool *first_p, json_t *out)
{
	int err = 0;

	for (unsigned i = 0; i < plan->sweeps_n[sweep] && !err; i++) {
		uint64_t value = plan->sweeps[sweep][i];
		struct soda_bench_msg_job job = job_of_point(plan, owner, sweep, value);
		struct soda_bench_msg_point p = { sweeps[sweep].what, value, NAN, NAN };

		if (job.agents > job.ranks)
			continue;
		err = measure_point(plan, &job, &p);
		if (!err)
			soda_bench_msg_report_point(&p, *first_p, out);
		*first_p = false;
	}
	return err;
}

static int measure_sweeps(const struct soda_bench_msg_plan *plan, pid_t owner, json_t *out)
{
	bool first = true;
	int err = 0;

	for (int i = 0; i < SODA_BENCH_MSG_SWEEPS && !err; i++)
		err = measure_sweep(plan, owner, i, &first, out);
	return err;
}

/* The benchmark's work, in the child of soda_bench_guard_run(). */
static int run(void *arg, const struct soda_bench_guarded *guarded)
{
	const struct work *work = arg;
	const struct soda_bench_msg_plan *plan = &work->plan;
	json_t *out = work->json ? soda_bench_msg_report_new(plan) : NULL;
	int err = 0;

	if (plan->sizes_n && !plan->mpi[SODA_BENCH_MSG_OPENMPI][0] &&
	    !plan->mpi[SODA_BENCH_MSG_MPICH][0])
		fputs(WHO ": no MPI: SODA was built without one, or is installed without the "
			  "programs soda-bench-openmpi and soda-bench-mpich of its build tree\n",
		      stderr);
	err = measure_rates(plan, guarded->owner, out);
	if (!err)
		err = measure_slow(plan, guarded->owner, out);
	if (!err)
		err = measure_apps(plan, guarded->owner, out);
	if (!err)
		err = measure_sweeps(plan, guarded->owner, out);
	if (out && !err)
		err = soda_json_print(out);
	else
		json_decref(out);
	return err || fflush(stdout) ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

int soda_command_bench_messages(int argc, char **argv)
{
	struct options opt = { 0 };
	struct work work;
	int code = SODA_EXIT_USAGE;

	if (soda_tool_options(&conf, argc, argv, &opt, NULL, 0) >= 0 &&
	    !make_plan(&opt, &work.plan)) {
		work.json = opt.json;
		code = soda_bench_guard_run(&(const struct soda_bench_work){ .run = run }, &work);
	}
	soda_conf_free(&conf, &opt);
	return code;
}
