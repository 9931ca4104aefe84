/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages over each transport: the agent without its main() in this process, ranks of a job in
 * processes of their own, which are forked before the agent has threads.  A rank says on stderr
 * what it finds wrong, and ends with another status than 0. test_messages_agent [verbs [CASE]]:
 * only where SODA_TEST_VERBS names an address; test_messages_agent several [CASE]: with 2 to 4
 * agents; test_messages_agent process [CASE]: without any, ranks' processes route
 */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance/scribble.h"
#include "dpu_agent/life/agent.h"
#include "soda_msg.h"

enum {
	DEADLINE_MS = 60000,
	NEWS_MS = 30000, /* a rank that waits hears of a dead one long before this */
	BUDGET = 32 << 20,
	RANKS = 4,
	MANY = 40000, /* messages of a rank and phase */
};

/* daemon.c is not linked. */
const char *const soda_daemon_log_levels[] = { "error", "warning", "info", "debug", NULL };

enum { AGENTS = 4 };

static struct agent {
	struct soda_dpu dpu;
	struct soda_dpu_options opt;
	struct soda_listener *listener; /* of ranks */
	struct soda_listener *peers;	/* of other agents; NULL: of both the same */
} agents[AGENTS], *const agent = agents;
static unsigned agents_n;
/* Agents reach each other as ranks reach them, by shm or verbs, and not over tcp. */
static bool near;
/* Around the addresses that agents are told of each other: of the decorator that cuts. */
static const char *links = "", *links_rules = "";
/* The same, of the addresses that ranks connect to. */
static const char *to_agent = "", *to_agent_rules = "";

static void listen_at(struct agent *a, const char *where, struct soda_listener **listener_p)
{
	struct soda_listener_options how = { .workers = 2 };
	struct soda_why why;

	if (soda_listener_open(where, &soda_dpu_service, &a->dpu, &how, listener_p, &why))
		fail_msg("%s: %s", where, why.text);
	assert_int_equal(soda_listener_start(*listener_p), 0);
}

static void start_one(struct agent *a, const char *where, uint64_t budget)
{
	memset(a, 0, sizeof(*a));
	a->opt = (struct soda_dpu_options){ .server = (char *)(uintptr_t) "tcp://127.0.0.1:1",
					    .write_budget = 1 << 20,
					    .client_credit = 4 << 20,
					    .buffers = 1 << 30,
					    .window = 16 << 20,
					    .daemon.workers = 2,
					    .timeout_ms = 20000,
					    .daemon.max_clients = 64,
					    .msg_bytes = budget,
					    .msg_inbox = SODA_MSG_INBOX_MOST,
					    .msg_transfer = SODA_MSG_TRANSFER,
					    .msg_wait_us = SODA_MSG_LINK_FLUSH_US,
					    /* by tcp they take turns */
					    .msg_threads = strstr(where, "tcp") ? 1 : 0,
					    .aggregate = true,
					    .async = true };
	assert_int_equal(soda_dpu_start(&a->dpu, &a->opt), 0);
	listen_at(a, where, &a->listener);
}

static void start_agent(const char *where, uint64_t budget)
{
	agents_n = 1;
	start_one(agent, where, budget);
}

/* All that jobs had is given back: soda_router_stop() asserts that. */
static void stop_one(struct agent *a)
{
	soda_listener_close(a->listener);
	if (a->peers)
		soda_listener_close(a->peers);
	assert_int_equal(soda_dpu_stop(&a->dpu, 20000), 0);
}

static void stop_agent(void)
{
	while (agents_n)
		stop_one(&agents[--agents_n]);
}

/* Ranks */

struct rank {
	const char *agent;
	unsigned rank, ranks;
	const char *agents, *places; /* of several agents */
	const char *routing;
};

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: rank %u: %s: %s\n", __FILE__, __LINE__, r->rank,   \
				#what, soda_msg_last_error());                                     \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)
#define IS(call, want)                                                                             \
	do {                                                                                       \
		int is_ = (call);                                                                  \
		if (is_ != (want)) {                                                               \
			fprintf(stderr, "%s:%d: rank %u: %s: %d, not %d: %s\n", __FILE__,          \
				__LINE__, r->rank, #call, is_, (want), soda_msg_last_error());     \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static int try_start(const struct rank *r, const char *name, const char *key, unsigned timeout_ms,
		     struct soda_msg_job **job_p)
{
	struct soda_msg_options how = { .agent = *r->agent ? r->agent : NULL,
					.job = name,
					.key = key,
					.rank = r->rank,
					.ranks = r->ranks,
					.timeout_ms = timeout_ms,
					.agents = *r->agents ? r->agents : NULL,
					.places = *r->places ? r->places : NULL,
					.routing = *r->routing ? r->routing : NULL };

	return soda_msg_start(&how, job_p);
}

static struct soda_msg_job *start(const struct rank *r)
{
	struct soda_msg_job *job = NULL;

	IS(try_start(r, "job", "secret", DEADLINE_MS, &job), 0);
	return job;
}

struct ranks {
	pid_t pids[2 * RANKS];
	unsigned n;
	int tell[2 * RANKS][2]; /* pipes for a struct told */
};

/* What ranks are told. */
struct told {
	char agent[128], agents[AGENTS * 128], places[128], routing[16];
};

/* Threads of this process that agents have made: all have names. */
static unsigned threads_of_agents(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(dir);
	while ((e = readdir(dir))) {
		char path[300], name[8] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		n += fgets(name, sizeof(name), f) && strncmp(name, "soda-", 5) == 0;
		fclose(f);
	}
	closedir(dir);
	return n;
}

/*
 * An agent that has stopped has counted its threads of connections, which are detached: the last of
 * them may still be on its way out, and a process that is forked beside one may not start threads
 * under ThreadSanitizer.
 */
static void await_threads_gone(void)
{
	for (int ms = 0; threads_of_agents(); ms++) {
		assert_true(ms < 5000);
		poll(NULL, 0, 1);
	}
}

static void fork_ranks(struct ranks *all, unsigned n, void (*run)(struct rank *r))
{
	await_threads_gone();
	all->n = n;
	for (unsigned i = 0; i < n; i++) {
		struct rank r = { .rank = i, .ranks = n };
		struct told told;

		assert_int_equal(pipe(all->tell[i]), 0);
		all->pids[i] = fork();
		assert_true(all->pids[i] >= 0);
		if (all->pids[i]) {
			close(all->tell[i][0]);
			continue;
		}
		for (unsigned k = 0; k <= i; k++)
			close(all->tell[k][1]);
		r.agent = told.agent;
		r.agents = told.agents;
		r.places = told.places;
		r.routing = told.routing;
		if (read(all->tell[i][0], &told, sizeof(told)) != sizeof(told))
			_exit(2); /* the agent did not start */
		run(&r);
		_exit(0);
	}
}

/* The agent of a rank: in turns. */
static void tell_address(struct ranks *all)
{
	struct told told;

	memset(&told, 0, sizeof(told));
	for (unsigned i = 0; agents_n > 1 && i < agents_n; i++)
		snprintf(told.agents + strlen(told.agents),
			 sizeof(told.agents) - strlen(told.agents), "%s%s%s%s", i ? "," : "", links,
			 soda_listener_address(agents[i].peers ? agents[i].peers
							       : agents[i].listener),
			 links_rules);
	for (unsigned i = 0; agents_n > 1 && i < all->n; i++)
		snprintf(told.places + strlen(told.places),
			 sizeof(told.places) - strlen(told.places), "%s%u", i ? "," : "",
			 i % agents_n);
	for (unsigned i = 0; i < all->n; i++) {
		snprintf(told.agent, sizeof(told.agent), "%s%s%s", to_agent,
			 soda_listener_address(agents[i % agents_n].listener), to_agent_rules);
		assert_int_equal(write(all->tell[i][1], &told, sizeof(told)), sizeof(told));
		close(all->tell[i][1]);
	}
}

/* The status of a rank that has ended, by the deadline: else all are killed, and the test fails. */
static int await_rank(struct ranks *all, unsigned i)
{
	int status;

	for (int ms = 0; ms < DEADLINE_MS; ms += 5) {
		pid_t pid = waitpid(all->pids[i], &status, WNOHANG);

		if (pid == all->pids[i]) {
			all->pids[i] = 0;
			return status;
		}
		assert_int_equal(pid, 0);
		poll(NULL, 0, 5);
	}
	for (unsigned k = 0; k < all->n; k++)
		if (all->pids[k])
			kill(all->pids[k], SIGKILL);
	fail_msg("rank %u has not ended", i);
	return -1;
}

static void run_ranks(const char *where, unsigned n, void (*run)(struct rank *r))
{
	struct ranks all;
	int bad = 0;

	fork_ranks(&all, n, run);
	start_agent(where, BUDGET);
	tell_address(&all);
	for (unsigned i = 0; i < n; i++)
		bad |= await_rank(&all, i);
	assert_int_equal(bad, 0);
}

/* What ranks do */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15;
	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9;
	return x ^ x >> 32;
}

/* What tells one message from others, and notices a wrong byte. */
static uint64_t sum_of(unsigned from, unsigned to, const uint8_t *data, size_t bytes)
{
	uint64_t h = mix(bytes + 1) ^ mix(from * 1000u + to + 7);

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ data[i]) * 0x100000001b3;
	return mix(h);
}

