/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The servers of a pool whose members come and go, for all processes of one `soda run`: a list of
 * addresses with commas between, as `soda` finds them in a registry; or what the user has named, to
 * which `soda pool add` adds.
 */
#ifndef SODA_BASE_TREE_POOL_H
#define SODA_BASE_TREE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

struct soda_tree;

enum { SODA_TREE_POOL = SODA_MEMBERS_MAX * (SODA_ADDRESS_MAX + 1) + 1 };

struct soda_tree_pool {
	_Atomic uint32_t changes; /* futex; 0: there is no list; odd: it is being written */
	_Atomic bool registered;  /* it is a registry's: nobody else adds to it */
	_Atomic char list[SODA_TREE_POOL];
};

/* For `soda`, one thread: a list that is not longer than SODA_TREE_POOL with its end. */
void soda_tree_pool_set(struct soda_tree *tree, const char *list);
/*
 * Any process: one address more, at the end.  0; -EALREADY: the list has it; -ENOENT: there is no
 * list; -EPERM: it is a registry's; -ENOSPC: it has no room; -EBUSY: it is being written, and was
 * again and again.
 */
int soda_tree_pool_add(struct soda_tree *tree, const char *address);
/*
 * Copy the list, ended.  Returns which one it is, for soda_tree_pool_wait(); 0: there is none, or
 * it is being written, and list is empty.
 */
uint32_t soda_tree_pool_get(struct soda_tree *tree, char list[SODA_TREE_POOL]);
/* Wait until there is another list than `seen`, at most timeout_ms. */
void soda_tree_pool_wait(struct soda_tree *tree, uint32_t seen, int timeout_ms);

#endif
