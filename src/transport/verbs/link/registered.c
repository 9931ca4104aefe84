/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/link/registered.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/api/memory.h"

static _Atomic uint64_t registered; /* bytes, of this process */

/* CAP_IPC_LOCK: the limit does not apply. */
static bool may_lock_all(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, data) < 0)
		return false;
	return data[CAP_IPC_LOCK / 32].effective >> CAP_IPC_LOCK % 32 & 1;
}

static int check_limit(uint64_t bytes, struct soda_why *why)
{
	uint64_t have = atomic_load(&registered);
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
	    may_lock_all() || have + bytes <= limit.rlim_cur)
		return 0;
	soda_why_set(why,
		     "verbs needs %llu KiB of locked memory (%llu KiB more than it has), and %llu "
		     "KiB are allowed: raise the limit (ulimit -l, LimitMEMLOCK= of a service)",
		     (unsigned long long)(have + bytes) >> 10, (unsigned long long)bytes >> 10,
		     (unsigned long long)limit.rlim_cur >> 10);
	return -ENOMEM;
}

/* at: the remote address of its first byte. */
static int register_at(struct ibv_pd *pd, void *memory, uint64_t bytes, int access, uint64_t at,
		       struct ibv_mr **mr_p, struct soda_why *why)
{
	int ret = check_limit(bytes, why);
	struct ibv_mr *mr;

	if (ret < 0)
		return ret;
	if (at != (uintptr_t)memory)
		mr = ibv_reg_mr_iova(pd, memory, bytes, at, (unsigned)access);
	else
		mr = ibv_reg_mr(pd, memory, bytes, (unsigned)access);
	if (!mr) {
		ret = errno ? -errno : -EIO;
		soda_why_set(why, "cannot register %llu KiB of memory with the RDMA device %s: %s",
			     (unsigned long long)bytes >> 10, pd->context->device->name,
			     soda_strerror(ret));
		return ret;
	}
	atomic_fetch_add(&registered, bytes);
	*mr_p = mr;
	return 0;
}

int soda_verbs_register(struct ibv_pd *pd, void *memory, uint64_t bytes, int access,
			struct ibv_mr **mr_p, struct soda_why *why)
{
	bool remote = access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);

	return register_at(pd, memory, bytes, access, remote ? 0 : (uintptr_t)memory, mr_p, why);
}

int soda_verbs_expose(struct ibv_pd *pd, void *memory, uint64_t bytes, struct ibv_mr **mr_p,
		      struct soda_why *why)
{
	/* as if to be written: else kernels before 6.2 also give what the program may not read */
	int access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE;

	return register_at(pd, memory, bytes, access, (uintptr_t)memory, mr_p, why);
}

void soda_verbs_unregister(struct ibv_mr *mr)
{
	uint64_t bytes;

	if (!mr)
		return;
	bytes = mr->length;
	ibv_dereg_mr(mr);
	atomic_fetch_sub(&registered, bytes);
}

/* A device in software hangs from no bus: its network interface does, perhaps. */
int soda_verbs_node(const struct ibv_context *device)
{
	char path[IBV_SYSFS_PATH_MAX + 40], interface[64] = "";
	int node;
	FILE *f;

	snprintf(path, sizeof(path), "%s/device", device->device->ibdev_path);
	node = soda_nic_node_of_path(path);
	if (node >= 0)
		return node;
	snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/ndevs/0", device->device->ibdev_path);
	f = fopen(path, "re");
	if (!f)
		return SODA_NODE_ANY;
	if (fscanf(f, "%63s", interface) == 1)
		node = soda_nic_node_of_interface(interface);
	fclose(f);
	return node;
}

void *soda_verbs_map(const struct ibv_context *device, uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* a child's copy would take the page from under the device on kernels before 5.12 */
	madvise(p, bytes, MADV_DONTFORK);
	soda_node_prefer(soda_node_near(soda_verbs_node(device)), p, bytes);
	return p;
}

/* The registration cache: keys are made when they are first used */

/* A part's key on one device; mr NULL: it cannot be registered there. */
struct key {
	struct key *next;
	struct soda_regcache *cache;
	struct ibv_mr *mr;
};

static struct soda_regcache *caches; /* guarded by soda_memory_lock */

