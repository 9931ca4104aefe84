/* SPDX-License-Identifier: BSD-3-Clause */
/* A child that goes on with what its parent has. */
#include "run_victim.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void expect_end(pid_t pid, int wanted)
{
	int status;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == wanted);
}

/* It grows, moves, and is given away. */
static void child_blocks(unsigned char *p)
{
	unsigned char *q = realloc(p, BIG + MIB);

	CHECK(q && !in_fam(q));
	verify(q, BIG, 7);
	fill(q, BIG + MIB, 8);
	verify(q, BIG + MIB, 8);
	free(q);
}

/* By system calls alone, before any of it was touched. */
static void child_calls(unsigned char *p)
{
	int fd = memfd_create("copy", MFD_CLOEXEC);
	unsigned char *q;

	CHECK(fd >= 0 && write(fd, p, BIG) == BIG);
	q = mmap(NULL, BIG, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(q != MAP_FAILED);
	verify(q, BIG, 7);
	memset(p, 0, MIB);
	CHECK(pread(fd, p, BIG, 0) == BIG);
	verify(p, BIG, 7);
	close(fd);
}

/* As what starts a worker does, so that it has nothing of its parent's: and a child of it, too. */
static void child_closes(unsigned char *p)
{
	pid_t pid;

	CHECK(!close_range(3, ~0u, 0) || errno == ENOSYS);
	for (int fd = 3; fd < 5000; fd++)
		close(fd);
	verify(p, BIG / 2, 7);
	pid = fork();
	if (!pid) {
		closefrom(3);
		verify(p, BIG, 7);
		_exit(0);
	}
	expect_end(pid, 0);
}

/* As a store of keys that keeps a snapshot: all of it to a file, under a name of its own at the
 * end. */
static void child_snapshot(const unsigned char *p, const char *name)
{
	char temporary[80];
	int fd;

	snprintf(temporary, sizeof(temporary), "%s.temporary", name);
	fd = open(temporary, O_CREAT | O_EXCL | O_WRONLY, 0600);
	CHECK(fd >= 0);
	for (size_t at = 0, n; at < BIG; at += n) {
		n = at % (3 * PAGE) + 100 < BIG - at ? at % (3 * PAGE) + 100 : BIG - at;
		CHECK(write(fd, p + at, n) == (ssize_t)n);
	}
	CHECK(!fsync(fd) && !close(fd) && !rename(temporary, name));
}

/* The parent goes on storing, to all of it, from its end on and from its start. */
void case_snapshot(void)
{
	char dir[] = "/tmp/soda-run-XXXXXX", name[64];
	unsigned char *p = calloc(1, BIG), *q = calloc(1, BIG);
	pid_t pid;
	int fd;

	CHECK(p && q && in_fam(p) && in_fam(q) && mkdtemp(dir));
	snprintf(name, sizeof(name), "%s/snapshot", dir);
	for (unsigned round = 0; round < 2; round++) {
		fill(p, BIG, 40 + round);
		pid = fork();
		if (!pid) {
			child_snapshot(p, name);
			_exit(0);
		}
		for (size_t at = BIG; at; at -= MIB)
			fill(p + at - MIB, MIB, 50);
		for (unsigned i = 0; i < 3; i++)
			fill(p, BIG, 60 + i);
		expect_end(pid, 0);
		verify(p, BIG, 62);
		fd = open(name, O_RDONLY);
		CHECK(fd >= 0 && read(fd, q, BIG) == BIG && read(fd, p, 1) == 0);
		verify(q, BIG, 40 + round);
		CHECK(!close(fd) && !unlink(name));
	}
	CHECK(!rmdir(dir));
}

static void child_maps(unsigned char *p)
{
	unsigned char *q;

	CHECK(!madvise(p + MIB, MIB + PAGE, MADV_DONTNEED));
	for (size_t i = 0; i < MIB + PAGE; i++)
		CHECK(p[MIB + i] == 0);
	fill(p, 3 * MIB, 7);
	CHECK(!mprotect(p + 4 * MIB, MIB, PROT_READ));
	CHECK(faults(p + 4 * MIB + 5, true) && !faults(p + 4 * MIB + 5, false));
	CHECK(!mprotect(p + 4 * MIB, MIB, PROT_NONE) && faults(p + 4 * MIB + 5, false));
	CHECK(!mprotect(p + 4 * MIB, MIB, PROT_READ | PROT_WRITE));
	verify(p, BIG, 7);
	q = mremap(p, BIG, BIG + MIB, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && !in_fam(q));
	verify(q, BIG, 7);
	CHECK(!munmap(q, BIG + MIB) && faults(p, false));
}

/* Ranges that were closed and read-only in the parent are so in the child. */
static void child_closed(unsigned char *p)
{
	CHECK(faults(p, false) && faults(p + MIB, true));
	CHECK(!faults(p + 2 * MIB + 1, true));
	CHECK(!mprotect(p, 2 * MIB, PROT_READ | PROT_WRITE));
	verify(p, BIG, 7);
}

static pthread_mutex_t *lock;

/* Waiting at a futex that is there, in threads of the child. */
static void *take(void *arg)
{
	CHECK(!pthread_mutex_lock(lock));
	CHECK(!pthread_mutex_unlock(lock));
	return NULL;
}

static void child_threads(unsigned char *p)
{
	pthread_t t[2];

	lock = (pthread_mutex_t *)(p + BIG / 2);
	CHECK(!pthread_mutex_init(lock, NULL) && !pthread_mutex_lock(lock));
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&t[i], NULL, take, NULL));
	verify(p, BIG / 2, 7);
	CHECK(!pthread_mutex_unlock(lock));
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_join(t[i], NULL));
}

static void child_again(unsigned char *p)
{
	pid_t pid;

	verify(p, MIB, 7);
	fill(p, MIB, 9);
	pid = fork();
	if (!pid) {
		verify(p, MIB, 9);
		fill(p, MIB, 7);
		verify(p, BIG, 7);
		_exit(0);
	}
	fill(p, MIB, 10);
	expect_end(pid, 0);
	verify(p, MIB, 10);
}

/* Another program, whose name and arguments are there. */
static void child_execs(unsigned char *p)
{
	char *text = (char *)p + BIG / 3, *path = (char *)p + BIG / 2;

	execl(path, path, "-c", text, (char *)NULL);
	_exit(98);
}

static void with(void (*child)(unsigned char *), unsigned char *p)
{
	pid_t pid = fork();

	if (!pid) {
		child(p);
		_exit(0);
	}
	expect_end(pid, 0);
}

void case_forks(void)
{
	static void (*const children[])(unsigned char *) = { child_blocks, child_calls,
							     child_threads, child_again,
							     child_closes };
	unsigned char *p = malloc(BIG);

	CHECK(p);
	fill(p, BIG, 7);
	CHECK(in_fam(p));
	for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++)
		with(children[i], p);
	verify(p, BIG, 7);
	strcpy((char *)p + BIG / 3, "exit 0");
	strcpy((char *)p + BIG / 2, "/bin/sh");
	memset(p, 1, BIG / 4); /* they are not here any more */
	with(child_execs, p);
	free(p);
	p = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && in_fam(p));
	fill(p, BIG, 7);
	with(child_maps, p);
	CHECK(!mprotect(p, MIB, PROT_NONE) && !mprotect(p + MIB, MIB, PROT_READ));
	with(child_closed, p);
	CHECK(!munmap(p, BIG));
}
