/* SPDX-License-Identifier: BSD-3-Clause */
#include "file_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define BOUNCE_BYTES ((size_t)1 << 20)

static int out_of_memory(const char *path, struct error *err)
{
	return error_set(err, ENOMEM, "%s: out of memory for a buffer", path);
}

static int write_all(int fd, const char *path, const char *data, size_t bytes, off_t offset,
		     struct error *err)
{
	while (bytes) {
		ssize_t wrote = pwrite(fd, data, bytes, offset);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return error_set(err, errno, "%s: cannot write: %s", path, strerror(errno));
		data += wrote;
		bytes -= (size_t)wrote;
		offset += wrote;
	}
	return 0;
}

static int read_all(int fd, const char *path, char *data, size_t bytes, off_t offset,
		    struct error *err)
{
	while (bytes) {
		ssize_t got = pread(fd, data, bytes, offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_set(err, errno, "%s: cannot read: %s", path, strerror(errno));
		if (!got)
			return error_set(err, EINVAL,
					 "%s: cut off: expected %zu bytes more at "
					 "byte %lld",
					 path, bytes, (long long)offset);
		data += got;
		bytes -= (size_t)got;
		offset += got;
	}
	return 0;
}

int file_write_array(int fd, const char *path, const void *array, size_t bytes, off_t offset,
		     struct error *err)
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

int file_read_array(int fd, const char *path, void *array, size_t bytes, off_t offset,
		    uint32_t *sum_p, struct error *err)
{
	char *bounce = malloc(BOUNCE_BYTES);
	uint32_t sum = 0;
	int ret = 0;

	if (!bounce)
		return out_of_memory(path, err);
	for (size_t done = 0; done < bytes && !ret;) {
		size_t step = bytes - done < BOUNCE_BYTES ? bytes - done : BOUNCE_BYTES;

		ret = read_all(fd, path, bounce, step, offset + (off_t)done, err);
		if (!ret) {
			sum = (uint32_t)crc32_z(sum, (const unsigned char *)bounce, step);
			memcpy((char *)array + done, bounce, step);
		}
		done += step;
	}
	free(bounce);
	if (!ret)
		*sum_p = sum;
	return ret;
}
