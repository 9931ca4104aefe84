/* SPDX-License-Identifier: BSD-3-Clause */
/* A control connection's thread on verbs: HELLO, then one call after the other. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "transport/stream/stream.h"
#include "transport/verbs/server/server.h"

struct verbs_control_peer {
	struct soda_verbs_peer p; /* first: it is the id's context */
	struct soda_verbs_link link;
	struct soda_verbs_messages messages;
	struct soda_verbs_keys keys;
	struct soda_verbs_receives *receives; /* that it shares; NULL: it has its own */
};

void soda_verbs_reject(struct rdma_cm_id *id, int err, const char *reason)
{
	uint8_t data[SODA_WIRE_FRAME_BYTES + SODA_VERBS_REASON];
	struct soda_wire_frame frame = { .type = SODA_MSG_REFUSED,
					 .status = (uint16_t)soda_status_from_errno(-err),
					 .length = (uint32_t)strnlen(reason, SODA_VERBS_REASON) };

	soda_wire_put_frame(data, &frame);
	memcpy(data + SODA_WIRE_FRAME_BYTES, reason, frame.length);
	rdma_reject(id, data, (uint8_t)(SODA_WIRE_FRAME_BYTES + frame.length));
	rdma_destroy_id(id);
}

/* Calls */

static struct soda_listener *listener(const struct verbs_control_peer *c)
{
	return c->p.peer.listener;
}

static int call(struct verbs_control_peer *c, enum soda_msg type, const void *body, size_t bytes,
		struct soda_reply *reply)
{
	struct soda_listener *l = listener(c);

	if (type == SODA_MSG_DISCARD && !l->ops->request) {
		soda_why_set(&reply->why, "the adapter holds the pages of a region");
		return -ENOTSUP;
	}
	return l->ops->call(c->p.peer.client, type, body, bytes, l->shares, reply);
}

static uint16_t region_of(const uint8_t *body)
{
	return (uint16_t)(body[0] | body[1] << 8);
}

/* A region that cannot be reached is of no use: the daemon takes it back. */
static void take_back(struct verbs_control_peer *c, const uint8_t *body, struct soda_reply *failed)
{
	uint8_t id[SODA_WIRE_REGION_BYTES] = { body[0], body[1] };
	struct soda_reply reply = { .body = failed->body, .share = { .fd = -1 } };

	call(c, SODA_MSG_CLOSE, id, sizeof(id), &reply);
}

/* The key goes behind the daemon's answer. */
static void say_key(struct soda_reply *reply, const struct soda_wire_key *key)
{
	soda_wire_put_key(reply->body + reply->bytes, key);
	reply->bytes += SODA_WIRE_KEY_BYTES;
}

static int add_key(struct verbs_control_peer *c, enum soda_msg type, const uint8_t *body,
		   struct soda_reply *reply)
{
	struct soda_wire_key key;
	int ret = -ENOTSUP;

	if (reply->share.fd < 0)
		soda_why_set(&reply->why, "the server has no memory that verbs can reach");
	else
		ret = soda_verbs_keys_add(&c->keys, c->p.client->pd, region_of(body), &reply->share,
					  &key, &reply->why);
	if (ret < 0) {
		soda_log_warning("%s: a region cannot be served: %s", c->p.peer.info.address,
				 reply->why.text);
		if (type == SODA_MSG_OPEN)
			take_back(c, body, reply);
		return ret;
	}
	say_key(reply, &key);
	return 0;
}

/* A part that has no key is read by requests. */
static void add_part(struct verbs_control_peer *c, const uint8_t *body, struct soda_reply *reply)
{
	struct soda_wire_key key;
	struct soda_why why;

	if (soda_verbs_keys_add_part(&c->keys, c->p.client->pd, region_of(body), &reply->share,
				     &key, &why) == 0)
		say_key(reply, &key);
	else
		soda_log_warning("%s: a range of the static cache is read by requests, and not"
				 " one-sided: %s",
				 c->p.peer.info.address, why.text);
}

/* The daemon has done what was asked for. */
static int settle_keys(struct verbs_control_peer *c, enum soda_msg type, const uint8_t *body,
		       size_t bytes, struct soda_reply *reply)
{
	struct soda_wire_advise advise;

	if ((type == SODA_MSG_OPEN || type == SODA_MSG_KEY) && !listener(c)->ops->request)
		return add_key(c, type, body, reply);
	if (type != SODA_MSG_ADVISE || soda_wire_get_advise(body, bytes, &advise) < 0)
		return 0;
	if (reply->share.fd >= 0)
		add_part(c, body, reply);
	else
		soda_verbs_keys_drop_parts(&c->keys, advise.region_id, advise.offset, advise.bytes);
	return 0;
}

/* Keys end before the daemon lets the memory go. */
static void drop_keys(struct verbs_control_peer *c, enum soda_msg type, const uint8_t *body,
		      size_t bytes)
{
	if (type == SODA_MSG_CLOSE && bytes == SODA_WIRE_REGION_BYTES)
		soda_verbs_keys_drop(&c->keys, region_of(body));
	else if (type == SODA_MSG_BYE && bytes == 0)
		soda_verbs_keys_drop_all(&c->keys);
}

