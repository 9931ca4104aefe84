/* SPDX-License-Identifier: BSD-3-Clause */
/* The page that `soda top` shows: a table of all targets, and the details of one. */
#ifndef SODA_TOP_FRAME_H
#define SODA_TOP_FRAME_H

#include "soda/watch/canvas.h"
#include "soda/watch/target.h"

enum { SODA_TOP_TARGETS_MAX = 64 };

struct soda_top_ui {
	struct soda_top_target *targets; /* in the order of the command line */
	int targets_n;
	int order[SODA_TOP_TARGETS_MAX]; /* as they are shown; the frame's */
	int selected;			 /* in `targets` */
	enum soda_top_column sort;
	bool reverse, paused, help;
	int scroll; /* lines of the details that are above the page */
	uint32_t interval_ms;
};

/*
 * details.c: every row of one target's view, and its clients; where the page is brief, the groups
 * that are all zero by their names.  Draws from `row` on; returns the row behind it.  The target's
 * lock is held.
 */
int soda_top_details(struct soda_top_canvas *c, int row, const struct soda_top_target *t);
/* The same rows with what they mean. */
int soda_top_explain(struct soda_top_canvas *c, int row, const struct soda_top_target *t);

/* Sort the targets; `order` follows. */
void soda_top_sort(struct soda_top_ui *ui);
/*
 * Draw the page; its last line names the keys.  Takes the targets' locks, one at a time.  If
 * ui->scroll is beyond the end it is set to the end.
 */
void soda_top_draw(struct soda_top_canvas *c, struct soda_top_ui *ui);
/* The table, and the details of every target below each other, without keys. */
void soda_top_draw_all(struct soda_top_canvas *c, struct soda_top_ui *ui);

/*
 * screen.c: the page on a terminal, by ncurses.  Show and obey keys until the user leaves, the
 * terminal goes or a signal (INT, TERM, HUP) says so; the terminal is then as it was.  The calling
 * thread is the one that gets signals. 0; -ENOTTY: no terminal, or none that ncurses knows;
 * -ENOMEM; -ENOTSUP: built without ncurses.
 */
int soda_top_screen_run(struct soda_top_ui *ui, bool utf8);

#endif
