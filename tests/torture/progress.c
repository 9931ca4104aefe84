/* SPDX-License-Identifier: BSD-3-Clause */
#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model.h"

void *map_file(const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *p = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		wrong("cannot start", "%s: %s", path, strerror(errno));
	close(fd);
	return p;
}
