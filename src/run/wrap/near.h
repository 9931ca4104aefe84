/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local copies of arguments in fabric memory that the kernel reads or fills, for the length of one
 * call: small ones in the wrapper's frame, large ones in a bounce buffer.  Local arguments are used
 * as they are.
 */
#ifndef SODA_RUN_NEAR_H
#define SODA_RUN_NEAR_H

#include "run/core/run.h"

enum { RUN_NEAR_ARGS = 6, RUN_NEAR_ROOM = 1024 };

struct run_near {
	unsigned n;
	size_t used;
	struct {
		void *given, *local;
		size_t bytes;
		size_t bounce; /* size of the bounce buffer where the copy lies; 0: it lies in room
				*/
		bool back;     /* copy it back after the call */
	} args[RUN_NEAR_ARGS];
	char room[RUN_NEAR_ROOM] __attribute__((aligned(16)));
};

/*
 * A local copy of p, or p if it is local; back: the kernel may change it.  Where there is no
 * memory, an address with which the call fails with EFAULT.
 */
void *run_near(struct run_near *near, const void *p, size_t bytes, bool back);
/* The same for a string, to its end. */
char *run_near_string(struct run_near *near, const char *s);
/* The same for a NULL-terminated vector of strings, as exec takes; NULL stays NULL. */
char *const *run_near_strings(struct run_near *near, char *const *v);
/* Copy back what the kernel may have changed, and free the copies; errno stays. */
void run_near_end(struct run_near *near);

/*
 * Defines the wrapper of a function with pointers as parameters: ANY is an expression that says
 * whether one of them points to fabric memory, MAKE statements that replace them by local copies.
 * Both use the parameters' names in PARAMS.
 */
#define RUN_NEAR(type, name, PARAMS, ARGS, ANY, MAKE)                                              \
	static type(*next_##name) PARAMS;                                                          \
	RUN_API type name PARAMS;                                                                  \
	RUN_API type name PARAMS                                                                   \
	{                                                                                          \
		struct run_near near;                                                              \
		type result;                                                                       \
                                                                                                   \
		RUN_NEXT(next_##name, #name);                                                      \
		if (!(ANY) || run_is_ours(__builtin_return_address(0)))                            \
			return next_##name ARGS;                                                   \
		near.n = 0;                                                                        \
		near.used = 0;                                                                     \
		MAKE;                                                                              \
		result = next_##name ARGS;                                                         \
		run_near_end(&near);                                                               \
		return result;                                                                     \
	}

#define FAM(p) run_fam(p)
/*
 * The statements of MAKE: an object that is read, one that is filled, n bytes likewise, a string.
 */
#define IN(p) p = run_near(&near, p, sizeof(*(p)), false)
#define OUT(p) p = run_near(&near, p, sizeof(*(p)), true)
#define IN_BYTES(p, n) p = run_near(&near, p, n, false)
#define OUT_BYTES(p, n) p = run_near(&near, p, n, true)
#define STRING(s) s = run_near_string(&near, s)
#define STRINGS(v) v = run_near_strings(&near, v)

/* Wrappers of functions that fill an object p, or read it; CHANGES: read p and fill old. */
#define FILLS(type, name, PARAMS, ARGS) RUN_NEAR(type, name, PARAMS, ARGS, FAM(p), OUT(p))
#define READS(type, name, PARAMS, ARGS) RUN_NEAR(type, name, PARAMS, ARGS, FAM(p), IN(p))
#define CHANGES(name, PARAMS, ARGS)                                                                \
	RUN_NEAR(int, name, PARAMS, ARGS, FAM(p) || FAM(old), IN(p); OUT(old))

/*
 * rings.c: io_submit() and io_uring, where a program asks for them by syscall(); a: its six
 * arguments.  True: *result_p is the result of syscall(), with errno.  False: the call is not one
 * of these, or the kernel may have it as it is.
 */
bool run_ring_call(long number, long *a, const void *caller, long *result_p);

#endif
