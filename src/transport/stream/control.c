/* SPDX-License-Identifier: BSD-3-Clause */
/* Control connections over a stream, on the side that connects. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/stream/stream.h"

void soda_stream_control_close(struct soda_conn *conn)
{
	close(soda_stream_control(conn)->fd);
	free(soda_stream_control(conn));
}

void soda_stream_control_abort(struct soda_conn *conn)
{
	shutdown(soda_stream_control(conn)->fd, SHUT_RDWR);
}

int soda_stream_control_fd(const struct soda_conn *conn)
{
	return soda_stream_control(conn)->fd;
}

int soda_stream_control_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			     int body_n, void *reply, size_t capacity, size_t *reply_bytes_p,
			     int timeout_ms, struct soda_why *why)
{
	return soda_stream_call(conn, soda_stream_control(conn)->fd, type, body, body_n, reply,
				capacity, reply_bytes_p, NULL, timeout_ms, why);
}

int soda_stream_control_call_fd(struct soda_conn *conn, enum soda_msg type,
				const struct iovec *body, int body_n, void *reply, size_t capacity,
				size_t *reply_bytes_p, int *fd_p, int timeout_ms,
				struct soda_why *why)
{
	return soda_stream_call(conn, soda_stream_control(conn)->fd, type, body, body_n, reply,
				capacity, reply_bytes_p, fd_p, timeout_ms, why);
}

const struct soda_conn_ops soda_stream_control_ops = {
	.close = soda_stream_control_close,
	.abort = soda_stream_control_abort,
	.fd = soda_stream_control_fd,
	.call = soda_stream_control_call,
};

int soda_stream_control_create(int fd, const struct soda_conn_ops *ops, const char *prefix,
			       const char *rest, const struct soda_conn_options *opt,
			       struct soda_conn **conn_p)
{
	struct soda_stream_control *c = calloc(1, sizeof(*c));

	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	soda_conn_init(&c->conn, ops, opt, prefix, rest);
	c->fd = fd;
	*conn_p = &c->conn;
	return 0;
}
