/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proof of tenants on verbs: a server with tenants, before which somebody says again what a
 * tenant has said, or changes it; and a tenant before somebody who poses as its server.  What is
 * refused disturbs nobody: the tenant's client works on.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"
#include "transport/api/claim.h"
#include "transport/stream/stream.h"
#include "transport/verbs/client/client.h"
#include "trust/tenants_file.h"

enum { PAGE = 4096, MIB = 1 << 20, WAIT_MS = 20000 };

static char dir[64], tenants[96], key_file[96];
static uint8_t root[SODA_KEY_BYTES];
static struct server server;
static struct soda_identity *who;
static struct peer worker;
static struct soda_mr worker_mr;

/* The server and the client that works */

static void write_tenants(uint64_t rate)
{
	struct soda_tenants_file content = { .server = "mem1" };
	struct soda_tenant_entry *entry;
	struct soda_conf_error err;
	char hex[SODA_KEY_TEXT_BYTES], text[256];
	int n = snprintf(text, sizeof(text), "[tenant]\nname = physics\nkey = %s\n",
			 soda_key_format(root, SODA_KEY_BYTES, hex));

	assert_int_equal(soda_private_write(key_file, text, (size_t)n, &err), 0);
	assert_int_equal(soda_tenants_file_add(&content, "physics", &entry, &err), 0);
	assert_int_equal(soda_key_for_server(root, "mem1", entry->key), 0);
	entry->rate = rate;
	assert_int_equal(soda_tenants_file_write(tenants, &content, &err), 0);
	soda_tenants_file_free(&content);
}

static struct soda_identity *identity(const char *server_name)
{
	struct soda_conf_error err = { "" };
	struct soda_identity *got;

	if (soda_identity_load("physics", key_file, server_name, server.address, &got, &err))
		fail_msg("%s", err.text);
	return got;
}

static void check_worker(uint8_t value)
{
	static uint8_t page[PAGE], got[PAGE];

	memset(page, value, sizeof(page));
	assert_int_equal(peer_write(&worker, &worker_mr, PAGE, page, PAGE), 0);
	assert_int_equal(peer_read(&worker, &worker_mr, PAGE, got, PAGE), 0);
	assert_memory_equal(page, got, PAGE);
}

static void start(uint64_t rate)
{
	write_tenants(rate);
	assert_int_equal(SERVER_START(&server, "--listen", getenv("SODA_TEST_VERBS"), "--tenants",
				      tenants, "--capacity", "64M", "--log-level", "debug"),
			 0);
	who = identity("mem1");
}

static void begin(void)
{
	start(0);
	assert_int_equal(peer_join_as(&worker, server.address, who), 0);
	assert_int_equal(peer_open(&worker, 1, NULL, 4 * MIB, 0, &worker_mr, NULL), 0);
	check_worker(1);
}

static void stop(void)
{
	soda_identity_free(who);
	assert_int_equal(server_stop(&server), 0);
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
}

static void end(void)
{
	check_worker(2);
	soda_conn_unmap_region(&worker_mr);
	peer_leave(&worker);
	stop();
}

/* One who speaks for himself */

struct speaker {
	struct soda_wire_hello hello;
	struct soda_claim claim;
	uint8_t client_key[SODA_KEY_BYTES];
	struct soda_why why;
	struct soda_verbs_heard heard;
	uint64_t number;
	/* what has been said */
	uint8_t first[SODA_WIRE_HELLO_BYTES];
	struct soda_wire_brief ask, proof;
};

/* On a connection of its own, which ends at once. */
static int say(struct speaker *s, const uint8_t said[SODA_WIRE_HELLO_BYTES])
{
	const struct soda_verbs_room room = { .sends = 4, .receives = 4 };
	const char *rest = server.address + strlen(SODA_VERBS_PREFIX);
	uint64_t deadline = soda_deadline(WAIT_MS);
	struct soda_verbs_link l;
	int r;

	assert_int_equal(soda_verbs_link_resolve(&l, rest, deadline, &s->why), 0);
	assert_int_equal(soda_verbs_link_prepare(&l, &room, &s->why), 0);
	r = soda_verbs_link_say(&l, rest, said, deadline, &s->heard, &s->why);
	soda_verbs_link_close(&l);
	return r;
}

static int say_brief(struct speaker *s, enum soda_msg type, struct soda_wire_brief *brief)
{
	uint8_t said[SODA_WIRE_BRIEF_BYTES];

	brief->number = s->number;
	soda_wire_put_brief(said, type, brief);
	return say(s, said);
}

