/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mmap, and calls that change mappings (mremap: remap.c).  A mapping goes to fabric memory if it is
 * private, anonymous, readable and writable, of the threshold or more, and the flags
 * ask nothing special of its place or its pages.  A call that would change pages of fabric memory
 * without the runtime's knowledge is carried out here, and not by the kernel.
 */
#include "run/core/run.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "host_agent/fork/child.h"
#include "host_agent/life/advise.h"
#include "host_agent/object/region.h"

#define CALLER __builtin_return_address(0)

enum { PAGE = 4096 };

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

/* Discard whole chunks, which may lie in several regions. 0 or a negative error. */
static int discard(char *addr, size_t bytes)
{
	int ret = 0;
	size_t n;

	run_inside++;
	for (; !ret && bytes && (n = run_piece(addr, bytes)); addr += n, bytes -= n) {
		struct soda_backed backed = { 0 };

		ret = soda_advise_discard(soda_region_of(soda_chunk_of(addr)), addr, n, &backed);
		run_pool_discarded(backed.first, backed.n);
	}
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

	if (fd < 0 && bytes < atomic_load_explicit(&run_settings.threshold, memory_order_relaxed))
		run_local_asked(bytes);
	return bytes >= run_settings.threshold && (flags & MAP_ANONYMOUS) &&
	       (flags & MAP_PRIVATE) && !(flags & never) && prot == (PROT_READ | PROT_WRITE);
}

/* Some pages have, or had, less protection than read and write: look before storing to any. */
static _Atomic bool restricted;

void *run_map_over(void *addr, size_t bytes, int prot, int flags)
{
	if (!(flags & MAP_ANONYMOUS) || !(flags & MAP_PRIVATE) || flags & MAP_HUGETLB) {
		soda_log_warning(
			"soda run: a mapping at a fixed place in fabric memory is refused: only "
			"private anonymous memory can be there");
		errno = ENOMEM;
		return MAP_FAILED;
	}
	bytes = run_pages(bytes);
	run_open(addr, bytes);
	syscall(SYS_mprotect, addr, bytes, PROT_READ | PROT_WRITE);
	run_pool_claim(addr, bytes);
	run_zeros(addr, bytes);
	if (run_protect(addr, bytes, prot)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	run_rings_keep(addr, bytes);
	return addr;
}

static void *map(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset,
		 const void *caller)
{
	void *p;

	if (!run_inside && !run_is_ours(caller)) {
		if (flags & MAP_FIXED && run_fam(addr) && running())
			return run_map_over(addr, bytes, prot, flags);
		if (wanted(addr, bytes, prot, flags, fd) && run_ready()) {
			p = run_pool_map(bytes);
			if (p) {
				run_rings_keep(p, bytes);
				run_report_site(caller, p, bytes);
				return p;
			}
			errno = ENOMEM;
			return MAP_FAILED;
		}
	}
	p = (void *)syscall(SYS_mmap, addr, bytes, prot, flags, fd, offset);
	if (p != MAP_FAILED && !run_inside && !run_is_ours(caller))
		run_reserved_map(p, bytes, prot, flags);
	return p;
}

RUN_API void *mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return map(addr, bytes, prot, flags, fd, offset, CALLER);
}

RUN_API void *mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off64_t offset)
	RUN_SAME_AS(mmap);

bool run_concerns(const void *addr, const void *caller)
{
	return run_fam(addr) && !run_is_ours(caller) && running();
}

RUN_API int munmap(void *addr, size_t bytes)
{
	if (!run_concerns(addr, CALLER))
		return (int)syscall(SYS_munmap, addr, bytes);
	if (!bytes || (uintptr_t)addr % PAGE)
		return refuse(EINVAL);
	run_pool_unmap(addr, bytes);
	return 0;
}

/*
 * run_protection() by /proc/self/maps; PROT_READ | PROT_WRITE for pages that it does not list.
 */
static int protection(const char *p, size_t bytes, bool *mixed_p)
{
	FILE *f = fopen("/proc/self/maps", "re");
	int least = PROT_READ | PROT_WRITE, most = 0;
	unsigned long from, to;
	char line[512], r, w;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %c%c", &from, &to, &r, &w) == 4 &&
		    (uintptr_t)p + bytes > from && (uintptr_t)p < to) {
			int here = (r == 'r' ? PROT_READ : 0) | (w == 'w' ? PROT_WRITE : 0);

			least &= here;
			most |= here;
		}
	if (f)
		fclose(f);
	*mixed_p = most & ~least & PROT_WRITE;
	return least;
}

