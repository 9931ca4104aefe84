/* SPDX-License-Identifier: BSD-3-Clause */
/* Accounting, and memory in memfds. */
#include "mem_server/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/log.h"
#include "mem_server/store/handed.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

uint64_t soda_server_random_id(void)
{
	uint64_t id = 0;

	while (!id)
		if (getrandom(&id, sizeof(id), 0) != sizeof(id))
			id = 0;
	return id;
}

void soda_server_why(struct soda_why *why, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
}

static int populate(int fd, uint64_t bytes)
{
	int r;

	do
		r = fallocate(fd, 0, 0, (off_t)bytes) ? -errno : 0;
	while (r == -EINTR);
	return r;
}

static int populate_later(int fd, uint64_t bytes)
{
	return 0;
}

void soda_store_populate_later(struct soda_store *store)
{
	store->populate = populate_later;
}

void soda_store_init(struct soda_store *store, uint64_t capacity)
{
	*store = (struct soda_store){ .capacity = capacity, .populate = populate, .inotify = -1 };
	pthread_mutex_init(&store->lock, NULL);
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* Size of the dirty map: whole pages, of the memory's page size. */
static uint64_t dirty_map_bytes(const struct soda_store *store, uint64_t backing_bytes)
{
	return round_up(backing_bytes / SODA_DIRTY_UNIT,
			store->hugepages ? SODA_STORE_BLOCK : SODA_WIRE_PAGE);
}

uint64_t soda_store_cost(const struct soda_store *store, uint64_t bytes, bool dirty_map)
{
	uint64_t backing;

	if (bytes > INT64_MAX / 2) /* so that, rounded up and with its dirty map, it is an off_t */
		return 0;
	backing = round_up(bytes, SODA_STORE_BLOCK);
	return backing + (dirty_map ? dirty_map_bytes(store, backing) : 0);
}

uint64_t soda_store_free_bytes(struct soda_store *store)
{
	uint64_t bytes;

	pthread_mutex_lock(&store->lock);
	soda_handed_settle_locked(store);
	bytes = store->capacity - store->used;
	pthread_mutex_unlock(&store->lock);
	return bytes;
}

uint64_t soda_store_refunds(struct soda_store *store)
{
	uint64_t refunds;

	pthread_mutex_lock(&store->lock);
	refunds = store->refunds;
	pthread_mutex_unlock(&store->lock);
	return refunds;
}

static bool fits_locked(const struct soda_account *account, uint64_t cost)
{
	return !account->quota ||
	       (account->used <= account->quota && cost <= account->quota - account->used);
}

int soda_account_charge(struct soda_store *store, struct soda_account *account, uint64_t cost,
			struct soda_why *why)
{
	char wanted[16], used[16], quota[16];
	struct soda_account *full = account, was = { 0 };

	pthread_mutex_lock(&store->lock);
	soda_handed_settle_locked(store);
	while (full && fits_locked(full, cost))
		full = full->parent;
	if (full)
		was = *full;
	for (struct soda_account *at = full ? NULL : account; at; at = at->parent)
		at->used += cost;
	pthread_mutex_unlock(&store->lock);
	if (!full)
		return 0;
	soda_server_why(
		why, "%s wanted, but %s of this %s quota of %s are in use: free something, or %s",
		soda_format_size(cost, wanted), soda_format_size(was.used, used),
		full == account ? "client's" : "tenant's", soda_format_size(was.quota, quota),
		full == account ? "start the server with a larger --quota"
				: "give it more in the server's tenants file");
	return -EDQUOT;
}

void soda_account_refund(struct soda_store *store, struct soda_account *account, uint64_t cost)
{
	pthread_mutex_lock(&store->lock);
	for (; account; account = account->parent)
		account->used -= cost;
	pthread_mutex_unlock(&store->lock);
}

uint64_t soda_account_used(struct soda_store *store, const struct soda_account *account)
{
	uint64_t used;

	pthread_mutex_lock(&store->lock);
	soda_handed_settle_locked(store);
	used = account->used;
	pthread_mutex_unlock(&store->lock);
	return used;
}

static int reserve(struct soda_store *store, uint64_t cost, struct soda_why *why)
{
	char wanted[16], left[16], capacity[16];
	uint64_t free_bytes;
	bool fits;

	pthread_mutex_lock(&store->lock);
	free_bytes = store->capacity - store->used;
	fits = cost && cost <= free_bytes;
	if (fits)
		store->used += cost;
	pthread_mutex_unlock(&store->lock);
	if (fits)
		return 0;
	soda_server_why(why,
			"%s wanted, only %s of %s are free: free something, use another server, or"
			" give this one a larger --capacity",
			cost ? soda_format_size(cost, wanted) : "more than 4 EiB",
			soda_format_size(free_bytes, left),
			soda_format_size(store->capacity, capacity));
	return -ENOSPC;
}

static void unreserve(struct soda_store *store, uint64_t cost)
{
	pthread_mutex_lock(&store->lock);
	store->used -= cost;
	pthread_mutex_unlock(&store->lock);
}

static int open_memfd(const struct soda_store *store, uint64_t bytes, bool freezes)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | (freezes ? 0 : F_SEAL_SEAL);
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd, r;

	if (store->hugepages)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	fd = memfd_create("soda-region", flags);
	if (fd < 0)
		return -errno;
	if (!ftruncate(fd, (off_t)bytes) && !fcntl(fd, F_ADD_SEALS, seals))
		return fd;
	r = -errno;
	close(fd);
	return r;
}

/*
 * Anonymous memory, from a 2 MiB boundary on and with nothing mapped at either end.  Next to other
 * such memory Linux would make one mapping of both, for which it needs the lock of the pages there
 * while it holds that of the address space: where they are just being made huge, or moved (Linux
 * 6.18: khugepaged, compaction), an OPEN kept all threads of the server waiting for a second and
 * more, and programs took the server for silent.
 */
