/* SPDX-License-Identifier: BSD-3-Clause */
/* Each body from a client is decoded and checked here, or in the function that it is passed to. */
#include "dpu_agent/movement/movement.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/wait.h"
#include "dpu_agent/movement/memory.h"
#include "wire/field.h"

/* The answer of most calls: what the client has not been told yet. */
static int tell(struct soda_move_client *c, struct soda_reply *reply)
{
	reply->bytes = soda_tickets_tell(c, reply->body);
	return 0;
}

/* Start */

/* How the client's data come: by reading its memory, if it says where, and that can be done. */
static enum soda_wire_way choose_way(struct soda_move_client *c,
				     const struct soda_wire_move_start *start)
{
	const struct soda_peer_info *info = &c->session->info;
	int ret = -ENOTSUP;

	if (info->local && start->token_at)
		ret = soda_source_open(&c->source, info->pid, start->token_at, start->token);
	if (ret < 0 && info->local && start->token_at)
		soda_log_info("%s: its memory cannot be read (%s), so it sends its data itself",
			      info->address, soda_strerror(ret));
	return ret < 0 ? SODA_WAY_STREAM : SODA_WAY_READS;
}

static int start(struct soda_move_client *c, const void *body, size_t bytes, bool shares,
		 struct soda_reply *reply)
{
	struct soda_wire_move_start s;
	struct soda_wire_move_started started = { .version = SODA_MOVE_VERSION };
	int ret = soda_wire_get_move_start(body, bytes, &s);

	if (ret < 0)
		return ret;
	if (s.version != SODA_MOVE_VERSION)
		return soda_services_refuse(
			reply, -ENOTSUP,
			"movement: the agent speaks version %u, the program version %u",
			SODA_MOVE_VERSION, s.version);
	if (c->started)
		return soda_services_refuse(reply, -EBUSY, "movement: it has been started");
	if (s.flags & ~SODA_WIRE_MOVE_RING)
		return soda_services_refuse(reply, -EINVAL, "movement: START with flags %#x",
					    s.flags);
	c->way = choose_way(c, &s);
	c->started = true;
	started.way = c->way;
	/* one that cannot be had is none: lists and notices travel in calls then */
	if (shares && c->session->info.local && s.flags && soda_tickets_ring(c) == 0) {
		started.ring_bytes = SODA_MOVE_RING_BYTES;
		reply->share.fd = c->ring.fd;
	}
	soda_wire_put_move_started(reply->body, &started);
	reply->bytes = SODA_WIRE_MOVE_STARTED_BYTES;
	return 0;
}

/* Buffers */

/* Getters look there for what lists in rings name. */
static void set_buffer(struct soda_move_client *c, uint32_t i, struct soda_buffer *b)
{
	pthread_mutex_lock(&c->movement->lock);
	c->buffers[i] = b;
	pthread_mutex_unlock(&c->movement->lock);
}

/* A number that the client has no buffer of; SODA_MOVE_BUFFERS: it has all of its buffers. */
static unsigned free_number(const struct soda_move_client *c)
{
	unsigned i = 0;

	while (i < SODA_MOVE_BUFFERS && c->buffers[i])
		i++;
	return i;
}

static int refuse_more(struct soda_reply *reply)
{
	return soda_services_refuse(reply, -EBUSY, "movement: this program has its %d buffers",
				    SODA_MOVE_BUFFERS);
}

static void answer_buffer(struct soda_move_client *c, unsigned i, struct soda_buffer *b,
			  struct soda_reply *reply)
{
	set_buffer(c, i, b);
	soda_wire_put_u32(reply->body, i);
	reply->bytes = sizeof(uint32_t);
}

static int reserve(struct soda_move_client *c, const void *body, size_t bytes,
		   struct soda_reply *reply)
{
	struct soda_wire_move_reserve ask;
	struct soda_buffer *b;
	size_t name_bytes;
	const char *name;
	unsigned i = free_number(c);
	int ret = soda_wire_get_move_reserve(body, bytes, &ask, &name, &name_bytes);

	if (ret < 0)
		return ret;
	if (i == SODA_MOVE_BUFFERS)
		return refuse_more(reply);
	ret = soda_buffer_reserve(&c->movement->buffers, &ask, name, name_bytes, &c->session->info,
				  &b, &reply->why);
	if (ret == 0)
		answer_buffer(c, i, b, reply);
	return ret;
}

