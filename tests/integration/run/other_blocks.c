/* SPDX-License-Identifier: BSD-3-Clause */
/* A program whose allocator is a library's: small blocks, a large one, and small ones that grow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 100000, BIG = 32 << 20 };

int main(void)
{
	char **p = malloc(N * sizeof(*p)), *big = malloc(BIG);
	unsigned long sum = 0;

	if (!p || !big)
		return 1;
	memset(big, 3, BIG);
	for (int i = 0; i < N; i++) {
		p[i] = malloc(20 + (size_t)i % 200);
		memset(p[i], i, 20);
	}
	for (int i = 0; i < N; i += 2)
		p[i] = realloc(p[i], 300);
	p[1] = realloc(p[1], 2 << 20);
	for (int i = 0; i < N; i++)
		sum = sum * 31 + (unsigned char)p[i][i % 20] + (unsigned char)big[i * 200];
	for (int i = 0; i < N; i++)
		free(p[i]);
	free(p);
	free(big);
	return printf("%lu\n", sum) < 0;
}
