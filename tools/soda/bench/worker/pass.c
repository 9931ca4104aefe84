/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The team.  The main thread leads; all meet at barriers:
 *
 *   main:    set work | start                 ready  clocks  go        done  clocks
 *   thread:             start  draw accesses  ready          go  touch done
 */
#include "soda/bench/worker/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "soda/bench/worker/access.h"
#include "soda/bench/worker/touch.h"

enum work { FILL, PASS, QUIT };

struct member {
	struct soda_bench_team *team;
	pthread_t thread;
	uint32_t number;
	uint32_t count;	  /* accesses a pass */
	uint32_t *chunks; /* of this pass */
	uint32_t *ns;	  /* duration of each access of the round's measured passes */
};

struct soda_bench_team {
	struct soda_bench_plan plan;
	const struct soda_bench_memory *memory;
	struct soda_bench_access access;
	struct soda_bench_area area;
	struct member *members;
	uint32_t started;
	pthread_barrier_t all; /* members and main */
	pthread_barrier_t members_only;
	/* set by main before `start`, constant until `done` */
	enum work work;
	uint64_t pass;	   /* counts all */
	uint32_t measured; /* index of the measured pass; passes: a warm one */
	uint64_t accesses; /* of all members in a pass */
	/* first failure wins */
	atomic_flag failed;
	int err; /* guarded by failed, read by main after `done` */
	char why[256];
	_Atomic bool stop;
};

struct clocks {
	uint64_t wall, client, server;
};

