/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/screen.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utmp.h>

#include "lib/proc.h"

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The terminal */

static void erase(struct screen *s, int row, int from, int to)
{
	for (int i = from; i < to; i++)
		s->cells[row][i] = ' ';
}

static void erase_rows(struct screen *s, int from, int to)
{
	for (int row = from; row < to; row++)
		erase(s, row, 0, s->columns);
}

static int within(int value, int limit)
{
	return value < 0 ? 0 : value >= limit ? limit - 1 : value;
}

/* A line down or up; at the margin the rows between the margins move instead. */
static void feed(struct screen *s, int step)
{
	int margin = step > 0 ? s->bottom : s->top, other = step > 0 ? s->top : s->bottom;

	if (s->row != margin) {
		s->row = within(s->row + step, s->rows);
		return;
	}
	for (int row = other; row != margin; row += step)
		memcpy(s->cells[row], s->cells[row + step], sizeof(s->cells[row]));
	erase(s, margin, 0, s->columns);
}

static void put(struct screen *s, char ch)
{
	if (s->column >= s->columns) { /* as a vt100: the next character wraps */
		s->column = 0;
		feed(s, 1);
	}
	s->cells[s->row][s->column++] = ch;
}

static void run_sequence(struct screen *s, char final)
{
	int n[4] = { 0, 0, 0, 0 }, count = 0;

	for (char *at = s->escape + 1; *at && count < 4; count++) {
		n[count] = atoi(at);
		at += strcspn(at, ";");
		at += *at == ';';
	}
	int step = n[0] ? n[0] : 1;

	if (final == 'H') {
		s->row = within((n[0] ? n[0] : 1) - 1, s->rows);
		s->column = within((n[1] ? n[1] : 1) - 1, s->columns);
	} else if (final == 'A' || final == 'B') {
		s->row = within(s->row + (final == 'B' ? step : -step), s->rows);
	} else if (final == 'C' || final == 'D') {
		s->column = within(s->column + (final == 'C' ? step : -step), s->columns);
	} else if (final == 'K') {
		erase(s, s->row, n[0] ? 0 : s->column, n[0] == 1 ? s->column + 1 : s->columns);
	} else if (final == 'J') {
		if (n[0] == 0)
			erase(s, s->row, s->column, s->columns);
		erase_rows(s, n[0] == 0 ? s->row + 1 : 0, s->rows);
	} else if (final == 'r') {
		s->top = within((n[0] ? n[0] : 1) - 1, s->rows);
		s->bottom = within((n[1] ? n[1] : s->rows) - 1, s->rows);
		s->row = s->column = 0;
	}
}

/* False: the sequence goes on. */
static bool escape(struct screen *s, char ch)
{
	if (s->escape_n == 0 && (ch == 'M' || ch == 'D'))
		feed(s, ch == 'D' ? 1 : -1);
	if (s->escape_n == 0 && ch != '[' && ch != '(' && ch != ')')
		return true; /* ESC =, ESC >: keypad */
	if (s->escape_n && s->escape[0] != '[')
		return true; /* ESC ( B: character set */
	if (s->escape_n && !isdigit((unsigned char)ch) && ch != ';' && ch != '?') {
		s->escape[s->escape_n] = 0;
		run_sequence(s, ch);
		return true;
	}
	if (s->escape_n + 1 < sizeof(s->escape))
		s->escape[s->escape_n++] = ch;
	return false;
}

static void take(struct screen *s, char ch)
{
	static bool escaping; /* one screen at a time */

	if (escaping) {
		escaping = !escape(s, ch);
	} else if (ch == 27) {
		escaping = true;
		s->escape_n = 0;
	} else if (ch == '\r') {
		s->column = 0;
	} else if (ch == '\n') {
		feed(s, 1);
	} else if (ch == '\b') {
		s->column = within(s->column - 1, s->columns);
	} else if (ch == '\t') {
		s->column = within((s->column | 7) + 1, s->columns);
	} else if ((ch & 0xc0) == 0xc0) { /* of UTF-8, the first byte stands for all */
		s->wide = true;
		put(s, '^');
	} else if (ch >= ' ' && ch < 127) {
		put(s, ch);
	}
}

static void remember(struct screen *s, char ch)
{
	if (s->log_n == sizeof(s->log)) {
		memmove(s->log, s->log + sizeof(s->log) / 2, sizeof(s->log) / 2);
		s->log_n = sizeof(s->log) / 2;
	}
	s->log[s->log_n++] = ch;
}

