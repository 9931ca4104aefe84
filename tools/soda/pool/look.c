/* SPDX-License-Identifier: BSD-3-Clause */
/* The members' answers, and what they come to. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "soda/base/json.h"
#include "soda/base/tool.h"
#include "soda/pool/look.h"

const char *const soda_pool_states[] = { "up", "draining", "ending", "unreachable" };

int soda_pool_exit(int err)
{
	return err == -EINVAL ? SODA_EXIT_USAGE : SODA_EXIT_FAILED;
}

int soda_pool_open(struct soda_pool *pool, const char *who, const char *list,
		   const struct soda_registry_login *login)
{
	struct soda_why why = { "" };
	int ret;

	memset(pool, 0, sizeof(*pool));
	list = list ? list : getenv("SODA_SERVER");
	if (!list || !*list) {
		fprintf(stderr,
			"%s: which pool? the addresses of its servers, with commas between, as an "
			"argument or in SODA_SERVER; see --help\n",
			who);
		return -EINVAL;
	}
	ret = soda_registry_is_name(list)
		      ? soda_registry_resolve(list, login, true, &pool->list, &why)
		      : soda_members_parse(list, &pool->list, &why);
	if (ret) {
		fprintf(stderr, "%s: %s\n", who, why.text);
		return ret;
	}
	for (uint32_t i = 0; i < pool->list.n; i++)
		if (!strstr(pool->list.address[i], "://") ||
		    soda_stat_open(&pool->members[i].source, pool->list.address[i], &why)) {
			fprintf(stderr, "%s: '%s' is no address (tcp://HOST:PORT, shm://...)\n",
				who, pool->list.address[i]);
			return -EINVAL;
		}
	return 0;
}

/* A text of a server's, which may say anything. */
static void take_text(char *to, size_t bytes, const json_t *from, const char *key)
{
	snprintf(to, bytes, "%s", soda_json_text(from, key));
	soda_make_printable(to);
}

/* The program of that id; NULL: no memory. */
static struct soda_pool_program *program_of(struct soda_pool *pool, const char *id)
{
	struct soda_pool_program *more;

	for (size_t i = 0; i < pool->programs_n; i++)
		if (!strcmp(pool->programs[i].id, id))
			return &pool->programs[i];
	more = realloc(pool->programs, (pool->programs_n + 1) * sizeof(*more));
	if (!more)
		return NULL;
	pool->programs = more;
	more += pool->programs_n++;
	*more = (struct soda_pool_program){ .slabs = 0 };
	snprintf(more->id, sizeof(more->id), "%s", id);
	return more;
}

static void keep_greater(uint64_t *to, const json_t *client, const char *key)
{
	uint64_t said = soda_json_count(client, key);

	*to = said > *to ? said : *to;
}

/* What a server says of one of its clients. */
static void take_client(struct soda_pool *pool, const json_t *client)
{
	struct soda_pool_program *program;
	char id[24];

	take_text(id, sizeof(id), client, "pool_program");
	/* others are tools, or programs with this server alone; one that is away is about to go */
	if (!*id || !json_is_true(json_object_get(client, "connected")))
		return;
	program = program_of(pool, id);
	if (!program)
		return;
	take_text(program->address, sizeof(program->address), client, "address");
	program->pid = soda_json_count(client, "pid");
	program->copies += soda_json_count(client, "pool_slabs_here");
	program->used += soda_json_count(client, "used_bytes");
	/* each server has it from the same program: the greatest is the newest, or a second old */
	keep_greater(&program->slabs, client, "pool_slabs");
	keep_greater(&program->missing, client, "pool_copies_missing");
	keep_greater(&program->expelled, client, "pool_copies_expelled");
	keep_greater(&program->rebuilt, client, "pool_copies_rebuilt");
	keep_greater(&program->moved, client, "pool_copies_moved");
	keep_greater(&program->rebuilt_bytes, client, "pool_rebuilt_bytes");
}

