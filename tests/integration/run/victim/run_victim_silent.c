/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings that go, or become zeros, while the server is silent: as long as the file $SILENCE is
 * there, it does not answer what is written back.
 */
#include "run_victim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SIZE = 2 * MIB, MAPS = 24 };

static unsigned char *map(void)
{
	void *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void check_zeros(const unsigned char *p)
{
	for (size_t i = 0; i < SIZE; i++)
		CHECK(p[i] == 0);
}

/* More than the first pool has room for, so that all of what was unmapped would be given out. */
static void check_new_ones(unsigned seed)
{
	static unsigned char *p[MAPS];

	for (unsigned i = 0; i < MAPS; i++) {
		p[i] = map();
		check_zeros(p[i]);
		fill(p[i], SIZE, seed + i);
	}
	for (unsigned i = 0; i < MAPS; i++) {
		verify(p[i], SIZE, seed + i);
		CHECK(!munmap(p[i], SIZE));
	}
}

void case_silent(void)
{
	const char *silence = getenv("SILENCE");
	unsigned char *gone = map(), *zeroed = map(), *other = map();
	int fd;

	fill(gone, SIZE, 1);
	fill(zeroed, SIZE, 2);
	fill(other, SIZE, 3);
	fd = open(silence, O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0 && !close(fd));
	CHECK(madvise(gone, SIZE, MADV_PAGEOUT) == -1);
	CHECK(madvise(zeroed, SIZE, MADV_PAGEOUT) == -1);
	CHECK(!munmap(gone, SIZE));
	CHECK(!madvise(zeroed, SIZE, MADV_DONTNEED));
	check_zeros(zeroed);
	check_new_ones(10);
	CHECK(!unlink(silence));
	check_new_ones(50);
	check_zeros(zeroed);
	verify(other, SIZE, 3);
}
