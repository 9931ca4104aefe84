/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real DPU agent with two tenants, one of which wants all of the agent's memory: for movement,
 * for messages, and for READs and WRITEs that wait for a memory server which stands still.  A
 * quarter of each is the other one's own: base/shares.h.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"
#include "tenancy.h"
#include "wire/messages.h"
#include "wire/movement.h"

#define MIB (1ull << 20)

enum { ALICE, MALLORY, TENANTS };
enum {
	CHUNK = 64 << 10,
	STRIDE = 2 * CHUNK, /* requests that do not continue each other */
	ALL = 64,	    /* chunks of half of --buffers */
	HERS = 16,	    /* alice's own part of these */
	LOOK_MS = 10
};

static const char *const names[TENANTS] = { "alice", "mallory" };

static struct tenancy tenancy;
static struct server memory, agent;
static struct soda_identity *who[TENANTS];
static struct peer peers[TENANTS];
static struct soda_mr regions[TENANTS];
static uint8_t chunk[CHUNK];

/* Again where the agent has not come to its server in time, beside much load. */
static void join(int tenant)
{
	int tries = 10, ret;

	do
		ret = peer_join_as(&peers[tenant], agent.address, who[tenant]);
	while (ret == -ETIMEDOUT && --tries);
	if (ret)
		fail_msg("%s: %s", names[tenant], peers[tenant].why.text);
}

static void begin(void)
{
	tenancy_open(&tenancy, "node7");
	for (int i = 0; i < TENANTS; i++)
		tenancy_add(&tenancy, names[i]);
	tenancy_save(&tenancy);
	assert_int_equal(SERVER_START(&memory, "--capacity", "256M"), 0);
	{
		const char *const args[] = { "--listen",	"tcp://127.0.0.1:0",
					     "--server",	memory.address,
					     "--tenants",	tenancy.file,
					     "--move-memory",	"8M",
					     "--msg-memory",	"8M",
					     "--buffers",	"8M",
					     "--client-credit", "4M",
					     "--write-budget",	"4M",
					     "--timeout",	"100s",
					     "--dynamic=no",	NULL };

		assert_int_equal(agent_start(&agent, args), 0);
	}
	for (int i = 0; i < TENANTS; i++) {
		who[i] = tenancy_identity(&tenancy, names[i], agent.address);
		join(i);
	}
}

static void end(void)
{
	for (int i = 0; i < TENANTS; i++) {
		peer_leave(&peers[i]);
		soda_identity_free(who[i]);
	}
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), 0);
	server_forget(&agent);
	assert_int_equal(server_stop(&memory), 0);
	server_forget(&memory);
	tenancy_close(&tenancy);
}

static int ask(int tenant, int type, const void *body, size_t bytes)
{
	struct iovec iov = { (void *)(uintptr_t)body, bytes };
	struct peer *peer = &peers[tenant];
	uint8_t answer[256];
	size_t n;

	return soda_conn_call(peer->control, (enum soda_msg)type, &iov, 1, answer, sizeof(answer),
			      &n, PEER_TIMEOUT_MS, &peer->why);
}

/* Movement */

static int start_moving(int tenant)
{
	struct soda_wire_move_start start = { .version = SODA_MOVE_VERSION };
	uint8_t body[SODA_WIRE_MOVE_START_BYTES];

	soda_wire_put_move_start(body, &start);
	return ask(tenant, SODA_MSG_MOVE_START, body, sizeof(body));
}

/* A buffer of 1 MiB. */
static int reserve(int tenant, int n)
{
	struct soda_wire_move_reserve r = { MIB, 1, 0444, 0 };
	uint8_t body[SODA_WIRE_MOVE_RESERVE_BYTES + 1];

	soda_wire_put_move_reserve(body, &r);
	body[SODA_WIRE_MOVE_RESERVE_BYTES] = (uint8_t)('a' + n);
	return ask(tenant, SODA_MSG_MOVE_RESERVE, body, sizeof(body));
}

static int end_buffer(int tenant, uint32_t n)
{
	uint8_t body[4] = { (uint8_t)n };

	return ask(tenant, SODA_MSG_MOVE_END, body, sizeof(body));
}

/* Promise S12. */
static void move_memory(void **state)
{
	int n = 0;

	begin();
	assert_int_equal(start_moving(ALICE) | start_moving(MALLORY), 0);
	while (n < 8 && !reserve(MALLORY, n))
		n++;
	assert_int_equal(n, 6);
	assert_int_equal(reserve(MALLORY, n), -ENOSPC);
	assert_non_null(strstr(peers[MALLORY].why.text, "kept for other tenants"));
	for (int i = 0; i < 2; i++)
		assert_int_equal(reserve(ALICE, i), 0);
	assert_int_equal(reserve(ALICE, 2), -ENOSPC);
	/* memory that mallory gives back is for either; alice's is for alice */
	assert_int_equal(end_buffer(ALICE, 0), 0);
	assert_int_equal(reserve(MALLORY, n), -ENOSPC);
	assert_int_equal(reserve(ALICE, 2), 0);
	assert_int_equal(end_buffer(MALLORY, 0), 0);
	assert_int_equal(reserve(ALICE, 3), 0);
	end();
}

