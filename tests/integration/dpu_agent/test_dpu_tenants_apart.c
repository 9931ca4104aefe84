/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tenants of a DPU agent beside each other: what one has, another neither reaches nor sees; rates;
 * reload.  Who is let in at all is tried in test_server_tenants.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"
#include "lib/scrape.h"
#include "tenancy.h"
#include "wire/field.h"
#include "wire/messages.h"
#include "wire/movement.h"
#include "wire/store_map.h"

#define MIB (1ull << 20)
#define PAGE 4096u
#define CHUNK (64u << 10)

enum { PHYSICS, BIOLOGY, OPERATOR, TENANTS };

static const char *const names[TENANTS] = { "physics", "biology", "operator" };

static struct tenancy below, tenants; /* the memory server's, and the agent's */
static struct server server, agent;
static char export[80], shm[80];
static const char *address; /* where cases connect */
static struct soda_identity *who[TENANTS];
static uint8_t page[PAGE], got[PAGE];

/* The memory server knows one tenant, the agent; the agent knows three. */
static void start_server(void)
{
	char text[96];
	struct soda_conf_error err;

	tenancy_open(&below, "127.0.0.1");
	tenancy_add(&below, "node7")->role = SODA_ROLE_AGENT;
	snprintf(text, sizeof(text), "ro %s", export);
	assert_int_equal(soda_tenant_export_add(tenancy_of(&below, "node7"), text, &err), 0);
	tenancy_save(&below);
	assert_int_equal(SERVER_START(&server, "--tenants", below.file, "--capacity", "256M",
				      "--log-level", "debug", "--tls", "on"),
			 0);
}

static const char *grace = "60s"; /* of agents that begin */
static int complaints;		  /* that the agent may have at the end of a case */

static void start_agent(const char *listen)
{
	const char *args[] = { "--listen",
			       listen,
			       "--listen",
			       shm,
			       "--server",
			       server.address,
			       "--key-file",
			       NULL,
			       "--tenants",
			       tenants.file,
			       "--store",
			       "64M",
			       "--move-memory",
			       "64M",
			       "--msg-memory",
			       "64M",
			       "--metrics",
			       "127.0.0.1:0",
			       "--tls",
			       "on",
			       "--log-level",
			       "debug",
			       "--grace",
			       grace,
			       NULL };

	args[7] = tenancy_key(&below, "node7");
	assert_int_equal(agent_start(&agent, args), 0);
}

static void begin(bool on_shm)
{
	static int n;

	snprintf(shm, sizeof(shm), "shm://@soda-test-apart-%d-%d", (int)getpid(), n++);
	tenancy_open(&tenants, "node7");
	for (int i = 0; i < TENANTS; i++)
		tenancy_add(&tenants, names[i]);
	tenancy_of(&tenants, names[OPERATOR])->role = SODA_ROLE_OPERATOR;
	tenancy_save(&tenants);
	start_server();
	start_agent("tcp://127.0.0.1:0");
	address = on_shm ? shm : agent.address;
	for (int i = 0; i < TENANTS; i++)
		who[i] = tenancy_identity(&tenants, names[i], address);
}

static void end(void)
{
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), complaints);
	complaints = 0;
	server_forget(&agent);
	assert_int_equal(server_stop(&server), 0);
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
	for (int i = 0; i < TENANTS; i++)
		soda_identity_free(who[i]);
	tenancy_close(&tenants);
	tenancy_close(&below);
}

static void reload(const char *logs)
{
	tenancy_save(&tenants);
	assert_int_equal(kill(agent.pid, SIGHUP), 0);
	assert_true(server_logs(&agent, logs));
}

static void join(struct peer *peer, int tenant)
{
	if (peer_join_as(peer, address, who[tenant]))
		fail_msg("%s", peer->why.text);
}

/* A call of the control plane with this body. */
static int ask(struct peer *peer, int type, const void *body, size_t bytes)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	uint8_t answer[256];
	size_t n;

	return soda_conn_call(peer->control, (enum soda_msg)type, &iov, 1, answer, sizeof(answer),
			      &n, PEER_TIMEOUT_MS, &peer->why);
}

/* Names */

static int publish(struct peer *peer, uint16_t region, const char *name)
{
	uint8_t body[SODA_WIRE_REGION_BYTES + SODA_WIRE_MAX_NAME] = { (uint8_t)region,
								      (uint8_t)(region >> 8) };

	memcpy(body + SODA_WIRE_REGION_BYTES, name, strlen(name));
	return ask(peer, SODA_MSG_PUBLISH, body, SODA_WIRE_REGION_BYTES + strlen(name));
}

