/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench messages`: an agent, and jobs as processes that say how long they took. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "soda/base/tool.h"
#include "soda/bench/messages/load.h"
#include "soda/bench/messages/messages.h"
#include "wire/msg_rings.h"
#include "soda/stage/patience.h"

#define WHO "soda bench messages"

enum { RUN_PATIENCE = 15 }; /* times soda_patience_ms() for a run: 5 minutes */

const char *const soda_bench_msg_transports[] = {
	[SODA_BENCH_MSG_SHM] = "shm",
	[SODA_BENCH_MSG_TCP] = "tcp",
};
const char *const soda_bench_msg_mpis[] = {
	[SODA_BENCH_MSG_OPENMPI] = "openmpi",
	[SODA_BENCH_MSG_MPICH] = "mpich",
};
const char *const soda_bench_msg_ways[] = {
	[SODA_BENCH_MSG_ISEND] = "isend",
	[SODA_BENCH_MSG_GATHER] = "gather",
	[SODA_BENCH_MSG_ALLTOALLV] = "alltoallv",
};
const char *const soda_bench_msg_modes[] = {
	[SODA_BENCH_MSG_FREE] = "free",
	[SODA_BENCH_MSG_PROCESS] = "process",
	[SODA_BENCH_MSG_SHARED] = "shared",
	[SODA_BENCH_MSG_OWN] = "own",
};

static int complain(const char *what, int err)
{
	fprintf(stderr, WHO ": %s: %s\n", what, strerror(-err));
	return err;
}

/*
 * Ranks, or the agent, on processors of their own, or all on one; children inherit it.  Emulated:
 * the agent of a DPU has its own caches and memory, too.
 */
static int settle(int mode, bool agent)
{
	cpu_set_t all, one;
	int cpu = 0;

	if (mode == SODA_BENCH_MSG_FREE)
		return 0;
	if (sched_getaffinity(0, sizeof(all), &all))
		return complain("sched_getaffinity", -errno);
	for (int skip = mode == SODA_BENCH_MSG_OWN && agent; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && !skip--)
			break;
	if (cpu == CPU_SETSIZE)
		return complain("mode own: this machine has one processor", -EINVAL);
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) ? complain("sched_setaffinity", -errno) : 0;
}

/* A variable that ranks and agents read. */
static void set_variable(const struct soda_bench_msg_job *job)
{
	char text[24];

	if (!job->variable)
		return;
	snprintf(text, sizeof(text), "%" PRIu64, job->value);
	setenv(job->variable, text, 1);
}

static int before_agent(void *arg)
{
	const struct soda_bench_msg_job *job = arg;

	set_variable(job);
	return settle(job->mode, true);
}

/* The agent's, for inboxes of this size, and no larger ones; by shm for rings beside them. */
static uint64_t agent_bytes(const struct soda_bench_msg_job *job)
{
	uint64_t each = job->inbox_bytes;

	if (job->transport == SODA_BENCH_MSG_SHM)
		each += soda_rings_out_bytes(job->ranks, soda_rings_slot_bytes(job->ranks));
	return each * job->ranks;
}

static int start_agent(struct soda_bench_msg_job *job)
{
	char listen[64] = "tcp://127.0.0.1:0", memory[32];
	/* no page is asked for, so no memory server is */
	const char *const args[] = { "--listen",     listen, "--server",    "tcp://127.0.0.1:1",
				     "--drain",	     "0s",   "--log-level", "warning",
				     "--msg-memory", memory, NULL };
	int err;

	if (job->transport == SODA_BENCH_MSG_SHM)
		snprintf(listen, sizeof(listen), "shm://@soda-bench-messages-%ld",
			 (long)job->owner);
	snprintf(memory, sizeof(memory), "%" PRIu64, agent_bytes(job));
	err = soda_bench_daemon_start(&job->at[job->started], &soda_bench_dpu_agent, args,
				      before_agent, job);
	job->started += !err;
	return err;
}

/* Several that ranks reach by shm, and each other by tcp, soda msg run starts: it tells each rank.
 */
int soda_bench_msg_agents_start(struct soda_bench_msg_job *job)
{
	int err = 0;

	if (job->mode == SODA_BENCH_MSG_PROCESS ||
	    (job->agents > 1 && job->transport == SODA_BENCH_MSG_SHM))
		return 0;
	while (job->started < job->agents && !err)
		err = start_agent(job);
	return err;
}

void soda_bench_msg_agents_stop(struct soda_bench_msg_job *job)
{
	while (job->started)
		soda_bench_daemon_stop(&job->at[--job->started]);
}

/* Never returns. */
static void become(const char *const *args, int out, const struct soda_bench_msg_job *job)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(out, STDOUT_FILENO);
	/* Open MPI will not run as root, which a container mostly is, without these */
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	/* both MPIs yield the processor where they wait: there may be more ranks than processors */
	setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
	setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "1", 1);
	set_variable(job);
	if (settle(job->mode, false))
		_exit(SODA_EXIT_FAILED);
	execvp(args[0], (char *const *)(uintptr_t)args);
	complain(args[0], -errno);
	_exit(127);
}

/*
 * All that the process prints, cut off after `bytes`.  It starts those who work, and does nothing
 * itself meanwhile: what can be said is only that it takes too long.
 */
static int read_all(int fd, const char *name, char *text, size_t bytes)
{
	struct pollfd out = { .fd = fd, .events = POLLIN };
	uint64_t limit_ms = RUN_PATIENCE * soda_patience_ms();
	size_t n = 0;
	ssize_t got;
	char rest;

	do {
		if (poll(&out, 1, (int)limit_ms) <= 0) {
			fprintf(stderr, WHO ": %s has printed nothing for %" PRIu64 " s\n", name,
				limit_ms / 1000);
			return -ETIMEDOUT;
		}
		got = n + 1 < bytes ? read(fd, text + n, bytes - n - 1) : read(fd, &rest, 1);
		if (got > 0 && n + 1 < bytes)
			n += (size_t)got;
	} while (got > 0);
	text[n] = 0;
	return 0;
}

/* Run it to its end; what it prints is in text. */
static int run(const char *const *args, const struct soda_bench_msg_job *job, char *text,
	       size_t bytes)
{
	struct soda_patience_process process = { .name = args[0] };
	int fds[2], err, status;

	fflush(stdout);
	if (pipe(fds))
		return complain("pipe", -errno);
	process.pid = fork();
	if (process.pid == 0)
		become(args, fds[1], job);
	close(fds[1]);
	err = process.pid < 0 ? complain("fork", -errno) : read_all(fds[0], args[0], text, bytes);
	close(fds[0]);
	if (process.pid < 0)
		return err;
	if (err)
		kill(process.pid, SIGTERM); /* it ends those whom it has started */
	status = soda_patience_end(&process, 0);
	if (!err && status) {
		fprintf(stderr, WHO ": %s has failed: status %#x\n", args[0], status);
		err = -EIO;
	}
	return err;
}

static int said_nothing(const char *program, const char *text)
{
	fprintf(stderr, WHO ": %s does not say what it did: %.200s\n", program, text);
	return -EPROTO;
}

/* A run of the benchmark's own ranks, over SODA or MPI. */
static int run_ranks(const char *const *args, const struct soda_bench_msg_job *job,
		     struct soda_bench_msg_result *r)
{
	unsigned long long messages;
	char text[512];
	int verified, err = run(args, job, text, sizeof(text));

	if (err)
		return err;
	if (sscanf(text, "soda-bench-messages %lf %llu %d", &r->seconds, &messages, &verified) != 3)
		return said_nothing(args[0], text);
	r->messages = messages;
	r->bytes = r->messages * job->bytes;
	r->verified = verified && r->messages == job->messages * job->ranks;
	if (!r->verified)
		fprintf(stderr, WHO ": %s: messages were lost, or are wrong\n", args[0]);
	return r->verified ? 0 : -EILSEQ;
}

static double agent_seconds(const struct soda_bench_msg_job *job)
{
	double sum = job->started ? 0 : NAN;

	for (uint32_t i = 0; i < job->started; i++)
		sum += (double)soda_bench_daemon_cpu_ns(&job->at[i]) / 1e9;
	return sum;
}

/* How soda msg run is told who routes: the option, and its value. */
static const char *say_agents(const struct soda_bench_msg_job *job, char *value, size_t bytes)
{
	size_t n = 0;

	if (job->mode == SODA_BENCH_MSG_PROCESS) {
		snprintf(value, bytes, "process");
		return "--routing";
	}
	if (!job->started) {
		snprintf(value, bytes, "%u", job->agents);
		return "--nodes";
	}
	for (uint32_t i = 0; i < job->started; i++)
		n += (size_t)snprintf(value + n, bytes - n, "%s%s", i ? "," : "",
				      job->at[i].address);
	return job->started > 1 ? "--agents" : "--agent";
}

enum { AGENTS_BYTES = SODA_BENCH_MSG_AGENTS_MAX * 132 };

/* The command of a job over SODA, whose ranks work in that way. The words of args are in text. */
struct command {
	char ranks[16], bytes[16], messages[24], flush[16], agents[AGENTS_BYTES];
	const char *args[16];
};

static void make_command(const struct soda_bench_msg_job *job, const char *way, struct command *c)
{
	static const char self[] = "/proc/self/exe";
	const char *option = say_agents(job, c->agents, sizeof(c->agents));
	const char *const args[] = { self,	  "msg",    "run", "-n",    c->ranks, option,
				     c->agents,	  "--",	    self,  "bench", ".rank",  c->bytes,
				     c->messages, c->flush, way,   NULL };

	memcpy(c->args, args, sizeof(args));
	snprintf(c->ranks, sizeof(c->ranks), "%u", job->ranks);
	snprintf(c->bytes, sizeof(c->bytes), "%u", job->bytes);
	snprintf(c->messages, sizeof(c->messages), "%" PRIu64, job->messages);
	snprintf(c->flush, sizeof(c->flush), "%u", job->flush_us);
}

int soda_bench_msg_run_soda(struct soda_bench_msg_job *job, bool many,
			    struct soda_bench_msg_result *r)
{
	double before = agent_seconds(job);
	struct command c;
	int err;

	make_command(job, many ? "many" : "each", &c);
	err = run_ranks(c.args, job, r);
	r->agent_seconds = agent_seconds(job) - before;
	return err;
}

int soda_bench_msg_run_slow(struct soda_bench_msg_job *job, struct soda_bench_msg_slow *slow)
{
	struct command c;
	char text[512];
	int err;

	make_command(job, "slow", &c);
	err = run(c.args, job, text, sizeof(text));
	if (!err && sscanf(text, "soda-bench-messages-slow %lf %lf %lf", &slow->p50, &slow->p99,
			   &slow->most) != 3)
		err = said_nothing(c.args[0], text);
	return err;
}

int soda_bench_msg_run_mpi(const struct soda_bench_msg_job *job, int mpi, const char *program,
			   int way, struct soda_bench_msg_result *r)
{
	char ranks[16], bytes[16], messages[24];
	const char *openmpi[] = { "mpirun.openmpi",
				  "--oversubscribe",
				  "--bind-to",
				  "none",
				  "-n",
				  ranks,
				  program,
				  NULL,
				  NULL,
				  NULL,
				  NULL };
	const char *mpich[] = { "mpirun.mpich", "-n", ranks, program, NULL, NULL, NULL, NULL };
	const char **args = mpi == SODA_BENCH_MSG_OPENMPI ? openmpi : mpich, **end = args;

	snprintf(ranks, sizeof(ranks), "%u", job->ranks);
	snprintf(bytes, sizeof(bytes), "%u", job->bytes);
	snprintf(messages, sizeof(messages), "%" PRIu64, job->messages);
	while (*end)
		end++;
	end[0] = soda_bench_msg_ways[way];
	end[1] = bytes;
	end[2] = messages;
	r->agent_seconds = NAN;
	return run_ranks(args, job, r);
}

/* NAME: N ranks, WHAT: SECONDS s, N messages, N bytes: as computed by one process */
static int parse_app(const char *path, const char *text, struct soda_bench_msg_result *r)
{
	const char *at = strstr(text, " s, ");

	while (at && at > text && at[-1] != ' ')
		at--;
	if (!at ||
	    sscanf(at, "%lf s, %lf s of processors, %" SCNu64 " messages, %" SCNu64 " bytes:",
		   &r->seconds, &r->ranks_seconds, &r->messages, &r->bytes) != 4)
		return said_nothing(path, text);
	r->verified = strstr(at, "as computed by one process") != NULL;
	return 0;
}

int soda_bench_msg_run_app(struct soda_bench_msg_job *job, const char *path,
			   struct soda_bench_msg_result *r)
{
	char ranks[16], text[1024], agents[AGENTS_BYTES];
	const char *option = say_agents(job, agents, sizeof(agents));
	const char *const args[] = { "/proc/self/exe",
				     "msg",
				     "run",
				     "-n",
				     ranks,
				     option,
				     agents,
				     "--links",
				     soda_bench_msg_transports[job->transport],
				     "--",
				     path,
				     NULL };
	double before = agent_seconds(job);
	int err;

	snprintf(ranks, sizeof(ranks), "%u", job->ranks);
	err = run(args, job, text, sizeof(text));
	r->agent_seconds = agent_seconds(job) - before;
	return err ? err : parse_app(path, text, r);
}

/* Beside this program in the build tree; what an installation does not have is not there. */
void soda_bench_msg_find_mpis(struct soda_bench_msg_plan *plan)
{
	char path[PATH_MAX], name[64];
	const char *const places[] = { name, NULL };

	for (int i = 0; i < SODA_BENCH_MSG_MPIS; i++) {
		snprintf(name, sizeof(name), "soda-bench-%s", soda_bench_msg_mpis[i]);
		if (soda_tool_find(places, path) && strlen(path) < sizeof(plan->mpi[i]))
			strcpy(plan->mpi[i], path);
	}
}

bool soda_bench_msg_find_app(const char *name, char path[PATH_MAX])
{
	char built[256];
	const char *const places[] = { built, NULL };

	snprintf(built, sizeof(built), "../../examples/messages/%s", name);
	return soda_tool_find(places, path);
}