static int64_t all_of(const struct rank *r, struct soda_msg_job *job, int64_t mine)
{
	int64_t all = 0;
	int ret;

	while ((ret = soda_msg_sum(job, mine, &all)) == -EINPROGRESS)
		IS(soda_msg_wait(job, SODA_MSG_COLLECTIVE, DEADLINE_MS), 0);
	IS(ret, 0);
	return all;
}

struct tally {
	uint64_t n, sum;
	uint8_t *seen; /* a bit for each number that a rank has sent */
};

/* Pull what is there. The last result of soda_msg_pull(). */
static int drain(const struct rank *r, struct soda_msg_job *job, struct tally *pulled)
{
	struct soda_message m;
	int ret;

	while ((ret = soda_msg_pull(job, &m)) == 0) {
		CHECK(m.from < r->ranks && !m.reserved);
		pulled->n++;
		pulled->sum += sum_of(m.from, r->rank, m.data, m.bytes);
		if (pulled->seen && m.bytes >= 8) {
			uint64_t number;

			memcpy(&number, m.data, 8);
			CHECK(number < MANY);
			number += (uint64_t)m.from * MANY;
			CHECK(!(pulled->seen[number / 8] & 1u << number % 8));
			pulled->seen[number / 8] |= (uint8_t)(1u << number % 8);
		}
	}
	return ret;
}

static void push(const struct rank *r, struct soda_msg_job *job, unsigned to, const void *data,
		 size_t bytes, struct tally *pushed, struct tally *pulled)
{
	int ret;

	while ((ret = soda_msg_push(job, to, data, bytes)) == -EAGAIN) {
		IS(drain(r, job, pulled), -EAGAIN);
		IS(soda_msg_wait(job, SODA_MSG_PULL | SODA_MSG_PUSH, DEADLINE_MS), 0);
	}
	IS(ret, 0);
	pushed->n++;
	pushed->sum += sum_of(r->rank, to, data, bytes);
}

/* Until all have finished; then all that was pushed has been pulled, and nothing else. */
static void finish(const struct rank *r, struct soda_msg_job *job, struct tally *pushed,
		   struct tally *pulled)
{
	int ret;

	IS(soda_msg_finish(job), 0);
	IS(soda_msg_finish(job), -EPIPE);
	IS(soda_msg_push(job, 0, "", 0), -EPIPE);
	while ((ret = drain(r, job, pulled)) == -EAGAIN)
		IS(soda_msg_wait(job, SODA_MSG_PULL, DEADLINE_MS), 0);
	IS(ret, -ENODATA);
	CHECK(all_of(r, job, (int64_t)(pushed->n - pulled->n)) == 0);
	CHECK(all_of(r, job, (int64_t)(pushed->sum - pulled->sum)) == 0);
}

/* Sizes of all kinds, in three phases. */
static void run_once(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	struct soda_msg_stats stats;
	uint64_t all = 0;

	for (unsigned phase = 0; phase < 3; phase++) {
		struct tally pushed = { 0 }, pulled = { 0 };

		pulled.seen = calloc(1, r->ranks * MANY / 8 + 1);
		for (uint64_t i = 0; i < MANY; i++) {
			uint64_t dice = mix(i * 31 + r->rank + phase),
				 data[24] = { i, dice, ~dice };
			size_t bytes = phase == 0	 ? 8
				       : dice % 100 == 0 ? dice / 128 % 8
							 : dice / 512 % 100 + 8;

			push(r, job, (unsigned)(dice >> 40) % r->ranks, data, bytes, &pushed,
			     &pulled);
		}
		IS(soda_msg_begin(job), -EINVAL);
		finish(r, job, &pushed, &pulled);
		all += pushed.n;
		free(pulled.seen);
		if (phase < 2)
			IS(soda_msg_begin(job), 0);
	}
	soda_msg_get_stats(job, &stats);
	CHECK(stats.pushed == all);
	CHECK(stats.pushed == 3 * MANY);
	/* they travel together; how many is a matter of time */
	CHECK(stats.sent_calls && stats.sent_calls < stats.pushed / 2);
	soda_msg_end(job);
}

static void once(const char *where)
{
	run_ranks(where, RANKS, run_once);
	assert_int_equal(agent->dpu.messages.messages, 3 * MANY * RANKS);
	assert_int_equal(agent->dpu.messages.jobs.broken_n, 0);
	stop_agent();
}

/*
 * Several threads with one job: one pushes, while another one asks for what it has done and has it
 * sent; then both push.  Whoever pulls is the first one.
 */
struct helper {
	struct rank *r;
	struct soda_msg_job *job;
	_Atomic bool pushes; /* else it looks */
	_Atomic bool stop;
	struct tally pushed;
	uint64_t looks;
};

/* Without pulling: the other thread does that. */
static void help_to_push(struct helper *h, uint64_t i)
{
	const struct rank *r = h->r;
	uint64_t data[3] = { i, mix(i), ~i };
	size_t bytes = i % 7 ? 8 : 8 * (i / 7 % 3 + 1);
	unsigned to = (unsigned)(data[1] >> 20) % h->r->ranks;
	int ret;

	while ((ret = soda_msg_push(h->job, to, data, bytes)) == -EAGAIN)
		soda_msg_wait(h->job, SODA_MSG_PUSH, 10);
	IS(ret, 0);
	h->pushed.n++;
	h->pushed.sum += sum_of(h->r->rank, to, (const uint8_t *)data, bytes);
}

static void *help(void *arg)
{
	struct helper *h = arg;
	const struct rank *r = h->r;
	uint64_t last = 0;

	for (uint64_t i = 0; !atomic_load(&h->stop); i++) {
		struct soda_msg_stats stats;

		if (atomic_load(&h->pushes) && i < MANY) {
			help_to_push(h, i);
			continue;
		}
		soda_msg_get_stats(h->job, &stats);
		CHECK(stats.pushed >= last);
		IS(soda_msg_progress(h->job), 0);
		last = stats.pushed;
		h->looks++;
		usleep(20);
	}
	return NULL;
}

/* It can do nothing, and waits for no lock that another thread had. */
static void fork_child(struct soda_msg_job *job)
{
	struct soda_msg_stats stats;
	int ret = soda_msg_push(job, 0, "", 0);

	soda_msg_get_stats(job, &stats);
	_exit(ret == -ENOTSUP && !stats.pushed ? 0 : 1);
}

/* The child of a fork cannot push, however its parent did. */
static void fork_once(struct rank *r, struct soda_msg_job *job)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		fork_child(job);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void run_threads(struct rank *r)
{
	struct helper h = { .r = r, .job = start(r) };
	struct tally pushed = { 0 }, pulled = { 0 };
	struct soda_msg_stats stats;
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, help, &h) == 0);
	for (uint64_t i = 0; i < 20 * MANY; i++) {
		uint64_t dice = mix(i + 77 * r->rank), data[2] = { i, dice };

		if (i == 10 * MANY)
			atomic_store(&h.pushes, true);
		if (i == 9 * MANY)
			fork_once(r, h.job);
		push(r, h.job, (unsigned)(dice >> 40) % r->ranks, data, i / 5 % 9 ? 8 : dice % 17,
		     &pushed, &pulled);
	}
	atomic_store(&h.stop, true);
	while (pthread_tryjoin_np(thread, NULL)) { /* it may wait for room, here or elsewhere */
		IS(drain(r, h.job, &pulled), -EAGAIN);
		usleep(100);
	}
	CHECK(h.looks && h.pushed.n);
	pushed.n += h.pushed.n;
	pushed.sum += h.pushed.sum;
	finish(r, h.job, &pushed, &pulled);
	soda_msg_get_stats(h.job, &stats);
	CHECK(stats.pushed == pushed.n && stats.pulled == pulled.n);
	soda_msg_end(h.job);
}

