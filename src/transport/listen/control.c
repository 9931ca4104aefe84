/* SPDX-License-Identifier: BSD-3-Clause */
/* A control connection's thread: HELLO, then one call after the other. */
#include "transport/listen/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "transport/api/spin.h"
#include "transport/stream/stream.h"
#include "trust/proof.h"

enum { STACK_BYTES = 256 << 10, AHEAD_BYTES = 256, PARTS_MAX = 512, SKIP_BYTES = 16 << 10 };

/* How long the thread looks for the call behind a streamed one, whose client waits for each. */
#define LOOK_NS 60000

struct control_peer {
	struct soda_peer peer;
	struct soda_wire_hello hello;
	struct soda_proved proved; /* until the welcome */
	struct soda_inflow inflow; /* of the streamed call that is being served */
	int broken;		   /* the stream's error within it */
	/*
	 * Read ahead of what was asked for, [at, end): a call's head, and the small parts around
	 * its data, come with the same system calls as the data.
	 */
	uint8_t ahead[AHEAD_BYTES];
	size_t at, end;
	bool streams; /* the last call was a streamed one */
	struct soda_spin spin;
	uint8_t request[SODA_WIRE_MAX_CONTROL];
	uint8_t reply[SODA_WIRE_MAX_CONTROL];
};

/* Head and body in one message, and a descriptor with them if fd >= 0. */
static int send_reply(struct soda_byte_stream s, const struct soda_wire_frame *frame,
		      const void *body, int fd)
{
	uint8_t head[SODA_WIRE_FRAME_BYTES];
	struct iovec iov[2] = { { head, sizeof(head) },
				{ (void *)(uintptr_t)body, frame->length } };

	soda_wire_put_frame(head, frame);
	if (fd >= 0) {
		/* eight bytes always fit: replies do not pile up, there is one at a time */
		if (soda_stream_send_once(s, iov, 1, fd) != sizeof(head))
			return -ECONNRESET;
		iov[0].iov_len = 0;
	}
	return soda_stream_send(s, iov, 2, soda_deadline(SODA_CALL_BODY_MS));
}

/* Receiving */

/* Give what was read ahead; iov, n and *bytes_p are what is left to be received then. */
static struct iovec *give_ahead(struct control_peer *c, struct iovec *iov, int *n, size_t *bytes_p)
{
	while (*n && c->at < c->end) {
		size_t some = c->end - c->at < iov->iov_len ? c->end - c->at : iov->iov_len;

		memcpy(iov->iov_base, c->ahead + c->at, some);
		c->at += some;
		*bytes_p -= some;
		iov->iov_base = (uint8_t *)iov->iov_base + some;
		iov->iov_len -= some;
		if (iov->iov_len)
			break;
		iov++;
		(*n)--;
	}
	return iov;
}

/* All of iov, at most PARTS_MAX parts. */
static int receive(struct control_peer *c, struct iovec *iov, int n, uint64_t deadline_ns)
{
	struct iovec all[PARTS_MAX + 1];
	size_t bytes = 0;
	ssize_t got;

	for (int i = 0; i < n; i++)
		bytes += iov[i].iov_len;
	iov = give_ahead(c, iov, &n, &bytes);
	if (!bytes)
		return 0;
	memcpy(all, iov, (size_t)n * sizeof(*iov));
	all[n] = (struct iovec){ c->ahead, sizeof(c->ahead) };
	got = soda_stream_recv_parts(soda_peer_stream(&c->peer), all, n + 1, bytes, deadline_ns);
	c->at = 0;
	c->end = got < 0 ? 0 : (size_t)got - bytes;
	return got < 0 ? (int)got : 0;
}

static int receive_one(struct control_peer *c, void *memory, size_t bytes, uint64_t deadline_ns)
{
	struct iovec iov = { memory, bytes };

	return bytes ? receive(c, &iov, 1, deadline_ns) : 0;
}

/* Streamed calls */

