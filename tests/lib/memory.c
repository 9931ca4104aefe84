/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/memory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGE = 4096, PIECE = 1 << 20, VALUES_OF_CIPHERTEXT = 250 };

void memory_skip_with_sanitizers(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("SKIP: a sanitizer maps terabytes, all of which would be read\n");
	skip();
#endif
}

/* Says something of a piece of memory; adds to *sum; true: it has changed the piece. */
typedef bool look_fn(uint8_t *data, size_t bytes, const char *mark, size_t *sum);

static void look_at(int mem, unsigned long from, unsigned long end, look_fn *look, const char *mark,
		    size_t *sum)
{
	static uint8_t data[PIECE];

	for (; from < end; from += PIECE) {
		ssize_t n = pread(mem, data, end - from < PIECE ? end - from : PIECE, (off_t)from);

		if (n > 0 && look(data, (size_t)n, mark, sum))
			assert_int_equal(pwrite(mem, data, (size_t)n, (off_t)from), n);
	}
}

/* All that the process may write. */
static size_t look_at_all(pid_t pid, look_fn *look, const char *mark)
{
	char path[64], line[256], rights[5];
	unsigned long from, end;
	size_t sum = 0;
	FILE *maps;
	int mem;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "r");
	assert_non_null(maps);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	mem = open(path, O_RDWR | O_CLOEXEC);
	assert_true(mem >= 0);
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &from, &end, rights) == 3 && rights[1] == 'w')
			look_at(mem, from, end, look, mark, &sum);
	close(mem);
	fclose(maps);
	return sum;
}

static bool count_marks(uint8_t *data, size_t bytes, const char *mark, size_t *sum)
{
	for (size_t at = 0; at + MEMORY_MARK <= bytes; at += MEMORY_MARK)
		*sum += memcmp(data + at, mark, MEMORY_MARK) == 0;
	return false;
}

size_t memory_count_marks(pid_t pid, const char mark[MEMORY_MARK])
{
	return look_at_all(pid, count_marks, mark);
}

static size_t keys_in(int mem, unsigned long from, unsigned long end, const uint8_t *hidden)
{
	static uint8_t data[PIECE];
	size_t found = 0;

	for (; from < end; from += PIECE - MEMORY_KEY) {
		size_t wanted = end - from < PIECE ? end - from : PIECE;
		ssize_t n = pread(mem, data, wanted, (off_t)from);

		for (ssize_t at = 0; at + MEMORY_KEY <= n; at++) {
			int k = 0;

			while (k < MEMORY_KEY && (data[at + k] ^ MEMORY_HIDE) == hidden[k])
				k++;
			found += k == MEMORY_KEY;
		}
		explicit_bzero(data, sizeof(data));
		if (end - from <= PIECE)
			break;
	}
	return found;
}

size_t memory_count_keys(pid_t pid, const unsigned char hidden[MEMORY_KEY], const char *without)
{
	enum { MOST = 64 << 20 }; /* more is reserved, and not the place of keys */
	unsigned long from = 0, end = 0, a, b;
	char path[64], line[512], flag[8], may = '-', first;
	size_t found = 0;
	FILE *maps;
	int mem;

	snprintf(flag, sizeof(flag), " %s ", without);
	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	maps = fopen(path, "re");
	assert_non_null(maps);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	mem = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(mem >= 0);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %c", &a, &b, &first) == 3) {
			from = a;
			end = b;
			may = first;
		} else if (!strncmp(line, "VmFlags:", 8) && may == 'r' && end - from <= MOST &&
			   !strstr(line, flag) && !strstr(line, " io") && !strstr(line, " um")) {
			found += keys_in(mem, from, end, hidden);
		}
	}
	close(mem);
	fclose(maps);
	return found;
}

static bool is_ciphertext(const uint8_t *page)
{
	bool seen[256] = { false };
	unsigned values = 0;

	for (size_t i = 0; i < PAGE; i++) {
		values += !seen[page[i]];
		seen[page[i]] = true;
	}
	return values >= VALUES_OF_CIPHERTEXT;
}

static bool spoil(uint8_t *data, size_t bytes, const char *mark, size_t *sum)
{
	size_t before = *sum;

	for (size_t at = 0; at + PAGE <= bytes; at += PAGE)
		if (is_ciphertext(data + at)) {
			data[at + 17] ^= 4;
			++*sum;
		}
	return *sum > before;
}

size_t memory_spoil_ciphertext(pid_t pid)
{
	return look_at_all(pid, spoil, NULL);
}
