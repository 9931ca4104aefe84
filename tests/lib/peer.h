/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of a memory server for tests, made of the transport's own functions: one
 * control connection, and one data connection when it is first needed.
 */
#ifndef SODA_TEST_PEER_H
#define SODA_TEST_PEER_H

#include "transport/api/transport.h"
#include "trust/identity.h"
#include "wire/pool.h"

struct peer {
	struct soda_conn *control, *data;
	struct soda_wire_welcome welcome;
	struct soda_why why; /* of the last refusal */
	uint64_t epoch;
	bool tool;	 /* it only asks for statistics */
	bool sealed;	 /* data connections say that all is sealed */
	uint16_t member; /* behind an agent with a list: which server; 0: not said */
	const struct soda_identity *identity; /* NULL: nobody */
	uint8_t client_key[SODA_KEY_BYTES];   /* with an identity */
	const uint8_t *token;		      /* shown by control connections; NULL: none */
	char address[128];
};

enum { PEER_TIMEOUT_MS = 60000 };

/* A new client. 0 or negative errno. */
int peer_join(struct peer *peer, const char *address);
/* The same, for the server of that tag (soda_members_hash) in the agent's list. */
int peer_join_for(struct peer *peer, const char *address, uint16_t member);
/* The same as a tenant. */
int peer_join_as(struct peer *peer, const char *address, const struct soda_identity *identity);
/* The client that `was` is, as this tenant, with another epoch. */
int peer_return_as(struct peer *peer, const char *address, const struct soda_identity *identity,
		   const struct peer *was, uint64_t epoch);
/* SODA_MSG_TOKEN, of a client that has the one numbered `held`; *token_p: as the peer has it. */
int peer_token(struct peer *peer, uint32_t held, struct soda_wire_token *token_p);
/* Who does not have the key of the client with this id, and shows a token. */
int peer_adopt_as(struct peer *peer, const char *address, const struct soda_identity *identity,
		  uint64_t client_id, const uint8_t token[SODA_WIRE_TOKEN_BYTES], uint64_t epoch);
/* No client, but who asks for statistics. 0 or negative errno. */
int peer_ask(struct peer *peer, const char *address);
int peer_ask_as(struct peer *peer, const char *address, const struct soda_identity *identity);
/* The client that this welcome was for, with another epoch. */
int peer_return(struct peer *peer, const char *address, const struct soda_wire_welcome *was,
		uint64_t epoch);
/* One more data connection of the client, with its epoch. */
int peer_connect_data(struct peer *peer, struct soda_conn **conn_p);
/* BYE, and close. */
void peer_leave(struct peer *peer);
/* Close the connections without a word, as a crash does. */
void peer_vanish(struct peer *peer);

/* name NULL: anonymous. opened_p may be NULL. */
int peer_open(struct peer *peer, uint16_t id, const char *name, uint64_t bytes, uint32_t flags,
	      struct soda_mr *mr_p, struct soda_wire_opened *opened_p);
/* SODA_MSG_CLOSE, _SYNC, ... of one region. */
int peer_call(struct peer *peer, enum soda_msg type, uint16_t id);
int peer_discard(struct peer *peer, uint16_t id, uint64_t offset, uint64_t bytes);
/* What a file has (wire/pool.h): of an open region, or, id 0, of a name. */
int peer_content(struct peer *peer, uint16_t id, const char *name,
		 struct soda_wire_content *content_p);
int peer_read(struct peer *peer, const struct soda_mr *mr, uint64_t offset, void *dest,
	      uint32_t bytes);
int peer_write(struct peer *peer, const struct soda_mr *mr, uint64_t offset, const void *src,
	       uint32_t bytes);

/* A number, or a flag as 0 or 1, of the server's statistics by name; UINT64_MAX: there is none. */
uint64_t peer_stat(struct peer *peer, const char *name);
/* The same of the daemon at an address, by a connection of its own; UINT64_MAX, too: no answer. */
uint64_t peer_stat_at(const char *address, const char *name);
/* peer_stat_at(); no such number, or no answer, fails the running cmocka test. */
uint64_t peer_stat_of(const char *address, const char *name);
/* Await for at most a minute that the number is `least` or more; that it is 0. */
void peer_await_stat(const char *address, const char *name, uint64_t least);
void peer_await_none(const char *address, const char *name);
/* Of a list, the sum of its items' numbers of that name. */
uint64_t peer_stat_sum(struct peer *peer, const char *list, const char *name);

#endif