int run_protection(const char *p, size_t bytes, bool *mixed_p)
{
	int prot = PROT_READ | PROT_WRITE;

	*mixed_p = false;
	if (!atomic_load(&restricted))
		return prot;
	run_inside++;
	prot = protection(p, bytes, mixed_p);
	run_inside--;
	return prot;
}

/* Not a chunk that is not accessible: once it is dirty the runtime could not read it. */
bool run_may_fill(uint32_t id)
{
	return !soda_chunk_is_closed(id) && !run_pool_holds_nothing(soda_chunk_address(id));
}

/* Make a part of a chunk zeros, also where it is read-only, as MADV_DONTNEED does. */
static void zero_part(char *addr, size_t bytes)
{
	size_t n;

	run_open(addr, bytes);
	if (!atomic_load(&restricted)) {
		memset(addr, 0, bytes);
		return;
	}
	run_inside++;
	for (; bytes; addr += n, bytes -= n) {
		bool mixed;
		int prot = protection(addr, PAGE, &mixed);

		n = bytes < PAGE ? bytes : PAGE;
		if (!(prot & PROT_WRITE))
			syscall(SYS_mprotect, addr, n, PROT_READ | PROT_WRITE);
		memset(addr, 0, n);
		if (!(prot & PROT_WRITE))
			syscall(SYS_mprotect, addr, n, prot);
	}
	run_inside--;
}

/*
 * Discards whole chunks, and stores zeros to the parts of chunks at the edges; to all of the range,
 * if the discard fails because a silent server has a chunk under way for longer than a fault may
 * take.
 */
void run_zeros(char *addr, size_t bytes)
{
	uint64_t chunk = soda_chunk_bytes();
	char *end = addr + bytes;
	char *first = (char *)(((uintptr_t)addr + chunk - 1) & ~(uintptr_t)(chunk - 1));
	char *last = (char *)((uintptr_t)end & ~(uintptr_t)(chunk - 1));

	if (first >= last) {
		zero_part(addr, bytes);
		return;
	}
	zero_part(addr, (size_t)(first - addr));
	zero_part(last, (size_t)(end - last));
	if (discard(first, (size_t)(last - first)))
		zero_part(first, (size_t)(last - first));
}

/*
 * Whether mlock() has locked a chunk that lies wholly in the range.  Where all chunks are pinned
 * for io_uring nobody knows which of them it has locked.
 */
static bool locked(const char *addr, size_t bytes)
{
	uint64_t chunk = soda_chunk_bytes();
	uint32_t id = soda_chunk_of(addr + chunk - 1), end = soda_chunk_of(addr + bytes);

	if (run_rings_held())
		return false;
	for (; id < end; id++)
		if (soda_chunk_load(&soda_agent.table[id]) & SODA_CW_PINNED)
			return true;
	return false;
}

/* madvise() on mapped pages. 0 or a negative error. */
static int fam_madvise(char *addr, size_t bytes, int advice)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_FREE:
		if (locked(addr, bytes))
			return -EINVAL;
		__attribute__((fallthrough));
	case 24: /* DONTNEED_LOCKED */
		run_zeros(addr, bytes);
		run_rings_keep(addr, bytes);
		return 0;
	case MADV_WILLNEED:
	case 22: /* POPULATE_READ, 23: POPULATE_WRITE; as far as there is room */
	case 23:
		return advise(addr, bytes, SODA_WILLNEED);
	case MADV_COLD:
	case MADV_PAGEOUT:
		return locked(addr, bytes) ? -EINVAL : advise(addr, bytes, SODA_COLD);
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
		return 0; /* page sizes, dumps and forks: nothing changes for fabric memory */
	default:
		return -EINVAL;
	}
}

/*
 * Call fn for the mapped parts of a range of whole pages. -ENOMEM: there are holes; at_once: stop
 * there.
 */
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

/* Memory that the child of a fork got from its parent is local, once it is there. */
static int child_madvise(char *addr, size_t bytes, int advice)
{
	if (advice == MADV_DONTNEED || advice == MADV_FREE || advice == 24 /* DONTNEED_LOCKED */) {
		soda_child_zero(addr, run_pages(bytes));
		return 0;
	}
	return (int)syscall(SYS_madvise, addr, bytes, advice);
}

