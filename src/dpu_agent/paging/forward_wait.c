/* SPDX-License-Identifier: BSD-3-Clause */
/* Without async, and for the caches: the thread itself waits for what it has posted. */
#include <errno.h>

#include "base/limits.h"
#include "base/lock.h"
#include "dpu_agent/life/agent.h"
#include "dpu_agent/paging/forward_impl.h"

enum {
	SPIN_NS = 50000,
	NEAR_NS = 500000, /* an answer that comes later has time for a hand-off */
};

static unsigned thread_index(void)
{
	static _Atomic unsigned next;
	static _Thread_local unsigned own; /* 0: none yet */

	if (!own)
		own = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
	return own - 1;
}

struct soda_channel *soda_forward_own_channel(struct soda_session *s)
{
	return &s->channels[thread_index() % s->dpu->channels];
}

/* Everything that is under way on the channel is ours. */
static int await_all_locked(struct soda_channel *c, int64_t timeout_ns, bool polling)
{
	int status[SODA_CHANNEL_POLL], n = 0;

	while (c->first && n >= 0) {
		struct soda_transfer *list;

		n = soda_channel_poll_locked(c, timeout_ns, polling ? SPIN_NS : 0, &list, status);
		if (n == 0) {
			soda_conn_abort(c->conn);
			return -ETIMEDOUT;
		}
		soda_forward_finish_all(list, status);
	}
	return n < 0 ? n : 0;
}

static bool is_up(struct soda_session *s)
{
	bool up;

	pthread_mutex_lock(&s->lock);
	up = s->up;
	pthread_mutex_unlock(&s->lock);
	return up;
}

int soda_forward_await_locked(struct soda_channel *c, struct soda_transfer *t, unsigned n)
{
	struct soda_session *s = t->session;
	uint64_t end = soda_now_ns() + s->dpu->opt->timeout_ms * 1000000ull;
	int status[SODA_CHANNEL_POLL], ret = 0;

	for (unsigned i = 0; i < n && ret == 0; i++)
		ret = soda_channel_post_locked(c, &t[i]);
	if (ret == 0)
		ret = soda_conn_flush(c->conn, false);
	while (ret == 0 && c->first) {
		struct soda_transfer *done;
		int got = soda_channel_poll_locked(
			c, (int64_t)(SODA_DPU_AWAIT_LOOK_MS * SODA_MS_NS), 0, &done, status);

		soda_forward_finish_all(done, status);
		if (got < 0)
			ret = got;
		else if (got == 0 && (!is_up(s) || soda_now_ns() > end))
			ret = -ETIMEDOUT;
	}
	if (ret < 0 && c->conn) {
		/* what still comes must not go into memory that has another use by then */
		soda_conn_abort(c->conn);
		soda_channel_forget_locked(c);
	}
	return ret;
}

void soda_forward_wait(struct soda_session *s, struct soda_task *tasks)
{
	struct soda_channel *c = soda_forward_own_channel(s);
	bool polling = tasks->rq->polling;
	struct soda_transfer *list;
	struct soda_task *failed;
	int ret;

	list = soda_batch_build(tasks, s->dpu->aggregate, &failed);
	soda_forward_drop_tasks(failed);
	if (!list)
		return;
	pthread_mutex_lock(&c->lock);
	ret = soda_batch_post_locked(c, list, polling);
	if (ret == 0)
		ret = await_all_locked(c, s->dpu->opt->timeout_ms * 1000000ll, polling);
	pthread_mutex_unlock(&c->lock);
	if (ret < 0)
		soda_session_break(s, ret);
}

/* Answer what has come back on the channel, waiting for it until end_ns. True: there is more. */
static bool answer_some(struct soda_channel *c, uint64_t end_ns)
{
	int status[SODA_CHANNEL_POLL], n = 0;
	uint64_t now = soda_now_ns();
	struct soda_transfer *list = NULL;
	bool more;

	pthread_mutex_lock(&c->lock);
	if (c->first && now < end_ns)
		n = soda_channel_poll_locked(c, (int64_t)(end_ns - now), c->polling ? SPIN_NS : 0,
					     &list, status);
	more = c->first;
	if (more && n <= 0)
		soda_completer_resume_locked(c);
	soda_channel_finish_locked(c);
	pthread_mutex_unlock(&c->lock);
	soda_forward_finish_all(list, status);
	soda_channel_finished(c);
	if (n < 0)
		soda_session_break(c->session, n);
	return more && n > 0;
}

void soda_forward_near(struct soda_session *s)
{
	struct soda_channel *c = soda_forward_own_channel(s);
	uint64_t end_ns = soda_now_ns() + NEAR_NS;

	while (answer_some(c, end_ns))
		;
	soda_forward_more(s);
}
