/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/movement/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/api/memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

uint64_t soda_memory_pages(uint64_t bytes)
{
	return (bytes + SODA_WIRE_PAGE - 1) / SODA_WIRE_PAGE * SODA_WIRE_PAGE;
}

static int refuse(struct soda_why *why, int err, const char *what)
{
	snprintf(why->text, sizeof(why->text), "%s: %s", what, soda_strerror(errno));
	return err;
}

/* The mapping is made before the seal that forbids writable ones. */
static int fill(int fd, uint64_t size, enum soda_memory_kind kind, uint8_t **memory_p,
		struct soda_why *why)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, ret;
	void *memory;

	do
		ret = fallocate(fd, 0, 0, (off_t)size);
	while (ret < 0 && errno == EINTR);
	if (ret < 0)
		return refuse(why, -ENOMEM, "the agent's machine has no memory for it");
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_SHARED | (kind == SODA_MEMORY_MAPPED ? MAP_POPULATE : 0), fd, 0);
	if (memory == MAP_FAILED)
		return refuse(why, -ENOMEM, "the agent cannot map it");
	if (kind == SODA_MEMORY_READ_ONLY)
		seals |= F_SEAL_FUTURE_WRITE;
	if (fcntl(fd, F_ADD_SEALS, seals) < 0) {
		ret = refuse(why, -ENOTSUP,
			     "the agent's kernel cannot seal memory against writing (Linux 5.1)");
		munmap(memory, size);
		return ret;
	}
	*memory_p = memory;
	return 0;
}

int soda_memory_make(const char *name, uint64_t bytes, enum soda_memory_kind kind, int *fd_p,
		     uint8_t **memory_p, struct soda_why *why)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), ret;

	if (fd < 0)
		return refuse(why, -ENOMEM, "the agent has no memory file more");
	ret = fill(fd, soda_memory_pages(bytes), kind, memory_p, why);
	if (ret < 0) {
		close(fd);
	} else {
		*fd_p = fd;
		soda_memory_add(*memory_p, soda_memory_pages(bytes));
	}
	return ret;
}

void soda_memory_unmake(int fd, uint8_t *memory, uint64_t bytes)
{
	if (!memory)
		return;
	soda_memory_remove(memory, soda_memory_pages(bytes));
	munmap(memory, soda_memory_pages(bytes));
	close(fd);
}