/* In a child: whether the call is the program's, on what it got from its parent. */
static bool childs(const void *addr, const void *caller)
{
	return soda_child_has(addr) && !run_is_ours(caller);
}

RUN_API int madvise(void *addr, size_t bytes, int advice)
{
	int ret;

	if (childs(addr, CALLER) && (uintptr_t)addr % PAGE == 0)
		return child_madvise(addr, bytes, advice);

	if (!run_concerns(addr, CALLER))
		return (int)syscall(SYS_madvise, addr, bytes, advice);
	if ((uintptr_t)addr % PAGE)
		return refuse(EINVAL);
	ret = on_mapped(addr, run_pages(bytes), fam_madvise, advice, false);
	return ret ? refuse(-ret) : 0;
}

RUN_API int posix_madvise(void *addr, size_t bytes, int advice)
{
	if (!run_concerns(addr, CALLER)) /* the C library ignores DONTNEED, too */
		return advice == POSIX_MADV_DONTNEED || !syscall(SYS_madvise, addr, bytes, advice)
			       ? 0
			       : errno;
	return advice == POSIX_MADV_WILLNEED ? -advise(addr, bytes, SODA_WILLNEED) : 0;
}

/* Write whole chunks back and drop them. 0, or an error: none was dropped. */
static int vacate(const char *first, const char *last)
{
	int ret;

	run_inside++;
	ret = soda_advise_vacate(soda_chunk_of(first), soda_chunk_of(last - 1));
	run_inside--;
	return ret;
}

/*
 * PROT_NONE: chunks are written back and dropped first, because the runtime could not read them
 * later; and dropped again, because other threads may have loaded from them before the protection
 * changed.
 */
static int no_access(char *addr, size_t bytes)
{
	uint64_t chunk = soda_chunk_bytes();
	char *end = addr + bytes;
	char *first = (char *)(((uintptr_t)addr + chunk - 1) & ~(uintptr_t)(chunk - 1));
	char *last = (char *)((uintptr_t)end & ~(uintptr_t)(chunk - 1));

	if (syscall(SYS_mprotect, addr, bytes, PROT_READ))
		return -1;
	if (first >= last || !run_close(first, (size_t)(last - first)))
		return 0;
	if (vacate(first, last)) {
		run_open(first, (size_t)(last - first));
		return 0;
	}
	if (syscall(SYS_mprotect, first, last - first, PROT_NONE))
		return -1;
	vacate(first, last);
	return 0;
}

int run_protect(char *addr, size_t bytes, int prot)
{
	if ((prot & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE)) {
		atomic_store(&restricted, true);
		atomic_store(&soda_child_protections, true);
	}
	if (prot == PROT_EXEC) /* x86 can read what it executes, and the runtime must */
		prot |= PROT_READ;
	run_open(addr, bytes);
	if (prot & (PROT_READ | PROT_WRITE) ? (int)syscall(SYS_mprotect, addr, bytes, prot)
					    : no_access(addr, bytes))
		return -errno;
	if (prot & (PROT_READ | PROT_WRITE))
		run_rings_keep(addr, bytes);
	return 0;
}

RUN_API int mprotect(void *addr, size_t bytes, int prot)
{
	int ret;

	/* what is away is closed to all, and would be opened */
	if (childs(addr, CALLER) && !soda_child_bring(addr, bytes))
		return refuse(ENOMEM);

	if (!run_concerns(addr, CALLER) || prot & (PROT_GROWSDOWN | PROT_GROWSUP)) {
		if (!run_inside && !run_is_ours(CALLER) && !run_fam(addr))
			run_reserved_open(addr, bytes, prot);
		return (int)syscall(SYS_mprotect, addr, bytes, prot);
	}
	if ((uintptr_t)addr % PAGE || prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC))
		return refuse(EINVAL);
	ret = on_mapped(addr, run_pages(bytes), run_protect, prot, true);
	return ret ? refuse(-ret) : 0;
}

/*
 * Open the pages of a pinned range that the program may store to: a store by the kernel does not
 * open them.
 */
