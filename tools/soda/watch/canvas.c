/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/watch/canvas.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int soda_top_canvas_resize(struct soda_top_canvas *c, int columns, int rows)
{
	struct soda_top_cell *cells = calloc((size_t)columns * (size_t)rows, sizeof(*cells));

	if (!cells)
		return -ENOMEM;
	free(c->cells);
	c->cells = cells;
	c->columns = columns;
	c->rows = rows;
	soda_top_canvas_clear(c);
	return 0;
}

void soda_top_canvas_clear(struct soda_top_canvas *c)
{
	for (int i = 0; i < c->columns * c->rows; i++)
		c->cells[i] = (struct soda_top_cell){ .ch = L' ' };
	c->first = 0;
	c->last = c->rows;
}

void soda_top_canvas_free(struct soda_top_canvas *c)
{
	free(c->cells);
	c->cells = NULL;
}

static void set(struct soda_top_canvas *c, int row, int column, wchar_t ch,
		enum soda_top_style style)
{
	if (row >= c->first && row < c->last && column >= 0 && column < c->columns)
		c->cells[row * c->columns + column] =
			(struct soda_top_cell){ .ch = ch, .style = (uint8_t)style };
}

int soda_top_put(struct soda_top_canvas *c, int row, int column, enum soda_top_style style,
		 const char *fmt, ...)
{
	mbstate_t state = { 0 };
	char text[512];
	const char *at = text;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	for (size_t left = n < 0 ? 0 : strlen(text); left;) {
		wchar_t ch;
		size_t used = mbrtowc(&ch, at, left, &state);

		if (used == (size_t)-1 || used == (size_t)-2 || used == 0) {
			state = (mbstate_t){ 0 };
			used = 1;
			ch = L'?';
		}
		set(c, row, column++, wcwidth(ch) == 1 ? ch : L'?', style);
		at += used;
		left -= used;
	}
	return column;
}

void soda_top_paint(struct soda_top_canvas *c, int row, enum soda_top_style style)
{
	for (int i = 0; i < c->columns && row >= c->first && row < c->last; i++)
		c->cells[row * c->columns + i].style = (uint8_t)style;
}

void soda_top_spark(struct soda_top_canvas *c, int row, int column, int width, const float *values,
		    int n)
{
	static const wchar_t blocks[] = L"\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588";
	static const wchar_t ascii[] = L"_.:-=+*#";
	const wchar_t *levels = c->utf8 ? blocks : ascii;
	float high = 0;

	if (c->once)
		return;
	if (n > width) {
		values += n - width;
		n = width;
	}
	column += width - n; /* now is on the right */
	for (int i = 0; i < n; i++)
		if (isfinite(values[i]) && values[i] > high)
			high = values[i];
	for (int i = 0; i < n; i++) {
		int level = 0;

		if (!isfinite(values[i]))
			continue;
		if (values[i] > 0)
			level = (int)ceilf(values[i] / high * 8) - 1;
		set(c, row, column + i, levels[level < 0 ? 0 : level], SODA_TOP_GRAPH);
	}
}

void soda_top_bar(struct soda_top_canvas *c, int row, int column, int width, double fraction)
{
	int inner = width - 2;
	int full;

	if (inner < 1)
		return;
	if (!isfinite(fraction) || fraction < 0)
		fraction = 0;
	full = (int)((fraction < 1 ? fraction : 1) * inner + 0.5);
	set(c, row, column, L'[', SODA_TOP_PLAIN);
	for (int i = 0; i < inner; i++)
		set(c, row, column + 1 + i, i < full ? (c->utf8 ? L'\u2588' : L'#') : L'.',
		    i < full ? SODA_TOP_GRAPH : SODA_TOP_FAINT);
	set(c, row, column + 1 + inner, L']', SODA_TOP_PLAIN);
}

static int length(const struct soda_top_canvas *c, int row)
{
	int n = c->columns;

	while (n && c->cells[row * c->columns + n - 1].ch == L' ')
		n--;
	return n;
}

void soda_top_canvas_print(const struct soda_top_canvas *c, FILE *out)
{
	int rows = c->rows;

	while (rows && !length(c, rows - 1))
		rows--;
	for (int row = 0; row < rows; row++) {
		for (int i = 0, n = length(c, row); i < n; i++)
			fprintf(out, "%lc", (wint_t)c->cells[row * c->columns + i].ch);
		putc('\n', out);
	}
}
