/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench pool`: options, servers, who is killed or stopped when, the results. */
#include "soda/bench/pool/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/bench/worker/summary.h"
#include "soda/bench/worker/worker.h"
#include "soda/stage/daemon.h"
#include "soda/stage/footprint.h"
#include "soda/stage/guard.h"
#include "soda/stage/link.h"

#define WHO "soda bench pool"
#define LATE "/late" /* in a folder of the benchmark's own */

enum { RAND, RMW, SEQ, READY_MS = 300000, RESTART_MS = 1000, STOPPED_MS = 2500 };
/* A pause that a pool waits for, and the time to the next one. */
enum { PAUSED_MS = 700, BETWEEN_MS = 300, BUSY_MAX = 64 };

static const char *const patterns[] = { "rand", "rmw", "seq", NULL };
static const char *const redundancies[] = { "none",	"mirror:2", "ec:2+1",	"ec:2+2",
					    "ec:4+1",	"ec:4+2",   "ec:8+1",	"ec:8+2",
					    "stripe:2", "stripe:4", "stripe:8", NULL };
static const char *const transports[] = { "tcp", "shm", NULL };
/* How many servers each needs. */
static const uint32_t servers_of[] = { 1, 2, 3, 4, 5, 6, 9, 10, 2, 4, 8 };

struct options {
	uint32_t servers, redundancy, threads, pattern, kills, stops, pauses, delay_ms, busy,
		rounds, seed;
	uint64_t ms, size, chunk;
	uint32_t host_transport;
	char *link;
	bool agent, json;
};

static const struct soda_option option_table[] = {
	OPTION("servers", 'n', UINT, servers, .arg = "N", .def = "4", .min = 1,
	       .max = SODA_BENCH_POOL_SERVERS, .help = "Memory servers of the pool."),
	OPTION("redundancy", 'R', CHOICE, redundancy, .arg = "KIND", .def = "none",
	       .choices = redundancies, .help = "As SODA_REDUNDANCY."),
	OPTION("threads", 't', UINT, threads, .arg = "N", .def = "2", .min = 1, .max = 64,
	       .help = "Threads of the program."),
	OPTION("pattern", 'p', CHOICE, pattern, .arg = "PATTERN", .def = "rand",
	       .choices = patterns,
	       .help = "rand: a word of a random page is read; rmw: and stored to; seq: one of "
		       "each page after the other."),
	OPTION("size", 's', SIZE, size, .arg = "SIZE", .def = "256M", .min = 16u << 20,
	       .max = 1ull << 40, .help = "Size of the object; the page buffer is a third of it."),
	OPTION("chunk", 'c', SIZE, chunk, .arg = "SIZE", .def = "64K", .min = 4096, .max = 2u << 20,
	       .help = "Chunk size, a power of two."),
	OPTION("time", 0, TIME_MS, ms, .arg = "TIME", .def = "3s", .min = 100, .max = 600000,
	       .help = "How long each side runs in a round; longer where servers are killed."),
	OPTION("kill", 'k', UINT, kills, .arg = "N", .def = "0", .max = 1000,
	       .help = "Kill a server so often in a round of the pool's, and start it anew a "
		       "second later; the next one when no copy is missing."),
	OPTION("stop", 0, UINT, stops, .arg = "N", .def = "0", .max = 1000,
	       .help = "Stop a server so often, each time for 2.5 s."),
	OPTION("pause", 0, UINT, pauses, .arg = "N", .def = "0", .max = 1000,
	       .help = "Stop a server so often for 0.7 s, each time any, with 0.3 s between: no "
		       "copy may be given up for that."),
	OPTION("delay", 0, UINT, delay_ms, .arg = "MS", .def = "0", .max = 700,
	       .help = "All that the first server answers comes so many milliseconds later."),
	OPTION("busy", 0, UINT, busy, .arg = "N", .def = "0", .max = BUSY_MAX,
	       .help = "So many other processes compute meanwhile, beside both sides."),
	OPTION("link", 'l', STRING, link, .arg = "RATE", .min = 1, .max = 31,
	       .help = "Each server, also the single one, lies behind a network link of its own "
		       "at so many bits a second (1gbit), in a network namespace, and is "
		       "reached by tcp. Needs root. Default: no limit."),
	OPTION("agent", 0, BOOL, agent,
	       .help = "A DPU agent stands between the program and the servers, on both sides."),
	OPTION("host-transport", 0, CHOICE, host_transport, .arg = "NAME", .def = "tcp",
	       .choices = transports, .help = "With --agent: between the program and the agent."),
	OPTION("rounds", 'r', UINT, rounds, .arg = "N", .def = "3", .min = 1,
	       .max = SODA_BENCH_ROUNDS_MAX, .help = "Rounds of both sides in turns."),
	OPTION("seed", 0, UINT, seed, .arg = "N", .def = "1", .max = 1u << 31,
	       .help = "Of the accesses, and of when which server is killed or stopped."),
	OPTION("json", 'j', BOOL, json, .help = "Print one JSON object on standard output."),
};

static const struct soda_conf conf = {
	.program = WHO,
	.summary = "measure a pool of memory servers",
	.args = "",
	.description =
		"A program touches random pages of an object on a pool of memory servers, and "
		"verifies what it reads; in turns with it the same program runs on one server "
		"without redundancy. The benchmark starts and ends all servers, on tcp.\n\n"
		"Rates are bytes that were fetched; ratios are those of the pool to the one "
		"server, medians of the rounds. CPU is that of the program, the agent and all "
		"servers for "
		"each byte fetched. Memory is that of all servers for each byte of the object. "
		"The stall is the longest access, p99 what 99 of 100 do not exceed, expelled how "
		"many copies of slabs were given up. Wrong and lost bytes also count what a look "
		"at "
		"all of the object at the end finds. Written is what the program sends for each "
		"dirty byte; with erasure codes for each byte of the chunks that it writes.",
	.epilogue =
		".SH EXIT STATUS\n0 success, 1 failure, or wrong or lost bytes, 2 wrong usage.\n"
		".SH EXAMPLES\n.nf\nsoda bench pool \\-\\-redundancy mirror:2 \\-\\-servers 3 "
		"\\-\\-pattern rmw \\-\\-kill 1\n.fi\n"
		".SH SEE ALSO\n.BR soda (1),\n.BR soda\\-bench\\-fault (1),\n"
		".BR soda\\-mem\\-server (1)\n",
	.options = option_table,
	.options_n = sizeof(option_table) / sizeof(option_table[0]),
};

/* One side of a round. */
struct side {
	const struct options *opt;
	uint32_t servers_n;
	struct soda_bench_daemon servers[SODA_BENCH_POOL_SERVERS];
	struct soda_bench_daemon agent; /* pid 0: none */
	struct soda_bench_pool_plan plan;
	struct soda_bench_pool_shared *shared;
	pid_t program;
	uint64_t state; /* of the dice */
	double memory;	/* of the servers, for each byte of the object */
	uint64_t cpu_ns;
	struct soda_bench_link links[SODA_BENCH_POOL_SERVERS];
	pid_t owner;   /* of the links */
	char late[40]; /* a file: while it is there the first server is late; "": it never is */
	pid_t busy[BUSY_MAX];
};

struct sample {
	double gb_per_s, cpu; /* nanoseconds a byte */
	double memory, p99_ms;
	struct soda_bench_pool_load load;
};

static uint64_t draw(struct side *s)
{
	s->state ^= s->state << 13;
	s->state ^= s->state >> 7;
	s->state ^= s->state << 17;
	return s->state >> 8;
}

static int start_server(struct side *s, uint32_t i, const char *listen)
{
	struct soda_bench_link *link = &s->links[i];
	const struct soda_bench_start start = { s->opt->link ? soda_bench_link_enter : NULL, link };
	char there[64];
	int err;

	if (s->opt->link) {
		err = soda_bench_link_plan_nth(s->opt->link, s->owner, i, link);
		if (err)
			return err;
		snprintf(there, sizeof(there), "tcp://%s:0", link->server_ip);
		listen = there;
	}
	err = soda_bench_server_start(&s->servers[i], listen, 2 * s->plan.bytes + (64u << 20), NULL,
				      &start);
	return err || !s->opt->link ? err : soda_bench_link_join(link);
}

/* Memory of all servers. */
static double memory_of(const struct side *s)
{
	double sum = 0;

	for (uint32_t i = 0; i < s->servers_n; i++) {
		struct soda_footprint f;

		if (soda_footprint_read(s->servers[i].pid, &f))
			return NAN;
		sum += (double)(f.anon_bytes + f.shmem_bytes);
	}
	return sum;
}

static uint64_t servers_cpu(const struct side *s)
{
	uint64_t sum = s->agent.pid ? soda_bench_daemon_cpu_ns(&s->agent) : 0;

	for (uint32_t i = 0; i < s->servers_n; i++)
		sum += soda_bench_daemon_cpu_ns(&s->servers[i]);
	return sum;
}

/* Wait for the program's step. 0; -EIO: it has ended; -ETIMEDOUT. */
static int await_step(struct side *s, uint32_t step)
{
	uint64_t deadline = soda_now_ns() + READY_MS * 1000000ull;
	int status;

	while (atomic_load(&s->shared->step) < step) {
		if (waitpid(s->program, &status, WNOHANG) == s->program) {
			s->program = 0;
			fprintf(stderr, WHO ": the program has ended\n");
			return -EIO;
		}
		if (soda_now_ns() > deadline) {
			fprintf(stderr, WHO ": the program stands still\n");
			return -ETIMEDOUT;
		}
		poll(NULL, 0, 2);
	}
	return 0;
}

/* To the program's list. */
static void add_address(struct side *s, uint32_t i)
{
	char *list = s->plan.servers, rules[112] = "";

	if (!i && s->late[0])
		snprintf(rules, sizeof(rules), "?do=delay&ms=%u&on=read,write,call&while=%s",
			 s->opt->delay_ms, s->late);
	snprintf(list + strlen(list), sizeof(s->plan.servers) - strlen(list), "%s%s%.64s%s",
		 i ? "," : "", rules[0] ? "fault+" : "", s->servers[i].address, rules);
}

/* A name of a file that nobody else makes. */
static int name_late(struct side *s)
{
	strcpy(s->late, "/tmp/soda-bench-pool-XXXXXX");
	if (!mkdtemp(s->late)) {
		s->late[0] = '\0';
		return -errno;
	}
	strcat(s->late, LATE);
	return 0;
}

static void forget_late(struct side *s)
{
	if (!s->late[0])
		return;
	unlink(s->late);
	*strrchr(s->late, '/') = '\0';
	rmdir(s->late);
}

/* From now on the first server is late, and others compute. */
static int begin_trouble(struct side *s)
{
	FILE *file = s->late[0] ? fopen(s->late, "w") : NULL;

	if (s->late[0] && !file)
		return -errno;
	if (file)
		fclose(file);
	for (uint32_t i = 0; i < s->opt->busy; i++) {
		s->busy[i] = fork();
		if (s->busy[i] < 0)
			return -errno;
		if (!s->busy[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (volatile uint64_t n = 0;; n++)
				;
		}
	}
	return 0;
}

static void end_trouble(struct side *s)
{
	if (s->late[0])
		unlink(s->late);
	for (uint32_t i = 0; i < s->opt->busy; i++)
		if (s->busy[i] > 0) {
			kill(s->busy[i], SIGKILL);
			waitpid(s->busy[i], NULL, 0);
			s->busy[i] = 0;
		}
}

/* The program names the agent instead of the servers. */
static int start_agent(struct side *s)
{
	static unsigned agents; /* so far */
	const struct soda_bench_start nothing = { 0 };
	char listen[64] = "tcp://127.0.0.1:0";
	int err;

	if (s->opt->host_transport)
		snprintf(listen, sizeof(listen), "shm://@soda-bench-pool-%ld-%u", (long)getpid(),
			 agents++);
	err = soda_bench_agent_start(&s->agent, listen, s->plan.servers, &nothing);
	if (!err)
		snprintf(s->plan.servers, sizeof(s->plan.servers), "%s", s->agent.address);
	return err;
}

static int open_side(struct side *s)
{
	double before, used;
	int err = 0;

	for (uint32_t i = 0; i < s->servers_n && !err; i++) {
		err = start_server(s, i, "tcp://127.0.0.1:0");
		add_address(s, i);
	}
	if (!err && s->opt->agent)
		err = start_agent(s);
	if (err)
		return err;
	before = memory_of(s);
	s->shared = mmap(NULL, sizeof(*s->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->shared == MAP_FAILED)
		return -ENOMEM;
	s->program = fork();
	if (s->program < 0)
		return -errno;
	if (!s->program) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(soda_bench_pool_program(&s->plan, s->shared));
	}
	err = await_step(s, SODA_BENCH_POOL_READY);
	used = memory_of(s) - before;
	s->memory = used / (double)s->plan.bytes;
	return err;
}

static void close_side(struct side *s)
{
	if (s->program > 0) {
		kill(s->program, SIGKILL);
		waitpid(s->program, NULL, 0);
	}
	if (s->agent.pid)
		soda_bench_daemon_stop(&s->agent);
	for (uint32_t i = 0; i < s->servers_n; i++)
		soda_bench_daemon_stop(&s->servers[i]);
	if (s->shared && s->shared != MAP_FAILED)
		munmap(s->shared, sizeof(*s->shared));
}

/* All slabs have their copies. */
static int await_copies(struct side *s)
{
	uint64_t deadline = soda_now_ns() + READY_MS * 1000000ull;

	poll(NULL, 0, 50); /* the program looks every 5 ms */
	while (atomic_load(&s->shared->missing)) {
		if (soda_now_ns() > deadline)
			return -ETIMEDOUT;
		poll(NULL, 0, 5);
	}
	return 0;
}

static int kill_one(struct side *s)
{
	uint32_t i = (uint32_t)(draw(s) % s->servers_n);
	struct soda_bench_daemon *server = &s->servers[i];
	char address[sizeof(server->address)];
	int err;

	snprintf(address, sizeof(address), "%s", server->address);
	s->cpu_ns += soda_bench_daemon_cpu_ns(server);
	kill(server->pid, SIGKILL);
	waitpid(server->pid, NULL, 0);
	close(server->out);
	server->pid = 0;
	poll(NULL, 0, RESTART_MS);
	err = start_server(s, i, address);
	poll(NULL, 0, RESTART_MS);
	return err ? err : await_copies(s);
}

/* Any server stands still for so long, and then nothing happens for a while. */
static void stop_any(struct side *s, int stopped_ms, int after_ms)
{
	pid_t pid = s->servers[draw(s) % s->servers_n].pid;

	kill(pid, SIGSTOP);
	poll(NULL, 0, stopped_ms);
	kill(pid, SIGCONT);
	poll(NULL, 0, after_ms);
}

static int stop_one(struct side *s)
{
	stop_any(s, STOPPED_MS, RESTART_MS);
	return await_copies(s);
}

/* The load runs, and what is to go wrong does. */
static int disturb(struct side *s, bool pool)
{
	const struct options *opt = s->opt;
	int err = 0;

	for (uint32_t i = 0; pool && i < opt->kills && !err; i++) {
		poll(NULL, 0, (int)(draw(s) % (opt->ms / 2)));
		err = kill_one(s);
	}
	for (uint32_t i = 0; pool && i < opt->stops && !err; i++) {
		poll(NULL, 0, (int)(draw(s) % (opt->ms / 2)));
		err = stop_one(s);
	}
	for (uint32_t i = 0; pool && i < opt->pauses && !err; i++)
		stop_any(s, PAUSED_MS, BETWEEN_MS);
	if (!err)
		poll(NULL, 0, (int)opt->ms);
	return err;
}

struct work {
	struct options opt;
	pid_t owner; /* of links: this process, which the guard knows */
	struct sample one[SODA_BENCH_ROUNDS_MAX], pool[SODA_BENCH_ROUNDS_MAX];
};

static int run_side(const struct work *w, bool pool, uint32_t round, struct sample *out)
{
	const struct options *opt = &w->opt;
	struct side s = { .opt = opt, .servers_n = pool ? opt->servers : 1, .owner = w->owner };
	uint64_t cpu;
	int err;

	s.state = (opt->seed + round + 1) * 0x9e3779b97f4a7c15u;
	s.plan = (struct soda_bench_pool_plan){
		.redundancy = pool ? redundancies[opt->redundancy] : "none",
		.bytes = opt->size / opt->chunk * opt->chunk,
		.buffer_bytes = opt->size / 3,
		.chunk_bytes = opt->chunk,
		.seed = opt->seed + round,
		.threads = opt->threads,
		.stores = opt->pattern == RMW,
		.sequential = opt->pattern == SEQ,
	};
	err = pool && opt->delay_ms ? name_late(&s) : 0;
	err = err ? err : open_side(&s);
	cpu = err ? 0 : servers_cpu(&s);
	if (!err)
		err = begin_trouble(&s);
	if (!err) {
		atomic_store(&s.shared->step, SODA_BENCH_POOL_GO);
		err = disturb(&s, pool);
		s.cpu_ns += servers_cpu(&s) - cpu;
		atomic_store(&s.shared->step, SODA_BENCH_POOL_STOP);
	}
	end_trouble(&s);
	if (!err)
		err = await_step(&s, SODA_BENCH_POOL_DONE);
	if (!err) {
		const struct soda_bench_pool_load *l = &s.shared->load;

		*out = (struct sample){
			.gb_per_s = (double)l->fetched / (double)l->ns,
			.cpu = (double)(l->cpu_ns + s.cpu_ns) / (double)l->fetched,
			.memory = s.memory,
			.p99_ms = (double)soda_histogram_percentile(&s.shared->accesses, 99) / 1e6,
			.load = *l,
		};
	}
	close_side(&s);
	if (opt->link)
		soda_bench_link_remove(s.owner);
	forget_late(&s);
	return err;
}

enum column {
	GB,
	RATIO,
	CPU,
	MEMORY,
	STALL,
	P99,
	EXPELLED,
	REBUILD_S,
	REBUILD,
	WRONG,
	LOST,
	WRITTEN,
	COLUMNS
};

static const char *const columns[COLUMNS] = {
	"gb_per_s",	 "ratio_gb_per_s", "ratio_cpu",	 "memory_overhead",
	"stall_ms_max",	 "p99_ms",	   "expelled",	 "rebuild_s",
	"rebuild_bytes", "wrong_bytes",	   "lost_bytes", "host_bytes_per_dirty_byte"
};

/*
 * How many bytes the program sends for each dirty byte; with erasure codes for each byte of the
 * chunks that it writes, as parity is of all of a chunk.
 */
static double written(const struct sample *pool)
{
	const struct soda_bench_pool_load *l = &pool->load;

	return l->cleaned ? (double)l->written / (double)l->cleaned : NAN;
}

static void results(const struct work *w, double out[COLUMNS])
{
	double of[COLUMNS][SODA_BENCH_ROUNDS_MAX];
	uint32_t n = w->opt.rounds;

	for (uint32_t r = 0; r < n; r++) {
		const struct sample *p = &w->pool[r], *one = &w->one[r];

		of[GB][r] = p->gb_per_s;
		of[RATIO][r] = p->gb_per_s / one->gb_per_s;
		of[CPU][r] = p->cpu / one->cpu;
		of[MEMORY][r] = p->memory;
		of[STALL][r] = (double)p->load.stall_ns / 1e6;
		of[P99][r] = p->p99_ms;
		of[EXPELLED][r] = (double)p->load.expelled;
		of[REBUILD_S][r] = (double)p->load.rebuild_ns / 1e9;
		of[REBUILD][r] = (double)p->load.rebuilt;
		of[WRONG][r] = (double)p->load.wrong;
		of[LOST][r] = (double)p->load.lost;
		of[WRITTEN][r] = written(p);
	}
	for (int c = 0; c < COLUMNS; c++)
		out[c] = soda_bench_median(of[c], n);
	for (uint32_t r = 0; r < n; r++)
		out[STALL] = of[STALL][r] > out[STALL] ? of[STALL][r] : out[STALL];
	out[WRONG] = out[LOST] = out[EXPELLED] = 0;
	for (uint32_t r = 0; r < n; r++) {
		out[WRONG] += of[WRONG][r];
		out[LOST] += of[LOST][r];
		out[EXPELLED] += of[EXPELLED][r];
	}
}

static int report(const struct work *w)
{
	const struct options *opt = &w->opt;
	double out[COLUMNS];
	json_t *all, *run;
	int err = 0;

	results(w, out);
	if (opt->json) {
		run = json_object();
		soda_json_set_text(run, "redundancy", redundancies[opt->redundancy]);
		soda_json_set_count(run, "servers", opt->servers);
		soda_json_set_count(run, "threads", opt->threads);
		soda_json_set_text(run, "pattern", patterns[opt->pattern]);
		soda_json_set_count(run, "killed", opt->kills);
		soda_json_set_count(run, "stopped", opt->stops);
		soda_json_set_count(run, "paused", opt->pauses);
		soda_json_set_count(run, "delay_ms", opt->delay_ms);
		soda_json_set_count(run, "busy", opt->busy);
		json_object_set_new(run, "agent", json_boolean(opt->agent));
		if (opt->agent)
			soda_json_set_text(run, "host_transport", transports[opt->host_transport]);
		for (int c = 0; c < COLUMNS; c++)
			soda_json_set_real(run, columns[c], out[c]);
		all = json_object();
		soda_json_set_text(all, "format", "soda-bench-pool");
		soda_json_set_count(all, "version", 1);
		json_object_set_new(all, "runs", json_pack("[o]", run));
		err = soda_json_print(all);
	} else {
		printf("%s over %u servers, %s, %u threads\n", redundancies[opt->redundancy],
		       opt->servers, patterns[opt->pattern], opt->threads);
		for (int c = 0; c < COLUMNS; c++)
			printf("%28s %14.3f\n", columns[c], out[c]);
	}
	if (out[WRONG] > 0 || out[LOST] > 0) {
		fprintf(stderr, WHO ": bytes are wrong, or lost\n");
		err = -EIO;
	}
	return err;
}

/* The benchmark's work, in the child of soda_bench_guard_run(). */
static int run(void *arg, const struct soda_bench_guarded *guarded)
{
	struct work *w = arg;
	int err = 0;

	for (uint32_t r = 0; r < w->opt.rounds && !err; r++) {
		err = run_side(w, r & 1, r, r & 1 ? &w->pool[r] : &w->one[r]);
		if (!err)
			err = run_side(w, !(r & 1), r, r & 1 ? &w->one[r] : &w->pool[r]);
	}
	if (!err)
		err = report(w);
	return err ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

/* Whether the program goes on with one server less. */
static bool survives(const struct options *opt)
{
	const char *kind = redundancies[opt->redundancy];

	return strcmp(kind, "none") && strncmp(kind, "stripe:", strlen("stripe:"));
}

static int check(const struct options *opt)
{
	const char *wrong = NULL;
	char few[80];

	snprintf(few, sizeof(few), "--redundancy %s needs %u servers or more",
		 redundancies[opt->redundancy], servers_of[opt->redundancy]);
	if (opt->servers < servers_of[opt->redundancy])
		wrong = few;
	else if (opt->chunk & (opt->chunk - 1))
		wrong = "--chunk must be a power of two";
	else if ((opt->kills || opt->stops) && !survives(opt))
		wrong = "--kill and --stop need --redundancy mirror:2 or ec:K+M: without it what "
			"the server has is lost";
	else if (opt->link && opt->kills)
		wrong = "--link and --kill: a server's link goes with it";
	else if (opt->delay_ms && opt->agent)
		wrong = "--delay and --agent: it is the program's own connections that are late";
	else if (opt->host_transport && !opt->agent)
		wrong = "--host-transport needs --agent, to which it leads";
	if (wrong)
		fprintf(stderr, WHO ": %s\n", wrong);
	return wrong ? -EINVAL : 0;
}

int soda_command_bench_pool(int argc, char **argv)
{
	struct work *work = calloc(1, sizeof(*work));
	int code = SODA_EXIT_USAGE;

	if (work)
		work->owner = getpid();
	if (work && !soda_tool_options(&conf, argc, argv, &work->opt, NULL, 0) &&
	    !check(&work->opt))
		code = soda_bench_guard_run(&(const struct soda_bench_work){ .run = run }, work);
	if (work)
		soda_conf_free(&conf, &work->opt);
	free(work);
	return code;
}
