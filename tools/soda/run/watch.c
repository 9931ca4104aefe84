/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which servers are registered in the pool of this `soda run`: the processes are told by the memory
 * that they share.  While etcd is away they keep what they have.
 */
#include <stdio.h>

#include "base/tree/tree.h"
#include "registry/registry.h"
#include "soda/run/parent.h"

_Static_assert(SODA_TREE_POOL == SODA_MEMBERS_TEXT_MAX + 1, "a list fits");

static struct soda_registry_follower *follower;

/* In the registry's thread. */
static void tell(void *arg, const struct soda_members *now)
{
	static char list[SODA_MEMBERS_TEXT_MAX + 1];

	soda_members_list(now, list);
	soda_tree_pool_set(arg, list);
}

void soda_run_watch(struct soda_tree *tree, const struct soda_run_registry *registry)
{
	struct soda_why why = { "" };

	if (soda_registry_follow(registry->name, registry->login, false, NULL, tell, tree,
				 &follower, &why))
		fprintf(stderr,
			"soda run: nobody looks for new servers, and the program keeps those that "
			"it has: %s\n",
			why.text);
}

void soda_run_unwatch(void)
{
	soda_registry_unfollow(follower);
	follower = NULL;
}
