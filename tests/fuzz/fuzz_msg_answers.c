/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an agent answers to libsoda-msg, and what other ranks put into packets: the input is the
 * agent (rogue.h), on the two connections of a rank, and what the program asks of the library.
 *
 *   the agent, then what the program does: what 8, then
 *     0..3   push: rank 8, bytes 16
 *     4, 5   pull all there is, then wait for 1 ms
 *     6      progress, or finish: which 8
 *     7      begin, or a collective: which 8, value 8
 */
#include <errno.h>

#include "fuzz/fixtures/rogue.h"
#include "fuzz/fuzz.h"
#include "soda_msg.h"

enum { CONNECTIONS = 2, RANKS = 3, ASKS_MAX = 40, PULLS_MAX = 20000 };

static char address[ROGUE_ADDRESS];
static uint8_t data[SODA_MSG_BYTES_MAX];

/* Each failure has a sentence. */
static int checked(int ret)
{
	MUST(ret <= 0);
	MUST(ret == 0 || ret == -EAGAIN || ret == -EINPROGRESS || ret == -ENODATA ||
	     soda_msg_last_error()[0]);
	return ret;
}

/* All of a message can be read; a count of empty ones may be without end. */
static void pull(struct soda_msg_job *job)
{
	struct soda_message m;
	uint64_t sum = 0;

	for (int i = 0; i < PULLS_MAX; i++) {
		if (checked(soda_msg_pull(job, &m)) < 0)
			break;
		MUST(m.from < RANKS && m.bytes <= SODA_MSG_BYTES_MAX && m.data);
		for (size_t at = 0; at < m.bytes; at++)
			sum += ((const volatile uint8_t *)m.data)[at];
	}
	(void)sum;
}

static void pull_many(struct soda_msg_job *job)
{
	struct soda_message_run m;
	uint64_t sum = 0;

	for (int i = 0; i < PULLS_MAX; i++) {
		if (checked(soda_msg_pull_many(job, &m)) < 0)
			break;
		MUST(m.from < RANKS && m.bytes <= SODA_MSG_BYTES_MAX && m.count && m.data);
		for (size_t at = 0; at < m.bytes * m.count; at++)
			sum += ((const volatile uint8_t *)m.data)[at];
	}
	(void)sum;
}

static void collective(struct soda_msg_job *job, struct fuzz_input *in)
{
	uint8_t which = fuzz_u8(in);
	int8_t mine = (int8_t)fuzz_u8(in);
	int64_t all;

	if (which % 4 == 0)
		checked(soda_msg_begin(job));
	else if (which % 4 == 1)
		checked(soda_msg_barrier(job));
	else if (which % 4 == 2)
		checked(soda_msg_sum(job, mine, &all));
	else
		checked(soda_msg_max(job, mine, &all));
}

static void ask(struct soda_msg_job *job, struct fuzz_input *in)
{
	uint8_t what = fuzz_u8(in) % 8;

	if (what == 0) {
		unsigned rank = fuzz_u8(in) % (RANKS + 1);
		size_t bytes = fuzz_u8(in), n = 0;

		if (checked(soda_msg_push_many(job, rank, data, bytes, fuzz_u8(in), &n)) == 0)
			MUST(n <= UINT8_MAX);
	} else if (what < 4) {
		unsigned rank = fuzz_u8(in) % (RANKS + 1);

		checked(soda_msg_push(job, rank, data, fuzz_u16(in) << (what == 3 ? 4 : 0)));
	} else if (what < 6) {
		pull(job);
		checked(soda_msg_wait(job, SODA_MSG_PULL | SODA_MSG_COLLECTIVE, 1));
		if (what == 4)
			pull(job);
		else
			pull_many(job);
	} else if (what == 6) {
		checked(fuzz_u8(in) & 1 ? soda_msg_finish(job) : soda_msg_progress(job));
	} else {
		collective(job, in);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	rogue_start(false, address);
	rogue_refuse_others();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
	const struct soda_msg_options how = { .agent = address,
					      .job = "fuzz",
					      .rank = 1,
					      .ranks = RANKS,
					      .timeout_ms = 1,
					      .flush_us = 1 };
	struct fuzz_input in = { input, bytes };
	struct soda_msg_stats stats;
	struct soda_msg_job *job;

	rogue_begin(&in, CONNECTIONS);
	if (checked(soda_msg_start(&how, &job)) == 0) {
		for (int i = 0; i < ASKS_MAX && in.left; i++)
			ask(job, &in);
		soda_msg_get_stats(job, &stats);
		MUST(stats.pushed <= ASKS_MAX * UINT8_MAX);
		soda_msg_end(job);
	}
	rogue_end();
	return 0;
}
