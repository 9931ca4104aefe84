/* SPDX-License-Identifier: BSD-3-Clause */
/* The loops around push and pull that each program needs: none of them ends for another reason than
 * that it is done, or that the job has an error. */
#include <errno.h>

#include "messages/job.h"

static int check_taking(const struct soda_msg_job *job)
{
	return job->taking ? soda_msg_failed(-EINVAL, "a function that takes a message may not "
						      "pull: its message would end")
			   : 0;
}

/* All that is here. -EAGAIN, -ENODATA, or an error. */
static int take(struct soda_msg_job *job, soda_msg_take_fn *fn, void *arg)
{
	struct soda_message m;
	int ret;

	while ((ret = soda_msg_pull(job, &m)) == 0) {
		job->taking = true;
		fn(arg, &m);
		job->taking = false;
	}
	return ret;
}

SODA_API int soda_msg_push_pull(struct soda_msg_job *job, unsigned rank, const void *data,
				size_t bytes, soda_msg_take_fn *fn, void *arg)
{
	int ret = check_taking(job);

	while (ret == 0) {
		ret = soda_msg_push(job, rank, data, bytes);
		if (ret != -EAGAIN)
			return ret;
		ret = take(job, fn, arg); /* or two ranks could wait for each other */
		if (ret == -EAGAIN)
			ret = soda_msg_wait(job, SODA_MSG_PULL | SODA_MSG_PUSH, -1);
	}
	return ret;
}

/* Whether the phase can end. */
static int check_finished(struct soda_msg_job *job)
{
	int ret;

	pthread_mutex_lock(&job->lock);
	ret = soda_msg_error_locked(job);
	if (ret == 0 && !job->finish)
		ret = soda_msg_failed(-EINVAL, "the phase does not end before this rank has said "
					       "soda_msg_finish()");
	pthread_mutex_unlock(&job->lock);
	return ret;
}

SODA_API int soda_msg_drain(struct soda_msg_job *job, soda_msg_take_fn *fn, void *arg)
{
	int ret = soda_msg_check(job);

	if (ret == 0)
		ret = check_taking(job);
	if (ret == 0)
		ret = check_finished(job);
	if (ret < 0)
		return ret;
	do {
		ret = take(job, fn, arg);
		if (ret == -EAGAIN)
			ret = soda_msg_wait(job, SODA_MSG_PULL, -1);
	} while (ret == 0);
	return ret == -ENODATA ? 0 : ret;
}