/* flip: a byte of it to be changed, or -1, and so below. */
static void say_hello(struct speaker *s, int flip)
{
	uint8_t asked[SODA_WIRE_ASK_BYTES], said[SODA_WIRE_HELLO_BYTES];

	s->hello = (struct soda_wire_hello){ .magic = SODA_WIRE_MAGIC,
					     .version = SODA_WIRE_VERSION_PROVED,
					     .kind = SODA_CONN_CONTROL,
					     .chunk_bytes = 65536,
					     .epoch = 1 };
	assert_int_equal(soda_claim_begin(&s->claim, who, &s->hello, s->client_key, NULL, NULL,
					  "server", &s->why),
			 0);
	assert_int_equal(soda_claim_ask(&s->claim, false, s->first, asked), 0);
	memcpy(&s->ask.ask, asked, sizeof(s->ask.ask));
	memcpy(said, s->first, sizeof(said));
	if (flip >= 0)
		said[flip] ^= 1;
	assert_int_equal(say(s, said), 0);
	assert_false(s->heard.accepted);
	s->number = soda_wire_get_number(s->heard.data + SODA_WIRE_FRAME_BYTES);
}

static int say_ask(struct speaker *s, int flip)
{
	struct soda_wire_brief changed = s->ask;
	int r;

	if (flip >= 0)
		((uint8_t *)&changed.ask)[flip] ^= 1;
	r = say_brief(s, SODA_MSG_ASK, &changed);
	if (r)
		return r;
	assert_false(s->heard.accepted);
	return soda_claim_check(&s->claim, s->heard.data + SODA_WIRE_FRAME_BYTES);
}

static int say_proof(struct speaker *s, int flip)
{
	struct soda_wire_proof proof;

	assert_int_equal(soda_claim_prove(&s->claim, &proof), 0);
	memcpy(s->proof.proof.mac, proof.mac, sizeof(s->proof.proof.mac));
	memcpy(s->proof.proof.session, proof.session, sizeof(s->proof.proof.session));
	if (flip >= 0)
		((uint8_t *)&s->proof.proof)[flip] ^= 1;
	return say_brief(s, SODA_MSG_PROOF, &s->proof);
}

/* Cases */

static void refuses_replay(void **state)
{
	struct speaker s = { .number = 0 };
	uint64_t used;

	begin();
	say_hello(&s, -1);
	assert_int_equal(say_ask(&s, -1), 0);
	assert_int_equal(say_proof(&s, -1), 0);
	assert_true(s.heard.accepted);
	/* the last word again: what it answered is used up */
	used = s.number;
	assert_int_equal(say_brief(&s, SODA_MSG_PROOF, &s.proof), -EACCES);
	assert_true(server_logs(&server, "no HELLO was said before this"));
	/* all of it again: another challenge */
	assert_int_equal(say(&s, s.first), 0);
	s.number = soda_wire_get_number(s.heard.data + SODA_WIRE_FRAME_BYTES);
	assert_int_not_equal(s.number, used);
	assert_int_equal(say_brief(&s, SODA_MSG_ASK, &s.ask), 0);
	assert_int_equal(say_brief(&s, SODA_MSG_PROOF, &s.proof), -EACCES);
	assert_true(server_logs(&server, "the proof is wrong"));
	/* the words in another order */
	say_hello(&s, -1);
	assert_int_equal(say_brief(&s, SODA_MSG_PROOF, &s.proof), -EPROTO);
	say_hello(&s, -1);
	assert_int_equal(say_ask(&s, -1), 0);
	assert_int_equal(say_brief(&s, SODA_MSG_ASK, &s.ask), -EPROTO);
	soda_claim_end(&s.claim);
	end();
}

static void refuses_changes(void **state)
{
	struct speaker s = { .number = 0 };

	begin();
	/* features, epoch; nonce: the server proves something else then */
	say_hello(&s, 12);
	assert_int_equal(say_ask(&s, -1), -EACCES);
	say_hello(&s, 48);
	assert_int_equal(say_ask(&s, -1), -EACCES);
	say_hello(&s, -1);
	assert_int_equal(say_ask(&s, 3), -EACCES);
	assert_non_null(strstr(s.why.text, "does not prove"));
	/* a key that nobody has */
	say_hello(&s, -1);
	assert_int_equal(say_ask(&s, SODA_WIRE_NONCE_BYTES), -EACCES);
	assert_true(server_logs(&server, "no tenant has this key"));
	/* each byte of the mac that travels counts */
	for (int i = 0; i < (int)SODA_WIRE_BRIEF_MAC_BYTES; i += 19) {
		say_hello(&s, -1);
		assert_int_equal(say_ask(&s, -1), 0);
		assert_int_equal(say_proof(&s, i), -EACCES);
	}
	soda_claim_end(&s.claim);
	end();
}

/* A listener that answers what it likes. */
struct rogue {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	pthread_t thread;
	const uint8_t *answer; /* NULL: it lets everybody in */
	uint8_t bytes;
};

