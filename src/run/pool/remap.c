/* SPDX-License-Identifier: BSD-3-Clause */
/* mremap of fabric memory: in place where there is room, elsewhere by copying. */
#include "run/core/run.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "host_agent/fork/child.h"

#define CALLER __builtin_return_address(0)

enum { PAGE = 4096 };

/* Pages for a mapping that moves: anywhere, or at the place that the caller names. */
static char *new_place(size_t bytes, int flags, void *fixed)
{
	if (!(flags & MREMAP_FIXED) && !run_rings_held())
		return run_pool_map(bytes);
	if (flags & MREMAP_FIXED && run_fam(fixed))
		return run_map_over(fixed, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS);
	return (char *)syscall(SYS_mmap, fixed, bytes, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | (flags & MREMAP_FIXED ? MAP_FIXED : 0),
			       -1, 0);
}

/* Move a mapping, with its content and its protection. */
static void *move(char *addr, size_t old, size_t bytes, int flags, void *fixed, const void *caller)
{
	bool mixed;
	int prot = run_protection(addr, old, &mixed);
	char *q = mixed ? NULL : new_place(bytes, flags, fixed);

	if (!q || q == MAP_FAILED) {
		errno = mixed ? EFAULT
			      : ENOMEM; /* mixed: several mappings, which do not move at once */
		return MAP_FAILED;
	}
	run_report_site(caller, q, bytes);
	if (!(prot & PROT_READ))
		run_protect(addr, old, PROT_READ);
	memcpy(q, addr, old < bytes ? old : bytes);
	if (!(flags & MREMAP_DONTUNMAP)) {
		run_pool_unmap(addr, old);
	} else {
		run_zeros(addr, old);
		if (!(prot & PROT_READ))
			run_protect(addr, old, prot);
		run_rings_keep(addr, old);
	}
	if (prot != (PROT_READ | PROT_WRITE))
		mprotect(q, bytes, prot);
	return q;
}

/* Lengthen a mapping in place; new pages get the protection of the others. */
static bool extend(char *addr, size_t old, size_t bytes)
{
	bool mixed;
	int prot = run_protection(addr, old, &mixed);

	if (mixed || !run_pool_extend(addr, old, bytes))
		return false;
	if (prot != (PROT_READ | PROT_WRITE))
		run_protect(addr + old, bytes - old, prot);
	run_rings_keep(addr + old, bytes - old);
	return true;
}

static bool overlap(const char *a, size_t n, const char *b, size_t m)
{
	return a < b + m && b < a + n;
}

/* Whether the kernel would answer EINVAL. */
static bool senseless(const char *addr, size_t old, size_t bytes, int flags, const void *fixed)
{
	const int to_move = MREMAP_FIXED | MREMAP_DONTUNMAP;

	return !bytes || !old || (uintptr_t)addr % PAGE || flags & ~(MREMAP_MAYMOVE | to_move) ||
	       (flags & to_move && !(flags & MREMAP_MAYMOVE)) ||
	       (flags & MREMAP_DONTUNMAP && old != bytes) ||
	       (flags & MREMAP_FIXED &&
		((uintptr_t)fixed % PAGE || overlap(addr, old, fixed, bytes)));
}

static void *remap(char *addr, size_t old, size_t bytes, int flags, void *fixed, const void *caller)
{
	bool must_move = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP), mapped;

	old = run_pages(old);
	bytes = run_pages(bytes);
	if (senseless(addr, old, bytes, flags, fixed)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (run_pool_span(addr, old, &mapped) < old || !mapped) {
		errno = EFAULT;
		return MAP_FAILED;
	}
	if (!must_move && bytes <= old) {
		if (bytes < old)
			run_pool_unmap(addr + bytes, old - bytes);
		return addr;
	}
	if (!must_move && extend(addr, old, bytes))
		return addr;
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return move(addr, old, bytes, flags, fixed, caller);
}

/*
 * In the child of a fork, of what it got from its parent: by copying, because the kernel would move
 * what is away as it is, closed, to where nobody brings it.
 */
static void *remap_child(char *addr, size_t old, size_t bytes, int flags, void *fixed)
{
	bool must_move = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP);
	int at = flags & MREMAP_FIXED ? MAP_FIXED : 0;
	void *q;

	if (senseless(addr, old, bytes, flags, fixed)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (!must_move && bytes <= old) {
		if (bytes < old)
			syscall(SYS_munmap, addr + bytes, old - bytes);
		return addr;
	}
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	q = (void *)syscall(SYS_mmap, fixed, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | at, -1, 0);
	if (q == MAP_FAILED)
		return q;
	memcpy(q, addr, old < bytes ? old : bytes);
	if (flags & MREMAP_DONTUNMAP)
		soda_child_zero(addr, old);
	else
		syscall(SYS_munmap, addr, old);
	return q;
}

/* The kernel's pages cannot be moved to where fabric memory is. */
static void *remap_into(void *fixed)
{
	soda_log_warning("soda run: mremap() of local memory to %p, which is in fabric memory, is "
			 "refused",
			 fixed);
	errno = ENOMEM;
	return MAP_FAILED;
}

RUN_API void *mremap(void *addr, size_t old, size_t bytes, int flags, ...)
{
	void *fixed = NULL;
	va_list ap;

	if (flags & MREMAP_FIXED) {
		va_start(ap, flags);
		fixed = va_arg(ap, void *);
		va_end(ap);
	}
	if (soda_child_has(addr) && !run_is_ours(CALLER))
		return remap_child(addr, run_pages(old), run_pages(bytes), flags, fixed);
	if (!run_concerns(addr, CALLER))
		return flags & MREMAP_FIXED && run_concerns(fixed, CALLER)
			       ? remap_into(fixed)
			       : (void *)syscall(SYS_mremap, addr, old, bytes, flags, fixed);
	return remap(addr, old, bytes, flags, fixed, CALLER);
}
