/* SPDX-License-Identifier: BSD-3-Clause */
/* What the machine asks of a host agent: there is none here, and nobody has its memory. */
#include <errno.h>

#include "nodes.h"

bool sim_host_shares;

bool sim_uffd_is(int fd)
{
	return false;
}

ssize_t sim_uffd_read(void *out, size_t bytes)
{
	errno = EBADF;
	return -1;
}

void sim_host_check_resident(const void *addr, size_t bytes)
{
}

bool sim_host_has(const void *addr)
{
	return true;
}

bool sim_host_map(void *addr, size_t bytes, bool cover)
{
	return false;
}

void sim_host_share(void *addr, size_t bytes, uint64_t file, uint64_t at)
{
}

void sim_host_punched(uint64_t file, uint64_t at, uint64_t bytes)
{
}

struct sim_belief sim_host_believes(enum sim_process server)
{
	return (struct sim_belief){ .up = false };
}