/* What the program has written, at most for timeout_ms. False: it has closed its side. */
static bool receive(struct screen *s, int timeout_ms)
{
	struct pollfd in = { .fd = s->fd, .events = POLLIN };
	char text[4096];
	ssize_t n;

	if (poll(&in, 1, timeout_ms) <= 0 || !(in.revents & POLLIN))
		return true;
	n = read(s->fd, text, sizeof(text));
	for (ssize_t i = 0; i < n; i++) {
		remember(s, text[i]);
		take(s, text[i]);
	}
	return n > 0;
}

/* Programs */

static void resize(struct screen *s, int rows, int columns)
{
	s->rows = rows;
	s->columns = columns;
	s->row = s->column = s->top = 0;
	s->bottom = rows - 1;
	erase_rows(s, 0, rows);
}

int screen_start(struct screen *s, const char *path, const char *const *args, int rows, int columns)
{
	struct winsize size = { .ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns };
	const char *argv[32] = { build_path(path) };

	for (int i = 0; args[i] && i < 30; i++)
		argv[i + 1] = args[i];
	memset(s, 0, sizeof(*s));
	resize(s, rows, columns);
	if (openpty(&s->fd, &s->tty, NULL, NULL, &size) || tcgetattr(s->tty, &s->modes))
		return -1;
	s->pid = fork();
	if (s->pid == 0) {
		close(s->fd);
		if (!login_tty(s->tty))
			execv(argv[0], (char **)(uintptr_t)argv);
		_exit(127);
	}
	return s->pid < 0 ? -1 : 0;
}

void screen_resize(struct screen *s, int rows, int columns)
{
	struct winsize size = { .ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns };

	resize(s, rows, columns);
	ioctl(s->fd, TIOCSWINSZ, &size); /* SIGWINCH to the program */
}

void screen_keys(struct screen *s, const char *keys)
{
	(void)!write(s->fd, keys, strlen(keys));
}

static bool is_shown(struct screen *s, const char *text)
{
	for (int row = 0; row < s->rows; row++) {
		s->cells[row][s->columns] = 0;
		if (strstr(s->cells[row], text))
			return true;
	}
	return false;
}

static bool await(struct screen *s, const char *text, bool shown)
{
	long end = now_ms() + SCREEN_TIMEOUT_MS;

	while (now_ms() < end) {
		if (is_shown(s, text) == shown)
			return true;
		if (!receive(s, 100))
			usleep(10000);
	}
	fprintf(stderr, "%s'%s' on the screen:\n", shown ? "no " : "still ", text);
	for (int row = 0; row < s->rows; row++)
		fprintf(stderr, "|%s|\n", s->cells[row]);
	return false;
}

bool screen_await(struct screen *s, const char *text)
{
	return await(s, text, true);
}

bool screen_await_bytes(struct screen *s, const char *bytes)
{
	long end = now_ms() + SCREEN_TIMEOUT_MS;

	while (now_ms() < end) {
		if (memmem(s->log, s->log_n, bytes, strlen(bytes)))
			return true;
		receive(s, 100);
	}
	return false;
}

bool screen_await_gone(struct screen *s, const char *text)
{
	return await(s, text, false);
}

int screen_end(struct screen *s)
{
	long end = now_ms() + SCREEN_TIMEOUT_MS;
	int status;

	while (waitpid(s->pid, &status, WNOHANG) != s->pid) {
		if (s->fd >= 0)
			receive(s, 20);
		else
			usleep(20000);
		if (now_ms() < end)
			continue;
		kill(s->pid, SIGKILL);
		waitpid(s->pid, &status, 0);
		s->pid = 0;
		return -1;
	}
	s->pid = 0;
	while (s->fd >= 0 && receive(s, 0)) {
		struct pollfd more = { .fd = s->fd, .events = POLLIN };

		if (poll(&more, 1, 0) <= 0 || !(more.revents & POLLIN))
			break;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool screen_is_restored(struct screen *s)
{
	struct termios now;

	return !tcgetattr(s->tty, &now) && now.c_lflag == s->modes.c_lflag &&
	       now.c_iflag == s->modes.c_iflag && now.c_oflag == s->modes.c_oflag;
}

void screen_hang_up(struct screen *s)
{
	close(s->tty);
	close(s->fd);
	s->fd = s->tty = -1;
}

void screen_forget(struct screen *s)
{
	if (s->pid) {
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, 0);
	}
	if (s->fd >= 0)
		screen_hang_up(s);
}