static void threads(const char *where)
{
	run_ranks(where, 2, run_threads);
	stop_agent();
}

/*
 * Four threads of a rank push at once, each into buffers of its own, while another one pulls, and
 * has what they pushed sent, or leaves that to time; in two phases.
 */
enum { PUSHERS = 4 };

static struct crowd {
	struct rank *r;
	struct soda_msg_job *job;
	pthread_barrier_t phase;
	struct tally pushed[PUSHERS]; /* a thread's each */
} crowd;

static void *push_in_crowd(void *arg)
{
	const struct rank *r = crowd.r;
	unsigned me = (unsigned)(uintptr_t)arg;

	for (unsigned phase = 0; phase < 2; phase++) {
		pthread_barrier_wait(&crowd.phase);
		for (uint64_t i = 0; i < 5 * MANY; i++) {
			uint64_t data[40] = { i, mix(i + me), me };
			size_t bytes = i % 50 ? 8 : data[1] % (sizeof(data) + 1);
			unsigned to = (unsigned)(data[1] >> 20) % r->ranks;
			int ret;

			while ((ret = soda_msg_push(crowd.job, to, data, bytes)) == -EAGAIN)
				soda_msg_wait(crowd.job, SODA_MSG_PUSH, 10);
			IS(ret, 0);
			crowd.pushed[me].n++;
			crowd.pushed[me].sum += sum_of(r->rank, to, (const uint8_t *)data, bytes);
		}
		pthread_barrier_wait(&crowd.phase); /* all have pushed */
		pthread_barrier_wait(&crowd.phase); /* this rank has finished */
		IS(soda_msg_push(crowd.job, 0, &me, sizeof(me)), -EPIPE);
		pthread_barrier_wait(&crowd.phase);
	}
	return NULL;
}

/* A phase of all threads, with tallies of both sides. */
static void pass_crowd(struct rank *r, unsigned phase)
{
	struct tally pushed = { 0 }, pulled = { 0 };
	struct soda_msg_stats before, stats;
	uint64_t expected = (uint64_t)PUSHERS * 5 * MANY;

	memset(crowd.pushed, 0, sizeof(crowd.pushed));
	soda_msg_get_stats(crowd.job, &before);
	pthread_barrier_wait(&crowd.phase);
	do { /* statistics count what is in the threads' buffers, too */
		IS(drain(r, crowd.job, &pulled), -EAGAIN);
		if (phase)
			IS(soda_msg_progress(crowd.job), 0);
		soda_msg_get_stats(crowd.job, &stats);
		CHECK(stats.pushed - before.pushed <= expected);
	} while (stats.pushed - before.pushed < expected);
	pthread_barrier_wait(&crowd.phase);
	for (unsigned i = 0; i < PUSHERS; i++) {
		pushed.n += crowd.pushed[i].n;
		pushed.sum += crowd.pushed[i].sum;
	}
	finish(r, crowd.job, &pushed, &pulled);
	pthread_barrier_wait(&crowd.phase);
	pthread_barrier_wait(&crowd.phase);
	IS(soda_msg_begin(crowd.job), 0);
}

