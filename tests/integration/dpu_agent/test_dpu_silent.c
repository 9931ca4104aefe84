/* SPDX-License-Identifier: BSD-3-Clause */
/* An agent before a pool of ten servers, nine of which are stopped. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"
#include "pool/pool.h"

enum {
	SERVERS = 10,
	LIVELY = SERVERS - 1, /* the one that is not stopped */
	READ = 64 << 10,
	ENTRY = 256 << 10,
	AHEAD = 32,   /* READs of a program at a stopped server, all under way */
	ENTRIES = 64, /* of a program's region */
	STARTED = 3,  /* fetches of a server: more than are under way at a time */
	CACHE_MIB = 64,
};

static struct server servers[SERVERS], agent;
static struct peer programs[SERVERS];
static struct soda_mr regions[SERVERS];
static uint8_t data[AHEAD][READ];

static void start_servers(char *list, size_t bytes)
{
	size_t at = 0;

	for (int i = 0; i < SERVERS; i++) {
		assert_int_equal(SERVER_START(&servers[i], "--capacity", "256M"), 0);
		at += (size_t)snprintf(list + at, bytes - at, "%s%s", i ? "," : "",
				       servers[i].address);
		assert_true(at < bytes);
	}
}

static void start_agent(const char *list)
{
	char cache[16], entry[16];

	snprintf(cache, sizeof(cache), "%dM", CACHE_MIB);
	snprintf(entry, sizeof(entry), "%dK", ENTRY >> 10);
	assert_int_equal(
		agent_start(&agent,
			    (const char *const[]){ "--listen", "tcp://127.0.0.1:0", "--server",
						   list, "--adaptive=no", "--timeout", "200s",
						   "--drain", "1s", "--cache-bytes", cache,
						   "--entry-bytes", entry, NULL }),
		0);
}

/* A program for each server, and a connection that has been used. */
static void start_programs(void)
{
	for (int i = 0; i < SERVERS; i++) {
		uint16_t member = soda_members_hash(servers[i].address);

		assert_int_equal(peer_join_for(&programs[i], agent.address, member), 0);
		assert_int_equal(peer_open(&programs[i], 1, NULL, ENTRIES * (uint64_t)ENTRY, 0,
					   &regions[i], NULL),
				 0);
		assert_int_equal(peer_read(&programs[i], &regions[i], 0, data[0], READ), 0);
	}
}

/* A program's READs, in order, of which none is answered. */
static void read_without_answer(int i)
{
	for (uint64_t k = 0; k < AHEAD; k++)
		assert_int_equal(soda_conn_post_read(programs[i].data, &regions[i], k * READ, READ,
						     data[k], k),
				 0);
	assert_int_equal(soda_conn_flush(programs[i].data, false), 0);
}

/*
 * Fetches ahead at the nine never end, and each server has as many under way as it may: the program
 * at the tenth gets all of its data, and more are fetched ahead there.
 * Promise R7.
 */
static void test_nine_of_ten(void **state)
{
	char list[SERVERS * (SODA_ADDRESS_MAX + 1) + 1];
	uint64_t fetched;

	start_servers(list, sizeof(list));
	start_agent(list);
	start_programs();
	for (int i = 0; i < SERVERS; i++)
		if (i != LIVELY)
			assert_true(process_halt(servers[i].pid));
	for (int i = 0; i < SERVERS; i++) {
		uint64_t before = peer_stat_of(agent.address, "cache_prefetches");

		if (i == LIVELY)
			continue;
		read_without_answer(i);
		peer_await_stat(agent.address, "cache_prefetches", before + STARTED);
	}
	fetched = peer_stat_of(agent.address, "cache_fills");
	for (uint64_t at = 0; at < ENTRIES * (uint64_t)ENTRY; at += READ)
		assert_int_equal(peer_read(&programs[LIVELY], &regions[LIVELY], at, data[0], READ),
				 0);
	peer_await_stat(agent.address, "cache_fills", fetched + 2 * STARTED);
	for (int i = 0; i < SERVERS; i++)
		kill(servers[i].pid, SIGCONT);
	for (int i = 0; i < SERVERS; i++)
		peer_vanish(&programs[i]);
	assert_int_equal(server_stop(&agent), 0);
	server_forget(&agent);
	for (int i = 0; i < SERVERS; i++) {
		assert_int_equal(server_stop(&servers[i]), 0);
		server_forget(&servers[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_nine_of_ten) };

	return cmocka_run_group_tests_name("dpu silent", tests, NULL, NULL);
}
