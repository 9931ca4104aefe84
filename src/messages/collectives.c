/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives.  The agents combine one word of each rank: they add them, or keep the largest or the
 * smallest.  What is more than that is done in rounds, in each of which one rank says a word and
 * the others say 0.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "messages/job.h"

bool soda_msg_complete_locked(const struct soda_msg_job *job)
{
	return job->collective.state == SODA_COLLECTIVE_SENT &&
	       job->collective.done == job->collective.ask.number;
}

bool soda_msg_asks_locked(const struct soda_msg_job *job)
{
	return job->collective.state != SODA_COLLECTIVE_NONE && !soda_msg_complete_locked(job);
}

static int reduce_locked(struct soda_msg_job *job, enum soda_msg_op op, uint64_t mine,
			 uint64_t *all_p)
{
	struct soda_wire_msg_reduce *ask = &job->collective.ask;

	if (job->collective.state == SODA_COLLECTIVE_NONE) {
		int ret = soda_msg_error_locked(job);

		if (ret < 0)
			return ret;
		*ask = (struct soda_wire_msg_reduce){ ask->number + 1, op, mine };
		job->collective.state = SODA_COLLECTIVE_ASKED;
		soda_msg_work_locked(job);
		pthread_cond_signal(&job->room);
		return -EINPROGRESS;
	}
	if (ask->op != op || ask->value != mine)
		return soda_msg_failed(-EINVAL, "another collective is in progress");
	if (!soda_msg_complete_locked(job))
		return job->error ? soda_msg_error_locked(job) : -EINPROGRESS;
	job->collective.state = SODA_COLLECTIVE_NONE;
	*all_p = job->collective.value;
	return 0;
}

static int reduce(struct soda_msg_job *job, enum soda_msg_op op, uint64_t mine, uint64_t *all_p)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = reduce_locked(job, op, mine, all_p);
	pthread_mutex_unlock(&job->lock);
	return ret;
}

static int reduce_int(struct soda_msg_job *job, enum soda_msg_op op, int64_t mine, int64_t *all_p)
{
	uint64_t all;
	int ret = reduce(job, op, (uint64_t)mine, &all);

	if (ret == 0)
		*all_p = (int64_t)all;
	return ret;
}

SODA_API int soda_msg_barrier(struct soda_msg_job *job)
{
	uint64_t nothing;

	return reduce(job, SODA_MSG_OP_BARRIER, 0, &nothing);
}

SODA_API int soda_msg_sum(struct soda_msg_job *job, int64_t mine, int64_t *all_p)
{
	return reduce_int(job, SODA_MSG_OP_SUM, mine, all_p);
}

SODA_API int soda_msg_max(struct soda_msg_job *job, int64_t mine, int64_t *all_p)
{
	return reduce_int(job, SODA_MSG_OP_MAX, mine, all_p);
}

SODA_API int soda_msg_min(struct soda_msg_job *job, int64_t mine, int64_t *all_p)
{
	return reduce_int(job, SODA_MSG_OP_MIN, mine, all_p);
}

/* Doubles as integers in the same order; NaN is what wins, with the sign that this needs. */
static uint64_t key_of(double value, double nan)
{
	int64_t bits;

	value = isnan(value) ? nan : value;
	memcpy(&bits, &value, sizeof(bits));
	return (uint64_t)(bits < 0 ? bits ^ INT64_MAX : bits);
}