static int open_published(struct peer *peer, uint16_t region, const char *name, struct soda_mr *mr)
{
	return peer_open(peer, region, name, 0, SODA_WIRE_READ_ONLY | SODA_WIRE_PUBLISHED, mr,
			 NULL);
}

/* A region with this value in its first page, published. */
static void publish_value(struct peer *peer, uint8_t value, const char *name, struct soda_mr *mr)
{
	assert_int_equal(peer_open(peer, 1, NULL, MIB, 0, mr, NULL), 0);
	memset(page, value, sizeof(page));
	assert_int_equal(peer_write(peer, mr, 0, page, PAGE), 0);
	if (publish(peer, 1, name))
		fail_msg("%s", peer->why.text);
}

/* Promise S8. */
static void publishes_apart(bool on_shm)
{
	struct peer physics, friend, biology;
	struct soda_mr mr[2], theirs;
	char longest[SODA_WIRE_MAX_NAME + 1];

	begin(on_shm);
	join(&physics, PHYSICS);
	join(&friend, PHYSICS);
	join(&biology, BIOLOGY);
	publish_value(&physics, 0x11, "field", &mr[0]);
	/* not by its name, nor by the one that the memory server has */
	assert_int_equal(open_published(&biology, 9, "field", &theirs), -ENOENT);
	assert_int_equal(open_published(&biology, 9, "physics/field", &theirs), -ENOENT);
	publish_value(&biology, 0x22, "field", &mr[1]);
	/* each has its own */
	assert_int_equal(open_published(&friend, 9, "field", &theirs), 0);
	assert_int_equal(peer_read(&friend, &theirs, 0, got, PAGE), 0);
	assert_int_equal(got[0], 0x11);
	memset(longest, 'x', SODA_WIRE_MAX_NAME);
	longest[SODA_WIRE_MAX_NAME] = 0;
	assert_int_equal(open_published(&friend, 8, longest, &theirs), -EINVAL);
	assert_non_null(strstr(friend.why.text, "beside the name of tenant physics"));
	assert_int_equal(publish(&friend, 9, ""), -EINVAL);
	/* a region id of another's is nothing here */
	assert_int_equal(peer_call(&friend, SODA_MSG_CLOSE, 1), -EINVAL);
	for (int i = 0; i < 2; i++)
		soda_conn_unmap_region(&mr[i]);
	peer_leave(&friend);
	peer_leave(&physics);
	peer_leave(&biology);
	end();
}

static int start_moving(struct peer *peer)
{
	struct soda_wire_move_start start = { .version = SODA_MOVE_VERSION };
	uint8_t body[SODA_WIRE_MOVE_START_BYTES];

	soda_wire_put_move_start(body, &start);
	return ask(peer, SODA_MSG_MOVE_START, body, sizeof(body));
}

static int reserve(struct peer *peer, const char *name)
{
	struct soda_wire_move_reserve r = { PAGE, 1, 0444, 0 };
	uint8_t body[SODA_WIRE_MOVE_RESERVE_BYTES + 16];

	soda_wire_put_move_reserve(body, &r);
	memcpy(body + SODA_WIRE_MOVE_RESERVE_BYTES, name, strlen(name));
	return ask(peer, SODA_MSG_MOVE_RESERVE, body, SODA_WIRE_MOVE_RESERVE_BYTES + strlen(name));
}

static int open_buffer(struct peer *peer, const char *name)
{
	uint8_t body[4 + 16];

	soda_wire_put_u32(body, 0);
	memcpy(body + 4, name, strlen(name));
	return ask(peer, SODA_MSG_MOVE_OPEN, body, 4 + strlen(name));
}

/* Promise S8. */
static void moves_apart(bool on_shm)
{
	struct peer physics, friend, biology;

	begin(on_shm);
	join(&physics, PHYSICS);
	join(&friend, PHYSICS);
	join(&biology, BIOLOGY);
	assert_int_equal(start_moving(&physics) | start_moving(&biology), 0);
	assert_int_equal(reserve(&physics, "field"), 0);
	/* all may read it, says its mode: of its tenant */
	assert_int_equal(open_buffer(&biology, "field"), -ENOENT);
	assert_int_equal(open_buffer(&friend, "field"), 0);
	assert_int_equal(reserve(&friend, "field"), -EINVAL); /* it has not started */
	assert_int_equal(reserve(&biology, "field"), 0);
	assert_int_equal(reserve(&physics, "field"), -EEXIST);
	peer_leave(&friend);
	peer_leave(&physics);
	peer_leave(&biology);
	end();
}

