/* SPDX-License-Identifier: BSD-3-Clause */
#include "registry/wiping.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void soda_wiping_free(void *p)
{
	if (p)
		explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

void *soda_wiping_realloc(void *p, size_t bytes)
{
	size_t had = p ? malloc_usable_size(p) : 0;
	void *more = malloc(bytes);

	if (!more)
		return NULL;
	if (p)
		memcpy(more, p, had < bytes ? had : bytes);
	soda_wiping_free(p);
	return more;
}