static struct rdma_cm_event *next(struct rogue *r, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(r->events, &event) == 0) {
		if (event->event == wanted)
			return event;
		rdma_ack_cm_event(event);
	}
	return NULL;
}

static void *rogue_main(void *arg)
{
	struct rogue *r = arg;
	struct rdma_cm_event *event = next(r, RDMA_CM_EVENT_CONNECT_REQUEST);
	uint8_t welcome[SODA_VERBS_PROVED_BYTES] = { 0 };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .cap = { 1, 1, 1, 1, .max_inline_data = 0 } };
	struct rdma_conn_param param = { .private_data = welcome,
					 .private_data_len = sizeof(welcome) };
	struct rdma_cm_id *id = event->id;

	rdma_ack_cm_event(event);
	if (r->answer) {
		rdma_reject(id, r->answer, r->bytes);
	} else {
		assert(rdma_create_qp(id, NULL, &attr) == 0 && rdma_accept(id, &param) == 0);
		rdma_ack_cm_event(next(r, RDMA_CM_EVENT_DISCONNECTED));
		rdma_destroy_qp(id);
	}
	rdma_destroy_id(id);
	return NULL;
}

static int ask_rogue(const uint8_t *answer, uint8_t bytes, struct soda_why *why)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct rogue r = { .answer = answer, .bytes = bytes };
	char address[64];
	struct peer peer;
	int ret;

	assert_int_equal(sscanf(getenv("SODA_TEST_VERBS"), "verbs://%63[^:]", address), 1);
	assert_int_equal(inet_pton(AF_INET, address, &at.sin_addr), 1);
	r.events = rdma_create_event_channel();
	assert_non_null(r.events);
	assert_int_equal(rdma_create_id(r.events, &r.id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(r.id, (struct sockaddr *)&at), 0);
	assert_int_equal(rdma_listen(r.id, 4), 0);
	snprintf(address, sizeof(address), "verbs://%s:%u", inet_ntoa(at.sin_addr),
		 ntohs(rdma_get_src_port(r.id)));
	assert_int_equal(pthread_create(&r.thread, NULL, rogue_main, &r), 0);
	ret = peer_join_as(&peer, address, who);
	*why = peer.why;
	pthread_join(r.thread, NULL);
	rdma_destroy_id(r.id);
	rdma_destroy_event_channel(r.events);
	return ret;
}

static void finds_out_rogues(void **state)
{
	uint8_t text[SODA_WIRE_FRAME_BYTES + SODA_WIRE_CHALLENGE_BYTES] = { 0 };
	struct soda_identity *elsewhere;
	struct server open;
	struct soda_why why;
	struct peer peer;

	begin();
	/* an open server: the downgrade that says so, and one that does not */
	assert_int_equal(
		SERVER_START(&open, "--listen", getenv("SODA_TEST_VERBS"), "--capacity", "64M"), 0);
	assert_int_equal(peer_join_as(&peer, open.address, who), -EPROTONOSUPPORT);
	assert_int_equal(server_stop(&open), 0);
	server_forget(&open);
	assert_int_equal(ask_rogue(NULL, 0, &why), -EACCES);
	assert_non_null(strstr(why.text, "proves nothing"));
	/* a challenge where a number is due */
	soda_wire_put_frame(text, &(struct soda_wire_frame){ .type = SODA_MSG_CHALLENGE,
							     .length = SODA_WIRE_CHALLENGE_BYTES });
	assert_int_equal(ask_rogue(text, sizeof(text), &why), -EPROTO);
	assert_non_null(strstr(why.text, "does not speak SODA"));
	/* another server that this tenant has: its key is of another name */
	elsewhere = identity("mem2");
	assert_int_equal(peer_join_as(&peer, server.address, elsewhere), -EACCES);
	soda_identity_free(elsewhere);
	end();
}

/* One-sided access cannot wait: refused, with the way out. */
static void refuses_rates(void **state)
{
	struct peer peer;

	start(1 << 20);
	assert_int_equal(peer_join_as(&peer, server.address, who), -EPERM);
	assert_non_null(strstr(peer.why.text, "connect by tcp"));
	stop();
}

static int set_up(void **state)
{
	strcpy(dir, "/tmp/soda-proof-XXXXXX");
	if (!mkdtemp(dir) || soda_random(root, sizeof(root)))
		return -1;
	snprintf(tenants, sizeof(tenants), "%s/tenants.ini", dir);
	snprintf(key_file, sizeof(key_file), "%s/physics.key", dir);
	return 0;
}

static int tear_down(void **state)
{
	unlink(tenants);
	unlink(key_file);
	return rmdir(dir);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_replay),
		cmocka_unit_test(refuses_changes),
		cmocka_unit_test(finds_out_rogues),
		cmocka_unit_test(refuses_rates),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("proofs on verbs", tests, set_up, tear_down);
}