static void open_pinned(char *addr, size_t bytes)
{
	size_t half = bytes / PAGE / 2 * PAGE;
	bool mixed;
	int prot = run_protection(addr, bytes, &mixed);

	if (mixed && half) {
		open_pinned(addr, half);
		open_pinned(addr + half, bytes - half);
	} else if (prot & PROT_WRITE) {
		run_open_pinned(addr, bytes);
	}
}

int run_pin(char *addr, size_t bytes)
{
	int ret = advise(addr, bytes, SODA_PIN);

	if (!ret)
		open_pinned(addr, bytes);
	return ret;
}

static int pin(char *addr, size_t bytes, int arg)
{
	for (uint32_t id = soda_chunk_of(addr); id <= soda_chunk_of(addr + bytes - 1); id++)
		if (soda_chunk_is_closed(id))
			return -ENOMEM;
	return run_pin(addr, bytes) ? -ENOMEM : 0;
}

/* mlock or munlock (not now) of the pages that the range touches. */
static int lock_pages(const void *addr, size_t bytes, bool now)
{
	uintptr_t from = (uintptr_t)addr / PAGE * PAGE, to = (uintptr_t)addr + bytes;
	int ret = on_mapped((char *)from, run_pages(to - from), now ? pin : NULL, 0, true);

	return ret ? refuse(-ret) : 0;
}

RUN_API int mlock(const void *addr, size_t bytes)
{
	if (!run_concerns(addr, CALLER))
		return (int)syscall(SYS_mlock, addr, bytes);
	return lock_pages(addr, bytes, true);
}

RUN_API int mlock2(const void *addr, size_t bytes, unsigned flags)
{
	if (!run_concerns(addr, CALLER))
		return (int)syscall(SYS_mlock2, addr, bytes, flags);
	if (flags & ~(unsigned)MLOCK_ONFAULT)
		return refuse(EINVAL);
	return lock_pages(addr, bytes, !(flags & MLOCK_ONFAULT));
}

RUN_API int munlock(const void *addr, size_t bytes)
{
	if (!run_concerns(addr, CALLER))
		return (int)syscall(SYS_munlock, addr, bytes);
	if (!run_rings_held())
		advise((char *)(uintptr_t)addr, bytes, SODA_UNPIN);
	return lock_pages(addr, bytes, false);
}

/* Local memory: the kernel fills the vector, which may be fabric memory. */
static int local_mincore(void *addr, size_t bytes, unsigned char *vec)
{
	size_t n = run_pages(bytes) / PAGE, had;
	void *local = run_bounce_get(n, &had);
	int ret;

	if (!local)
		return refuse(ENOMEM);
	ret = (int)syscall(SYS_mincore, addr, bytes, local);
	if (!ret)
		memcpy(vec, local, n);
	run_bounce_put(local, had);
	return ret;
}

RUN_API int mincore(void *addr, size_t bytes, unsigned char *vec)
{
	if (!run_concerns(addr, CALLER))
		return run_fam(vec) && !run_is_ours(CALLER)
			       ? local_mincore(addr, bytes, vec)
			       : (int)syscall(SYS_mincore, addr, bytes, vec);
	if ((uintptr_t)addr % PAGE)
		return refuse(EINVAL);
	if (run_piece(addr, bytes) < bytes || on_mapped(addr, run_pages(bytes), NULL, 0, true))
		return refuse(ENOMEM);
	for (size_t i = 0; i < run_pages(bytes) / PAGE; i++) {
		uint32_t id = soda_chunk_of((char *)addr + i * PAGE);
		enum soda_chunk_state s = soda_chunk_state(soda_chunk_load(&soda_agent.table[id]));

		vec[i] = s == SODA_CHUNK_CLEAN || s == SODA_CHUNK_DIRTY || s == SODA_CHUNK_BUSY;
	}
	return 0;
}

RUN_API int msync(void *addr, size_t bytes, int flags)
{
	if (!run_concerns(addr, CALLER))
		return (int)syscall(SYS_msync, addr, bytes, flags);
	if ((uintptr_t)addr % PAGE || (flags & MS_ASYNC && flags & MS_SYNC) ||
	    flags & ~(MS_ASYNC | MS_SYNC | MS_INVALIDATE))
		return refuse(EINVAL);
	if (run_piece(addr, bytes) < bytes)
		return refuse(ENOMEM);
	return on_mapped(addr, run_pages(bytes), NULL, 0, true) ? refuse(ENOMEM) : 0;
}
