/* SPDX-License-Identifier: BSD-3-Clause */
/* A small client of a memory server. */
#include "lib/peer.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"
#include "trust/token.h"
#include "wire/field.h"

static int connect_as(struct peer *peer, enum soda_conn_kind kind, struct soda_conn **conn_p,
		      struct soda_wire_welcome *welcome_p)
{
	const struct soda_wire_hello hello = {
		.magic = SODA_WIRE_MAGIC,
		.version = SODA_WIRE_VERSION,
		.chunk_bytes = peer->tool ? 0 : 65536,
		.features = (uint32_t)peer->member << SODA_FEATURE_MEMBER_SHIFT,
		.uid = geteuid(),
		.gid = getegid(),
		.pid = (uint32_t)getpid(),
		.client_id = peer->welcome.client_id,
		.secret = peer->welcome.secret,
		.epoch = peer->epoch,
	};
	const struct soda_conn_options opt = { .kind = kind,
					       .timeout_ms = PEER_TIMEOUT_MS,
					       .sealed = peer->sealed,
					       .identity = peer->identity,
					       .client_key = peer->client_key,
					       .token = kind == SODA_CONN_CONTROL ? peer->token
										  : NULL };

	return soda_conn_connect(peer->address, &hello, &opt, conn_p, welcome_p, &peer->why);
}

/* Who and what is set already. */
static int come(struct peer *peer, const char *address)
{
	struct soda_wire_welcome welcome;
	int r;

	snprintf(peer->address, sizeof(peer->address), "%s", address);
	r = connect_as(peer, SODA_CONN_CONTROL, &peer->control, &welcome);
	if (!r)
		peer->welcome = welcome;
	return r;
}

int peer_return(struct peer *peer, const char *address, const struct soda_wire_welcome *was,
		uint64_t epoch)
{
	*peer = (struct peer){ .epoch = epoch };
	if (was)
		peer->welcome = *was;
	return come(peer, address);
}

int peer_return_as(struct peer *peer, const char *address, const struct soda_identity *identity,
		   const struct peer *was, uint64_t epoch)
{
	*peer = (struct peer){ .epoch = epoch, .identity = identity };
	if (was) {
		peer->welcome = was->welcome;
		memcpy(peer->client_key, was->client_key, sizeof(peer->client_key));
	}
	return come(peer, address);
}

int peer_adopt_as(struct peer *peer, const char *address, const struct soda_identity *identity,
		  uint64_t client_id, const uint8_t token[SODA_WIRE_TOKEN_BYTES], uint64_t epoch)
{
	int r;

	*peer = (struct peer){ .epoch = epoch, .identity = identity, .token = token };
	peer->welcome.client_id = client_id;
	r = come(peer, address);
	peer->token = NULL;
	return r;
}

int peer_token(struct peer *peer, uint32_t held, struct soda_wire_token *token_p)
{
	uint8_t asked[SODA_WIRE_TOKEN_ASK_BYTES], answer[SODA_WIRE_TOKEN_ANSWER_BYTES];
	const struct iovec body = { asked, sizeof(asked) };
	size_t got = 0;
	int r;

	soda_wire_put_u32(asked, held);
	r = soda_conn_call(peer->control, SODA_MSG_TOKEN, &body, 1, answer, sizeof(answer), &got,
			   PEER_TIMEOUT_MS, &peer->why);
	if (!r)
		r = soda_wire_get_token(answer, got, token_p);
	return r ? r : soda_token_wrap(token_p->token, peer->client_key, token_p->nonce);
}

int peer_join_as(struct peer *peer, const char *address, const struct soda_identity *identity)
{
	return peer_return_as(peer, address, identity, NULL, 1);
}

int peer_join(struct peer *peer, const char *address)
{
	return peer_return(peer, address, NULL, 1);
}

int peer_join_for(struct peer *peer, const char *address, uint16_t member)
{
	*peer = (struct peer){ .epoch = 1, .member = member };
	return come(peer, address);
}

int peer_ask(struct peer *peer, const char *address)
{
	return peer_ask_as(peer, address, NULL);
}

int peer_ask_as(struct peer *peer, const char *address, const struct soda_identity *identity)
{
	struct soda_wire_welcome welcome;

	*peer = (struct peer){ .epoch = 1, .tool = true, .identity = identity };
	snprintf(peer->address, sizeof(peer->address), "%s", address);
	return connect_as(peer, SODA_CONN_CONTROL, &peer->control, &welcome);
}

int peer_connect_data(struct peer *peer, struct soda_conn **conn_p)
{
	struct soda_wire_welcome welcome;

	return connect_as(peer, SODA_CONN_DATA, conn_p, &welcome);
}

void peer_vanish(struct peer *peer)
{
	soda_conn_close(peer->data);
	soda_conn_close(peer->control);
	peer->data = peer->control = NULL;
}

void peer_leave(struct peer *peer)
{
	if (peer->control)
		soda_conn_call(peer->control, SODA_MSG_BYE, NULL, 0, NULL, 0, NULL, PEER_TIMEOUT_MS,
			       &peer->why);
	peer_vanish(peer);
}

int peer_open(struct peer *peer, uint16_t id, const char *name, uint64_t bytes, uint32_t flags,
	      struct soda_mr *mr_p, struct soda_wire_opened *opened_p)
{
	const struct soda_wire_open open = { .region_id = id,
					     .name_bytes = (uint16_t)(name ? strlen(name) : 0),
					     .flags = flags,
					     .bytes = bytes };
	struct soda_wire_opened opened;
	int r = soda_conn_open_region(peer->control, &open, name, &opened, mr_p, PEER_TIMEOUT_MS,
				      &peer->why);

