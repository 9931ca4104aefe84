/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alternate stacks for signal handlers, and contexts.  The kernel pushes a signal's frame without
 * a fault of the program's, so a stack in fabric memory is replaced by a local one of its size; a
 * thread has one at a time, and the program sees the stack that it has given.
 */
#include "run/wrap/near.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { GUARD = 4096 };

/* The thread's local stack, in the place of what it gave; local: NULL, it has none. */
static __thread struct {
	void *given;
	char *local;
	size_t bytes;
} mine __attribute__((tls_model("initial-exec")));

static int (*next_sigaltstack)(const stack_t *, stack_t *);
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A stack below which no memory is. NULL: no memory. */
static char *make(size_t bytes)
{
	char *p = (char *)syscall(SYS_mmap, NULL, GUARD + run_pages(bytes), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	syscall(SYS_mprotect, p, GUARD, PROT_NONE);
	return p + GUARD;
}

static void unmake(char *local, size_t bytes)
{
	if (local)
		syscall(SYS_munmap, local - GUARD, GUARD + run_pages(bytes));
}

/* The thread ends: what handlers run in its other destructors use the stack that it runs on. */
static void leave(void *local)
{
	const stack_t none = { .ss_flags = SS_DISABLE };

	if (local != mine.local || next_sigaltstack(&none, NULL))
		return;
	unmake(mine.local, mine.bytes);
	mine.local = NULL;
}

static void make_key(void)
{
	pthread_key_create(&key, leave);
}

static void keep(void *given, char *local, size_t bytes)
{
	unmake(mine.local, mine.bytes);
	mine.given = given;
	mine.local = local;
	mine.bytes = bytes;
	if (!local)
		return;
	run_inside++;
	pthread_once(&once, make_key);
	pthread_setspecific(key, local);
	run_inside--;
}

static bool is_fam(const stack_t *s)
{
	return !(s->ss_flags & SS_DISABLE) && s->ss_sp && s->ss_size &&
	       (run_fam(s->ss_sp) || run_fam((char *)s->ss_sp + s->ss_size - 1));
}

RUN_API int sigaltstack(const stack_t *restrict p, stack_t *restrict old)
{
	stack_t asked, before;
	char *local = NULL;

	RUN_NEXT(next_sigaltstack, "sigaltstack");
	if (p) {
		asked = *p;
		if (is_fam(p) && !(local = make(p->ss_size))) {
			errno = ENOMEM;
			return -1;
		}
		asked.ss_sp = local ? local : p->ss_sp;
	}
	if (next_sigaltstack(p ? &asked : NULL, &before)) {
		int saved = errno;

		unmake(local, p ? p->ss_size : 0);
		errno = saved;
		return -1;
	}
	if (mine.local && before.ss_sp == mine.local)
		before.ss_sp = mine.given;
	if (p)
		keep(p->ss_sp, local, p->ss_size);
	if (old)
		*old = before;
	return 0;
}

/* Of a context that is about to be entered: its thread would not get the signals that faults are.
 */
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
