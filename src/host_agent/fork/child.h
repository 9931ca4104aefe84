/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The child of a fork, which reads its parent's fabric memory as it was at the fork.
 *
 *   here    its pages were resident at the fork (the kernel copies them at a store), or have been
 *           brought since; the child's own from then on
 *   zeros   never written before the fork: the kernel's zeros, as of any memory
 *   away    PROT_NONE, and REMOTE in the child's copy of the chunk table: a touch is SIGSEGV, whose
 *           handler asks the parent (serve.h), and moves the whole of a few chunks into place with
 *           one mremap(), so that no thread ever sees a part of them; away -> here
 *   lost    the parent is gone, or cannot say what was there: one line, and the signal
 *
 * No descriptor keeps `away` from being read as zeros: a child that closes all of its descriptors
 * only cannot ask any more; where close() is wrapped (soda run) the one to the parent is spared.
 * Pages that are here are local memory, and stay; nothing is ever sent back. A child of the child
 * asks the same parent, over a connection of its own.
 *
 * One lock, `asking`, is held from the fault to the mremap(), with all signals blocked, and over a
 * fork.  AS: async-signal-safe.
 */
#ifndef SODA_HOST_CHILD_H
#define SODA_HOST_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A child's request, on a stream socket; the answer is struct soda_fork_answer and the bytes. */
enum soda_fork_kind {
	SODA_FORK_READ, /* the bytes from `offset` of chunk `id` on, perhaps over several chunks */
	SODA_FORK_JOIN, /* with a descriptor: another process asks over that one; no answer */
};

/* So few that an answer never waits for a child that is stopped. */
enum { SODA_FORK_BYTES_MAX = 64 << 10 };

struct soda_fork_ask {
	uint32_t kind, id, offset, bytes;
};

struct soda_fork_answer {
	int32_t status; /* 0: the bytes follow; negative errno */
	uint32_t bytes;
};

/*
 * In the child, which is one thread: objects are what they were, and what is away is closed.
 * sock: to the parent, taken; -1: nobody answers.  false: nothing can be read, the caller closes
 * the addresses.
 */
bool soda_child_begin(int sock);

/* Whether this process is such a child, and the address is in its fabric memory. AS. */
bool soda_child_has(const void *addr);

/*
 * Bring what is away in the range, in whole chunks; false: something cannot be had, the line is
 * written.  AS.
 */
bool soda_child_bring(const void *addr, size_t bytes);

/* Make mapped pages of the range zeros, as MADV_DONTNEED does. */
void soda_child_zero(char *addr, size_t bytes);

/*
 * Around a fork of such a child, with signals blocked.  before: returns the socket for the child of
 * the child, -1: it gets none.
 */
int soda_child_fork(void);
void soda_child_forked(int sock);
/* In the child of the child. */
void soda_child_again(int sock);

/* Protections other than its object's may be there: /proc/self/maps is looked at. */
extern _Atomic bool soda_child_protections;

/* A socket pair whose numbers are out of a shell's way, closed by exec. 0, negative errno. */
int soda_fork_pair(int ends[2]);

#endif
