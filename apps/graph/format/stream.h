/* SPDX-License-Identifier: BSD-3-Clause */
/* Binary files from begin to end, through a buffer: one thread, one direction. */
#ifndef SODA_GRAPH_STREAM_H
#define SODA_GRAPH_STREAM_H

#include "graph/format/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soda_graph_reader {
	char *path;	  /* for messages */
	int fd;		  /* not owned */
	uint64_t at, end; /* the bytes of the file that are not in the buffer yet */
	char *buffer;
	size_t size, length, used;
};

/*
 * Bytes [begin, end) of an open file, which stays the caller's; `path` is
 * copied.  0 or -ENOMEM; nothing is read yet.
 */
int soda_graph_reader_open(struct soda_graph_reader *r_p, int fd, const char *path, uint64_t begin,
			   uint64_t end, size_t buffer_bytes, struct soda_graph_error *err);
void soda_graph_reader_close(struct soda_graph_reader *r);

/* 0; -EINVAL: the file ends before `end`, with the position; -EIO. */
int soda_graph_reader_fill(struct soda_graph_reader *r, struct soda_graph_error *err);

/* Where the next byte lies in the file. */
static inline uint64_t soda_graph_reader_position(const struct soda_graph_reader *r)
{
	return r->at - (r->length - r->used);
}

static inline bool soda_graph_reader_at_end(const struct soda_graph_reader *r)
{
	return r->used == r->length && r->at == r->end;
}

/* Read one number; end - begin is a multiple of its size. 0, -EINVAL, -EIO. */
static inline int soda_graph_reader_u64(struct soda_graph_reader *r, uint64_t *value_p,
					struct soda_graph_error *err)
{
	int ret = r->used == r->length ? soda_graph_reader_fill(r, err) : 0;

	if (ret)
		return ret;
	__builtin_memcpy(value_p, r->buffer + r->used, sizeof(*value_p));
	r->used += sizeof(*value_p);
	return 0;
}

static inline int soda_graph_reader_u32(struct soda_graph_reader *r, uint32_t *value_p,
					struct soda_graph_error *err)
{
	int ret = r->used == r->length ? soda_graph_reader_fill(r, err) : 0;

	if (ret)
		return ret;
	__builtin_memcpy(value_p, r->buffer + r->used, sizeof(*value_p));
	r->used += sizeof(*value_p);
	return 0;
}

struct soda_graph_writer {
	char *path;
	int fd;
	uint64_t at;  /* bytes given so far */
	uint32_t sum; /* and their CRC-32, after a flush */
	char *buffer;
	size_t used;
};

/* Create or truncate a file.  0; what open(2) says; -ENOMEM. */
int soda_graph_writer_open(struct soda_graph_writer *w_p, const char *path,
			   struct soda_graph_error *err);

/* 0; -EIO, -ENOSPC and the like. */
int soda_graph_writer_put(struct soda_graph_writer *w, const void *data, size_t bytes,
			  struct soda_graph_error *err);
int soda_graph_writer_flush(struct soda_graph_writer *w, struct soda_graph_error *err);

/* Flushes unless `failed`, when a regular file is removed; returns the first error. */
int soda_graph_writer_close(struct soda_graph_writer *w, int failed, struct soda_graph_error *err);

/* Write all bytes at an offset. 0; -EIO, -ENOSPC and the like. */
int soda_graph_write_at(int fd, const char *path, const void *data, size_t bytes, uint64_t offset,
			struct soda_graph_error *err);

/*
 * Make a hidden folder beside a path, for what is not whole yet: what lies there can be renamed to
 * the path.  The name is the caller's, to free.  0; what mkdtemp(3) says; -ENOMEM.
 */
int soda_graph_folder_make(const char *path, char **folder_p, struct soda_graph_error *err);

#endif