/* Rank 0 of two, of a job without a key. */
static int join_job(struct peer *peer, uint32_t role)
{
	struct soda_wire_msg_join j = { .version = SODA_MSG_VERSION,
					.role = role,
					.ranks = 2,
					.life = 1,
					.agents = 1,
					.name_bytes = 3 };
	uint8_t body[SODA_WIRE_MSG_JOIN_BYTES + 3];

	soda_wire_put_msg_join(body, &j);
	memcpy(body + SODA_WIRE_MSG_JOIN_BYTES, "job", 3);
	return ask(peer, SODA_MSG_MESSAGES_JOIN, body, sizeof(body));
}

/* As an agent would, for this job. */
static int link_job(struct peer *peer, const char *name)
{
	struct soda_wire_msg_link l = {
		.version = SODA_MSG_VERSION, .ranks = 2, .agents = 1, .life = 1
	};
	uint8_t body[SODA_WIRE_MSG_LINK_BYTES + 32];

	soda_wire_put_msg_link(body, &l);
	memcpy(body + SODA_WIRE_MSG_LINK_BYTES, name, strlen(name));
	return ask(peer, SODA_MSG_MESSAGES_LINK, body, SODA_WIRE_MSG_LINK_BYTES + strlen(name));
}

/* Promise S8. */
static void routes_apart(bool on_shm)
{
	struct peer physics, friend, biology;

	begin(on_shm);
	join(&physics, PHYSICS);
	join(&friend, PHYSICS);
	join(&biology, BIOLOGY);
	if (join_job(&physics, SODA_MSG_PUSHES))
		fail_msg("%s", physics.why.text);
	/* the same place in the same job is taken, and in another one of that name it is not */
	assert_int_equal(join_job(&friend, SODA_MSG_PUSHES), -EBUSY);
	assert_int_equal(join_job(&biology, SODA_MSG_PUSHES), 0);
	assert_int_equal(peer_stat_sum(&physics, "tenant_list", "clients"), 2);
	/* nobody but an agent names another tenant's, and nobody one that there is not */
	peer_leave(&biology);
	join(&biology, BIOLOGY);
	assert_int_equal(link_job(&biology, "physics/job"), -EBUSY);
	assert_non_null(strstr(biology.why.text, "no rank of this job has come here"));
	tenancy_of(&tenants, names[BIOLOGY])->role = SODA_ROLE_AGENT;
	reload("read again: 3 tenants");
	assert_int_equal(link_job(&biology, "physics/job"), -EINVAL); /* it is there */
	assert_non_null(strstr(biology.why.text, "different lists of agents and ranks"));
	assert_int_equal(link_job(&biology, "physics/other"), -EBUSY);
	assert_int_equal(link_job(&biology, "nobody/job"), -EACCES);
	assert_int_equal(link_job(&biology, "job"), -EACCES);
	assert_non_null(strstr(biology.why.text, "of no tenant of this agent"));
	peer_leave(&friend);
	peer_leave(&physics);
	peer_leave(&biology);
	end();
}

/* The node's store, whose memory a program may write to: of one user who is one tenant. */

static void join_store(struct peer *peer, struct soda_mr *mr, struct soda_wire_stored *stored)
{
	const struct soda_wire_store ask = { .region_id = 1, .part = SODA_WIRE_STORE_MAP };
	int fd;

	assert_int_equal(peer_open(peer, 1, "graph", 0, SODA_WIRE_READ_ONLY, mr, NULL), 0);
	if (soda_conn_store(peer->control, &ask, MIB, stored, &fd, PEER_TIMEOUT_MS, &peer->why))
		fail_msg("%s", peer->why.text);
	close(fd);
}

