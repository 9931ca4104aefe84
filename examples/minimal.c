/* SPDX-License-Identifier: BSD-3-Clause */
/* The smallest program on fabric memory: nothing to configure, nothing to start. */
#include <soda.h>
#include <stdio.h>

int main(void)
{
	size_t count = 8 << 20; /* 64 MiB, of which at most 64/3 are resident */
	long *numbers = soda_alloc(count * sizeof(*numbers), 0);
	long sum = 0;

	if (!numbers)
		return fprintf(stderr, "minimal: %s\n", soda_last_error()), 1;
	for (size_t i = 0; i < count; i++)
		numbers[i] = (long)i;
	for (size_t i = 0; i < count; i++)
		sum += numbers[i];
	printf("%ld\n", sum);
	soda_free(numbers);
	return sum != (long)count * ((long)count - 1) / 2;
}
