/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two agents, one behind the other, and behind both a pool:
 *
 *   programs, or peers -- shm --> agent of the node -- tcp --> agent as on a DPU, with the list of
 *   the servers -- tcp --> memory servers
 *
 * What the first one passes on, and what it refuses.  The suites of the runtime run through both as
 * well (meson.build), with servers and agents that die.
 */
#include <unistd.h>

#include "client/call.h"
#include "lib/harness.h"
#include "lib/peer.h"
#include "lib/world.h"
#include "pool/pool.h"
#include "tenancy.h"

enum { SERVERS = 2, CHUNK = 65536, WORDS = CHUNK / 8, CHUNKS = 64, FAULT_MS = 60000 };

static const size_t words = (size_t)CHUNKS * WORDS;
static struct world worlds[SERVERS];
static struct front front;
static char list[SERVERS * 160];

/* Options of the first one. */
static void up(const char *node)
{
	list[0] = '\0';
	for (int i = 0; i < SERVERS; i++) {
		world_open(&worlds[i], WORLD_TCP, NULL);
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%.128s", i ? "," : "",
			 worlds[i].address);
	}
	setenv("SODA_TEST_POOL_AGENT", "", 1);
	setenv("SODA_TEST_POOL_NODE", node, 1);
	front_open(&front, list);
}

static void down(void)
{
	front_close(&front);
	for (int i = 0; i < SERVERS; i++)
		world_close(&worlds[i]);
}

/* Programs */

static void begin(const char *redundancy)
{
	struct soda_config cfg = SODA_CONFIG_INIT;

	if (redundancy)
		setenv("SODA_REDUNDANCY", redundancy, 1);
	cfg.server = front.address;
	cfg.buffer = "8M";
	cfg.threads = 2;
	cfg.fault_timeout_ms = FAULT_MS;
	setenv("SODA_SLAB", "2M", 1);
	start(&cfg);
}

static void fill(uint64_t *data, uint64_t round)
{
	for (size_t i = 0; i < words; i++)
		data[i] = mix(i, round);
}

static void check(const uint64_t *data, uint64_t round)
{
	for (size_t i = 0; i < words; i++)
		CHECK(data[i] == mix(i, round), "word %zu of round %llu: %llx", i,
		      (unsigned long long)round, (unsigned long long)data[i]);
}

/* Which servers there are, as everybody is told, also by an agent in front of one that is none. */

static void expect_members(const char *address, bool tool, const char *members)
{
	char text[SODA_MEMBERS_TEXT_MAX + 1];
	struct peer peer;

	assert_int_equal(tool ? peer_ask(&peer, address) : peer_join(&peer, address), 0);
	assert_int_equal(
		soda_call_members(peer.control, text, sizeof(text), PEER_TIMEOUT_MS, &peer.why), 0);
	assert_string_equal(text, members);
	peer_leave(&peer);
}

static void start_on(struct server *agent, const char *server)
{
	assert_int_equal(agent_start(agent, (const char *const[]){ "--listen", "tcp://127.0.0.1:0",
								   "--server", server, NULL }),
			 0);
}

static void stop(struct server *agent)
{
	assert_int_equal(server_stop(agent), 0);
	server_forget(agent);
}

static void test_members(void **state)
{
	struct server single, before;

	up("");
	start_on(&single, worlds[0].address);
	start_on(&before, single.address);
	for (int tool = 0; tool < 2; tool++) {
		expect_members(front.agent_address, tool, list);
		expect_members(front.address, tool, list);
		expect_members(single.address, tool, "");
		expect_members(before.address, tool, "");
	}
	stop(&before);
	stop(&single);
	down();
}

/* A client that means the member of that tag. */
static int come_for(const char *address, uint16_t tag, struct soda_why *why)
{
	const struct soda_wire_hello hello = {
		.epoch = 1,
		.chunk_bytes = CHUNK,
		.features = (uint32_t)tag << SODA_FEATURE_MEMBER_SHIFT,
	};
	const struct soda_conn_options opt = { .kind = SODA_CONN_CONTROL,
					       .timeout_ms = PEER_TIMEOUT_MS };
	struct soda_wire_welcome w;
	struct soda_conn *conn;
	int ret = soda_conn_connect(address, &hello, &opt, &conn, &w, why);

	if (!ret)
		soda_conn_leave(conn, PEER_TIMEOUT_MS);
	return ret;
}