/* Promise S8. */
static void stores_apart(void **state)
{
	struct soda_wire_stored stored[3];
	struct peer peers[3], asks;
	struct soda_mr mr[3];

	begin(true);
	for (int i = 0; i < 3; i++) {
		join(&peers[i], i < 2 ? PHYSICS : BIOLOGY);
		join_store(&peers[i], &mr[i], &stored[i]);
	}
	assert_int_equal(stored[0].member, 0);
	assert_int_equal(stored[1].member, 1); /* the same memory */
	assert_int_equal(stored[2].member, 0); /* another */
	assert_int_equal(peer_ask_as(&asks, address, who[OPERATOR]), 0);
	assert_int_equal(peer_stat(&asks, "store_objects"), 2);
	peer_leave(&asks);
	for (int i = 0; i < 3; i++) {
		soda_conn_unmap_region(&mr[i]);
		peer_leave(&peers[i]);
	}
	end();
}

/* Rates */

static void keeps_rates(void **state)
{
	static uint8_t chunk[CHUNK];
	struct peer peers[2], other;
	struct soda_mr mr[2];

	begin(false);
	tenancy_of(&tenants, names[PHYSICS])->rate = 4 * MIB;
	reload("read again: 3 tenants");
	/* where nobody would count */
	assert_int_equal(peer_join_as(&other, shm, who[PHYSICS]), -EPERM);
	assert_non_null(strstr(other.why.text, "tenant physics has a rate"));
	assert_true(server_logs(&agent, "of tenant physics: refused: tenant physics has a rate"));
	join(&peers[0], PHYSICS);
	join(&peers[1], PHYSICS);
	assert_int_equal(start_moving(&peers[0]), -EPERM);
	assert_non_null(strstr(peers[0].why.text, "movement: tenant physics has a rate"));
	assert_int_equal(join_job(&peers[0], SODA_MSG_PUSHES), -EPERM);
	/* one rate for both */
	for (int i = 0; i < 2; i++)
		assert_int_equal(peer_open(&peers[i], 1, NULL, 4 * MIB, 0, &mr[i], NULL), 0);
	for (unsigned n = 0; n < 32; n++)
		assert_int_equal(
			n & 2 ? peer_read(&peers[n & 1], &mr[n & 1], n * CHUNK, chunk, CHUNK)
			      : peer_write(&peers[n & 1], &mr[n & 1], n * CHUNK, chunk, CHUNK),
			0);
	assert_true(peer_stat_sum(&peers[0], "tenant_list", "delayed") > 0);
	assert_int_equal(peer_stat_sum(&peers[0], "tenant_list", "rate_bytes"), 4 * MIB);
	/* others have none */
	join(&other, BIOLOGY);
	assert_int_equal(start_moving(&other), 0);
	assert_int_equal(peer_stat_sum(&other, "tenant_list", "delayed"), 0);
	peer_leave(&other);
	for (int i = 0; i < 2; i++) {
		soda_conn_unmap_region(&mr[i]);
		peer_leave(&peers[i]);
	}
	end();
}

/* Statistics */

static unsigned metrics_port(void)
{
	unsigned port = 0;

	for (int i = 0; i < LOOKS && !(port = http_find_port(server_log(&agent))); i++)
		usleep(10000);
	assert_true(port);
	return port;
}

