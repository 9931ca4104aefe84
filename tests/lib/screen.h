/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program on a terminal: a pseudo-terminal, and as much of a vt100 as is needed to
 * know what stands on its screen.
 */
#ifndef SODA_TEST_SCREEN_H
#define SODA_TEST_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <termios.h>

enum { SCREEN_ROWS_MAX = 64, SCREEN_COLUMNS_MAX = 200, SCREEN_TIMEOUT_MS = 60000 };

struct screen {
	int fd, tty; /* the user's side; the program's, held open to look at its modes */
	pid_t pid;   /* 0: has ended */
	int rows, columns, row, column;
	int top, bottom;				     /* rows that scroll */
	char cells[SCREEN_ROWS_MAX][SCREEN_COLUMNS_MAX + 1]; /* '^' for what is not ASCII */
	char escape[64];				     /* the unfinished sequence */
	size_t escape_n;
	bool wide;	      /* a character that is not ASCII was shown */
	struct termios modes; /* before the program */
	char log[1 << 16];    /* the last bytes of the program, as they came */
	size_t log_n;
};

/* Run build_path(path) with these arguments. 0 or -1. */
int screen_start(struct screen *s, const char *path, const char *const *args, int rows,
		 int columns);
void screen_resize(struct screen *s, int rows, int columns);
void screen_keys(struct screen *s, const char *keys);
/* Wait until this text is somewhere on the screen; false: not within the time, the screen is shown.
 */
bool screen_await(struct screen *s, const char *text);
/* Wait until the program has sent these bytes. */
bool screen_await_bytes(struct screen *s, const char *bytes);
/* Wait until it is nowhere. */
bool screen_await_gone(struct screen *s, const char *text);
/* The end of the program: exit status, 128 + signal, or -1 after it had to be killed. */
int screen_end(struct screen *s);
/* Whether the terminal's modes are what they were before the program. */
bool screen_is_restored(struct screen *s);
/* Hang up: the user's side is closed. */
void screen_hang_up(struct screen *s);
void screen_forget(struct screen *s);

#endif
