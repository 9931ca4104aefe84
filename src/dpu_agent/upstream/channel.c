/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/upstream/channel.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include "base/lock.h"
#include "base/wait.h"

void soda_channel_init(struct soda_channel *c, struct soda_session *s)
{
	*c = (struct soda_channel){ .session = s };
	pthread_mutex_init(&c->lock, NULL);
	soda_cond_init(&c->finished);
	c->end = &c->first;
}

void soda_channel_destroy(struct soda_channel *c)
{
	pthread_cond_destroy(&c->finished);
	pthread_mutex_destroy(&c->lock);
}

void soda_channel_connect(struct soda_channel *c, struct soda_conn *conn)
{
	pthread_mutex_lock(&c->lock);
	assert(!c->conn);
	c->conn = conn;
	c->failed = false;
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

/* session->life keeps the connection. */
void soda_channel_abort(struct soda_channel *c)
{
	if (c->conn)
		soda_conn_abort(c->conn);
}

/*
 * seq_cst, both: either this sees `awaited`, or await_finishers_locked() sees that finishers is 0.
 */
void soda_channel_finished(struct soda_channel *c)
{
	if (atomic_fetch_sub(&c->finishers, 1) != 1 || !atomic_load(&c->awaited))
		return;
	pthread_mutex_lock(&c->lock);
	pthread_cond_broadcast(&c->finished);
	pthread_mutex_unlock(&c->lock);
}

static void await_finishers_locked(struct soda_channel *c)
{
	struct soda_wait wait;

	soda_wait_begin(&wait, "answers of a connection to the server that has ended");
	atomic_store(&c->awaited, true);
	while (atomic_load(&c->finishers))
		soda_wait_turn(&wait, &c->finished, &c->lock);
	atomic_store(&c->awaited, false);
	pthread_mutex_unlock(&c->lock);
	soda_wait_end(&wait);
	pthread_mutex_lock(&c->lock);
}

struct soda_transfer *soda_channel_disconnect(struct soda_channel *c)
{
	struct soda_transfer *list;

	pthread_mutex_lock(&c->lock);
	soda_conn_close(c->conn);
	c->conn = NULL;
	list = c->first;
	soda_channel_forget_locked(c);
	await_finishers_locked(c); /* there are no new ones: there is no connection */
	pthread_mutex_unlock(&c->lock);
	return list;
}

/* As the connection before could be told something, and this one cannot: it fails, and both ends
 * forget. */
static int post_told(struct soda_conn *conn, const struct soda_transfer *t, struct soda_mr *mr)
{
	const struct soda_told *told = t->told;
	uint64_t cookie = (uint64_t)(uintptr_t)t, at = t->base + t->offset;

	if (!soda_conn_keeps(conn) || (told->code && !soda_conn_codes(conn)))
		return -EPROTO;
	if (told->code)
		return soda_conn_post_coded(conn, mr, at, t->bytes, told->code, told->code_bytes,
					    cookie);
	if (told->origin)
		return soda_conn_post_again(conn, mr, at, t->bytes, told->origin, cookie);
	return soda_conn_post_kept(conn, mr, at, t->bytes, t->memory, cookie);
}

int soda_channel_post_locked(struct soda_channel *c, struct soda_transfer *t, struct soda_mr *mr)
{
	uint64_t cookie = (uint64_t)(uintptr_t)t;
	int ret;

	if (!c->conn)
		return -ENOTCONN;
	if (t->told)
		ret = post_told(c->conn, t, mr);
	else if (t->write)
		ret = soda_conn_post_write(c->conn, mr, t->base + t->offset, t->bytes,
					   t->sealed ? t->sealed->memory : t->memory, cookie);
	else
		ret = soda_conn_post_read(c->conn, mr, t->base + t->offset, t->bytes, t->memory,
					  cookie);
	if (ret < 0)
		return ret;
	t->next = NULL;
	t->posted_ns = soda_now_ns();
	*c->end = t;
	c->end = &t->next;
	c->posted_bytes += t->bytes;
	/* first: else the transfer would seem to have been under way since the last one finished */
	if (!atomic_load(&c->under_way))
		atomic_store(&c->progress_ns, t->posted_ns);
	atomic_fetch_add(&c->under_way, 1);
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
