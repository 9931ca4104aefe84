/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * read, write and their family on buffers in fabric memory: all buffers of a vector as one, in
 * pieces through a bounce buffer.  A regular file is read and written to the end of the buffers, as
 * the kernel does; of anything else a call ends with the first short piece, so that it does not
 * wait twice for a pipe or terminal.  What the kernel takes or gives as one, a message or an atomic
 * write to a pipe, is one piece.
 */
#include "run/core/run.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FLAGGED_MAX = 8 << 20 };

static ssize_t (*next_read)(int, void *, size_t);
static ssize_t (*next_write)(int, const void *, size_t);
static ssize_t (*next_pread)(int, void *, size_t, off_t);
static ssize_t (*next_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*next_readv)(int, const struct iovec *, int);
static ssize_t (*next_writev)(int, const struct iovec *, int);
static ssize_t (*next_preadv)(int, const struct iovec *, int, off_t);
static ssize_t (*next_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*next_preadv2)(int, const struct iovec *, int, off_t, int);
static ssize_t (*next_pwritev2)(int, const struct iovec *, int, off_t, int);
static ssize_t (*next_getrandom)(void *, size_t, unsigned);

/* The next functions; at < 0: at the file's position. */
static ssize_t load(int fd, void *p, size_t n, off_t at)
{
	return at < 0 ? RUN_NEXT(next_read, "read")(fd, p, n)
		      : RUN_NEXT(next_pread, "pread64")(fd, p, n, at);
}

static ssize_t store(int fd, const void *p, size_t n, off_t at)
{
	return at < 0 ? RUN_NEXT(next_write, "write")(fd, p, n)
		      : RUN_NEXT(next_pwrite, "pwrite64")(fd, p, n, at);
}

static bool is_file(int fd)
{
	struct stat st;
	int saved = errno;
	bool file = fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));

	errno = saved;
	return file;
}

/*
 * The result of a call that has transferred `done` bytes before n: the bytes, or, if none, the
 * error.
 */
static ssize_t total(size_t done, ssize_t n, int saved)
{
	if (done) {
		errno = saved;
		return (ssize_t)done;
	}
	return n;
}

/* Whether each call reads or writes one whole message. */
static bool is_message(int fd)
{
	int type = SOCK_STREAM, saved = errno;
	socklen_t n = sizeof(type);
	bool message = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type != SOCK_STREAM;

	errno = saved;
	return message;
}

/* How many bytes a vector has; false: the kernel would refuse it. */
static bool length(const struct iovec *v, int n, size_t *bytes_p)
{
	const size_t most = 0x7ffff000; /* that one call transfers: the kernel's MAX_RW_COUNT */
	size_t bytes = 0;

	if (n < 0 || n > 1024)
		return false;
	for (int i = 0; i < n; i++)
		if (__builtin_add_overflow(bytes, v[i].iov_len, &bytes) || bytes > SSIZE_MAX)
			return false;
	*bytes_p = bytes < most ? bytes : most;
	return true;
}

/*
 * Copy between the bounce buffer and the vector, from its byte `skip` on; it has that many bytes.
 */
static void copy(const struct iovec *v, size_t skip, char *bounce, size_t bytes, bool out)
{
	for (; bytes; v++) {
		char *p = (char *)v->iov_base + skip;
		size_t n = v->iov_len - skip;

		if (skip >= v->iov_len) {
			skip -= v->iov_len;
			continue;
		}
		n = n < bytes ? n : bytes;
		memcpy(out ? bounce : p, out ? p : bounce, n);
		bounce += n;
		bytes -= n;
		skip = 0;
	}
}

static ssize_t transfer(int fd, const struct iovec *v, int n, off_t at, bool out)
{
	size_t bytes, piece, size, done = 0;
	int saved = errno;
	char *bounce;
	ssize_t r;

	if (!length(v, n, &bytes)) {
		errno = EINVAL;
		return -1;
	}
	piece = bytes <= RUN_BOUNCE || is_message(fd) ? bytes : RUN_BOUNCE;
	bounce = run_bounce_get(piece, &size);
	if (!bounce) {
		errno = ENOMEM;
		return -1;
	}
	do {
		size_t want = bytes - done < piece ? bytes - done : piece;
		off_t here = at < 0 ? at : at + (off_t)done;

		if (out)
			copy(v, done, bounce, want, true);
		r = out ? store(fd, bounce, want, here) : load(fd, bounce, want, here);
		if (r > 0 && !out)
			copy(v, done, bounce, (size_t)r, false);
		done += r > 0 ? (size_t)r : 0;
		if (r < (ssize_t)want)
			break;
	} while (done < bytes && (out || is_file(fd)));
	run_bounce_put(bounce, size);
	return total(done, r, saved);
}

