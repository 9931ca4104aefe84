/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A histogram whose counters are spread over ranks: each rank draws keys, and tells the owner of
 * each key's counter, by a message of 8 bytes.
 *   soda msg run -n 4 -- histogram [KEYS]
 * Every rank then counts all ranks' keys for its own counters once more, alone, and compares.
 */
#include <errno.h>
#include <soda_msg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNTERS = 1 << 16 };

static uint32_t counts[COUNTERS]; /* those of key % COUNTERS that are ours */
static uint32_t serial[COUNTERS];

/* The i-th key of a rank. */
static uint64_t key_of(unsigned rank, uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + rank * 0xd1b54a32d192ed03u;

	x = (x ^ x >> 32) * 0xe9846af9b1a615d;
	return x ^ x >> 28;
}

static int check(int ret, const char *what)
{
	if (ret < 0 && ret != -EAGAIN && ret != -ENODATA && ret != -EINPROGRESS) {
		fprintf(stderr, "histogram: %s: %s\n", what, soda_msg_last_error());
		exit(1);
	}
	return ret;
}

/* Count what has come. The last result of soda_msg_pull(). */
static int take(struct soda_msg_job *job)
{
	struct soda_message m;
	uint64_t key;
	int ret;

	while ((ret = check(soda_msg_pull(job, &m), "pull")) == 0) {
		memcpy(&key, m.data, sizeof(key));
		counts[key % COUNTERS]++;
	}
	return ret;
}

static void count_all(struct soda_msg_job *job, uint64_t keys)
{
	for (uint64_t i = 0; i < keys; i++) {
		uint64_t key = key_of(soda_msg_rank(job), i);
		unsigned owner = (unsigned)(key % COUNTERS % soda_msg_ranks(job));

		while (check(soda_msg_push(job, owner, &key, sizeof(key)), "push") == -EAGAIN) {
			take(job);
			check(soda_msg_wait(job, SODA_MSG_PULL | SODA_MSG_PUSH, -1), "wait");
		}
	}
	check(soda_msg_finish(job), "finish");
	while (take(job) != -ENODATA)
		check(soda_msg_wait(job, SODA_MSG_PULL, -1), "wait");
}

/* How many of this rank's counters are wrong. */
static int64_t compare(struct soda_msg_job *job, uint64_t keys)
{
	int64_t wrong = 0;

	for (unsigned rank = 0; rank < soda_msg_ranks(job); rank++)
		for (uint64_t i = 0; i < keys; i++)
			serial[key_of(rank, i) % COUNTERS]++;
	for (unsigned c = 0; c < COUNTERS; c++)
		wrong += counts[c] !=
			 (c % soda_msg_ranks(job) == soda_msg_rank(job) ? serial[c] : 0);
	return wrong;
}

int main(int argc, char **argv)
{
	uint64_t keys = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
	struct soda_msg_job *job;
	int64_t mine, wrong = 0;

	check(soda_msg_start(NULL, &job), "start");
	count_all(job, keys);
	mine = compare(job, keys);
	while (check(soda_msg_sum(job, mine, &wrong), "sum") == -EINPROGRESS)
		check(soda_msg_wait(job, SODA_MSG_COLLECTIVE, -1), "wait");
	if (soda_msg_rank(job) == 0)
		printf("%u ranks, %llu keys: %s\n", soda_msg_ranks(job),
		       (unsigned long long)keys * soda_msg_ranks(job),
		       wrong ? "WRONG" : "as counted by one");
	soda_msg_end(job);
	return wrong ? 1 : 0;
}
