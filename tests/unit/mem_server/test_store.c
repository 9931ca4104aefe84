/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's memory: accounting, seals, and what happens when the system has none left. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "mem_server/store/store.h"

#define MIB (1ull << 20)

static struct soda_store store;
static struct soda_why why;

static int set_up(void **state)
{
	soda_store_init(&store, 16 * MIB);
	return 0;
}

static int create(uint64_t bytes, struct soda_memory *memory_p)
{
	const struct soda_memory_options opt = { .bytes = bytes };

	return soda_memory_create(&store, &opt, memory_p, &why);
}

static void check_costs(void **state)
{
	assert_int_equal(soda_store_cost(&store, 1, false), 2 * MIB);
	assert_int_equal(soda_store_cost(&store, 2 * MIB, false), 2 * MIB);
	assert_int_equal(soda_store_cost(&store, 2 * MIB + 1, false), 4 * MIB);
	assert_int_equal(soda_store_cost(&store, 1, true), 2 * MIB + 4096);
	assert_int_equal(soda_store_cost(&store, 1ull << 30, true), (1ull << 30) + 16384);
	assert_int_equal(soda_store_cost(&store, UINT64_MAX, true), 0);
	assert_int_equal(soda_store_cost(&store, INT64_MAX, false), 0);
	store.hugepages = true;
	assert_int_equal(soda_store_cost(&store, 1, true), 4 * MIB);
}

static void check_capacity(void **state)
{
	struct soda_memory a, b, c;

	assert_int_equal(create(10 * MIB, &a), 0);
	assert_int_equal(create(8 * MIB, &b), -ENOSPC);
	assert_string_equal(why.text,
			    "8 MiB wanted, only 6 MiB of 16 MiB are free: free something, use"
			    " another server, or give this one a larger --capacity");
	assert_int_equal(create(6 * MIB, &b), 0);
	assert_int_equal(create(1, &c), -ENOSPC);
	assert_int_equal(create(UINT64_MAX, &c), -ENOSPC);
	soda_memory_destroy(&store, &a, NULL);
	assert_int_equal(soda_store_free_bytes(&store), 10 * MIB);
	soda_memory_destroy(&store, &b, NULL);
	assert_int_equal(soda_store_free_bytes(&store), 16 * MIB);
}

/* What lies side by side Linux makes one mapping of, which can take a second (map_apart()). */
static void check_apart(void **state)
{
	const struct soda_memory_options opt = { .bytes = 2 * MIB, .unshared = true };
	struct soda_memory m[8];

	for (int i = 0; i < 8; i++) {
		assert_int_equal(soda_memory_create(&store, &opt, &m[i], &why), 0);
		assert_int_equal((uintptr_t)m[i].map % (2 * MIB), 0);
		m[i].map[0] = m[i].map[2 * MIB - 1] = (uint8_t)i;
		for (int j = 0; j < i; j++) {
			assert_ptr_not_equal(m[i].map + 2 * MIB, m[j].map);
			assert_ptr_not_equal(m[j].map + 2 * MIB, m[i].map);
			assert_int_equal(m[j].map[0], j);
		}
	}
	for (int i = 0; i < 8; i++)
		soda_memory_destroy(&store, &m[i], NULL);
	assert_int_equal(store.used, 0);
}

static void check_quota(void **state)
{
	struct soda_account account = { .quota = 4 * MIB }, free_account = { .quota = 0 };

	assert_int_equal(soda_account_charge(&store, &account, 2 * MIB, &why), 0);
	assert_int_equal(soda_account_charge(&store, &account, 3 * MIB, &why), -EDQUOT);
	assert_non_null(strstr(why.text, "2 MiB of this client's quota of 4 MiB"));
	assert_int_equal(soda_account_charge(&store, &account, 2 * MIB, &why), 0);
	assert_int_equal(soda_account_charge(&store, &account, 1, &why), -EDQUOT);
	soda_account_refund(&store, &account, 4 * MIB);
	assert_int_equal(soda_account_used(&store, &account), 0);
	assert_int_equal(soda_account_charge(&store, &free_account, 1ull << 50, &why), 0);
}

static int no_pages(int fd, uint64_t bytes)
{
	return -ENOMEM;
}

/* Population that fails leaves nothing behind. */
static void check_no_memory_left(void **state)
{
	const struct soda_memory_options opt = { .bytes = 4 * MIB, .populate = true };
	int probe = dup(0), after;
	struct soda_memory memory;

	store.populate = no_pages;
	assert_int_equal(soda_memory_create(&store, &opt, &memory, &why), -ENOSPC);
	assert_non_null(strstr(why.text, "no memory left"));
	assert_int_equal(soda_store_free_bytes(&store), 16 * MIB);
	after = dup(0);
	assert_int_equal(after, probe + 1);
	close(probe);
	close(after);
}

static void check_populated(void **state)
{
	const struct soda_memory_options opt = { .bytes = 3 * MIB,
						 .populate = true,
						 .dirty_map = true };
	struct soda_memory memory;
	struct stat st;

	assert_int_equal(soda_memory_create(&store, &opt, &memory, &why), 0);
	assert_int_equal(fstat(memory.fd, &st), 0);
	assert_int_equal(st.st_size, 4 * MIB + 4096);
	assert_int_equal(st.st_blocks * 512, 4 * MIB + 4096);
	assert_int_equal(memory.backing_bytes, 4 * MIB);
	assert_int_equal(memory.dirty_bytes, 4096);
	assert_ptr_equal(memory.dirty, memory.map + 4 * MIB);
	soda_memory_destroy(&store, &memory, NULL);
}