static void run_crowd(struct rank *r)
{
	pthread_t threads[PUSHERS];

	crowd.r = r;
	crowd.job = start(r);
	CHECK(pthread_barrier_init(&crowd.phase, NULL, PUSHERS + 1) == 0);
	for (uintptr_t i = 0; i < PUSHERS; i++)
		CHECK(pthread_create(&threads[i], NULL, push_in_crowd, (void *)i) == 0);
	for (unsigned phase = 0; phase < 2; phase++)
		pass_crowd(r, phase);
	for (unsigned i = 0; i < PUSHERS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	finish(r, crowd.job, &(struct tally){ 0 }, &(struct tally){ 0 });
	soda_msg_end(crowd.job);
}

static void crowd_of_threads(const char *where)
{
	run_ranks(where, 2, run_crowd);
	stop_agent();
}

/* Nobody says that it is to be sent: a message in a thread's own buffer travels by itself. */
static void *push_one(void *arg)
{
	const struct rank *r = crowd.r;
	uint64_t data = (uintptr_t)arg;

	IS(soda_msg_push(crowd.job, 1 - r->rank, &data, sizeof(data)), 0);
	pthread_barrier_wait(&crowd.phase); /* its buffers are not another one's yet */
	return NULL;
}

static void run_slow_threads(struct rank *r)
{
	pthread_t threads[3];
	struct soda_message m;
	uint64_t sum = 0;
	int ret;

	crowd.r = r;
	crowd.job = start(r);
	CHECK(pthread_barrier_init(&crowd.phase, NULL, 4) == 0);
	for (uintptr_t i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, push_one, (void *)(1 + i)) == 0);
	pthread_barrier_wait(&crowd.phase);
	for (unsigned n = 0; n < 3;) {
		uint64_t data;

		ret = soda_msg_pull(crowd.job, &m);
		if (ret == -EAGAIN) {
			usleep(100);
			continue;
		}
		IS(ret, 0);
		memcpy(&data, m.data, sizeof(data));
		sum += data;
		n++;
	}
	CHECK(sum == 1 + 2 + 3);
	for (unsigned i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	IS(soda_msg_finish(crowd.job), 0);
	while ((ret = soda_msg_pull(crowd.job, &m)) == -EAGAIN)
		soda_msg_wait(crowd.job, SODA_MSG_PULL, NEWS_MS);
	IS(ret, -ENODATA);
	soda_msg_end(crowd.job);
}

static void slow_threads(const char *where)
{
	run_ranks(where, 2, run_slow_threads);
	stop_agent();
}

/* Messages that travel in parts, beside small ones; everybody to everybody. */
static void run_large(struct rank *r)
{
	static const size_t sizes[] = { 0,	 100,	 32 << 10,	(32 << 10) + 1, 61440,
					1 << 17, 999999, (1 << 20) - 1, 1 << 20 };
	struct soda_msg_job *job = start(r);
	struct tally pushed = { 0 }, pulled = { 0 };
	uint8_t *data = malloc(1 << 20);

	for (unsigned i = 0; i < 9 * r->ranks; i++) {
		for (size_t k = 0; k < 1 << 20; k++)
			data[k] = (uint8_t)(k * 13 + k / 251 + i + r->rank);
		push(r, job, i / 9, data, sizes[i % 9], &pushed, &pulled);
		push(r, job, i % r->ranks, data, i, &pushed, &pulled);
	}
	IS(soda_msg_push(job, 0, data, (1 << 20) + 1), -EMSGSIZE);
	IS(soda_msg_push(job, r->ranks, data, 1), -EINVAL);
	free(data);
	finish(r, job, &pushed, &pulled);
	soda_msg_end(job);
}

static void large(const char *where)
{
	run_ranks(where, 3, run_large);
	stop_agent();
}

/* All that is here, run by run. */
static int drain_many(struct rank *r, struct soda_msg_job *job, struct tally *pulled)
{
	struct soda_message_run m;
	int ret;

	while ((ret = soda_msg_pull_many(job, &m)) == 0) {
		CHECK(m.count && m.from < r->ranks);
		for (size_t i = 0; i < m.count; i++)
			pulled->sum += sum_of(m.from, r->rank,
					      (const uint8_t *)m.data + i * m.bytes, m.bytes);
		pulled->n += m.count;
	}
	return ret;
}

/* `count` messages of a size, however many calls that takes. */
static void push_many(struct rank *r, struct soda_msg_job *job, unsigned to, const uint8_t *data,
		      size_t bytes, size_t count, struct tally *pushed, struct tally *pulled)
{
	for (size_t i = 0; i < count; i++)
		pushed->sum += sum_of(r->rank, to, data + i * bytes, bytes);
	pushed->n += count;
	while (count) {
		size_t n = 0;
		int ret = soda_msg_push_many(job, to, data, bytes, count, &n);

		if (ret == -EAGAIN) {
			IS(drain_many(r, job, pulled), -EAGAIN);
			IS(soda_msg_wait(job, SODA_MSG_PUSH | SODA_MSG_PULL, DEADLINE_MS), 0);
			continue;
		}
		IS(ret, 0);
		CHECK(n && n <= count);
		data += n * bytes;
		count -= n;
	}
}

/* Many messages a call, of all sizes, beside single ones. */
static void run_bulk(struct rank *r)
{
	static const size_t sizes[] = { 8, 0, 1, 24, 1000, 61400, 8, 0, 70000 };
	struct soda_msg_job *job = start(r);
	struct tally pushed = { 0 }, pulled = { 0 };
	size_t room = 1 << 18, n = 7;
	uint8_t *data = malloc(room);
	int ret;

	for (size_t k = 0; k < room; k++)
		data[k] = (uint8_t)(k * 7 + k / 255 + r->rank);
	for (unsigned i = 0; i < 9 * r->ranks; i++) {
		size_t bytes = sizes[i % 9], most = bytes ? room / bytes : 5000;

		push_many(r, job, i / 9, data, bytes, most, &pushed, &pulled);
		push_many(r, job, i / 9, data, bytes, 1, &pushed, &pulled);
		push(r, job, i / 9, data, i, &pushed, &pulled);
	}
	IS(soda_msg_push_many(job, 0, data, 8, 0, &n), 0);
	CHECK(n == 0);
	IS(soda_msg_push_many(job, r->ranks, data, 8, 2, &n), -EINVAL);
	IS(soda_msg_push_many(job, 0, data, (1 << 20) + 1, 2, &n), -EMSGSIZE);
	IS(soda_msg_finish(job), 0);
	IS(soda_msg_push_many(job, 0, data, 8, 2, &n), -EPIPE);
	free(data);
	while ((ret = drain_many(r, job, &pulled)) == -EAGAIN)
		IS(soda_msg_wait(job, SODA_MSG_PULL, DEADLINE_MS), 0);
	IS(ret, -ENODATA);
	CHECK(all_of(r, job, (int64_t)(pushed.n - pulled.n)) == 0);
	CHECK(all_of(r, job, (int64_t)(pushed.sum - pulled.sum)) == 0);
	soda_msg_end(job);
}

static void bulk(const char *where)
{
	run_ranks(where, 3, run_bulk);
	assert_int_equal(agent->dpu.messages.jobs.broken_n, 0);
	stop_agent();
}

/* Rank 1 does not pull: rank 0 is told so, and rank 2 is not held up. */
static void run_held(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	struct tally pushed = { 0 }, pulled = { 0 };
	uint8_t data[1000] = { 0 };
	struct soda_message m;
	int ret = 0;

	if (r->rank == 0) {
		while (ret == 0) {
			ret = soda_msg_push(job, 1, data, sizeof(data));
			if (ret == 0) {
				pushed.n++;
				pushed.sum += sum_of(0, 1, data, sizeof(data));
			}
			if (ret == -EAGAIN && pushed.n < 2000) /* the agent's inbox is larger */
				ret = soda_msg_wait(job, SODA_MSG_PUSH, 200);
			if (ret == -ETIMEDOUT)
				ret = -EAGAIN;
		}
		IS(ret, -EAGAIN);
		push(r, job, 2, "go", 2, &pushed, &pulled);
	}
	if (r->rank == 2) {
		IS(soda_msg_wait(job, SODA_MSG_PULL, DEADLINE_MS), 0);
		IS(soda_msg_pull(job, &m), 0);
		CHECK(m.bytes == 2 && m.from == 0);
		pulled.n++;
		pulled.sum += sum_of(0, 2, m.data, m.bytes);
	}
	/* who waits for a collective need not pull */
	all_of(r, job, 1);
	finish(r, job, &pushed, &pulled);
	soda_msg_end(job);
}

static void held(const char *where)
{
	run_ranks(where, 3, run_held);
	assert_true(agent->dpu.messages.refused);
	stop_agent();
}

static void take_tally(void *arg, const struct soda_message *m)
{
	struct tally *pulled = arg;

	pulled->n++;
	pulled->sum += sum_of(m->from, crowd.r->rank, m->data, m->bytes);
}

/* The function that takes a message may not pull another one. */
static void take_alone(void *arg, const struct soda_message *m)
{
	const struct rank *r = crowd.r;

	take_tally(arg, m);
	IS(soda_msg_push_pull(crowd.job, 0, "y", 1, take_tally, arg), -EINVAL);
	IS(soda_msg_drain(crowd.job, take_tally, arg), -EINVAL);
}

/*
 * Each rank waits in a barrier, in a phase, while others push to it more than there is room for:
 * who waits pulls meanwhile, and all come to the end.  One rank after the other pushes.
 */
static void run_waiting(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	struct tally pushed = { 0 }, pulled = { 0 };
	uint8_t data[1000] = { 0 };
	int ret;

	crowd.r = r;
	crowd.job = job;
	IS(soda_msg_drain(job, take_tally, &pulled), -EINVAL);
	for (unsigned turn = 0; turn < r->ranks; turn++) {
		for (unsigned i = 0; turn == r->rank && i < 20000; i++) {
			unsigned to = (r->rank + 1) % r->ranks;

			data[0] = (uint8_t)i;
			pushed.n++;
			pushed.sum += sum_of(r->rank, to, data, sizeof(data));
			IS(soda_msg_push_pull(job, to, data, sizeof(data), take_tally, &pulled), 0);
		}
		while ((ret = soda_msg_barrier(job)) == -EINPROGRESS) {
			IS(soda_msg_wait(job, SODA_MSG_COLLECTIVE | SODA_MSG_PULL, DEADLINE_MS), 0);
			IS(drain(r, job, &pulled), -EAGAIN);
		}
		IS(ret, 0);
	}
	IS(soda_msg_finish(job), 0);
	IS(soda_msg_drain(job, take_tally, &pulled), 0);
	CHECK(all_of(r, job, (int64_t)(pushed.n - pulled.n)) == 0);
	CHECK(all_of(r, job, (int64_t)(pushed.sum - pulled.sum)) == 0);
	IS(soda_msg_begin(job), 0);
	IS(soda_msg_push(job, 0, "", 0), 0);
	IS(soda_msg_finish(job), 0);
	IS(soda_msg_drain(job, take_alone, &pulled), 0);
	soda_msg_end(job);
}

static void waiting(const char *where)
{
	run_ranks(where, 3, run_waiting);
	stop_agent();
}

/* Until it is complete, and then what it returned. */
#define WHOLE(call)                                                                                \
	do {                                                                                       \
		int whole_;                                                                        \
		while ((whole_ = (call)) == -EINPROGRESS)                                          \
			IS(soda_msg_wait(job, SODA_MSG_COLLECTIVE, DEADLINE_MS), 0);               \
		IS(whole_, 0);                                                                     \
	} while (0)

static void compute_doubles(struct rank *r, struct soda_msg_job *job)
{
	static const double parts[] = { 1e300, -3.5, -1e300, 0.1 };
	double all = 0, expected = 0, mine = parts[r->rank % 4];

	for (unsigned i = 0; i < r->ranks; i++)
		expected = i ? expected + parts[i % 4] : parts[0];
	WHOLE(soda_msg_sum_double(job, mine, &all));
	CHECK(all == expected);
	WHOLE(soda_msg_max_double(job, -mine, &all));
	CHECK(all == (r->ranks > 2 ? 1e300 : 3.5));
	WHOLE(soda_msg_min_double(job, mine, &all));
	CHECK(all == (r->ranks > 2 ? -1e300 : r->ranks > 1 ? -3.5 : 1e300));
	WHOLE(soda_msg_max_double(job, r->rank ? -0.0 : -1.0, &all));
	CHECK(all == (r->ranks > 1 ? 0 : -1) && signbit(all));
	WHOLE(soda_msg_min_double(job, r->rank ? -INFINITY : NAN, &all));
	CHECK(isnan(all));
	WHOLE(soda_msg_max_double(job, r->rank ? INFINITY : -(double)NAN, &all));
	CHECK(isnan(all));
}

static void share(struct rank *r, struct soda_msg_job *job)
{
	static const size_t sizes[] = { 1, 8, 13, 0, 200 };
	int64_t each[RANKS + 1] = { 0 };

	for (int64_t k = 0; k < 3; k++) {
		WHOLE(soda_msg_gather(job, -5 * k + r->rank, each));
		for (unsigned i = 0; i < r->ranks; i++)
			CHECK(each[i] == -5 * k + i);
	}
	CHECK(each[r->ranks] == 0);
	for (unsigned i = 0; i < 5; i++) {
		unsigned root = i % r->ranks;
		uint8_t data[201];

		memset(data, root == r->rank ? 7 + (int)i : 0, sizeof(data));
		data[sizes[i]] = 99;
		WHOLE(soda_msg_broadcast(job, root, data, sizes[i]));
		for (size_t k = 0; k < sizes[i]; k++)
			CHECK(data[k] == 7 + i);
		CHECK(data[sizes[i]] == 99);
	}
}

/* All ranks compute this together. */
static void run_together(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	struct tally none = { 0 };
	int64_t all = 0, each[RANKS];
	double d;

	WHOLE(soda_msg_min(job, (int64_t)r->rank * 7 - 20, &all));
	CHECK(all == -20);
	WHOLE(soda_msg_min(job, 5 + r->rank, &all));
	CHECK(all == 5);
	WHOLE(soda_msg_max(job, -5 - (int64_t)r->rank, &all));
	CHECK(all == -5);
	compute_doubles(r, job);
	share(r, job);
	IS(soda_msg_broadcast(job, r->ranks, each, 8), -EINVAL);
	if (soda_msg_gather(job, 1, each) == -EINPROGRESS) {
		IS(soda_msg_sum_double(job, 1, &d), -EINVAL);
		WHOLE(soda_msg_gather(job, 1, each));
	}
	finish(r, job, &none, &none);
	soda_msg_end(job);
}

static void together(const char *where)
{
	run_ranks(where, RANKS, run_together);
	stop_agent();
}

/* A message of a rank that does nothing else arrives. */
static void run_slow(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	struct tally pushed = { 0 }, pulled = { 0 };
	int64_t most = 0;
	int ret;

	if (r->rank == 0) {
		push(r, job, 1, "hello", 5, &pushed, &pulled);
		while (!pulled.n) /* no call of the library but this one: the answer's */
			if (drain(r, job, &pulled) == -EAGAIN)
				poll(NULL, 0, 1);
	} else {
		IS(soda_msg_wait(job, SODA_MSG_PULL, DEADLINE_MS), 0);
		IS(drain(r, job, &pulled), -EAGAIN);
		CHECK(pulled.n == 1);
		push(r, job, 0, "yes", 3, &pushed, &pulled);
		IS(soda_msg_progress(job), 0);
	}
	while ((ret = soda_msg_max(job, r->rank ? -3 : -9, &most)) == -EINPROGRESS)
		IS(soda_msg_wait(job, SODA_MSG_COLLECTIVE, DEADLINE_MS), 0);
	IS(ret, 0);
	CHECK(most == -3);
	while ((ret = soda_msg_barrier(job)) == -EINPROGRESS) {
		IS(soda_msg_max(job, 0, &most), -EINVAL);
		IS(soda_msg_wait(job, SODA_MSG_COLLECTIVE, DEADLINE_MS), 0);
	}
	IS(ret, 0);
	IS(soda_msg_wait(job, SODA_MSG_PULL, 10), -ETIMEDOUT);
	IS(soda_msg_wait(job, 0, 10), -EINVAL);
	finish(r, job, &pushed, &pulled);
	soda_msg_end(job);
}

static void slow(const char *where)
{
	run_ranks(where, 2, run_slow);
	stop_agent();
}

/* Until each other rank has sent something: it is where it is to be when this one dies. */
static void await_others(struct rank *r, struct soda_msg_job *job)
{
	struct soda_message m;
	unsigned seen = 1u << r->rank;
	int ret;

	while (seen != (1u << RANKS) - 1) {
		ret = soda_msg_pull(job, &m);
		if (ret == -EAGAIN)
			ret = soda_msg_wait(job, SODA_MSG_PULL, DEADLINE_MS);
		else
			seen |= 1u << m.from;
		IS(ret, 0);
	}
}

/* The other ranks hear of one that is killed, whatever they do: push, pull, wait. */
static void run_killed(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	int64_t all;
	int ret = 0;

	if (r->rank == 2) {
		await_others(r, job);
		kill(getpid(), SIGKILL);
	} else if (r->rank == 0) {
		IS(soda_msg_push(job, 2, "x", 1), 0);
		ret = soda_msg_wait(job, SODA_MSG_PULL, NEWS_MS);
	} else if (r->rank == 1) {
		IS(soda_msg_sum(job, 1, &all), -EINPROGRESS);
		IS(soda_msg_push(job, 2, "x", 1), 0);
		ret = soda_msg_wait(job, SODA_MSG_COLLECTIVE, NEWS_MS);
	} else {
		for (int ms = 0; ms < NEWS_MS && (ret == 0 || ret == -EAGAIN); ms++) {
			ret = soda_msg_push(job, 2, "x", 1);
			poll(NULL, 0, 1);
		}
	}
	IS(ret, -ECANCELED);
	CHECK(strstr(soda_msg_last_error(), "rank 2 "));
	IS(soda_msg_push(job, 0, "x", 1), -ECANCELED);
	/* these come back, too, whatever they would wait for */
	crowd.r = r;
	IS(soda_msg_push_pull(job, 2, "x", 1, take_tally, &(struct tally){ 0 }), -ECANCELED);
	ret = soda_msg_finish(job);
	CHECK(ret == -ECANCELED);
	ret = soda_msg_drain(job, take_tally, &(struct tally){ 0 });
	CHECK(ret == -ECANCELED);
	IS(soda_msg_barrier(job), r->rank == 1 ? -EINVAL : -ECANCELED);
	soda_msg_end(job);
}

static void killed(const char *where)
{
	struct ranks all;

	fork_ranks(&all, RANKS, run_killed);
	start_agent(where, BUDGET);
	tell_address(&all);
	for (unsigned i = 0; i < RANKS; i++) {
		int status = await_rank(&all, i);

		if (i == 2)
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			assert_int_equal(status, 0);
	}
	assert_int_equal(agent->dpu.messages.jobs.broken_n, 1);
	stop_agent();
}

/* Who leaves in the middle breaks the job off; who leaves after the end does not. */
static void run_left(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	struct tally none = { 0 };
	struct soda_message m;
	int ret;

	IS(soda_msg_finish(job), 0);
	while ((ret = drain(r, job, &none)) == -EAGAIN)
		IS(soda_msg_wait(job, SODA_MSG_PULL, DEADLINE_MS), 0);
	IS(ret, -ENODATA);
	if (r->rank) {
		soda_msg_end(job);
		return;
	}
	/* nothing has happened to it: it is over, until somebody wants more of it */
	poll(NULL, 0, 50);
	IS(soda_msg_pull(job, &m), -ENODATA);
	IS(soda_msg_begin(job), 0);
	IS(soda_msg_push(job, 1, "x", 1), 0);
	IS(soda_msg_wait(job, SODA_MSG_PULL, NEWS_MS), -ECANCELED);
	CHECK(strstr(soda_msg_last_error(), "rank 1 "));
	soda_msg_end(job);
}

static void left(const char *where)
{
	run_ranks(where, 2, run_left);
	stop_agent();
}

/* Ranks that do not agree. */
static void run_apart(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	int64_t all;

	IS(r->rank ? soda_msg_sum(job, 1, &all) : soda_msg_max(job, 1, &all), -EINPROGRESS);
	IS(soda_msg_wait(job, SODA_MSG_COLLECTIVE, DEADLINE_MS), -ECANCELED);
	CHECK(strstr(soda_msg_last_error(), "maximum"));
	CHECK(strstr(soda_msg_last_error(), "sum"));
	soda_msg_end(job);
}

static void apart(const char *where)
{
	run_ranks(where, 2, run_apart);
	stop_agent();
}

/* Two jobs at a time, of four processes: nobody sees a message of the other job. */
static void run_two(struct rank *r)
{
	struct rank mine = { r->agent, r->rank / 2, 2, "", "", "" };
	const char *name = r->rank % 2 ? "odd" : "even";
	struct tally pushed = { 0 }, pulled = { 0 };
	struct soda_msg_job *job = NULL;

	IS(try_start(&mine, name, name, DEADLINE_MS, &job), 0);
	for (unsigned i = 0; i < 10000; i++)
		push(&mine, job, i % 2, name, strlen(name), &pushed, &pulled);
	finish(&mine, job, &pushed, &pulled);
	CHECK(pulled.n == 10000);
	/* of "odd" and "even" the sums differ */
	CHECK(pulled.sum ==
	      5000 * sum_of(0, mine.rank, (const uint8_t *)name, strlen(name)) +
		      5000 * sum_of(1, mine.rank, (const uint8_t *)name, strlen(name)));
	soda_msg_end(job);
}

static void two(const char *where)
{
	run_ranks(where, 4, run_two);
	stop_agent();
}

/* What is refused: rank 0 holds a place in a job for which rank 1 never comes as it should. */
static void run_refused(struct rank *r)
{
	struct soda_msg_job *job = NULL;
	struct rank other = *r;

	if (r->rank == 0) {
		IS(try_start(r, "job", "secret", 3000, &job), -ETIMEDOUT);
		CHECK(strstr(soda_msg_last_error(), "rank 1"));
		return;
	}
	poll(NULL, 0, 1000); /* rank 0 has come */
	IS(try_start(r, "job", "guessed", 100, &job), -EACCES);
	IS(try_start(r, "job", NULL, 100, &job), -EACCES);
	other.ranks = 3;
	IS(try_start(&other, "job", "secret", 100, &job), -EINVAL);
	CHECK(strstr(soda_msg_last_error(), "has 2 ranks"));
	other.ranks = 2;
	other.rank = 0;
	IS(try_start(&other, "job", "secret", 100, &job), -EBUSY);
	other.rank = 2;
	IS(try_start(&other, "job", "secret", 100, &job), -EINVAL);
	IS(try_start(r, "a b", "secret", 100, &job), -EINVAL);
	IS(try_start(r, "", "secret", 100, &job), -EINVAL);
	other = (struct rank){ r->agent, 5, 4096, "", "", "" }; /* 512 MiB */
	IS(try_start(&other, "many", "secret", 100, &job), -ENOSPC);
	CHECK(strstr(soda_msg_last_error(), "--msg-memory"));
	CHECK(!job);
}

static void refused(const char *where)
{
	run_ranks(where, 2, run_refused);
	stop_agent();
}

/*
 * The agent goes: everybody is told, and nobody hangs.  It ends its connections one after the
 * other, so that it may still tell a rank that the other one has gone.
 */
static void run_lost(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	int lost;

	IS(soda_msg_push(job, r->rank, "x", 1), 0);
	lost = soda_msg_wait(job, SODA_MSG_COLLECTIVE, DEADLINE_MS);
	CHECK(lost == -ENOTCONN || lost == -ECANCELED);
	IS(soda_msg_push(job, 0, "x", 1), lost);
	soda_msg_end(job);
}

static void lost(const char *where)
{
	struct ranks all;
	int bad = 0;

	fork_ranks(&all, 2, run_lost);
	start_agent(where, BUDGET);
	tell_address(&all);
	for (int ms = 0; agent->dpu.messages.messages < 2 && ms < DEADLINE_MS; ms++)
		poll(NULL, 0, 1);
	stop_agent();
	for (unsigned i = 0; i < 2; i++)
		bad |= await_rank(&all, i);
	assert_int_equal(bad, 0);
}

/* An agent without memory for messages has no such service. */
static void run_without(struct rank *r)
{
	struct soda_msg_job *job = NULL;

	IS(try_start(r, "job", NULL, 100, &job), -ENOTSUP);
	CHECK(strstr(soda_msg_last_error(), "--msg-memory"));
	CHECK(!job);
}

static void without(const char *where)
{
	struct ranks all;

	fork_ranks(&all, 1, run_without);
	start_agent(where, 0);
	tell_address(&all);
	assert_int_equal(await_rank(&all, 0), 0);
	stop_agent();
}

/* Several agents. */

/*
 * Rank 1's program writes into its rings what it should not, at any time.  Others hear which rank
 * it was, the agent goes on, and the next job of the same ranks is a good one.
 */

static enum scribble scribble; /* set before the ranks are forked */

static void run_scribbled(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	struct tally pushed = { 0 }, pulled = { 0 };
	uint64_t data[16] = { r->rank };
	int ret = 0;

	CHECK(scribble_has_rings(job));
	for (unsigned i = 0; ret == 0 || ret == -EAGAIN; i++) {
		struct soda_message m;

		if (r->rank == 1 && i > 100)
			scribble_into(job, scribble, mix(i));
		if (r->rank == 1) { /* its own pushes would mend what it has written */
			poll(NULL, 0, 1);
			ret = soda_msg_wait(job, SODA_MSG_COLLECTIVE, 1);
			ret = ret == -ETIMEDOUT ? 0 : ret;
			continue;
		}
		ret = soda_msg_push(job, i % 3, data, sizeof(data));
		while (soda_msg_pull(job, &m) == 0)
			;
		if (ret == -EAGAIN)
			soda_msg_wait(job, SODA_MSG_PULL | SODA_MSG_PUSH, 1);
	}
	IS(ret, -ECANCELED);
	CHECK(strstr(soda_msg_last_error(), "rank 1 "));
	soda_msg_end(job);

	IS(try_start(r, "after", "secret", DEADLINE_MS, &job), 0);
	for (unsigned i = 0; i < MANY; i++)
		push(r, job, i % 3, data, sizeof(data), &pushed, &pulled);
	finish(r, job, &pushed, &pulled);
	soda_msg_end(job);
}

static void scribbled(const char *(*where)(void))
{
	for (scribble = SCRIBBLE_TAIL; scribble < SCRIBBLES; scribble++) {
		run_ranks(where(), 3, run_scribbled);
		assert_int_equal(agent->dpu.messages.jobs.broken_n, 1);
		stop_agent();
	}
}

/* Where the budget has no room for rings, calls do. */
static void run_small(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	struct tally pushed = { 0 }, pulled = { 0 };

	CHECK(!scribble_has_rings(job));
	for (uint64_t i = 0; i < MANY; i++)
		push(r, job, i % 3, &i, sizeof(i), &pushed, &pulled);
	finish(r, job, &pushed, &pulled);
	soda_msg_end(job);
}

static void small(const char *(*where)(void))
{
	struct ranks all;
	int bad = 0;

	fork_ranks(&all, 3, run_small);
	start_agent(where(), 3 * SODA_MSG_INBOX_LEAST);
	tell_address(&all);
	for (unsigned i = 0; i < 3; i++)
		bad |= await_rank(&all, i);
	assert_int_equal(bad, 0);
	stop_agent();
}

static const char *tcp(void)
{
	return "tcp://127.0.0.1:0";
}

static const char *shm(void)
{
	static char where[64];
	static int n;

	snprintf(where, sizeof(where), "shm://@soda-messages-%d-%d", (int)getpid(), n++);
	return where;
}

static void start_agents(const char *(*where)(void), unsigned n)
{
	for (agents_n = 0; agents_n < n; agents_n++) {
		struct agent *a = &agents[agents_n];

		start_one(a, where(), BUDGET);
		if (!near && strncmp(soda_listener_address(a->listener), "tcp:", 4) != 0)
			listen_at(a, "tcp://127.0.0.1:0", &a->peers);
	}
}

static void run_many(const char *(*where)(void), unsigned k, unsigned n,
		     void (*run)(struct rank *r))
{
	struct ranks all;
	int bad = 0;

	fork_ranks(&all, n, run);
	start_agents(where, k);
	tell_address(&all);
	for (unsigned i = 0; i < n; i++)
		bad |= await_rank(&all, i);
	if (bad)
		stop_agent();
	assert_int_equal(bad, 0);
}

static uint64_t relayed(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < agents_n; i++)
		n += agents[i].dpu.messages.relayed;
	return n;
}

