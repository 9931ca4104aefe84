/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Servers that come while the program runs, or are to be found at another address: `soda` writes
 * who is in the pool into the memory that the processes share (base/tree/pool.h), and a thread of
 * each makes those its servers that are not yet.  One that cannot be used is tried again later, and
 * the log says so once.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/tree/tree.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/thread.h"
#include "host_agent/life/servers.h"
#include "pool/pool.h"
#include "run/core/run.h"

enum { FAILED_MAX = 2 * SODA_MEMBERS_MAX, LOOK_MS = 1000, LOCK_LOOK_US = 1000 };

/* The thread's own. */
static struct {
	struct soda_tree *tree;
	char list[SODA_TREE_POOL];
	struct soda_members members;
	struct failed {
		char address[SODA_ADDRESS_MAX + 1]; /* "": free */
		uint64_t again_ns;
	} failed[FAILED_MAX];
} join;

static struct failed *failed_before(const char *address)
{
	for (struct failed *f = join.failed; f < join.failed + FAILED_MAX; f++)
		if (!strcmp(f->address, address))
			return f;
	return NULL;
}

/* Note when it is tried again; say why, the first time. */
static void note(const char *address, const struct soda_why *why)
{
	struct failed *f = failed_before(address);
	bool told = f;

	if (!f)
		f = failed_before(""); /* where none is free it is just tried more often */
	if (!told)
		soda_log_warning("%s is in the pool, and the program goes on without it: %s",
				 address, why->text);
	if (!f)
		return;
	strcpy(f->address, address);
	f->again_ns = soda_now_ns() + SODA_JOIN_AGAIN_MS * SODA_MS_NS;
}

/* False: the runtime has ended. */
static bool try_one(const char *address)
{
	struct failed *before = failed_before(address);
	struct soda_why why = { "" };
	bool runs;
	int ret = 0;

	if (soda_servers_has(address) || (before && soda_now_ns() < before->again_ns))
		return true;
	while (!soda_lock_try(&soda_agent.api_lock)) {
		if (atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING)
			return false;
		usleep(LOCK_LOOK_US);
	}
	runs = atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING;
	if (runs)
		ret = soda_servers_join(address, &why);
	soda_lock_release(&soda_agent.api_lock);
	if (ret && ret != -EALREADY)
		note(address, &why);
	else if (before)
		before->address[0] = '\0';
	return runs;
}

/* Whoever wrote the list, it is checked as a user's is. */
static bool look(void)
{
	struct soda_why why;

	if (!join.list[0] || soda_members_parse(join.list, &join.members, &why))
		return true;
	for (uint32_t i = 0; i < join.members.n; i++)
		if (!try_one(join.members.address[i]))
			return false;
	return true;
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
