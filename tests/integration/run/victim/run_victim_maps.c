/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on mappings: the same ones on fabric memory and on the kernel's own must end alike. */
#include "run_victim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { NOTES = 256 };

static int notes[2][NOTES], noted[2], which;

static void note(int value)
{
	CHECK(noted[which] < NOTES);
	notes[which][noted[which]++] = value;
}

#define NOTE_CALL(call) note((call) == -1 ? errno : 0)
#define NOTE_MAP(call) note((call) == MAP_FAILED ? errno : 0)

static unsigned char *map(size_t bytes, int flags)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
		       0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* A hole in the middle of a chunk: what is beside it is done, and the hole is told of. */
static void around_a_hole(unsigned char *p)
{
	unsigned char vec[16], *hole = p + MIB;

	NOTE_CALL(munmap(hole, 8 * PAGE));
	NOTE_CALL(madvise(hole - 2 * PAGE, 12 * PAGE, MADV_DONTNEED));
	note(hole[-PAGE]);
	note(hole[9 * PAGE]);
	note(hole[-3 * PAGE]);
	note(hole[10 * PAGE]);
	NOTE_CALL(madvise(p, 0, MADV_DONTNEED));
	NOTE_CALL(madvise(p, MIB, 12345));
	NOTE_CALL(madvise(p + 1, MIB, MADV_DONTNEED));
	NOTE_CALL(msync(p, 2 * MIB, MS_SYNC));
	NOTE_CALL(msync(p, MIB, MS_SYNC));
	NOTE_CALL(msync(p, MIB, 1 << 6));
	NOTE_CALL(msync(p, MIB, MS_SYNC | MS_ASYNC));
	NOTE_CALL(mincore(hole, 4 * PAGE, vec));
	NOTE_CALL(mincore(p + 1, PAGE, vec));
	NOTE_CALL(mprotect(hole - PAGE, 4 * PAGE, PROT_READ));
	note(faults(hole - PAGE, true));
	NOTE_CALL(mprotect(hole - PAGE, PAGE, PROT_READ | PROT_WRITE));
	note(faults(hole - PAGE, true));
	NOTE_CALL(mprotect(p, PAGE, 0x1000));
	NOTE_CALL(mprotect(p, 0, PROT_READ));
	NOTE_CALL(mlock(hole, PAGE));
	NOTE_CALL(mlock(p, PAGE));
	NOTE_CALL(munlock(p, PAGE));
	NOTE_CALL(munlock(hole, PAGE));
	NOTE_CALL(mlock2(p, PAGE, 0x80));
	NOTE_MAP(mremap(hole, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE));
	NOTE_MAP(mremap(p, MIB, 0, 0));
	NOTE_MAP(mremap(p + 1, MIB, MIB, 0));
	NOTE_MAP(mremap(p, MIB, 2 * MIB, 0)); /* there is something behind it */
}

/* DONTNEED is not about protection, and leaves it as it is. */
static void read_only(unsigned char *p)
{
	NOTE_CALL(mprotect(p + PAGE, 3 * PAGE, PROT_READ));
	note(p[PAGE] != 0);
	NOTE_CALL(madvise(p, 6 * PAGE, MADV_DONTNEED));
	for (int i = 0; i < 7; i++)
		note(p[i * PAGE]);
	for (int i = 0; i < 5; i++)
		note(faults(p + i * PAGE + 64, true));
	NOTE_CALL(mprotect(p, 6 * PAGE, PROT_READ | PROT_WRITE));
	note(faults(p + PAGE, true));
}

/* Something new in a hole is there to stay. */
static void filled_again(unsigned char *p)
{
	unsigned char *q;

	NOTE_MAP(mmap(p, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		      -1, 0));
	note(p[PAGE]);
	memset(p, 77, 8 * PAGE);
	q = map(2 * MIB, 0);
	memset(q, 1, 2 * MIB);
	note(p[0] + p[8 * PAGE - 1]);
	CHECK(!munmap(q, 2 * MIB));
	NOTE_CALL(madvise(p, 8 * PAGE, MADV_DONTNEED));
	note(p[0]);
}