static void many_of(const char *(*where)(void), unsigned k, unsigned n)
{
	uint64_t messages = 0, transfers = 0, taken = 0;

	run_many(where, k, n, run_once);
	for (unsigned i = 0; i < agents_n; i++) {
		messages += agents[i].dpu.messages.messages;
		transfers += agents[i].dpu.messages.jobs.relays.transfers;
		taken += agents[i].dpu.messages.jobs.relays.near;
		assert_int_equal(agents[i].dpu.messages.jobs.broken_n, 0);
	}
	assert_int_equal(messages, 3ull * MANY * n);
	assert_true(relayed() > messages / 4 && transfers && transfers < messages / 4);
	assert_int_equal(taken, near && where == shm ? transfers : 0);
	stop_agent();
}

/* Every number of agents, and ranks that they cannot all have as many of. */
static void many(const char *(*where)(void))
{
	static const unsigned of[][2] = { { 2, 2 }, { 2, 3 }, { 3, 4 }, { 4, 4 }, { 4, 8 } };

	for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		many_of(where, of[i][0], of[i][1]);
}

static void many_two(const char *(*where)(void))
{
	many_of(where, 2, 3);
}

static void many_four(const char *(*where)(void))
{
	many_of(where, 4, 4);
}

static void many_large(const char *(*where)(void))
{
	run_many(where, 2, 3, run_large);
	assert_true(relayed());
	stop_agent();
}

