/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mmap, and what is done to mappings.  A mapping goes to fabric memory if it is
 * private, anonymous, readable and writable, of the threshold or more, and nothing
 * is asked of its place or its pages.  On what lies there no call reaches the kernel that
 * would change pages behind the runtime's back.
 */
#include "run.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"
#include "host_agent/advise.h"
#include "host_agent/region.h"

#define CALLER __builtin_return_address(0)

enum { PAGE = 4096 };

static size_t whole_pages(size_t bytes)
{
	return (bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
}

size_t run_piece(const void *addr, size_t bytes)
{
	struct soda_region *r = run_fam(addr) ? soda_region_of(soda_chunk_of(addr)) : NULL;
	size_t left;

	if (!r)
		return 0;
	left = (size_t)(soda_chunk_address(r->first) + r->span - (const char *)addr);
	return left < bytes ? left : bytes;
}

static bool running(void)
{
	return atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING;
}

/* Advice on a range that may lie in several regions. 0 or a negative error. */
static int advise(char *addr, size_t bytes, int advice)
{
	struct soda_why why;
	int ret = 0;
	size_t n;

	run_inside++;
	for (; !ret && bytes && (n = run_piece(addr, bytes)); addr += n, bytes -= n)
		ret = soda_advise_range(soda_region_of(soda_chunk_of(addr)), addr, n, advice, &why);
	run_inside--;
	return ret;
}

static int refuse(int err)
{
	errno = err;
	return -1;
}

static bool wanted(const void *addr, size_t bytes, int prot, int flags, int fd)
{
	const int never = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_STACK | MAP_GROWSDOWN |
			  MAP_HUGETLB | MAP_NORESERVE | MAP_SHARED | MAP_32BIT | MAP_LOCKED;

	return bytes >= run_settings.threshold && (flags & MAP_ANONYMOUS) &&
	       (flags & MAP_PRIVATE) && !(flags & never) && prot == (PROT_READ | PROT_WRITE);
}

static int change_protection(char *addr, size_t bytes, int prot);
static int zeros(char *addr, size_t bytes);

/* Anew over what is in fabric memory: zeros, with that protection. */
static void *map_over(void *addr, size_t bytes, int prot, int flags)
{
	if (!(flags & MAP_ANONYMOUS) || !(flags & MAP_PRIVATE) || flags & MAP_HUGETLB) {
		soda_log_warning(
			"soda run: a mapping at a fixed place in fabric memory is refused: only "
			"private anonymous memory can be there");
		errno = ENOMEM;
		return MAP_FAILED;
	}
	bytes = whole_pages(bytes);
	syscall(SYS_mprotect, addr, bytes, PROT_READ | PROT_WRITE);
	run_pool_claim(addr, bytes);
	if (zeros(addr, bytes) || change_protection(addr, bytes, prot)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return addr;
}

static void *map(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset,
		 const void *caller)
{
	void *p;

	if (!run_inside && !run_is_ours(caller)) {
		if (flags & MAP_FIXED && run_fam(addr) && running())
			return map_over(addr, bytes, prot, flags);
		if (wanted(addr, bytes, prot, flags, fd) && run_ready()) {
			p = run_pool_map(bytes);
			if (p) {
				run_report_site(caller, p, bytes);
				return p;
			}
			errno = ENOMEM;
			return MAP_FAILED;
		}
	}
	return (void *)syscall(SYS_mmap, addr, bytes, prot, flags, fd, offset);
}

RUN_API void *mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return map(addr, bytes, prot, flags, fd, offset, CALLER);
}

RUN_API void *mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off64_t offset);
RUN_API void *mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off64_t offset)
{
	return map(addr, bytes, prot, flags, fd, offset, CALLER);
}

/* Whether the wrapper has to do with it at all. */
static bool concerns(const void *addr, const void *caller)
{
	return run_fam(addr) && !run_is_ours(caller) && running();
}