	if (!r && opened_p)
		*opened_p = opened;
	return r;
}

int peer_call(struct peer *peer, enum soda_msg type, uint16_t id)
{
	uint8_t body[SODA_WIRE_REGION_BYTES] = { (uint8_t)id, (uint8_t)(id >> 8) };
	const struct iovec iov = { body, sizeof(body) };

	return soda_conn_call(peer->control, type, &iov, 1, NULL, 0, NULL, PEER_TIMEOUT_MS,
			      &peer->why);
}

int peer_discard(struct peer *peer, uint16_t id, uint64_t offset, uint64_t bytes)
{
	const struct soda_wire_discard d = { id, offset, bytes };
	uint8_t body[SODA_WIRE_DISCARD_BYTES];
	const struct iovec iov = { body, sizeof(body) };

	soda_wire_put_discard(body, &d);
	return soda_conn_call(peer->control, SODA_MSG_DISCARD, &iov, 1, NULL, 0, NULL,
			      PEER_TIMEOUT_MS, &peer->why);
}

int peer_content(struct peer *peer, uint16_t id, const char *name,
		 struct soda_wire_content *content_p)
{
	const struct soda_wire_tell tell = { .ask = SODA_WIRE_POOL_CONTENT };
	const struct soda_wire_open ask = { .region_id = id, .name_bytes = (uint16_t)strlen(name) };
	uint8_t body[SODA_WIRE_TELL_BYTES + SODA_WIRE_OPEN_BYTES];
	uint8_t reply[SODA_WIRE_MEMBER_BYTES + SODA_WIRE_CONTENT_BYTES];
	const struct iovec iov[2] = { { body, sizeof(body) },
				      { (void *)(uintptr_t)name, ask.name_bytes } };
	size_t bytes;
	int r;

	soda_wire_put_tell(body, &tell);
	soda_wire_put_open(body + SODA_WIRE_TELL_BYTES, &ask);
	r = soda_conn_call(peer->control, SODA_MSG_POOL, iov, 2, reply, sizeof(reply), &bytes,
			   PEER_TIMEOUT_MS, &peer->why);
	if (!r && bytes != sizeof(reply))
		r = -EPROTO;
	return r ? r
		 : soda_wire_get_content(reply + SODA_WIRE_MEMBER_BYTES, SODA_WIRE_CONTENT_BYTES,
					 content_p);
}

/* Flush what was posted and await it. */
static int finish(struct soda_conn *conn)
{
	struct soda_done done;
	int r = soda_conn_flush(conn, false);

	if (!r)
		r = soda_conn_poll(conn, &done, 1, PEER_TIMEOUT_MS * 1000000ll, 0);
	if (r < 0)
		return r;
	return r ? done.status : -ETIMEDOUT;
}

static int need_data(struct peer *peer)
{
	return peer->data ? 0 : peer_connect_data(peer, &peer->data);
}

int peer_read(struct peer *peer, const struct soda_mr *mr, uint64_t offset, void *dest,
	      uint32_t bytes)
{
	int r = need_data(peer);

	if (!r)
		r = soda_conn_post_read(peer->data, mr, offset, bytes, dest, 1);
	return r ? r : finish(peer->data);
}

int peer_write(struct peer *peer, const struct soda_mr *mr, uint64_t offset, const void *src,
	       uint32_t bytes)
{
	int r = need_data(peer);

	if (!r)
		r = soda_conn_post_write(peer->data, mr, offset, bytes, src, 1);
	return r ? r : finish(peer->data);
}

/* All statistics; NULL: none. The caller's. */
static json_t *ask(struct peer *peer)
{
	static char text[SODA_WIRE_MAX_CONTROL];
	size_t n;

	if (soda_conn_call(peer->control, SODA_MSG_STATS, NULL, 0, text, sizeof(text), &n,
			   PEER_TIMEOUT_MS, &peer->why))
		return NULL;
	return json_loadb(text, n, 0, NULL);
}

/* A flag is 0 or 1. */
static uint64_t number_of(const json_t *member)
{
	if (json_is_boolean(member))
		return json_is_true(member);
	return json_is_integer(member) ? (uint64_t)json_integer_value(member) : UINT64_MAX;
}

uint64_t peer_stat(struct peer *peer, const char *name)
{
	json_t *object = ask(peer);
	uint64_t value = number_of(json_object_get(object, name));

	json_decref(object);
	return value;
}

uint64_t peer_stat_at(const char *address, const char *name)
{
	struct peer tool;
	uint64_t value;

	if (peer_ask(&tool, address))
		return UINT64_MAX;
	value = peer_stat(&tool, name);
	peer_leave(&tool);
	return value;
}

uint64_t peer_stat_of(const char *address, const char *name)
{
	uint64_t value = peer_stat_at(address, name);

	assert_true(value != UINT64_MAX);
	return value;
}

void peer_await_stat(const char *address, const char *name, uint64_t least)
{
	for (int i = 0; i < LOOKS && peer_stat_of(address, name) < least; i++)
		usleep(10000);
	assert_true(peer_stat_of(address, name) >= least);
}

void peer_await_none(const char *address, const char *name)
{
	for (int i = 0; i < LOOKS && peer_stat_of(address, name); i++)
		usleep(10000);
	assert_int_equal(peer_stat_of(address, name), 0);
}

uint64_t peer_stat_sum(struct peer *peer, const char *list, const char *name)
{
	json_t *object = ask(peer), *item;
	uint64_t sum = 0;
	size_t i;

	json_array_foreach(json_object_get(object, list), i, item) sum +=
		number_of(json_object_get(item, name));
	json_decref(object);
	return sum;
}
