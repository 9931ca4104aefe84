/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent_here.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* daemon.c is not linked. */
const char *const soda_daemon_log_levels[] = { "error", "warning", "info", "debug", NULL };

void agent_start(struct agent *a, uint64_t move_bytes)
{
	memset(a, 0, sizeof(*a));
	a->opt = (struct soda_dpu_options){ .server = (char *)(uintptr_t) "tcp://127.0.0.1:1",
					    .write_budget = 1 << 20,
					    .client_credit = 4 << 20,
					    .buffers = 1 << 30,
					    .window = 16 << 20,
					    .daemon.workers = 2,
					    .timeout_ms = AGENT_TIMEOUT_MS,
					    .daemon.max_clients = 64,
					    .move_bytes = move_bytes,
					    .aggregate = true,
					    .async = true };
	assert_int_equal(soda_dpu_start(&a->dpu, &a->opt), 0);
}

void agent_listen(struct agent *a, const char *address)
{
	struct soda_listener_options how = { .workers = 2 };
	struct soda_why why;

	if (soda_listener_open(address, &soda_dpu_service, &a->dpu, &how, &a->listener, &why))
		fail_msg("%s: %s", address, why.text);
	assert_int_equal(soda_listener_start(a->listener), 0);
}

void agent_stop(struct agent *a)
{
	soda_listener_close(a->listener);
	assert_int_equal(soda_dpu_stop(&a->dpu, AGENT_TIMEOUT_MS), 0);
}

static uint64_t taken(struct agent *a, const struct soda_shares *shares)
{
	uint64_t bytes;

	pthread_mutex_lock(&a->dpu.movement.buffers.lock);
	bytes = shares->all;
	pthread_mutex_unlock(&a->dpu.movement.buffers.lock);
	return bytes;
}

uint64_t agent_move_bytes(struct agent *a)
{
	return taken(a, &a->dpu.movement.buffers.reserved);
}

uint64_t agent_list_bytes(struct agent *a)
{
	return taken(a, &a->dpu.movement.lists);
}

const char *agent_shm(void)
{
	static char address[64];
	static int n;

	snprintf(address, sizeof(address), "shm://@soda-agent-here-%d-%d", (int)getpid(), n++);
	return address;
}

const char *agent_verbs(void)
{
	const char *address = getenv("SODA_TEST_VERBS");

	if (!address) {
		print_message("SKIP: no RDMA device is named (SODA_TEST_VERBS); ./check rdma has"
			      " one\n");
		skip();
	}
	return address;
}
