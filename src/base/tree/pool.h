/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The servers of a pool whose members come and go, as `soda` has found them, for all processes of
 * one `soda run`: a list of addresses with commas between, which only `soda` writes.
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
	_Atomic char list[SODA_TREE_POOL];
};

/* For `soda`, one thread: a list that is not longer than SODA_TREE_POOL with its end. */
void soda_tree_pool_set(struct soda_tree *tree, const char *list);
/*
 * Copy the list, ended.  Returns which one it is, for soda_tree_pool_wait(); 0: there is none, or
 * it is being written, and list is empty.
 */
uint32_t soda_tree_pool_get(struct soda_tree *tree, char list[SODA_TREE_POOL]);
/* Wait until there is another list than `seen`, at most timeout_ms. */
void soda_tree_pool_wait(struct soda_tree *tree, uint32_t seen, int timeout_ms);

#endif
