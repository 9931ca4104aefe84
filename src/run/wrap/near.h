/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments that the kernel reads or fills, as local memory for the length of one call: small ones
 * in the caller's frame, large ones in a bounce.  What is local already stays where it is.
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
		size_t bounce; /* size of the bounce that it lies in, 0: in room */
		bool back;     /* it is copied back */
	} args[RUN_NEAR_ARGS];
	char room[RUN_NEAR_ROOM] __attribute__((aligned(16)));
};

/* p as local memory; back: the kernel may change it.  No memory: an address that is EFAULT. */
void *run_near(struct run_near *near, const void *p, size_t bytes, bool back);
/* A string, to its end. */
char *run_near_string(struct run_near *near, const char *s);
/* A vector of strings, those of exec; NULL stays NULL. */
char *const *run_near_strings(struct run_near *near, char *const *v);
/* Copy back, and let go; errno stays. */
void run_near_end(struct run_near *near);

/*
 * A function whose pointers may be to fabric memory: ANY says whether one of them is, MAKE
 * replaces them.  In both a parameter bears the name that PARAMS gives it.
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
/* What MAKE consists of: an object that is read, one that is filled, n bytes, a string. */
#define IN(p) p = run_near(&near, p, sizeof(*(p)), false)
#define OUT(p) p = run_near(&near, p, sizeof(*(p)), true)
#define IN_BYTES(p, n) p = run_near(&near, p, n, false)
#define OUT_BYTES(p, n) p = run_near(&near, p, n, true)
#define STRING(s) s = run_near_string(&near, s)
#define STRINGS(v) v = run_near_strings(&near, v)

/* One object, p, that is filled, or read; and one of each. */
#define FILLS(type, name, PARAMS, ARGS) RUN_NEAR(type, name, PARAMS, ARGS, FAM(p), OUT(p))
#define READS(type, name, PARAMS, ARGS) RUN_NEAR(type, name, PARAMS, ARGS, FAM(p), IN(p))
#define CHANGES(name, PARAMS, ARGS)                                                                \
	RUN_NEAR(int, name, PARAMS, ARGS, FAM(p) || FAM(old), IN(p); OUT(old))

#endif
