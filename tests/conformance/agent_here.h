/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A DPU agent in the test's own process, without its main() and without a memory server, which
 * clients that have no pages do not need; and its cases, each over every transport.  What does not
 * work fails the cmocka test.
 */
#ifndef SODA_TEST_AGENT_HERE_H
#define SODA_TEST_AGENT_HERE_H

#include <stdint.h>

#include "dpu_agent/life/agent.h"

enum { AGENT_TIMEOUT_MS = 20000 };

struct agent {
	struct soda_dpu dpu;
	struct soda_dpu_options opt;
	struct soda_listener *listener;
};

/* move_bytes: what --move-memory gives movement; 0: no movement. Nobody can connect yet. */
void agent_start(struct agent *a, uint64_t move_bytes);
/* Services have been registered: let clients come. */
void agent_listen(struct agent *a, const char *address);
void agent_stop(struct agent *a);
/* Memory that movement has: of buffers and areas, and of lists of pieces. */
uint64_t agent_move_bytes(struct agent *a);
uint64_t agent_list_bytes(struct agent *a);

/* Where to listen: a new address each time; skips the test where no RDMA device is named. */
const char *agent_shm(void);
const char *agent_verbs(void);

/* The cmocka tests what_tcp, what_shm and what_verbs, of a function what(address). */
#define CASES(what)                                                                                \
	static void what##_tcp(void **state)                                                       \
	{                                                                                          \
		what("tcp://127.0.0.1:0");                                                         \
	}                                                                                          \
	static void what##_shm(void **state)                                                       \
	{                                                                                          \
		what(agent_shm());                                                                 \
	}                                                                                          \
	static void what##_verbs(void **state)                                                     \
	{                                                                                          \
		what(agent_verbs());                                                               \
	}

#endif