/* Rank 1, of another agent, does not pull: rank 2, of the first agent's, is not held up. */
static void many_held(const char *(*where)(void))
{
	run_many(where, 2, 3, run_held);
	stop_agent();
}

static void three_held(const char *(*where)(void))
{
	run_many(where, 3, 3, run_held);
	stop_agent();
}

static void many_waiting(const char *(*where)(void))
{
	run_many(where, 3, 3, run_waiting);
	stop_agent();
}

/* Each in a process that has used no device before its ranks are forked. */
static void two_together(const char *(*where)(void))
{
	run_many(where, 2, RANKS, run_together);
	stop_agent();
}

static void many_together(const char *(*where)(void))
{
	run_many(where, AGENTS, RANKS, run_together);
	stop_agent();
}

static void many_slow(const char *(*where)(void))
{
	run_many(where, 2, 2, run_slow);
	stop_agent();
}

static void many_left(const char *(*where)(void))
{
	run_many(where, 2, 2, run_left);
	stop_agent();
}

static void many_apart(const char *(*where)(void))
{
	run_many(where, 2, 2, run_apart);
	stop_agent();
}

/* Ranks of all agents hear of one that is killed. */
static void many_killed(const char *(*where)(void))
{
	struct ranks all;

	fork_ranks(&all, RANKS, run_killed);
	start_agents(where, 3);
	tell_address(&all);
	for (unsigned i = 0; i < RANKS; i++) {
		int status = await_rank(&all, i);

		if (i != 2)
			assert_int_equal(status, 0);
	}
	stop_agent();
}

