/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of processes, from /proc. */
#include "soda/stage/footprint.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK_BYTES = 512 /* of st_blocks */, PATH_BYTES = 64, NAME_BYTES = 300 };

int soda_footprint_read(pid_t pid, struct soda_footprint *out)
{
	struct soda_footprint found = { 0 };
	char text[PATH_BYTES * 4];
	bool split = false;
	uint64_t kib;
	FILE *in;

	snprintf(text, sizeof(text), "/proc/%ld/smaps_rollup", (long)pid);
	in = fopen(text, "re");
	if (!in)
		return -errno;
	while (fgets(text, sizeof(text), in)) {
		if (sscanf(text, "Pss_Anon: %" SCNu64, &kib) == 1) {
			found.anon_bytes = kib << 10;
			split = true;
		} else if (sscanf(text, "Pss_Shmem: %" SCNu64, &kib) == 1) {
			found.shmem_bytes = kib << 10;
		}
	}
	fclose(in);
	if (!split)
		return -ENODATA;
	*out = found;
	return 0;
}

/* What a mapping's first line in smaps says of its pages. */
enum kind { OF_FILES, SHARED_MEMORY, LEFT_OUT };

static enum kind kind_of(const char *line, const char *name)
{
	const char *path = strstr(line, "/memfd:");

	if (path && !strncmp(path + strlen("/memfd:"), name, strlen(name)))
		return LEFT_OUT;
	return path || strstr(line, "/dev/zero") ? SHARED_MEMORY : OF_FILES;
}

int soda_footprint_beside(pid_t pid, const char *name, struct soda_footprint *out)
{
	struct soda_footprint found = { 0 };
	enum kind kind = OF_FILES;
	char text[PATH_BYTES + NAME_BYTES];
	uint64_t kib;
	FILE *in;

	snprintf(text, sizeof(text), "/proc/%ld/smaps", (long)pid);
	in = fopen(text, "re");
	if (!in)
		return -errno;
	while (fgets(text, sizeof(text), in)) {
		if (!isupper((unsigned char)text[0]))
			kind = kind_of(text, name);
		else if (sscanf(text, "Anonymous: %" SCNu64, &kib) == 1)
			found.anon_bytes += kib << 10;
		else if (kind == SHARED_MEMORY && sscanf(text, "Pss: %" SCNu64, &kib) == 1)
			found.shmem_bytes += kib << 10;
	}
	fclose(in);
	*out = found;
	return 0;
}

/* The blocks of an open file, if it is a memfd of that name. */
static uint64_t memfd_bytes(int folder, const char *number, const char *name)
{
	char target[NAME_BYTES], wanted[NAME_BYTES];
	ssize_t n = readlinkat(folder, number, target, sizeof(target) - 1);
	struct stat st;

	target[n > 0 ? n : 0] = 0;
	snprintf(wanted, sizeof(wanted), "/memfd:%s", name);
	if (strncmp(target, wanted, strlen(wanted)) != 0 || fstatat(folder, number, &st, 0))
		return 0;
	return (uint64_t)st.st_blocks * BLOCK_BYTES;
}

int soda_footprint_memfds(pid_t pid, const char *name, uint64_t *bytes_p)
{
	char path[PATH_BYTES];
	const struct dirent *entry;
	uint64_t sum = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while ((entry = readdir(dir)))
		sum += memfd_bytes(dirfd(dir), entry->d_name, name);
	closedir(dir);
	*bytes_p = sum;
	return 0;
}
