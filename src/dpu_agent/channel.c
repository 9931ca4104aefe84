/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/channel.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include "common/lock.h"
#include "dpu_agent/session.h"

void soda_channel_init(struct soda_channel *c, struct soda_session *s)
{
	*c = (struct soda_channel){ .session = s };
	pthread_mutex_init(&c->lock, NULL);
	c->end = &c->first;
}

void soda_channel_connect(struct soda_channel *c, struct soda_conn *conn)
{
	pthread_mutex_lock(&c->lock);
	c->conn = conn;
	atomic_store(&c->progress_ns, soda_now_ns());
	pthread_mutex_unlock(&c->lock);
}

void soda_channel_forget_locked(struct soda_channel *c)
{
	c->first = NULL;
	c->end = &c->first;
	c->posted_bytes = 0;
	atomic_store(&c->under_way, 0);
}

struct soda_transfer *soda_channel_disconnect(struct soda_channel *c)
{
	struct soda_transfer *list;

	pthread_mutex_lock(&c->lock);
	soda_conn_close(c->conn);
	c->conn = NULL;
	list = c->first;
	soda_channel_forget_locked(c);
	pthread_mutex_unlock(&c->lock);
	return list;
}

int soda_channel_post_locked(struct soda_channel *c, struct soda_transfer *t)
{
	uint64_t cookie = (uint64_t)(uintptr_t)t;
	int ret;

	if (!c->conn)
		return -ENOTCONN;
	if (t->write)
		ret = soda_conn_post_write(c->conn, &t->region->mr, t->offset, t->bytes, t->memory,
					   cookie);
	else
		ret = soda_conn_post_read(c->conn, &t->region->mr, t->offset, t->bytes, t->memory,
					  cookie);
	if (ret < 0)
		return ret;
	t->next = NULL;
	t->posted_ns = soda_now_ns();
	*c->end = t;
	c->end = &t->next;
	c->posted_bytes += t->bytes;
	if (atomic_fetch_add(&c->under_way, 1) == 0)
		atomic_store(&c->progress_ns, soda_now_ns());
	return 0;
}

int soda_channel_poll_locked(struct soda_channel *c, int64_t timeout_ns, int64_t spin_ns,
			     struct soda_transfer **done_p, int *status)
{
	enum { MAX = SODA_CHANNEL_POLL };
	struct soda_done done[MAX];
	int n;

	*done_p = NULL;
	if (!c->conn)
		return -ENOTCONN;
	n = soda_conn_poll(c->conn, done, MAX, timeout_ns, spin_ns);
	if (n <= 0)
		return n;
	*done_p = c->first;
	for (int i = 0; i < n; i++) {
		struct soda_transfer *t = c->first;

		assert(t && done[i].cookie == (uint64_t)(uintptr_t)t);
		status[i] = done[i].status;
		c->posted_bytes -= t->bytes;
		c->first = t->next;
		if (i == n - 1)
			t->next = NULL;
	}
	if (!c->first)
		c->end = &c->first;
	atomic_fetch_sub(&c->under_way, (uint32_t)n);
	atomic_store(&c->progress_ns, soda_now_ns());
	return n;
}
