/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/watch/frame.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define NCURSES_WIDECHAR 1
#include <curses.h>

enum { REFRESH_MS = 250, PAGE = 10 };

static volatile sig_atomic_t told_to_end;

static void on_end(int sig)
{
	told_to_end = 1;
}

static void catch_ends(void)
{
	const struct sigaction act = { .sa_handler = on_end }; /* no restart: poll returns */
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &act, NULL);
}

/* Attributes of a style; the colours only where there are some and they are wanted. */
static attr_t attributes[SODA_TOP_STYLES];

static void choose_attributes(void)
{
	const char *no_color = getenv("NO_COLOR");

	attributes[SODA_TOP_STRONG] = A_BOLD;
	attributes[SODA_TOP_FAINT] = A_DIM;
	attributes[SODA_TOP_TITLE] = A_REVERSE;
	attributes[SODA_TOP_SELECTED] = A_BOLD;
	attributes[SODA_TOP_BAD] = A_BOLD;
	if (!has_colors() || (no_color && *no_color) || start_color() == ERR)
		return;
	use_default_colors();
	init_pair(1, COLOR_CYAN, -1);
	init_pair(2, COLOR_GREEN, -1);
	init_pair(3, COLOR_RED, -1);
	attributes[SODA_TOP_GRAPH] = (attr_t)COLOR_PAIR(1);
	attributes[SODA_TOP_GOOD] = (attr_t)COLOR_PAIR(2);
	attributes[SODA_TOP_BAD] = A_BOLD | (attr_t)COLOR_PAIR(3);
}

static void show(const struct soda_top_canvas *c)
{
	for (int row = 0; row < c->rows; row++) {
		for (int column = 0; column < c->columns; column++) {
			const struct soda_top_cell *cell = &c->cells[row * c->columns + column];
			const wchar_t text[2] = { cell->ch, 0 };
			attr_t style = attributes[cell->style];
			cchar_t out;

			setcchar(&out, text, style & ~A_COLOR, (short)PAIR_NUMBER(style), NULL);
			mvadd_wch(row, column, &out);
		}
	}
	refresh();
}

static int position(const struct soda_top_ui *ui)
{
	int at = 0;

	while (ui->order[at] != ui->selected)
		at++;
	return at;
}

static void select_by(struct soda_top_ui *ui, int step)
{
	int to = position(ui) + step;

	if (to < 0 || to >= ui->targets_n)
		return;
	ui->selected = ui->order[to];
	ui->scroll = 0;
}

static void pause_all(struct soda_top_ui *ui)
{
	ui->paused = !ui->paused;
	for (int i = 0; i < ui->targets_n; i++)
		soda_top_target_pause(&ui->targets[i], ui->paused);
}

/* False: the user leaves. */
static bool obey(struct soda_top_ui *ui, int key)
{
	switch (key) {
	case 'q':
	case 'Q':
		return false;
	case 's':
		ui->sort = (ui->sort + 1) % SODA_TOP_COLUMNS;
		break;
	case 'r':
		ui->reverse = !ui->reverse;
		break;
	case 'p':
	case ' ':
		pause_all(ui);
		break;
	case '?':
	case 'h':
		ui->help = !ui->help;
		ui->scroll = 0;
		break;
	case KEY_UP:
	case 'k':
		select_by(ui, -1);
		break;
	case KEY_DOWN:
	case 'j':
		select_by(ui, 1);
		break;
	case KEY_NPAGE:
	case 'f':
		ui->scroll += PAGE;
		break;
	case KEY_PPAGE:
	case 'b':
		ui->scroll = ui->scroll > PAGE ? ui->scroll - PAGE : 0;
		break;
	default:
		break;
	}
	return true;
}

/* All keys that are there. False: the user leaves, or the terminal has gone. */
static bool read_keys(struct soda_top_ui *ui)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	int n = poll(&in, 1, REFRESH_MS), key;

	if (n > 0 && !(in.revents & POLLIN))
		return false;
	while ((key = getch()) != ERR) { /* KEY_RESIZE, too, after SIGWINCH */
		if (!obey(ui, key))
			return false;
		n = 0;
	}
	return n <= 0; /* to be read, and nothing there: end of file */
}

static int run(struct soda_top_ui *ui, struct soda_top_canvas *c)
{
	do {
		int rows, columns;

		getmaxyx(stdscr, rows, columns);
		if ((rows != c->rows || columns != c->columns) &&
		    soda_top_canvas_resize(c, columns, rows))
			return -ENOMEM;
		soda_top_draw(c, ui);
		show(c);
	} while (read_keys(ui) && !told_to_end);
	return 0;
}

int soda_top_screen_run(struct soda_top_ui *ui, bool utf8)
{
	struct soda_top_canvas canvas = { .utf8 = utf8 };
	SCREEN *screen;
	int r;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return -ENOTTY;
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return -ENOTTY;
	catch_ends();
	cbreak();
	noecho();
	curs_set(0);
	nodelay(stdscr, TRUE);
	keypad(stdscr, TRUE);
	choose_attributes();
	r = run(ui, &canvas);
	endwin();
	delscreen(screen);
	soda_top_canvas_free(&canvas);
	return r;
}
