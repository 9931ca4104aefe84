/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda msg run`: the ranks of a job as processes of this machine, and agents for them where none
 * are named, or the ranks do not route themselves.  All of them end with this process, however that
 * ends.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "soda/base/tool.h"
#include "soda/msg/net.h"
#include "soda/stage/daemon.h"

enum {
	RANKS_MAX = 4096,  /* of a job (soda_msg.h) */
	NODES_MAX = 64,	   /* its agents (soda_msg.h) */
	GRACE_S = 8,	   /* ranks end by themselves so long after one has failed */
	MEMORY_LEAST = 16, /* MiB of our agent's */
	MEMORY_RANK = 4,   /* of them for a rank: its inbox, and its rings */
	CANNOT_RUN = 126,
	NOT_FOUND = 127,
};

struct options {
	uint32_t ranks, nodes;
	char *agent, *agents, *links, *routing;
};

static const struct soda_option option_table[] = {
	OPTION("ranks", 'n', UINT, ranks, .arg = "RANKS", .def = "1", .min = 1, .max = RANKS_MAX,
	       .help = "How many processes."),
	OPTION("agent", 'a', STRING, agent, .arg = "ADDRESS", .max = SODA_ADDRESS_MAX,
	       .help = "The agent that routes: tcp://HOST:PORT, or shm:///PATH. Default: one that "
		       "is started for this job."),
	OPTION("nodes", 'N', UINT, nodes, .arg = "NODES", .def = "1", .min = 1, .max = NODES_MAX,
	       .help = "Start so many agents, each for as many ranks in a row: what ranks of "
		       "different agents send each other goes from agent to agent."),
	OPTION("links", 'l', STRING, links, .arg = "TRANSPORT", .def = "shm", .max = 8,
	       .help = "How these agents reach each other: shm, as agents of one machine; tcp, as "
		       "if they were on several; net, by tcp, each with its ranks in a network "
		       "namespace of its own, from which it reaches nothing else. Where namespaces "
		       "cannot be had (they need root), tcp, with a line that says so."),
	OPTION("routing", 'R', STRING, routing, .arg = "WHERE", .def = "agent", .max = 8,
	       .help = "Who routes: agent, or process: threads of each rank's own process, for at "
		       "most 64 ranks, and no agent is started. These reach each other as agents "
		       "do, by --links, and not by net."),
	OPTION("agents", 'A', STRING, agents, .arg = "ADDRESS,...", .max = 65535,
	       .help = "The agents, by the addresses at which they reach each other, each for as "
		       "many ranks in a row."),
};

static const struct soda_conf conf = {
	.program = "soda msg run",
	.summary = "run a program of many ranks that send each other messages",
	.args = "-- PROGRAM [ARGUMENT]...",
	.description =
		"Runs PROGRAM several times at once on this machine, each time with another "
		"rank: SODA_MSG_RANK, SODA_MSG_RANKS, SODA_MSG_AGENT or SODA_MSG_AGENTS, "
		"SODA_MSG_JOB and SODA_MSG_KEY are set as soda_msg_start(3) reads them, the last "
		"two to random text. Where no agent is named a soda-dpu-agent is started, or one "
		"for each of the --nodes, with 4 MiB of --msg-memory for each rank, 16 MiB or "
		"more, and ends with the job. With --routing process SODA_MSG_ROUTING says so, and "
		"SODA_MSG_AGENTS has an address for each rank.\n\n"
		"When a rank fails the others have 8 seconds to end by themselves; then they "
		"are ended.\n\n"
		"Programs start under mpirun and srun as well, without this command: "
		"soda_msg_start(3).",
	.epilogue = ".SH EXIT STATUS\n0 if that of all ranks is; else that of the first one that "
		    "failed, 128 and the signal's number if a signal ended it; 126 PROGRAM cannot "
		    "be run, 127 it was not found; 1 there is no agent; 2 wrong usage.\n"
		    ".SH EXAMPLES\n.nf\n"
		    "soda msg run \\-n 4 \\-\\- ./histogram\n"
		    "soda msg run \\-n 4 \\-\\-nodes 2 \\-\\- ./histogram\n"
		    "soda msg run \\-n 4 \\-\\-routing process \\-\\- ./histogram\n"
		    ".fi\n"
		    ".SH SEE ALSO\n.BR soda\\-dpu\\-agent (1),\n.BR soda_msg_start (3),\n.BR soda "
		    "(7)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

struct ranks {
	pid_t pids[RANKS_MAX]; /* 0: has ended */
	uint32_t n, left;
	int status; /* of the first that failed */
};

/* Random text, different for each job. 0 or negative errno. */
static int set_random(const char *name)
{
	uint64_t random[2];
	char text[48];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -errno;
	snprintf(text, sizeof(text), "%016llx%016llx", (unsigned long long)random[0],
		 (unsigned long long)random[1]);
	return setenv(name, text, 1) ? -errno : 0;
}

/* The agents of the job that this program has started. */
struct nodes {
	struct soda_bench_daemon at[NODES_MAX];
	uint32_t n;
	bool tcp; /* they reach each other so */
	bool net; /* in namespaces of their own */
};

static int before_agent(void *arg)
{
	const struct nodes *nodes = arg;

	return nodes->net ? soda_msg_net_begin(nodes->n) : 0;
}

/* One that its ranks reach by shm, and other agents as well, or by tcp. */
static int start_agent(struct nodes *nodes, uint32_t ranks)
{
	char listen[64], memory[32], host[SODA_MSG_NET_ADDRESS] = "127.0.0.1", first[32];
	/* no page is asked for, so no memory server is; the address that it says is its first */
	const char *const args[] = { "--server",
				     "tcp://127.0.0.1:1",
				     "--drain",
				     "0s",
				     "--log-level",
				     "warning",
				     "--msg-memory",
				     memory,
				     "--listen",
				     nodes->tcp ? first : listen,
				     nodes->tcp ? "--listen" : NULL,
				     listen,
				     NULL };

	if (nodes->net)
		soda_msg_net_address(nodes->n, host);
	snprintf(first, sizeof(first), "tcp://%s:0", host);
	snprintf(listen, sizeof(listen), "shm://@soda-msg-%d-%u", (int)getpid(), nodes->n);
	snprintf(memory, sizeof(memory), "%uM",
		 ranks * MEMORY_RANK < MEMORY_LEAST ? MEMORY_LEAST : ranks * MEMORY_RANK);
	if (soda_bench_daemon_start(&nodes->at[nodes->n], &soda_bench_dpu_agent, args, before_agent,
				    nodes))
		return -1;
	nodes->n++;
	return 0;
}

static int start_agents(struct nodes *nodes, const struct options *opt)
{
	uint32_t n = opt->nodes < opt->ranks ? opt->nodes : opt->ranks;

	nodes->tcp = n > 1 && strcmp(opt->links, "shm") != 0;
	nodes->net = n > 1 && strcmp(opt->links, "net") == 0 && soda_msg_net_make();
	while (nodes->n < n)
		if (start_agent(nodes, opt->ranks))
			return -1;
	return 0;
}

static int set_list(const struct nodes *nodes)
{
	char list[NODES_MAX * (sizeof(nodes->at[0].address) + 1)] = "";

	for (uint32_t i = 0; i < nodes->n; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? "," : "",
			 nodes->at[i].address);
	return setenv("SODA_MSG_AGENTS", list, 1);
}

static bool is_process(const struct options *opt)
{
	return !strcmp(opt->routing, "process");
}

/*
 * Where each rank's router is: by tcp at an address of the loopback network that nobody else has,
 * so that its port is free.
 */
static int set_routers(const struct options *opt)
{
	enum { EACH = 40, PORT_LEAST = 20000, PORTS = 10000 };
	char list[NODES_MAX * EACH] = "";
	uint32_t r;

	if (getrandom(&r, sizeof(r), 0) != sizeof(r))
		return -errno;
	for (uint32_t i = 0; i < opt->ranks; i++) {
		size_t n = strlen(list);

		if (strcmp(opt->links, "tcp") != 0)
			snprintf(list + n, sizeof(list) - n, "%sshm://@soda-msg-%d-%u",
				 i ? "," : "", (int)getpid(), i);
		else
			snprintf(list + n, sizeof(list) - n, "%stcp://127.%u.%u.%u:%u",
				 i ? "," : "", 1 + (r & 0x7f), r >> 7 & 0xff, 1 + i,
				 PORT_LEAST + (r >> 15) % PORTS);
	}
	return setenv("SODA_MSG_AGENTS", list, 1);
}

/* How ranks find their agents. */
static int set_agents(const struct options *opt, const struct nodes *nodes)
{
	unsetenv("SODA_MSG_PLACES"); /* of a job that this one may run in, and so the others */
	unsetenv("SODA_MSG_AGENTS");
	unsetenv("SODA_MSG_AGENT");
	unsetenv("SODA_MSG_LISTEN");
	unsetenv("SODA_MSG_HOSTS");
	unsetenv("SODA_MSG_PORT");
	if (setenv("SODA_MSG_ROUTING", opt->routing, 1))
		return -errno;
	if (is_process(opt))
		return set_routers(opt);
	if (opt->agents)
		return setenv("SODA_MSG_AGENTS", opt->agents, 1);
	if (nodes->n > 1)
		return set_list(nodes);
	return setenv("SODA_MSG_AGENT", opt->agent ? opt->agent : nodes->at[0].address, 1);
}

/* Never returns. */
static void become(char **argv, uint32_t rank, const struct nodes *nodes, const char *agent,
		   uint32_t node, pid_t parent, const sigset_t *signals)
{
	char number[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(NOT_FOUND); /* it has ended before */
	if (nodes->net && soda_msg_net_enter(nodes->at[node].pid)) {
		fprintf(stderr, "soda msg run: rank %u cannot enter its agent's namespace: %s\n",
			rank, strerror(errno));
		_exit(CANNOT_RUN);
	}
	sigprocmask(SIG_SETMASK, signals, NULL);
	snprintf(number, sizeof(number), "%u", rank);
	setenv("SODA_MSG_RANK", number, 1);
	if (agent)
		setenv("SODA_MSG_AGENT", agent, 1);
	execvp(argv[0], argv);
	if (!rank) /* one line, not one for each rank */
		fprintf(stderr, "soda msg run: %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? NOT_FOUND : CANNOT_RUN);
}

/* The agent of a rank, which has as many in a row as the others. */
static uint32_t node_of(uint32_t rank, uint32_t n, const struct nodes *nodes)
{
	return (uint32_t)((uint64_t)rank * nodes->n / n);
}

/* Its shm address, or NULL. */
static const char *agent_of(uint32_t node, const struct nodes *nodes, pid_t parent)
{
	static char address[64];

	if (nodes->n < 2)
		return NULL;
	snprintf(address, sizeof(address), "shm://@soda-msg-%d-%u", (int)parent, node);
	return address;
}

static int start_ranks(struct ranks *all, uint32_t n, const struct nodes *nodes, char **argv,
		       const sigset_t *signals)
{
	pid_t parent = getpid();

	for (all->n = 0; all->n < n; all->n++) {
		uint32_t node = node_of(all->n, n, nodes);
		pid_t pid = fork();

		if (pid < 0) {
			fprintf(stderr, "soda msg run: cannot start rank %u: %s\n", all->n,
				strerror(errno));
			return -1;
		}
		if (!pid)
			become(argv, all->n, nodes, agent_of(node, nodes, parent), node, parent,
			       signals);
		all->pids[all->n] = pid;
		all->left++;
	}
	return 0;
}

static void take_end(struct ranks *all, uint32_t rank, int status)
{
	int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

	all->pids[rank] = 0;
	all->left--;
	if (WIFSIGNALED(status) && !all->status)
		fprintf(stderr, "soda msg run: rank %u was ended by signal %d (%s)\n", rank,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (!all->status)
		all->status = code;
}

static void reap(struct ranks *all)
{
	int status;

	for (uint32_t i = 0; i < all->n; i++)
		if (all->pids[i] && waitpid(all->pids[i], &status, WNOHANG) == all->pids[i])
			take_end(all, i, status);
}

static void kill_all(const struct ranks *all)
{
	for (uint32_t i = 0; i < all->n; i++)
		if (all->pids[i])
			kill(all->pids[i], SIGKILL);
}

/* Until all have ended; SIGCHLD is blocked. */
static void await_ranks(struct ranks *all)
{
	const struct timespec look = { .tv_sec = 1 };
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	for (time_t end = 0; all->left;) {
		reap(all);
		if (all->status && !end)
			end = time(NULL) + GRACE_S;
		if (end && time(NULL) > end)
			kill_all(all);
		if (all->left)
			sigtimedwait(&chld, NULL, &look);
	}
}

static int run_ranks(const struct options *opt, const struct nodes *nodes, char **argv)
{
	static struct ranks all;
	sigset_t chld, before;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, &before);
	if (start_ranks(&all, opt->ranks, nodes, argv, &before)) {
		all.status = SODA_EXIT_FAILED;
		kill_all(&all);
	}
	await_ranks(&all);
	return all.status;
}

/* A job of these options, and agents for it where none are named. */
static int run_job(const struct options *opt, char **program)
{
	static struct nodes nodes;
	char ranks[16];
	int ret = SODA_EXIT_FAILED;

	snprintf(ranks, sizeof(ranks), "%u", opt->ranks);
	if (!opt->agent && !opt->agents && !is_process(opt) && start_agents(&nodes, opt)) {
		/* said */
	} else if (set_agents(opt, &nodes) || setenv("SODA_MSG_RANKS", ranks, 1) ||
		   set_random("SODA_MSG_JOB") || set_random("SODA_MSG_KEY")) {
		fputs("soda msg run: cannot set the environment\n", stderr);
	} else {
		ret = run_ranks(opt, &nodes, program);
	}
	while (nodes.n)
		soda_bench_daemon_stop(&nodes.at[--nodes.n]);
	return ret;
}

/* Who routes, and how they reach each other. Whether that can be. */
static bool check_options(const struct options *opt)
{
	if (strcmp(opt->links, "shm") != 0 && strcmp(opt->links, "tcp") != 0 &&
	    strcmp(opt->links, "net") != 0)
		fprintf(stderr, "soda msg run: --links is shm, tcp or net, not \"%s\"\n",
			opt->links);
	else if (strcmp(opt->routing, "agent") != 0 && !is_process(opt))
		fprintf(stderr, "soda msg run: --routing is agent or process, not \"%s\"\n",
			opt->routing);
	else if (!!opt->agent + !!opt->agents + (opt->nodes > 1) > 1)
		fputs("soda msg run: of --agent, --agents and --nodes one alone says which agents"
		      " there are\n",
		      stderr);
	else if (is_process(opt) && (opt->agent || opt->agents || opt->nodes > 1))
		fputs("soda msg run: with --routing process there are no agents: no --agent,"
		      " --agents or --nodes\n",
		      stderr);
	else if (is_process(opt) && (opt->ranks > NODES_MAX || !strcmp(opt->links, "net")))
		fprintf(stderr,
			"soda msg run: --routing process is for at most %d ranks, and --links of"
			" shm or tcp\n",
			NODES_MAX);
	else
		return true;
	return false;
}

static int command_run(int argc, char **argv)
{
	struct options opt = { 0 };
	struct soda_conf_error err;
	int first, ret = SODA_EXIT_USAGE;

	if (soda_conf_defaults(&conf, &opt, &err) ||
	    soda_conf_flags(&conf, argc, argv, &opt, &first, &err))
		fprintf(stderr, "soda msg run: %s\n", err.text);
	else if (first >= argc)
		fputs("soda msg run: which program? soda msg run -n RANKS -- PROGRAM "
		      "[ARGUMENT]...\n",
		      stderr);
	else if (check_options(&opt))
		ret = run_job(&opt, argv + first);
	soda_conf_free(&conf, &opt);
	return ret;
}

static const char usage[] = "Usage: soda msg COMMAND [ARGUMENT]...\n"
			    "\n"
			    "Commands:\n"
			    "  run      start the ranks of a program, and agents for them\n"
			    "\n"
			    "soda msg COMMAND --help tells its options.\n";

int soda_command_msg(int argc, char **argv)
{
	static const struct soda_tool_command commands[] = { { "run", command_run },
							     { NULL, NULL } };

	return soda_tool_choose(commands, "soda msg: no command", usage, argc, argv);
}
