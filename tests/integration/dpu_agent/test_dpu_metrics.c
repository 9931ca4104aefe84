/* SPDX-License-Identifier: BSD-3-Clause */
/* What a DPU agent says of itself: to Prometheus, to `soda stat` and to `soda top`. */
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

enum { CHUNK = 65536 };

static struct server server, agent;
static unsigned port;
static uint8_t page[CHUNK];

static void start(const char *mode)
{
	const char *args[] = {
		"--listen", "tcp://127.0.0.1:0", "--server", server.address, "--metrics",
		"0",	    "--drain",		 "10s",	     mode,	     NULL
	};

	assert_int_equal(SERVER_START(&server, "--capacity", "64M"), 0);
	assert_int_equal(agent_start(&agent, args), 0);
	port = 0;
	for (int i = 0; i < LOOKS && !(port = http_find_port(server_log(&agent))); i++)
		usleep(10000);
	assert_true(port);
}

static void stop(void)
{
	assert_int_equal(server_stop(&agent), 0);
	assert_int_equal(server_complaints(&agent), 0);
	server_forget(&agent);
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

/* Ten writes and twenty reads, in the way that this mode forwards them. */
static void check_counts(const char *mode)
{
	struct soda_mr mr;
	struct peer peer;
	const char *text;

	start(mode);
	assert_int_equal(peer_join(&peer, agent.address), 0);
	assert_int_equal(peer_open(&peer, 3, NULL, 32 * CHUNK, 0, &mr, NULL), 0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(peer_write(&peer, &mr, i * CHUNK, page, CHUNK), 0);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(peer_read(&peer, &mr, i * CHUNK, page, CHUNK), 0);
	text = scraped(port);
	assert_true(scraped_value(text, "soda_dpu_agent_client_reads_total") == 20);
	assert_true(scraped_value(text, "soda_dpu_agent_client_read_bytes_total") == 20 * CHUNK);
	assert_true(scraped_value(text, "soda_dpu_agent_client_writes_total") == 10);
	assert_true(scraped_value(text, "soda_dpu_agent_client_write_bytes_total") == 10 * CHUNK);
	assert_true(scraped_value(text, "soda_dpu_agent_read_time_seconds_count") == 20);
	assert_true(scraped_value(text, "soda_dpu_agent_write_time_seconds_count") == 10);
	assert_true(scraped_value(text, "soda_dpu_agent_batch_size_count") ==
		    scraped_value(text, "soda_dpu_agent_batches_total"));
	assert_true(scraped_value(text, "soda_dpu_agent_clients") == 1);
	assert_non_null(strstr(text, "soda_dpu_agent_info{program=\"soda-dpu-agent\""));
	assert_non_null(strstr(text, "soda_dpu_agent_client_unwritten_bytes{client=\""));
	peer_leave(&peer);
	stop();
}

static void check_base(void **state)
{
	check_counts("--base");
}

static void check_async(void **state)
{
	check_counts("--async=yes");
}

/* The cache's switch and its inputs, for each object. */
static void check_caches(void **state)
{
	struct soda_mr mr;
	struct peer peer;
	const char *text;

	start("--dynamic=yes");
	assert_int_equal(peer_join(&peer, agent.address), 0);
	assert_int_equal(peer_open(&peer, 3, NULL, 32 * CHUNK, 0, &mr, NULL), 0);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(peer_read(&peer, &mr, i * CHUNK, page, CHUNK), 0);
	text = scraped(port);
	assert_true(scraped_value(text, "soda_dpu_agent_dynamic") == 1);
	assert_true(scraped_value(text, "soda_dpu_agent_cache_owners") == 1);
	assert_true(scraped_value(text, "soda_dpu_agent_cache_hits_total") +
			    scraped_value(text, "soda_dpu_agent_cache_late_hits_total") +
			    scraped_value(text, "soda_dpu_agent_cache_misses_total") >
		    0);
	assert_non_null(strstr(text, "\nsoda_dpu_agent_owner_hit_rate{owner=\""));
	assert_non_null(strstr(text, "\nsoda_dpu_agent_owner_size_bytes{owner=\""));
	assert_non_null(strstr(text, "\nsoda_dpu_agent_owner_model_on{owner=\""));
	assert_non_null(strstr(text, "\nsoda_dpu_agent_owner_budget_ended{owner=\""));
	assert_non_null(strstr(text, "\nsoda_dpu_agent_owner_budget_left_bytes{owner=\""));
	assert_non_null(strstr(text, "\nsoda_dpu_agent_owner_wasted_bytes_total{owner=\""));
	assert_non_null(strstr(text, "cache_limit=\"both\""));
	assert_true(scraped_value(text, "soda_dpu_agent_cache_budget_pool_bytes") == 8 << 20);
	assert_true(scraped_value(text, "soda_dpu_agent_cache_owners_ended") == 0);
	peer_leave(&peer);
	stop();
}

static void check_tools(void **state)
{
	static struct program run;
	const char *stat[] = { "stat", agent.address, NULL };
	const char *top[] = {
		"top", "--once", "--all", "--interval", "100ms", agent.address, NULL
	};

	start("--async=yes");
	assert_int_equal(program_run("tools/soda/soda", stat, &run), 0);
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "soda-dpu-agent"));
	assert_non_null(strstr(run.out, "batch_size "));
	assert_int_equal(program_run("tools/soda/soda", top, &run), 0);
	assert_int_equal(run.status, 0);
	assert_non_null(strstr(run.out, "DPU agent " SODA_VERSION));
	assert_non_null(strstr(run.out, "on demand"));
	stop();
}

