/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parser of SNAP edge lists.  Strict on purpose: a line that is not two ids
 * ends the pass with the file, the line and what was expected there.
 */
#include "edge_source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BUFFER_BYTES (256 * 1024)
#define END (-1)    /* no more bytes */
#define FAILED (-2) /* the file cannot be read */

struct snap {
	struct edge_source source;
	char *path;
	int fd;
	gzFile file;	       /* NULL between passes */
	struct stat opened_as; /* to notice a file that changes between passes */
	uint64_t line, edges;
	size_t length, used; /* of the buffer */
	unsigned char buffer[BUFFER_BYTES];
};

/* At the end zlib tells a file that was cut off only to those who ask. */
static int refill(struct snap *s)
{
	int got = gzread(s->file, s->buffer, BUFFER_BYTES);
	int problem;

	if (got < 0)
		return FAILED;
	s->length = (size_t)got;
	s->used = 0;
	if (got)
		return 0;
	gzerror(s->file, &problem);
	return problem == Z_OK || problem == Z_STREAM_END ? END : FAILED;
}

/* The next byte without taking it, END or FAILED. */
static inline int peek(struct snap *s)
{
	if (s->used == s->length) {
		int ret = refill(s);

		if (ret)
			return ret;
	}
	return s->buffer[s->used];
}

static int read_error(struct snap *s, struct error *err)
{
	int problem;
	const char *why = gzerror(s->file, &problem);

	if (problem == Z_ERRNO)
		return error_set(err, EIO, "%s: cannot read: %s", s->path, strerror(errno));
	if (problem == Z_BUF_ERROR)
		return error_set(err, EINVAL,
				 "%s:%" PRIu64 ": the compressed file is cut off: "
				 "expected more data",
				 s->path, s->line);
	return error_set(err, EINVAL, "%s:%" PRIu64 ": expected gzip data: %s", s->path, s->line,
			 why);
}

/* Says what stands where `expected` should. */
static int syntax_error(struct snap *s, const char *expected, struct error *err)
{
	int c = peek(s);

	if (c == FAILED)
		return read_error(s, err);
	if (c == END || c == '\n' || c == '\r')
		return error_set(err, EINVAL,
				 "%s:%" PRIu64 ": expected %s, found the end of the %s", s->path,
				 s->line, expected, c == END ? "file" : "line");
	return error_set(err, EINVAL,
			 c > ' ' && c < 127 ? "%s:%" PRIu64 ": expected %s, found '%c'"
					    : "%s:%" PRIu64 ": expected %s, found byte 0x%02x",
			 s->path, s->line, expected, c);
}

static void skip_blanks(struct snap *s)
{
	int c;

	while ((c = peek(s)) == ' ' || c == '\t')
		s->used++;
}

static void skip_comment(struct snap *s)
{
	int c;

	while ((c = peek(s)) >= 0 && c != '\n')
		s->used++;
}

static int read_id(struct snap *s, const char *expected, uint32_t *id_p, struct error *err)
{
	uint64_t id = 0;
	int c = peek(s);

	if (c < '0' || c > '9')
		return syntax_error(s, expected, err);
	for (; c >= '0' && c <= '9'; c = peek(s)) {
		id = id * 10 + (uint64_t)(c - '0');
		if (id > UINT32_MAX)
			return error_set(err, EINVAL,
					 "%s:%" PRIu64 ": expected %s of at most %" PRIu32, s->path,
					 s->line, expected, UINT32_MAX);
		s->used++;
	}
	*id_p = (uint32_t)id;
	return 0;
}

/* Blanks, then LF, CRLF or the end of the file. */
static int end_line(struct snap *s, struct error *err)
{
	skip_blanks(s);
	if (peek(s) == '\r')
		s->used++;
	if (peek(s) == '\n') {
		s->used++;
		s->line++;
		return 0;
	}
	return peek(s) == END ? 0 : syntax_error(s, "the end of the line after two ids", err);
}

/* One line: 1 an edge, 0 none on it, -EINVAL. */
static int read_line(struct snap *s, struct edge *e, struct error *err)
{
	int c, ret;

	skip_blanks(s);
	c = peek(s);
	if (c == '#' || c == '%')
		skip_comment(s);
	else if (c != '\n' && c != '\r' && c != END) {
		ret = read_id(s, "a vertex id", &e->from, err);
		if (ret)
			return ret;
		c = peek(s);
		if (c != ' ' && c != '\t')
			return syntax_error(s, "a blank and a second vertex id", err);
		skip_blanks(s);
		ret = read_id(s, "a second vertex id", &e->to, err);
		if (ret)
			return ret;
		ret = end_line(s, err);
		return ret ? ret : 1;
	}
	return end_line(s, err);
}

static long snap_next(struct edge_source *source, struct edge *edges, size_t max, struct error *err)
{
	struct snap *s = (struct snap *)source;
	size_t count = 0;

	while (count < max && peek(s) != END) {
		int ret = read_line(s, &edges[count], err);

		if (ret < 0)
			return ret;
		count += (size_t)ret;
	}
	s->edges += count;
	if (!s->edges)
		return error_set(err, EINVAL,
				 "%s:%" PRIu64 ": expected edges (two vertex ids a "
				 "line), found none",
				 s->path, s->line);
	return (long)count;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int snap_rewind(struct edge_source *source, struct error *err)
{
	struct snap *s = (struct snap *)source;
	struct stat now;
	int fd;

	if (fstat(s->fd, &now) || !same_file(&now, &s->opened_as))
		return error_set(err, ESTALE, "%s: changed while it was read", s->path);
	if (lseek(s->fd, 0, SEEK_SET))
		return error_set(err, EIO, "%s: expected a regular file: %s", s->path,
				 strerror(errno));
	if (s->file)
		gzclose(s->file);
	fd = dup(s->fd);
	s->file = fd < 0 ? NULL : gzdopen(fd, "r");
	if (!s->file) {
		if (fd >= 0)
			close(fd);
		return error_set(err, EIO, "%s: cannot read: %s", s->path, strerror(errno));
	}
	gzbuffer(s->file, BUFFER_BYTES);
	s->line = 1;
	s->edges = 0;
	s->length = s->used = 0;
	return 0;
}

static void snap_close(struct edge_source *source)
{
	struct snap *s = (struct snap *)source;

	if (s->file)
		gzclose(s->file);
	close(s->fd);
	free(s->path);
	free(s);
}

int snap_open(const char *path, struct edge_source **source_p, struct error *err)
{
	struct snap *s;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return error_set(err, errno, "%s: cannot open: %s", path, strerror(errno));
	s = calloc(1, sizeof(*s));
	if (s)
		s->path = strdup(path);
	if (!s || !s->path) {
		free(s);
		close(fd);
		return error_set(err, ENOMEM, "%s: out of memory", path);
	}
	s->source = (struct edge_source){ .rewind = snap_rewind,
					  .next = snap_next,
					  .close = snap_close };
	s->fd = fd;
	fstat(fd, &s->opened_as);
	*source_p = &s->source;
	return 0;
}
