/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real memory server, or with the argument "agent" a DPU agent, two of whose tenants want all
 * places: no tenant gets those that are kept for the other one, and a client that is refused costs
 * nobody anything.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "integration/dpu_agent/tenancy.h"
#include "lib/peer.h"
#include "lib/proc.h"

#define MIB (1ull << 20)
#define PAGE 4096u

enum { ALICE, MALLORY, TENANTS };
/* A quarter of eight, and of sixteen, places is each of two tenants' own: base/shares.h. */
enum { CLIENTS = 8, HERS = 2, CONNECTIONS = 16, HER_CONNECTIONS = 4, REGIONS = 8 };
enum { LOOK_MS = 10 };

static const char *const names[TENANTS] = { "alice", "mallory" };

static bool of_agent;
static struct tenancy tenancy;
static struct server memory, server; /* behind the agent; which has the tenants */
static struct soda_identity *who[TENANTS];

static void begin(const char *limit, const char *value)
{
	tenancy_open(&tenancy, "mem1");
	for (int i = 0; i < TENANTS; i++)
		tenancy_add(&tenancy, names[i]);
	tenancy_save(&tenancy);
	if (of_agent) {
		const char *const args[] = {
			"--listen", "tcp://127.0.0.1:0", "--tenants", tenancy.file, "--log-level",
			"info",	    "--server",		 NULL,	      limit,	    value,
			NULL
		};
		const char *all[sizeof(args) / sizeof(args[0])];

		assert_int_equal(SERVER_START(&memory, "--capacity", "256M"), 0);
		memcpy(all, args, sizeof(args));
		all[7] = memory.address;
		assert_int_equal(agent_start(&server, all), 0);
	} else {
		assert_int_equal(SERVER_START(&server, "--listen", "tcp://127.0.0.1:0", "--tenants",
					      tenancy.file, "--capacity", "256M", "--log-level",
					      "debug", limit, value),
				 0);
	}
	for (int i = 0; i < TENANTS; i++)
		who[i] = tenancy_identity(&tenancy, names[i], server.address);
}

static void end(void)
{
	for (int i = 0; i < TENANTS; i++)
		soda_identity_free(who[i]);
	assert_int_equal(server_stop(&server), 0);
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
	if (of_agent) {
		assert_int_equal(server_stop(&memory), 0);
		server_forget(&memory);
	}
	tenancy_close(&tenancy);
}

static void join(struct peer *peer, int tenant)
{
	if (peer_join_as(peer, server.address, who[tenant]))
		fail_msg("%s: %s", names[tenant], peer->why.text);
}

/* The same where a client of the tenant's has left just now, which an agent may not know yet. */
static void join_after(struct peer *peer, int tenant)
{
	int left = PEER_TIMEOUT_MS / LOOK_MS, r;

	while ((r = peer_join_as(peer, server.address, who[tenant])) == -EBUSY && left--)
		usleep(LOOK_MS * 1000);
	if (r)
		fail_msg("%s: %s", names[tenant], peer->why.text);
}

/* The sentence; NULL: all places are taken, or will be said to be as long as one is leaving. */
static void check_refused(int tenant, const char *says)
{
	struct peer peer;

	assert_int_equal(peer_join_as(&peer, server.address, who[tenant]), -EBUSY);
	assert_non_null(strstr(peer.why.text, says ? says : "--max-clients"));
}

/* A client's page, in the region of this number. */
static void check_page(struct peer *peer, const struct soda_mr *mr, uint8_t value)
{
	static uint8_t page[PAGE], got[PAGE];

	memset(page, value, sizeof(page));
	assert_int_equal(peer_write(peer, mr, PAGE, page, PAGE), 0);
	assert_int_equal(peer_read(peer, mr, PAGE, got, PAGE), 0);
	assert_memory_equal(page, got, PAGE);
}

/* The client's connections are cut, and it comes back as the one that it was. */
static void check_returns(struct peer *peer, uint64_t epoch)
{
	struct peer was = *peer;

	peer_vanish(peer);
	assert_int_equal(peer_return_as(peer, server.address, who[ALICE], &was, epoch), 0);
	assert_int_equal(peer->welcome.known, 1);
}

/*
 * Mallory takes all clients that she gets; alice's places are there, before and after.
 * Promises S4, S5, S7.
 */
static void clients(void **state)
{
	struct peer greedy[CLIENTS], hers[HERS];
	struct soda_mr mr;
	unsigned n = 0;

	begin("--max-clients", "8");
	while (n < CLIENTS && !peer_join_as(&greedy[n], server.address, who[MALLORY]))
		n++;
	assert_int_equal(n, CLIENTS - HERS);
	check_refused(MALLORY, "kept for other tenants");
	for (int i = 0; i < HERS; i++)
		join(&hers[i], ALICE);
	assert_int_equal(peer_open(&hers[0], 1, NULL, 4 * MIB, 0, &mr, NULL), 0);
	check_page(&hers[0], &mr, 1);
	check_returns(&hers[0], 2);
	check_page(&hers[0], &mr, 2);
	/* one that is away loses its place to nobody; with nothing here an agent forgets it at once
	 */
	peer_vanish(&hers[1]);
	check_refused(MALLORY, NULL);
	if (of_agent)
		join_after(&hers[1], ALICE);
	else
		check_returns(&hers[1], 2);
	/* a place that is given back is hers again */
	peer_leave(&hers[1]);
	check_refused(MALLORY, NULL);
	join_after(&hers[1], ALICE);
	soda_conn_unmap_region(&mr);
	for (int i = 0; i < HERS; i++)
		peer_leave(&hers[i]);
	while (n)
		peer_leave(&greedy[--n]);
	end();
}

