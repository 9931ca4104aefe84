/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A page of characters with styles: drawn by frame.c, shown on a terminal by
 * screen.c, or printed.  What does not fit is clipped.
 */
#ifndef SODA_TOP_CANVAS_H
#define SODA_TOP_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <wchar.h>

enum soda_top_style {
	SODA_TOP_PLAIN,
	SODA_TOP_STRONG,
	SODA_TOP_FAINT,
	SODA_TOP_TITLE,	   /* a line of its own */
	SODA_TOP_SELECTED, /* the target that details are shown of */
	SODA_TOP_GRAPH,
	SODA_TOP_GOOD,
	SODA_TOP_BAD,
	SODA_TOP_STYLES,
};

struct soda_top_cell {
	wchar_t ch;
	uint8_t style;
};

struct soda_top_canvas {
	int columns, rows;
	int first;  /* rows above this one are not drawn to: they do not scroll */
	int last;   /* this row and those below are not drawn to either */
	bool utf8;  /* graphs may have more than ASCII */
	bool once;  /* one look has no history: no graphs */
	bool brief; /* what is all zero is named, and not shown */
	struct soda_top_cell *cells;
};

/* Make it blank, of this size. 0; -ENOMEM: it is as before. */
int soda_top_canvas_resize(struct soda_top_canvas *c, int columns, int rows);
void soda_top_canvas_clear(struct soda_top_canvas *c);
void soda_top_canvas_free(struct soda_top_canvas *c);

/* Text; what is not printable is a '?'. Returns the column behind it. */
int soda_top_put(struct soda_top_canvas *c, int row, int column, enum soda_top_style style,
		 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Style of a whole row. */
void soda_top_paint(struct soda_top_canvas *c, int row, enum soda_top_style style);
/* The last `width` of n values, scaled by the highest of them; NAN is a gap. */
void soda_top_spark(struct soda_top_canvas *c, int row, int column, int width, const float *values,
		    int n);
/* [#####.....], `width` wide. */
void soda_top_bar(struct soda_top_canvas *c, int row, int column, int width, double fraction);

/* Print its lines without styles and trailing blanks, up to the last that is not empty. */
void soda_top_canvas_print(const struct soda_top_canvas *c, FILE *out);

#endif
