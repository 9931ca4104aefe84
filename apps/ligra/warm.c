/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/warm.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

int warm_up(uint64_t bytes, struct soda_graph_error *err)
{
	volatile char *p;

	if (!bytes)
		return 0;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return soda_graph_fail(err, ENOMEM,
				       "--warm %llu: there is not so much memory; name less",
				       (unsigned long long)bytes);
	/* Small pages, as those of the page buffer and the page cache are. */
	madvise((void *)(uintptr_t)p, bytes, MADV_NOHUGEPAGE);
	for (uint64_t i = 0; i < bytes; i += PAGE)
		p[i] = 1;
	munmap((void *)(uintptr_t)p, bytes);
	return 0;
}