/* A range of the client's region: its lists are written there. */
static int range(struct soda_move_client *c, const void *body, size_t bytes,
		 struct soda_reply *reply)
{
	const struct soda_agent_regions *regions = c->session->all->regions;
	struct soda_wire_move_range ask;
	unsigned i = free_number(c);
	struct soda_buffer *b;
	int ret = soda_wire_get_move_range(body, bytes, &ask);

	if (ret < 0)
		return ret;
	if (i == SODA_MOVE_BUFFERS)
		return refuse_more(reply);
	if (ask.bytes > SODA_MOVE_BYTES_MAX) /* in pages it could be none */
		return soda_services_refuse(reply, -EINVAL, "movement: no range is so long");
	if (!regions)
		return soda_services_refuse(reply, -ENOTSUP, "movement: there are no regions here");
	ret = regions->check(c->session, ask.region, ask.at, soda_memory_pages(ask.bytes),
			     &reply->why);
	if (ret == 0)
		ret = soda_buffer_range(&c->movement->buffers, &ask, c->session->info.tenant, &b,
					&reply->why);
	if (ret == 0)
		answer_buffer(c, i, b, reply);
	return ret;
}

/* The client's buffer of that number, or NULL. */
static struct soda_buffer *buffer_of(const struct soda_move_client *c, uint32_t i)
{
	return i < SODA_MOVE_BUFFERS ? c->buffers[i] : NULL;
}

static int end(struct soda_move_client *c, const uint8_t *body, struct soda_reply *reply)
{
	uint32_t i = soda_wire_get_u32(body);
	struct soda_buffer *b = buffer_of(c, i);

	if (!b)
		return soda_services_refuse(reply, -EINVAL, "movement: there is no buffer %u", i);
	set_buffer(c, i, NULL); /* so that no list in the ring names it, from here on */
	soda_tickets_forget(c, b);
	soda_buffer_end(&c->movement->buffers, b);
	return tell(c, reply);
}

/* Areas */

static int alloc(struct soda_move_client *c, const uint8_t *body, bool shares,
		 struct soda_reply *reply)
{
	struct soda_area area;
	unsigned i;
	int ret;

	if (!shares || !c->session->info.local)
		return soda_services_refuse(reply, -ENOTSUP,
					    "movement: memory is shared by shm only");
	ret = soda_area_make(&c->movement->buffers, soda_wire_get_u64(body),
			     c->session->info.tenant, &area, &reply->why);
	if (ret < 0)
		return ret;
	ret = soda_tickets_add_area(c, &area, &i);
	if (ret < 0) {
		soda_area_unmake(&c->movement->buffers, &area);
		return soda_services_refuse(reply, ret,
					    "movement: this program has its %d shared memories",
					    SODA_MOVE_AREAS);
	}
	soda_wire_put_u32(reply->body, i);
	reply->bytes = sizeof(uint32_t);
	reply->share.fd = area.fd;
	return 0;
}

static int free_area(struct soda_move_client *c, const uint8_t *body, struct soda_reply *reply)
{
	uint32_t i = soda_wire_get_u32(body);
	struct soda_area area;
	int ret = soda_tickets_remove_area(c, i, &area);

	if (ret < 0)
		return soda_services_refuse(reply, ret, "movement: shared memory %u %s", i,
					    ret == -EBUSY ? "has pieces of a list under way"
							  : "is not there");
	soda_area_unmake(&c->movement->buffers, &area);
	return tell(c, reply);
}

/* But those that a getter reads; that is the last reference then. */
static void drop_areas(struct soda_move_client *c)
{
	struct soda_area area;

	for (uint32_t i = 0; i < SODA_MOVE_AREAS; i++)
		if (soda_tickets_remove_area(c, i, &area) == 0)
			soda_area_unmake(&c->movement->buffers, &area);
}

/* Tickets */

static int post(struct soda_move_client *c, const uint8_t *body, size_t bytes, bool parts,
		struct soda_reply *reply)
{
	struct soda_wire_move_post p;
	struct soda_buffer *b;
	int ret = soda_wire_get_move_post(body, bytes, &p);

	if (ret < 0)
		return ret;
	b = buffer_of(c, p.buffer);
	if (!b)
		return soda_services_refuse(reply, -EINVAL, "movement: there is no buffer %u",
					    p.buffer);
	ret = soda_tickets_post(c, b, p.ticket, body + SODA_WIRE_MOVE_POST_BYTES, p.pieces, parts,
				&reply->why);
	return ret < 0 ? ret : tell(c, reply);
}

