/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The benchmark's messages over MPI: a program of its own, once for each MPI that is found, which
 * `soda bench messages` runs in turns with SODA's.
 *   soda-bench-MPI WAY BYTES MESSAGES
 *
 *   isend      one MPI_Isend for each message, WINDOW of them and as many MPI_Irecv under way
 *   alltoallv  the messages in rounds of about a buffer for each rank, all ranks in step
 *   gather     the program gathers messages by rank, in buffers as large as SODA's packets, and
 *              sends those by MPI_Isend
 *
 * A rank that finds nothing to do yields its processor, and the MPIs are told to do so, too.
 */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "soda/bench/messages/load.h"

enum { WINDOW = 64, BUFFER = SODA_BENCH_MSG_GATHERED, MESSAGE = 1, LAST = 2 };

struct window {
	MPI_Request requests[WINDOW];
	uint8_t *data; /* of each request */
	size_t each;
	unsigned n;
};

static struct soda_bench_msg_load load;
static struct window sends, receives;
static unsigned ended; /* ranks whose last word has come: how many they have sent here */
static uint64_t *sent_to, expected, arrived;

static void *allocate(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p) {
		fprintf(stderr, "soda bench messages: no memory for %zu bytes\n", bytes);
		MPI_Abort(MPI_COMM_WORLD, 1);
		abort();
	}
	return p;
}

static void open_window(struct window *w, unsigned n, size_t each)
{
	w->n = n;
	w->each = each;
	w->data = allocate(n * each);
	for (unsigned i = 0; i < n; i++)
		w->requests[i] = MPI_REQUEST_NULL;
}

static void post_receive(unsigned i)
{
	MPI_Irecv(receives.data + i * receives.each, (int)receives.each, MPI_BYTE, MPI_ANY_SOURCE,
		  MPI_ANY_TAG, MPI_COMM_WORLD, &receives.requests[i]);
}

static void take(const uint8_t *data, size_t bytes)
{
	for (size_t at = 0; at + load.bytes <= bytes; at += load.bytes)
		soda_bench_msg_take(&load, data + at, load.bytes);
	load.wrong += bytes % load.bytes != 0;
}

/* Take what has come. They match in order, but need not be complete in order. */
static int take_all(void)
{
	MPI_Status statuses[WINDOW];
	int which[WINDOW], n, bytes;

	MPI_Testsome((int)receives.n, receives.requests, &n, which, statuses);
	if (n == MPI_UNDEFINED)
		return 0;
	for (int i = 0; i < n; i++) {
		const uint8_t *data = receives.data + (size_t)which[i] * receives.each;
		uint64_t count;

		MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
		if (statuses[i].MPI_TAG == LAST) {
			memcpy(&count, data, sizeof(count));
			expected += count;
			ended++;
		} else {
			take(data, (size_t)bytes);
			arrived++;
		}
		post_receive((unsigned)which[i]);
	}
	return n;
}

/* Until what was sent from this place has gone; what comes is taken meanwhile. */
static void await_place(unsigned place)
{
	int done = 0;

	while (MPI_Test(&sends.requests[place], &done, MPI_STATUS_IGNORE), !done)
		if (!take_all())
			sched_yield();
}

static uint8_t *place_of(unsigned place)
{
	return sends.data + place * sends.each;
}

static void send(unsigned place, size_t bytes, uint32_t to, int tag)
{
	MPI_Isend(place_of(place), (int)bytes, MPI_BYTE, (int)to, tag, MPI_COMM_WORLD,
		  &sends.requests[place]);
	sent_to[to] += tag == MESSAGE;
}

/* Tell all ranks that no more comes from here, and take what comes from them. */
static void end_sends(void)
{
	for (unsigned i = 0; i < sends.n; i++)
		await_place(i);
	for (uint32_t to = 0; to < load.ranks; to++) {
		await_place(to % sends.n);
		memcpy(place_of(to % sends.n), &sent_to[to], sizeof(sent_to[to]));
		send(to % sends.n, sizeof(sent_to[to]), to, LAST);
	}
	while (ended < load.ranks || arrived < expected)
		if (!take_all())
			sched_yield();
	for (unsigned i = 0; i < sends.n; i++)
		await_place(i);
	memset(sent_to, 0, load.ranks * sizeof(*sent_to));
	expected = arrived = ended = 0;
}

static void isend_all(void)
{
	for (uint64_t i = 0; i < load.messages; i++) {
		unsigned place = (unsigned)(i % sends.n);
		uint32_t to;
		uint64_t value = soda_bench_msg_next(&load, &to);

		await_place(place);
		memcpy(place_of(place), &value, sizeof(value));
		send(place, load.bytes, to, MESSAGE);
		if (i % (WINDOW / 4) == 0)
			take_all();
	}
	end_sends();
}

/* Two buffers a rank: one is filled while the other one is under way. */
static void gather_all(void)
{
	size_t *bytes = allocate(load.ranks * sizeof(*bytes));
	unsigned *turn = allocate(load.ranks * sizeof(*turn));

	for (uint64_t i = 0; i < load.messages; i++) {
		uint32_t to;
		uint64_t value = soda_bench_msg_next(&load, &to);
		unsigned place = 2 * to + turn[to] % 2;

		if (!bytes[to])
			await_place(place);
		memcpy(place_of(place) + bytes[to], &value, sizeof(value));
		bytes[to] += load.bytes;
		if (bytes[to] + load.bytes > sends.each) {
			send(place, bytes[to], to, MESSAGE);
			bytes[to] = 0;
			turn[to]++;
			take_all();
		}
	}
	for (uint32_t to = 0; to < load.ranks; to++)
		if (bytes[to])
			send(2 * to + turn[to] % 2, bytes[to], to, MESSAGE);
	end_sends();
	free(turn);
	free(bytes);
}

