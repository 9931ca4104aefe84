/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and what prints to them. */
#include "run_victim.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

/* What headers declare for _FORTIFY_SOURCE only. */
int __printf_chk(int flag, const char *format, ...);
int __vprintf_chk(int flag, const char *format, va_list ap);
int __vfprintf_chk(FILE *f, int flag, const char *format, va_list ap);
int __vdprintf_chk(int fd, int flag, const char *format, va_list ap);

/* Not the form that headers have in place of it. */
static int (*volatile plain_vprintf)(const char *, va_list) = vprintf;

static int vprints(int how, FILE *f, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	switch (how) {
	case 0:
		n = plain_vprintf(format, ap);
		break;
	case 1:
		n = vfprintf(f, format, ap);
		break;
	case 2:
		n = __vprintf_chk(1, format, ap);
		break;
	case 3:
		n = __vfprintf_chk(f, 1, format, ap);
		break;
	case 4:
		n = vdprintf(fileno(f), format, ap);
		break;
	default:
		n = __vdprintf_chk(fileno(f), 1, format, ap);
	}
	va_end(ap);
	fflush(f);
	return n;
}

/* Into a file that is standard output for the time. */
void check_prints(void)
{
	char *text = object(0), *path = name(1, "file"), seen[100] = "";
	int saved = dup(1), fd = open(path, O_RDWR | O_TRUNC | O_APPEND);

	CHECK(saved >= 0 && fd >= 0 && !fflush(stdout) && dup2(fd, 1) == 1);
	strcpy(text, "text");
	for (int how = 0; how < 6; how++)
		CHECK(AWAY(vprints(how, stdout, "%d%s ", how, text)) == 6);
	CHECK(AWAY(__printf_chk(1, "6%s", text)) == 5 && !fflush(stdout) && dup2(saved, 1) == 1);
	CHECK(pread(fd, seen, sizeof(seen) - 1, 0) == 41);
	CHECK(!strcmp(seen, "0text 1text 2text 3text 4text 5text 6text"));
	close(saved);
	close(fd);
}

void check_streams(void)
{
	char *path = name(0, "file"), *buf = object(1);
	FILE *f = fopen(path, "w+");

	CHECK(f);
	setbuf(f, buf); /* which is not used */
	CHECK(fputs("line\n", f) >= 0 && AWAY(fflush(f)) == 0);
	setlinebuf(f);
	CHECK(fputs("more\n", f) >= 0);
	objects_away();
	rewind(f);
	CHECK(fgetc(f) == 'l' && !fclose(f));
}