/* The second agent goes: its rank has lost it, and those of others hear which one it was. */
static void run_agent_lost(struct rank *r)
{
	struct soda_msg_job *job = start(r);
	int lost;

	all_of(r, job, 0);
	IS(soda_msg_push(job, 0, "x", 1), 0);
	lost = soda_msg_wait(job, SODA_MSG_COLLECTIVE, DEADLINE_MS);
	if (r->rank != 1) {
		CHECK(lost == -ECANCELED);
		CHECK(strstr(soda_msg_last_error(), "rank 1"));
	}
	CHECK(lost == -ENOTCONN || lost == -ECANCELED);
	soda_msg_end(job);
}

static void many_agent_lost(const char *(*where)(void))
{
	struct ranks all;
	int bad = 0;

	fork_ranks(&all, 3, run_agent_lost);
	start_agents(where, 3);
	tell_address(&all);
	for (int ms = 0; agents[1].dpu.messages.messages < 1 && ms < DEADLINE_MS; ms++)
		poll(NULL, 0, 1);
	stop_one(&agents[1]);
	for (unsigned i = 0; i < 3; i++)
		bad |= await_rank(&all, i);
	stop_one(&agents[2]);
	stop_one(&agents[0]);
	agents_n = 0;
	assert_int_equal(bad, 0);
}

/* Links are cut again and again, by seed: nothing is lost, and nothing comes twice. */
static void many_cut(const char *(*where)(void))
{
	uint64_t again = 0;

	links = "fault+";
	links_rules = "?do=cut&on=call&rate=5&seeds=7";
	run_many(where, 3, 4, run_once);
	links = links_rules = "";
	for (unsigned i = 0; i < agents_n; i++) {
		again += agents[i].dpu.messages.jobs.relays.again;
		assert_int_equal(agents[i].dpu.messages.jobs.broken_n, 0);
	}
	assert_true(again);
	stop_agent();
}

/* Ranks' connections as well; those with rings make few calls, and each fifth one is cut. */
static void all_cut(const char *(*where)(void))
{
	uint64_t returned = 0;

	to_agent = links = "fault+";
	links_rules = "?do=cut&on=call&rate=3&after=1&seeds=3";
	to_agent_rules = where == shm ? "?do=cut&on=call&after=4" : links_rules;
	run_many(where, 2, 4, run_once);
	for (unsigned i = 0; i < agents_n; i++) {
		returned += agents[i].dpu.messages.jobs.returned;
		assert_int_equal(agents[i].dpu.messages.jobs.broken_n, 0);
	}
	assert_true(returned);
	to_agent = to_agent_rules = links = links_rules = "";
	stop_agent();
}

static void large_cut(const char *(*where)(void))
{
	to_agent = "fault+";
	to_agent_rules =
		where == shm ? "?do=cut&on=call&after=4" : "?do=cut&on=call&rate=3&after=1&seeds=3";
	run_many(where, 1, 3, run_large);
	assert_true(agent->dpu.messages.jobs.returned);
	assert_int_equal(agent->dpu.messages.jobs.broken_n, 0);
	to_agent = to_agent_rules = "";
	stop_agent();
}

/* What is refused: lists and places that make no sense, or that ranks do not agree on. */
static void run_many_refused(struct rank *r)
{
	struct soda_msg_job *job = NULL;
	struct rank other = *r;

	other.places = "0,1,0";
	IS(try_start(&other, "job", "secret", 100, &job), -EINVAL);
	other.places = "0,2";
	IS(try_start(&other, "job", "secret", 100, &job), -EINVAL);
	other.places = "0,";
	IS(try_start(&other, "job", "secret", 100, &job), -EINVAL);
	other.places = "0*2x";
	IS(try_start(&other, "job", "secret", 100, &job), -EINVAL);
	other.places = r->places;
	other.agents = "tcp://127.0.0.1:1,,tcp://127.0.0.1:2";
	IS(try_start(&other, "job", "secret", 100, &job), -EINVAL);
	other.agents = r->agents;
	if (r->rank == 1) {
		other.places = "1,1"; /* rank 0 says otherwise to the other agent */
		IS(try_start(&other, "job", "secret", 5000, &job), -ETIMEDOUT);
	} else {
		IS(try_start(&other, "job", "secret", DEADLINE_MS, &job), -ECANCELED);
		CHECK(strstr(soda_msg_last_error(), "different lists"));
	}
	CHECK(!job);
}

static void many_refused(const char *(*where)(void))
{
	run_many(where, 2, 2, run_many_refused);
	stop_agent();
}

/* Each case, over each transport. */

static const char *verbs(void)
{
	const char *where = getenv("SODA_TEST_VERBS");

	if (!where) {
		print_message("SKIP: no RDMA device is named (SODA_TEST_VERBS); ./check rdma has"
			      " one\n");
		skip();
	}
	return where;
}

#define CASE(what)                                                                                 \
	static void what##_tcp(void **state)                                                       \
	{                                                                                          \
		what(tcp());                                                                       \
	}                                                                                          \
	static void what##_shm(void **state)                                                       \
	{                                                                                          \
		what(shm());                                                                       \
	}                                                                                          \
	static void what##_verbs(void **state)                                                     \
	{                                                                                          \
		what(verbs());                                                                     \
	}
CASE(once)
CASE(threads)
CASE(crowd_of_threads)
CASE(slow_threads)
CASE(large)
CASE(bulk)
CASE(held)
CASE(slow)
CASE(waiting)
CASE(together)
CASE(killed)
CASE(left)
CASE(apart)
CASE(two)
CASE(refused)
CASE(lost)
CASE(without)

static void scribbled_shm(void **state)
{
	scribbled(shm);
}

static void small_shm(void **state)
{
	small(shm);
}

#define MANY_CASE(what)                                                                            \
	static void what##_tcp(void **state)                                                       \
	{                                                                                          \
		what(tcp);                                                                         \
	}                                                                                          \
	static void what##_shm(void **state)                                                       \
	{                                                                                          \
		what(shm);                                                                         \
	}                                                                                          \
	static void what##_near(void **state)                                                      \
	{                                                                                          \
		near = true;                                                                       \
		what(shm);                                                                         \
		near = false;                                                                      \
	}
