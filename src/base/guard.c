/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/guard.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* Where the thread goes on if its read fails; NULL: it is in no guard. */
static __thread sigjmp_buf *place __attribute__((tls_model("initial-exec")));

int soda_guard_call_at(struct soda_guard_place *at, void (*fn)(void *arg), void *arg)
{
	/*
	 * 0: saving the mask would be a system call; soda_guard_escape() restores it from the
	 * context
	 */
	if (sigsetjmp(at->here, 0)) {
		place = NULL;
		return -EFAULT;
	}
	place = &at->here;
	fn(arg);
	place = NULL;
	return 0;
}

int soda_guard_call(void (*fn)(void *arg), void *arg)
{
	struct soda_guard_place at;

	return soda_guard_call_at(&at, fn, arg);
}

struct copy {
	void *to;
	const void *from;
	size_t bytes;
};

static void copy(void *arg)
{
	const struct copy *c = arg;

	memcpy(c->to, c->from, c->bytes);
}

int soda_guard_copy(void *to, const void *from, size_t bytes)
{
	return soda_guard_call(copy, &(struct copy){ to, from, bytes });
}

void soda_guard_escape(const void *context)
{
	const ucontext_t *uc = context;

	if (!place)
		return;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &uc->uc_sigmask, NULL, (size_t)8);
	siglongjmp(*place, 1);
}
