/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mlockall() as the program sees it, exported in place of the C library's.  It does not lock fabric
 * memory, because chunks that cannot be dropped would leave no room for others; and it locks pages
 * only when they are touched, because touching all tables that the library reserves would take
 * gigabytes. Pages of fabric memory that the program locks in another way are dropped all the same
 * (uffd.h).
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "soda.h"
#include "host_agent/core/agent.h"

SODA_API int mlockall(int flags)
{
	if (flags & (soda_agent.base ? MCL_CURRENT | MCL_FUTURE : MCL_FUTURE))
		flags |= MCL_ONFAULT;
	if (syscall(SYS_mlockall, flags))
		return -1;
	if (soda_agent.base)
		syscall(SYS_munlock, soda_agent.base, soda_agent.bytes);
	return 0;
}
