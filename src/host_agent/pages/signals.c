/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/signals.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "soda.h"

typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);

/* A signal that may be the library's. */
struct owned {
	_Atomic bool taken;
	struct sigaction theirs; /* valid while taken; two threads that set it at once race as they
				    would without us */
	struct sigaction ours;
};

static struct owned bus, segv;
static _Atomic(sigaction_fn) libc_sigaction;

static int real_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	sigaction_fn fn = atomic_load_explicit(&libc_sigaction, memory_order_relaxed);

	if (!fn) {
		*(void **)&fn = dlsym(RTLD_NEXT, "sigaction");
		atomic_store_explicit(&libc_sigaction, fn, memory_order_relaxed);
	}
	return fn(sig, act, old);
}

/* Before any fault, so that no signal handler ever has to look a symbol up. */
__attribute__((constructor)) static void resolve(void)
{
	struct sigaction now;

	real_sigaction(SIGBUS, NULL, &now);
}

static struct owned *owned(int sig)
{
	return sig == SIGBUS ? &bus : sig == SIGSEGV ? &segv : NULL;
}

/*
 * Programs often handle SIGSEGV themselves, so our action runs on the stack, and with the mask,
 * that the program's action asks for.
 */
static void follow_theirs(void)
{
	struct sigaction act = segv.ours;

	if (segv.theirs.sa_handler != SIG_DFL && segv.theirs.sa_handler != SIG_IGN) {
		act.sa_flags |= segv.theirs.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART);
		act.sa_mask = segv.theirs.sa_mask;
		sigdelset(&act.sa_mask, SIGBUS);
	}
	real_sigaction(SIGSEGV, &act, NULL);
}

int soda_signals_take(int sig, const struct sigaction *ours)
{
	struct owned *o = owned(sig);

	o->ours = *ours;
	if (real_sigaction(sig, ours, &o->theirs))
		return -errno;
	atomic_store(&o->taken, true);
	if (sig == SIGSEGV)
		follow_theirs();
	return 0;
}

void soda_signals_give_back(int sig)
{
	struct owned *o = owned(sig);

	if (atomic_exchange(&o->taken, false))
		real_sigaction(sig, &o->theirs, NULL);
}

static int set_mask(int how, const sigset_t *set, sigset_t *old);

/* The mask that the program's handler would run with without us, but that it may touch FAM. */
static void mask_for(int sig, const struct sigaction *theirs, const void *context)
{
	sigset_t mask;

	sigorset(&mask, &((const ucontext_t *)context)->uc_sigmask, &theirs->sa_mask);
	if (!(theirs->sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	set_mask(SIG_SETMASK, &mask, NULL);
}

void soda_signals_chain(int sig, siginfo_t *info, void *context)
{
	struct owned *o = owned(sig);
	struct sigaction theirs = o->theirs;

	if (theirs.sa_flags & SA_RESETHAND)
		o->theirs = (struct sigaction){ .sa_handler = SIG_DFL };
	if (theirs.sa_handler != SIG_DFL && theirs.sa_handler != SIG_IGN)
		mask_for(sig, &theirs, context);
	if (theirs.sa_flags & SA_SIGINFO) {
		theirs.sa_sigaction(sig, info, context);
		return;
	}
	if (theirs.sa_handler != SIG_DFL && theirs.sa_handler != SIG_IGN) {
		theirs.sa_handler(sig);
		return;
	}
	if (info->si_code <= 0 && theirs.sa_handler == SIG_IGN)
		return;
	/* The default action, on return to the instruction: it faults again, and the process
	   ends by this signal with this address.  A fault cannot be ignored. */
	soda_signals_give_back(sig);
	if (info->si_code <= 0)
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig);
}

SODA_API int sigaction(int sig, const struct sigaction *restrict act,
		       struct sigaction *restrict old)
{
	struct owned *o = owned(sig);
	struct sigaction copy;

	if (o && atomic_load(&o->taken)) {
		copy = o->theirs;
		if (act)
			o->theirs = *act;
		if (act && sig == SIGSEGV)
			follow_theirs();
		if (old)
			*old = copy;
		return 0;
	}
	if (act) { /* a handler that runs with SIGBUS blocked could not touch FAM */
		copy = *act;
		sigdelset(&copy.sa_mask, SIGBUS);
		act = &copy;
	}
	return real_sigaction(sig, act, old);
}

SODA_API sighandler_t signal(int sig, sighandler_t handler)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART }, old;

	sigemptyset(&act.sa_mask);
	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

