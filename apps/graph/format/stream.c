/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define WRITER_BYTES ((size_t)1 << 20)

static int out_of_memory(const char *path, struct soda_graph_error *err)
{
	return soda_graph_fail(err, ENOMEM, "%s: out of memory for a buffer", path);
}

int soda_graph_reader_open(struct soda_graph_reader *r_p, int fd, const char *path, uint64_t begin,
			   uint64_t end, size_t buffer_bytes, struct soda_graph_error *err)
{
	struct soda_graph_reader r = { .fd = fd, .at = begin, .end = end, .size = buffer_bytes };

	r.buffer = malloc(buffer_bytes);
	r.path = strdup(path);
	if (!r.buffer || !r.path) {
		soda_graph_reader_close(&r);
		return out_of_memory(path, err);
	}
	*r_p = r;
	return 0;
}

void soda_graph_reader_close(struct soda_graph_reader *r)
{
	free(r->buffer);
	free(r->path);
	*r = (struct soda_graph_reader){ .fd = -1 };
}

int soda_graph_reader_fill(struct soda_graph_reader *r, struct soda_graph_error *err)
{
	size_t wanted = r->end - r->at < r->size ? r->end - r->at : r->size;

	r->length = r->used = 0;
	while (r->length < wanted) {
		ssize_t got = pread(r->fd, r->buffer + r->length, wanted - r->length, (off_t)r->at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return soda_graph_fail(err, errno, "%s: cannot read: %s", r->path,
					       strerror(errno));
		if (!got)
			break;
		r->length += (size_t)got;
		r->at += (uint64_t)got;
	}
	if (r->length == wanted && wanted)
		return 0;
	return soda_graph_fail(err, EINVAL, "%s: cut off: expected more data at byte %" PRIu64,
			       r->path, r->at);
}

int soda_graph_write_at(int fd, const char *path, const void *data, size_t bytes, uint64_t offset,
			struct soda_graph_error *err)
{
	const char *from = data;

	while (bytes) {
		ssize_t wrote = pwrite(fd, from, bytes, (off_t)offset);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return soda_graph_fail(err, errno, "%s: cannot write: %s", path,
					       strerror(errno));
		from += wrote;
		bytes -= (size_t)wrote;
		offset += (uint64_t)wrote;
	}
	return 0;
}

int soda_graph_writer_open(struct soda_graph_writer *w_p, const char *path,
			   struct soda_graph_error *err)
{
	struct soda_graph_writer w = { .fd = -1 };

	w.buffer = malloc(WRITER_BYTES);
	w.path = strdup(path);
	if (!w.buffer || !w.path) {
		free(w.buffer);
		free(w.path);
		return out_of_memory(path, err);
	}
	w.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (w.fd < 0) {
		free(w.buffer);
		free(w.path);
		return soda_graph_fail(err, errno, "%s: cannot create: %s", path, strerror(errno));
	}
	*w_p = w;
	return 0;
}

int soda_graph_writer_flush(struct soda_graph_writer *w, struct soda_graph_error *err)
{
	int ret = soda_graph_write_at(w->fd, w->path, w->buffer, w->used, w->at - w->used, err);

	if (ret)
		return ret;
	w->sum = (uint32_t)crc32_z(w->sum, (const unsigned char *)w->buffer, w->used);
	w->used = 0;
	return 0;
}

int soda_graph_writer_put(struct soda_graph_writer *w, const void *data, size_t bytes,
			  struct soda_graph_error *err)
{
	const char *from = data;

	while (bytes) {
		size_t step = WRITER_BYTES - w->used < bytes ? WRITER_BYTES - w->used : bytes;
		int ret;

		memcpy(w->buffer + w->used, from, step);
		w->used += step;
		w->at += step;
		from += step;
		bytes -= step;
		ret = w->used == WRITER_BYTES ? soda_graph_writer_flush(w, err) : 0;
		if (ret)
			return ret;
	}
	return 0;
}

int soda_graph_writer_close(struct soda_graph_writer *w, int failed, struct soda_graph_error *err)
{
	struct stat st;
	int ret = failed;
	bool file;

	if (!w->path)
		return ret;
	if (!ret)
		ret = soda_graph_writer_flush(w, err);
	file = !fstat(w->fd, &st) && S_ISREG(st.st_mode);
	if (close(w->fd) && !ret)
		ret = soda_graph_fail(err, errno, "%s: cannot write: %s", w->path, strerror(errno));
	if (ret && file)
		unlink(w->path);
	free(w->buffer);
	free(w->path);
	*w = (struct soda_graph_writer){ .fd = -1 };
	return ret;
}

int soda_graph_folder_make(const char *path, char **folder_p, struct soda_graph_error *err)
{
	char *copy = strdup(path), *folder = NULL;
	int ret = 0;

	if (!copy || asprintf(&folder, "%s/.soda-graph-XXXXXX", dirname(copy)) < 0)
		ret = soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	else if (!mkdtemp(folder))
		ret = soda_graph_fail(err, errno, "%s: cannot make a temporary folder: %s", folder,
				      strerror(errno));
	if (ret)
		free(folder);
	else
		*folder_p = folder;
	free(copy);
	return ret;
}
