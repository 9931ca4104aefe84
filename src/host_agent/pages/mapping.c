/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/mapping.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "host_agent/core/agent.h"
#include "host_agent/pages/uffd.h"

static _Atomic bool any_failing, any_marked;

int soda_mapping_prepare(void *addr, uint64_t bytes)
{
	if (madvise(addr, bytes, MADV_DONTFORK) || madvise(addr, bytes, MADV_DONTDUMP))
		return -1;
	madvise(addr, bytes, MADV_NOHUGEPAGE); /* EINVAL: no THP in this kernel */
	return 0;
}

int soda_mapping_anew(void *addr, size_t bytes, int prot)
{
	int saved = errno, ret = 0;

	/* Without access until it is registered: nobody sees the kernel's zeros. */
	if (mmap(addr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		 -1, 0) == MAP_FAILED ||
	    soda_mapping_prepare(addr, bytes))
		ret = -errno;
	if (!ret)
		ret = soda_uffd_register(addr, bytes);
	if (!ret && mprotect(addr, bytes, prot))
		ret = -errno;
	errno = saved;
	return ret;
}

void soda_mapping_fail(char *page, int prot)
{
	int fd = (int)syscall(SYS_memfd_create, "soda-lost", 1u /* MFD_CLOEXEC */);

	atomic_store(&any_failing, true);
	if (fd < 0 ||
	    mmap(page, SODA_WIRE_PAGE, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		soda_log_error(
			"a page that is lost cannot be made to fail: %s; aborting rather than hang",
			soda_strerror(errno));
		abort();
	}
	close(fd);
}

void soda_mapping_mark(void)
{
	atomic_store(&any_marked, true);
}

bool soda_mapping_any_marked(void)
{
	return atomic_load(&any_marked);
}

bool soda_mapping_any_failing(void)
{
	return atomic_load(&any_failing);
}

int soda_mapping_clear(char *addr, size_t bytes, int prot)
{
	struct iovec all = { addr, bytes };
	size_t dropped;

	if (soda_mapping_any_failing())
		return soda_mapping_anew(addr, bytes, prot);
	return soda_agent.page_ops->drop(&all, 1, &dropped);
}
