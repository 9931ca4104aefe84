/* SPDX-License-Identifier: BSD-3-Clause */
/* Control connections on verbs, the side that connects: calls, and the keys of regions. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/stream/stream.h"
#include "transport/verbs/client/client.h"

struct verbs_control {
	struct soda_conn conn;
	struct soda_verbs_link link;
	struct soda_verbs_messages messages;
	struct soda_verbs_flow flow;
	struct soda_wire_two_sided two_sided; /* message_bytes 0: regions have keys */
};

static struct verbs_control *control(const struct soda_conn *conn)
{
	return (struct verbs_control *)(uintptr_t)conn;
}

/* Send the frame, with the `at` bytes that are in c->messages.out behind it already, and the body.
 */
static int send_behind(struct verbs_control *c, struct soda_wire_frame *frame, uint32_t at,
		       const struct iovec *body, int body_n)
{
	struct soda_verbs_messages *m = &c->messages;

	frame->length = at;
	for (int i = 0; i < body_n; i++) {
		assert(body[i].iov_len <= SODA_WIRE_MAX_CONTROL - frame->length);
		memcpy(m->out + SODA_WIRE_FRAME_BYTES + frame->length, body[i].iov_base,
		       body[i].iov_len);
		frame->length += (uint32_t)body[i].iov_len;
	}
	return soda_verbs_message_send(m, frame);
}

static int take_reply(struct verbs_control *c, const struct soda_wire_frame *frame, void *reply,
		      size_t capacity, size_t *reply_bytes_p, struct soda_why *why)
{
	const uint8_t *body = c->messages.now->data + SODA_WIRE_FRAME_BYTES;

	if (frame->type == SODA_MSG_REFUSED && frame->status != SODA_ST_OK) {
		soda_verbs_refusal(c->conn.peer, body, frame->length, why);
		return -soda_status_to_errno(frame->status);
	}
	if (reply_bytes_p)
		*reply_bytes_p = frame->length;
	if (frame->length > capacity) {
		soda_why_set(why, "the answer of %s is longer than expected", c->conn.peer);
		return -EMSGSIZE;
	}
	if (frame->length)
		memcpy(reply, body, frame->length);
	return 0;
}

/* A call cannot go on: the connection's error. */
static int fail(struct verbs_control *c, int ret, struct soda_why *why)
{
	soda_why_set(why, "the call to %s failed: %s", c->conn.peer,
		     ret == -EPROTO ? "its answer makes no sense" : soda_strerror(ret));
	ret = ret == -EPROTO ? -ECONNABORTED : ret;
	c->conn.error = ret;
	return ret;
}

/* The answer, and room for the next one. */
static int await_answer(struct verbs_control *c, void *reply, size_t capacity,
			size_t *reply_bytes_p, uint64_t deadline_ns, struct soda_why *why)
{
	struct soda_wire_frame frame;
	int ret = soda_verbs_message_await(&c->messages, deadline_ns, &frame), answer;

	if (ret == 0 && frame.type != SODA_MSG_OK && frame.type != SODA_MSG_REFUSED)
		ret = -EPROTO;
	answer = ret < 0 ? ret : take_reply(c, &frame, reply, capacity, reply_bytes_p, why);
	if (ret == 0)
		ret = soda_verbs_message_expect(&c->messages);
	return ret < 0 ? fail(c, ret, why) : answer;
}

static int send_call(struct verbs_control *c, enum soda_msg type, const struct iovec *body,
		     int body_n, uint64_t deadline_ns)
{
	struct soda_wire_frame frame = { .type = (uint8_t)type };
	int ret = soda_verbs_message_begin(&c->messages, deadline_ns);

	return ret == 0 ? send_behind(c, &frame, 0, body, body_n) : ret;
}

static int control_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			int body_n, void *reply, size_t capacity, size_t *reply_bytes_p,
			int timeout_ms, struct soda_why *why)
{
	struct verbs_control *c = control(conn);
	uint64_t deadline_ns = soda_deadline(timeout_ms);
	int ret = send_call(c, type, body, body_n, deadline_ns);

	if (ret < 0)
		return fail(c, ret, why);
	return await_answer(c, reply, capacity, reply_bytes_p, deadline_ns, why);
}

