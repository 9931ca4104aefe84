/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Servers that come while the program runs, or are to be found at another address: `soda` writes
 * who is in the pool into the memory that the processes share (base/tree/pool.h), and a thread of
 * each makes those its servers that are not yet.
 */
#include <pthread.h>

#include "base/log.h"
#include "base/tree/tree.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/thread.h"
#include "host_agent/life/servers.h"
#include "pool/pool.h"
#include "run/core/run.h"

enum { LOOK_MS = 1000 };

/* The thread's own. */
static struct {
	struct soda_tree *tree;
	char list[SODA_TREE_POOL];
	struct soda_members members;
} join;

/* The list is checked as a user's is. */
static bool look(void)
{
	struct soda_why why;

	if (!join.list[0] || soda_members_parse(join.list, &join.members, &why))
		return true;
	return soda_servers_join_all(&join.members);
}

static void *run(void *arg)
{
	run_inside++; /* this thread is the runtime's */
	soda_thread_internal();
	while (atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING) {
		uint32_t seen = soda_tree_pool_get(join.tree, join.list);

		if (!look())
			break;
		soda_tree_pool_wait(join.tree, seen, LOOK_MS);
	}
	return NULL;
}

void run_join_start(struct soda_tree *tree)
{
	pthread_t thread;

	if (!atomic_load(&tree->pool.changes))
		return;
	join.tree = tree;
	if (soda_helper_start(&thread, "soda-join", run, NULL))
		soda_log_warning("soda run: no thread to look for new servers: the program keeps "
				 "those that it has");
}