static void expect_no_member(const char *address, uint16_t tag)
{
	struct soda_why why = { "" };

	assert_int_equal(come_for(address, tag, &why), -EINVAL);
	if (!strstr(why.text, "no such member"))
		fail_msg("%s", why.text);
}

/* No client is left but who asks. */
static void expect_empty(const char *address)
{
	struct peer tool;

	assert_int_equal(peer_ask(&tool, address), 0);
	for (int i = 0; i < LOOKS && peer_stat(&tool, "clients") > 1; i++)
		sleep_ms(10);
	assert_int_equal(peer_stat(&tool, "clients"), 1);
	peer_leave(&tool);
}

/* Of servers that no agent has, and of a pool where there is one server: nobody takes its place. */
static void test_no_such_member(void **state)
{
	const uint16_t none = soda_members_hash("tcp://10.0.0.1:7001");
	struct server single, before;
	struct soda_why why;

	up("");
	start_on(&single, worlds[0].address);
	start_on(&before, single.address);
	expect_no_member(front.agent_address, none);
	expect_no_member(front.address, none);
	expect_no_member(single.address, none);
	expect_no_member(before.address, none);
	for (int i = 0; i < SERVERS; i++) {
		const uint16_t tag = soda_members_hash(worlds[i].address);

		assert_int_equal(come_for(front.address, tag, &why), 0);
		if (i)
			expect_no_member(single.address, tag);
		else
			assert_int_equal(come_for(single.address, tag, &why), 0);
		expect_empty(worlds[i].address);
	}
	stop(&before);
	stop(&single);
	down();
}

/*
 * Something else than the agent listens at its address for a while, and what it makes of the
 * program's sessions is nothing: what they have on their servers is there when the agent is back,
 * and the first one has the keys to it, which it would forget with a client that is unknown there.
 */

static void child_goes_on(const void *arg)
{
	uint64_t *data;

	begin(NULL);
	data = alloc_checked(words * 8);
	fill(data, 1);
	CHECK_EQ(soda_sync(NULL, 0), 0);
	CHECK_EQ(soda_advise(data, words * 8, SODA_COLD), 0);
	turn_pass();
	CHECK(turn_await());
	check(data, 1);
	fill(data, 2);
	check(data, 2);
	CHECK_EQ(soda_shutdown(), 0);
}

/* A memory server, or an agent in front of one that has never been heard of. */
static void take_its_place(const void *arg)
{
	const bool *agent = arg;
	struct server other, own;

	if (!turn_await())
		return;
	assert_int_equal(server_start(&own, (const char *const[]){ "--listen", "tcp://127.0.0.1:0",
								   "--capacity", "64M", NULL }),
			 0);
	front_kill_some(&front, 1);
	if (*agent)
		assert_int_equal(
			agent_start(&other, (const char *const[]){ "--listen", front.agent_address,
								   "--server", own.address, NULL }),
			0);
	else
		assert_int_equal(
			server_start(&other, (const char *const[]){ "--listen", front.agent_address,
								    "--capacity", "64M", NULL }),
			0);
	turn_pass();
	sleep_ms(1500); /* the program has come, and more than once */
	assert_int_equal(peer_stat_of(*agent ? own.address : other.address, "used_bytes"), 0);
	stop(&other);
	stop(&own);
	front_restart(&front);
}

static void test_other_in_its_place(void **state)
{
	for (int i = 0; i < 2; i++) {
		const bool agent = i;
		struct trial t = { .child = child_goes_on,
				   .during = take_its_place,
				   .arg = &agent };
		struct outcome out;

		up("--seal");
		trial_run(&t, &out);
		expect_exit(&out, 0);
		front_close(&front);
		for (int k = 0; k < SERVERS; k++)
			world_close_noisy(&worlds[k]);
	}
}

/* Where the first one seals, it keeps what is to be stored twice, and the second keeps nothing. */

static void child_mirrors(const void *arg)
{
	uint64_t *data;

	begin("mirror:2");
	data = alloc_checked(words * 8);
	for (uint64_t round = 1; round < 4; round++) {
		fill(data, round);
		CHECK_EQ(soda_sync(NULL, 0), 0);
		check(data, round);
	}
	CHECK_EQ(soda_shutdown(), 0);
}