/* Streamed calls, one at a time: its keys end with the answer. */

static unsigned control_streams_most(const struct soda_conn *conn)
{
	return 1;
}

static uint32_t put_flow(uint8_t *out, const struct soda_wire_flow *flow,
			 const struct soda_wire_flow_part *parts)
{
	soda_wire_put_flow(out, flow);
	for (uint32_t i = 0; i < flow->parts; i++)
		soda_wire_put_flow_part(out + SODA_WIRE_FLOW_BYTES + i * SODA_WIRE_FLOW_PART_BYTES,
					&parts[i]);
	return SODA_WIRE_FLOW_BYTES + flow->parts * SODA_WIRE_FLOW_PART_BYTES;
}

static int control_submit_call(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			       int body_n, int timeout_ms, struct soda_why *why)
{
	struct verbs_control *c = control(conn);
	int ret = send_call(c, type, body, body_n, soda_deadline(timeout_ms));

	return ret < 0 ? fail(c, ret, why) : 0;
}

static int control_submit(struct soda_conn *conn, enum soda_msg type, const struct iovec *body,
			  int body_n, struct soda_outflow *out, int timeout_ms,
			  struct soda_why *why)
{
	struct verbs_control *c = control(conn);
	struct soda_wire_frame frame = { .type = (uint8_t)type, .flags = SODA_WIRE_STREAMED };
	struct soda_wire_flow flow = { .bytes = out->bytes };
	struct soda_wire_flow_part parts[SODA_WIRE_FLOW_PARTS];
	int exposed = soda_verbs_flow_expose(&c->flow, c->link.pd, out, parts, &flow.parts);
	int ret = soda_verbs_message_begin(&c->messages, soda_deadline(timeout_ms));

	if (exposed < 0)
		flow.status = SODA_ST_FAULT;
	if (ret == 0)
		ret = send_behind(c, &frame,
				  put_flow(c->messages.out + SODA_WIRE_FRAME_BYTES, &flow, parts),
				  body, body_n);
	if (ret < 0)
		return fail(c, ret, why);
	return exposed < 0 ? -EFAULT : 0;
}

/* The peer has read all that it wants when it answers. */
static int control_collect(struct soda_conn *conn, void *reply, size_t capacity,
			   size_t *reply_bytes_p, int timeout_ms, struct soda_why *why)
{
	struct verbs_control *c = control(conn);
	int ret = await_answer(c, reply, capacity, reply_bytes_p, soda_deadline(timeout_ms), why);

	if (!conn->error && !conn->submitted)
		soda_verbs_flow_release(&c->flow);
	return ret;
}

static int use_key(struct soda_mr *mr, const void *in, size_t bytes, struct soda_why *why)
{
	struct soda_wire_key key;

	if (soda_wire_get_key(in, bytes, &key) < 0) {
		soda_why_set(why, "the server has given no key to its memory");
		return -EPROTO;
	}
	mr->rkey = key.rkey;
	mr->dirty_at = key.dirty_at;
	mr->keyed = true;
	return 0;
}

static int control_open_region(struct soda_conn *conn, const struct soda_wire_open *open,
			       const char *name, struct soda_wire_opened *opened_p,
			       struct soda_mr *mr_p, int timeout_ms, struct soda_why *why)
{
	uint8_t head[SODA_WIRE_OPEN_MARKED_BYTES],
		reply[SODA_WIRE_OPENED_BYTES + SODA_WIRE_KEY_BYTES];
	const struct verbs_control *c = control(conn);
	struct soda_wire_opened opened;
	struct iovec iov[2];
	struct soda_mr mr;
	size_t bytes = 0;
	int ret;

