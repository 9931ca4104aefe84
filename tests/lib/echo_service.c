/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/echo_service.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* What it has for each client: zeroed memory behind the session. */
struct client {
	struct echo *echo;
	uint64_t said; /* calls of one client come one after the other */
};

static int created(void *arg, struct soda_session *s, void *state)
{
	struct client *c = state;

	c->echo = arg;
	c->echo->created++;
	return 0;
}

static int connected(struct soda_session *s, void *state, const struct soda_wire_hello *hello,
		     const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		     struct soda_why *why)
{
	struct client *c = state;

	c->echo->connected++;
	return 0;
}

static int say(struct client *c, const void *body, size_t bytes, struct soda_reply *reply)
{
	memmove(reply->body, body, bytes);
	reply->bytes = bytes;
	c->said++;
	return 0;
}

static int count(struct client *c, struct soda_reply *reply)
{
	for (unsigned i = 0; i < sizeof(c->said); i++)
		reply->body[i] = (uint8_t)(c->said >> 8 * i);
	reply->bytes = sizeof(c->said);
	return 0;
}

/* A call may wait: it has the thread of its connection. */
static int await_open(struct echo *echo)
{
	echo->waiting++;
	for (int ms = 0; !echo->open && ms < 20000; ms++)
		poll(NULL, 0, 1);
	echo->waiting--;
	return echo->open ? 0 : -EBUSY;
}

/* What comes from a client is checked before it is used. */
static int call(struct soda_session *s, void *state, enum soda_msg type, const void *body,
		size_t bytes, bool shares, struct soda_reply *reply)
{
	struct client *c = state;

	if ((int)type == ECHO_SAY)
		return say(c, body, bytes, reply);
	if (bytes)
		return -EPROTO;
	if ((int)type == ECHO_COUNT)
		return count(c, reply);
	return (int)type == ECHO_WAIT ? await_open(c->echo) : -EPROTO;
}

static void leave(struct soda_session *s, void *state)
{
	((struct client *)state)->echo->left++;
}

static void tick(struct soda_session *s, void *state)
{
	((struct client *)state)->echo->ticks++;
}

static void broken(struct soda_session *s, void *state)
{
	((struct client *)state)->echo->broken++;
}

static bool idle(struct soda_session *s, void *state, bool stopping)
{
	return stopping || !((struct client *)state)->echo->busy;
}

static void gone(struct soda_session *s, void *state, bool stopping)
{
	((struct client *)state)->echo->gone++;
}

static void destroyed(struct soda_session *s, void *state)
{
	((struct client *)state)->echo->destroyed++;
}

static const struct soda_agent_service service = {
	.name = "echo",
	.first = ECHO_SAY,
	.last = ECHO_LAST,
	.tools = true,
	.calls_max = ECHO_CALLS,
	.bytes_max = ECHO_BYTES,
	.state_bytes = sizeof(struct client),
	.created = created,
	.connected = connected,
	.call = call,
	.leave = leave,
	.tick = tick,
	.broken = broken,
	.idle = idle,
	.gone = gone,
	.destroyed = destroyed,
};

int echo_register(struct echo *echo, struct soda_sessions *all)
{
	return soda_services_register(&all->services, &service, echo);
}