static void counts(bool on_shm)
{
	struct peer physics, biology, asks;
	const char *text;
	struct soda_mr mr;

	begin(on_shm);
	join(&physics, PHYSICS);
	join(&biology, BIOLOGY);
	assert_int_equal(peer_open(&physics, 1, NULL, MIB, 0, &mr, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(peer_write(&physics, &mr, PAGE, page, PAGE), 0);
	assert_int_equal(peer_read(&physics, &mr, PAGE, got, PAGE), 0);
	/* one's own */
	assert_int_equal(peer_stat_sum(&physics, "tenant_list", "bytes_written"), 3 * PAGE);
	assert_int_equal(peer_stat_sum(&physics, "tenant_list", "reads"), 1);
	assert_int_equal(peer_stat_sum(&physics, "client_list", "connected"), 1);
	assert_int_equal(peer_stat_sum(&biology, "tenant_list", "bytes_written"), 0);
	assert_int_equal(peer_stat_sum(&biology, "tenant_list", "clients"), 1);
	/* everybody's */
	assert_int_equal(peer_ask_as(&asks, address, who[OPERATOR]), 0);
	assert_int_equal(peer_stat_sum(&asks, "tenant_list", "bytes_written"), 3 * PAGE);
	assert_int_equal(peer_stat_sum(&asks, "tenant_list", "clients"), 2);
	peer_leave(&asks);
	text = scraped(metrics_port());
	assert_true(
		scraped_value(text,
			      "soda_dpu_agent_tenant_written_bytes_total{tenant=\"physics\"}") ==
		3 * PAGE);
	assert_true(scraped_value(text, "soda_dpu_agent_tenant_clients{tenant=\"biology\"}") == 1);
	soda_conn_unmap_region(&mr);
	peer_leave(&physics);
	peer_leave(&biology);
	end();
}

/* Programs, by their environment; their names and statistics by TLS. */
static void serves_programs(void **state)
{
	struct program p;

	begin(false);
	setenv("SODA_DPU", address, 1);
	assert_int_equal(program_run("examples/minimal", (const char *const[]){ NULL }, &p), 0);
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "SODA_KEY_FILE"));
	setenv("SODA_KEY_FILE", tenancy_key(&tenants, names[PHYSICS]), 1);
	setenv("SODA_SERVER_NAME", "node7", 1);
	for (int i = 0; i < 3; i++) {
		if (i == 1)
			setenv("SODA_DPU", shm, 1);
		if (i == 2) {
			setenv("SODA_DPU", address, 1);
			setenv("SODA_TLS", "on", 1);
		}
		assert_int_equal(program_run("examples/minimal", (const char *const[]){ NULL }, &p),
				 0);
		if (p.status)
			fail_msg("%d: %s", i, p.err);
	}
	assert_int_equal(program_run("tools/soda/soda",
				     (const char *const[]){ "stat", agent.address, NULL }, &p),
			 0);
	assert_int_equal(p.status, 0);
	assert_non_null(strstr(p.out, "physics"));
	assert_null(strstr(p.out, "biology"));
	unsetenv("SODA_KEY_FILE");
	unsetenv("SODA_SERVER_NAME");
	unsetenv("SODA_TLS");
	unsetenv("SODA_DPU");
	end();
}

/* Coming back, and not */

/* A client that is away for longer than the keeper rests finds what it had. */
static void awaits_its_clients(bool on_shm)
{
	struct peer physics, again;
	struct soda_mr mr;

	begin(on_shm);
	join(&physics, PHYSICS);
	assert_int_equal(peer_open(&physics, 1, NULL, MIB, 0, &mr, NULL), 0);
	memset(page, 0x5a, sizeof(page));
	assert_int_equal(peer_write(&physics, &mr, PAGE, page, PAGE), 0);
	peer_vanish(&physics);
	usleep(1000000);
	assert_int_equal(peer_return_as(&again, address, who[PHYSICS], &physics, 2), 0);
	assert_int_equal(again.welcome.known, 1);
	assert_int_equal(peer_read(&again, &mr, PAGE, got, PAGE), 0);
	assert_memory_equal(page, got, PAGE);
	soda_conn_unmap_region(&mr);
	peer_leave(&again);
	end();
}

/* Tokens */

static struct soda_wire_token token;

static void next_agent(void)
{
	static char listen[128];

	snprintf(listen, sizeof(listen), "%s", agent.address);
	server_kill(&agent);
	server_forget(&agent);
	start_agent(listen);
}

/* A region of physics with 0x5a in its second page, and the client's token; on the server. */
static void store_value(struct peer *physics, struct soda_mr *mr)
{
	join(physics, PHYSICS);
	assert_true(physics->welcome.agent & SODA_WIRE_AGENT_TOKENS);
	assert_int_equal(peer_token(physics, 0, &token), 0);
	assert_int_equal(peer_open(physics, 1, NULL, MIB, 0, mr, NULL), 0);
	memset(page, 0x5a, sizeof(page));
	assert_int_equal(peer_write(physics, mr, PAGE, page, PAGE), 0);
	assert_int_equal(peer_call(physics, SODA_MSG_SYNC, 1), 0);
}

static void find_value(struct peer *peer, struct soda_mr *mr)
{
	memset(got, 0, sizeof(got));
	assert_int_equal(peer_read(peer, mr, PAGE, got, PAGE), 0);
	assert_memory_equal(page, got, PAGE);
}

static int try_adopt(int tenant, uint64_t id, const struct soda_wire_token *shown, uint64_t epoch)
{
	struct peer peer;
	int r = peer_adopt_as(&peer, address, who[tenant], id, shown->token, epoch);

	if (!r)
		peer_vanish(&peer);
	else if (!strstr(peer.why.text, r == -EPERM ? "this client is another tenant's"
						    : "the token for this client id is wrong"))
		fail_msg("%s", peer.why.text);
	return r;
}