static void check_health(void **state)
{
	struct peer peer;
	const char *body;
	int status = 0;

	start("--async=yes");
	assert_int_equal(http_get(port, "/healthz", &body), 200);
	assert_int_equal(peer_join(&peer, agent.address), 0);
	kill(agent.pid, SIGTERM); /* and the peer keeps it up */
	for (int i = 0; i < LOOKS && status != 503; i++, usleep(10000))
		status = http_get(port, "/healthz", &body);
	assert_int_equal(status, 503);
	peer_leave(&peer);
	assert_int_equal(server_wait(&agent, 60000), 0); /* a second signal would kill it */
	server_forget(&agent);
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

/* "off" is what a user means who wants none; an empty address, often a variable that is not set, is
 * said to mean the same. */
static void check_none(void **state)
{
	const char *args[] = { "--listen",  "tcp://127.0.0.1:0",
			       "--server",  server.address,
			       "--metrics", "off",
			       NULL };

	assert_int_equal(SERVER_START(&server, "--capacity", "64M"), 0);
	for (int empty = 0; empty < 2; empty++) {
		args[5] = empty ? "" : "off";
		assert_int_equal(agent_start(&agent, args), 0);
		assert_int_equal(http_find_port(server_log(&agent)), 0);
		assert_int_equal(!!strstr(server_log(&agent), "no metrics: --metrics is empty"),
				 empty);
		assert_int_equal(server_stop(&agent), 0);
		assert_int_equal(server_complaints(&agent), 0);
		server_forget(&agent);
	}
	assert_int_equal(server_stop(&server), 0);
	server_forget(&server);
}

/* A build without libmicrohttpd says so, and there is nothing to test. */
static bool has_metrics(void)
{
	static struct program program;
	const char *const args[] = { "--metrics",  "nonsense", "--listen", "tcp://127.0.0.1:0",
				     "--capacity", "64M",      NULL };

	return program_run("src/mem_server/soda-mem-server", args, &program) ||
	       !strstr(program.err, "this build has no HTTP server");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_base),	cmocka_unit_test(check_async),
		cmocka_unit_test(check_caches), cmocka_unit_test(check_tools),
		cmocka_unit_test(check_health), cmocka_unit_test(check_none),
	};

	if (!has_metrics()) {
		puts("SKIP: built without libmicrohttpd");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