static void test_sealed(void **state)
{
	up("--seal");
	expect_passes(child_mirrors, NULL);
	assert_true(peer_stat_of(front.address, "writes_recalled") > 0);
	assert_int_equal(peer_stat_of(front.agent_address, "writes_recalled"), 0);
	down();
}

/* Tenants of the first one, which to the second are all one. */

static void store(struct peer *peer, const struct soda_mr *mr, uint64_t round)
{
	uint64_t data[WORDS];
	struct soda_done done;

	for (size_t i = 0; i < WORDS; i++)
		data[i] = mix(i, round);
	if (!peer->data)
		assert_int_equal(peer_connect_data(peer, &peer->data), 0);
	assert_true(soda_conn_keeps(peer->data));
	assert_int_equal(soda_conn_post_kept(peer->data, mr, 0, CHUNK, data, 1), 0);
	assert_int_equal(soda_conn_flush(peer->data, false), 0);
	assert_int_equal(soda_conn_poll(peer->data, &done, 1, 60ll * 1000000000, 0), 1);
	assert_int_equal(done.status, 0);
}

static int repeat(struct peer *peer, const struct soda_mr *mr, const struct peer *of)
{
	const struct soda_wire_origin origin = { of->welcome.client_id, of->welcome.secret, 1 };
	struct soda_done done;

	if (!peer->data)
		assert_int_equal(peer_connect_data(peer, &peer->data), 0);
	assert_int_equal(soda_conn_post_again(peer->data, mr, 0, CHUNK, &origin, 1), 0);
	assert_int_equal(soda_conn_flush(peer->data, false), 0);
	assert_int_equal(soda_conn_poll(peer->data, &done, 1, 60ll * 1000000000, 0), 1);
	return done.status;
}

static void expect_stored(struct peer *peer, const struct soda_mr *mr, uint64_t round)
{
	uint64_t data[WORDS];

	assert_int_equal(peer_read(peer, mr, 0, data, CHUNK), 0);
	for (size_t i = 0; i < WORDS; i++)
		assert_int_equal(data[i], round ? mix(i, round) : 0);
}

/* What a tenant has had kept no other one can have stored for it. */
static void test_tenants(void **state)
{
	struct soda_identity *alice, *bob;
	struct peer one, two, other;
	struct soda_mr mr[3];
	struct tenancy t;
	char options[128];

	tenancy_open(&t, "node");
	tenancy_add(&t, "alice");
	tenancy_add(&t, "bob");
	tenancy_save(&t);
	snprintf(options, sizeof(options), "--tenants %s", t.file);
	up(options);
	alice = tenancy_identity(&t, "alice", front.address);
	bob = tenancy_identity(&t, "bob", front.address);
	assert_int_equal(peer_join_as(&one, front.address, alice), 0);
	assert_int_equal(peer_join_as(&two, front.address, alice), 0);
	assert_int_equal(peer_join_as(&other, front.address, bob), 0);
	assert_int_equal(peer_open(&one, 1, NULL, CHUNK, 0, &mr[0], NULL), 0);
	assert_int_equal(peer_open(&two, 1, NULL, CHUNK, 0, &mr[1], NULL), 0);
	assert_int_equal(peer_open(&other, 1, NULL, CHUNK, 0, &mr[2], NULL), 0);
	store(&one, &mr[0], 7);
	assert_int_equal(repeat(&other, &mr[2], &one), -ENOENT);
	expect_stored(&other, &mr[2], 0);
	assert_int_equal(repeat(&two, &mr[1], &one), 0);
	expect_stored(&two, &mr[1], 7);
	assert_int_equal(repeat(&two, &mr[1], &one), -ENOENT); /* it was kept for one */
	assert_int_equal(peer_stat_of(front.agent_address, "writes_recalled"), 1);
	peer_leave(&one);
	peer_leave(&two);
	peer_leave(&other);
	soda_identity_free(alice);
	soda_identity_free(bob);
	down();
	tenancy_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_no_such_member),
		cmocka_unit_test(test_other_in_its_place),
		cmocka_unit_test(test_sealed),
		cmocka_unit_test(test_tenants),
	};

	return cmocka_run_group_tests_name("dpu_stacked_pool", tests, NULL, NULL);
}