static enum soda_pool_state state_of(const json_t *answer)
{
	if (json_is_true(json_object_get(answer, "draining")))
		return SODA_POOL_ENDING;
	return json_is_true(json_object_get(answer, "pool_draining")) ? SODA_POOL_DRAINING
								      : SODA_POOL_UP;
}

static void take_answer(struct soda_pool *pool, struct soda_pool_member *member,
			const json_t *answer)
{
	json_t *clients = json_object_get(answer, "client_list"), *client;
	size_t i;

	member->state = state_of(answer);
	take_text(member->domain, sizeof(member->domain), answer, "domain");
	take_text(member->version, sizeof(member->version), answer, "version");
	take_text(member->instance, sizeof(member->instance), answer, "instance_id");
	member->capacity = soda_json_count(answer, "capacity_bytes");
	member->used = soda_json_count(answer, "used_bytes");
	member->free_bytes = soda_json_count(answer, "free_bytes");
	member->clients = 0;
	member->clients_known = json_is_array(clients);
	json_array_foreach(clients, i, client)
	{
		if (soda_json_count(client, "chunk_bytes")) /* no tool */
			member->clients++;
		take_client(pool, client);
	}
}

static void ask(struct soda_pool *pool, struct soda_pool_member *member, int timeout_ms)
{
	struct soda_why why = { "" };
	json_t *answer = soda_stat_read(&member->source, timeout_ms, &why);

	if (answer) {
		take_answer(pool, member, answer);
		json_decref(answer);
		return;
	}
	member->state = SODA_POOL_UNREACHABLE;
	snprintf(member->why, sizeof(member->why), "%s", why.text);
	soda_make_printable(member->why);
}

void soda_pool_look(struct soda_pool *pool, int timeout_ms)
{
	pool->programs_n = 0;
	for (uint32_t i = 0; i < pool->list.n; i++)
		ask(pool, &pool->members[i], timeout_ms);
}

void soda_pool_close(struct soda_pool *pool, int timeout_ms)
{
	for (uint32_t i = 0; i < pool->list.n; i++)
		soda_stat_close(&pool->members[i].source, timeout_ms);
	free(pool->programs);
}

uint64_t soda_pool_missing(const struct soda_pool *pool)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < pool->programs_n; i++)
		sum += pool->programs[i].missing;
	return sum;
}

uint32_t soda_pool_domains(const struct soda_pool *pool)
{
	struct soda_candidate members[SODA_MEMBERS_MAX];

	for (uint32_t i = 0; i < pool->list.n; i++) {
		const struct soda_pool_member *m = &pool->members[i];

		members[i] = (struct soda_candidate){ .refused = m->state == SODA_POOL_UNREACHABLE,
						      .domain = i };
		for (uint32_t k = 0; *m->domain && k < i; k++)
			if (!strcmp(pool->members[k].domain, m->domain)) {
				members[i].domain = members[k].domain;
				break;
			}
	}
	return soda_placement_domains(members, pool->list.n);
}

int soda_pool_tell(struct soda_conn *conn, enum soda_wire_pool_ask ask, int timeout_ms,
		   struct soda_why *why)
{
	struct soda_wire_tell tell = { .ask = ask };
	uint8_t body[SODA_WIRE_TELL_BYTES], reply[SODA_WIRE_MEMBER_BYTES + 256];
	struct iovec iov = { body, sizeof(body) };
	struct soda_wire_member member;
	size_t bytes;
	int err;

	soda_wire_put_tell(body, &tell);
	err = soda_conn_call(conn, SODA_MSG_POOL, &iov, 1, reply, sizeof(reply), &bytes, timeout_ms,
			     why);
	if (!err)
		err = soda_wire_get_member(reply, bytes, &member);
	if (err == -EPROTO)
		snprintf(why->text, sizeof(why->text),
			 "this is a server of a version that knows nothing of it, or no server");
	return err;
}
