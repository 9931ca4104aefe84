/* SPDX-License-Identifier: BSD-3-Clause */
#include "ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void ranks_die(const char *program, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", program);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void *ranks_realloc(void *p, size_t n, size_t each)
{
	p = reallocarray(p, n ? n : 1, each);
	if (!p)
		ranks_die("messages", "no memory for %zu times %zu bytes", n, each);
	return p;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint64_t random_bits(uint64_t stream, uint64_t at)
{
	return mix(mix((stream + 1) * 0x9e3779b97f4a7c15) + (at + 1) * 0x9e3779b97f4a7c15);
}

static double seconds_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What is no error: not now, not yet, no more. */
static int check(const struct ranks *r, int ret, const char *what)
{
	if (ret < 0 && ret != -EAGAIN && ret != -EINPROGRESS && ret != -ENODATA)
		ranks_die(r->program, "%s: %s", what, soda_msg_last_error());
	return ret;
}

void ranks_start(struct ranks *r, const char *program, take_fn *take, void *arg)
{
	*r = (struct ranks){ .program = program, .take = take, .arg = arg };
	check(r, soda_msg_start(NULL, &r->job), "start");
	r->rank = soda_msg_rank(r->job);
	r->n = soda_msg_ranks(r->job);
}

void ranks_wait(struct ranks *r, unsigned what)
{
	check(r, soda_msg_wait(r->job, what, -1), "wait");
}

void ranks_ready(struct ranks *r)
{
	while (check(r, soda_msg_barrier(r->job), "barrier") == -EINPROGRESS)
		ranks_wait(r, SODA_MSG_COLLECTIVE);
	r->processors_began = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
	r->began = seconds_of(CLOCK_MONOTONIC);
}

double ranks_seconds(struct ranks *r)
{
	r->processors = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - r->processors_began;
	return seconds_of(CLOCK_MONOTONIC) - r->began;
}

bool ranks_take(struct ranks *r)
{
	struct soda_message m;
	int ret;

	while ((ret = check(r, soda_msg_pull(r->job, &m), "pull")) == 0)
		r->take(r->arg, &m);
	return ret != -ENODATA;
}

void ranks_push(struct ranks *r, unsigned rank, const void *data, size_t bytes)
{
	check(r, soda_msg_push_pull(r->job, rank, data, bytes, r->take, r->arg), "push");
}

void ranks_finish(struct ranks *r)
{
	check(r, soda_msg_finish(r->job), "finish");
	check(r, soda_msg_drain(r->job, r->take, r->arg), "pull");
	r->over = true;
}

void ranks_begin(struct ranks *r)
{
	if (r->over)
		check(r, soda_msg_begin(r->job), "begin");
	r->over = false;
}

bool ranks_try_sum(struct ranks *r, int64_t mine, int64_t *all_p)
{
	return check(r, soda_msg_sum(r->job, mine, all_p), "sum") == 0;
}

int64_t ranks_sum(struct ranks *r, int64_t mine)
{
	int64_t all = 0;

	while (!ranks_try_sum(r, mine, &all))
		ranks_wait(r, SODA_MSG_COLLECTIVE);
	return all;
}

int64_t ranks_max(struct ranks *r, int64_t mine)
{
	int64_t all = 0;

	while (check(r, soda_msg_max(r->job, mine, &all), "max") == -EINPROGRESS)
		ranks_wait(r, SODA_MSG_COLLECTIVE);
	return all;
}

int ranks_report(struct ranks *r, const char *what, double seconds, int64_t wrong)
{
	int64_t messages, bytes, all_wrong, processors_us;
	struct soda_msg_stats stats;

	soda_msg_get_stats(r->job, &stats);
	messages = ranks_sum(r, (int64_t)stats.pushed);
	bytes = ranks_sum(r, (int64_t)stats.pushed_bytes);
	processors_us = ranks_sum(r, (int64_t)(r->processors * 1e6));
	all_wrong = ranks_sum(r, wrong > 0 ? wrong : 0);
	if (r->rank == 0)
		printf("%s: %u ranks, %s: %.3f s, %.3f s of processors, %" PRId64
		       " messages, %" PRId64 " bytes: %s\n",
		       r->program, r->n, what, seconds, (double)processors_us / 1e6, messages,
		       bytes,
		       all_wrong   ? "WRONG"
		       : wrong < 0 ? "not verified"
				   : "as computed by one process");
	soda_msg_end(r->job);
	return all_wrong != 0;
}