/* Whoever gets the descriptor can neither shrink nor grow nor seal it. */
static void check_seals(void **state)
{
	struct soda_memory memory;

	assert_int_equal(create(1, &memory), 0);
	assert_int_equal(ftruncate(memory.fd, 0), -1);
	assert_int_equal(ftruncate(memory.fd, 8 * MIB), -1);
	assert_int_equal(fcntl(memory.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(pwrite(memory.fd, "x", 1, 0), 1);
	assert_int_equal(memory.map[0], 'x');
	soda_memory_destroy(&store, &memory, NULL);
}

static void check_frozen(void **state)
{
	const struct soda_memory_options opt = { .bytes = 1, .freezes = true };
	struct soda_memory memory;
	char path[32];
	int fd;

	assert_int_equal(soda_memory_create(&store, &opt, &memory, &why), 0);
	memory.map[0] = 'x';
	assert_int_equal(soda_memory_freeze(&memory, &why), 0);
	assert_int_equal(memory.map[0], 'x');
	/* Not through a descriptor opened anew either. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory.fd);
	fd = open(path, O_RDWR);
	assert_int_equal(pwrite(memory.fd, "y", 1, 0), -1);
	if (fd >= 0) {
		assert_int_equal(pwrite(fd, "y", 1, 0), -1);
		assert_ptr_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
		close(fd);
	}
	assert_int_equal(fcntl(memory.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(soda_memory_populate(&store, &memory, &why), 0);
	soda_memory_destroy(&store, &memory, NULL);
}

/*
 * A hole that no page is left for, as a file that ends before its mapping has one: the touch gives
 * zeros, and keeps what is stored.  In a child, which a SIGBUS would end.
 */
static void touch_hole(void)
{
	uint8_t *room = mmap(NULL, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *map;
	int fd = memfd_create("hole", MFD_CLOEXEC);

	signal(SIGBUS, SIG_DFL); /* not the test framework's */
	room += -(uintptr_t)room % SODA_STORE_BLOCK;
	map = mmap(room, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (ftruncate(fd, 4096) || soda_punched_watch(map, 4 * MIB))
		_exit(1);
	map[0] = 1;
	map[3 * MIB + 5] = 2;
	if (map[2 * MIB] || map[0] != 1 || map[3 * MIB + 5] != 2)
		_exit(2);
	soda_punched_forget(map);
	munmap(map, 4 * MIB);
	/* what is not watched is a SIGBUS still */
	map = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	alarm(20);
	_exit(map[4 * MIB] ? 3 : 4);
}

/* Broken memory, as the processor tells of it: it is not a hole, and what was there is not zeros.
 */
static void touch_broken(void)
{
	uint8_t *room =
		mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	siginfo_t info = { .si_signo = SIGBUS, .si_code = BUS_MCEERR_AR };

	signal(SIGBUS, SIG_DFL);
	room += -(uintptr_t)room % SODA_STORE_BLOCK;
	room[5] = 7;
	if (soda_punched_watch(room, 2 * MIB))
		_exit(1);
	info.si_addr = room;
	for (int i = 0; i < 2; i++) /* the first lets go of the handler, the second ends us */
		if (syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &info))
			_exit(2);
	_exit(room[5] == 7 ? 3 : 4);
}

/* The same of memory that nobody has touched: the server goes on, and holes are still filled. */
static void hear_of_broken(void)
{
	uint8_t *room = mmap(NULL, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *map;
	siginfo_t info = { .si_signo = SIGBUS, .si_code = BUS_MCEERR_AO };
	int fd = memfd_create("hole", MFD_CLOEXEC);

	signal(SIGBUS, SIG_DFL);
	room += -(uintptr_t)room % SODA_STORE_BLOCK;
	map = mmap(room, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (ftruncate(fd, 4096) || soda_punched_watch(map, 4 * MIB))
		_exit(1);
	info.si_addr = map;
	if (syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &info))
		_exit(2);
	alarm(20);
	_exit(map[3 * MIB] ? 3 : 0);
}

static int run_child(void (*touch)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid)
		touch();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void check_broken(void **state)
{
	int status = run_child(touch_broken);

	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) > 4); /* a sanitizer's exit */
}

static void check_heard_of_broken(void **state)
{
	int status = run_child(hear_of_broken);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void check_hole(void **state)
{
	int status = run_child(touch_hole);

	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) > 4); /* a sanitizer's exit */
	if (WIFSIGNALED(status))
		assert_int_equal(WTERMSIG(status), SIGBUS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(check_costs, set_up),
		cmocka_unit_test_setup(check_capacity, set_up),
		cmocka_unit_test_setup(check_apart, set_up),
		cmocka_unit_test_setup(check_quota, set_up),
		cmocka_unit_test_setup(check_no_memory_left, set_up),
		cmocka_unit_test_setup(check_populated, set_up),
		cmocka_unit_test_setup(check_seals, set_up),
		cmocka_unit_test_setup(check_frozen, set_up),
		cmocka_unit_test(check_hole),
		cmocka_unit_test(check_broken),
		cmocka_unit_test(check_heard_of_broken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