/* The same of connections, which one client takes. Promises S4 and S5. */
static void connections(void **state)
{
	struct soda_conn *greedy[CONNECTIONS];
	struct peer mallory, alice, other;
	struct soda_mr mr;
	unsigned n = 0;

	begin("--max-connections", "16");
	join(&alice, ALICE);
	assert_int_equal(peer_open(&alice, 1, NULL, 4 * MIB, 0, &mr, NULL), 0);
	check_page(&alice, &mr, 1);
	join(&mallory, MALLORY);
	while (n < CONNECTIONS && !peer_connect_data(&mallory, &greedy[n]))
		n++;
	assert_int_equal(n + 1, CONNECTIONS - HER_CONNECTIONS);
	assert_non_null(strstr(mallory.why.text, "kept for other tenants"));
	for (int i = 0; i < 3; i++) {
		check_returns(&alice, alice.epoch + 1);
		check_page(&alice, &mr, (uint8_t)(2 + i));
		assert_int_equal(peer_connect_data(&mallory, &greedy[n]), -EBUSY);
	}
	join(&other, ALICE);
	peer_leave(&other);
	soda_conn_unmap_region(&mr);
	peer_leave(&alice);
	while (n)
		soda_conn_close(greedy[--n]);
	peer_leave(&mallory);
	end();
}

/* The same of regions; what has been refused does not count. Promises S4 and S7. */
static void regions(void **state)
{
	struct soda_mr greedy[REGIONS], hers[HERS], mr;
	struct peer mallory, alice;
	unsigned n = 0;

	begin("--max-regions", "8");
	join(&mallory, MALLORY);
	join(&alice, ALICE);
	while (n < REGIONS &&
	       !peer_open(&mallory, (uint16_t)(n + 1), NULL, 2 * MIB, 0, &greedy[n], NULL))
		n++;
	assert_int_equal(n, REGIONS - HERS);
	assert_non_null(strstr(mallory.why.text, "kept for other tenants"));
	for (int i = 0; i < 2 * REGIONS; i++)
		assert_int_equal(peer_open(&mallory, 100, NULL, 2 * MIB, 0, &mr, NULL), -ENOMEM);
	for (uint16_t i = 0; i < HERS; i++) {
		assert_int_equal(peer_open(&alice, i + 1u, NULL, 2 * MIB, 0, &hers[i], NULL), 0);
		check_page(&alice, &hers[i], (uint8_t)i);
	}
	for (int i = 0; i < HERS; i++)
		soda_conn_unmap_region(&hers[i]);
	while (n)
		soda_conn_unmap_region(&greedy[--n]);
	peer_leave(&alice);
	peer_leave(&mallory);
	end();
}

/*
 * A single tenant may have all of it, and so may one whose neighbours have been removed.
 * Promise S4.
 */
static void alone(void **state)
{
	struct peer all[CLIENTS];
	unsigned n = 0;

	begin("--max-clients", "8");
	while (n < CLIENTS && !peer_join_as(&all[n], server.address, who[MALLORY]))
		n++;
	assert_int_equal(n, CLIENTS - HERS);
	assert_int_equal(unlink(tenancy_key(&tenancy, names[ALICE])), 0);
	soda_tenants_file_remove(&tenancy.content, tenancy_of(&tenancy, names[ALICE]));
	tenancy_save(&tenancy);
	assert_int_equal(kill(server.pid, SIGHUP), 0);
	assert_true(server_logs(&server, "read again: 1 tenants"));
	for (; n < CLIENTS; n++)
		join(&all[n], MALLORY);
	while (n)
		peer_leave(&all[--n]);
	end();
}

/* Without tenants: new clients leave connections for those that are there. Promise S5. */
static void known_clients(void **state)
{
	struct peer all[CONNECTIONS], more;
	struct soda_wire_welcome was;
	unsigned n = 0;

	assert_int_equal(SERVER_START(&server, "--max-connections", "16"), 0);
	while (n < CONNECTIONS && !peer_join(&all[n], server.address))
		n++;
	assert_int_equal(n, CONNECTIONS - CONNECTIONS / 8);
	assert_int_equal(peer_join(&more, server.address), -EBUSY);
	assert_non_null(strstr(more.why.text, "kept for clients that it knows"));
	was = all[0].welcome;
	peer_vanish(&all[0]);
	assert_int_equal(peer_return(&all[0], server.address, &was, 2), 0);
	assert_int_equal(peer_connect_data(&all[0], &all[0].data), 0);
	while (n)
		peer_leave(&all[--n]);
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest of_server[] = {
		cmocka_unit_test(clients),	 cmocka_unit_test(connections),
		cmocka_unit_test(regions),	 cmocka_unit_test(alone),
		cmocka_unit_test(known_clients),
	};
	static const struct CMUnitTest of_agents[] = {
		cmocka_unit_test(clients),
		cmocka_unit_test(connections),
		cmocka_unit_test(alone),
	};

	struct soda_conf_error err;

	of_agent = argc > 1 && !strcmp(argv[1], "agent");
	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	return of_agent ? cmocka_run_group_tests(of_agents, NULL, NULL)
			: cmocka_run_group_tests(of_server, NULL, NULL);
}
