/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory: pinned by the kernel, and so within the limit of locked memory. */
#include <errno.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"
#include "verbs.h"

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

int soda_verbs_register(struct ibv_pd *pd, void *memory, uint64_t bytes, int access,
			struct ibv_mr **mr_p, struct soda_why *why)
{
	int ret = check_limit(bytes, why);
	struct ibv_mr *mr;

	if (ret < 0)
		return ret;
	if (access & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE))
		mr = ibv_reg_mr_iova(pd, memory, bytes, 0, (unsigned)access);
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

void soda_verbs_unregister(struct ibv_mr *mr)
{
	uint64_t bytes;

	if (!mr)
		return;
	bytes = mr->length;
	ibv_dereg_mr(mr);
	atomic_fetch_sub(&registered, bytes);
}

void *soda_verbs_map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* a child's copy would take the page from under the device on kernels before 5.12 */
	madvise(p, bytes, MADV_DONTFORK);
	return p;
}