static int part(struct soda_move_client *c, const uint8_t *body, size_t bytes,
		struct soda_reply *reply)
{
	enum soda_part_state state = SODA_PART_ENDED;
	struct soda_wire_move_part p;
	int ret = soda_wire_get_move_part(body, bytes, &p);

	if (ret == 0)
		ret = soda_tickets_part(c, p.ticket, p.to, p.timeout_ms, &state);
	if (ret < 0)
		return ret;
	soda_wire_put_u32(reply->body, state);
	reply->bytes = sizeof(uint32_t) + soda_tickets_tell(c, reply->body + sizeof(uint32_t));
	return 0;
}

static int put(struct soda_move_client *c, const uint8_t *body, size_t bytes,
	       struct soda_reply *reply)
{
	struct soda_wire_move_put p;
	int ret = soda_wire_get_move_put(body, bytes, &p);

	if (ret == 0)
		ret = soda_tickets_put(c, p.ticket, p.at, body + SODA_WIRE_MOVE_PUT_BYTES,
				       bytes - SODA_WIRE_MOVE_PUT_BYTES);
	return ret < 0 ? ret : tell(c, reply);
}

static int fail(struct soda_move_client *c, const uint8_t *body, struct soda_reply *reply)
{
	int ret = soda_tickets_fail(c, soda_wire_get_u64(body));

	return ret < 0 ? ret : tell(c, reply);
}

/* The list of a SEND: its ticket is taken, and may have ended, if no copy was free. */
static int take_list(struct soda_move_client *c, const struct soda_wire_move_send *s,
		     struct soda_inflow *in, struct soda_reply *reply)
{
	uint8_t pieces[SODA_MOVE_LIST_MAX * SODA_WIRE_PIECE_BYTES];
	struct iovec iov = { pieces, s->pieces * SODA_WIRE_PIECE_BYTES };
	struct soda_buffer *b = buffer_of(c, s->buffer);
	int ret = soda_inflow_take(in, &iov, 1);

	if (ret < 0)
		return ret;
	if (!b)
		return soda_services_refuse(reply, -EINVAL, "movement: there is no buffer %u",
					    s->buffer);
	return soda_tickets_post(c, b, s->ticket, pieces, s->pieces, false, &reply->why);
}

static int take_padding(const struct soda_wire_move_send *s, struct soda_inflow *in)
{
	uint8_t padding[64];
	struct iovec iov = { padding, soda_wire_move_send_bytes(s->pieces) -
					      SODA_WIRE_MOVE_SEND_BYTES -
					      s->pieces * SODA_WIRE_PIECE_BYTES };

	return iov.iov_len ? soda_inflow_take(in, &iov, 1) : 0;
}

/* Whether the client's ticket of that number, whose list has been taken, awaits data. */
static bool awaits(const struct soda_move_client *c, uint64_t number)
{
	return c->receiving && c->receiving->number == number;
}

static int send(struct soda_move_client *c, struct soda_inflow *in, struct soda_reply *reply)
{
	uint8_t head[SODA_WIRE_MOVE_SEND_BYTES];
	struct iovec iov = { head, sizeof(head) };
	struct soda_wire_move_send s;
	int ret = soda_inflow_take(in, &iov, 1);

	if (ret == 0)
		ret = soda_wire_get_move_send(head, &s);
	if (ret == 0 && c->way != SODA_WAY_STREAM)
		ret = soda_services_refuse(reply, -EINVAL,
					   "movement: this client's memory is read");
	if (ret == 0 && s.pieces)
		ret = take_list(c, &s, in, reply);
	if (ret == 0)
		ret = take_padding(&s, in);
	if (ret == 0 && (!s.pieces || awaits(c, s.ticket)))
		ret = soda_tickets_receive(c, s.ticket, s.at, in);
	return ret < 0 ? ret : tell(c, reply);
}

/* Readers */

/* A name that does not come within the time of the OPEN, if it has any, is no refusal. */
static int open_reader(struct soda_move_client *c, const uint8_t *body, size_t bytes, bool shares,
		       struct soda_reply *reply)
{
	struct soda_wire_move_opened opened = { 0 };
	uint32_t ms;
	int ret;

