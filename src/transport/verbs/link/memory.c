/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory: pinned by the kernel, and so within the limit of locked memory. */
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/api/nic.h"
#include "transport/verbs/link/link.h"

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

int soda_verbs_link_device(const struct soda_verbs_link *l, char name[SODA_DEVICE_NAME])
{
	snprintf(name, SODA_DEVICE_NAME, "%s", l->id->verbs->device->name);
	return soda_verbs_node(l->id->verbs);
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
