/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Map the file's memory. By system calls: under `soda run` mmap is a wrapper. */
static int map(int fd, struct soda_tree **tree_p)
{
	void *p = (void *)syscall(SYS_mmap, NULL, sizeof(**tree_p), PROT_READ | PROT_WRITE,
				  MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	*tree_p = p;
	return 0;
}

int soda_tree_create(int64_t budget, const char *server_program, struct soda_tree **tree_p,
		     char name[SODA_TREE_NAME])
{
	int fd = memfd_create("soda-run-tree", MFD_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = ftruncate(fd, sizeof(**tree_p)) ? -errno : map(fd, tree_p);
	if (ret) {
		close(fd);
		return ret;
	}
	if (getrandom(&(*tree_p)->token, sizeof((*tree_p)->token), 0) != sizeof((*tree_p)->token))
		(*tree_p)->token = (uint64_t)getpid() << 32 | (uint32_t)time(NULL);
	(*tree_p)->budget = budget;
	soda_tree_server_init(*tree_p, fd, server_program);
	/* the descriptor stays open: its name in /proc is how the others find the memory */
	snprintf(name, SODA_TREE_NAME, "/proc/%d/fd/%d:%016" PRIx64, getpid(), fd,
		 (*tree_p)->token);
	return 0;
}

int soda_tree_open(const char *name, struct soda_tree **tree_p)
{
	struct soda_tree *tree = NULL;
	char path[SODA_TREE_NAME];
	uint64_t token;
	struct stat st;
	int fd, ret;

	if (strlen(name) >= sizeof(path) || sscanf(name, "%[^:]:%" SCNx64, path, &token) != 2)
		return -EINVAL;
	/* whatever else is there is not even opened: to open a device may do something */
	if (stat(path, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size != sizeof(*tree))
		ret = -ENOENT; /* another process has that number now */
	else
		ret = map(fd, &tree);
	close(fd);
	if (ret)
		return ret;
	if (tree->token != token) {
		syscall(SYS_munmap, tree, sizeof(*tree));
		return -ENOENT;
	}
	*tree_p = tree;
	return 0;
}

static uint32_t used(const struct soda_tree *tree)
{
	uint32_t n = atomic_load(&tree->slots_n);

	return n < SODA_TREE_SLOTS ? n : SODA_TREE_SLOTS;
}

/* slots_n covers the slot before anything is held there: who sums up sees it. */
static void cover(struct soda_tree *tree, uint32_t i)
{
	uint32_t n = atomic_load(&tree->slots_n);

	while (n <= i && !atomic_compare_exchange_weak(&tree->slots_n, &n, i + 1))
		;
}

static void clear(struct soda_tree_slot *slot)
{
	atomic_store(&slot->held, 0);
	atomic_store(&slot->local, 0);
	atomic_store(&slot->wanted, 0);
	atomic_store(&slot->starting, 0);
	atomic_store(&slot->need, 0);
}

/* Where an exec did not change the program's mark, its memory is gone all the same. */
static struct soda_tree_slot *slot_of(struct soda_tree *tree, uint64_t owner)
{
	for (uint32_t i = 0, n = used(tree); i < n; i++)
		if (atomic_load(&tree->slots[i].owner) == owner)
			return &tree->slots[i];
	return NULL;
}

struct soda_tree_slot *soda_tree_claim(struct soda_tree *tree)
{
	uint64_t self = soda_alive_self();
	struct soda_tree_slot *slot;

	if (!self)
		return NULL;
	soda_tree_reap(tree);
	slot = slot_of(tree, self);
	for (uint32_t i = 0; i < SODA_TREE_SLOTS && !slot; i++) {
		uint64_t owner = 0;

		cover(tree, i);
		if (atomic_compare_exchange_strong(&tree->slots[i].owner, &owner, self))
			slot = &tree->slots[i];
	}
	if (slot)
		clear(slot);
	return slot;
}

/*
 * Sequentially consistent, as are the loads below: of two processes that take at once at least one
 * sees what the other has added.
 */
bool soda_tree_take(struct soda_tree *tree, struct soda_tree_slot *slot, int64_t bytes)
{
	int64_t sum = 0, peak = atomic_load(&tree->peak);

	atomic_fetch_add(&slot->held, bytes);
	for (uint32_t i = 0, n = used(tree); i < n; i++)
		sum += atomic_load(&tree->slots[i].held);
	if (sum > tree->budget) {
		atomic_fetch_sub(&slot->held, bytes);
		return false;
	}
	while (sum > peak && !atomic_compare_exchange_weak(&tree->peak, &peak, sum))
		;
	atomic_store(&slot->wanted, 0);
	return true;
}

void soda_tree_give(struct soda_tree *tree, struct soda_tree_slot *slot, int64_t bytes)
{
	atomic_fetch_sub(&slot->held, bytes);
	atomic_fetch_add(&tree->given, 1);
}

void soda_tree_ask(struct soda_tree *tree, struct soda_tree_slot *slot, int64_t bytes)
{
	int64_t before = 0;
	int saved = errno;

	if (!atomic_compare_exchange_strong(&slot->wanted, &before, bytes))
		return; /* the others know */
	atomic_fetch_add(&tree->asked, 1);
	syscall(SYS_futex, &tree->asked, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	errno = saved;
}

void soda_tree_wait(struct soda_tree *tree, uint32_t seen, int64_t timeout_ns)
{
	struct timespec ts = { .tv_sec = timeout_ns / 1000000000,
			       .tv_nsec = timeout_ns % 1000000000 };

	syscall(SYS_futex, &tree->asked, FUTEX_WAIT, seen, &ts, NULL, 0);
}

void soda_tree_reap(struct soda_tree *tree)
{
	uint64_t self = soda_alive_self();

	for (uint32_t i = 0, n = used(tree); i < n && self; i++) {
		struct soda_tree_slot *slot = &tree->slots[i];
		uint64_t owner = atomic_load(&slot->owner);

		if (!owner || owner == self || soda_alive(owner))
			continue;
		/* it is this process's while it is cleared, and again nobody's if this one ends */
		if (!atomic_compare_exchange_strong(&slot->owner, &owner, self))
			continue;
		clear(slot);
		atomic_store(&slot->owner, 0);
		atomic_fetch_add(&tree->given, 1);
	}
}

int64_t soda_tree_local(const struct soda_tree *tree)
{
	int64_t sum = 0;

	for (uint32_t i = 0, n = used(tree); i < n; i++)
		sum += atomic_load(&tree->slots[i].local);
	return sum;
}

uint32_t soda_tree_processes(const struct soda_tree *tree)
{
	uint32_t n = 0;

	for (uint32_t i = 0, all = used(tree); i < all; i++)
		n += atomic_load(&tree->slots[i].owner) &&
		     (atomic_load(&tree->slots[i].held) || !atomic_load(&tree->slots[i].local));
	return n;
}

bool soda_tree_wanting(const struct soda_tree *tree, const struct soda_tree_slot *but)
{
	for (uint32_t i = 0, n = used(tree); i < n; i++)
		if (&tree->slots[i] != but && atomic_load(&tree->slots[i].wanted))
			return true;
	return false;
}

/* Whether one process should give to another one; equal: what each would have of the budget. */
static bool should_give(const struct soda_tree_slot *from, const struct soda_tree_slot *to,
			int64_t equal)
{
	uint64_t mine = atomic_load(&from->need), its = atomic_load(&to->need);

	if (atomic_load(&to->starting) || its > 2 * mine)
		return true;
	return 2 * its >= mine && atomic_load(&from->held) > equal &&
	       atomic_load(&to->held) < equal;
}

int64_t soda_tree_due(const struct soda_tree *tree, const struct soda_tree_slot *slot,
		      int64_t least, int64_t step)
{
	uint32_t processes = soda_tree_processes(tree);
	int64_t equal = tree->budget / (processes ? processes : 1);
	int64_t spare = atomic_load(&slot->held) - least;

	if (spare <= 0)
		return 0;
	for (uint32_t i = 0, n = used(tree); i < n; i++) {
		const struct soda_tree_slot *to = &tree->slots[i];

		if (to != slot && atomic_load(&to->wanted) && should_give(slot, to, equal))
			return spare < step ? spare : step;
	}
	return 0;
}

struct soda_tree_row *soda_tree_row(struct soda_tree *tree, const char *program)
{
	uint32_t i = atomic_fetch_add(&tree->rows_n, 1);
	struct soda_tree_row *row = i < SODA_TREE_ROWS ? &tree->rows[i] : NULL;

	if (!row)
		return NULL;
	row->pid = soda_alive_pid(soda_alive_self());
	snprintf(row->program, sizeof(row->program), "%s", program);
	return row;
}
