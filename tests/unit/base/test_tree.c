/* SPDX-License-Identifier: BSD-3-Clause */
/* A budget that processes share: never exceeded, and what a killed one held comes back. */
#include <errno.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/tree/tree.h"

enum { MIB = 1 << 20, PROCESSES = 4, TURNS = 20000 };

static struct soda_tree *make(int64_t budget, char name[SODA_TREE_NAME])
{
	struct soda_tree *tree;

	assert_int_equal(soda_tree_create(budget, NULL, &tree, name), 0);
	return tree;
}

/* A child that runs fn and waits to be killed; returns when fn is done. */
static pid_t child_that(void (*fn)(struct soda_tree *), struct soda_tree *tree)
{
	int done[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(done), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60);
		fn(tree);
		if (write(done[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(done[0], &c, 1), 1);
	close(done[0]);
	close(done[1]);
	return pid;
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void hold_three(struct soda_tree *tree)
{
	struct soda_tree_slot *slot = soda_tree_claim(tree);

	if (!slot || !soda_tree_take(tree, slot, 3 * MIB))
		_exit(1);
}

static void test_name(void **state)
{
	char name[SODA_TREE_NAME], other[SODA_TREE_NAME];
	struct soda_tree *tree = make(MIB, name), *seen;

	assert_int_equal(soda_tree_open(name, &seen), 0);
	assert_true(seen != tree && seen->token == tree->token && seen->budget == MIB);
	snprintf(other, sizeof(other), "%s", name);
	other[strlen(other) - 1] ^= 1; /* what another one has that has this number now */
	assert_int_equal(soda_tree_open(other, &seen), -ENOENT);
	assert_int_equal(soda_tree_open("/proc/0/fd/3:12", &seen), -ENOENT);
	assert_int_equal(soda_tree_open("/dev/null:12", &seen), -ENOENT);
	assert_int_equal(soda_tree_open("nonsense", &seen), -EINVAL);
}

static void test_take(void **state)
{
	char name[SODA_TREE_NAME];
	struct soda_tree *tree = make(4 * MIB, name);
	struct soda_tree_slot *slot = soda_tree_claim(tree);

	assert_non_null(slot);
	assert_true(soda_tree_take(tree, slot, 3 * MIB));
	assert_false(soda_tree_take(tree, slot, 2 * MIB));
	assert_true(soda_tree_take(tree, slot, MIB));
	assert_false(soda_tree_take(tree, slot, 1));
	assert_int_equal(tree->peak, 4 * MIB);
	soda_tree_give(tree, slot, 2 * MIB);
	assert_int_equal(slot->held, 2 * MIB);
	/* what the program held is gone with its memory, if it became another one */
	assert_ptr_equal(soda_tree_claim(tree), slot);
	assert_int_equal(slot->held, 0);
}

/* Who is killed gives back all: not while it lives, but also as a zombie. */
static void test_killed(void **state)
{
	char name[SODA_TREE_NAME];
	struct soda_tree *tree = make(4 * MIB, name);
	pid_t pid = child_that(hold_three, tree);
	struct soda_tree_slot *slot = soda_tree_claim(tree);

	assert_int_equal(soda_tree_processes(tree), 2);
	assert_false(soda_tree_take(tree, slot, 2 * MIB));
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	soda_tree_reap(tree);
	assert_int_equal(soda_tree_processes(tree), 1);
	assert_true(soda_tree_take(tree, slot, 4 * MIB));
	waitpid(pid, NULL, 0);
}

/* So does who becomes another program, with the same process id. */
static void test_exec(void **state)
{
	char name[SODA_TREE_NAME];
	struct soda_tree *tree = make(4 * MIB, name);
	pid_t pid = fork();

	if (!pid) {
		hold_three(tree);
		execl("/bin/sleep", "sleep", "60", NULL);
		_exit(1);
	}
	for (int i = 0; i < 3000 && (!tree->peak || soda_tree_processes(tree)); i++) {
		soda_tree_reap(tree);
		usleep(10000);
	}
	assert_int_equal(tree->peak, 3 * MIB);
	assert_int_equal(soda_tree_processes(tree), 0);
	end(pid);
}

/* Takes and gives as fast as it can. In use: what all of them use by their own count, to compare.
 */
static void hammer(struct soda_tree *tree, _Atomic int64_t *in_use, _Atomic uint32_t *over)
{
	struct soda_tree_slot *slot = soda_tree_claim(tree);
	unsigned seed = (unsigned)getpid();
	int64_t mine = 0;

	for (int i = 0; slot && i < TURNS; i++) {
		int64_t n = 1 + rand_r(&seed) % 7;

		if (rand_r(&seed) % 2 && soda_tree_take(tree, slot, n)) {
			mine += n;
			if (atomic_fetch_add(in_use, n) + n > tree->budget)
				atomic_fetch_add(over, 1);
		} else if (mine) {
			atomic_fetch_sub(in_use, mine);
			soda_tree_give(tree, slot, mine);
			mine = 0;
		}
	}
	atomic_fetch_sub(in_use, mine);
	if (slot)
		soda_tree_give(tree, slot, mine);
	_exit(slot ? 0 : 1);
}

static void test_together(void **state)
{
	char name[SODA_TREE_NAME];
	struct soda_tree *tree = make(20, name), *counts = make(1, name);
	_Atomic int64_t *in_use = &counts->peak;
	pid_t pids[PROCESSES];
	int status;

	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (!pids[i])
			hammer(tree, in_use, &counts->asked);
	}
	for (int i = 0; i < PROCESSES; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(counts->asked, 0);
	assert_in_range(tree->peak, 1, 20);
	assert_int_equal(*in_use, 0);
}

/* Who gives, and how much. */
static void test_due(void **state)
{
	char name[SODA_TREE_NAME];
	struct soda_tree *tree = make(100, name);
	struct soda_tree_slot *a = &tree->slots[0], *b = &tree->slots[1];

	tree->slots_n = 2;
	a->owner = b->owner = 1;
	a->held = 80;
	b->held = 20;
	assert_int_equal(soda_tree_due(tree, a, 10, 5), 0); /* nobody asks */
	b->wanted = 5;
	assert_true(soda_tree_wanting(tree, a));
	assert_false(soda_tree_wanting(tree, b));
	a->need = 0;
	b->need = 7;
	assert_int_equal(soda_tree_due(tree, a, 10, 5), 5); /* a is idle */
	assert_int_equal(soda_tree_due(tree, a, 78, 5), 2); /* and keeps its least */
	assert_int_equal(soda_tree_due(tree, a, 90, 5), 0);
	a->need = b->need = 1000; /* both are busy: to equal shares */
	assert_int_equal(soda_tree_due(tree, a, 10, 5), 5);
	a->held = 50;
	assert_int_equal(soda_tree_due(tree, a, 10, 5), 0);
	a->held = 80;
	a->need = 5000; /* a needs it more */
	assert_int_equal(soda_tree_due(tree, a, 10, 5), 0);
	b->starting = 1; /* but somebody who starts must be let in */
	assert_int_equal(soda_tree_due(tree, a, 10, 5), 5);
}

static void note_local(struct soda_tree *tree)
{
	atomic_store(&soda_tree_claim(tree)->local, 5 * MIB);
}

/* Local memory is summed up, counts for no part of the budget, and goes with its process. */
static void test_local(void **state)
{
	char name[SODA_TREE_NAME];
	struct soda_tree *tree = make(10 * MIB, name);
	struct soda_tree_slot *slot = soda_tree_claim(tree);
	pid_t pid;

	atomic_store(&slot->local, 20 * MIB);
	assert_int_equal(soda_tree_local(tree), 20 * MIB);
	pid = child_that(note_local, tree);
	assert_int_equal(soda_tree_local(tree), 25 * MIB);
	assert_int_equal(soda_tree_processes(tree), 0); /* with a part of the budget */
	assert_true(soda_tree_take(tree, slot, 10 * MIB));
	assert_int_equal(soda_tree_processes(tree), 1);
	end(pid);
	soda_tree_reap(tree);
	assert_int_equal(soda_tree_local(tree), 20 * MIB);
}

static void test_rows(void **state)
{
	char name[SODA_TREE_NAME];
	struct soda_tree *tree = make(0, name);

	for (int i = 0; i < SODA_TREE_ROWS; i++) {
		struct soda_tree_row *row =
			soda_tree_row(tree, "a program with a name that is much too long");

		assert_ptr_equal(row, &tree->rows[i]);
		assert_int_equal(row->pid, getpid());
		assert_int_equal(strlen(row->program), sizeof(row->program) - 1);
	}
	assert_null(soda_tree_row(tree, "one more"));
}

/* One process writes lists that it keeps changing, another never reads half of one. */
static void write_lists(struct soda_tree *tree)
{
	char text[SODA_TREE_POOL];

	for (uint32_t i = 1;; i++) {
		memset(text, 'a' + (int)(i % 26), sizeof(text) - 1);
		text[sizeof(text) - 1 - i % 100] = '\0';
		soda_tree_pool_set(tree, text);
		usleep(50);
	}
}

static void test_pool(void **state)
{
	static char list[SODA_TREE_POOL];
	char name[SODA_TREE_NAME];
	struct soda_tree *tree = make(0, name);
	uint32_t seen, read = 0;
	pid_t pid;

	assert_int_equal(soda_tree_pool_get(tree, list), 0);
	assert_string_equal(list, "");
	soda_tree_pool_set(tree, "tcp://a:1,tcp://b:1");
	seen = soda_tree_pool_get(tree, list);
	assert_int_equal(seen, 2);
	assert_string_equal(list, "tcp://a:1,tcp://b:1");
	soda_tree_pool_wait(tree, seen, 1); /* there is no other one: it ends all the same */
	soda_tree_pool_wait(tree, 0, 60000);
	pid = fork();
	if (!pid)
		write_lists(tree);
	for (int i = 0; i < 100000 && read < 200; i++) {
		seen = soda_tree_pool_get(tree, list);
		if (!seen || seen == 2)
			continue;
		read++;
		assert_true(strlen(list) >= SODA_TREE_POOL - 100);
		for (const char *c = list; *c; c++)
			assert_int_equal(*c, list[0]);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(read > 0);
}

/* Several processes add to a list at once, and nothing of it is lost. */
static void test_pool_add(void **state)
{
	enum { WRITERS = 4 };
	static char list[SODA_TREE_POOL], wanted[32];
	char name[SODA_TREE_NAME];
	struct soda_tree *tree = make(0, name);

	assert_int_equal(soda_tree_pool_add(tree, "tcp://a:1"), -ENOENT);
	soda_tree_pool_set(tree, "tcp://a:1");
	assert_int_equal(soda_tree_pool_add(tree, "tcp://a:1"), -EALREADY);
	assert_int_equal(soda_tree_pool_add(tree, "tcp://a:11"), 0);
	assert_int_equal(soda_tree_pool_add(tree, "tcp://a:11"), -EALREADY);
	assert_int_equal(soda_tree_pool_get(tree, list), 4);
	assert_string_equal(list, "tcp://a:1,tcp://a:11");
	for (int i = 0; i < WRITERS; i++) {
		snprintf(wanted, sizeof(wanted), "tcp://w:%d", i);
		if (!fork())
			_exit(soda_tree_pool_add(tree, wanted) != 0);
	}
	for (int i = 0, status; i < WRITERS; i++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	assert_int_equal(soda_tree_pool_get(tree, list), 4 + 2 * WRITERS);
	for (int i = 0; i < WRITERS; i++) {
		snprintf(wanted, sizeof(wanted), ",tcp://w:%d", i);
		assert_non_null(strstr(list, wanted));
	}
	memset(list, 'x', sizeof(list) - 1);
	list[sizeof(list) - 8] = '\0';
	soda_tree_pool_set(tree, list);
	assert_int_equal(soda_tree_pool_add(tree, "tcp://a:1"), -ENOSPC);
	atomic_store(&tree->pool.registered, true);
	assert_int_equal(soda_tree_pool_add(tree, "tcp://a:1"), -EPERM);
	atomic_store(&tree->pool.registered, false);
	atomic_fetch_add(&tree->pool.changes, 1); /* whoever wrote has ended in the middle of it */
	assert_int_equal(soda_tree_pool_add(tree, "tcp://a:1"), -EBUSY);
	/* who waits then waits until it is whole, and does not look all the time */
	if (!fork()) {
		usleep(100000);
		atomic_fetch_add(&tree->pool.changes, 1);
		syscall(SYS_futex, &tree->pool.changes, FUTEX_WAKE, 1, NULL, NULL, 0);
		_exit(0);
	}
	soda_tree_pool_wait(tree, 0, 60000);
	assert_int_not_equal(soda_tree_pool_get(tree, list), 0);
	wait(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pool_add), cmocka_unit_test(test_name),
		cmocka_unit_test(test_take),	 cmocka_unit_test(test_killed),
		cmocka_unit_test(test_exec),	 cmocka_unit_test(test_together),
		cmocka_unit_test(test_due),	 cmocka_unit_test(test_rows),
		cmocka_unit_test(test_pool),	 cmocka_unit_test(test_local),
	};

	return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
