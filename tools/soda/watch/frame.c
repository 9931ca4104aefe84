/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/watch/frame.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "soda/watch/views.h"

/* Columns of the table: 80 of them. */
enum { NAME_WIDTH = 27 };

static const struct {
	const char *head;
	int at, width;
} table[SODA_TOP_COLUMNS] = {
	[SODA_TOP_BY_TARGET] = { "TARGET", 2, NAME_WIDTH },
	[SODA_TOP_BY_OPS] = { "OPS", 30, 8 },
	[SODA_TOP_BY_IN] = { "IN", 39, 11 },
	[SODA_TOP_BY_OUT] = { "OUT", 51, 11 },
	[SODA_TOP_BY_HITS] = { "LOCAL", 63, 7 },
	[SODA_TOP_BY_TIME] = { "P99", 71, 8 },
	[SODA_TOP_BY_CPU] = { "CPU", 80, 8 },
};

/* Whether a stands above b; equal ones stay in the order of the command line. */
static bool is_above(const struct soda_top_ui *ui, int a, int b)
{
	const struct soda_top_target *x = &ui->targets[a], *y = &ui->targets[b];
	double left = x->columns[ui->sort], right = y->columns[ui->sort];
	int order;

	if (ui->sort == SODA_TOP_BY_TARGET)
		order = strcmp(x->name, y->name);
	else if (isnan(left) || isnan(right))
		return !isnan(left) && isnan(right); /* what is unknown is last in any case */
	else
		order = left > right ? -1 : left < right;
	return ui->reverse ? order > 0 : order < 0;
}

void soda_top_sort(struct soda_top_ui *ui)
{
	for (int i = 0; i < ui->targets_n; i++) {
		int at = i;

		for (; at > 0 && is_above(ui, i, ui->order[at - 1]); at--)
			ui->order[at] = ui->order[at - 1];
		ui->order[at] = i;
	}
}

static void draw_top(struct soda_top_canvas *c, const struct soda_top_ui *ui)
{
	time_t now = time(NULL);
	char clock[16], interval[SODA_TOP_TEXT];
	struct tm local;
	int here = 0, at;

	for (int i = 0; i < ui->targets_n; i++)
		here += ui->targets[i].state == SODA_TOP_HERE;
	soda_top_format_time(ui->interval_ms * 1e6, interval);
	at = soda_top_put(c, 0, 0, SODA_TOP_STRONG, "soda top");
	at = soda_top_put(c, 0, at, SODA_TOP_PLAIN, "  %d of %d here, every %s, by %s%s", here,
			  ui->targets_n, interval, table[ui->sort].head,
			  ui->reverse ? " (reversed)" : "");
	if (ui->paused)
		at = soda_top_put(c, 0, at, SODA_TOP_BAD, "  PAUSED");
	strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&now, &local));
	if (at < c->columns - 10)
		soda_top_put(c, 0, c->columns - 9, SODA_TOP_PLAIN, "%s", clock);
}

static void draw_heads(struct soda_top_canvas *c, const struct soda_top_ui *ui)
{
	for (int i = 0; i < SODA_TOP_COLUMNS; i++)
		soda_top_put(c, 1, table[i].at, SODA_TOP_TITLE,
			     i == SODA_TOP_BY_TARGET ? "%-*s" : "%*s", table[i].width,
			     table[i].head);
	soda_top_paint(c, 1, SODA_TOP_TITLE);
}

static void draw_target(struct soda_top_canvas *c, int row, const struct soda_top_target *t,
			bool selected)
{
	enum soda_top_style style = selected ? SODA_TOP_SELECTED : SODA_TOP_PLAIN;
	char text[SODA_TOP_TEXT];

	soda_top_put(c, row, 0, style, "%c", selected ? '>' : ' ');
	soda_top_put(c, row, 2, style, "%.*s", NAME_WIDTH, t->label);
	if (t->state != SODA_TOP_HERE) {
		soda_top_put(c, row, table[SODA_TOP_BY_OPS].at, SODA_TOP_BAD, "%s",
			     t->state == SODA_TOP_GONE ? "    gone" : "  asking");
		return;
	}
	for (int i = SODA_TOP_BY_OPS; i < SODA_TOP_COLUMNS; i++) {
		enum soda_top_kind kind = t->view->columns[i].kind;

		if (i == SODA_TOP_BY_OPS)
			kind = SODA_TOP_LEVEL; /* no room for "/s" */
		soda_top_format(kind, t->columns[i], text);
		soda_top_put(c, row, table[i].at, style, "%*s", table[i].width, text);
	}
}

/* Returns the row behind the table. */
static int draw_table(struct soda_top_canvas *c, struct soda_top_ui *ui)
{
	int row = 2;

	for (int i = 0; i < ui->targets_n; i++)
		pthread_mutex_lock(&ui->targets[i].lock);
	draw_top(c, ui);
	soda_top_sort(ui);
	draw_heads(c, ui);
	for (int i = 0; i < ui->targets_n; i++, row++)
		draw_target(c, row, &ui->targets[ui->order[i]], ui->order[i] == ui->selected);
	for (int i = 0; i < ui->targets_n; i++)
		pthread_mutex_unlock(&ui->targets[i].lock);
	return row;
}

static int draw_one(struct soda_top_canvas *c, int row, struct soda_top_target *t, bool help)
{
	pthread_mutex_lock(&t->lock);
	row = help ? soda_top_explain(c, row, t) : soda_top_details(c, row, t);
	pthread_mutex_unlock(&t->lock);
	return row;
}

static int explain_table(struct soda_top_canvas *c, int row)
{
	static const char *const lines[] = {
		"The table: OPS requests or faults a second; IN and OUT data a second to and from",
		"programs; LOCAL faults without network; P99 99 of 100 took no longer; CPU percent",
		"of one processor. k and M are thousands and millions, KiB and MiB powers of 1024.",
		"Graphs are scaled to their highest value; the latest is on the right.",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		soda_top_put(c, row++, 0, SODA_TOP_PLAIN, "%s", lines[i]);
	return row + 1;
}

/* Everything, scrolled as the UI says; how many lines it could be scrolled at most. */
static int draw_page(struct soda_top_canvas *c, struct soda_top_ui *ui)
{
	static const char keys[] =
		"q quit  s sort  r reverse  p pause  up/down target  PgUp/PgDn scroll  ? help";
	int row, end, hidden;

	soda_top_canvas_clear(c);
	soda_top_put(c, c->rows - 1, 0, SODA_TOP_TITLE, "%s", keys);
	soda_top_paint(c, c->rows - 1, SODA_TOP_TITLE);
	c->last = c->rows - 1;
	row = draw_table(c, ui) + 1;
	c->first = row;
	end = row - ui->scroll;
	if (ui->help)
		end = explain_table(c, end);
	end = draw_one(c, end, &ui->targets[ui->selected], ui->help);
	hidden = end + ui->scroll - c->last;
	return hidden > 0 ? hidden : 0;
}

void soda_top_draw(struct soda_top_canvas *c, struct soda_top_ui *ui)
{
	int most = draw_page(c, ui);

	if (ui->scroll <= most)
		return;
	ui->scroll = most;
	draw_page(c, ui);
}

void soda_top_draw_all(struct soda_top_canvas *c, struct soda_top_ui *ui)
{
	int row;

	soda_top_canvas_clear(c);
	row = draw_table(c, ui) + 1;
	for (int i = 0; i < ui->targets_n; i++)
		row = draw_one(c, row, &ui->targets[ui->order[i]], false) + 1;
}
