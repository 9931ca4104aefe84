/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a case of the runtime needs around it: a memory server of this build with
 * an export directory, in a temporary directory of its own; and where SODA_TEST_AGENT
 * is set, to options of the agent or to nothing, an agent before it, which programs
 * connect to, by TCP, or by verbs if the server is, or with SODA_TEST_AGENT_SHM by shared memory. A
 * server on shm has none: that is the shortest way already.
 *
 * Where SODA_TEST_AGENT_BELOW is set, to options or to nothing, a second agent stands between that
 * agent and the server.  It listens as the server does, or with SODA_TEST_AGENT_BELOW_SHM on shm.
 *
 * SODA_TEST_AGENT_FAULT: rules (transport/fault/rules.h) for what
 * happens to the connections of that agent to its server.
 */
#ifndef SODA_TEST_WORLD_H
#define SODA_TEST_WORLD_H

#include <stddef.h>

#include "lib/proc.h"

/* Of every server, unless the arguments say otherwise; reserved, not used. */
#define WORLD_CAPACITY ((size_t)1 << 30)

enum world_transport {
	WORLD_DEFAULT, /* SODA_TEST_TRANSPORT, or TCP */
	WORLD_TCP,
	WORLD_SHM,
	WORLD_VERBS,
};

struct CMUnitTest;

struct world {
	struct server server;
	char dir[64]; /* removed at the end, with all that is in it */
	char export_dir[80];
	char address[128];	  /* for programs; stays the same over a restart */
	struct server agent;	  /* pid 0: none */
	struct server below;	  /* the agent between `agent` and the server; pid 0: none */
	char server_address[128]; /* the server's own */
	char below_address[128];  /* what `agent` has for its server */
	const char *const *more;
};

/*
 * Before the first world, in a program whose tests make servers silent: its agents wait 4 s for an
 * answer.  Those of others wait 20 s, because a server that works may be slow beside load.
 */
void world_has_silent_servers(void);

/* Each fails the running cmocka test where something goes wrong. */

/*
 * Start; more: further arguments of the server, NULL-terminated, or NULL.  Where they begin with
 * --tenants nothing is exported but what that file says.
 */
void world_open(struct world *w, enum world_transport transport, const char *const *more);
/* End the server by SIGTERM: it must exit with 0 and have logged no warning. */
void world_close(struct world *w);
/* The same, where warnings are part of the case. */
void world_close_noisy(struct world *w);
/* kill -9 of the server. */
void world_kill(struct world *w);
/* A new instance at the same address. */
void world_restart(struct world *w);

/* The same of the agent that programs connect to. */
void world_kill_agent(struct world *w);
void world_restart_agent(struct world *w);
/* The same of the agent between that one and the server. */
void world_kill_below(struct world *w);
void world_restart_below(struct world *w);

/*
 * What stands before a pool of servers: nothing, or where SODA_TEST_POOL_AGENT is set, to options
 * of the agent or to nothing, an agent that has the list of them, on tcp, or with
 * SODA_TEST_AGENT_SHM on shm.  Where SODA_TEST_POOL_NODE is set as well, to options or to nothing,
 * another agent stands between programs and that one: it is on shm, then, and that one on tcp.
 */
struct front {
	struct server agent; /* that has the list; pid 0: none */
	struct server node;  /* before it; pid 0: none */
	char dir[64];	     /* with shm; removed at the end */
	char state[64];	     /* of an agent that seals; removed at the end, too */
	char list[2048];
	char address[2048]; /* for programs */
	char agent_address[128];
};

void front_open(struct front *f, const char *list);
/* The agent with the list seals. */
bool front_seals(void);
/* The variable with the options of the agent that programs connect to. */
const char *front_options(void);
/* Skip the running test where SODA_TEST_POOL_AGENT is not set. */
void front_required(void);
/* It must exit with 0; what it has logged is part of the case. */
void front_close(struct front *f);
/* kill -9 of all agents; new ones, where there are none, at the same addresses. */
void front_kill(struct front *f);
void front_restart(struct front *f);
/* As front_kill; but where there are two, of one or both, as the number says. */
void front_kill_some(struct front *f, unsigned number);

/*
 * main()'s, with <cmocka.h>: the tests in one world, `w`, which is open for all of them.  noisy:
 * its end is world_close_noisy().  How many failed.
 */
int world_run(const char *name, struct world *w, bool noisy, const struct CMUnitTest *tests,
	      size_t n);
#define WORLD_RUN(name, w, noisy, tests)                                                           \
	world_run(name, w, noisy, tests, sizeof(tests) / sizeof((tests)[0]))

/* A number of the statistics of the server or agent at that address, the first with that key. */
unsigned long long world_stat(const char *address, const char *key);

/* A file of the export directory, with the directories on its way. */
void world_write_file(struct world *w, const char *name, const void *data, size_t bytes);
/* Its content; exactly that many bytes. The caller frees it. */
char *world_read_file(struct world *w, const char *name, size_t bytes);

/* A key file for sealed files; each number's key is another one. */
void write_seal_key(const char *path, unsigned number);

#endif
