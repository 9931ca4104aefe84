/* SPDX-License-Identifier: BSD-3-Clause */
/* read_ahead_kb of the disk's queue. */
#include "soda/eval/eval.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

static int read_kib(const char *path, uint32_t *kib_p)
{
	FILE *in = fopen(path, "r");
	unsigned kib;
	int n;

	if (!in)
		return -errno;
	n = fscanf(in, "%u", &kib);
	fclose(in);
	if (n != 1)
		return -EIO;
	*kib_p = kib;
	return 0;
}

static int write_kib(const char *path, uint32_t kib)
{
	char text[16];
	int fd = open(path, O_WRONLY | O_CLOEXEC), n, err = 0;

	if (fd < 0)
		return -errno;
	n = snprintf(text, sizeof(text), "%u", kib);
	if (write(fd, text, (size_t)n) != n)
		err = -errno;
	close(fd);
	return err;
}

bool soda_eval_readahead_none(const char *folder)
{
	struct statfs fs;

	return !statfs(folder, &fs) && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

int soda_eval_readahead_find(const char *folder, struct soda_eval_readahead *disk_p)
{
	/* of a disk, of a partition's disk, of what has no disk of its own */
	static const char *const forms[] = { "/sys/dev/block/%u:%u/queue/read_ahead_kb",
					     "/sys/dev/block/%u:%u/../queue/read_ahead_kb",
					     "/sys/class/bdi/%u:%u/read_ahead_kb" };
	struct soda_eval_readahead disk = { .path = "" };
	struct stat st;
	int err = stat(folder, &st) ? -errno : -ENOENT;

	for (size_t i = 0; err == -ENOENT && i < sizeof(forms) / sizeof(forms[0]); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(disk.path, sizeof(disk.path), forms[i], major(st.st_dev),
			 minor(st.st_dev));
#pragma GCC diagnostic pop
		err = read_kib(disk.path, &disk.before_kib);
	}
	if (!err)
		*disk_p = disk;
	return err;
}

uint32_t soda_eval_readahead_set(struct soda_eval_readahead *disk, uint32_t kib)
{
	uint32_t in_force = 0;

	if (!disk->path[0])
		return 0;
	if (disk->before_kib != kib)
		disk->changed = write_kib(disk->path, kib);
	return read_kib(disk->path, &in_force) ? 0 : in_force;
}

void soda_eval_readahead_restore(const struct soda_eval_readahead *disk)
{
	if (disk->path[0])
		write_kib(disk->path, disk->before_kib);
}

int soda_eval_drop_cached(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	err = fdatasync(fd) ? -errno : -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	return err;
}
