/* SPDX-License-Identifier: BSD-3-Clause */
/* A control connection's thread on verbs: HELLO, then one call after the other. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "transport/api/memory.h"
#include "transport/stream/stream.h"
#include "transport/verbs/server/server.h"

enum { READ_BYTES = 1 << 20, COPY_BYTES = 64 << 10 };

/* The streamed call that is being served: its body, and data that are read where they lie. */
struct flow {
	struct soda_inflow in;
	struct soda_wire_flow head;
	struct soda_wire_flow_part parts[SODA_WIRE_FLOW_PARTS]; /* what is left of each */
	uint32_t part;						/* the next one */
	const uint8_t *body;
	size_t body_left;
	int broken; /* the connection, with this error */
	/* made with the first such call */
	struct soda_regcache *cache;
	uint8_t *copies; /* for data whose destination cannot be registered */
	struct ibv_mr *mr;
};

struct verbs_control_peer {
	struct soda_verbs_peer p; /* first: it is the id's context */
	struct soda_verbs_link link;
	struct soda_verbs_messages messages;
	struct soda_verbs_keys keys;
	struct soda_verbs_receives *receives; /* that it shares; NULL: it has its own */
	struct flow flow;
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

/* Streamed calls */

static struct verbs_control_peer *peer_of(struct soda_inflow *in)
{
	return (struct verbs_control_peer *)((char *)in -
					     offsetof(struct verbs_control_peer, flow.in));
}

static int prepare_flow(struct verbs_control_peer *c)
{
	struct ibv_pd *pd = c->link.pd; /* its queue pair's; the keys are local ones */
	struct soda_why why;

	if (!c->flow.cache)
		c->flow.cache = soda_regcache_own(pd);
	if (!c->flow.copies)
		c->flow.copies = soda_verbs_map(c->p.id->verbs, COPY_BYTES);
	if (!c->flow.cache || !c->flow.copies)
		return -ENOMEM;
	return c->flow.mr ? 0
			  : soda_verbs_register(pd, c->flow.copies, COPY_BYTES,
						IBV_ACCESS_LOCAL_WRITE, &c->flow.mr, &why);
}

static void end_flow(struct flow *f)
{
	soda_verbs_unregister(f->mr);
	if (f->copies)
		munmap(f->copies, COPY_BYTES);
	soda_regcache_put(f->cache);
}

/* Into memory that cannot be registered. */
static int read_and_copy(struct verbs_control_peer *c, uint8_t *to,
			 const struct soda_wire_flow_part *from, uint64_t deadline_ns)
{
	int ret = soda_verbs_message_read(&c->messages, c->flow.copies, c->flow.mr->lkey, from,
					  deadline_ns);

	if (ret == 0)
		ret = soda_verbs_message_await_reads(&c->messages, deadline_ns);
	if (ret == 0)
		soda_payload_copy(to, c->flow.copies, from->bytes);
	return ret;
}

/* The next bytes of the client's memory: a READ is begun. */
static int read_some(struct verbs_control_peer *c, uint8_t *to, size_t *bytes_p,
		     uint64_t deadline_ns)
{
	struct soda_wire_flow_part *part = &c->flow.parts[c->flow.part], from = *part;
	uint32_t lkey;
	int ret;

	if (from.bytes > *bytes_p)
		from.bytes = (uint32_t)*bytes_p;
	if (from.bytes > READ_BYTES)
		from.bytes = READ_BYTES;
	if (soda_regcache_lkey(c->flow.cache, to, from.bytes, &lkey)) {
		ret = soda_verbs_message_read(&c->messages, to, lkey, &from, deadline_ns);
	} else {
		if (from.bytes > COPY_BYTES)
			from.bytes = COPY_BYTES;
		ret = read_and_copy(c, to, &from, deadline_ns);
	}
	part->at += from.bytes;
	part->bytes -= from.bytes;
	c->flow.part += !part->bytes;
	*bytes_p = from.bytes;
	return ret;
}

static int take_one(struct verbs_control_peer *c, uint8_t *to, size_t bytes, uint64_t deadline_ns)
{
	size_t some = bytes < c->flow.body_left ? bytes : c->flow.body_left;
	int ret = 0;

	memcpy(to, c->flow.body, some);
	c->flow.body += some;
	c->flow.body_left -= some;
	for (size_t at = some; ret == 0 && at < bytes; at += some) {
		some = bytes - at;
		if (c->flow.head.status == SODA_ST_OK)
			ret = read_some(c, to + at, &some, deadline_ns);
		else
			memset(to + at, 0, some);
	}
	return ret;
}

static int take(struct soda_inflow *in, struct iovec *iov, int n)
{
	struct verbs_control_peer *c = peer_of(in);
	uint64_t deadline_ns = soda_deadline(SODA_CALL_BODY_MS);
	int ret = c->flow.broken;

	for (int i = 0; ret == 0 && i < n; i++)
		ret = take_one(c, iov[i].iov_base, iov[i].iov_len, deadline_ns);
	if (ret == 0)
		ret = soda_verbs_message_await_reads(&c->messages, deadline_ns);
	c->flow.broken = ret;
	return ret;
}

static int take_end(struct soda_inflow *in)
{
	struct verbs_control_peer *c = peer_of(in);

	return c->flow.broken ? c->flow.broken : -soda_status_to_errno(c->flow.head.status);
}

static int call_streamed(struct verbs_control_peer *c, enum soda_msg type, const uint8_t *body,
			 size_t bytes, struct soda_reply *reply)
{
	struct flow *f = &c->flow;
	size_t at;
	int ret = listener(c)->ops->stream
			  ? soda_wire_get_flow(body, bytes, &f->head, f->parts, &at)
			  : -EPROTO;

	f->broken = ret;
	if (ret < 0)
		return ret;
	ret = prepare_flow(c);
	if (ret < 0) {
		soda_why_set(&reply->why, "the server's device takes no more memory");
		return ret;
	}
	f->part = 0;
	f->body = body + at;
	f->body_left = bytes - at;
	f->in = (struct soda_inflow){ .left = f->body_left + f->head.bytes,
				      .take = take,
				      .end = take_end };
	return listener(c)->ops->stream(c->p.peer.client, type, &f->in, reply);
}

static int answer(struct verbs_control_peer *c, const struct soda_wire_frame *request)
{
	const uint8_t *body = c->messages.now->data + SODA_WIRE_FRAME_BYTES;
	struct soda_reply reply = { .body = c->messages.out + SODA_WIRE_FRAME_BYTES,
				    .share = { .fd = -1 } };
	struct soda_wire_frame frame;
	enum soda_msg type = request->type;
	bool streamed = request->flags & SODA_WIRE_STREAMED;
	int ret;

	if (streamed) {
		ret = call_streamed(c, type, body, request->length, &reply);
		if (c->flow.broken)
			return c->flow.broken;
	} else {
		drop_keys(c, type, body, request->length);
		ret = call(c, type, body, request->length, &reply);
		if (ret == 0)
			ret = settle_keys(c, type, body, request->length, &reply);
	}
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
		if (ret == 0 &&
		    (!soda_control_is_call(&frame) ||
		     (frame.flags & SODA_WIRE_STREAMED && frame.type < SODA_MSG_SERVICES)))
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
	end_flow(&c->flow);
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
	soda_wipe(&c->p.proved, sizeof(c->p.proved));
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
	soda_verbs_peer_moved(&c->p);
	c->p.peer.ops = &ops;
	c->p.peer.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	soda_verbs_link_none(&c->link);
	c->link.id = from->id;
	c->link.end_fd = c->p.peer.fd;
	c->p.id->context = c;
	ret = c->p.peer.fd < 0 ? -errno : soda_peer_add(&c->p.peer, c->p.hello.client_id, why);
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