/* At least 64 KiB of 4 MiB that nobody has touched yet. */
static void closed_in_part(unsigned char *p)
{
	NOTE_CALL(mprotect(p, 4 * MIB, PROT_NONE));
	for (int i = 0; i < 64; i++) { /* page by page, as some allocators do */
		CHECK(!mprotect(p + i * 65536 + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE));
		p[i * 65536 + 4 * PAGE] = (unsigned char)i;
	}
	NOTE_CALL(mlock(p + 65536 + PAGE, PAGE));
	NOTE_CALL(munlock(p + 65536 + PAGE, PAGE));
	for (int i = 0; i < 64; i++)
		note(p[i * 65536 + 4 * PAGE]);
	note(faults(p + 65536 * 2 + PAGE, true));
	NOTE_CALL(munmap(p + 3 * MIB + 65536 - PAGE, PAGE));
	NOTE_CALL(madvise(p, MIB, MADV_DONTNEED));
	note(p[4 * PAGE]);
	note(p[MIB + 4 * PAGE]);
	NOTE_CALL(mprotect(p, 3 * MIB, PROT_READ | PROT_WRITE));
	note(p[MIB + 4 * PAGE] + p[MIB + 5 * PAGE]);
}

/* Locked pages are not given up, and the kernel finds them, also where it stores to them. */
static void locked_pages(unsigned char *p)
{
	int fd = memfd_create("stored", MFD_CLOEXEC);

	CHECK(fd >= 0 && !ftruncate(fd, MIB) && pwrite(fd, "stored", 6, MIB / 2) == 6);
	CHECK(!mprotect(p + MIB, 4 * PAGE, PROT_READ));
	NOTE_CALL(mlock(p + MIB - 4 * PAGE, 12 * PAGE));
	NOTE_CALL(syscall(SYS_pread64, fd, p + MIB - 4 * PAGE, 4 * PAGE, 0L));
	NOTE_CALL(syscall(SYS_pread64, fd, p + MIB + 4 * PAGE, 4 * PAGE, 0L));
	NOTE_CALL(syscall(SYS_pread64, fd, p + MIB, PAGE, 0L));
	NOTE_CALL(munlock(p + MIB - 4 * PAGE, 12 * PAGE));
	CHECK(!mprotect(p + MIB, 4 * PAGE, PROT_READ | PROT_WRITE));
	NOTE_CALL(mlock(p, MIB));
	NOTE_CALL(syscall(SYS_pread64, fd, p, (size_t)MIB, 0L));
	note(p[0] + p[MIB / 2] + p[MIB - 1]);
	CHECK(!munlock(p, MIB) && !close(fd));
	memset(p, 9, MIB);
	NOTE_CALL(mlock(p, MIB));
	NOTE_CALL(madvise(p, MIB, MADV_DONTNEED));
	NOTE_CALL(madvise(p, MIB, MADV_FREE));
	NOTE_CALL(madvise(p, MIB, MADV_PAGEOUT));
	note(p[0] + p[MIB - 1]);
	NOTE_CALL(munlock(p, MIB));
	NOTE_CALL(madvise(p, MIB, MADV_DONTNEED));
	note(p[0] + p[MIB - 1]);
	NOTE_CALL(mlock2(p, MIB, MLOCK_ONFAULT));
	NOTE_CALL(munlock(p, MIB));
}

