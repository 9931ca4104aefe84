/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/framework/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* An array without elements is an object of one byte, so that NULL means failure alone. */
static size_t at_least_one(size_t bytes)
{
	return bytes ? bytes : 1;
}

int mem_open(struct mem *mem, enum mem_kind kind, unsigned threads, struct soda_graph_error *err)
{
	struct soda_config config = SODA_CONFIG_INIT;
	int ret;

	*mem = (struct mem){ .kind = kind };
	if (!mem_is_fabric(mem))
		return 0;
	config.threads = threads;
	ret = soda_init(&config);
	if (ret)
		return soda_graph_fail(err, -ret, "cannot start on fabric memory: %s",
				       soda_last_error());
	return 0;
}

static void grow(struct mem *mem, size_t bytes)
{
	mem->bytes += bytes;
	if (mem->peak < mem->bytes)
		mem->peak = mem->bytes;
}

int mem_alloc(struct mem *mem, size_t bytes, const char *name, void **object_p,
	      struct soda_graph_error *err)
{
	void *object;

	if (mem->kind == MEM_FAM)
		object = soda_alloc(at_least_one(bytes), 0);
	else
		object = calloc(at_least_one(bytes), 1);
	if (!object)
		return soda_graph_fail(err, errno, "cannot allocate %zu bytes of %s for %s: %s",
				       bytes, mem_kind_name(mem->kind), name,
				       mem->kind == MEM_FAM ? soda_last_error() : strerror(errno));
	if (mem->kind == MEM_FAM)
		soda_set_name(object, name);
	grow(mem, bytes);
	*object_p = object;
	return 0;
}

/* A file of this machine; 0 or -errno. */
static int map_file(const char *path, void **object_p, size_t *bytes_p)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *object;
	int ret;

	if (fd < 0)
		return -errno;
	ret = fstat(fd, &st) ? -errno : 0;
	if (!ret && !st.st_size)
		ret = -EINVAL;
	if (!ret) {
		object = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
		ret = object == MAP_FAILED ? -errno : 0;
	}
	close(fd);
	if (ret)
		return ret;
	*object_p = object;
	*bytes_p = (size_t)st.st_size;
	return 0;
}

static int open_served(const char *name, void **object_p, size_t *bytes_p)
{
	*object_p = soda_alloc_file(name, 0, SODA_READ_ONLY, bytes_p);
	if (!*object_p)
		return -errno;
	soda_set_name(*object_p, name);
	return 0;
}

static void unmap(const struct mem *mem, void *object, size_t bytes)
{
	if (mem->kind == MEM_SERVED)
		soda_free(object);
	else
		munmap(object, bytes);
}

int mem_map(struct mem *mem, const char *name, size_t bytes, void **object_p, size_t *bytes_p,
	    struct soda_graph_error *err)
{
	bool served = mem->kind == MEM_SERVED;
	size_t found = 0;
	void *object = NULL;
	int ret = served ? open_served(name, &object, &found) : map_file(name, &object, &found);

	if (ret)
		return soda_graph_fail(err, -ret, "%s: cannot open%s: %s", name,
				       served ? " on the memory server" : "",
				       served ? soda_last_error() : strerror(-ret));
	if (bytes && found != bytes) {
		unmap(mem, object, found);
		return soda_graph_fail(err, EINVAL, "%s: expected %zu bytes, found %zu", name,
				       bytes, found);
	}
	grow(mem, found);
	*object_p = object;
	*bytes_p = found;
	return 0;
}

void mem_free(struct mem *mem, void *object, size_t bytes)
{
	if (!object)
		return;
	if (mem->kind == MEM_FAM)
		soda_free(object);
	else if (mem->kind == MEM_DRAM)
		free(object);
	else
		unmap(mem, object, bytes);
	mem->bytes -= bytes;
}

void mem_advise(const struct mem *mem, void *object, size_t bytes, int advice)
{
	if (mem_is_fabric(mem))
		soda_advise(object, bytes, advice);
	else if (mem->kind == MEM_MMAP_ADVISED && advice == SODA_SEQUENTIAL)
		madvise(object, bytes, MADV_SEQUENTIAL);
}

static void will_need(const struct iovec *range)
{
	uintptr_t at = (uintptr_t)range->iov_base, first = at & ~(uintptr_t)4095;

	madvise((void *)first, range->iov_len + (at - first), MADV_WILLNEED);
}

void mem_prefetch(const struct mem *mem, const struct iovec *ranges, int n)
{
	if (mem_is_fabric(mem))
		soda_prefetchv(ranges, n);
	else
		for (int i = 0; i < n; i++)
			will_need(&ranges[i]);
}

struct soda_stats mem_stats(const struct mem *mem)
{
	struct soda_stats stats = { 0 };

	if (mem_is_fabric(mem))
		soda_get_stats(&stats, sizeof(stats));
	return stats;
}

const char *mem_kind_name(enum mem_kind kind)
{
	static const char *const names[] = { "dram", "fam", "served", "mmap", "mmap-advised" };

	return names[kind];
}