MANY_CASE(many)
MANY_CASE(many_large)
MANY_CASE(many_held)
MANY_CASE(three_held)
MANY_CASE(many_slow)
MANY_CASE(many_waiting)
MANY_CASE(two_together)
MANY_CASE(many_together)
MANY_CASE(many_left)
MANY_CASE(many_apart)
MANY_CASE(many_killed)
MANY_CASE(many_agent_lost)
MANY_CASE(many_cut)
MANY_CASE(all_cut)
MANY_CASE(large_cut)
MANY_CASE(many_refused)

#define VERBS_CASE(what)                                                                           \
	static void what##_verbs(void **state)                                                     \
	{                                                                                          \
		verbs();                                                                           \
		near = true;                                                                       \
		what(verbs);                                                                       \
		near = false;                                                                      \
	}
VERBS_CASE(many_two)
VERBS_CASE(many_four)
VERBS_CASE(many_large)
VERBS_CASE(many_held)
VERBS_CASE(three_held)
VERBS_CASE(many_slow)
VERBS_CASE(many_waiting)
VERBS_CASE(two_together)
VERBS_CASE(many_together)
VERBS_CASE(many_left)
VERBS_CASE(many_apart)
VERBS_CASE(many_killed)
VERBS_CASE(many_agent_lost)
VERBS_CASE(many_cut)
VERBS_CASE(all_cut)
VERBS_CASE(large_cut)
VERBS_CASE(many_refused)

#define EACH_MANY(t)                                                                               \
	cmocka_unit_test(many_large_##t), cmocka_unit_test(many_held_##t),                         \
		cmocka_unit_test(three_held_##t), cmocka_unit_test(many_slow_##t),                 \
		cmocka_unit_test(many_waiting_##t), cmocka_unit_test(two_together_##t),            \
		cmocka_unit_test(many_together_##t), cmocka_unit_test(many_left_##t),              \
		cmocka_unit_test(many_apart_##t), cmocka_unit_test(many_killed_##t),               \
		cmocka_unit_test(many_agent_lost_##t), cmocka_unit_test(many_cut_##t),             \
		cmocka_unit_test(all_cut_##t), cmocka_unit_test(large_cut_##t),                    \
		cmocka_unit_test(many_refused_##t)

#define EACH(t)                                                                                    \
	cmocka_unit_test(once_##t), cmocka_unit_test(threads_##t),                                 \
		cmocka_unit_test(crowd_of_threads_##t), cmocka_unit_test(slow_threads_##t),        \
		cmocka_unit_test(large_##t), cmocka_unit_test(bulk_##t),                           \
		cmocka_unit_test(held_##t), cmocka_unit_test(slow_##t),                            \
		cmocka_unit_test(waiting_##t), cmocka_unit_test(together_##t),                     \
		cmocka_unit_test(killed_##t), cmocka_unit_test(left_##t),                          \
		cmocka_unit_test(apart_##t), cmocka_unit_test(two_##t),                            \
		cmocka_unit_test(refused_##t), cmocka_unit_test(lost_##t),                         \
		cmocka_unit_test(without_##t)

/*
 * Each in a process of its own: ranks are forked, and what librdmacm has opened is of no use in a
 * process that was forked behind it.
 */
static int run_each(const char *program, const struct CMUnitTest *tests, size_t n)
{
	int bad = 0, status;

	for (size_t i = 0; i < n; i++) {
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			execl("/proc/self/exe", program, "verbs", tests[i].name, NULL);
			_exit(127);
		}
		bad += pid < 0 || waitpid(pid, &status, 0) != pid || status;
	}
	return bad;
}

/* Without an agent */

/* Where the first rank's router is, and the others' behind it. */
static const char *own_tcp(void)
{
	static char address[64];

	/* nobody else's: of the loopback network, and a port that nobody is given */
	snprintf(address, sizeof(address), "tcp://127.98.%u.%u:21000",
		 (unsigned)getpid() >> 8 & 0xff, ((unsigned)getpid() & 0xff) | 1);
	return address;
}

static const char *own_shm(void)
{
	static char address[64];

	snprintf(address, sizeof(address), "shm://@soda-test-own-%d", (int)getpid());
	return address;
}

/* All ranks end well, but for one that kills itself, if it is to: -1, nobody. */
static void run_routed(const char *where, unsigned n, void (*run)(struct rank *r), int killed)
{
	struct told told = { .routing = "process" };
	struct ranks all;

	fork_ranks(&all, n, run);
	snprintf(told.agents, sizeof(told.agents), "%s", where);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(write(all.tell[i][1], &told, sizeof(told)), sizeof(told));
		close(all.tell[i][1]);
	}
	for (unsigned i = 0; i < n; i++) {
		int status = await_rank(&all, i);

		if ((int)i == killed)
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			assert_int_equal(status, 0);
	}
}

/*
 * Jobs that end as soon as they have begun, with a phase or with a collective: each router is gone
 * when its rank has heard of the end, whatever the others have.
 */
static void run_short(struct rank *r)
{
	for (unsigned i = 0; i < 25; i++) {
		struct tally none = { 0 };
		struct soda_msg_job *job = NULL;
		char name[16];
		int ret;

		snprintf(name, sizeof(name), "short-%u", i);
		IS(try_start(r, name, "secret", DEADLINE_MS, &job), 0);
		IS(soda_msg_finish(job), 0);
		while ((ret = drain(r, job, &none)) == -EAGAIN)
			IS(soda_msg_wait(job, SODA_MSG_PULL, DEADLINE_MS), 0);
		IS(ret, -ENODATA);
		if (i % 2)
			CHECK(all_of(r, job, 1) == r->ranks);
		soda_msg_end(job);
	}
}

static void routed(const char *(*where)(void))
{
	run_routed(where(), 1, run_once, -1);
	run_routed(where(), RANKS, run_once, -1);
	run_routed(where(), 2, run_threads, -1);
	run_routed(where(), 2, run_crowd, -1);
	run_routed(where(), 2, run_slow_threads, -1);
	run_routed(where(), RANKS, run_large, -1);
	run_routed(where(), RANKS, run_short, -1);
}

static void routed_by_tcp(void **state)
{
	routed(own_tcp);
}

static void routed_by_shm(void **state)
{
	routed(own_shm);
}

static void routed_killed(void **state)
{
	run_routed(own_tcp(), RANKS, run_killed, 2);
	run_routed(own_shm(), RANKS, run_killed, 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest sockets[] = { EACH(tcp), EACH(shm), cmocka_unit_test(scribbled_shm),
					      cmocka_unit_test(small_shm) };
	const struct CMUnitTest several[] = { cmocka_unit_test(many_tcp),  EACH_MANY(tcp),
					      cmocka_unit_test(many_shm),  EACH_MANY(shm),
					      cmocka_unit_test(many_near), EACH_MANY(near) };
	const struct CMUnitTest rdma[] = { EACH(verbs), cmocka_unit_test(many_two_verbs),
					   cmocka_unit_test(many_four_verbs), EACH_MANY(verbs) };
	const struct CMUnitTest own[] = { cmocka_unit_test(routed_by_tcp),
					  cmocka_unit_test(routed_by_shm),
					  cmocka_unit_test(routed_killed) };
	bool one = argc > 2 && strcmp(argv[2], "*") != 0;

	if (one)
		cmocka_set_test_filter(argv[2]);
	if (argc > 1 && strcmp(argv[1], "verbs") == 0 && !one)
		return run_each(argv[0], rdma, sizeof(rdma) / sizeof(rdma[0]));
	if (argc > 1 && strcmp(argv[1], "verbs") == 0)
		return cmocka_run_group_tests_name("messages, verbs", rdma, NULL, NULL);
	if (argc > 1 && strcmp(argv[1], "several") == 0)
		return cmocka_run_group_tests_name("messages, several agents", several, NULL, NULL);
	if (argc > 1 && strcmp(argv[1], "process") == 0)
		return cmocka_run_group_tests_name("messages, routed in processes", own, NULL,
						   NULL);
	return cmocka_run_group_tests_name("messages", sockets, NULL, NULL) +
	       cmocka_run_group_tests_name("messages, verbs", rdma, NULL, NULL);
}