/* What a round of MPI_Alltoallv sends, by rank, and where it lies. */
struct round {
	int *send_n, *send_at, *recv_n, *recv_at; /* bytes, a rank each */
	uint64_t *values;
	uint32_t *to;
	uint8_t *out, *in;
	size_t most, in_bytes; /* messages of a rank in a round; room of `in` */
};

static void exchange(struct round *r, size_t n)
{
	int ranks = (int)load.ranks, all_out = 0, all_in = 0;

	memset(r->send_n, 0, load.ranks * sizeof(int));
	for (size_t i = 0; i < n; i++) {
		r->values[i] = soda_bench_msg_next(&load, &r->to[i]);
		r->send_n[r->to[i]] += (int)load.bytes;
	}
	MPI_Alltoall(r->send_n, 1, MPI_INT, r->recv_n, 1, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++) {
		r->send_at[i] = all_out;
		r->recv_at[i] = all_in;
		all_out += r->send_n[i];
		all_in += r->recv_n[i];
	}
	for (size_t i = 0; i < n; i++) {
		memcpy(r->out + r->send_at[r->to[i]], &r->values[i], sizeof(r->values[i]));
		r->send_at[r->to[i]] += (int)load.bytes;
	}
	for (int i = 0; i < ranks; i++)
		r->send_at[i] -= r->send_n[i];
	if ((size_t)all_in > r->in_bytes) {
		free(r->in);
		r->in_bytes = 2 * (size_t)all_in;
		r->in = allocate(r->in_bytes);
	}
	MPI_Alltoallv(r->out, r->send_n, r->send_at, MPI_BYTE, r->in, r->recv_n, r->recv_at,
		      MPI_BYTE, MPI_COMM_WORLD);
	take(r->in, (size_t)all_in);
}

static void alltoallv_all(void)
{
	size_t most = (size_t)load.ranks * BUFFER / load.bytes, ranks = load.ranks;
	struct round r = { .most = most ? most : 1 };

	r.send_n = allocate(ranks * sizeof(int));
	r.send_at = allocate(ranks * sizeof(int));
	r.recv_n = allocate(ranks * sizeof(int));
	r.recv_at = allocate(ranks * sizeof(int));
	r.values = allocate(r.most * sizeof(*r.values));
	r.to = allocate(r.most * sizeof(*r.to));
	r.out = allocate(r.most * load.bytes);
	for (uint64_t i = 0; i < load.messages; i += r.most)
		exchange(&r, load.messages - i < r.most ? load.messages - i : r.most);
	free(r.in);
	free(r.out);
	free(r.to);
	free(r.values);
	free(r.recv_at);
	free(r.recv_n);
	free(r.send_at);
	free(r.send_n);
}

static uint64_t sum(uint64_t mine)
{
	uint64_t all = 0;

	MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

static void run(void (*way)(void), uint64_t messages)
{
	double began, seconds;
	bool verified;

	soda_bench_msg_begin(&load, messages / 10 + 1, 1);
	way();
	soda_bench_msg_begin(&load, messages, 2);
	MPI_Barrier(MPI_COMM_WORLD);
	began = MPI_Wtime();
	way();
	MPI_Barrier(MPI_COMM_WORLD);
	seconds = MPI_Wtime() - began;

	struct soda_bench_msg_sums all = { sum(load.sent), sum(load.received),
					   sum(load.sent_sum - load.received_sum),
					   sum(load.wrong) };
	verified = soda_bench_msg_verified(&all);
	if (!load.rank)
		printf(SODA_BENCH_MSG_LINE, seconds, (unsigned long long)all.received, verified);
	fflush(stdout);
}

static void run_windows(void (*way)(void), uint64_t messages, unsigned places, size_t each)
{
	open_window(&sends, places, each);
	open_window(&receives, WINDOW, each);
	sent_to = allocate(load.ranks * sizeof(*sent_to));
	for (unsigned i = 0; i < WINDOW; i++)
		post_receive(i);
	run(way, messages);
	for (unsigned i = 0; i < WINDOW; i++) {
		MPI_Cancel(&receives.requests[i]);
		MPI_Wait(&receives.requests[i], MPI_STATUS_IGNORE);
	}
	free(sent_to);
	free(receives.data);
	free(sends.data);
}

int main(int argc, char **argv)
{
	uint64_t messages;
	size_t whole;
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	load.rank = (uint32_t)rank;
	load.ranks = (uint32_t)ranks;
	load.bytes = argc == 4 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	if (load.bytes < SODA_BENCH_MSG_BYTES_MIN || load.bytes > SODA_BENCH_MSG_BYTES_MAX) {
		fputs("usage: soda-bench-MPI isend|alltoallv|gather BYTES MESSAGES\n", stderr);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	messages = strtoull(argv[3], NULL, 10);
	whole = BUFFER / load.bytes ? BUFFER / load.bytes * load.bytes : load.bytes;
	if (strcmp(argv[1], "isend") == 0)
		run_windows(isend_all, messages, WINDOW, load.bytes);
	else if (strcmp(argv[1], "gather") == 0)
		run_windows(gather_all, messages, 2 * load.ranks, whole);
	else
		run(alltoallv_all, messages);
	MPI_Finalize();
	return 0;
}
