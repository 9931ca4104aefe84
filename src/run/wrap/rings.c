/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers that the kernel makes while the program goes on: those of io_submit(), with libaio or
 * without, and io_uring.  The device fills the pages that were there when it began, and an eviction
 * meanwhile leaves these: what is stored there is lost.
 *
 * io_submit() on fabric memory: the calling thread makes the transfer at once, through local
 * memory, and submits a *receipt* in its place, a write to /dev/null whose result is the same, so
 * that the completion comes as the program expects it.
 *
 * io_uring is refused, as by a kernel without it, because requests need no call that could be seen;
 * unless the user says that their memory is local, or that all memory is to stay (pool/held.c).
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "run/wrap/near.h"

enum { VECTOR_MAX = 1024 }; /* as the kernel */

static bool is_vector(const struct iocb *cb)
{
	return cb->aio_lio_opcode == IOCB_CMD_PREADV || cb->aio_lio_opcode == IOCB_CMD_PWRITEV;
}

/* Whether the transfer has memory that is fabric memory. */
static bool buffers_concern(const struct iocb *cb)
{
	const struct iovec *v = (const struct iovec *)(uintptr_t)cb->aio_buf;

	if (cb->aio_lio_opcode == IOCB_CMD_PREAD || cb->aio_lio_opcode == IOCB_CMD_PWRITE)
		return run_fam(v);
	if (!is_vector(cb))
		return false;
	if (run_fam(v))
		return true;
	for (uint64_t i = 0; i < cb->aio_nbytes && i < VECTOR_MAX; i++)
		if (run_fam(v[i].iov_base))
			return true;
	return false;
}

static bool concerns(long n, struct iocb *const *v)
{
	if (n > 0 && run_fam(v))
		return true;
	for (long i = 0; i < n; i++)
		if (run_fam(v[i]) || buffers_concern(v[i]))
			return true;
	return false;
}

/*
 * Make the transfer; its result, or a negative error.  Only of files that have positions: it is
 * made again if the receipt finds no room, and the program submits it anew.
 */
static ssize_t transfer(const struct iocb *cb)
{
	bool out = cb->aio_lio_opcode == IOCB_CMD_PWRITE || cb->aio_lio_opcode == IOCB_CMD_PWRITEV;
	struct iovec one = { (void *)(uintptr_t)cb->aio_buf, cb->aio_nbytes };
	const struct iovec *v = is_vector(cb) ? one.iov_base : &one;
	uint64_t n = is_vector(cb) ? cb->aio_nbytes : 1;
	int fd = (int)cb->aio_fildes;
	ssize_t ret;

	if (lseek(fd, 0, SEEK_CUR) < 0)
		return errno == ESPIPE ? -EINVAL : -errno;
	if (n > VECTOR_MAX || cb->aio_offset < 0)
		return -EINVAL;
	ret = run_transfer_vector(fd, v, (int)n, cb->aio_offset, (int)cb->aio_rw_flags, out);
	return ret < 0 ? -errno : ret;
}

static long submit_as_it_is(aio_context_t context, struct iocb *cb)
{
	long ret = syscall(SYS_io_submit, context, 1L, &cb);

	return ret < 0 ? -errno : ret;
}

/* The same control block, because the completion names it. */
static long submit_receipt(aio_context_t context, struct iocb *cb, int null, ssize_t result)
{
	static char page[4096] __attribute__((aligned(4096)));
	struct iocb saved = *cb;
	long ret;

	cb->aio_lio_opcode = IOCB_CMD_PWRITE;
	cb->aio_fildes = (uint32_t)null;
	cb->aio_buf = (uintptr_t)page; /* which nobody reads, whatever the length */
	cb->aio_nbytes = (uint64_t)result;
	cb->aio_offset = 0;
	cb->aio_rw_flags = 0;
	ret = submit_as_it_is(context, cb);
	saved.aio_key = cb->aio_key;
	*cb = saved;
	return ret;
}

static long submit_transfer(aio_context_t context, struct iocb *cb)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	ssize_t result;
	long ret;

	if (null < 0)
		return -errno;
	result = transfer(cb);
	ret = result < 0 ? result : submit_receipt(context, cb, null, result);
	close(null);
	return ret;
}

static long submit_one(aio_context_t context, struct iocb *cb)
{
	bool held = run_hold_needed(cb);
	long ret;

	if (held)
		run_hold(cb, sizeof(*cb), "io_submit");
	ret = buffers_concern(cb) ? submit_transfer(context, cb) : submit_as_it_is(context, cb);
	if (held)
		run_unhold(cb, sizeof(*cb));
	return ret;
}

/* As the kernel does: how many were taken, or, if none, the first one's error. */
static long submit(aio_context_t context, long n, struct iocb *const *v)
{
	int saved = errno;
	long done = 0, ret = 0;

	for (; done < n && (ret = submit_one(context, v[done])) == 1; done++)
		;
	errno = saved;
	return done ? done : ret;
}

/*
 * libaio's functions, which it has no header for here.  Another library may have functions of these
 * names, and a program may look whether they are there.
 */
static bool is_libaio(void *function)
{
	Dl_info info;

	return dladdr(function, &info) && strstr(info.dli_fname, "libaio");
}

