/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mlockall() as the program sees it, exported in place of the C library's.  Fabric memory is no
 * part of it: pages that may not go would leave no room for others.  And nothing is brought in
 * for it: with all of the tables that the library reserves that would be gigabytes.  What the
 * program locks past this function is dropped all the same (uffd.h).
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
