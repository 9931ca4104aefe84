/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/helper.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * By a system call: the pthread_sigmask that the program sees (pages/signals.c) never blocks
 * SIGBUS.
 */
static void set_mask(int how, const sigset_t *set, sigset_t *old)
{
	int saved = errno;

	syscall(SYS_rt_sigprocmask, how, set, old, (size_t)8);
	errno = saved;
}

void soda_signals_block(sigset_t *saved)
{
	sigset_t all;

	sigfillset(&all);
	soda_signals_block_cancel(&all);
	sigdelset(&all,
		  SIGSEGV); /* closed_pages.c handles it when this thread reads closed pages */
	set_mask(SIG_SETMASK, &all, saved);
}

void soda_signals_swap(const sigset_t *mask, sigset_t *saved)
{
	set_mask(SIG_SETMASK, mask, saved);
}

void soda_signals_restore(const sigset_t *saved)
{
	set_mask(SIG_SETMASK, saved, NULL);
}

/* What a new thread is to do; that thread frees it. */
struct duty {
	void *(*run)(void *);
	void *arg;
};

static void *begin(void *arg)
{
	struct duty duty = *(struct duty *)arg;

	free(arg);
	soda_numa_run_here();
	return duty.run(duty.arg);
}

int soda_helper_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg)
{
	struct duty *duty = malloc(sizeof(*duty));
	sigset_t saved;
	int ret;

	if (!duty)
		return -ENOMEM;
	*duty = (struct duty){ run, arg };
	soda_signals_block(&saved);
	ret = pthread_create(thread, NULL, begin, duty);
	soda_signals_restore(&saved);
	if (ret)
		free(duty);
	else
		pthread_setname_np(*thread, name);
	return -ret;
}