	if (bytes < sizeof(ms))
		return -EPROTO;
	if (c->reader.buffer)
		return soda_services_refuse(reply, -EBUSY,
					    "movement: this connection has a buffer open");
	ms = soda_wire_get_u32(body);
	ret = soda_buffer_open(&c->movement->buffers, (const char *)body + sizeof(ms),
			       bytes - sizeof(ms), &c->session->info,
			       ms < SODA_MOVE_AWAIT_MS ? ms : SODA_MOVE_AWAIT_MS, &c->reader,
			       &reply->why);
	if (ret < 0 && (ret != -ENOENT || !ms))
		return ret;
	if (ret == 0)
		opened = (struct soda_wire_move_opened){ c->reader.buffer->bytes,
							 c->reader.buffer->copies_n,
							 shares && c->session->info.local };
	soda_wire_put_move_opened(reply->body, &opened);
	reply->bytes = SODA_WIRE_MOVE_OPENED_BYTES;
	return 0;
}

static int next(struct soda_move_client *c, const void *body, size_t bytes,
		struct soda_reply *reply)
{
	struct soda_wire_move_next n;
	struct soda_wire_move_found found;
	int ret = soda_wire_get_move_next(body, bytes, &n);

	if (ret == 0)
		ret = soda_buffer_next(&c->movement->buffers, &c->reader, n.after,
				       n.timeout_ms < SODA_MOVE_AWAIT_MS ? n.timeout_ms
									 : SODA_MOVE_AWAIT_MS,
				       &found);
	if (ret < 0)
		return ret;
	soda_wire_put_move_found(reply->body, &found);
	reply->bytes = SODA_WIRE_MOVE_FOUND_BYTES;
	return 0;
}

/*
 * The memory of a copy, for any reader on the same machine: what it maps is for it to look at while
 * it holds a step there.
 */
static int map(struct soda_move_client *c, const uint8_t *body, bool shares,
	       struct soda_reply *reply)
{
	const struct soda_buffer *b = c->reader.buffer;
	uint32_t i = soda_wire_get_u32(body);

	if (!shares || !c->session->info.local)
		return soda_services_refuse(reply, -ENOTSUP,
					    "movement: memory is shared by shm only");
	if (i >= b->copies_n)
		return soda_services_refuse(reply, -EINVAL, "movement: there is no copy %u", i);
	soda_wire_put_u64(reply->body, b->bytes);
	reply->bytes = sizeof(uint64_t);
	reply->share.fd = b->copies[i].fd;
	return 0;
}

static int read_step(struct soda_move_client *c, const void *body, size_t bytes,
		     struct soda_reply *reply)
{
	struct soda_wire_move_read r;
	const struct soda_copy *copy;
	int ret = soda_wire_get_move_read(body, bytes, &r);

	if (ret < 0)
		return ret;
	copy = soda_buffer_held(&c->movement->buffers, &c->reader, r.step);
	if (!copy)
		return soda_services_refuse(reply, -EINVAL,
					    "movement: this reader does not hold step %llu",
					    (unsigned long long)r.step);
	if (!r.bytes || r.bytes > SODA_MOVE_PUT_MAX || r.offset > c->reader.buffer->bytes ||
	    r.bytes > c->reader.buffer->bytes - r.offset)
		return soda_services_refuse(reply, -EINVAL, "movement: not a part of the step");
	memcpy(reply->body, copy->memory + r.offset, r.bytes);
	reply->bytes = r.bytes;
	return 0;
}

static int call_reader(struct soda_move_client *c, int type, const uint8_t *body, size_t bytes,
		       bool shares, struct soda_reply *reply)
{
	if (!c->reader.buffer)
		return soda_services_refuse(reply, -EINVAL, "movement: no buffer is open");
	switch (type) {
	case SODA_MSG_MOVE_NEXT:
		return next(c, body, bytes, reply);
	case SODA_MSG_MOVE_MAP:
		return bytes == sizeof(uint32_t) ? map(c, body, shares, reply) : -EPROTO;
	case SODA_MSG_MOVE_READ:
		return read_step(c, body, bytes, reply);
	default:
		return bytes == sizeof(uint64_t)
			       ? soda_buffer_release(&c->movement->buffers, &c->reader,
						     soda_wire_get_u64(body))
			       : -EPROTO;
	}
}

/* Hooks */