/* Messages */

/* The first rank of eight, which have inboxes of 128 KiB at least. */
static int join_job(int tenant, char name)
{
	struct soda_wire_msg_join j = { .version = SODA_MSG_VERSION,
					.role = SODA_MSG_PUSHES,
					.ranks = 8,
					.life = 1,
					.agents = 1,
					.name_bytes = 1 };
	uint8_t body[SODA_WIRE_MSG_JOIN_BYTES + 1];

	soda_wire_put_msg_join(body, &j);
	body[SODA_WIRE_MSG_JOIN_BYTES] = (uint8_t)name;
	return ask(tenant, SODA_MSG_MESSAGES_JOIN, body, sizeof(body));
}

/* A client joins one job. Promise S12. */
static void msg_memory(void **state)
{
	enum { MOST = 8 };
	struct peer have[MOST];
	int ret, jobs = 0;

	begin();
	while (jobs < MOST && !(ret = join_job(MALLORY, (char)('a' + jobs)))) {
		have[jobs++] = peers[MALLORY];
		join(MALLORY);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_true(jobs >= 1);
	assert_non_null(strstr(peers[MALLORY].why.text, "kept for other tenants"));
	if (join_job(ALICE, 'a'))
		fail_msg("%s", peers[ALICE].why.text);
	assert_int_equal(peer_stat(&peers[ALICE], "msg_reserved_bytes"), 8 * MIB);
	while (jobs)
		peer_leave(&have[--jobs]);
	end();
}

/* Data that wait in the agent */

static void pause_memory(bool on)
{
	siginfo_t info;

	assert_int_equal(kill(memory.pid, on ? SIGSTOP : SIGCONT), 0);
	if (on) /* until none of its threads runs */
		assert_int_equal(waitid(P_PID, (id_t)memory.pid, &info, WSTOPPED), 0);
}

/* Regions, and connections that have been used. */
static void begin_paging(void)
{
	begin();
	for (int i = 0; i < TENANTS; i++) {
		assert_int_equal(
			peer_open(&peers[i], 1, NULL, (ALL + 1) * STRIDE, 0, &regions[i], NULL), 0);
		assert_int_equal(peer_write(&peers[i], &regions[i], ALL * STRIDE, chunk, CHUNK), 0);
		assert_int_equal(peer_call(&peers[i], SODA_MSG_SYNC, 1), 0);
		assert_int_equal(peer_read(&peers[i], &regions[i], ALL * STRIDE, chunk, CHUNK), 0);
	}
}

static void end_paging(void)
{
	for (int i = 0; i < TENANTS; i++)
		soda_conn_unmap_region(&regions[i]);
	end();
}

static _Atomic int acknowledged; /* WRITEs of mallory's */

static void *write_all(void *arg)
{
	struct peer *p = &peers[MALLORY];
	struct soda_done done;

	for (uint64_t i = 0; i < ALL; i++) {
		if (soda_conn_post_write(p->data, &regions[MALLORY], i * STRIDE, CHUNK, chunk, i) ||
		    soda_conn_flush(p->data, false) ||
		    soda_conn_poll(p->data, &done, 1, -1, 0) != 1 || done.status)
			return p;
		atomic_fetch_add(&acknowledged, 1);
	}
	return NULL;
}

/*
 * The memory server stands still, and the agent acknowledges WRITEs as long as it has memory for
 * their data. Promise S12.
 */
static void writes(void **state)
{
	pthread_t greedy;
	void *failed;

	begin_paging();
	pause_memory(true);
	acknowledged = 0;
	assert_int_equal(pthread_create(&greedy, NULL, write_all, NULL), 0);
	for (int i = 0; i < LOOKS && atomic_load(&acknowledged) < ALL - HERS; i++)
		usleep(LOOK_MS * 1000);
	for (uint64_t i = 0; i < HERS; i++)
		assert_int_equal(
			peer_write(&peers[ALICE], &regions[ALICE], i * STRIDE, chunk, CHUNK), 0);
	assert_int_equal(atomic_load(&acknowledged), ALL - HERS);
	pause_memory(false);
	assert_int_equal(pthread_join(greedy, &failed), 0);
	assert_null(failed);
	assert_int_equal(acknowledged, ALL);
	end_paging();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(move_memory),
		cmocka_unit_test(msg_memory),
		cmocka_unit_test(writes),
	};
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
