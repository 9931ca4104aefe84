/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files are memfds of the kernel's, which have memory and holes as those of a tmpfs.  A killed
 * agent's mappings stay, and nobody uses them.
 */
#include "sealing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../fibers.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { FILES = 1024 };

static struct {
	char name[40]; /* empty: none */
	int fd;
	ino_t number;
} files[FILES];

/* Of one walk at a time; the agent sweeps once. */
static struct {
	unsigned at;
	struct dirent64 entry;
} walked;

static int find(const char *name)
{
	for (int i = 0; i < FILES; i++)
		if (files[i].name[0] && !strcmp(files[i].name, name))
			return i;
	return -1;
}

static int make(const char *name)
{
	struct stat st;
	int i = 0;

	while (i < FILES && files[i].name[0])
		i++;
	if (i == FILES)
		sim_fail("the directory of --seal-state has no room");
	files[i].fd = memfd_create("state", MFD_CLOEXEC);
	if (files[i].fd < 0 || fstat(files[i].fd, &st))
		sim_fail("no memory for --seal-state");
	files[i].number = st.st_ino;
	snprintf(files[i].name, sizeof(files[i].name), "%s", name);
	return i;
}

int sim_state_open(const char *name, int flags)
{
	int i = find(name);

	sim_point();
	errno = sim_lacks_descriptor()	      ? EMFILE
		: i < 0 && !(flags & O_CREAT) ? ENOENT
		: i >= 0 && flags & O_EXCL    ? EEXIST
					      : 0;
	if (errno)
		return -1;
	return fcntl(files[i < 0 ? make(name) : i].fd, F_DUPFD_CLOEXEC, 0);
}

int sim_state_unlink(const char *name)
{
	int i = find(name);

	sim_point();
	errno = ENOENT;
	if (i < 0)
		return -1;
	close(files[i].fd);
	files[i].name[0] = 0;
	return 0;
}

bool sim_state_has(const char *name)
{
	return find(name) >= 0;
}

bool sim_state_owns(int fd)
{
	struct stat st;

	if (!sim_state_files() || fd < 0 || fstat(fd, &st))
		return false;
	for (int i = 0; i < FILES; i++)
		if (files[i].name[0] && files[i].number == st.st_ino)
			return true;
	return false;
}

unsigned sim_state_files(void)
{
	unsigned n = 0;

	for (int i = 0; i < FILES; i++)
		n += !!files[i].name[0];
	return n;
}

/* What the agent calls of it. */

int sim_fstatfs64(int fd, struct statfs64 *fs)
{
	if (fd != SIM_STATE_FD)
		return fstatfs64(fd, fs);
	*fs = (struct statfs64){ .f_type = TMPFS_MAGIC };
	return 0;
}

int sim_flock(int fd, int operation)
{
	return fd == SIM_STATE_FD ? 0 : flock(fd, operation); /* a dead agent has left its lock */
}

int sim_mkdir(const char *name, mode_t mode)
{
	if (strcmp(name, SIM_STATE))
		return mkdir(name, mode);
	errno = EEXIST;
	return -1;
}

int sim_faccessat(int dir, const char *name, int mode, int flags)
{
	if (dir != SIM_STATE_FD)
		return faccessat(dir, name, mode, flags);
	sim_point();
	errno = ENOENT;
	return sim_state_has(name) ? 0 : -1;
}

DIR *sim_fdopendir(int fd)
{
	if (fd != SIM_STATE_FD)
		return fdopendir(fd);
	walked.at = 0;
	return (DIR *)(void *)&walked;
}

struct dirent64 *sim_readdir64(DIR *dir)
{
	if (dir != (DIR *)(void *)&walked)
		return readdir64(dir);
	sim_point();
	while (walked.at < FILES && !files[walked.at].name[0])
		walked.at++;
	if (walked.at == FILES)
		return NULL;
	snprintf(walked.entry.d_name, sizeof(walked.entry.d_name), "%s", files[walked.at++].name);
	return &walked.entry;
}

int sim_closedir(DIR *dir)
{
	return dir == (DIR *)(void *)&walked ? 0 : closedir(dir);
}
