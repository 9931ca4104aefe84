/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/server.h"

#include <errno.h>

#include "base/limits.h"

static int begin(struct soda_server *s, int timeout_ms)
{
	struct soda_place place = *soda_server_place(s);
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					       .timeout_ms = timeout_ms,
					       .identity = soda_server_identity(s),
					       .client_key = s->watch_key,
					       .place = &place };
	struct soda_wire_hello hello = s->hello;
	struct soda_wire_welcome ignored;
	struct soda_why why;

	if (!s->welcome.agent) /* an agent goes to its server for a client with chunks alone */
		hello.chunk_bytes = 0;
	hello.client_id = hello.secret = 0;
	hello.epoch = 1;
	return soda_conn_connect(soda_server_peer(s), &hello, &opt, &s->watch, &ignored, &why);
}

/* A call that an agent passes on to its server, where a PING would be answered by the agent. */
static int ask(struct soda_server *s, int timeout_ms)
{
	uint8_t last[SODA_WIRE_REGION_BYTES] = { 0xff, 0xff }, reply[SODA_WIRE_LISTED_BYTES];
	const struct iovec body = { last, sizeof(last) };
	struct soda_why ignored;
	size_t bytes;

	return soda_conn_call(s->watch, SODA_MSG_LIST, &body, 1, reply, sizeof(reply), &bytes,
			      timeout_ms, &ignored);
}

bool soda_watch_is_silent(struct soda_server *s, int timeout_ms)
{
	int ret = s->watch ? ask(s, timeout_ms) : begin(s, timeout_ms);

	s->watched_ns = soda_now_ns();
	if (ret)
		soda_watch_close(s, false);
	return ret == -ETIMEDOUT;
}

void soda_watch_rest(struct soda_server *s)
{
	if (s->watch && soda_now_ns() - s->watched_ns > SODA_WATCH_REST_MS * SODA_MS_NS)
		soda_watch_close(s, true);
}

void soda_watch_close(struct soda_server *s, bool leaves)
{
	if (leaves)
		soda_conn_leave(s->watch, SODA_WATCH_GOODBYE_MS);
	else
		soda_conn_close(s->watch);
	s->watch = NULL;
}