static int answer(struct verbs_control_peer *c, const struct soda_wire_frame *request)
{
	const uint8_t *body = c->messages.now->data + SODA_WIRE_FRAME_BYTES;
	struct soda_reply reply = { .body = c->messages.out + SODA_WIRE_FRAME_BYTES,
				    .share = { .fd = -1 } };
	struct soda_wire_frame frame;
	enum soda_msg type = request->type;
	int ret;

	drop_keys(c, type, body, request->length);
	ret = call(c, type, body, request->length, &reply);
	if (ret == 0)
		ret = settle_keys(c, type, body, request->length, &reply);
	frame = soda_control_frame(ret, &reply);
	/* closed meanwhile: the client is to come back, not to take this for the answer */
	if (soda_verbs_link_ended(&c->link))
		return -ECONNRESET;
	ret = soda_verbs_message_expect(&c->messages);
	return ret < 0 ? ret : soda_verbs_message_send(&c->messages, &frame);
}

static void serve(struct verbs_control_peer *c)
{
	struct soda_wire_frame frame;
	int ret = 0;

	while (ret == 0) {
		ret = soda_verbs_message_await(&c->messages, SODA_NO_DEADLINE, &frame);
		if (ret == 0 && !soda_control_is_call(&frame))
			ret = -EPROTO;
		if (ret == 0)
			ret = soda_verbs_message_begin(&c->messages,
						       soda_deadline(SODA_CALL_BODY_MS));
		if (ret == 0)
			ret = answer(c, &frame);
	}
	if (ret == -EPROTO)
		soda_peer_rejected(&c->p.peer, "not a call, or of the wrong length");
}

/* Life */

static int greet(struct verbs_control_peer *c, const struct soda_wire_welcome *welcome,
		 struct soda_why *why)
{
	struct soda_verbs_listener *vl = soda_verbs_listener(listener(c));
	int ret = soda_verbs_client_get(vl, welcome->client_id, c->p.id->verbs, &c->p.client);

	if (ret < 0) {
		soda_why_set(why, "the server has no memory for a connection more");
		return ret;
	}
	c->receives = soda_verbs_receives_of(vl, c->p.id->verbs);
	c->link.pd = c->receives ? soda_verbs_receives_pd(c->receives) : c->p.client->pd;
	ret = soda_verbs_messages_create(&c->messages, &c->link, 1, c->receives,
					 c->p.peer.info.address, why);
	if (ret < 0)
		return ret;
	c->messages.probes = true;
	ret = soda_verbs_accept(&c->p, welcome);
	if (ret < 0)
		soda_why_set(why, "the connection cannot be accepted: %s", soda_strerror(ret));
	return ret;
}

/* Its machine does not answer: its other connections notice nothing, where they only answer. */
static void end_others(struct verbs_control_peer *c)
{
	struct soda_listener *l = listener(c);

	soda_log_info("%s does not answer any more: its connections are closed",
		      c->p.peer.info.address);
	pthread_mutex_lock(&l->lock);
	for (struct soda_peer *p = l->peers; p; p = p->next)
		if (p != &c->p.peer && p->client == c->p.peer.client)
			soda_peer_close(p);
	pthread_mutex_unlock(&l->lock);
}

/* Nothing of the client lands any more; then the daemon may know. */
static void finish(struct verbs_control_peer *c, bool welcome, bool accepted, int err,
		   const char *why)
{
	struct soda_verbs_listener *vl = soda_verbs_listener(listener(c));

	soda_verbs_messages_destroy(&c->messages);
	if (c->receives)
		soda_verbs_receives_leave(c->receives);
	soda_verbs_keys_drop_all(&c->keys);
	if (!accepted) {
		soda_verbs_reject(c->p.id, err, why);
		c->link.id = NULL;
	}
	soda_verbs_link_close(&c->link);
	soda_verbs_client_put(vl, c->p.client);
	if (welcome)
		listener(c)->ops->gone(c->p.peer.client, &c->p.peer);
	soda_peer_remove(&c->p.peer);
	free(c);
}

static void *control_main(void *arg)
{
	struct verbs_control_peer *c = arg;
	struct soda_wire_welcome welcome;
	struct soda_why why = { "" };
	bool welcome_it;
	int ret;

	pthread_setname_np(pthread_self(), "soda-control");
	ret = soda_peer_hello(&c->p.peer, &c->p.hello, &welcome, &why);
	welcome_it = ret == 0;
	if (ret == 0)
		ret = greet(c, &welcome, &why);
	if (ret == 0)
		serve(c);
	if (c->messages.silent)
		end_others(c);
	finish(c, welcome_it, ret == 0, ret, why.text);
	return NULL;
}

static void control_peer_close(struct soda_peer *peer)
{
	soda_ring(peer->fd);
}

static int begin(struct verbs_control_peer *c, const struct soda_verbs_peer *from,
		 struct soda_why *why)
{
	static const struct soda_peer_ops ops = { .close = control_peer_close };
	int ret;

	c->p = *from;
	c->p.peer.ops = &ops;
	c->p.peer.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	soda_verbs_link_none(&c->link);
	c->link.id = from->id;
	c->link.end_fd = c->p.peer.fd;
	c->p.id->context = c;
	ret = c->p.peer.fd < 0 ? -errno : soda_peer_add(&c->p.peer, why);
	if (ret < 0) {
		if (c->p.peer.fd >= 0)
			close(c->p.peer.fd);
		return ret;
	}
	ret = soda_control_thread(control_main, c);
	if (ret < 0)
		soda_peer_remove(&c->p.peer);
	return ret;
}

void soda_verbs_serve(const struct soda_verbs_peer *from)
{
	struct verbs_control_peer *c = calloc(1, sizeof(*c));
	struct soda_why why = { "the server has no means for a connection more" };
	int ret = c ? begin(c, from, &why) : -ENOMEM;

	if (ret == 0)
		return;
	free(c);
	soda_verbs_reject(from->id, ret, why.text);
}
