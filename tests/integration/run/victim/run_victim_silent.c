/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings that go, or become zeros.  While the server is silent: as long as the file $SILENCE is
 * there, it does not answer what is written back.  And how much of them the server has given back,
 * which the command $SERVER_SAYS tells.
 */
#include "run_victim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
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

/* From now on the server is silent. */
static void silence(void)
{
	int fd = open(getenv("SILENCE"), O_WRONLY | O_CREAT, 0600);

	CHECK(fd >= 0 && !close(fd));
}

void case_silent(void)
{
	unsigned char *gone = map(), *zeroed = map(), *other = map();

	fill(gone, SIZE, 1);
	fill(zeroed, SIZE, 2);
	fill(other, SIZE, 3);
	silence();
	CHECK(madvise(gone, SIZE, MADV_PAGEOUT) == -1);
	CHECK(madvise(zeroed, SIZE, MADV_PAGEOUT) == -1);
	CHECK(!munmap(gone, SIZE));
	CHECK(!madvise(zeroed, SIZE, MADV_DONTNEED));
	check_zeros(zeroed);
	check_new_ones(10);
	CHECK(!unlink(getenv("SILENCE")));
	check_new_ones(50);
	check_zeros(zeroed);
	verify(other, SIZE, 3);
}

/* How much of the range can be read: what `soda run` has given back cannot. */
static size_t readable(const void *p, size_t bytes)
{
	uintptr_t from = (uintptr_t)p, to = from + bytes;
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long begin, end;
	char line[512], read;
	size_t n = 0;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %c", &begin, &end, &read) == 3 && read == 'r' &&
		    begin < to && end > from)
			n += (end < to ? end : to) - (begin > from ? begin : from);
	fclose(maps);
	return n;
}

/* What was unmapped meanwhile goes back to the server later, although nothing more is mapped. */
void case_left(void)
{
	unsigned char *gone = map();

	fill(gone, SIZE, 1);
	silence();
	CHECK(madvise(gone, SIZE, MADV_PAGEOUT) == -1);
	CHECK(!munmap(gone, SIZE));
	CHECK(readable(gone, SIZE) > 0);
	CHECK(!unlink(getenv("SILENCE")));
	for (int i = 0; i < 2000 && readable(gone, SIZE); i++)
		poll(NULL, 0, 10);
	CHECK(readable(gone, SIZE) == 0);
}

/* How many bytes the server was told to give back, and has. */
static unsigned long long given_back(void)
{
	static const char name[] = "\"bytes_discarded\":";
	static char text[65536];
	FILE *f = popen(getenv("SERVER_SAYS"), "r");
	const char *value;
	size_t n;

	CHECK(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = 0;
	CHECK(!pclose(f));
	value = strstr(text, name);
	CHECK(value);
	return strtoull(value + strlen(name), NULL, 10);
}

static void await_given_back(unsigned long long bytes)
{
	for (int i = 0; i < 600 && given_back() < bytes; i++)
		poll(NULL, 0, 100);
	CHECK(given_back() >= bytes);
}

/*
 * The program runs on, and maps nothing more.  Each mapping is filled before the next, so that the
 * page buffer has little of it when it goes.
 */
void case_returned(void)
{
	static unsigned char *p[3 * MAPS];
	const unsigned long long most = (MAPS - 4) * (unsigned long long)SIZE, from = given_back();
	int (*end)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "soda_shutdown");
	unsigned n = 3 * MAPS;

	for (unsigned i = 0; i < n; i++) {
		p[i] = map();
		fill(p[i], SIZE, i);
	}
	for (unsigned i = 0; i < MAPS; i++)
		CHECK(!munmap(p[i], SIZE));
	await_given_back(from + most);
	for (unsigned i = MAPS; i < 2 * MAPS; i++) {
		CHECK(!madvise(p[i], SIZE, MADV_DONTNEED)); /* zeros here; the server keeps it */
		check_zeros(p[i]);
		CHECK(!munmap(p[i], SIZE));
	}
	await_given_back(from + 2 * most);
	check_new_ones(100);
	for (unsigned i = 2 * MAPS; i < n; i++) {
		verify(p[i], SIZE, i);
		CHECK(!munmap(p[i], SIZE));
	}
	CHECK(end && !end()); /* with the last of them on the server still */
}