/* Source and target are of one kind; each of 2 MiB. */
static void moves(unsigned char *p, unsigned char *q)
{
	unsigned char *r;

	memset(p, 3, 2 * MIB);
	memset(q, 4, 2 * MIB);
	NOTE_MAP(mremap(p, MIB, MIB, MREMAP_FIXED, q));
	NOTE_MAP(mremap(p, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, q + 1));
	NOTE_MAP(mremap(p, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE));
	NOTE_MAP(mremap(p, MIB, MIB, 64));
	NOTE_MAP(mremap(p, MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
	r = mremap(p, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, q + PAGE);
	note(r == q + PAGE);
	note(q[0] + q[PAGE] * 10 + q[MIB + PAGE - 1] * 100 + q[MIB + PAGE]);
	note(faults(p, false));
	NOTE_CALL(mprotect(p + MIB, MIB, PROT_READ));
	r = mremap(p + MIB, MIB, MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
	note(r != MAP_FAILED);
	note(r[0] + r[MIB - 1] * 10 + p[MIB] + p[2 * MIB - 1]);
	note(faults(r, true) + faults(p + MIB, true));
	r = mremap(r, MIB, 2 * MIB, MREMAP_MAYMOVE);
	note(r != MAP_FAILED);
	note(r[0] + r[MIB - 1] + r[2 * MIB - 1]);
	note(faults(r, true) + faults(r + 2 * MIB - 1, true));
	NOTE_CALL(mprotect(r, MIB / 2, PROT_READ | PROT_WRITE));
	NOTE_MAP(mremap(r, 2 * MIB, 3 * MIB, MREMAP_MAYMOVE)); /* two of them */
	NOTE_CALL(mprotect(r, 2 * MIB, PROT_NONE));
	r = mremap(r, 2 * MIB, 4 * MIB, MREMAP_MAYMOVE);
	note(r != MAP_FAILED && faults(r, false) && faults(r + 3 * MIB, false));
	NOTE_CALL(mprotect(r, 4 * MIB, PROT_READ | PROT_WRITE));
	note(r[MIB / 2] + r[MIB - 1] + r[3 * MIB]);
	NOTE_CALL(munmap(r, 4 * MIB));
	NOTE_CALL(munmap(p + MIB, MIB));
	NOTE_CALL(munmap(q, 2 * MIB));
}

static void all_calls(unsigned char *p)
{
	for (size_t i = 0; i < 4 * MIB / PAGE; i++)
		memset(p + i * PAGE, (int)(i % 200) + 1, PAGE);
	around_a_hole(p);
	filled_again(p + MIB);
	read_only(p + 2 * MIB);
	NOTE_CALL(munmap(p + 3 * MIB, 0));
	NOTE_CALL(munmap(p + 3 * MIB + 1, PAGE));
	NOTE_CALL(munmap(p + 3 * MIB, MIB));
	NOTE_CALL(munmap(p + 3 * MIB, MIB));
	note(faults(p + 4 * MIB - 1, false));
	note(p[3 * MIB - 1]);
}

void case_linux(void)
{
	unsigned char *local = map(4 * MIB, MAP_NORESERVE), *p = map(4 * MIB, 0);

	CHECK(in_fam(p) && !in_fam(local));
	which = 0;
	all_calls(local);
	closed_in_part(map(4 * MIB, MAP_NORESERVE));
	locked_pages(local);
	moves(map(2 * MIB, MAP_NORESERVE), map(2 * MIB, MAP_NORESERVE));
	which = 1;
	all_calls(p);
	closed_in_part(map(4 * MIB, 0));
	locked_pages(p);
	moves(map(2 * MIB, 0), map(2 * MIB, 0));
	CHECK(noted[0] == noted[1]);
	for (int i = 0; i < noted[0]; i++)
		if (notes[0][i] != notes[1][i]) {
			fprintf(stderr, "note %d: the kernel's %d, fabric memory's %d\n", i,
				notes[0][i], notes[1][i]);
			_exit(99);
		}
	CHECK(!munmap(p, 3 * MIB) && !munmap(local, 3 * MIB));
}

/* Chunks that are several mappings to the kernel come and go like others. */
void case_split(void)
{
	unsigned char *p = map(4 * MIB, 0), *ballast = malloc(BIG);

	CHECK(in_fam(p) && ballast && in_fam(ballast));
	fill(p, 4 * MIB, 3);
	for (size_t i = 0; i < 64; i++)
		CHECK(!mprotect(p + i * 64 * 1024 + (i % 16) * PAGE, PAGE, PROT_READ));
	for (unsigned round = 0; round < 3; round++) {
		fill(ballast, BIG, round);
		verify(ballast, BIG, round);
		verify(p, 4 * MIB, 3);
		CHECK(faults(p + (round % 16) * (64 * 1024 + PAGE), true));
		for (size_t i = 1; i < 64; i += 2) /* a neighbour of the protected page */
			p[i * 64 * 1024 + (i % 16 ^ 1) * PAGE + 1] = (unsigned char)round;
	}
	for (size_t i = 1; i < 64; i += 2)
		CHECK(p[i * 64 * 1024 + (i % 16 ^ 1) * PAGE + 1] == 2);
	CHECK(!munmap(p, 4 * MIB));
	free(ballast);
}

/* Load and store in order, as what learns from it expects, with a page's worth of steps. */
static void go_through(unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i += 512)
		p[i]++;
}

/* Closed, and opened page by page, as some allocators do; what is not opened is not looked at. */
static void open_slowly(unsigned char *ballast)
{
	enum { N = 8 * MIB };
	unsigned char *p = map(N, 0);

	memset(p, 1, N);
	CHECK(!mprotect(p, N, PROT_NONE));
	for (size_t page = 0; page < N; page += 2 * PAGE) {
		CHECK(!mprotect(p + page, PAGE, PROT_READ | PROT_WRITE));
		for (size_t i = 0; i < PAGE; i += 512)
			p[page + i] += (unsigned char)(page / PAGE);
	}
	for (int i = 0; i < 2; i++) {
		go_through(ballast, BIG);
		for (size_t page = 0; page < N; page += 2 * PAGE)
			for (size_t k = 0; k < PAGE; k += 512)
				CHECK(p[page + k]++ ==
				      (unsigned char)(page / PAGE + 1 + (size_t)i));
	}
	CHECK(!munmap(p, N));
}

/*
 * What nobody may access is not brought, and not looked at by whoever writes back: beside a stream
 * that stores to what it loads, locked in memory, and while others are at work.
 */
void case_closed(void)
{
	enum { N = 24 * MIB, HOLE = 2 * MIB };
	unsigned char *p = map(N, 0), *hole = p + N / 2, *locked = map(MIB, 0);
	unsigned char *ballast = malloc(BIG), vec;

	CHECK(in_fam(p) && in_fam(locked) && ballast && in_fam(ballast));
	fill(p, N, 3);
	memset(locked, 7, MIB);
	CHECK(!mlock(locked, MIB));
	memset(locked, 8, MIB);
	CHECK(!mprotect(locked, MIB, PROT_NONE));
	for (int i = 0; i < 4; i++)
		go_through(p, N);
	CHECK(!mprotect(hole, HOLE, PROT_NONE));
	for (int i = 0; i < 4; i++) {
		go_through(p, N / 2);
		go_through(hole + HOLE, N / 2 - HOLE);
		go_through(ballast, BIG);
		CHECK(faults(hole + MIB, false) && faults(locked, true));
	}
	open_slowly(ballast);
	CHECK(!mprotect(hole, HOLE, PROT_READ | PROT_WRITE));
	for (size_t i = 0; i < N; i += 512)
		CHECK(p[i] == (unsigned char)((i % 64 ? 0 : 3 + i / 64 * 7 + (i >> 16)) +
					      (p + i >= hole && p + i < hole + HOLE ? 4 : 8)));
	CHECK(!mprotect(locked, MIB, PROT_READ | PROT_WRITE));
	for (size_t i = 0; i < MIB; i++)
		CHECK(locked[i] == 8);
	/* what is unmapped is not locked any more: whoever comes there next can lock it anew */
	for (int i = 0; i < 20; i++) {
		CHECK(!munmap(locked, MIB));
		locked = map(MIB, 0);
		CHECK(!mlock(locked, MIB) && !mincore(locked + MIB / 2, 1, &vec) && vec & 1);
	}
	CHECK(!munlock(locked, MIB) && !munmap(locked, MIB) && !munmap(p, N));
	free(ballast);
}

/* All memory is locked, by which fabric memory is not: it goes and comes as before. */
void case_mlockall(void)
{
	enum { N = 24 * MIB };
	unsigned char *p = map(N, 0), *later;

	CHECK(in_fam(p));
	fill(p, N, 3);
	if (mlockall(MCL_CURRENT | MCL_FUTURE)) /* an ordinary user may lock little */
		CHECK(geteuid() && (errno == ENOMEM || errno == EPERM));
	for (int i = 0; i < 2; i++)
		go_through(p, N);
	later = map(N, 0);
	CHECK(in_fam(later));
	fill(later, N, 5);
	for (size_t i = 0; i < N; i += 512)
		CHECK(p[i] == (unsigned char)((i % 64 ? 0 : 3 + i / 64 * 7 + (i >> 16)) + 2));
	CHECK(!munmap(p, N));
	p = map(N, 0);
	for (size_t i = 0; i < N; i += 512)
		CHECK(!p[i]);
	CHECK(!munlockall() && !munmap(p, N) && !munmap(later, N));
}
