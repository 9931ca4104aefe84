/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which servers are registered in the pool of this `soda run`: a thread that etcd tells of changes,
 * or that asks it again and again, and tells the processes by the memory that they share.  While
 * etcd is away they keep what they have.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/tree/tree.h"
#include "registry/registry.h"
#include "soda/run/parent.h"

_Static_assert(SODA_TREE_POOL == SODA_MEMBERS_TEXT_MAX + 1, "a list fits");

static struct {
	struct soda_tree *tree;
	struct soda_run_registry registry;
} watch;

static void look(void *arg)
{
	static char list[SODA_MEMBERS_TEXT_MAX + 1], last[SODA_MEMBERS_TEXT_MAX + 1];
	struct soda_why ignored;

	if (soda_registry_list(watch.registry.name, watch.registry.login, list, &ignored) ||
	    !strcmp(list, last))
		return;
	soda_tree_pool_set(watch.tree, list);
	strcpy(last, list);
}

static void *run(void *arg)
{
	struct soda_why ignored;

	/* the login was good when the program began: files may be written anew just now */
	for (;;) {
		soda_registry_follow(watch.registry.name, watch.registry.login, look, NULL,
				     &ignored);
		usleep(SODA_REGISTRY_WATCH_MS * 1000);
	}
	return NULL;
}

void soda_run_watch(struct soda_tree *tree, const struct soda_run_registry *registry)
{
	sigset_t all, before;
	pthread_t thread;

	watch.tree = tree;
	watch.registry = *registry;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, run, NULL))
		fputs("soda run: no thread to look for new servers: the program keeps those that "
		      "it has\n",
		      stderr);
	else
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