#define LIBAIO(name, PARAMS, ARGS, ANY, CALL)                                                      \
	static int(*next_##name) PARAMS;                                                           \
	RUN_API int name PARAMS;                                                                   \
	RUN_API int name PARAMS                                                                    \
	{                                                                                          \
		struct run_near near = { 0 };                                                      \
		int result;                                                                        \
                                                                                                   \
		if (!RUN_NEXT(next_##name, #name))                                                 \
			return -ENOSYS;                                                            \
		if (run_is_ours(RUN_CALLER) || !is_libaio((void *)next_##name) || !(ANY))          \
			return next_##name ARGS;                                                   \
		CALL;                                                                              \
		run_near_end(&near);                                                               \
		return result;                                                                     \
	}

#define EVENTS OUT_BYTES(p, n > 0 ? (size_t)n * sizeof(*p) : 0)
#define TIME const struct timespec *until

LIBAIO(io_submit, (aio_context_t c, long n, struct iocb **v), (c, n, v), concerns(n, v),
       result = (int)submit(c, n, v))
LIBAIO(io_setup, (int n, aio_context_t *p), (n, p), FAM(p), OUT(p); result = next_io_setup(n, p))
LIBAIO(io_getevents, (aio_context_t c, long least, long n, struct io_event *p, TIME),
       (c, least, n, p, until), FAM(p) || FAM(until), EVENTS;
       IN(until); result = next_io_getevents(c, least, n, p, until))
LIBAIO(io_pgetevents,
       (aio_context_t c, long least, long n, struct io_event *p, TIME, const sigset_t *mask),
       (c, least, n, p, until, mask), FAM(p) || FAM(until) || FAM(mask), EVENTS;
       IN(until); IN(mask); result = next_io_pgetevents(c, least, n, p, until, mask))

/* Calls that a program asks for by syscall(). */

static long raw_setup(long *a)
{
	struct run_near near = { 0 };
	aio_context_t *p = (aio_context_t *)a[1];
	long ret;

	OUT(p);
	ret = syscall(SYS_io_setup, a[0], p);
	run_near_end(&near);
	return ret;
}

/* The mask of io_pgetevents() is behind one more pointer, which stays as it is. */
static long raw_events(long number, long *a)
{
	struct run_near near = { 0 };
	struct io_event *p = (struct io_event *)a[3];
	const struct timespec *until = (const struct timespec *)a[4];
	long n = a[2], ret;

	EVENTS;
	IN(until);
	ret = syscall(number, a[0], a[1], a[2], p, until, a[5]);
	run_near_end(&near);
	return ret;
}

static long raw_submit(long *a)
{
	struct iocb **v = (struct iocb **)a[2];
	long ret;

	if (!concerns(a[1], v))
		return syscall(SYS_io_submit, a[0], a[1], v);
	ret = submit((aio_context_t)a[0], a[1], v);
	if (ret < 0)
		errno = (int)-ret;
	return ret < 0 ? -1 : ret;
}

/* Say once that io_uring is refused. */
static void tell(void)
{
	static _Atomic bool said;

	if (!run_settings.quiet && !atomic_exchange(&said, true))
		soda_log_warning("soda run: io_uring is refused to process %d (%s), as the kernel "
				 "would store to pages that fabric memory has left; with "
				 "--io-uring=hold the program has it, and its memory stays",
				 getpid(), program_invocation_short_name);
}

static bool refuses_rings(const void *caller)
{
	if (run_settings.rings == RUN_RINGS_ALLOW || run_is_ours(caller))
		return false;
	if (run_settings.rings == RUN_RINGS_HOLD)
		return !run_rings_begin();
	tell();
	return true;
}

bool run_ring_call(long number, long *a, const void *caller, long *result_p)
{
	switch (number) {
	case SYS_io_setup:
		*result_p = raw_setup(a);
		return true;
	case SYS_io_getevents:
	case SYS_io_pgetevents:
		*result_p = raw_events(number, a);
		return true;
	case SYS_io_submit:
		*result_p = raw_submit(a);
		return true;
	case SYS_io_uring_setup:
		if (!refuses_rings(caller))
			return false;
		errno = ENOSYS;
		*result_p = -1;
		return true;
	default:
		return false;
	}
}

/* liburing's functions, which return the error. */
#define REFUSES(name, PARAMS, ARGS)                                                                \
	static int(*next_##name) PARAMS;                                                           \
	RUN_API int name PARAMS;                                                                   \
	RUN_API int name PARAMS                                                                    \
	{                                                                                          \
		if (refuses_rings(RUN_CALLER) || !RUN_NEXT(next_##name, #name))                    \
			return -ENOSYS;                                                            \
		return next_##name ARGS;                                                           \
	}

struct io_uring;
struct io_uring_params;

REFUSES(io_uring_queue_init, (unsigned n, struct io_uring *ring, unsigned flags), (n, ring, flags))
REFUSES(io_uring_queue_init_params,
	(unsigned n, struct io_uring *ring, struct io_uring_params *params), (n, ring, params))
REFUSES(io_uring_queue_init_mem,
	(unsigned n, struct io_uring *ring, struct io_uring_params *params, void *at, size_t bytes),
	(n, ring, params, at, bytes))
REFUSES(io_uring_setup, (unsigned n, struct io_uring_params *params), (n, params))
