/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log lines.  One line is one write(2) to stderr, or one call of the sink that
 * the application gave.  Async-signal-safe: a fixed buffer of 512 bytes on the
 * stack, vsnprintf with integer and string conversions only, no locks, errno kept.
 * The function that first decides an error logs it, once: what was asked, of whom, why it
 * failed, what to do.
 */
#ifndef SODA_BASE_LOG_H
#define SODA_BASE_LOG_H

enum { /* as enum soda_log_level in soda.h */
       SODA_LOG_LVL_ERROR = 1,
       SODA_LOG_LVL_WARNING = 2,
       SODA_LOG_LVL_INFO = 3,
       SODA_LOG_LVL_DEBUG = 4,
};

/* "warning" at [SODA_LOG_LVL_WARNING]; NULL behind the last. */
extern const char *const soda_log_level_names[];

/*
 * To be called before threads start. name: printed before each line; not copied. sink NULL: stderr.
 */
void soda_log_setup(const char *name, int level,
		    void (*sink)(int level, const char *line, void *arg), void *arg);

void soda_log(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define soda_log_error(...) soda_log(SODA_LOG_LVL_ERROR, __VA_ARGS__)
#define soda_log_warning(...) soda_log(SODA_LOG_LVL_WARNING, __VA_ARGS__)
#define soda_log_info(...) soda_log(SODA_LOG_LVL_INFO, __VA_ARGS__)
#define soda_log_debug(...) soda_log(SODA_LOG_LVL_DEBUG, __VA_ARGS__)

/*
 * Replace every control character by '?', also those of two bytes in UTF-8 (U+0080 to U+009F),
 * because names and reasons from peers must not forge lines, nor be commands to a terminal.
 */
void soda_make_printable(char *text);

/* "Connection refused" for ECONNREFUSED or -ECONNREFUSED; a constant string, async-signal-safe. */
const char *soda_strerror(int err);

#endif