static void forget_all(struct soda_memory_part *part)
{
	struct key *k = part->keys, *next;

	for (; k; k = next) {
		next = k->next;
		soda_verbs_unregister(k->mr);
		free(k);
	}
	part->keys = NULL;
}

static void forget_one(struct soda_memory_part *part, void *cache)
{
	struct key **at = (struct key **)&part->keys, *k;

	while (*at && (*at)->cache != cache)
		at = &(*at)->next;
	k = *at;
	if (!k)
		return;
	*at = k->next;
	soda_verbs_unregister(k->mr);
	free(k);
}

static struct soda_regcache *make_locked(struct ibv_context *device)
{
	struct soda_regcache *r = calloc(1, sizeof(*r));

	if (r)
		r->pd = ibv_alloc_pd(device);
	if (!r || !r->pd) {
		free(r);
		return NULL;
	}
	r->next = caches;
	caches = r;
	return r;
}

int soda_regcache_get(struct ibv_context *device, struct soda_regcache **cache_p)
{
	struct soda_regcache *r;

	soda_memory_set_forget(forget_all);
	pthread_rwlock_wrlock(&soda_memory_lock);
	for (r = caches; r && r->pd->context != device;)
		r = r->next;
	if (!r)
		r = make_locked(device);
	if (r)
		r->refs++;
	pthread_rwlock_unlock(&soda_memory_lock);
	*cache_p = r;
	return r ? 0 : -ENOMEM;
}

struct soda_regcache *soda_regcache_own(struct ibv_pd *pd)
{
	struct soda_regcache *r = calloc(1, sizeof(*r));

	soda_memory_set_forget(forget_all);
	if (r)
		*r = (struct soda_regcache){ .refs = 1, .own = true, .pd = pd };
	return r;
}

void soda_regcache_put(struct soda_regcache *cache)
{
	struct soda_regcache **at = &caches;

	if (!cache)
		return;
	pthread_rwlock_wrlock(&soda_memory_lock);
	if (--cache->refs == 0) {
		soda_memory_each_locked(forget_one, cache);
		while (!cache->own && *at != cache)
			at = &(*at)->next;
		if (!cache->own) {
			*at = cache->next;
			ibv_dealloc_pd(cache->pd);
		}
		free(cache);
	}
	pthread_rwlock_unlock(&soda_memory_lock);
}

static struct key *find(const struct soda_memory_part *part, const struct soda_regcache *cache)
{
	struct key *k = part->keys;

	while (k && k->cache != cache)
		k = k->next;
	return k;
}

static struct key *make_key_locked(struct soda_memory_part *part, struct soda_regcache *cache)
{
	struct key *k = calloc(1, sizeof(*k));
	struct soda_why why;
	int ret;

	if (!k)
		return NULL;
	ret = soda_verbs_register(cache->pd, part->memory, part->bytes, IBV_ACCESS_LOCAL_WRITE,
				  &k->mr, &why);
	if (ret == -EFAULT) /* not ours to write to: data only leave from it */
		ret = soda_verbs_register(cache->pd, part->memory, part->bytes, 0, &k->mr, &why);
	if (ret < 0)
		soda_log_warning("data are copied that need not be: %s", why.text);
	k->cache = cache;
	k->next = part->keys;
	part->keys = k;
	return k;
}

bool soda_regcache_lkey(struct soda_regcache *cache, const void *memory, uint64_t bytes,
			uint32_t *lkey_p)
{
	struct soda_memory_part *part;
	struct key *k = NULL;
	bool known;

	pthread_rwlock_rdlock(&soda_memory_lock);
	part = soda_memory_find_locked(memory, bytes);
	if (part)
		k = find(part, cache);
	known = part && !k;
	if (k && k->mr)
		*lkey_p = k->mr->lkey;
	else
		k = NULL;
	pthread_rwlock_unlock(&soda_memory_lock);
	if (k || !known)
		return k != NULL;
	pthread_rwlock_wrlock(&soda_memory_lock);
	part = soda_memory_find_locked(memory, bytes);
	if (part)
		k = find(part, cache);
	if (part && !k)
		k = make_key_locked(part, cache);
	if (k && k->mr)
		*lkey_p = k->mr->lkey;
	known = k && k->mr;
	pthread_rwlock_unlock(&soda_memory_lock);
	return known;
}
