/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/tree/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
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

/* Whether one of the addresses in the list, with commas between, is that one. */
static bool has(const char *list, const char *address)
{
	size_t n = strlen(address);

	for (const char *at = list; (at = strstr(at, address)); at += n)
		if ((at == list || at[-1] == ',') && (at[n] == ',' || !at[n]))
			return true;
	return false;
}

/* Signals that would end the caller in between are blocked: nobody could write the list again. */
static bool append(struct soda_tree_pool *p, uint32_t seen, char *list, const char *address)
{
	size_t n = strlen(list), end = n + 1 + strlen(address);
	sigset_t all, before;
	bool mine;

	list[n] = ',';
	strcpy(list + n + 1, address);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	mine = atomic_compare_exchange_strong(&p->changes, &seen, seen + 1);
	for (size_t i = n; mine && i <= end; i++)
		atomic_store(&p->list[i], list[i]);
	if (mine)
		atomic_fetch_add(&p->changes, 1);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (mine)
		syscall(SYS_futex, &p->changes, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	return mine;
}

int soda_tree_pool_add(struct soda_tree *tree, const char *address)
{
	enum { TRIES = 1000, PAUSE_US = 1000 };
	struct soda_tree_pool *p = &tree->pool;
	char list[SODA_TREE_POOL];
	size_t more = strlen(address) + 2; /* its comma and end */

	for (int i = 0; i < TRIES; i++, usleep(PAUSE_US)) {
		uint32_t seen = soda_tree_pool_get(tree, list);

		if (atomic_load(&p->registered))
			return -EPERM;
		if (!seen && !atomic_load(&p->changes))
			return -ENOENT;
		if (seen && has(list, address))
			return -EALREADY;
		if (seen && strlen(list) + more > SODA_TREE_POOL)
			return -ENOSPC;
		if (seen && append(p, seen, list, address))
			return 0;
	}
	return -EBUSY;
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
	uint32_t now = atomic_load(&tree->pool.changes);

	/* half written, for good where the writer was killed: look again later, not at once */
	if (!seen && now & 1)
		seen = now;
	syscall(SYS_futex, &tree->pool.changes, FUTEX_WAIT, seen, &ts, NULL, 0);
}