static struct control_peer *peer_of(struct soda_inflow *in)
{
	return (struct control_peer *)((char *)in - offsetof(struct control_peer, inflow));
}

static int take(struct soda_inflow *in, struct iovec *iov, int n)
{
	struct control_peer *c = peer_of(in);

	while (n && !c->broken) {
		int some = n < PARTS_MAX ? n : PARTS_MAX;

		c->broken = receive(c, iov, some, soda_deadline(SODA_CALL_BODY_MS));
		iov += some;
		n -= some;
	}
	return c->broken;
}

static int take_end(struct soda_inflow *in)
{
	struct control_peer *c = peer_of(in);
	uint8_t end[SODA_WIRE_FLOW_END_BYTES];
	unsigned status;

	in->end = NULL;
	if (!c->broken)
		c->broken = receive_one(c, end, sizeof(end), soda_deadline(SODA_CALL_BODY_MS));
	if (!c->broken)
		c->broken = soda_wire_get_flow_end(end, &status);
	return c->broken ? c->broken : -soda_status_to_errno(status);
}

/* What the service has left. */
static void skip(struct control_peer *c)
{
	struct soda_inflow *in = &c->inflow;

	while (in->left && !c->broken) {
		struct iovec iov = { c->request, in->left < SKIP_BYTES ? in->left : SKIP_BYTES };

		soda_inflow_take(in, &iov, 1);
	}
	if (in->end && !c->broken)
		in->end(in);
}

static bool is_streamed(const struct control_peer *c, const struct soda_wire_frame *frame)
{
	return (frame->flags & SODA_WIRE_STREAMED) && frame->type >= SODA_MSG_SERVICES &&
	       frame->length > SODA_WIRE_FLOW_END_BYTES && frame->length <= SODA_WIRE_MAX_STREAM &&
	       c->peer.listener->ops->stream;
}

static int answer_streamed(struct control_peer *c, const struct soda_wire_frame *request)
{
	struct soda_reply reply = { .body = c->reply, .share = { .fd = -1 } };
	struct soda_wire_frame frame;
	int ret;

	c->broken = 0;
	c->inflow = (struct soda_inflow){ .left = request->length - SODA_WIRE_FLOW_END_BYTES,
					  .take = take,
					  .end = take_end };
	ret = c->peer.listener->ops->stream(c->peer.client, request->type, &c->inflow, &reply);
	skip(c);
	if (c->broken)
		return c->broken;
	frame = soda_control_frame(ret, &reply);
	return send_reply(soda_peer_stream(&c->peer), &frame, c->reply, -1);
}

/* Calls */

static int answer(struct control_peer *c, const struct soda_wire_frame *request)
{
	struct soda_listener *l = c->peer.listener;
	struct soda_reply reply = { .body = c->reply, .share = { .fd = -1 } };
	int ret = l->ops->call(c->peer.client, request->type, c->request, request->length,
			       l->shares, &reply);
	struct soda_wire_frame frame = soda_control_frame(ret, &reply);

	return send_reply(soda_peer_stream(&c->peer), &frame, c->reply,
			  ret == 0 && l->shares ? reply.share.fd : -1);
}

struct soda_wire_frame soda_control_frame(int ret, struct soda_reply *reply)
{
	struct soda_wire_frame frame = { .type = SODA_MSG_OK, .length = (uint32_t)reply->bytes };

	if (ret < 0) {
		frame.type = SODA_MSG_REFUSED;
		frame.status = (uint16_t)soda_status_from_errno(-ret);
		frame.length = (uint32_t)strnlen(reply->why.text, sizeof(reply->why.text));
		memcpy(reply->body, reply->why.text, frame.length);
	}
	return frame;
}

bool soda_control_is_call(const struct soda_wire_frame *frame)
{
	return ((frame->type > SODA_MSG_HELLO && frame->type < SODA_MSG_OK) ||
		frame->type >= SODA_MSG_SERVICES) &&
	       frame->length <= SODA_WIRE_MAX_CONTROL;
}