static uint64_t read_clock(clockid_t id)
{
	struct timespec t;

	return clock_gettime(id, &t) ? SODA_BENCH_UNKNOWN
				     : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct clocks read_clocks(struct soda_bench_team *team)
{
	pid_t server = team->memory->server(&team->plan);
	clockid_t id;
	struct clocks now = { .server = SODA_BENCH_UNKNOWN };

	if (server > 0 && clock_getcpuclockid(server, &id) == 0)
		now.server = read_clock(id);
	now.client = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	now.wall = read_clock(CLOCK_MONOTONIC);
	return now;
}

static void fail(struct soda_bench_team *team, int err, const char *what, uint64_t word)
{
	if (!atomic_flag_test_and_set(&team->failed)) {
		team->err = err;
		snprintf(team->why, sizeof(team->why), "%s (word %llu of the region): %s", what,
			 (unsigned long long)word, strerror(-err));
	}
	atomic_store(&team->stop, true);
}

static void fill_share(struct member *member)
{
	struct soda_bench_team *team = member->team;
	const struct soda_bench_area *area = &team->area;
	uint64_t at = soda_bench_access_first(&team->access, member->number) * area->chunk_words;
	uint64_t share = soda_bench_access_share(&team->access, member->number);
	uint64_t end = at + share * area->chunk_words;

	if (end > area->words_n)
		end = area->words_n;
	for (; at < end; at++)
		area->words[at] = soda_bench_value(at, area->seed);
}

static void touch_all(struct member *member)
{
	struct soda_bench_team *team = member->team;
	bool measured = team->measured < team->plan.passes;
	uint32_t *ns = measured ? member->ns + (uint64_t)team->measured * member->count : NULL;
	uint64_t before = read_clock(CLOCK_MONOTONIC), bad;

	for (uint32_t i = 0; i < member->count; i++) {
		if (!soda_bench_touch(&team->area, member->chunks[i], team->pass << 32 | i, &bad)) {
			fail(team, -EILSEQ, "wrong value read", bad);
			return;
		}
		if (!ns)
			continue;
		uint64_t after = read_clock(CLOCK_MONOTONIC);
		ns[i] = after - before > UINT32_MAX ? UINT32_MAX : (uint32_t)(after - before);
		before = after;
	}
}

static void sync_share(struct member *member)
{
	struct soda_bench_team *team = member->team;

	pthread_barrier_wait(&team->members_only);
	if (atomic_load(&team->stop))
		return;
	int err = team->memory->sync(member->number);
	if (err)
		fail(team, err, "write-back of the dirty data failed", 0);
}

static void *run_member(void *arg)
{
	struct member *member = arg;
	struct soda_bench_team *team = member->team;

	team->memory->attach(member->number);
	for (;;) {
		pthread_barrier_wait(&team->all); /* start */
		if (team->work == QUIT)
			return NULL;
		if (team->work == PASS)
			soda_bench_access_pass(&team->access, team->pass, member->number,
					       member->chunks);
		pthread_barrier_wait(&team->all); /* ready */
		pthread_barrier_wait(&team->all); /* go */
		if (team->work == FILL)
			fill_share(member);
		else
			touch_all(member);
		if (team->work == FILL || soda_bench_access_stores(&team->access))
			sync_share(member);
		pthread_barrier_wait(&team->all); /* done */
	}
}

static void add_clocks(struct soda_bench_sample *sample, const struct clocks *from,
		       const struct clocks *to)
{
	if (!sample->began_ns)
		sample->began_ns = from->wall;
	sample->ended_ns = to->wall;
	sample->wall_ns += to->wall - from->wall;
	sample->client_cpu_ns += to->client - from->client;
	if (from->server == SODA_BENCH_UNKNOWN || to->server == SODA_BENCH_UNKNOWN)
		sample->server_cpu_ns = SODA_BENCH_UNKNOWN;
	else if (sample->server_cpu_ns != SODA_BENCH_UNKNOWN)
		sample->server_cpu_ns += to->server - from->server;
}

/* One piece of work by all members; sample may be NULL. */
static void run_work(struct soda_bench_team *team, enum work work, struct soda_bench_sample *sample)
{
	struct soda_bench_counters counted[2] = { 0 };
	struct clocks clocks[2];

	team->work = work;
	pthread_barrier_wait(&team->all); /* start */
	pthread_barrier_wait(&team->all); /* ready */
	team->memory->counters(&counted[0]);
	clocks[0] = read_clocks(team);
	pthread_barrier_wait(&team->all); /* go */
	pthread_barrier_wait(&team->all); /* done */
	clocks[1] = read_clocks(team);
	team->memory->counters(&counted[1]);
	if (sample) {
		add_clocks(sample, &clocks[0], &clocks[1]);
		soda_bench_counters_add(&sample->counters, &counted[0], &counted[1]);
	}
}

static int compare_ns(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/*
 * How long an access that had to fetch took, as the program saw it.  Which ones
 * those were is known by their number alone: the slowest ones.
 */
static int time_faults(struct soda_bench_team *team, struct soda_bench_sample *sample)
{
	const struct soda_bench_counters *c = &sample->counters;
	uint64_t fetched = c->faults - c->zero_fills, n = 0;
	uint32_t *all = malloc(sample->accesses * sizeof(*all));

	if (!all)
		return -ENOMEM;
	for (uint32_t i = 0; i < team->plan.threads; i++) {
		uint64_t some = (uint64_t)team->members[i].count * team->plan.passes;

		memcpy(all + n, team->members[i].ns, some * sizeof(*all));
		n += some;
	}
	qsort(all, n, sizeof(*all), compare_ns);
	if (fetched > n)
		fetched = n;
	if (fetched > 0) {
		sample->p50_ns = all[n - fetched + fetched / 2];
		sample->p99_ns = all[n - fetched + fetched * 99 / 100];
	}
	free(all);
	return 0;
}

static void run_pass(struct soda_bench_team *team, uint32_t measured,
		     struct soda_bench_sample *sample)
{
	if (atomic_load(&team->stop))
		return;
	team->measured = measured;
	run_work(team, PASS, sample);
	team->pass++;
}

void soda_bench_team_round(struct soda_bench_team *team, uint32_t flags,
			   struct soda_bench_sample *sample)
{
	memset(sample, 0, sizeof(*sample));
	if (flags & SODA_BENCH_ROUND_WARM)
		run_pass(team, team->plan.passes, NULL);
	for (uint32_t i = 0; i < team->plan.passes && flags & SODA_BENCH_ROUND_MEASURED; i++)
		run_pass(team, i, sample);
	sample->accesses =
		flags & SODA_BENCH_ROUND_MEASURED ? team->accesses * team->plan.passes : 0;
	if (!team->err && sample->accesses)
		team->err = time_faults(team, sample);
	sample->err = team->err;
	memcpy(sample->why, team->why, sizeof(sample->why));
}

static int start_members(struct soda_bench_team *team)
{
	for (uint32_t i = 0; i < team->plan.threads; i++) {
		struct member *member = &team->members[i];
		uint32_t n = soda_bench_access_count(&team->access, i);

		member->team = team;
		member->number = i;
		member->count = n;
		team->accesses += n;
		/* a thread of a trace may have none */
		member->chunks = malloc((n + 1) * sizeof(*member->chunks));
		member->ns = calloc((uint64_t)n * team->plan.passes + 1, sizeof(*member->ns));
		if (!member->chunks || !member->ns)
			return -ENOMEM;
	}
	for (; team->started < team->plan.threads; team->started++) {
		struct member *member = &team->members[team->started];
		int err = pthread_create(&member->thread, NULL, run_member, member);

		if (err)
			return -err;
	}
	return 0;
}

static int make_access(struct soda_bench_team *team)
{
	const struct soda_bench_plan *plan = &team->plan;
	uint32_t chunks = (uint32_t)((plan->bytes + plan->chunk_bytes - 1) / plan->chunk_bytes);
	struct soda_bench_trace trace;
	char why[256]; /* the parent has read it before */
	int err;

	if (plan->pattern != SODA_BENCH_TRACE) {
		err = soda_bench_access_create(&team->access, plan->pattern, chunks, plan->threads,
					       plan->seed);
		team->access.reader = plan->reader;
		return err;
	}
	err = soda_bench_trace_load(plan->trace, &trace, why, sizeof(why));
	if (!err && (trace.chunk_bytes != plan->chunk_bytes || trace.chunks > chunks))
		err = -ESTALE;
	if (!err && !plan->stores)
		soda_bench_trace_read_only(&trace);
	if (!err)
		err = soda_bench_access_replay(&team->access, &trace, plan->threads);
	return err;
}

static int make_area(struct soda_bench_team *team, uint64_t *words)
{
	const struct soda_bench_plan *plan = &team->plan;

	team->area = (struct soda_bench_area){
		.words = words,
		.words_n = plan->bytes / sizeof(uint64_t),
		.chunk_words = plan->chunk_bytes / sizeof(uint64_t),
		.seed = plan->seed,
		.touch = plan->touch,
	};
	if (plan->pattern != SODA_BENCH_RMW)
		return 0;
	team->area.stores = calloc(team->access.chunks, sizeof(*team->area.stores));
	return team->area.stores ? 0 : -ENOMEM;
}

int soda_bench_team_create(const struct soda_bench_plan *plan,
			   const struct soda_bench_memory *memory, uint64_t *words,
			   struct soda_bench_team **team_p)
{
	struct soda_bench_team *team = calloc(1, sizeof(*team));
	int err;

	if (!team)
		return -ENOMEM;
	team->plan = *plan;
	team->memory = memory;
	team->members = calloc(plan->threads, sizeof(*team->members));
	pthread_barrier_init(&team->all, NULL, plan->threads + 1);
	pthread_barrier_init(&team->members_only, NULL, plan->threads);
	err = team->members ? make_access(team) : -ENOMEM;
	if (!err)
		err = make_area(team, words);
	if (!err)
		err = start_members(team);
	if (!err && !memory->filled) {
		run_work(team, FILL, NULL);
		err = team->err;
	}
	if (err) { /* the process ends: threads at the barrier go with it */
		return err;
	}
	*team_p = team;
	return 0;
}

void soda_bench_team_destroy(struct soda_bench_team *team)
{
	team->work = QUIT;
	pthread_barrier_wait(&team->all);
	for (uint32_t i = 0; i < team->plan.threads; i++) {
		pthread_join(team->members[i].thread, NULL);
		free(team->members[i].chunks);
		free(team->members[i].ns);
	}
	pthread_barrier_destroy(&team->all);
	pthread_barrier_destroy(&team->members_only);
	soda_bench_access_destroy(&team->access);
	free(team->area.stores);
	free(team->members);
	free(team);
}
