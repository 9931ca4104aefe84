/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda bench .rank BYTES MESSAGES FLUSH_US`: a rank of the benchmark, over SODA, in a job that the
 * environment names.  A first phase of a tenth of the messages is not measured.
 */
#include <errno.h>
#include <soda_msg.h>
#include <stdio.h>
#include <stdlib.h>
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

static void phase(struct soda_msg_job *job, struct soda_bench_msg_load *load)
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
	check(soda_msg_finish(job), "finish");
	while (take_all(job, load) != -ENODATA)
		check(soda_msg_wait(job, SODA_MSG_PULL, -1), "wait");
}

/* Seconds from the moment when all ranks begin to that when all have ended. */
static double measure(struct soda_msg_job *job, struct soda_bench_msg_load *load)
{
	double began;

	barrier(job);
	began = now();
	phase(job, load);
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

int soda_bench_messages_rank(int argc, char **argv)
{
	struct soda_msg_start how = { 0 };
	struct soda_bench_msg_load load = { 0 };
	struct soda_msg_job *job;
	uint64_t messages, got;
	double seconds;
	bool verified;

	if (argc != 4)
		return SODA_EXIT_USAGE;
	load.bytes = (uint32_t)strtoul(argv[1], NULL, 10);
	messages = strtoull(argv[2], NULL, 10);
	how.flush_us = (unsigned)strtoul(argv[3], NULL, 10);
	if (load.bytes < SODA_BENCH_MSG_BYTES_MIN || load.bytes > sizeof(message))
		return SODA_EXIT_USAGE;
	check(soda_msg_start(&how, &job), "start");
	load.rank = soda_msg_rank(job);
	load.ranks = soda_msg_ranks(job);
	soda_bench_msg_begin(&load, messages / 10 + 1, 1);
	phase(job, &load);
	check(soda_msg_begin(job), "begin");
	soda_bench_msg_begin(&load, messages, 2);
	seconds = measure(job, &load);
	verified = verify(job, &load, &got);
	if (!load.rank)
		printf(SODA_BENCH_MSG_LINE, seconds, (unsigned long long)got, verified);
	soda_msg_end(job);
	return verified && !fflush(stdout) ? SODA_EXIT_OK : SODA_EXIT_FAILED;
}