/* The next agent becomes its client by the token, and nobody else does. */
static void adopted_by_the_next_agent(bool on_shm)
{
	struct soda_wire_token bad, next;
	struct peer physics, biology, again;
	struct soda_mr mr, other;
	uint64_t id;

	begin(on_shm);
	store_value(&physics, &mr);
	id = physics.welcome.client_id;
	next_agent();
	if (!on_shm)
		address = agent.address;
	/* beside them somebody works, whom nothing of this concerns */
	join(&biology, BIOLOGY);
	assert_int_equal(peer_open(&biology, 1, NULL, MIB, 0, &other, NULL), 0);
	/* its key alone is nobody's */
	assert_int_equal(peer_return_as(&again, address, who[PHYSICS], &physics, 2), -ESTALE);
	/* stolen by another tenant of the agent; guessed */
	assert_int_equal(try_adopt(BIOLOGY, id, &token, 3), -ESTALE);
	assert_true(server_logs(&agent, "of tenant biology: refused: tcp://"));
	assert_true(server_logs(&server, "of tenant node7: refused: the token"));
	bad = token;
	bad.token[0] ^= 1;
	assert_int_equal(try_adopt(PHYSICS, id, &bad, 4), -ESTALE);
	/* of another client */
	assert_int_equal(try_adopt(PHYSICS, biology.welcome.client_id, &token, 4), -EPERM);
	if (peer_adopt_as(&again, address, who[PHYSICS], id, token.token, 5))
		fail_msg("%s", again.why.text);
	assert_int_equal(again.welcome.known, 1);
	assert_int_equal(again.welcome.client_id, id);
	assert_true(server_logs(&agent, "of tenant physics is back, by its token"));
	find_value(&again, &mr);
	/* it counts to the tenant's quota here, too */
	assert_int_equal(peer_stat_sum(&again, "tenant_list", "used_bytes"), MIB);
	/* the answer may have been lost: once more, to the agent that has the client now */
	assert_int_equal(try_adopt(BIOLOGY, id, &token, 6), -EPERM);
	peer_vanish(&again);
	if (peer_adopt_as(&again, address, who[PHYSICS], id, token.token, 7))
		fail_msg("%s", again.why.text);
	find_value(&again, &mr);
	/* a replay, once the next one is held; of this agent's, and of another one's */
	assert_int_equal(peer_token(&again, token.number, &next), 0);
	assert_int_not_equal(next.number, token.number);
	assert_int_equal(peer_token(&again, next.number, &next), 0);
	assert_int_equal(try_adopt(PHYSICS, id, &token, 8), -ESTALE);
	find_value(&again, &mr);
	assert_int_equal(peer_call(&biology, SODA_MSG_SYNC, 1), 0);
	next_agent();
	if (!on_shm)
		address = agent.address;
	peer_vanish(&biology);
	peer_vanish(&again);
	assert_int_equal(try_adopt(PHYSICS, id, &token, 9), -ESTALE);
	if (peer_adopt_as(&again, address, who[PHYSICS], id, next.token, 10))
		fail_msg("%s", again.why.text);
	find_value(&again, &mr);
	/* and by its new key from now on */
	peer_vanish(&again);
	peer_vanish(&physics);
	assert_int_equal(peer_return_as(&physics, address, who[PHYSICS], &again, 11), 0);
	find_value(&physics, &mr);
	soda_conn_unmap_region(&mr);
	soda_conn_unmap_region(&other);
	peer_leave(&physics);
	end();
}

/* The answer to who showed its token was lost, and that is known later than --grace. */
static void adopted_again_late(void **state)
{
	struct peer physics, again, late;
	struct soda_mr mr;
	uint64_t id;

	begin(false);
	store_value(&physics, &mr);
	id = physics.welcome.client_id;
	grace = "100ms";
	next_agent();
	grace = "60s";
	address = agent.address;
	peer_vanish(&physics);
	if (peer_adopt_as(&again, address, who[PHYSICS], id, token.token, 2))
		fail_msg("%s", again.why.text);
	usleep(300000);
	if (peer_adopt_as(&late, address, who[PHYSICS], id, token.token, 3))
		fail_msg("%s", late.why.text);
	find_value(&late, &mr);
	soda_conn_unmap_region(&mr);
	peer_vanish(&again);
	peer_leave(&late);
	end();
}

struct shown_at_once {
	struct peer peer;
	uint64_t id, epoch;
};

