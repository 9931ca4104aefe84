/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm data connections: a READ is a copy out of the mapped region, a WRITE one
 * into it, made by poll, oldest first.  Nothing travels; the socket only tells
 * that the peer has gone, which is looked at now and then.  Async-signal-safe.
 */
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "base/lock.h"
#include "base/own_fd.h"
#include "transport/api/rawsys.h"
#include "transport/shm/shm.h"

#define LOOK_EVERY_NS 5000000 /* at the socket, while requests complete */

/* A READ or WRITE that was posted. */
struct shm_request {
	uint64_t cookie;
	uint8_t *remote, *local;
	uint8_t *dirty; /* of the first 64 KiB unit of a WRITE, or NULL */
	uint32_t dirty_n;
	uint32_t bytes;
	bool write;
};

struct shm_data {
	struct soda_conn conn;
	int fd;
	uint32_t mask;			/* slots - 1 */
	uint32_t done, flushed, posted; /* done <= flushed <= posted */
	uint64_t looked_ns;
	struct shm_request slots[];
};

static struct shm_data *data(const struct soda_conn *conn)
{
	return (struct shm_data *)(uintptr_t)conn;
}

static int data_post(struct soda_conn *conn, const struct soda_post *p)
{
	struct shm_data *c = data(conn);
	struct shm_request *s = &c->slots[c->posted & c->mask];
	uint64_t unit = p->offset / SODA_DIRTY_UNIT;

	if (!p->mr->map)
		return -EINVAL;
	*s = (struct shm_request){ .cookie = p->cookie,
				   .remote = p->mr->map + p->offset,
				   .local = p->data,
				   .bytes = p->bytes,
				   .write = p->write };
	if (p->write && p->mr->dirty_map) {
		s->dirty = p->mr->dirty_map + unit;
		s->dirty_n = (uint32_t)((p->offset + p->bytes - 1) / SODA_DIRTY_UNIT - unit + 1);
	}
	c->posted++;
	return 0;
}

static int data_flush(struct soda_conn *conn, bool polling)
{
	data(conn)->flushed = data(conn)->posted;
	return 0;
}

/* 0; -EFAULT: what is to be written may not be read. */
static int transfer(const struct shm_request *s)
{
	if (!s->write) {
		memcpy(s->local, s->remote, s->bytes);
		return 0;
	}
	if (soda_guard_copy(s->remote, s->local, s->bytes))
		return -EFAULT;
	/*
	 * After the data, release: a server that clears a mark (acquire) and then saves
	 * the unit either saves this data, or finds the mark set again.
	 */
	for (uint32_t i = 0; i < s->dirty_n; i++)
		__atomic_store_n(&s->dirty[i], 1, __ATOMIC_RELEASE);
	return 0;
}

/* Is the peer there? It never sends on a data connection of shm. 0 or negative errno. */
static int look(struct shm_data *c, uint64_t now)
{
	uint8_t byte;
	long n = raw_recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

	c->looked_ns = now;
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n < 0)
		return (int)n;
	return n == 0 ? -ECONNRESET : -EPROTO;
}

static int data_poll(struct soda_conn *conn, struct soda_done *done, int max, int64_t timeout_ns,
		     int64_t spin_ns)
{
	struct shm_data *c = data(conn);
	uint64_t now = soda_now_ns();
	int n = 0, ret;

	if (c->done == c->flushed || now - c->looked_ns > LOOK_EVERY_NS) {
		ret = look(c, now);
		if (ret < 0)
			return ret;
	}
	while (n < max && c->done != c->flushed) {
		const struct shm_request *s = &c->slots[c->done & c->mask];

		/* it is the caller's wish that nothing more is touched */
		if (atomic_load_explicit(&conn->aborted, memory_order_acquire))
			return -ECONNABORTED;
		ret = transfer(s);
		if (ret)
			return n ? n : ret;
		c->done++;
		done[n++] = (struct soda_done){ .cookie = s->cookie, .bytes = s->bytes };
	}
	return n;
}

static int data_fd(const struct soda_conn *conn)
{
	return data(conn)->fd;
}

static void data_abort(struct soda_conn *conn)
{
	syscall(SYS_shutdown, data(conn)->fd, SHUT_RDWR);
}

static void data_close(struct soda_conn *conn)
{
	soda_fd_close(data(conn)->fd);
	free(data(conn));
}

static const struct soda_conn_ops data_ops = {
	.close = data_close,
	.abort = data_abort,
	.fd = data_fd,
	.post = data_post,
	.flush = data_flush,
	.poll = data_poll,
};

int soda_shm_data_create(int fd, const char *rest, const struct soda_conn_options *opt,
			 struct soda_conn **conn_p)
{
	struct shm_data *c;
	uint32_t slots = soda_ring_entries(opt->depth);

	c = calloc(1, sizeof(*c) + slots * sizeof(c->slots[0]));
	if (!c) {
		soda_fd_close(fd);
		return -ENOMEM;
	}
	soda_conn_init(&c->conn, &data_ops, opt, SODA_SHM_PREFIX, rest);
	c->fd = fd;
	c->mask = slots - 1;
	*conn_p = &c->conn;
	return 0;
}
