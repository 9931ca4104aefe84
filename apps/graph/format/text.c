/* SPDX-License-Identifier: BSD-3-Clause */
#include "graph/format/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define END SODA_GRAPH_TEXT_END
#define FAILED SODA_GRAPH_TEXT_FAILED

/* At the end of a file zlib must be asked whether the file was cut off. */
int soda_graph_text_refill(struct soda_graph_text *t)
{
	int got = gzread(t->file, t->buffer, sizeof(t->buffer));
	int problem;

	if (got < 0)
		return FAILED;
	t->length = (size_t)got;
	t->used = 0;
	if (got)
		return t->buffer[0];
	gzerror(t->file, &problem);
	return problem == Z_OK || problem == Z_STREAM_END ? END : FAILED;
}

static int read_error(struct soda_graph_text *t, struct soda_graph_error *err)
{
	int problem;
	const char *why = gzerror(t->file, &problem);

	if (problem == Z_ERRNO)
		return soda_graph_fail(err, EIO, "%s: cannot read: %s", t->path, strerror(errno));
	if (problem == Z_BUF_ERROR)
		return soda_graph_fail(err, EINVAL,
				       "%s:%" PRIu64 ": the compressed file is cut off: "
				       "expected more data",
				       t->path, t->line);
	return soda_graph_fail(err, EINVAL, "%s:%" PRIu64 ": expected gzip data: %s", t->path,
			       t->line, why);
}

int soda_graph_text_unexpected(struct soda_graph_text *t, const char *expected,
			       struct soda_graph_error *err)
{
	int c = soda_graph_text_peek(t);

	if (c == FAILED)
		return read_error(t, err);
	if (c == END || c == '\n' || c == '\r')
		return soda_graph_fail(err, EINVAL,
				       "%s:%" PRIu64 ": expected %s, found the end of the %s",
				       t->path, t->line, expected, c == END ? "file" : "line");
	return soda_graph_fail(err, EINVAL,
			       c > ' ' && c < 127 ? "%s:%" PRIu64 ": expected %s, found '%c'"
						  : "%s:%" PRIu64
						    ": expected %s, found byte 0x%02x",
			       t->path, t->line, expected, c);
}

void soda_graph_text_skip_blanks(struct soda_graph_text *t)
{
	int c;

	while ((c = soda_graph_text_peek(t)) == ' ' || c == '\t')
		t->used++;
}

void soda_graph_text_skip_line(struct soda_graph_text *t)
{
	int c;

	while ((c = soda_graph_text_peek(t)) >= 0 && c != '\n')
		t->used++;
}

void soda_graph_text_skip_space(struct soda_graph_text *t)
{
	int c;

	while ((c = soda_graph_text_peek(t)) == ' ' || c == '\t' || c == '\r' || c == '\n') {
		t->line += c == '\n';
		t->used++;
	}
}

int soda_graph_text_number(struct soda_graph_text *t, const char *expected, uint64_t most,
			   uint64_t *value_p, struct soda_graph_error *err)
{
	uint64_t value = 0, before_last = most / 10;
	int c = soda_graph_text_peek(t);

	if (c < '0' || c > '9')
		return soda_graph_text_unexpected(t, expected, err);
	for (; c >= '0' && c <= '9'; c = soda_graph_text_peek(t)) {
		bool fits = value <= before_last;

		value = value * 10 + (uint64_t)(c - '0');
		if (!fits || value > most)
			return soda_graph_fail(err, EINVAL,
					       "%s:%" PRIu64 ": expected %s of at most %" PRIu64,
					       t->path, t->line, expected, most);
		t->used++;
	}
	*value_p = value;
	return 0;
}

int soda_graph_text_end_line(struct soda_graph_text *t, const char *expected,
			     struct soda_graph_error *err)
{
	soda_graph_text_skip_blanks(t);
	if (soda_graph_text_peek(t) == '\r')
		t->used++;
	if (soda_graph_text_peek(t) == '\n') {
		t->used++;
		t->line++;
		return 0;
	}
	return soda_graph_text_peek(t) == END ? 0 : soda_graph_text_unexpected(t, expected, err);
}

void soda_graph_text_word(struct soda_graph_text *t, char *word, size_t size)
{
	size_t length = 0;
	int c;

	while ((c = soda_graph_text_peek(t)) > ' ') {
		if (length + 1 < size)
			word[length++] = (char)c;
		t->used++;
	}
	word[length] = 0;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int soda_graph_text_rewind(struct soda_graph_text *t, struct soda_graph_error *err)
{
	struct stat now;
	int fd;

	if (fstat(t->fd, &now) || !same_file(&now, &t->opened_as))
		return soda_graph_fail(err, ESTALE, "%s: changed while it was read", t->path);
	if (lseek(t->fd, 0, SEEK_SET))
		return soda_graph_fail(err, EIO, "%s: expected a regular file: %s", t->path,
				       strerror(errno));
	if (t->file)
		gzclose(t->file);
	fd = dup(t->fd);
	t->file = fd < 0 ? NULL : gzdopen(fd, "r");
	if (!t->file) {
		if (fd >= 0)
			close(fd);
		return soda_graph_fail(err, EIO, "%s: cannot read: %s", t->path, strerror(errno));
	}
	gzbuffer(t->file, sizeof(t->buffer));
	t->line = 1;
	t->length = t->used = 0;
	return 0;
}

double soda_graph_text_fraction(const struct soda_graph_text *t)
{
	off_t at = t->file ? gzoffset(t->file) : 0;

	return t->opened_as.st_size ? (double)at / (double)t->opened_as.st_size : 1;
}

void soda_graph_text_close(struct soda_graph_text *t)
{
	if (t->file)
		gzclose(t->file);
	close(t->fd);
	free(t->path);
	free(t);
}

int soda_graph_text_open(const char *path, struct soda_graph_text **text_p,
			 struct soda_graph_error *err)
{
	struct soda_graph_text *t;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return soda_graph_fail(err, errno, "%s: cannot open: %s", path, strerror(errno));
	t = calloc(1, sizeof(*t));
	if (t)
		t->path = strdup(path);
	if (!t || !t->path) {
		free(t);
		close(fd);
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	}
	t->fd = fd;
	fstat(fd, &t->opened_as);
	*text_p = t;
	return 0;
}
