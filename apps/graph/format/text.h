/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A text file of numbers, plain or gzipped, byte by byte, with the line for
 * messages.  Strict on purpose: what is not expected ends with the file, the
 * line, what was expected there and what stands there instead.
 */
#ifndef SODA_GRAPH_TEXT_H
#define SODA_GRAPH_TEXT_H

#include "graph/format/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <zlib.h>

#define SODA_GRAPH_TEXT_END (-1)    /* no more bytes */
#define SODA_GRAPH_TEXT_FAILED (-2) /* the file cannot be read */

struct soda_graph_text {
	char *path;
	int fd;
	struct stat opened_as; /* to notice a file that changes between passes */
	z_stream z;	       /* its input is what is left of `raw`, of a plain file, too */
	uint64_t raw_read;     /* bytes of the file that have been read in this pass */
	uint64_t members;      /* of gzip, that have ended */
	bool packed, in_member, padded;
	int problem; /* of zlib, or Z_OK */
	uint64_t line;
	size_t length, used; /* of the buffer */
	unsigned char buffer[256 * 1024], raw[64 * 1024];
};

/* 0, or what open(2) says.  The caller owns it. */
int soda_graph_text_open(const char *path, struct soda_graph_text **text_p,
			 struct soda_graph_error *err);
void soda_graph_text_close(struct soda_graph_text *t);

/* Go back to the first byte. 0; -ESTALE: the file has changed since it was opened; -EIO. */
int soda_graph_text_rewind(struct soda_graph_text *t, struct soda_graph_error *err);

/* How much of the file has been read. */
double soda_graph_text_fraction(const struct soda_graph_text *t);

/* The slow part of soda_graph_text_peek(). */
int soda_graph_text_refill(struct soda_graph_text *t);

/*
 * Read a word of at most 62 bytes as strtod(3) does.  0; -EINVAL: it is no weight from 0 to
 * SODA_GRAPH_WEIGHT_MAX.
 */
int soda_graph_text_weight(struct soda_graph_text *t, double *weight_p,
			   struct soda_graph_error *err);

/* The next byte without taking it, or END or FAILED. */
static inline int soda_graph_text_peek(struct soda_graph_text *t)
{
	return t->used < t->length ? t->buffer[t->used] : soda_graph_text_refill(t);
}

static inline void soda_graph_text_take(struct soda_graph_text *t)
{
	t->used++;
}

/* -EINVAL (-EIO where the file cannot be read): says what stands where `expected` should. */
int soda_graph_text_unexpected(struct soda_graph_text *t, const char *expected,
			       struct soda_graph_error *err);

/* Skip spaces and tabs. */
void soda_graph_text_skip_blanks(struct soda_graph_text *t);
/* Skip everything before the end of the line. */
void soda_graph_text_skip_line(struct soda_graph_text *t);
/* Skip blanks and ends of lines. */
void soda_graph_text_skip_space(struct soda_graph_text *t);

/* Read decimal digits. 0; -EINVAL: something else, or above `most` (below 2^64 - 10). */
int soda_graph_text_number(struct soda_graph_text *t, const char *expected, uint64_t most,
			   uint64_t *value_p, struct soda_graph_error *err);

/* Expect blanks, then LF, CRLF or the end of the file. 0 or -EINVAL. */
int soda_graph_text_end_line(struct soda_graph_text *t, const char *expected,
			     struct soda_graph_error *err);

/* Copy what stands before the next blank or the end of the line, cut to fit; it may be "". */
void soda_graph_text_word(struct soda_graph_text *t, char *word, size_t size);

#endif