RUN_API int munmap(void *addr, size_t bytes)
{
	if (!concerns(addr, CALLER))
		return (int)syscall(SYS_munmap, addr, bytes);
	if (!bytes || (uintptr_t)addr % PAGE)
		return refuse(EINVAL);
	run_pool_unmap(addr, bytes);
	return 0;
}

/* To another place: a new mapping like any other, or the one that the caller names. */
static void *move(char *addr, size_t old, size_t bytes, int flags, void *fixed, const void *caller)
{
	void *q;

	if (flags & MREMAP_FIXED)
		q = (void *)syscall(SYS_mmap, fixed, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	else
		q = run_pool_map(bytes);
	if (!q || q == MAP_FAILED) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	run_report_site(caller, q, bytes);
	memcpy(q, addr, old < bytes ? old : bytes);
	run_pool_unmap(addr, old);
	return q;
}

static void *remap(char *addr, size_t old, size_t bytes, int flags, void *fixed, const void *caller)
{
	bool to_fixed = flags & MREMAP_FIXED, mapped;

	old = whole_pages(old);
	bytes = whole_pages(bytes);
	if (!bytes || !old || (uintptr_t)addr % PAGE || flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED) ||
	    (to_fixed &&
	     (!(flags & MREMAP_MAYMOVE) || (uintptr_t)fixed % PAGE || run_fam(fixed)))) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (run_pool_span(addr, old, &mapped) < old || !mapped) {
		errno = EFAULT;
		return MAP_FAILED;
	}
	if (!to_fixed && bytes <= old) {
		if (bytes < old)
			run_pool_unmap(addr + bytes, old - bytes);
		return addr;
	}
	if (!to_fixed && run_pool_extend(addr, old, bytes))
		return addr;
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return move(addr, old, bytes, flags, fixed, caller);
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
	if (!concerns(addr, CALLER))
		return (void *)syscall(SYS_mremap, addr, old, bytes, flags, fixed);
	return remap(addr, old, bytes, flags, fixed, CALLER);
}

/* Some pages have had less than read and write: who stores to others' pages must look. */
static _Atomic bool restricted;

/* A chunk that is not accessible must not become dirty unasked: the runtime could not read it. */
bool run_may_fill(uint32_t id)
{
	return !atomic_load(&restricted) && !run_pool_holds_nothing(soda_chunk_address(id));
}

/* As /proc says; read and write where it does not. */
static int protection(const char *p)
{
	FILE *f = fopen("/proc/self/maps", "re");
	int prot = PROT_READ | PROT_WRITE;
	unsigned long from, to;
	char line[512], r, w;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %c%c", &from, &to, &r, &w) == 4 && (uintptr_t)p >= from &&
		    (uintptr_t)p < to)
			prot = (r == 'r' ? PROT_READ : 0) | (w == 'w' ? PROT_WRITE : 0);
	if (f)
		fclose(f);
	return prot;
}

/* A part of a chunk, which may be read-only: DONTNEED is not about that. */
static void zero_part(char *addr, size_t bytes)
{
	size_t n;

	if (!atomic_load(&restricted)) {
		memset(addr, 0, bytes);
		return;
	}
	run_inside++;
	for (; bytes; addr += n, bytes -= n) {
		int prot = protection(addr);

		n = bytes < PAGE ? bytes : PAGE;
		if (!(prot & PROT_WRITE))
			syscall(SYS_mprotect, addr, n, PROT_READ | PROT_WRITE);
		memset(addr, 0, n);
		if (!(prot & PROT_WRITE))
			syscall(SYS_mprotect, addr, n, prot);
	}
	run_inside--;
}

