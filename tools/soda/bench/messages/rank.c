/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench .rank BYTES MESSAGES FLUSH_US [WAY]`: a rank of the benchmark, over SODA, in a job
 * that the environment names.  WAY: each, a call for each message (the default); many, gathered
 * here, and handed over by soda_msg_push_many(); slow, rank 0 sends the last rank a message now and
 * then, and does nothing else.  A first phase of a tenth of the messages is not measured.
 */
#include <errno.h>
#include <soda_msg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "soda/base/tool.h"
#include "soda/bench/messages/load.h"
#include "soda/bench/messages/messages.h"

static uint8_t message[SODA_BENCH_MSG_BYTES_MAX];

static int check(int ret, const char *what)
{
	if (ret < 0 && ret != -EAGAIN && ret != -ENODATA && ret != -EINPROGRESS) {
		fprintf(stderr, "soda bench messages: %s: %s\n", what, soda_msg_last_error());
		exit(SODA_EXIT_FAILED);
	}
	return ret;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void barrier(struct soda_msg_job *job)
{
	while (check(soda_msg_barrier(job), "barrier") == -EINPROGRESS)
		check(soda_msg_wait(job, SODA_MSG_COLLECTIVE, -1), "wait");
}

static uint64_t sum(struct soda_msg_job *job, uint64_t mine)
{
	int64_t all = 0;

	while (check(soda_msg_sum(job, (int64_t)mine, &all), "sum") == -EINPROGRESS)
		check(soda_msg_wait(job, SODA_MSG_COLLECTIVE, -1), "wait");
	return (uint64_t)all;
}

static int take_all(struct soda_msg_job *job, struct soda_bench_msg_load *load)
{
	struct soda_message m;
	int ret;

	while ((ret = check(soda_msg_pull(job, &m), "pull")) == 0)
		soda_bench_msg_take(load, m.data, m.bytes);
	return ret;
}

/* No more is sent: take all that comes, to the end of the phase. */
static void end_phase(struct soda_msg_job *job, struct soda_bench_msg_load *load)
{
	check(soda_msg_finish(job), "finish");
	while (take_all(job, load) != -ENODATA)
		check(soda_msg_wait(job, SODA_MSG_PULL, -1), "wait");
}

static void send_each(struct soda_msg_job *job, struct soda_bench_msg_load *load)
{
	for (uint64_t i = 0; i < load->messages; i++) {
		uint32_t to;
		uint64_t value = soda_bench_msg_next(load, &to);

		memcpy(message, &value, sizeof(value));
		while (check(soda_msg_push(job, to, message, load->bytes), "push") == -EAGAIN) {
			take_all(job, load);
			check(soda_msg_wait(job, SODA_MSG_PULL | SODA_MSG_PUSH, -1), "wait");
		}
	}
	end_phase(job, load);
}

/* Messages that are gathered here. */
struct gathered {
	uint8_t *data;
	uint32_t n;
};

static int take_many(struct soda_msg_job *job, struct soda_bench_msg_load *load)
{
	struct soda_message_run m;
	int ret;

	while ((ret = check(soda_msg_pull_many(job, &m), "pull")) == 0)
		for (size_t i = 0; i < m.count; i++)
			soda_bench_msg_take(load, (const uint8_t *)m.data + i * m.bytes, m.bytes);
	return ret;
}

static void hand_over(struct soda_msg_job *job, struct soda_bench_msg_load *load, uint32_t to,
		      struct gathered *g)
{
	for (size_t at = 0, n = 0; at < g->n; at += n) {
		int ret = check(soda_msg_push_many(job, to, g->data + at * load->bytes, load->bytes,
						   g->n - at, &n),
				"push");

		if (ret == 0)
			continue;
		n = 0;
		take_many(job, load);
		check(soda_msg_wait(job, SODA_MSG_PULL | SODA_MSG_PUSH, -1), "wait");
	}
	g->n = 0;
}

static struct gathered *make_gathered(const struct soda_bench_msg_load *load, uint32_t most)
{
	struct gathered *all = calloc(load->ranks, sizeof(all[0]));

	for (uint32_t i = 0; all && i < load->ranks; i++) {
		all[i].data = calloc(most, load->bytes);
		if (!all[i].data)
			all = NULL; /* and this process ends */
	}
	if (all)
		return all;
	fputs("soda bench messages: no memory\n", stderr);
	exit(SODA_EXIT_FAILED);
}

static void send_many(struct soda_msg_job *job, struct soda_bench_msg_load *load)
{
	uint32_t most =
		load->bytes < SODA_BENCH_MSG_GATHERED ? SODA_BENCH_MSG_GATHERED / load->bytes : 1;
	struct gathered *all = make_gathered(load, most);

	for (uint64_t i = 0; i < load->messages; i++) {
		uint32_t to;
		uint64_t value = soda_bench_msg_next(load, &to);
		struct gathered *g = &all[to];

		memcpy(g->data + (size_t)g->n * load->bytes, &value, sizeof(value));
		if (++g->n == most)
			hand_over(job, load, to, g);
	}
	for (uint32_t i = 0; i < load->ranks; i++)
		hand_over(job, load, i, &all[i]);
	check(soda_msg_finish(job), "finish");
	while (take_many(job, load) != -ENODATA)
		check(soda_msg_wait(job, SODA_MSG_PULL, -1), "wait");
	for (uint32_t i = 0; i < load->ranks; i++)
		free(all[i].data);
	free(all);
}

typedef void send_fn(struct soda_msg_job *job, struct soda_bench_msg_load *load);

/* Seconds from the moment when all ranks begin to that when all have ended. */
static double measure(struct soda_msg_job *job, struct soda_bench_msg_load *load, send_fn *send)
{
	double began;

	barrier(job);
	began = now();
	send(job, load);
	barrier(job);
	return now() - began;
}

static bool verify(struct soda_msg_job *job, const struct soda_bench_msg_load *load,
		   uint64_t *messages_p)
{
	struct soda_bench_msg_sums all = { sum(job, load->sent), sum(job, load->received),
					   sum(job, load->sent_sum - load->received_sum),
					   sum(job, load->wrong) };

	*messages_p = all.received;
	return soda_bench_msg_verified(&all);
}

static bool measure_rate(struct soda_msg_job *job, struct soda_bench_msg_load *load,
			 uint64_t messages, send_fn *send)
{
	uint64_t got;
	double seconds;
	bool verified;

	soda_bench_msg_begin(load, messages / 10 + 1, 1);
	send(job, load);
	check(soda_msg_begin(job), "begin");
	soda_bench_msg_begin(load, messages, 2);
	seconds = measure(job, load, send);
	verified = verify(job, load, &got);
	if (!load->rank)
		printf(SODA_BENCH_MSG_LINE, seconds, (unsigned long long)got, verified);
	return verified;
}

/* A slow sender */

enum { SLOW_FIRST_MS = 50, SLOW_MS = 5 };

static void sleep_ms(long ms)
{
	const struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

/* Says when it was sent. Nothing but time sends it on: the library is not called again for long. */
static void send_slowly(struct soda_msg_job *job, const struct soda_bench_msg_load *load,
			uint64_t messages)
{
	sleep_ms(SLOW_FIRST_MS);
	for (uint64_t i = 0; i < messages; i++) {
		double sent = now();

		memcpy(message, &sent, sizeof(sent));
		check(soda_msg_push(job, load->ranks - 1, message, load->bytes), "push");
		sleep_ms(SLOW_MS);
	}
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Microseconds from the push of each message to its pull. How many have come. */
static uint64_t take_slowly(struct soda_msg_job *job, double *us, uint64_t most)
{
	struct soda_message m;
	uint64_t n = 0;
	int ret;

	while ((ret = check(soda_msg_pull(job, &m), "pull")) != -ENODATA) {
		double sent;

		if (ret == 0 && n < most) {
			memcpy(&sent, m.data, sizeof(sent));
			us[n] = (now() - sent) * 1e6;
		}
		n += ret == 0;
		if (ret == -EAGAIN)
			check(soda_msg_wait(job, SODA_MSG_PULL, -1), "wait");
	}
	return n;
}

static bool measure_latency(struct soda_msg_job *job, const struct soda_bench_msg_load *load,
			    uint64_t messages)
{
	double *us = calloc(messages, sizeof(us[0]));
	bool receives = load->rank == load->ranks - 1, verified;
	uint64_t n;

	if (!us)
		return false;
	if (!load->rank)
		send_slowly(job, load, messages);
	check(soda_msg_finish(job), "finish");
	n = take_slowly(job, us, messages);
	verified = n == (receives ? messages : 0);
	if (receives && verified) {
		qsort(us, n, sizeof(us[0]), compare_doubles);
		printf(SODA_BENCH_MSG_SLOW_LINE, us[n / 2], us[(n - 1) * 99 / 100], us[n - 1]);
	}
	free(us);
	return verified;
}

int soda_bench_messages_rank(int argc, char **argv)
{
	const char *way = argc > 4 ? argv[4] : "each";
	struct soda_msg_options how = { 0 };
	struct soda_bench_msg_load load = { 0 };
	struct soda_msg_job *job;
	uint64_t messages;
	bool verified, slow = strcmp(way, "slow") == 0, many = strcmp(way, "many") == 0;

	if (argc < 4 || argc > 5 || (!slow && !many && strcmp(way, "each") != 0))
		return SODA_EXIT_USAGE;
	load.bytes = (uint32_t)strtoul(argv[1], NULL, 10);
	messages = strtoull(argv[2], NULL, 10);
	how.flush_us = (unsigned)strtoul(argv[3], NULL, 10);
	if (load.bytes < SODA_BENCH_MSG_BYTES_MIN || load.bytes > sizeof(message) || !messages)
		return SODA_EXIT_USAGE;
	check(soda_msg_start(&how, &job), "start");
	load.rank = soda_msg_rank(job);
	load.ranks = soda_msg_ranks(job);
	verified = slow ? measure_latency(job, &load, messages)
			: measure_rate(job, &load, messages, many ? send_many : send_each);
	soda_msg_end(job);
	return verified && !fflush(stdout) ? SODA_EXIT_OK : SODA_EXIT_FAILED;
}
