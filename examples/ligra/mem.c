/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An array without elements is an object of one byte, so that NULL means failure alone. */
static size_t at_least_one(size_t bytes)
{
	return bytes ? bytes : 1;
}

int mem_open(struct mem *mem, enum mem_kind kind, unsigned threads, struct error *err)
{
	struct soda_config config = SODA_CONFIG_INIT;
	int ret;

	*mem = (struct mem){ .kind = kind };
	if (kind == MEM_DRAM)
		return 0;
	config.threads = threads;
	ret = soda_init(&config);
	if (ret)
		return error_set(err, -ret, "cannot start on fabric memory: %s", soda_last_error());
	return 0;
}

int mem_alloc(struct mem *mem, size_t bytes, const char *name, void **object_p, struct error *err)
{
	void *object;

	if (mem->kind == MEM_FAM)
		object = soda_alloc(at_least_one(bytes), 0);
	else
		object = calloc(at_least_one(bytes), 1);
	if (!object)
		return error_set(err, errno, "cannot allocate %zu bytes of %s for %s: %s", bytes,
				 mem_kind_name(mem->kind), name,
				 mem->kind == MEM_FAM ? soda_last_error() : strerror(errno));
	if (mem->kind == MEM_FAM)
		soda_set_name(object, name);
	mem->bytes += bytes;
	if (mem->peak < mem->bytes)
		mem->peak = mem->bytes;
	*object_p = object;
	return 0;
}

void mem_free(struct mem *mem, void *object, size_t bytes)
{
	if (!object)
		return;
	if (mem->kind == MEM_FAM)
		soda_free(object);
	else
		free(object);
	mem->bytes -= bytes;
}

void mem_advise(const struct mem *mem, void *object, size_t bytes, int advice)
{
	if (mem->kind == MEM_FAM && bytes)
		soda_advise(object, bytes, advice);
}

struct soda_stats mem_stats(const struct mem *mem)
{
	struct soda_stats stats = { 0 };

	if (mem->kind == MEM_FAM)
		soda_get_stats(&stats, sizeof(stats));
	return stats;
}

const char *mem_kind_name(enum mem_kind kind)
{
	return kind == MEM_FAM ? "fam" : "dram";
}