/* Whole chunks are discarded, the edges are filled with zeros. */
static int zeros(char *addr, size_t bytes)
{
	uint64_t chunk = soda_chunk_bytes();
	char *end = addr + bytes;
	char *first = (char *)(((uintptr_t)addr + chunk - 1) & ~(uintptr_t)(chunk - 1));
	char *last = (char *)((uintptr_t)end & ~(uintptr_t)(chunk - 1));

	if (first >= last) {
		zero_part(addr, bytes);
		return 0;
	}
	zero_part(addr, (size_t)(first - addr));
	zero_part(last, (size_t)(end - last));
	return advise(first, (size_t)(last - first), SODA_DISCARD);
}

/* On mapped pages. */
static int fam_madvise(char *addr, size_t bytes, int advice)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_FREE:
		return zeros(addr, bytes);
	case MADV_WILLNEED:
	case 22: /* POPULATE_READ and POPULATE_WRITE, as far as there is room */
	case 23:
		return advise(addr, bytes, SODA_WILLNEED);
	case MADV_COLD:
	case MADV_PAGEOUT:
		return advise(addr, bytes, SODA_COLD);
	case MADV_NORMAL:
	case MADV_RANDOM:
	case MADV_SEQUENTIAL:
	case MADV_DONTFORK:
	case MADV_DOFORK:
	case MADV_MERGEABLE:
	case MADV_UNMERGEABLE:
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case MADV_DONTDUMP:
	case MADV_DODUMP:
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
	case 25:	  /* COLLAPSE */
		return 0; /* of pages' sizes, of dumps and forks: nothing that it would change */
	default:
		return -EINVAL;
	}
}

/* fn on the mapped parts of a range in whole pages; holes are ENOMEM, at once or at the end. */
static int on_mapped(char *addr, size_t bytes, int (*fn)(char *, size_t, int), int arg,
		     bool at_once)
{
	bool holes = false, mapped;
	size_t n;

	for (; bytes; addr += n, bytes -= n) {
		int ret;

		n = run_pool_span(addr, bytes, &mapped);
		if (!mapped && at_once)
			return -ENOMEM;
		holes |= !mapped;
		ret = mapped && fn ? fn(addr, n, arg) : 0;
		if (ret)
			return ret;
	}
	return holes ? -ENOMEM : 0;
}

RUN_API int madvise(void *addr, size_t bytes, int advice)
{
	int ret;

	if (!concerns(addr, CALLER))
		return (int)syscall(SYS_madvise, addr, bytes, advice);
	if ((uintptr_t)addr % PAGE)
		return refuse(EINVAL);
	ret = on_mapped(addr, whole_pages(bytes), fam_madvise, advice, false);
	return ret ? refuse(-ret) : 0;
}

RUN_API int posix_madvise(void *addr, size_t bytes, int advice)
{
	if (!concerns(addr, CALLER)) /* DONTNEED is none in the C library's either */
		return advice == POSIX_MADV_DONTNEED || !syscall(SYS_madvise, addr, bytes, advice)
			       ? 0
			       : errno;
	return advice == POSIX_MADV_WILLNEED ? -advise(addr, bytes, SODA_WILLNEED) : 0;
}

/* Those that a fault elsewhere has begun to fill. */
static void await_fills(const char *first, const char *last)
{
	for (const char *p = first; p < last; p += soda_chunk_bytes()) {
		struct soda_chunk *c = &soda_agent.table[soda_chunk_of(p)];

		while (soda_chunk_state(soda_chunk_load(c)) == SODA_CHUNK_FETCHING)
			soda_chunk_wait(c, 1000000);
	}
}

/* No access: written back and dropped first, because the runtime could not read it later. */
static int no_access(char *addr, size_t bytes)
{
	uint64_t chunk = soda_chunk_bytes();
	char *end = addr + bytes;
	char *first = (char *)(((uintptr_t)addr + chunk - 1) & ~(uintptr_t)(chunk - 1));
	char *last = (char *)((uintptr_t)end & ~(uintptr_t)(chunk - 1));

	if (syscall(SYS_mprotect, addr, bytes, PROT_READ))
		return -1;
	await_fills(first, last);
	if (first < last && !advise(first, (size_t)(last - first), SODA_COLD))
		return (int)syscall(SYS_mprotect, first, last - first, PROT_NONE);
	return 0;
}