/* Something has come, or the connection's end. */
static bool has_come(void *arg)
{
	struct control_peer *c = arg;
	uint8_t any;

	return c->at < c->end || recv(c->peer.fd, &any, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
	       errno != EAGAIN;
}

/*
 * The next call's first byte.  Streamed calls may follow each other as fast as they are answered,
 * and to be woken for each takes longer than a small one does.  They never come by TLS.
 */
static int await_call(struct control_peer *c, uint8_t *first)
{
	if (c->streams)
		soda_spin_until(&c->spin, LOOK_NS, has_come, c);
	return receive_one(c, first, 1, SODA_NO_DEADLINE);
}

static void serve(struct control_peer *c)
{
	uint8_t head[SODA_WIRE_FRAME_BYTES];
	struct soda_wire_frame frame;
	const char *bad = NULL;

	while (!bad) {
		if (await_call(c, head) < 0)
			return;
		/* a call that has begun must arrive in time */
		if (receive_one(c, head + 1, sizeof(head) - 1, soda_deadline(SODA_CALL_BODY_MS)) <
		    0) {
			bad = "the connection ended within a frame";
			break;
		}
		soda_wire_get_frame(head, &frame);
		c->streams = is_streamed(c, &frame);
		if (c->streams) {
			if (answer_streamed(c, &frame) < 0)
				bad = "the connection ended within a streamed call";
		} else if (!soda_control_is_call(&frame) || frame.flags & SODA_WIRE_STREAMED) {
			bad = "not a call, or too long";
		} else if (receive_one(c, c->request, frame.length,
				       soda_deadline(SODA_CALL_BODY_MS)) < 0) {
			bad = "the connection ended within a call";
		} else if (answer(c, &frame) < 0) {
			return;
		}
	}
	soda_peer_rejected(&c->peer, bad);
}

static void *control_main(void *arg)
{
	struct control_peer *c = arg;
	struct soda_listener *l = c->peer.listener;
	struct soda_wire_welcome welcome;
	struct soda_why why = { "" };
	int ret;

	pthread_setname_np(pthread_self(), "soda-control");
	ret = soda_peer_hello(&c->peer, &c->hello, &welcome, &why);
	if (ret < 0) {
		soda_refuse(soda_peer_stream(&c->peer), ret, why.text);
	} else {
		ret = soda_welcome(&c->peer, &welcome, -1);
		soda_wipe(&c->proved, sizeof(c->proved));
		if (ret == 0)
			serve(c);
		l->ops->gone(c->peer.client, &c->peer);
	}
	soda_peer_remove(&c->peer);
	free(c);
	return NULL;
}

int soda_control_thread(void *(*main)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int ret;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	ret = pthread_create(&thread, &attr, main, arg);
	pthread_attr_destroy(&attr);
	return -ret;
}

int soda_control_start(struct soda_listener *l, struct soda_byte_stream s,
		       const struct soda_peer_info *info, const struct soda_wire_hello *hello,
		       struct soda_why *why)
{
	struct control_peer *c = calloc(1, sizeof(*c));
	int ret;

	if (!c) {
		soda_why_set(why, "the server has no memory for a connection more");
		return -ENOMEM;
	}
	c->peer = (struct soda_peer){ .listener = l, .fd = s.fd, .tls = s.tls, .info = *info };
	c->hello = *hello;
	soda_spin_init(&c->spin, &l->polling);
	if (info->proved) {
		c->proved = *info->proved;
		c->peer.info.proved = &c->proved;
	}
	ret = soda_peer_add(&c->peer, hello->client_id, why);
	if (ret < 0) {
		free(c);
		return ret;
	}
	ret = soda_control_thread(control_main, c);
	if (ret < 0) {
		soda_why_set(why, "the server cannot start a thread more");
		c->peer.fd = -1; /* the caller keeps it, and TLS */
		c->peer.tls = NULL;
		soda_peer_remove(&c->peer);
		free(c);
	}
	return ret;
}