	soda_open_body(open, name, head, iov);
	ret = control_call(conn, SODA_MSG_OPEN, iov, 2, reply, sizeof(reply), &bytes, timeout_ms,
			   why);
	if (ret == -EMSGSIZE || (ret == 0 && bytes < SODA_WIRE_OPENED_BYTES))
		ret = -EPROTO;
	if (ret == 0)
		ret = soda_open_reply(open, !(open->flags & SODA_WIRE_READ_ONLY), reply,
				      SODA_WIRE_OPENED_BYTES, &opened, &mr, why);
	if (ret == 0 && !c->two_sided.message_bytes)
		ret = use_key(&mr, reply + SODA_WIRE_OPENED_BYTES, bytes - SODA_WIRE_OPENED_BYTES,
			      why);
	if (ret < 0)
		return ret;
	*opened_p = opened;
	*mr_p = mr;
	return 0;
}

static int control_renew_region(struct soda_conn *conn, struct soda_mr *mr, int timeout_ms,
				struct soda_why *why)
{
	uint8_t id[SODA_WIRE_REGION_BYTES] = { (uint8_t)mr->region_id,
					       (uint8_t)(mr->region_id >> 8) };
	struct iovec iov = { id, sizeof(id) };
	uint8_t reply[SODA_WIRE_KEY_BYTES];
	size_t bytes = 0;
	int ret;

	soda_mr_drop_keyed(mr);
	if (control(conn)->two_sided.message_bytes)
		return 0;
	ret = control_call(conn, SODA_MSG_KEY, &iov, 1, reply, sizeof(reply), &bytes, timeout_ms,
			   why);
	if (ret == -EMSGSIZE)
		ret = -EPROTO;
	return ret < 0 ? ret : use_key(mr, reply, bytes, why);
}

static int control_fd(const struct soda_conn *conn)
{
	return control(conn)->link.end_fd;
}

static int control_device(const struct soda_conn *conn, char name[SODA_DEVICE_NAME])
{
	return soda_verbs_link_device(&control(conn)->link, name);
}

static void control_end_poll(const struct soda_conn *conn, struct pollfd *p)
{
	*p = (struct pollfd){ .fd = control(conn)->link.end_fd, .events = POLLIN };
}

static void control_abort(struct soda_conn *conn)
{
	soda_verbs_link_abort(&control(conn)->link);
}

static void control_close(struct soda_conn *conn)
{
	struct verbs_control *c = control(conn);

	soda_verbs_messages_destroy(&c->messages);
	soda_verbs_flow_end(&c->flow);
	soda_verbs_link_close(&c->link);
	free(c);
}

static const struct soda_conn_ops control_ops = {
	.close = control_close,
	.abort = control_abort,
	.fd = control_fd,
	.device = control_device,
	.end_poll = control_end_poll,
	.call = control_call,
	.submit_call = control_submit_call,
	.submit = control_submit,
	.collect = control_collect,
	.streams_most = control_streams_most,
	.open_region = control_open_region,
	.renew_region = control_renew_region,
};

int soda_verbs_control_create(struct soda_verbs_link *l, const char *rest,
			      const struct soda_wire_hello *hello,
			      const struct soda_conn_options *opt, uint64_t deadline_ns,
			      struct soda_conn **conn_p, struct soda_wire_welcome *welcome_p,
			      struct soda_why *why)
{
	struct verbs_control *c = calloc(1, sizeof(*c));
	int ret;

	if (!c) {
		soda_why_set(why, "verbs://%.100s: no memory for a connection", rest);
		soda_verbs_link_close(l);
		return -ENOMEM;
	}
	soda_conn_init(&c->conn, &control_ops, opt, SODA_VERBS_PREFIX, rest);
	c->link = *l;
	ret = soda_verbs_messages_create(&c->messages, &c->link, opt->calls, NULL, c->conn.peer,
					 why);
	c->messages.aborted = &c->conn.aborted;
	if (ret == 0)
		ret = soda_verbs_introduce(&c->link, rest, hello, opt->identity, opt->client_key,
					   opt->token, deadline_ns, welcome_p, &c->two_sided, why);
	if (ret < 0) {
		control_close(&c->conn);
		return ret;
	}
	*conn_p = &c->conn;
	return 0;
}