static uint8_t *map_apart(size_t bytes)
{
	const uintptr_t block = SODA_STORE_BLOCK;
	size_t room = bytes + block + 4096;
	char *p = mmap(NULL, room, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before;

	if (p == MAP_FAILED)
		return MAP_FAILED;
	before = -(uintptr_t)p % block;
	if (before)
		munmap(p, before);
	munmap(p + before + bytes, room - before - bytes);
	return (uint8_t *)p + before;
}

static int map_memory(const struct soda_store *store, struct soda_memory *memory)
{
	size_t bytes = memory->backing_bytes + memory->dirty_bytes;

	memory->map = memory->fd < 0 ? map_apart(bytes)
				     : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
					    memory->fd, 0);
	if (memory->map == MAP_FAILED)
		return store->hugepages ? -errno : -ENFILE; /* else it is the number of mappings */
	if (memory->dirty_bytes)
		memory->dirty = memory->map + memory->backing_bytes;
	madvise(memory->map, bytes, MADV_DONTDUMP);
	if (store->hugepages && soda_punched_watch(memory->map, bytes)) {
		munmap(memory->map, bytes);
		return -ENFILE;
	}
	if (memory->fd < 0)
		madvise(memory->map, bytes, MADV_HUGEPAGE);
	return 0;
}

static void unmap_memory(const struct soda_store *store, struct soda_memory *memory)
{
	if (store->hugepages)
		soda_punched_forget(memory->map);
	munmap(memory->map, memory->backing_bytes + memory->dirty_bytes);
}

/* Tell the client why a system call for memory has failed. -ENOMEM or -ENOSPC. */
static int explain(const struct soda_store *store, int r, struct soda_why *why)
{
	if (r == -EMFILE || r == -ENFILE) {
		soda_server_why(why,
				"the server is out of file descriptors or mappings: raise its limit"
				" (ulimit -n, vm.max_map_count), or use fewer, larger objects");
		return -ENOMEM;
	}
	soda_server_why(why,
			"the memory node has no %s left, although the server's capacity"
			" promised it (%s): lower --capacity",
			store->hugepages ? "free 2 MiB huge pages" : "memory", soda_strerror(r));
	return -ENOSPC;
}

int soda_memory_populate(struct soda_store *store, const struct soda_memory *memory,
			 struct soda_why *why)
{
	int r = store->populate(memory->fd, memory->backing_bytes + memory->dirty_bytes);

	return r ? explain(store, r, why) : 0;
}

int soda_memory_create(struct soda_store *store, const struct soda_memory_options *opt,
		       struct soda_memory *memory_p, struct soda_why *why)
{
	uint64_t cost = soda_store_cost(store, opt->bytes, opt->dirty_map);
	struct soda_memory memory = { .bytes = opt->bytes };
	int r = reserve(store, cost, why);

	if (r)
		return r;
	memory.backing_bytes = soda_store_cost(store, opt->bytes, false);
	memory.dirty_bytes = cost - memory.backing_bytes;
	memory.fd = -1;
	if (!opt->unshared || store->hugepages) {
		memory.fd = open_memfd(store, cost, opt->freezes);
		if (memory.fd < 0) {
			r = explain(store, memory.fd, why);
			goto fail_reserved;
		}
	}
	r = map_memory(store, &memory);
	if (r) {
		r = explain(store, r, why);
		goto fail_fd;
	}
	r = soda_nodes_place(&store->nodes, memory.map, cost);
	if (r) {
		soda_server_why(why, "the server cannot bind memory to its NUMA nodes: %s",
				soda_strerror(r));
		goto fail_map;
	}
	r = opt->populate ? soda_memory_populate(store, &memory, why) : 0;
	if (r)
		goto fail_map;
	*memory_p = memory;
	return 0;
fail_map:
	unmap_memory(store, &memory);
fail_fd:
	if (memory.fd >= 0)
		close(memory.fd);
fail_reserved:
	unreserve(store, cost);
	return r;
}

int soda_memory_freeze(const struct soda_memory *memory, struct soda_why *why)
{
	int r;

	if (!mprotect(memory->map, memory->backing_bytes, PROT_READ) &&
	    !fcntl(memory->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		return 0;
	r = -errno;
	soda_server_why(why, "cannot seal a read-only region: %s", soda_strerror(r));
	return r;
}

/*
 * A process that has the descriptor stores to the pages itself: new ones would be charged to that
 * process's memory cgroup, and not to the server's, which has promised them.
 */
static bool keeps_pages(const struct soda_store *store, const struct soda_memory *memory)
{
	return store->hugepages || (memory->fd >= 0 && store->populate != populate_later);
}

int soda_memory_discard(const struct soda_store *store, const struct soda_memory *memory,
			uint64_t offset, uint64_t bytes)
{
	int r;

	if (keeps_pages(store, memory))
		return -ENOTSUP;
	do
		r = memory->fd < 0
			    ? madvise(memory->map + offset, bytes, MADV_DONTNEED)
			    : fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					(off_t)offset, (off_t)bytes);
	while (r && errno == EINTR);
	return r ? -errno : 0;
}

void soda_memory_destroy(struct soda_store *store, struct soda_memory *memory,
			 struct soda_account *account)
{
	uint64_t cost = memory->backing_bytes + memory->dirty_bytes;

	unmap_memory(store, memory);
	if (memory->fd >= 0)
		close(memory->fd);
	soda_handed_end(store, memory->handed, cost, account);
	*memory = (struct soda_memory){ .fd = -1 };
}