/* Calls that need START before them. */
static int call_producer(struct soda_move_client *c, int type, const uint8_t *body, size_t bytes,
			 bool shares, struct soda_reply *reply)
{
	if (!c->started)
		return soda_services_refuse(reply, -EINVAL,
					    "movement: a producer begins with START");
	if (soda_tickets_look(c) < 0)
		return soda_services_refuse(reply, -EPROTO,
					    "movement: the program's ring makes no sense: more"
					    " lists than it has room for");
	switch (type) {
	case SODA_MSG_MOVE_RESERVE:
		return reserve(c, body, bytes, reply);
	case SODA_MSG_MOVE_END:
		return bytes == sizeof(uint32_t) ? end(c, body, reply) : -EPROTO;
	case SODA_MSG_MOVE_POST:
	case SODA_MSG_MOVE_POST_PARTS:
		return post(c, body, bytes, type == SODA_MSG_MOVE_POST_PARTS, reply);
	case SODA_MSG_MOVE_PART:
		return part(c, body, bytes, reply);
	case SODA_MSG_MOVE_PUT:
		return put(c, body, bytes, reply);
	case SODA_MSG_MOVE_FAIL:
		return bytes == sizeof(uint64_t) ? fail(c, body, reply) : -EPROTO;
	case SODA_MSG_MOVE_ALLOC:
		return bytes == sizeof(uint64_t) ? alloc(c, body, shares, reply) : -EPROTO;
	case SODA_MSG_MOVE_FREE:
		return bytes == sizeof(uint32_t) ? free_area(c, body, reply) : -EPROTO;
	case SODA_MSG_MOVE_RANGE:
		return range(c, body, bytes, reply);
	case SODA_MSG_MOVE_AWAIT:
		if (bytes != sizeof(uint32_t))
			return -EPROTO;
		soda_tickets_await(c, soda_wire_get_u32(body));
		return tell(c, reply);
	default:
		if (bytes != sizeof(uint64_t))
			return -EPROTO;
		soda_tickets_cancel(c, soda_wire_get_u64(body));
		return tell(c, reply);
	}
}

static int call(struct soda_session *s, void *state, enum soda_msg type, const void *body,
		size_t bytes, bool shares, struct soda_reply *reply)
{
	struct soda_move_client *c = state;

	switch ((int)type) {
	case SODA_MSG_MOVE_START:
		return start(c, body, bytes, shares, reply);
	case SODA_MSG_MOVE_RESERVE:
	case SODA_MSG_MOVE_END:
	case SODA_MSG_MOVE_POST:
	case SODA_MSG_MOVE_POST_PARTS:
	case SODA_MSG_MOVE_PART:
	case SODA_MSG_MOVE_PUT:
	case SODA_MSG_MOVE_FAIL:
	case SODA_MSG_MOVE_AWAIT:
	case SODA_MSG_MOVE_CANCEL:
	case SODA_MSG_MOVE_ALLOC:
	case SODA_MSG_MOVE_FREE:
	case SODA_MSG_MOVE_RANGE:
		return call_producer(c, (int)type, body, bytes, shares, reply);
	case SODA_MSG_MOVE_OPEN:
		return open_reader(c, body, bytes, shares, reply);
	case SODA_MSG_MOVE_NEXT:
	case SODA_MSG_MOVE_MAP:
	case SODA_MSG_MOVE_READ:
	case SODA_MSG_MOVE_RELEASE:
		return call_reader(c, (int)type, body, bytes, shares, reply);
	default:
		return -EPROTO;
	}
}

static int stream(struct soda_session *s, void *state, enum soda_msg type, struct soda_inflow *in,
		  struct soda_reply *reply)
{
	struct soda_move_client *c = state;

	if ((int)type != SODA_MSG_MOVE_SEND)
		return -EPROTO;
	if (!c->started)
		return soda_services_refuse(reply, -EINVAL,
					    "movement: a producer begins with START");
	return send(c, in, reply);
}

static int created(void *arg, struct soda_session *s, void *state)
{
	struct soda_move_client *c = state;

	c->movement = arg;
	c->session = s;
	c->source.pidfd = -1;
	c->end = &c->queue;
	soda_cond_init(&c->ended);
	return 0;
}