static void *show_at_once(void *arg)
{
	struct shown_at_once *s = arg;

	peer_adopt_as(&s->peer, address, who[PHYSICS], s->id, token.token, s->epoch);
	return NULL;
}

/*
 * The server is silent, and the client shows its token again before the first HELLO by it has
 * ended. The agent becomes that client once: else the key of the one is void by the other's.
 */
static void adopted_once(void **state)
{
	struct shown_at_once shown[2];
	struct peer physics, again;
	pthread_t threads[2];
	struct soda_mr mr;
	uint64_t id;

	begin(false);
	store_value(&physics, &mr);
	id = physics.welcome.client_id;
	next_agent();
	address = agent.address;
	peer_vanish(&physics);
	assert_int_equal(kill(server.pid, SIGSTOP), 0);
	for (unsigned i = 0; i < 2; i++) {
		shown[i].id = id;
		shown[i].epoch = 2 + i;
		assert_int_equal(pthread_create(&threads[i], NULL, show_at_once, &shown[i]), 0);
	}
	usleep(300000); /* so that both are on their way; on a slow machine they may not be */
	assert_int_equal(kill(server.pid, SIGCONT), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		peer_vanish(&shown[i].peer);
	if (peer_adopt_as(&again, address, who[PHYSICS], id, token.token, 4))
		fail_msg("%s", again.why.text);
	assert_int_equal(again.welcome.known, 1);
	find_value(&again, &mr);
	soda_conn_unmap_region(&mr);
	peer_leave(&again);
	end();
}

/* physics stores its value; the agent's key is rotated; next: the token that comes then. */
static uint64_t store_and_rotate(struct peer *physics, struct soda_mr *mr,
				 struct soda_wire_token *next)
{
	store_value(physics, mr);
	tenancy_rotate(&below, "node7");
	tenancy_save(&below);
	assert_int_equal(kill(server.pid, SIGHUP), 0);
	assert_true(server_logs(&server, "read again: 1 tenant"));
	assert_int_equal(peer_token(physics, token.number, next), 0);
	return physics->welcome.client_id;
}

/* The agent's own key is rotated while it runs: tokens from then on are for one that has the new.
 */
static void adopted_after_rotation(void **state)
{
	struct soda_wire_token next;
	struct peer physics, again;
	struct soda_mr mr;
	uint64_t id;

	begin(false);
	id = store_and_rotate(&physics, &mr, &next);
	next_agent();
	address = agent.address;
	peer_vanish(&physics);
	if (peer_adopt_as(&again, address, who[PHYSICS], id, next.token, 2))
		fail_msg("%s", again.why.text);
	find_value(&again, &mr);
	soda_conn_unmap_region(&mr);
	peer_leave(&again);
	end();
}

/*
 * The agent cannot read its own key when the token is shown that it has bound by it: that is no
 * reason for the client to begin anew.
 */
static void adopted_when_the_key_is_there(void **state)
{
	struct soda_wire_token next;
	struct peer physics, operator, again;
	struct soda_mr mr;
	uint64_t id;

	grace = "100ms";
	begin(false);
	grace = "60s";
	id = store_and_rotate(&physics, &mr, &next);
	join(&operator, OPERATOR);
	peer_vanish(&physics);
	for (int i = 0; i < 3000 && peer_stat_sum(&operator, "tenant_list", "clients") > 1; i++)
		usleep(10000);
	assert_int_equal(chmod(tenancy_key(&below, "node7"), 0644), 0);
	assert_int_equal(peer_adopt_as(&again, address, who[PHYSICS], id, next.token, 2), -EIO);
	assert_non_null(strstr(again.why.text, "the agent cannot read its own key"));
	assert_int_equal(chmod(tenancy_key(&below, "node7"), 0600), 0);
	if (peer_adopt_as(&again, address, who[PHYSICS], id, next.token, 3))
		fail_msg("%s", again.why.text);
	find_value(&again, &mr);
	soda_conn_unmap_region(&mr);
	peer_leave(&again);
	peer_leave(&operator);
	complaints = 1;
	end();
}

/* Another agent has no key of its clients: without a token they begin anew. */
static void knows_none_of_another_life(void **state)
{
	struct peer physics, again;

	begin(false);
	join(&physics, PHYSICS);
	next_agent();
	assert_int_equal(peer_return_as(&again, address, who[PHYSICS], &physics, 2), -ESTALE);
	assert_non_null(strstr(again.why.text, "does not know the client any more"));
	peer_vanish(&physics);
	end();
}

/* Promise S10. */
static void ends_the_removed(bool on_shm)
{
	struct peer physics, biology;
	struct soda_mr mr[2];

	begin(on_shm);
	join(&physics, PHYSICS);
	join(&biology, BIOLOGY);
	assert_int_equal(peer_open(&physics, 1, NULL, 8 * MIB, 0, &mr[0], NULL), 0);
	assert_int_equal(peer_open(&biology, 1, NULL, 4 * MIB, 0, &mr[1], NULL), 0);
	assert_int_equal(peer_write(&biology, &mr[1], PAGE, page, PAGE), 0);
	unlink(tenancy_key(&tenants, names[BIOLOGY]));
	soda_tenants_file_remove(&tenants.content, tenancy_of(&tenants, names[BIOLOGY]));
	reload("read again: 2 tenants");
	assert_true(peer_call(&biology, SODA_MSG_SYNC, 1) < 0);
	peer_vanish(&biology);
	assert_int_equal(peer_return_as(&biology, address, who[BIOLOGY], &biology, 2), -EACCES);
	/* the server has its memory back, and physics its own */
	assert_true(server_logs(&server, "has left"));
	memset(page, 0x77, sizeof(page));
	assert_int_equal(peer_write(&physics, &mr[0], PAGE, page, PAGE), 0);
	assert_int_equal(peer_read(&physics, &mr[0], PAGE, got, PAGE), 0);
	assert_memory_equal(page, got, PAGE);
	for (int i = 0; i < 2; i++)
		soda_conn_unmap_region(&mr[i]);
	peer_leave(&physics);
	end();
}

/* Another agent before this one: a tenant of role agent, whatever its programs are. */
static void takes_agents_by_their_role(void **state)
{
	struct peer program;
	struct server first;

	begin(false);
	const char *const args[] = { "--listen",
				     "tcp://127.0.0.1:0",
				     "--server",
				     agent.address,
				     "--server-name",
				     "node7",
				     "--key-file",
				     tenancy_key(&tenants, names[PHYSICS]),
				     NULL };

	assert_int_equal(agent_start(&first, args), 0);
	assert_int_equal(peer_join(&program, first.address), -EPERM);
	assert_non_null(strstr(program.why.text, "by way of an agent"));
	tenancy_of(&tenants, names[PHYSICS])->role = SODA_ROLE_AGENT;
	reload("read again: 3 tenants");
	if (peer_join(&program, first.address))
		fail_msg("%s", program.why.text);
	peer_leave(&program);
	assert_int_equal(server_stop(&first), 0);
	server_forget(&first);
	end();
}

#define BOTH(name)                                                                                 \
	static void name##_tcp(void **state)                                                       \
	{                                                                                          \
		name(false);                                                                       \
	}                                                                                          \
	static void name##_shm(void **state)                                                       \
	{                                                                                          \
		name(true);                                                                        \
	}

BOTH(publishes_apart)
BOTH(moves_apart)
BOTH(routes_apart)
BOTH(counts)
BOTH(awaits_its_clients)
BOTH(ends_the_removed)
BOTH(adopted_by_the_next_agent)

#define TESTS(name) cmocka_unit_test(name##_tcp), cmocka_unit_test(name##_shm)

static int set_up(void **state)
{
	char path[96];
	int fd;

	strcpy(export, "/tmp/soda-apart-XXXXXX");
	if (!mkdtemp(export))
		return -1;
	snprintf(path, sizeof(path), "%s/graph", export);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	return fd < 0 || ftruncate(fd, MIB) || close(fd);
}

static int tear_down(void **state)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/graph", export);
	unlink(path);
	return rmdir(export);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS(publishes_apart),
		TESTS(moves_apart),
		TESTS(routes_apart),
		cmocka_unit_test(stores_apart),
		cmocka_unit_test(keeps_rates),
		TESTS(counts),
		cmocka_unit_test(serves_programs),
		TESTS(awaits_its_clients),
		cmocka_unit_test(adopted_again_late),
		cmocka_unit_test(adopted_once),
		cmocka_unit_test(adopted_after_rotation),
		cmocka_unit_test(adopted_when_the_key_is_there),
		cmocka_unit_test(knows_none_of_another_life),
		TESTS(adopted_by_the_next_agent),
		TESTS(ends_the_removed),
		cmocka_unit_test(takes_agents_by_their_role),
	};
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
