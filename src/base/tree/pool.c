/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/tree/pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/tree/tree.h"

void soda_tree_pool_set(struct soda_tree *tree, const char *list)
{
	struct soda_tree_pool *p = &tree->pool;
	uint32_t i = 0;

	atomic_fetch_add(&p->changes, 1);
	do
		atomic_store(&p->list[i], list[i]);
	while (list[i++]);
	atomic_fetch_add(&p->changes, 1);
	syscall(SYS_futex, &p->changes, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

uint32_t soda_tree_pool_get(struct soda_tree *tree, char list[SODA_TREE_POOL])
{
	struct soda_tree_pool *p = &tree->pool;
	uint32_t before = atomic_load(&p->changes);

	for (uint32_t i = 0; i < SODA_TREE_POOL; i++)
		list[i] = (char)atomic_load(&p->list[i]);
	list[SODA_TREE_POOL - 1] = '\0';
	if (!(before & 1) && atomic_load(&p->changes) == before)
		return before;
	list[0] = '\0';
	return 0;
}

void soda_tree_pool_wait(struct soda_tree *tree, uint32_t seen, int timeout_ms)
{
	struct timespec ts = { .tv_sec = timeout_ms / 1000,
			       .tv_nsec = timeout_ms % 1000 * 1000000 };

	syscall(SYS_futex, &tree->pool.changes, FUTEX_WAIT, seen, &ts, NULL, 0);
}