static double value_of(uint64_t key)
{
	int64_t bits = (int64_t)key;
	double value;

	bits = bits < 0 ? bits ^ INT64_MAX : bits;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static int reduce_double(struct soda_msg_job *job, enum soda_msg_op op, double mine, double nan,
			 double *all_p)
{
	uint64_t all;
	int ret = reduce(job, op, key_of(mine, nan), &all);

	if (ret == 0)
		*all_p = value_of(all);
	return ret;
}

SODA_API int soda_msg_max_double(struct soda_msg_job *job, double mine, double *all_p)
{
	return reduce_double(job, SODA_MSG_OP_MAX_DOUBLE, mine, copysign(NAN, 1), all_p);
}

SODA_API int soda_msg_min_double(struct soda_msg_job *job, double mine, double *all_p)
{
	return reduce_double(job, SODA_MSG_OP_MIN_DOUBLE, mine, copysign(NAN, -1), all_p);
}

/* Rounds */

/* All ranks do this in so many rounds. */
struct rounds {
	enum soda_msg_op op;
	size_t n;
	uint64_t (*say)(const struct soda_msg_job *job, const void *arg, size_t round);
	void (*hear)(struct soda_msg_job *job, void *arg, size_t round, uint64_t word);
	void *arg;
};

static int take_rounds_locked(struct soda_msg_job *job, const struct rounds *r)
{
	int ret = 0;

	while (ret == 0 && job->collective.round < r->n) {
		size_t round = job->collective.round;
		uint64_t word;

		ret = reduce_locked(job, r->op, r->say(job, r->arg, round), &word);
		if (ret == 0) {
			r->hear(job, r->arg, round, word);
			job->collective.round++;
		}
	}
	if (ret == 0)
		job->collective.round = 0;
	return ret;
}

static int take_rounds(struct soda_msg_job *job, const struct rounds *r)
{
	int ret = soda_msg_check(job);

	if (ret < 0)
		return ret;
	pthread_mutex_lock(&job->lock);
	ret = take_rounds_locked(job, r);
	pthread_mutex_unlock(&job->lock);
	return ret;
}

/* Each rank says its word in the round of its number. */
struct gather {
	uint64_t mine;
	int64_t *all;
};

static uint64_t say_own(const struct soda_msg_job *job, const void *arg, size_t round)
{
	return round == job->rank ? ((const struct gather *)arg)->mine : 0;
}

static void hear_each(struct soda_msg_job *job, void *arg, size_t round, uint64_t word)
{
	((struct gather *)arg)->all[round] = (int64_t)word;
}

SODA_API int soda_msg_gather(struct soda_msg_job *job, int64_t mine, int64_t *all)
{
	struct gather g = { (uint64_t)mine, all };

	return take_rounds(
		job, &(struct rounds){ SODA_MSG_OP_GATHER, job->ranks, say_own, hear_each, &g });
}

/* In the order of ranks: the same bits everywhere, and every time. */
static void hear_sum(struct soda_msg_job *job, void *arg, size_t round, uint64_t word)
{
	double part;

	memcpy(&part, &word, sizeof(part));
	job->collective.sum = round ? job->collective.sum + part : part;
}

SODA_API int soda_msg_sum_double(struct soda_msg_job *job, double mine, double *all_p)
{
	struct gather g = { 0, NULL };
	int ret;

	memcpy(&g.mine, &mine, sizeof(mine));
	ret = take_rounds(
		job, &(struct rounds){ SODA_MSG_OP_SUM_DOUBLE, job->ranks, say_own, hear_sum, &g });
	if (ret == 0)
		*all_p = job->collective.sum;
	return ret;
}

/* One rank says all words. */
struct broadcast {
	unsigned root;
	uint8_t *data;
	size_t bytes;
};

static size_t word_bytes(const struct broadcast *b, size_t round)
{
	size_t left = b->bytes - round * sizeof(uint64_t);

	return left < sizeof(uint64_t) ? left : sizeof(uint64_t);
}

static uint64_t say_all(const struct soda_msg_job *job, const void *arg, size_t round)
{
	const struct broadcast *b = arg;
	uint64_t word = 0;

	if (b->root == job->rank && b->bytes)
		memcpy(&word, b->data + round * sizeof(word), word_bytes(b, round));
	return word;
}

static void hear_root(struct soda_msg_job *job, void *arg, size_t round, uint64_t word)
{
	const struct broadcast *b = arg;

	if (b->root != job->rank && b->bytes)
		memcpy(b->data + round * sizeof(word), &word, word_bytes(b, round));
}

SODA_API int soda_msg_broadcast(struct soda_msg_job *job, unsigned root, void *data, size_t bytes)
{
	struct broadcast b = { root, data, bytes };
	struct rounds r = { SODA_MSG_OP_BROADCAST, (bytes + 7) / 8, say_all, hear_root, &b };

	if (root >= job->ranks || bytes > SODA_MSG_BYTES_MAX)
		return soda_msg_failed(-EINVAL,
				       "a broadcast of %zu bytes by rank %u: at most %u bytes by a "
				       "rank below %u",
				       bytes, root, SODA_MSG_BYTES_MAX, job->ranks);
	r.n += !bytes; /* it is complete when all ranks have called it, as others are */
	return take_rounds(job, &r);
}
