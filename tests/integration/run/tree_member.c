/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that knows nothing of SODA: tree_member MIB ROUNDS [SECONDS].  Fills that much memory,
 * reads and changes pages of it in an order of its own, checks all of it, and then holds it.
 * 0; 3: a wrong byte.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t pages = argc > 1 ? strtoul(argv[1], NULL, 10) << 8 : 0;
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 0, seed = (unsigned)getpid();
	char *p = malloc(pages << 12);
	uint64_t *expected = calloc(pages, sizeof(*expected));

	if (!pages || !p || !expected)
		return 2;
	for (size_t i = 0; i < pages; i++)
		*(uint64_t *)(p + (i << 12)) = expected[i] = i * 0x9e3779b97f4a7c15u;
	for (size_t n = 0; n < rounds * pages; n++) {
		size_t i = (size_t)rand_r(&seed) % pages;

		if (*(uint64_t *)(p + (i << 12)) != expected[i])
			return 3;
		if (n % 3 == 0)
			*(uint64_t *)(p + (i << 12)) = expected[i] = n;
	}
	for (size_t i = 0; i < pages; i++)
		if (*(uint64_t *)(p + (i << 12)) != expected[i])
			return 3;
	puts("right");
	fflush(stdout);
	if (argc > 3)
		sleep((unsigned)atoi(argv[3]));
	free(expected);
	free(p);
	return 0;
}
