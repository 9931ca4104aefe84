/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * printf and puts of strings in fabric memory.  The C library passes a long string to the kernel
 * as it lies; so where an argument lies in fabric memory, the whole text is made first, and
 * then written like another block.
 */
#include "run/core/run.h"

#include <printf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { ARGS_MAX = 64 };

/* Take one argument off the list. Whether it is, or may be, a string in fabric memory. */
static bool next_is_fam(int type, va_list *ap)
{
	bool longer = type & (PA_FLAG_LONG | PA_FLAG_LONG_LONG);

	if (type & PA_FLAG_PTR) {
		(void)va_arg(*ap, void *);
		return false;
	}
	switch (type & ~PA_FLAG_MASK) {
	case PA_INT:
	case PA_CHAR:
		if (longer)
			(void)va_arg(*ap, long);
		else
			(void)va_arg(*ap, int);
		return false;
	case PA_WCHAR:
		(void)va_arg(*ap, wint_t);
		return false;
	case PA_STRING:
	case PA_WSTRING:
		return run_fam(va_arg(*ap, void *));
	case PA_POINTER:
		(void)va_arg(*ap, void *);
		return false;
	case PA_FLOAT:
	case PA_DOUBLE:
		if (type & PA_FLAG_LONG_DOUBLE)
			(void)va_arg(*ap, long double);
		else
			(void)va_arg(*ap, double);
		return false;
	default: /* a conversion that the program has defined: it may be */
		return true;
	}
}

static bool concerns(const char *format, va_list ap, const void *caller)
{
	int types[ARGS_MAX];
	bool fam = false;
	size_t n;
	va_list walk;

	uint32_t life = atomic_load_explicit(&soda_agent.life, memory_order_relaxed);

	if ((life != SODA_LIFE_RUNNING && life != SODA_LIFE_FORKED) || run_is_ours(caller))
		return false;
	if (run_fam(format))
		return true;
	if (!strchr(format, 's') && !strchr(format, 'S'))
		return false;
	n = parse_printf_format(format, ARGS_MAX, types);
	if (n > ARGS_MAX)
		return true;
	va_copy(walk, ap);
	for (size_t i = 0; i < n && !fam; i++)
		fam = next_is_fam(types[i], &walk);
	va_end(walk);
	return fam;
}

int __vasprintf_chk(char **text, int flag, const char *format, va_list ap);
int __vfprintf_chk(FILE *f, int flag, const char *format, va_list ap);
int __vdprintf_chk(int fd, int flag, const char *format, va_list ap);

static int (*next_vfprintf)(FILE *, int, const char *, va_list);
static int (*next_vdprintf)(int, int, const char *, va_list);

/* All wrappers with a stream call this; flag: of the forms for _FORTIFY_SOURCE, 0 of the others. */
static int print(FILE *f, int flag, const char *format, va_list ap, const void *caller)
{
	char *text;
	int n;

	if (!concerns(format, ap, caller))
		return RUN_NEXT(next_vfprintf, "__vfprintf_chk")(f, flag, format, ap);
	n = __vasprintf_chk(&text, flag, format, ap);
	if (n < 0)
		return n;
	if (run_fwrite(text, 1, (size_t)n, f) != (size_t)n)
		n = -1;
	run_free(text);
	return n;
}

static int print_to(int fd, int flag, const char *format, va_list ap, const void *caller)
{
	char *text;
	int n, done = 0;

	if (!concerns(format, ap, caller))
		return RUN_NEXT(next_vdprintf, "__vdprintf_chk")(fd, flag, format, ap);
	n = __vasprintf_chk(&text, flag, format, ap);
	while (done < n) {
		ssize_t put = run_write(fd, text + done, (size_t)(n - done));

		if (put <= 0)
			break;
		done += (int)put;
	}
	if (n >= 0)
		run_free(text);
	return done < n ? -1 : n;
}

#define PRINT(name, PARAMS, last, way, to, flag)                                                   \
	int name PARAMS;                                                                           \
	RUN_API int name PARAMS                                                                    \
	{                                                                                          \
		va_list ap;                                                                        \
		int n;                                                                             \
                                                                                                   \
		va_start(ap, last);                                                                \
		n = way(to, flag, last, ap, RUN_CALLER);                                           \
		va_end(ap);                                                                        \
		return n;                                                                          \
	}
#define VPRINT(name, PARAMS, way, to, flag)                                                        \
	int name PARAMS;                                                                           \
	RUN_API int name PARAMS                                                                    \
	{                                                                                          \
		return way(to, flag, format, ap, RUN_CALLER);                                      \
	}

PRINT(printf, (const char *format, ...), format, print, stdout, 0)
PRINT(fprintf, (FILE * f, const char *format, ...), format, print, f, 0)
PRINT(dprintf, (int fd, const char *format, ...), format, print_to, fd, 0)
PRINT(__printf_chk, (int flag, const char *format, ...), format, print, stdout, flag)
PRINT(__fprintf_chk, (FILE * f, int flag, const char *format, ...), format, print, f, flag)
PRINT(__dprintf_chk, (int fd, int flag, const char *format, ...), format, print_to, fd, flag)
VPRINT(vprintf, (const char *format, va_list ap), print, stdout, 0)
VPRINT(vfprintf, (FILE * f, const char *format, va_list ap), print, f, 0)
VPRINT(vdprintf, (int fd, const char *format, va_list ap), print_to, fd, 0)
VPRINT(__vprintf_chk, (int flag, const char *format, va_list ap), print, stdout, flag)
VPRINT(__vfprintf_chk, (FILE * f, int flag, const char *format, va_list ap), print, f, flag)
VPRINT(__vdprintf_chk, (int fd, int flag, const char *format, va_list ap), print_to, fd, flag)

static int (*next_puts)(const char *);

RUN_API int puts(const char *s)
{
	size_t n;
	int ret;

	if (!run_fam(s) || run_is_ours(RUN_CALLER))
		return RUN_NEXT(next_puts, "puts")(s);
	n = strlen(s);
	flockfile(stdout); /* so that nothing comes between the string and its line end */
	ret = run_fwrite(s, 1, n, stdout) == n && putc_unlocked('\n', stdout) != EOF ? 1 : EOF;
	funlockfile(stdout);
	return ret;
}
