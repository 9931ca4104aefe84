/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dlopen() without RTLD_DEEPBIND.  A library that is loaded with that flag, as some programs load
 * their plug-ins, would call the C library's malloc() and free(): the latter ends the process when
 * it is given a block in fabric memory.
 *
 * The loader looks for the library where the caller's RUNPATH says, and tells the caller by its
 * return address; so the wrapper jumps, and calls not.
 */
#include "run/core/run.h"

#include <dlfcn.h>

#ifdef __x86_64__

/* The bits that stay of the second argument. */
__attribute__((used, visibility("hidden"))) int run_dlopen_modes = ~RTLD_DEEPBIND;

/* Older C libraries have it in a library of its own, which may not be there. */
static void *nothing(const char *path, int mode)
{
	return NULL;
}

__attribute__((used, visibility("hidden"))) void *run_dlopen_next(void);
void *run_dlopen_next(void)
{
	static void *(*next)(const char *, int);

	if (run_others_heap) /* no block is in fabric memory */
		run_dlopen_modes = ~0;
	return RUN_NEXT(next, "dlopen") ? (void *)next : (void *)nothing;
}

RUN_API __attribute__((naked)) void *dlopen(const char *path, int mode)
{
	__asm__("push %rdi\n\t"
		"push %rsi\n\t"
		"sub $8, %rsp\n\t"
		"call run_dlopen_next\n\t"
		"add $8, %rsp\n\t"
		"pop %rsi\n\t"
		"pop %rdi\n\t"
		"and run_dlopen_modes(%rip), %esi\n\t"
		"jmp *%rax");
}

#endif