static int change_protection(char *addr, size_t bytes, int prot)
{
	if ((prot & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE))
		atomic_store(&restricted, true);
	if (prot & (PROT_READ | PROT_WRITE) ? (int)syscall(SYS_mprotect, addr, bytes, prot)
					    : no_access(addr, bytes))
		return -errno;
	return 0;
}

RUN_API int mprotect(void *addr, size_t bytes, int prot)
{
	int ret;

	if (!concerns(addr, CALLER) || prot & (PROT_GROWSDOWN | PROT_GROWSUP))
		return (int)syscall(SYS_mprotect, addr, bytes, prot);
	if ((uintptr_t)addr % PAGE || prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC))
		return refuse(EINVAL);
	ret = on_mapped(addr, whole_pages(bytes), change_protection, prot, true);
	return ret ? refuse(-ret) : 0;
}

static int pin(char *addr, size_t bytes, int arg)
{
	return advise(addr, bytes, SODA_PIN) ? -ENOMEM : 0;
}

/* Of the pages that the range touches. */
static int lock_pages(const void *addr, size_t bytes, bool now)
{
	uintptr_t from = (uintptr_t)addr / PAGE * PAGE, to = (uintptr_t)addr + bytes;
	int ret = on_mapped((char *)from, whole_pages(to - from), now ? pin : NULL, 0, true);

	return ret ? refuse(-ret) : 0;
}

RUN_API int mlock(const void *addr, size_t bytes)
{
	if (!concerns(addr, CALLER))
		return (int)syscall(SYS_mlock, addr, bytes);
	return lock_pages(addr, bytes, true);
}

RUN_API int mlock2(const void *addr, size_t bytes, unsigned flags)
{
	if (!concerns(addr, CALLER))
		return (int)syscall(SYS_mlock2, addr, bytes, flags);
	if (flags & ~(unsigned)MLOCK_ONFAULT)
		return refuse(EINVAL);
	return lock_pages(addr, bytes, !(flags & MLOCK_ONFAULT));
}

RUN_API int munlock(const void *addr, size_t bytes)
{
	if (!concerns(addr, CALLER))
		return (int)syscall(SYS_munlock, addr, bytes);
	advise((char *)(uintptr_t)addr, bytes, SODA_UNPIN);
	return lock_pages(addr, bytes, false);
}

RUN_API int mincore(void *addr, size_t bytes, unsigned char *vec)
{
	if (!concerns(addr, CALLER))
		return (int)syscall(SYS_mincore, addr, bytes, vec);
	if ((uintptr_t)addr % PAGE)
		return refuse(EINVAL);
	if (run_piece(addr, bytes) < bytes || on_mapped(addr, whole_pages(bytes), NULL, 0, true))
		return refuse(ENOMEM);
	for (size_t i = 0; i < whole_pages(bytes) / PAGE; i++) {
		uint32_t id = soda_chunk_of((char *)addr + i * PAGE);
		enum soda_chunk_state s = soda_chunk_state(soda_chunk_load(&soda_agent.table[id]));

		vec[i] = s == SODA_CHUNK_CLEAN || s == SODA_CHUNK_DIRTY || s == SODA_CHUNK_BUSY;
	}
	return 0;
}

RUN_API int msync(void *addr, size_t bytes, int flags)
{
	if (!concerns(addr, CALLER))
		return (int)syscall(SYS_msync, addr, bytes, flags);
	if ((uintptr_t)addr % PAGE || (flags & MS_ASYNC && flags & MS_SYNC) ||
	    flags & ~(MS_ASYNC | MS_SYNC | MS_INVALIDATE))
		return refuse(EINVAL);
	if (run_piece(addr, bytes) < bytes)
		return refuse(ENOMEM);
	return on_mapped(addr, whole_pages(bytes), NULL, 0, true) ? refuse(ENOMEM) : 0;
}
