/* SPDX-License-Identifier: BSD-3-Clause */
/* A program's own things: stacks, a userfaultfd, a heap that it opens part by part. */
#include "run_victim.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { STACK = 2 * MIB };

static unsigned char *map(size_t bytes, int prot, int flags)
{
	void *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static volatile int seen;

static void on_signal(int sig)
{
	volatile char room[16384];

	memset((char *)room, sig, sizeof(room));
	seen += room[100] == sig;
}

/* It is what the program is told that it has, and what it can go back to. */
static void alternate(void *stack)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	stack_t s = { .ss_sp = stack, .ss_size = STACK }, none = { .ss_flags = SS_DISABLE }, old;

	seen = 0;
	CHECK(!sigaltstack(&s, NULL) && !sigaction(SIGUSR1, &sa, NULL) && !raise(SIGUSR1));
	CHECK(!sigaltstack(NULL, &old) && old.ss_sp == stack && old.ss_size == STACK);
	CHECK(!sigaltstack(&none, &old) && old.ss_sp == stack && !old.ss_flags);
	CHECK(!sigaltstack(NULL, &s) && s.ss_flags == SS_DISABLE);
	CHECK(!sigaltstack(&old, NULL) && !raise(SIGUSR1) && seen == 2);
	old.ss_size = 100;
	CHECK(sigaltstack(&old, NULL) == -1 && errno == ENOMEM && !raise(SIGUSR1) && seen == 3);
}

/* Faults of its own on it, when all of fabric memory has left. */
static void *on_alternate(void *stack)
{
	unsigned char *p = map(BIG, PROT_READ | PROT_WRITE, 0);

	alternate(stack);
	fill(p, BIG, 8);
	CHECK(!raise(SIGUSR1) && seen == 4);
	verify(p, BIG, 8);
	CHECK(!munmap(p, BIG));
	return NULL;
}

/* One that is local, one in fabric memory; those of threads, which leave them to their end. */
void case_alternate(void)
{
	unsigned char *local = map(STACK, PROT_READ | PROT_WRITE, MAP_STACK), *fam;
	pthread_t thread;

	CHECK(!in_fam(local));
	on_alternate(local);
	fam = map(STACK, PROT_READ | PROT_WRITE, 0);
	CHECK(in_fam(fam));
	on_alternate(fam);
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&thread, NULL, on_alternate, fam) &&
		      !pthread_join(thread, NULL));
}

static ucontext_t back, there;

static void work(void)
{
	volatile char room[64 << 10];

	memset((char *)room, 1, sizeof(room));
	swapcontext(&there, &back);
	seen += room[5];
}

static void coroutine(void *stack)
{
	seen = 0;
	CHECK(!getcontext(&there));
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK;
	there.uc_link = &back;
	makecontext(&there, work, 0);
	CHECK(!swapcontext(&back, &there) && !seen);
	CHECK(!swapcontext(&back, &there) && seen == 1);
}

void case_coroutine(void)
{
	coroutine(map(STACK, PROT_READ | PROT_WRITE, MAP_NORESERVE));
	puts("local");
	fflush(stdout);
	coroutine(map(STACK, PROT_READ | PROT_WRITE, 0));
	puts("both");
}

/* 0, or the error of a registration with a userfaultfd of the program's own. */
static int registered(int fd, void *p, size_t bytes)
{
	struct uffdio_register r = { { (unsigned long)p, bytes }, UFFDIO_REGISTER_MODE_MISSING, 0 };

	return ioctl(fd, UFFDIO_REGISTER, &r) ? errno : 0;
}

void case_own_uffd(void)
{
	unsigned char *fam = map(4 * MIB, PROT_READ | PROT_WRITE, 0);
	unsigned char *local = map(4 * MIB, PROT_READ | PROT_WRITE, MAP_NORESERVE);
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	CHECK(in_fam(fam) && !in_fam(local));
	if (fd < 0)
		return; /* not for this user */
	CHECK(!ioctl(fd, UFFDIO_API, &api));
	CHECK(registered(fd, fam, 4 * MIB) == EBUSY);
	CHECK(registered(fd, local, 4 * MIB) == 0);
	fill(fam, 4 * MIB, 3);
	verify(fam, 4 * MIB, 3);
	close(fd);
}

/* Addresses first, and memory there later, in both ways that there are. */
void case_reserved(void)
{
	unsigned char *heap = map(256 * (size_t)MIB, PROT_NONE, MAP_NORESERVE);
	unsigned char *part = heap + 64 * MIB;

	CHECK(!in_fam(heap) && faults(heap, false));
	CHECK(!mprotect(heap, 12 * MIB, PROT_READ | PROT_WRITE));
	fill(heap, 12 * MIB, 4);
	puts("a little");
	fflush(stdout);
	CHECK(mmap(part, 12 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0) == part);
	fill(part, 12 * MIB, 5);
	CHECK(!mprotect(heap + 32 * MIB, 12 * MIB, PROT_READ | PROT_WRITE)); /* it is said once */
	verify(heap, 12 * MIB, 4);
	verify(part, 12 * MIB, 5);
	CHECK(!munmap(heap, 256 * (size_t)MIB));
}

/* All of it open, and so much of it that it cannot be meant but as a heap. */
void case_at_once(void)
{
	unsigned char *heap = map(1024 * (size_t)MIB, PROT_READ | PROT_WRITE, MAP_NORESERVE);

	CHECK(!in_fam(heap));
	fill(heap, 4 * MIB, 6);
	verify(heap, 4 * MIB, 6);
}
