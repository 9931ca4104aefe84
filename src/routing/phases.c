/* SPDX-License-Identifier: BSD-3-Clause */
/* When a phase ends, and what collectives come to: of ranks here, and of other agents' together. */
#include <errno.h>
#include <stdio.h>

#include "routing/jobs_impl.h"

/* All of an agent's ranks have left: it hears nothing any more, and need not. */
static bool has_left(const struct soda_msg_link *l)
{
	return l->said.left == l->ranks_n;
}

/*
 * Whether the other agent has heard that the phase is done here.  It has ended it itself where its
 * ranks have left after it: then the answer has been lost.
 */
static bool has_heard(const struct soda_msg_link *l, uint32_t phase)
{
	return l->heard_done > phase || (has_left(l) && l->said.phase > phase);
}

void soda_msg_job_end_phase_locked(struct soda_msg_job *job)
{
	if (job->finished != job->here_n)
		return;
	for (uint32_t i = 0; i < job->links_n; i++)
		if (job->links[i].said.done <= job->phase || !has_heard(&job->links[i], job->phase))
			return;
	job->phase++;
	job->finished = 0;
	job->pushed = false;
	for (uint32_t i = 0; i < job->ranks_n; i++) {
		if (job->ranks[i].link)
			continue;
		job->ranks[i].finished = false;
		soda_inbox_end(&job->ranks[i].inbox);
	}
	pthread_cond_broadcast(&job->changed); /* RELAYs of the next phase may wait */
}

int soda_msg_job_finish(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			uint32_t phase, struct soda_why *why)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	int ret;

	soda_msg_job_hear_rank(job, rank);
	pthread_mutex_lock(&job->lock);
	if (phase + 1 == job->phase || (phase == job->phase && r->finished)) {
		pthread_mutex_unlock(&job->lock); /* it has said so before */
		return 0;
	}
	ret = soda_msg_job_check_all_unlock(all, job, why);
	if (ret < 0)
		return ret;
	if (phase != job->phase || r->ended != job->phase) {
		pthread_mutex_unlock(&job->lock);
		return soda_msg_refuse(why, -EINVAL,
				       "messages: phase %u of rank %u is not under way", phase,
				       rank);
	}
	r->finished = true;
	if (++job->finished == job->here_n) {
		soda_msg_job_kick_links(job);
		soda_msg_job_end_phase_locked(job);
	}
	pthread_mutex_unlock(&job->lock);
	return 0;
}

static void add_part(struct soda_wire_msg_reduce *all, uint32_t op, uint64_t value)
{
	switch (op) {
	case SODA_MSG_OP_MAX:
	case SODA_MSG_OP_MAX_DOUBLE:
		if ((int64_t)value > (int64_t)all->value)
			all->value = value;
		break;
	case SODA_MSG_OP_MIN:
	case SODA_MSG_OP_MIN_DOUBLE:
		if ((int64_t)value < (int64_t)all->value)
			all->value = value;
		break;
	default:
		all->value += value; /* as unsigned numbers, which wrap around; of a barrier 0 */
	}
}

/* Ranks ask for different collectives. rank: one of them. */
static void say_apart_locked(struct soda_msg_job *job, uint32_t rank, uint32_t op, uint32_t other)
{
	static const char *const names[SODA_MSG_OPS] = { "",
							 "barrier",
							 "sum",
							 "maximum",
							 "minimum",
							 "maximum of doubles",
							 "minimum of doubles",
							 "sum of doubles",
							 "broadcast",
							 "gather" };

	snprintf(job->why.text, sizeof(job->why.text),
		 "messages: rank %u of the job %.120s asks for a %s where others ask for a %s",
		 rank, job->name, names[op], names[other]);
}

/*
 * A collective is complete when all ranks here have taken part, each other agent has said its
 * ranks' part, and has heard that of the ranks here.  1: it is now; 0; -ECANCELED: agents ask for
 * different ones, and the job's sentence says so.
 */
static int end_collective_locked(struct soda_msg_job *job)
{
	uint32_t number = atomic_load(&job->reduced) + 1;
	struct soda_wire_msg_reduce all = { number, job->reduce.op, job->reduce.value };

	if (job->reduce.n != job->here_n)
		return 0;
	for (uint32_t i = 0; i < job->links_n; i++) {
		const struct soda_msg_link *l = &job->links[i];
		const struct soda_wire_msg_reduce *part = &l->parts[number % 2];

		if (part->number != number || (l->heard_reduce < number && !has_left(l)))
			return 0;
		if (part->op != all.op) {
			say_apart_locked(job, l->first_rank, part->op, all.op);
			return -ECANCELED;
		}
		add_part(&all, part->op, part->value);
	}
	job->result = all.value;
	job->reduce.n = 0;
	atomic_store(&job->reduced, number);
	return 1;
}

int soda_msg_job_end_collective_unlock(struct soda_msg_job *job, struct soda_why *why)
{
	int ret = end_collective_locked(job);

	if (ret < 0) {
		if (why)
			*why = job->why;
		soda_msg_job_break_unlock(job->all, job);
		return ret;
	}
	pthread_mutex_unlock(&job->lock);
	if (ret)
		soda_msg_job_wake(job);
	return 0;
}

int soda_msg_job_reduce(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank,
			const struct soda_wire_msg_reduce *r, struct soda_why *why)
{
	struct soda_wire_msg_reduce sum = { 0 };
	int ret;

	if (r->op < SODA_MSG_OP_BARRIER || r->op >= SODA_MSG_OPS)
		return soda_msg_refuse(why, -EINVAL, "messages: there is no collective %u", r->op);
	pthread_mutex_lock(&job->lock);
	if (r->number == job->ranks[rank].reduced && r->number) {
		pthread_mutex_unlock(&job->lock); /* it has taken part before */
		return 0;
	}
	ret = soda_msg_job_check_all_unlock(all, job, why);
	if (ret < 0)
		return ret;
	if (r->number != job->ranks[rank].reduced + 1 ||
	    r->number != atomic_load(&job->reduced) + 1) {
		pthread_mutex_unlock(&job->lock);
		return soda_msg_refuse(why, -EINVAL, "messages: not the next collective");
	}
	if (job->reduce.n && r->op != job->reduce.op) {
		say_apart_locked(job, rank, r->op, job->reduce.op);
		*why = job->why;
		soda_msg_job_break_unlock(all, job);
		return -ECANCELED;
	}
	job->ranks[rank].reduced++;
	sum.value = job->reduce.n ? job->reduce.value : r->value;
	if (job->reduce.n)
		add_part(&sum, r->op, r->value);
	job->reduce.op = r->op;
	job->reduce.value = sum.value;
	if (++job->reduce.n == job->here_n)
		soda_msg_job_kick_links(job);
	return soda_msg_job_end_collective_unlock(job, why);
}
