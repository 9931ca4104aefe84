/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stacks that a program makes, in inline mode.  A fault is a signal, whose frame the kernel writes
 * to the thread's stack: one in fabric memory would need a fault to serve a fault.
 *
 * sigaltstack(): a local stack as large stands in for it, of which the program is told as of the
 * one that it has given.  makecontext(): pointers to a coroutine's stack are the program's, so that
 * it stays where it is; one line says what that means.
 *
 * A context that is entered must let the signals through that faults are.
 */
#include "run/wrap/near.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/log.h"

/* The thread's, while the kernel has it; local NULL: it has none. */
static __thread struct standin {
	void *given, *local;
	size_t bytes;
} standin __attribute__((tls_model("initial-exec")));

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void end(const struct standin *s)
{
	if (s->local)
		syscall(SYS_munmap, s->local, s->bytes);
}

/* The thread ends: the kernel must not have the stack any more. */
static void give_back(void *unused)
{
	const stack_t none = { .ss_flags = SS_DISABLE };

	if (standin.local && !syscall(SYS_sigaltstack, &none, NULL))
		end(&standin);
	standin.local = NULL;
}

static void make_key(void)
{
	pthread_key_create(&key, give_back);
}

/* A local stack in the place of p's, in *s.  false: no memory. */
static bool stand_in(const stack_t *p, struct standin *s)
{
	void *local = (void *)syscall(SYS_mmap, NULL, p->ss_size, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (local == MAP_FAILED)
		return false;
	*s = (struct standin){ p->ss_sp, local, p->ss_size };
	pthread_once(&once, make_key);
	run_inside++;
	pthread_setspecific(key, local);
	run_inside--;
	return true;
}

/* p and old are local. */
static int change(const stack_t *p, stack_t *old)
{
	struct standin had = standin, new = { 0 };
	stack_t mine;

	if (p && !(p->ss_flags & SS_DISABLE) && run_hold_needed(p->ss_sp)) {
		mine = *p;
		if (!stand_in(p, &new)) {
			errno = ENOMEM;
			return -1;
		}
		mine.ss_sp = new.local;
		p = &mine;
	}
	if (syscall(SYS_sigaltstack, p, old)) {
		end(&new);
		return -1;
	}
	if (old && had.local && old->ss_sp == had.local)
		old->ss_sp = had.given;
	if (!p)
		return 0;
	end(&had);
	standin = new;
	return 0;
}

RUN_API int sigaltstack(const stack_t *restrict p, stack_t *restrict old)
{
	struct run_near near = { 0 };
	int ret;

	if (run_is_ours(RUN_CALLER))
		return (int)syscall(SYS_sigaltstack, p, old);
	IN(p);
	OUT(old);
	ret = change(p, old);
	run_near_end(&near);
	return ret;
}

#ifdef __x86_64__

static void say_coroutine(void)
{
	static _Atomic bool said;

	if (!atomic_exchange(&said, true))
		soda_log_warning("soda run: process %d (%s) has a coroutine's stack in fabric "
				 "memory: a fault "
				 "on it ends the program by SIGSEGV; map it with MAP_STACK or "
				 "MAP_NORESERVE, "
				 "raise --threshold, or use SODA_MODE=handler",
				 getpid(), program_invocation_short_name);
}

__attribute__((used, visibility("hidden"))) void *run_makecontext_next(const ucontext_t *context);
void *run_makecontext_next(const ucontext_t *context)
{
	static void (*next)(ucontext_t *, void (*)(void), int, ...);

	if (run_hold_needed(context->uc_stack.ss_sp))
		say_coroutine();
	return (void *)RUN_NEXT(next, "makecontext");
}

/* The next one gets all arguments as they are, in registers and beyond. */
RUN_API __attribute__((naked)) void makecontext(ucontext_t *context, void (*fn)(void), int n, ...)
{
	__asm__("push %rdi\n\t"
		"push %rsi\n\t"
		"push %rdx\n\t"
		"push %rcx\n\t"
		"push %r8\n\t"
		"push %r9\n\t"
		"push %rax\n\t"
		"call run_makecontext_next\n\t"
		"mov %rax, %r11\n\t"
		"pop %rax\n\t"
		"pop %r9\n\t"
		"pop %r8\n\t"
		"pop %rcx\n\t"
		"pop %rdx\n\t"
		"pop %rsi\n\t"
		"pop %rdi\n\t"
		"jmp *%r11");
}

#endif

/* A context is about to be entered: its thread would not get the signals that faults are. */
static void open_context(const ucontext_t *context)
{
	sigset_t *mask = (sigset_t *)(uintptr_t)&context->uc_sigmask;

	if (sigismember(mask, SIGBUS))
		sigdelset(mask, SIGBUS);
	if (sigismember(mask, SIGSEGV))
		sigdelset(mask, SIGSEGV);
}

RUN_API int setcontext(const ucontext_t *context)
{
	static int (*next)(const ucontext_t *);

	open_context(context);
	return RUN_NEXT(next, "setcontext")(context);
}

#if defined(__x86_64__)
/* The function to go on with, for swapcontext(). */
__attribute__((used, visibility("hidden"))) void *run_swapcontext(const ucontext_t *context);
void *run_swapcontext(const ucontext_t *context)
{
	static void *next;

	open_context(context);
	return run_resolved(&next, "swapcontext");
}

/* It saves where its caller goes on: so this one jumps to it, and has no frame then. */
__asm__(".pushsection .text\n"
	".globl swapcontext\n"
	".type swapcontext, @function\n"
	"swapcontext:\n"
	"	endbr64\n"
	"	push %rdi\n"
	"	push %rsi\n"
	"	sub $8, %rsp\n"
	"	mov %rsi, %rdi\n"
	"	call run_swapcontext\n"
	"	add $8, %rsp\n"
	"	pop %rsi\n"
	"	pop %rdi\n"
	"	jmp *%rax\n"
	".size swapcontext, . - swapcontext\n"
	".popsection\n");
#endif

/* As BSD had it: the mask for the wait, of the first 32 signals. <signal.h> has another. */
RUN_API int run_sigpause(int mask) __asm__("sigpause");
RUN_API int run_sigpause(int mask)
{
	static int (*next)(int);

	return RUN_NEXT(next, "sigpause")(
		(int)((unsigned)mask & ~(1u << (SIGBUS - 1)) & ~(1u << (SIGSEGV - 1))));
}