static ssize_t load_fam(int fd, void *p, size_t bytes, off_t at)
{
	return transfer(fd, &(struct iovec){ p, bytes }, 1, at, false);
}

static ssize_t store_fam(int fd, const void *p, size_t bytes, off_t at)
{
	return transfer(fd, &(struct iovec){ (void *)(uintptr_t)p, bytes }, 1, at, true);
}

RUN_API ssize_t read(int fd, void *p, size_t n)
{
	return run_handed(p, RUN_CALLER) ? load_fam(fd, p, n, -1) : load(fd, p, n, -1);
}

RUN_API ssize_t write(int fd, const void *p, size_t n)
{
	return run_handed(p, RUN_CALLER) ? store_fam(fd, p, n, -1) : store(fd, p, n, -1);
}

ssize_t run_write(int fd, const void *p, size_t n)
{
	return run_fam(p) ? store_fam(fd, p, n, -1) : store(fd, p, n, -1);
}

ssize_t run_transfer(int fd, void *p, size_t n, off_t at, bool out)
{
	if (out)
		return run_fam(p) ? store_fam(fd, p, n, at) : store(fd, p, n, at);
	return run_fam(p) ? load_fam(fd, p, n, at) : load(fd, p, n, at);
}

static ssize_t load_at(int fd, void *p, size_t n, off_t at, const void *caller)
{
	if (at < 0) {
		errno = EINVAL;
		return -1;
	}
	return run_handed(p, caller) ? load_fam(fd, p, n, at) : load(fd, p, n, at);
}

RUN_API ssize_t pread(int fd, void *p, size_t n, off_t at)
{
	return load_at(fd, p, n, at, RUN_CALLER);
}

RUN_API ssize_t pread64(int fd, void *p, size_t n, off64_t at) RUN_SAME_AS(pread);

RUN_API ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
	if (at < 0) {
		errno = EINVAL;
		return -1;
	}
	return run_handed(p, RUN_CALLER) ? store_fam(fd, p, n, at) : store(fd, p, n, at);
}

RUN_API ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at) RUN_SAME_AS(pwrite);

/* Programs that are compiled with _FORTIFY_SOURCE call these. */
ssize_t __read_chk(int fd, void *p, size_t n, size_t room);
ssize_t __pread_chk(int fd, void *p, size_t n, off_t at, size_t room);

RUN_API ssize_t __read_chk(int fd, void *p, size_t n, size_t room)
{
	if (n > room)
		__chk_fail();
	return run_fam(p) ? load_fam(fd, p, n, -1) : load(fd, p, n, -1);
}

RUN_API ssize_t __pread_chk(int fd, void *p, size_t n, off_t at, size_t room)
{
	if (n > room)
		__chk_fail();
	return load_at(fd, p, n, at, RUN_CALLER);
}

RUN_API ssize_t __pread64_chk(int fd, void *p, size_t n, off64_t at, size_t room)
	RUN_SAME_AS(__pread_chk);

static bool vector_concerns(const struct iovec *v, int n, const void *caller)
{
	if (run_is_ours(caller))
		return false;
	if (run_fam(v))
		return true;
	for (int i = 0; i < n; i++)
		if (run_fam(v[i].iov_base))
			return true;
	return false;
}

RUN_API ssize_t readv(int fd, const struct iovec *v, int n)
{
	return vector_concerns(v, n, RUN_CALLER) ? transfer(fd, v, n, -1, false)
						 : RUN_NEXT(next_readv, "readv")(fd, v, n);
}

RUN_API ssize_t writev(int fd, const struct iovec *v, int n)
{
	return vector_concerns(v, n, RUN_CALLER) ? transfer(fd, v, n, -1, true)
						 : RUN_NEXT(next_writev, "writev")(fd, v, n);
}

RUN_API ssize_t preadv(int fd, const struct iovec *v, int n, off_t at)
{
	return at >= 0 && vector_concerns(v, n, RUN_CALLER)
		       ? transfer(fd, v, n, at, false)
		       : RUN_NEXT(next_preadv, "preadv")(fd, v, n, at);
}

RUN_API ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at)
{
	return at >= 0 && vector_concerns(v, n, RUN_CALLER)
		       ? transfer(fd, v, n, at, true)
		       : RUN_NEXT(next_pwritev, "pwritev")(fd, v, n, at);
}

