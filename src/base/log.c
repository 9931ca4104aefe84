/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log lines: "name: level: message".  A message is formatted on the stack,
 * cut off at the buffer's end, and made printable.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 512

/* Set before threads start, then constant. */
static struct {
	const char *name;
	int level;
	void (*sink)(int level, const char *line, void *arg);
	void *arg;
} log_to = { .name = "soda", .level = SODA_LOG_LVL_WARNING };

const char *const soda_log_level_names[] = {
	[SODA_LOG_LVL_ERROR] = "error",	 [SODA_LOG_LVL_WARNING] = "warning",
	[SODA_LOG_LVL_INFO] = "info",	 [SODA_LOG_LVL_DEBUG] = "debug",
	[SODA_LOG_LVL_DEBUG + 1] = NULL,
};

void soda_log_setup(const char *name, int level,
		    void (*sink)(int level, const char *line, void *arg), void *arg)
{
	log_to.name = name;
	log_to.level = level;
	log_to.sink = sink;
	log_to.arg = arg;
}

void soda_make_printable(char *text)
{
	char *to = text;

	for (const unsigned char *at = (unsigned char *)text; *at; at++) {
		bool two = *at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;

		*to++ = two || *at < 0x20 || *at == 0x7f ? '?' : (char)*at;
		at += two;
	}
	*to = 0;
}

/* Append text to the line of `used` bytes, leaving room for a line end; returns the new length. */
static size_t append(char line[LINE_BYTES], size_t used, const char *text)
{
	size_t n = strlen(text), room = LINE_BYTES - 2 - used;

	if (n > room)
		n = room;
	memcpy(line + used, text, n);
	line[used + n] = 0;
	return used + n;
}

static void write_line(char line[LINE_BYTES], size_t used)
{
	ssize_t n;

	line[used++] = '\n';
	do
		n = write(STDERR_FILENO, line, used);
	while (n < 0 && errno == EINTR);
}

void soda_log(int level, const char *fmt, ...)
{
	char line[LINE_BYTES];
	size_t used = 0;
	int saved = errno;
	va_list args;

	if (level > log_to.level || level < SODA_LOG_LVL_ERROR || level > SODA_LOG_LVL_DEBUG)
		return;
	if (!log_to.sink) {
		line[0] = 0;
		used = append(line, used, log_to.name);
		used = append(line, used, ": ");
		used = append(line, used, soda_log_level_names[level]);
		used = append(line, used, ": ");
	}
	va_start(args, fmt);
	vsnprintf(line + used, LINE_BYTES - 1 - used, fmt, args);
	va_end(args);
	soda_make_printable(line);
	if (log_to.sink)
		log_to.sink(level, line, log_to.arg);
	else
		write_line(line, strlen(line));
	errno = saved;
}

const char *soda_strerror(int err)
{
	/* the texts of strerror(), which may allocate and translate */
	const char *text = strerrordesc_np(err < 0 ? -err : err);

	return text ? text : "Unknown error";
}
