/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stdio on fabric memory.  The C library passes large transfers to the kernel straight from the
 * caller's memory, by calls inside of it that cannot be wrapped; so they go through a bounce
 * buffer, in pieces that the C library copies or passes on.  A stream's own buffer stays local.
 */
#include "run/core/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* these two are macros, too */
#undef fread_unlocked
#undef fwrite_unlocked

typedef size_t (*read_fn)(void *, size_t, size_t, FILE *);
typedef size_t (*write_fn)(const void *, size_t, size_t, FILE *);

static read_fn next_fread, next_fread_unlocked;
static write_fn next_fwrite, next_fwrite_unlocked;
static int (*next_setvbuf)(FILE *, char *, int, size_t);
static int (*next_fputs)(const char *, FILE *);
static int (*next_fputs_unlocked)(const char *, FILE *);

/* Returns how many whole items were read, as fread(3); a last partial one is in the buffer, too. */
static size_t load(read_fn fn, char *p, size_t item, size_t n, FILE *f)
{
	size_t bytes, size, done = 0;
	char *bounce;

	if (__builtin_mul_overflow(item, n, &bytes) || !bytes)
		return 0;
	bounce = run_bounce_get(1, &size);
	if (!bounce) {
		errno = ENOMEM;
		return 0;
	}
	while (done < bytes) {
		size_t want = bytes - done < size ? bytes - done : size;
		size_t got = fn(bounce, 1, want, f);

		memcpy(p + done, bounce, got);
		done += got;
		if (got < want)
			break;
	}
	run_bounce_put(bounce, size);
	return done / item;
}

static size_t store(write_fn fn, const char *p, size_t item, size_t n, FILE *f)
{
	size_t bytes, size, done = 0;
	char *bounce;

	if (__builtin_mul_overflow(item, n, &bytes) || !bytes)
		return 0;
	bounce = run_bounce_get(1, &size);
	if (!bounce) {
		errno = ENOMEM;
		return 0;
	}
	while (done < bytes) {
		size_t want = bytes - done < size ? bytes - done : size, put;

		memcpy(bounce, p + done, want);
		put = fn(bounce, 1, want, f);
		done += put;
		if (put < want)
			break;
	}
	run_bounce_put(bounce, size);
	return done / item;
}

static size_t read_locked(void *p, size_t item, size_t n, FILE *f)
{
	read_fn fn = RUN_NEXT(next_fread, "fread");
	size_t r;

	if (!run_fam(p))
		return fn(p, item, n, f);
	flockfile(f); /* so that no other thread's read comes between the pieces */
	r = load(fn, p, item, n, f);
	funlockfile(f);
	return r;
}

static size_t read_unlocked(void *p, size_t item, size_t n, FILE *f)
{
	read_fn fn = RUN_NEXT(next_fread_unlocked, "fread_unlocked");

	return run_fam(p) ? load(fn, p, item, n, f) : fn(p, item, n, f);
}

static size_t write_unlocked(const void *p, size_t item, size_t n, FILE *f)
{
	write_fn fn = RUN_NEXT(next_fwrite_unlocked, "fwrite_unlocked");

	return run_fam(p) ? store(fn, p, item, n, f) : fn(p, item, n, f);
}

RUN_API size_t fread(void *p, size_t item, size_t n, FILE *f)
{
	return run_handed(p, RUN_CALLER) ? read_locked(p, item, n, f)
					 : RUN_NEXT(next_fread, "fread")(p, item, n, f);
}

size_t fread_unlocked(void *p, size_t item, size_t n, FILE *f);
size_t fwrite_unlocked(const void *p, size_t item, size_t n, FILE *f);

RUN_API size_t fread_unlocked(void *p, size_t item, size_t n, FILE *f)
{
	return read_unlocked(p, item, n, f);
}

size_t run_fwrite(const void *p, size_t item, size_t n, FILE *f)
{
	write_fn fn = RUN_NEXT(next_fwrite, "fwrite");
	size_t r;

	if (!run_fam(p))
		return fn(p, item, n, f);
	flockfile(f);
	r = store(fn, p, item, n, f);
	funlockfile(f);
	return r;
}

RUN_API size_t fwrite(const void *p, size_t item, size_t n, FILE *f)
{
	return run_handed(p, RUN_CALLER) ? run_fwrite(p, item, n, f)
					 : RUN_NEXT(next_fwrite, "fwrite")(p, item, n, f);
}

RUN_API size_t fwrite_unlocked(const void *p, size_t item, size_t n, FILE *f)
{
	return write_unlocked(p, item, n, f);
}

size_t __fread_chk(void *p, size_t room, size_t item, size_t n, FILE *f);
size_t __fread_unlocked_chk(void *p, size_t room, size_t item, size_t n, FILE *f);

static void check(size_t room, size_t item, size_t n)
{
	size_t bytes;

	if (__builtin_mul_overflow(item, n, &bytes) || bytes > room)
		__chk_fail();
}

RUN_API size_t __fread_chk(void *p, size_t room, size_t item, size_t n, FILE *f)
{
	check(room, item, n);
	return read_locked(p, item, n, f);
}

RUN_API size_t __fread_unlocked_chk(void *p, size_t room, size_t item, size_t n, FILE *f)
{
	check(room, item, n);
	return read_unlocked(p, item, n, f);
}

RUN_API int fputs(const char *s, FILE *f)
{
	size_t n;

	if (!run_handed(s, RUN_CALLER))
		return RUN_NEXT(next_fputs, "fputs")(s, f);
	n = strlen(s);
	return run_fwrite(s, 1, n, f) == n ? 1 : EOF;
}

int fputs_unlocked(const char *s, FILE *f);

RUN_API int fputs_unlocked(const char *s, FILE *f)
{
	size_t n;

	if (!run_handed(s, RUN_CALLER))
		return RUN_NEXT(next_fputs_unlocked, "fputs_unlocked")(s, f);
	n = strlen(s);
	return write_unlocked(s, 1, n, f) == n ? 1 : EOF;
}

/*
 * A buffer in fabric memory, which the kernel would access, is replaced by one of the stream's own.
 */
static int set_buffer(FILE *f, char *buf, int mode, size_t n, const void *caller)
{
	return RUN_NEXT(next_setvbuf, "setvbuf")(f, run_handed(buf, caller) ? NULL : buf, mode, n);
}

RUN_API int setvbuf(FILE *f, char *buf, int mode, size_t n)
{
	return set_buffer(f, buf, mode, n, RUN_CALLER);
}

RUN_API void setbuffer(FILE *f, char *buf, size_t n)
{
	set_buffer(f, buf, buf ? _IOFBF : _IONBF, n, RUN_CALLER);
}

RUN_API void setbuf(FILE *f, char *buf)
{
	set_buffer(f, buf, buf ? _IOFBF : _IONBF, BUFSIZ, RUN_CALLER);
}

RUN_API void setlinebuf(FILE *f)
{
	set_buffer(f, NULL, _IOLBF, 0, RUN_CALLER);
}
