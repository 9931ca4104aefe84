/* SPDX-License-Identifier: BSD-3-Clause */
/* Who belongs to a job has come, or gone; how a job is broken off, and who hears of that. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/wait.h"
#include "routing/jobs_impl.h"

int __attribute__((format(printf, 3, 4)))
soda_msg_refuse(struct soda_why *why, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return err;
}

struct timespec soda_msg_until(uint32_t ms)
{
	return soda_wait_until(ms < SODA_MSG_AWAIT_MS ? ms : SODA_MSG_AWAIT_MS);
}

void soda_msg_job_kick_links(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->links_n; i++) {
		struct soda_msg_link *l = &job->links[i];

		pthread_mutex_lock(&l->lock);
		l->kick = true;
		pthread_cond_signal(&l->work);
		pthread_mutex_unlock(&l->lock);
	}
}

void soda_msg_job_wake(struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->ranks_n; i++)
		soda_inbox_wake(&job->ranks[i].inbox);
}

int soda_msg_job_broken_locked(const struct soda_msg_job *job, struct soda_why *why)
{
	*why = job->why;
	return -ECANCELED;
}

void soda_msg_job_break_unlock(struct soda_msg_jobs *all, struct soda_msg_job *job)
{
	atomic_store(&job->broken, true);
	atomic_fetch_add(&all->broken_n, 1);
	pthread_cond_broadcast(&job->changed);
	soda_msg_job_kick_links(job);
	pthread_mutex_unlock(&job->lock);
	soda_log_info("%s", job->why.text); /* constant from here on */
	soda_msg_job_wake(job);
	soda_msg_job_unlist(all, job);
}

/* The link of an agent of which a rank has left, or NULL. */
static const struct soda_msg_link *left_link_locked(const struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->links_n; i++)
		if (job->links[i].said.left)
			return &job->links[i];
	return NULL;
}

void soda_msg_job_say_gone_locked(struct soda_msg_job *job)
{
	const struct soda_msg_link *l = job->left ? NULL : left_link_locked(job);
	uint32_t i = 0;
	char pid[32] = "";

	while (i + 1 < job->ranks_n && !job->ranks[i].left)
		i++;
	if (l)
		i = l->said.first_left;
	else if (job->ranks[i].pid)
		snprintf(pid, sizeof(pid), " (pid %d)", (int)job->ranks[i].pid);
	snprintf(job->why.text, sizeof(job->why.text),
		 "messages: rank %u%s of the job %.120s has gone, and others have not ended", i,
		 pid, job->name);
}

bool soda_msg_job_busy_locked(const struct soda_msg_job *job)
{
	for (uint32_t i = 0; i < job->links_n; i++)
		for (unsigned k = 0; k < 2; k++)
			if (job->links[i].parts[k].number > atomic_load(&job->reduced))
				return true;
	return job->pushed || job->finished || job->reduce.n;
}

void soda_msg_job_leave(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t rank)
{
	struct soda_msg_rank *r = &job->ranks[rank];
	bool over;

	soda_msg_job_hear_rank(job, rank);
	pthread_mutex_lock(&job->lock);
	if (r->left || atomic_load(&job->broken)) {
		r->left = true;
		pthread_mutex_unlock(&job->lock);
		return;
	}
	r->left = true;
	job->left++;
	over = job->left == job->here_n;
	if (!over && (!job->phase || r->ended != job->phase || soda_msg_job_busy_locked(job))) {
		soda_msg_job_say_gone_locked(job);
		soda_msg_job_break_unlock(all, job);
		return;
	}
	soda_msg_job_kick_links(job);
	pthread_mutex_unlock(&job->lock);
	if (over)
		soda_msg_job_unlist(all, job);
}

void soda_msg_job_fail(struct soda_msg_job *job, const char *why)
{
	pthread_mutex_lock(&job->lock);
	if (atomic_load(&job->broken)) {
		pthread_mutex_unlock(&job->lock);
		return;
	}
	snprintf(job->why.text, sizeof(job->why.text), "%s", why);
	soda_msg_job_break_unlock(job->all, job);
}

int soda_msg_job_check_all_unlock(struct soda_msg_jobs *all, struct soda_msg_job *job,
				  struct soda_why *why)
{
	if (!atomic_load(&job->broken) && !job->left && !left_link_locked(job))
		return 0;
	if (atomic_load(&job->broken)) {
		soda_msg_job_broken_locked(job, why);
		pthread_mutex_unlock(&job->lock);
		return -ECANCELED;
	}
	soda_msg_job_say_gone_locked(job);
	*why = job->why;
	soda_msg_job_break_unlock(all, job);
	return -ECANCELED;
}

/* Ranks that have not come, here or to other agents, as far as these have said. */
static struct soda_wire_msg_missing missing_locked(const struct soda_msg_job *job)
{
	struct soda_wire_msg_missing m = { job->here_n - job->come, job->ranks_n };
	uint32_t i = 0;

	while (i < job->ranks_n && (job->ranks[i].link || job->ranks[i].roles == SODA_MSG_BOTH))
		i++;
	if (m.n)
		m.first = i;
	for (i = 0; i < job->links_n; i++) {
		const struct soda_msg_link *l = &job->links[i];
		uint32_t n = l->said.number ? l->said.missing : l->ranks_n;
		uint32_t first = l->said.number ? l->said.first_missing : l->first_rank;

		m.n += n;
		if (n && first < m.first)
			m.first = first;
	}
	return m;
}

int soda_msg_job_await(struct soda_msg_jobs *all, struct soda_msg_job *job, uint32_t wait_ms,
		       struct soda_wire_msg_missing *missing_p, struct soda_why *why)
{
	struct timespec end = soda_msg_until(wait_ms);
	int ret = 0;

	pthread_mutex_lock(&job->lock);
	*missing_p = missing_locked(job);
	while (missing_p->n && !atomic_load(&job->broken)) {
		if (pthread_cond_timedwait(&job->changed, &job->lock, &end))
			break;
		*missing_p = missing_locked(job);
	}
	if (atomic_load(&job->broken))
		ret = soda_msg_job_broken_locked(job, why);
	pthread_mutex_unlock(&job->lock);
	return ret;
}
