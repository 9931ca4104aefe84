/* SPDX-License-Identifier: BSD-3-Clause */
#include "tenants.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../fibers.h"

enum { FILES = 32 };

static struct {
	char path[32]; /* empty: none */
	int fd;
} files[FILES];

static int find(const char *path)
{
	for (int i = 0; i < FILES; i++)
		if (!strcmp(files[i].path, path))
			return i;
	return -1;
}

/* The older one is not closed: by its number another one could be taken for it. */
void sim_private_put(const char *path, const char *text, size_t bytes)
{
	int i = find(path), fd = memfd_create(path + 1, MFD_CLOEXEC);

	if (i < 0)
		i = find("");
	if (i < 0 || fd < 0 || fchmod(fd, 0600) || write(fd, text, bytes) != (ssize_t)bytes)
		sim_fail("there is no room for %s", path);
	snprintf(files[i].path, sizeof(files[i].path), "%s", path);
	files[i].fd = fd;
}

bool sim_private_owns(const char *path)
{
	return *path && find(path) >= 0;
}

const char *sim_private_name(const char *path, char out[32])
{
	snprintf(out, 32, "/proc/self/fd/%d", files[find(path)].fd);
	return out;
}

/* From its beginning, whatever others have read of it. */
int sim_private_open(const char *path)
{
	char name[32];

	if (sim_lacks_descriptor()) {
		errno = EMFILE;
		return -1;
	}
	return open(sim_private_name(path, name), O_RDONLY | O_CLOEXEC);
}

int sim_private_stat(const char *path, struct stat *st)
{
	return fstat(files[find(path)].fd, st);
}
