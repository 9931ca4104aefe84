/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit/fakes/graph_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_soda fake_soda = { .allocs_left = -1 };

int soda_init(const struct soda_config *cfg)
{
	fake_soda.threads = cfg->threads;
	return fake_soda.init_result;
}

void *soda_alloc(size_t bytes, unsigned flags)
{
	if (!bytes || flags || !fake_soda.allocs_left) {
		errno = fake_soda.allocs_left ? EINVAL : ENOSPC;
		return NULL;
	}
	if (fake_soda.allocs_left > 0)
		fake_soda.allocs_left--;
	fake_soda.live++;
	return calloc(bytes, 1);
}

/* The file of that path on this machine. */
void *soda_alloc_file(const char *name, size_t bytes, unsigned flags, size_t *bytes_p)
{
	FILE *f = fopen(name, "r");
	char *object = NULL;
	long size;

	if (f && !fseek(f, 0, SEEK_END) && (size = ftell(f)) > 0 && flags == SODA_READ_ONLY) {
		rewind(f);
		object = soda_alloc((size_t)size, 0);
		*bytes_p = (size_t)size;
		if (object && fread(object, 1, (size_t)size, f) != (size_t)size)
			abort();
	}
	if (f)
		fclose(f);
	return object;
}

void soda_free(void *p)
{
	if (!p)
		return;
	fake_soda.live--;
	free(p);
}

int soda_set_name(void *obj, const char *name)
{
	return obj && strlen(name) < 256 ? 0 : -EINVAL;
}

int soda_advise(void *addr, size_t bytes, int advice)
{
	fake_soda.sequential += advice == SODA_SEQUENTIAL;
	return addr && bytes ? 0 : -EINVAL;
}

int soda_prefetch(const void *addr, size_t bytes)
{
	__atomic_fetch_add(&fake_soda.prefetches, 1, __ATOMIC_RELAXED);
	return addr && bytes ? 0 : -EINVAL;
}

int soda_prefetchv(const struct iovec *ranges, int n)
{
	int ret = 0;

	for (int i = 0; i < n && !ret; i++)
		ret = soda_prefetch(ranges[i].iov_base, ranges[i].iov_len);
	return ret;
}

int soda_get_stats(struct soda_stats *out, size_t out_bytes)
{
	memset(out, 0, out_bytes);
	return 0;
}

const char *soda_last_error(void)
{
	return "the fake says so";
}
