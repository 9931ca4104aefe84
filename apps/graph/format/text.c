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

/* More of the file, where all of `raw` is used: how many bytes, 0 at its end. */
static ssize_t read_raw(struct soda_graph_text *t)
{
	size_t length = 0;
	ssize_t got = 1;

	while (length < sizeof(t->raw) && got) {
		got = read(t->fd, t->raw + length, sizeof(t->raw) - length);
		if (got < 0 && errno != EINTR)
			return -1;
		length += got > 0 ? (size_t)got : 0;
	}
	t->raw_read += length;
	t->z.next_in = t->raw;
	t->z.avail_in = (unsigned)length;
	return (ssize_t)length;
}

/* Whether there are bytes in `raw`. At the file's end there are none. */
static bool has_raw(struct soda_graph_text *t)
{
	if (t->z.avail_in)
		return true;
	if (read_raw(t) < 0)
		t->problem = Z_ERRNO;
	return t->z.avail_in;
}

/*
 * Between members: the next one begins, or zeros fill the file up, as gzip allows.  Anything else
 * there is a member whose head is damaged, with all that is behind it.
 */
static void begin_member(struct soda_graph_text *t)
{
	if (t->members && !*t->z.next_in) {
		t->padded = true;
		t->z.next_in++;
		t->z.avail_in--;
	} else if (t->padded) {
		t->problem = Z_DATA_ERROR;
	} else {
		inflateReset(&t->z);
		t->in_member = true;
	}
}

static void inflate_some(struct soda_graph_text *t)
{
	int ret = inflate(&t->z, Z_NO_FLUSH);

	if (ret == Z_STREAM_END) {
		t->in_member = false;
		t->members++;
	} else if (ret != Z_OK && ret != Z_BUF_ERROR) {
		t->problem = ret;
	}
}

/* Lines before a problem are given first. */
static void unpack(struct soda_graph_text *t)
{
	t->z.next_out = t->buffer;
	t->z.avail_out = sizeof(t->buffer);
	while (!t->problem && t->z.avail_out && has_raw(t)) {
		if (t->in_member)
			inflate_some(t);
		else
			begin_member(t);
	}
	t->length = sizeof(t->buffer) - t->z.avail_out;
	if (!t->length && !t->problem && t->in_member)
		t->problem = Z_BUF_ERROR;
}

static void copy_raw(struct soda_graph_text *t)
{
	_Static_assert(sizeof(t->buffer) >= sizeof(t->raw), "a plain file is copied");
	t->length = has_raw(t) ? t->z.avail_in : 0;
	if (t->length)
		memcpy(t->buffer, t->z.next_in, t->length);
	t->z.avail_in = 0;
}

static bool is_packed(struct soda_graph_text *t)
{
	return has_raw(t) && t->z.avail_in > 1 && t->raw[0] == 0x1f && t->raw[1] == 0x8b;
}

int soda_graph_text_refill(struct soda_graph_text *t)
{
	t->length = t->used = 0;
	if (!t->raw_read)
		t->packed = is_packed(t);
	if (!t->problem && t->packed)
		unpack(t);
	else if (!t->problem)
		copy_raw(t);
	if (t->length)
		return t->buffer[0];
	return t->problem ? FAILED : END;
}

static int read_error(struct soda_graph_text *t, struct soda_graph_error *err)
{
	const char *why = t->z.msg ? t->z.msg : "there is something else";

	if (t->problem == Z_ERRNO)
		return soda_graph_fail(err, EIO, "%s: cannot read: %s", t->path, strerror(errno));
	if (t->problem == Z_BUF_ERROR)
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

int soda_graph_text_weight(struct soda_graph_text *t, double *weight_p,
			   struct soda_graph_error *err)
{
	char word[64], *end;

	if (soda_graph_text_peek(t) <= ' ')
		return soda_graph_text_unexpected(t, "a weight", err);
	soda_graph_text_word(t, word, sizeof(word));
	*weight_p = strtod(word, &end) + 0.0; /* -0 becomes 0 */
	if (end == word || *end || strlen(word) == sizeof(word) - 1 || !(*weight_p >= 0) ||
	    *weight_p > SODA_GRAPH_WEIGHT_MAX)
		return soda_graph_fail(err, EINVAL,
				       "%s:%" PRIu64 ": expected a weight from 0 to %g, found '%s'",
				       t->path, t->line, SODA_GRAPH_WEIGHT_MAX, word);
	return 0;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int soda_graph_text_rewind(struct soda_graph_text *t, struct soda_graph_error *err)
{
	struct stat now;

	if (fstat(t->fd, &now) || !same_file(&now, &t->opened_as))
		return soda_graph_fail(err, ESTALE, "%s: changed while it was read", t->path);
	if (lseek(t->fd, 0, SEEK_SET))
		return soda_graph_fail(err, EIO, "%s: expected a regular file: %s", t->path,
				       strerror(errno));
	t->z.avail_in = 0;
	t->z.msg = NULL;
	t->raw_read = 0;
	t->members = 0;
	t->problem = Z_OK;
	t->in_member = t->padded = t->packed = false;
	t->line = 1;
	t->length = t->used = 0;
	return 0;
}

double soda_graph_text_fraction(const struct soda_graph_text *t)
{
	uint64_t at = t->raw_read - t->z.avail_in;

	return t->opened_as.st_size ? (double)at / (double)t->opened_as.st_size : 1;
}

void soda_graph_text_close(struct soda_graph_text *t)
{
	inflateEnd(&t->z);
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
	if (!t || !t->path || inflateInit2(&t->z, 15 + 16) != Z_OK) { /* 16: gzip alone */
		if (t)
			free(t->path);
		free(t);
		close(fd);
		return soda_graph_fail(err, ENOMEM, "%s: out of memory", path);
	}
	t->fd = fd;
	fstat(fd, &t->opened_as);
	*text_p = t;
	return 0;
}
