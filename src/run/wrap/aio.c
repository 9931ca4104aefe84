/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * POSIX asynchronous transfers.  The C library makes them in threads of its own, which pass the
 * buffer to the kernel and block all signals, SIGBUS, too.  Where the buffer or the control
 * block is in fabric memory, the calling thread makes the transfer at once.
 */
#include "run/core/run.h"

#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int (*next_aio_read)(struct aiocb *);
static int (*next_aio_write)(struct aiocb *);
static int (*next_aio_fsync)(int, struct aiocb *);
static int (*next_lio_listio)(int, struct aiocb *const *, int, struct sigevent *);

static bool concerns(const struct aiocb *cb, const void *caller)
{
	return !run_is_ours(caller) && (run_fam(cb) || run_fam((const void *)cb->aio_buf));
}

static void *call(void *arg)
{
	struct sigevent e = *(struct sigevent *)arg;

	free(arg);
	e.sigev_notify_function(e.sigev_value);
	return NULL;
}

static void notify(const struct sigevent *e)
{
	siginfo_t info = { .si_signo = e->sigev_signo, .si_code = SI_ASYNCIO };
	struct sigevent *copy;
	pthread_attr_t attr;
	pthread_t thread;

	if (e->sigev_notify == SIGEV_SIGNAL) {
		info.si_pid = getpid();
		info.si_uid = getuid();
		info.si_value = e->sigev_value;
		syscall(SYS_rt_sigqueueinfo, getpid(), e->sigev_signo, &info);
	}
	if (e->sigev_notify != SIGEV_THREAD || !(copy = malloc(sizeof(*copy))))
		return;
	*copy = *e;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, call, copy))
		free(copy);
	pthread_attr_destroy(&attr);
}

static int done(struct aiocb *cb, ssize_t result, int saved)
{
	cb->__return_value = result;
	__atomic_store_n(&cb->__error_code, result < 0 ? errno : 0, __ATOMIC_RELEASE);
	errno = saved;
	return 0;
}

static int at_once(struct aiocb *cb, bool out)
{
	void *p = (void *)(uintptr_t)cb->aio_buf;
	struct sigevent event =
		cb->aio_sigevent; /* a copy: the program may free cb once it is notified */
	int saved = errno;
	ssize_t n;

	if (cb->aio_offset < 0) {
		errno = EINVAL;
		return -1;
	}
	n = run_transfer(cb->aio_fildes, p, cb->aio_nbytes, cb->aio_offset, out);
	if (n < 0 && errno == ESPIPE)
		n = run_transfer(cb->aio_fildes, p, cb->aio_nbytes, -1, out);
	done(cb, n, saved);
	notify(&event);
	return 0;
}

static int begin_read(struct aiocb *cb, const void *caller)
{
	return concerns(cb, caller) ? at_once(cb, false) : RUN_NEXT(next_aio_read, "aio_read")(cb);
}

static int begin_write(struct aiocb *cb, const void *caller)
{
	return concerns(cb, caller) ? at_once(cb, true) : RUN_NEXT(next_aio_write, "aio_write")(cb);
}

static int begin_sync(int how, struct aiocb *cb, const void *caller)
{
	struct sigevent event;
	int saved = errno;

	if (!concerns(cb, caller))
		return RUN_NEXT(next_aio_fsync, "aio_fsync")(how, cb);
	event = cb->aio_sigevent;
	done(cb, how == O_DSYNC ? fdatasync(cb->aio_fildes) : fsync(cb->aio_fildes), saved);
	notify(&event);
	return 0;
}

/* Transfers of local memory are begun side by side, and this call waits for them. */
static int list(int mode, struct aiocb *const *v, int n, struct sigevent *event)
{
	bool failed = false;

	for (int i = 0; i < n; i++) {
		int op = v[i] ? v[i]->aio_lio_opcode : LIO_NOP;

		if (op == LIO_READ || op == LIO_WRITE)
			failed |= op == LIO_READ ? begin_read(v[i], NULL) : begin_write(v[i], NULL);
	}
	for (int i = 0; i < n; i++) {
		const struct aiocb *one = v[i];

		while (one && one->aio_lio_opcode != LIO_NOP && aio_error(one) == EINPROGRESS)
			aio_suspend(&one, 1, NULL);
		failed |=
			mode == LIO_WAIT && one && one->aio_lio_opcode != LIO_NOP && aio_error(one);
	}
	if (mode == LIO_NOWAIT && event)
		notify(event);
	if (failed)
		errno = EIO;
	return failed ? -1 : 0;
}

static int begin_list(int mode, struct aiocb *const *v, int n, struct sigevent *event,
		      const void *caller)
{
	bool any = run_fam(v) || run_fam(event);

	for (int i = 0; i < n && !any; i++)
		any = v[i] && concerns(v[i], caller);
	if (!any || run_is_ours(caller) || (mode != LIO_WAIT && mode != LIO_NOWAIT))
		return RUN_NEXT(next_lio_listio, "lio_listio")(mode, v, n, event);
	return list(mode, v, n, event);
}

RUN_API int aio_read(struct aiocb *cb)
{
	return begin_read(cb, RUN_CALLER);
}

RUN_API int aio_write(struct aiocb *cb)
{
	return begin_write(cb, RUN_CALLER);
}

RUN_API int aio_fsync(int how, struct aiocb *cb)
{
	return begin_sync(how, cb, RUN_CALLER);
}

RUN_API int lio_listio(int mode, struct aiocb *const *v, int n, struct sigevent *event)
{
	return begin_list(mode, v, n, event, RUN_CALLER);
}

_Static_assert(sizeof(struct aiocb) == sizeof(struct aiocb64), "off_t has 64 bits");

RUN_API int aio_read64(struct aiocb64 *cb)
{
	return begin_read((struct aiocb *)cb, RUN_CALLER);
}

RUN_API int aio_write64(struct aiocb64 *cb)
{
	return begin_write((struct aiocb *)cb, RUN_CALLER);
}

RUN_API int aio_fsync64(int how, struct aiocb64 *cb)
{
	return begin_sync(how, (struct aiocb *)cb, RUN_CALLER);
}

RUN_API int lio_listio64(int mode, struct aiocb64 *const *v, int n, struct sigevent *event)
{
	return begin_list(mode, (struct aiocb *const *)v, n, event, RUN_CALLER);
}