/* 0 or an error number.  The kernel sees local sets alone: the caller's may be in FAM. */
static int set_mask(int how, const sigset_t *set, sigset_t *old)
{
	int saved = errno, err;
	sigset_t local, before;

	if (set)
		local = *set;
	if (set && how != SIG_UNBLOCK) {
		sigdelset(&local, SIGBUS);
		sigdelset(&local, SIGSEGV);
		/* nor the two signals that the C library keeps for itself (nptl: 32 and 33) */
		*(unsigned long *)&local &= ~(3ul << 31);
	}
	err = syscall(SYS_rt_sigprocmask, how, set ? &local : NULL, &before, (size_t)8) ? errno : 0;
	errno = saved;
	if (!err && old)
		memcpy(old, &before, 8); /* the kernel's mask has 8 bytes */
	return err;
}

SODA_API int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	int err = set_mask(how, set, old);

	if (!err)
		return 0;
	errno = err;
	return -1;
}

SODA_API int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict old)
{
	return set_mask(how, set, old);
}

/*
 * The same by older names.  The C library has its own calls behind them, which no wrapper of the
 * newer names sees.
 */
static int change_one(int how, int sig, sigset_t *old)
{
	sigset_t set;

	sigemptyset(&set);
	return sigaddset(&set, sig) ? -1 : sigprocmask(how, &set, old);
}

SODA_API int sighold(int sig)
{
	return change_one(SIG_BLOCK, sig, NULL);
}

SODA_API int sigignore(int sig)
{
	struct sigaction act = { .sa_handler = SIG_IGN };

	return sigaction(sig, &act, NULL);
}

SODA_API sighandler_t sigset(int sig, sighandler_t handler)
{
	struct sigaction act = { .sa_handler = handler }, old;
	sigset_t before;

	if (sigaction(sig, handler == SIG_HOLD ? NULL : &act, &old) ||
	    change_one(handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, sig, &before))
		return SIG_ERR;
	return sigismember(&before, sig) ? SIG_HOLD : old.sa_handler;
}

/* The first 32 signals, as BSD had them. */
static int first_signals(int how, int mask)
{
	sigset_t set, old;

	sigemptyset(&set);
	*(unsigned long *)&set = (unsigned)mask;
	set_mask(how, &set, &old);
	return (int)*(unsigned long *)&old;
}

SODA_API int sigblock(int mask)
{
	return first_signals(SIG_BLOCK, mask);
}

SODA_API int sigsetmask(int mask)
{
	return first_signals(SIG_SETMASK, mask);
}

/* signal() of programs that ask for X/Open alone: for one signal, which is not blocked in it. */
SODA_API sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESETHAND | SA_NODEFER };
	struct sigaction old;

	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

SODA_API sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	return sysv_signal(sig, handler);
}

SODA_API sighandler_t bsd_signal(int sig, sighandler_t handler);
SODA_API sighandler_t bsd_signal(int sig, sighandler_t handler)
{
	return signal(sig, handler);
}

SODA_API sighandler_t ssignal(int sig, sighandler_t handler)
{
	return signal(sig, handler);
}

SODA_API int __sigaction(int sig, const struct sigaction *restrict act,
			 struct sigaction *restrict old);
SODA_API int __sigaction(int sig, const struct sigaction *restrict act,
			 struct sigaction *restrict old)
{
	return sigaction(sig, act, old);
}
