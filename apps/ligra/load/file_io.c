/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/load/load.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOUNCE_BYTES ((size_t)1 << 20)

static int out_of_memory(const char *path, struct soda_graph_error *err)
{
	return soda_graph_fail(err, ENOMEM, "%s: out of memory for a buffer", path);
}

static int write_all(int fd, const char *path, const char *data, size_t bytes, off_t offset,
		     struct soda_graph_error *err)
{
	while (bytes) {
		ssize_t wrote = pwrite(fd, data, bytes, offset);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return soda_graph_fail(err, errno, "%s: cannot write: %s", path,
					       strerror(errno));
		data += wrote;
		bytes -= (size_t)wrote;
		offset += wrote;
	}
	return 0;
}

static int read_all(int fd, const char *path, char *data, size_t bytes, off_t offset,
		    struct soda_graph_error *err)
{
	while (bytes) {
		ssize_t got = pread(fd, data, bytes, offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return soda_graph_fail(err, errno, "%s: cannot read: %s", path,
					       strerror(errno));
		if (!got)
			return soda_graph_fail(err, EINVAL,
					       "%s: cut off: expected %zu bytes more at byte %lld",
					       path, bytes, (long long)offset);
		data += got;
		bytes -= (size_t)got;
		offset += got;
	}
	return 0;
}

int file_write_array(int fd, const char *path, const void *array, size_t bytes, off_t offset,
		     struct soda_graph_error *err)
{
	char *bounce = malloc(BOUNCE_BYTES);
	int ret = 0;

	if (!bounce)
		return out_of_memory(path, err);
	for (size_t done = 0; done < bytes && !ret;) {
		size_t step = bytes - done < BOUNCE_BYTES ? bytes - done : BOUNCE_BYTES;

		memcpy(bounce, (const char *)array + done, step);
		ret = write_all(fd, path, bounce, step, offset + (off_t)done, err);
		done += step;
	}
	free(bounce);
	return ret;
}

/* Read one thread's blocks: every n-th. */
static int read_blocks(int fd, const char *path, char *array, size_t bytes, off_t offset,
		       struct soda_graph_error *err)
{
	size_t stride = BOUNCE_BYTES * (size_t)omp_get_num_threads();
	char *bounce = malloc(BOUNCE_BYTES);
	int ret = 0;

	if (!bounce)
		return out_of_memory(path, err);
	for (size_t at = BOUNCE_BYTES * (size_t)omp_get_thread_num(); at < bytes && !ret;
	     at += stride) {
		size_t step = bytes - at < BOUNCE_BYTES ? bytes - at : BOUNCE_BYTES;

		ret = read_all(fd, path, bounce, step, offset + (off_t)at, err);
		if (!ret)
			memcpy(array + at, bounce, step);
	}
	free(bounce);
	return ret;
}

int file_read_array(int fd, const char *path, void *array, size_t bytes, off_t offset,
		    struct soda_graph_error *err)
{
	int ret = 0;

#pragma omp parallel
	{
		struct soda_graph_error own;
		int failed = read_blocks(fd, path, array, bytes, offset, &own);

#pragma omp critical
		if (failed && !ret) {
			ret = failed;
			*err = own;
		}
	}
	return ret;
}