RUN_API ssize_t preadv64(int fd, const struct iovec *v, int n, off64_t at) RUN_SAME_AS(preadv);
RUN_API ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t at) RUN_SAME_AS(pwritev);

/*
 * A call with flags is one call of the kernel; unless it is a message, it transfers at most
 * FLAGGED_MAX bytes, as a program must expect that fewer bytes are transferred than it has asked
 * for.
 */
static ssize_t flagged(int fd, const struct iovec *v, int n, off_t at, int flags, bool out)
{
	size_t want, size;
	struct iovec one;
	char *bounce;
	ssize_t r;

	if (!length(v, n, &want)) {
		errno = EINVAL;
		return -1;
	}
	if (want > FLAGGED_MAX && !is_message(fd))
		want = FLAGGED_MAX;
	bounce = run_bounce_get(want, &size);
	if (!bounce) {
		errno = ENOMEM;
		return -1;
	}
	one = (struct iovec){ bounce, want };
	if (out)
		copy(v, 0, bounce, want, true);
	r = out ? RUN_NEXT(next_pwritev2, "pwritev2")(fd, &one, 1, at, flags)
		: RUN_NEXT(next_preadv2, "preadv2")(fd, &one, 1, at, flags);
	if (r > 0 && !out)
		copy(v, 0, bounce, (size_t)r, false);
	run_bounce_put(bounce, size);
	return r;
}

static ssize_t vector2(int fd, const struct iovec *v, int n, off_t at, int flags, bool out)
{
	if (at < -1) {
		errno = EINVAL;
		return -1;
	}
	return flags ? flagged(fd, v, n, at, flags, out) : transfer(fd, v, n, at, out);
}

ssize_t run_transfer_vector(int fd, const struct iovec *v, int n, off_t at, int flags, bool out)
{
	return vector2(fd, v, n, at, flags, out);
}

RUN_API ssize_t preadv2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	return vector_concerns(v, n, RUN_CALLER)
		       ? vector2(fd, v, n, at, flags, false)
		       : RUN_NEXT(next_preadv2, "preadv2")(fd, v, n, at, flags);
}

RUN_API ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	return vector_concerns(v, n, RUN_CALLER)
		       ? vector2(fd, v, n, at, flags, true)
		       : RUN_NEXT(next_pwritev2, "pwritev2")(fd, v, n, at, flags);
}

RUN_API ssize_t preadv64v2(int fd, const struct iovec *v, int n, off64_t at, int flags)
	RUN_SAME_AS(preadv2);
RUN_API ssize_t pwritev64v2(int fd, const struct iovec *v, int n, off64_t at, int flags)
	RUN_SAME_AS(pwritev2);

RUN_API ssize_t getrandom(void *p, size_t n, unsigned flags)
{
	size_t done = 0, size;
	char *bounce;
	ssize_t r = 0;

	if (!run_handed(p, RUN_CALLER))
		return RUN_NEXT(next_getrandom, "getrandom")(p, n, flags);
	bounce = run_bounce_get(1, &size);
	while (bounce && done < n) {
		size_t want = n - done < size ? n - done : size;

		r = RUN_NEXT(next_getrandom, "getrandom")(bounce, want, flags);
		if (r <= 0)
			break;
		memcpy((char *)p + done, bounce, (size_t)r);
		done += (size_t)r;
	}
	if (!bounce)
		errno = ENOMEM;
	run_bounce_put(bounce, size);
	return done ? (ssize_t)done : bounce ? r : -1;
}

/* The C library's, of 2.36 and newer, ends the program where the kernel cannot fill its buffer. */
RUN_API void arc4random_buf(void *p, size_t n);
RUN_API void arc4random_buf(void *p, size_t n)
{
	static void (*next)(void *, size_t);
	char local[256];

	RUN_NEXT(next, "arc4random_buf");
	if (!run_handed(p, RUN_CALLER)) {
		next(p, n);
		return;
	}
	for (size_t done = 0; done < n;) {
		size_t want = n - done < sizeof(local) ? n - done : sizeof(local);

		next(local, want);
		memcpy((char *)p + done, local, want);
		done += want;
	}
}

RUN_API int getentropy(void *p, size_t n)
{
	char local[256];

	if (n > sizeof(local)) {
		errno = EIO;
		return -1;
	}
	for (size_t done = 0; done < n;) {
		ssize_t r = RUN_NEXT(next_getrandom, "getrandom")(local + done, n - done, 0);

		if (r < 0 && errno != EINTR)
			return -1;
		done += r > 0 ? (size_t)r : 0;
	}
	memcpy(p, local, n);
	return 0;
}
