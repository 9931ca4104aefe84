/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on mappings: the same ones on fabric memory and on the kernel's own must end alike. */
#include "run_victim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NOTES = 128 };

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
	which = 1;
	all_calls(p);
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