/* What the client has is over: nothing is published, its names are free, its holds given back. */
static void gone(struct soda_session *s, void *state, bool stopping)
{
	struct soda_move_client *c = state;

	soda_tickets_gone(c);
	for (unsigned i = 0; i < SODA_MOVE_BUFFERS; i++) {
		if (c->buffers[i])
			soda_buffer_end(&c->movement->buffers, c->buffers[i]);
		c->buffers[i] = NULL;
	}
	soda_buffer_close(&c->movement->buffers, &c->reader);
	drop_areas(c);
}

/* BYE: now, so that a name is free for the producer's next run when that answer comes. */
static void leave(struct soda_session *s, void *state)
{
	gone(s, state, false);
	((struct soda_move_client *)state)->started = false; /* no call of a producer follows */
}

static void destroyed(struct soda_session *s, void *state)
{
	gone(s, state, true); /* of a session that ended before it was in the table */
	soda_source_close(&((struct soda_move_client *)state)->source);
	soda_tickets_unring(state);
	pthread_cond_destroy(&((struct soda_move_client *)state)->ended);
}

static void tick(struct soda_session *s, void *state)
{
	soda_getters_tick(((struct soda_move_client *)state)->movement);
}

static const struct soda_agent_service service = {
	.name = "movement",
	.first = SODA_MSG_MOVE_START,
	.last = SODA_MSG_MOVE_LAST,
	.tools = true,
	.state_bytes = sizeof(struct soda_move_client),
	.created = created,
	.call = call,
	.stream = stream,
	.leave = leave,
	.tick = tick,
	.gone = gone,
	.destroyed = destroyed,
};

int soda_movement_start(struct soda_movement *m, struct soda_sessions *all, uint64_t budget)
{
	int ret;

	soda_buffers_init(&m->buffers, budget);
	m->buffers.tenants = all->tenants;
	ret = soda_tickets_start(m);
	if (ret < 0) {
		soda_buffers_destroy(&m->buffers);
		return ret;
	}
	ret = soda_services_register(&all->services, &service, m);
	if (ret < 0)
		soda_movement_stop(m);
	return ret;
}

void soda_movement_stop(struct soda_movement *m)
{
	if (!m->buffers.budget)
		return;
	if (!soda_tickets_stop(m))
		return; /* what getters still fill has to stay */
	soda_shares_free(&m->lists);
	soda_buffers_destroy(&m->buffers);
	m->buffers.budget = 0;
}

void soda_movement_walk(struct soda_movement *m, struct soda_metrics *metrics)
{
	uint64_t reserved, lists;
	unsigned n, seekers, late;

	if (!m->buffers.budget)
		return;
	pthread_mutex_lock(&m->buffers.lock);
	reserved = m->buffers.reserved.all;
	n = m->buffers.n;
	seekers = m->buffers.seekers;
	lists = m->lists.all;
	pthread_mutex_unlock(&m->buffers.lock);
	pthread_mutex_lock(&m->lock);
	late = m->getters_late;
	pthread_mutex_unlock(&m->lock);
	soda_metrics_say_level(metrics, "move_buffers", "named buffers", n);
	soda_metrics_say_level(metrics, "move_awaited", "consumers that await a buffer's name",
			       seekers);
	soda_metrics_say_size(metrics, "move_reserved_bytes",
			      "memory of named buffers, and that programs share", reserved);
	soda_metrics_say_level(metrics, "move_late",
			       "reads of programs' memory that take too long, now", late);
	soda_metrics_say_size(metrics, "move_list_bytes", "memory of lists of pieces under way",
			      lists);
	soda_metrics_say(metrics, SODA_METRIC_COUNTER, SODA_UNIT_NONE, "move_steps",
			 "steps that were published", atomic_load(&m->published));
	soda_metrics_say(metrics, SODA_METRIC_COUNTER, SODA_UNIT_NONE, "move_failed",
			 "lists of pieces that became no step", atomic_load(&m->failed));
	soda_metrics_say(metrics, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, "move_read_bytes",
			 "data read out of programs' memory", atomic_load(&m->read_bytes));
	soda_metrics_say(metrics, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, "move_shared_bytes",
			 "data copied out of memory that programs share with the agent",
			 atomic_load(&m->shared_bytes));
	soda_metrics_say(metrics, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, "move_streamed_bytes",
			 "data that programs sent", atomic_load(&m->streamed_bytes));
	soda_metrics_say(metrics, SODA_METRIC_COUNTER, SODA_UNIT_BYTES, "move_stored_bytes",
			 "data that were written to objects on the memory server",
			 atomic_load(&m->stored_bytes));
}
