/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `soda top` shows of each kind of target: one table a kind.  A row whose
 * counters a target does not have is left out.
 */
#ifndef SODA_TOP_VIEWS_H
#define SODA_TOP_VIEWS_H

#include <stddef.h>

#include "soda/watch/values.h"

enum soda_top_kind {
	SODA_TOP_HEADING, /* label only */
	SODA_TOP_COUNT,	  /* growth a second */
	SODA_TOP_BYTES,	  /* the same, in bytes */
	SODA_TOP_CPU,	  /* the same, of nanoseconds: percent of one processor */
	SODA_TOP_SHARE,	  /* growth of expr in growth of whole: percent */
	SODA_TOP_MEAN,	  /* the same, as a number */
	SODA_TOP_LEVEL,	  /* a number now */
	SODA_TOP_SIZE,	  /* bytes now */
	SODA_TOP_FULL,	  /* bytes now, of `whole`: a bar */
	SODA_TOP_TIME,	  /* nanoseconds now */
	SODA_TOP_LATENCY, /* percentiles of the histogram `expr` */
};

struct soda_top_row {
	enum soda_top_kind kind;
	const char *label; /* at most 17 characters */
	const char *expr, *whole;
	const char *help; /* a sentence for the page of explanations */
};

/* The columns of the table of all targets. */
enum soda_top_column {
	SODA_TOP_BY_TARGET,
	SODA_TOP_BY_OPS,  /* requests or faults a second */
	SODA_TOP_BY_IN,	  /* bytes a second towards the program */
	SODA_TOP_BY_OUT,  /* and from it */
	SODA_TOP_BY_HITS, /* share of what needed no network */
	SODA_TOP_BY_TIME, /* 99th percentile */
	SODA_TOP_BY_CPU,
	SODA_TOP_COLUMNS,
};

struct soda_top_view {
	const char *name; /* "memory server" */
	const char *mark; /* a counter that only this kind has */
	const struct soda_top_row *rows;
	size_t rows_n;
	struct soda_top_row columns[SODA_TOP_COLUMNS]; /* expr NULL: it has none */
};

enum { SODA_TOP_ROWS_MAX = 64 };

/* The view for these counters; the last one, which is empty, if none fits. */
const struct soda_top_view *soda_top_view_of(const json_t *counters);
/*
 * The heading of the rows that show this counter, or counters whose names begin with the same word
 * and all stand under one heading; NULL: it is under none.
 */
const char *soda_top_group_of(const struct soda_top_view *view, const char *key);
/* The number of a row or column; of a latency its 99th percentile. NAN: not to be had. */
double soda_top_row_value(const struct soda_top_row *row, const struct soda_top_pair *pair);

/*
 * format.c: numbers as `soda top` and `soda stat` print them, in at most 9 characters; "-" for NAN.
 */
enum { SODA_TOP_TEXT = 24 };

/* 12345 -> "12.3k": thousands. */
void soda_top_format_count(double value, char out[SODA_TOP_TEXT]);
/* 3 << 20 -> "3.0 MiB". */
void soda_top_format_bytes(double value, char out[SODA_TOP_TEXT]);
/* 12345 ns -> "12.3 us". */
void soda_top_format_time(double ns, char out[SODA_TOP_TEXT]);
/* By the kind of row, with "/s" where it is a rate. */
void soda_top_format(enum soda_top_kind kind, double value, char out[SODA_TOP_TEXT]);

#endif
