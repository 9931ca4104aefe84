/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * malloc and its family.  A block of the threshold and more comes from the heap in
 * fabric memory, a smaller one from the program's allocator.  The
 * runtime's own blocks always come from the C library's allocator, because the program's allocator
 * may be asking the runtime for pages at that moment.
 */
#include "run/core/run.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host_agent/fork/child.h"
#include "host_agent/heap/heap.h"

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *p);

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void *(*next_memalign)(size_t, size_t);
static void (*next_free)(void *);
static size_t (*next_usable)(void *);

#define CALLER __builtin_return_address(0)

/* Whether the call is the runtime's own. */
static bool internal(const void *caller)
{
	return run_inside || run_is_ours(caller);
}

/* Smaller blocks for the C library itself are local, because it uses some as buffers of streams. */
enum { LIBC_LOCAL = 1 << 20 };

static bool wanted(size_t bytes, const void *caller)
{
	if (bytes < atomic_load_explicit(&run_settings.threshold, memory_order_relaxed)) {
		run_local_asked(bytes);
		return false;
	}
	return (bytes >= LIBC_LOCAL || !run_is_libc(caller)) && !internal(caller) && !run_local &&
	       !soda_heap_over() && !run_others_heap;
}

/*
 * True: the block is to be in fabric memory; *p_p, or NULL and errno.  False: the caller asks the
 * program's allocator.
 */
static bool fam_alloc(size_t alignment, size_t bytes, bool zero, const void *caller, void **p_p)
{
	struct soda_why why;

	if (!wanted(bytes, caller) || !run_ready())
		return false;
	run_inside++;
	*p_p = soda_heap_alloc(alignment, bytes, zero, &why);
	run_inside--;
	if (*p_p) {
		run_rings_keep(*p_p, bytes);
		run_report_site(caller, *p_p, bytes);
	} else {
		errno = ENOMEM;
	}
	return true;
}

static void *plain_malloc(size_t bytes, bool mine)
{
	return mine || !RUN_NEXT(next_malloc, "malloc") ? __libc_malloc(bytes) : next_malloc(bytes);
}

static void plain_free(void *p, bool mine)
{
	if (mine || !RUN_NEXT(next_free, "free"))
		__libc_free(p);
	else
		next_free(p);
}

static void *plain_memalign(size_t alignment, size_t bytes, bool mine)
{
	return mine || !RUN_NEXT(next_memalign, "memalign") ? __libc_memalign(alignment, bytes)
							    : next_memalign(alignment, bytes);
}

RUN_API void *malloc(size_t bytes)
{
	void *p;

	return fam_alloc(0, bytes, false, CALLER, &p) ? p : plain_malloc(bytes, internal(CALLER));
}

RUN_API void *calloc(size_t n, size_t bytes)
{
	size_t all;
	void *p;

	if (__builtin_mul_overflow(n, bytes, &all)) {
		errno = ENOMEM;
		return NULL;
	}
	if (fam_alloc(0, all, true, CALLER, &p))
		return p;
	return internal(CALLER) || !RUN_NEXT(next_calloc, "calloc") ? __libc_calloc(n, bytes)
								    : next_calloc(n, bytes);
}

/*
 * The block is of our heap.  The program's allocator may have its pages from mmap(), in fabric
 * memory, too: its blocks are its own.
 */
static bool is_heaps(const void *p)
{
	return run_fam(p) && !run_pool_has(p);
}

static void release(void *p, bool mine)
{
	int saved = errno;

	if (is_heaps(p)) {
		if (atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING) {
			run_inside++;
			soda_heap_free(p);
			run_inside--;
		}
	} else {
		plain_free(p, mine);
	}
	errno = saved;
}

RUN_API void free(void *p)
{
	release(p, internal(CALLER));
}

void run_free(void *p)
{
	release(p, false);
}

RUN_API size_t malloc_usable_size(void *p)
{
	if (is_heaps(p))
		return soda_heap_usable(p);
	return RUN_NEXT(next_usable, "malloc_usable_size") ? next_usable(p) : 0;
}

/* A block that grows beyond the threshold moves to fabric memory. */
static void *move(void *p, size_t bytes, const void *caller)
{
	size_t old = malloc_usable_size(p);
	void *q;

	if (!fam_alloc(0, bytes, false, caller, &q) || !q)
		return NULL;
	memcpy(q, p, old < bytes ? old : bytes);
	plain_free(p, false);
	return q;
}

/* A block gets a local one in its place: one that the child of a fork got from its parent, say. */
static void *become_local(void *p, size_t bytes)
{
	size_t old = soda_heap_usable(p);
	void *q = plain_malloc(bytes, false);

	if (q)
		memcpy(q, p, old < bytes ? old : bytes);
	return q;
}

static void *fam_realloc(void *p, size_t bytes, const void *caller)
{
	struct soda_why why;
	void *q;

	if (soda_child_has(p))
		return become_local(p, bytes);
	if (run_rings_held()) {
		q = become_local(p, bytes);
		if (q)
			free(p);
		return q;
	}
	if (!run_ready()) {
		errno = ENOMEM;
		return NULL;
	}
	run_inside++;
	q = soda_heap_realloc(p, bytes, &why);
	run_inside--;
	if (q)
		run_report_site(caller, q, bytes);
	else
		errno = ENOMEM;
	return q;
}

/* As the C library's reallocarray() does, which calls the realloc() that the program has. */
static void *others_realloc(void *p, size_t bytes)
{
	static void *(*others)(void *, size_t);

	if (!others)
		others = run_found("realloc");
	return others(p, bytes);
}

static void *resize(void *p, size_t bytes, const void *caller)
{
	void *q;

	if (run_others_heap && !internal(caller))
		return others_realloc(p, bytes);

	if (!p && fam_alloc(0, bytes, false, caller, &q))
		return q;
	if (is_heaps(p)) {
		if (bytes)
			return fam_realloc(p, bytes, CALLER);
		free(p);
		return NULL;
	}
	if (internal(caller))
		return __libc_realloc(p, bytes);
	if (p && wanted(bytes, caller) && run_ready())
		return move(p, bytes, caller);
	return RUN_NEXT(next_realloc, "realloc") ? next_realloc(p, bytes)
						 : __libc_realloc(p, bytes);
}

RUN_API void *realloc(void *p, size_t bytes)
{
	return resize(p, bytes, CALLER);
}

RUN_API void *reallocarray(void *p, size_t n, size_t bytes)
{
	size_t all;

	if (!__builtin_mul_overflow(n, bytes, &all))
		return resize(p, all, CALLER);
	errno = ENOMEM;
	return NULL;
}

static bool power_of_two(size_t n)
{
	return n && !(n & (n - 1));
}

static void *aligned(size_t alignment, size_t bytes, const void *caller)
{
	void *p;

	if (power_of_two(alignment) && fam_alloc(alignment, bytes, false, caller, &p))
		return p;
	return plain_memalign(alignment, bytes, internal(caller));
}

RUN_API void *memalign(size_t alignment, size_t bytes)
{
	return aligned(alignment, bytes, CALLER);
}

RUN_API void *aligned_alloc(size_t alignment, size_t bytes)
{
	return aligned(alignment, bytes, CALLER);
}

RUN_API int posix_memalign(void **p_p, size_t alignment, size_t bytes)
{
	int saved = errno;
	void *p;

	if (alignment % sizeof(void *) || !power_of_two(alignment))
		return EINVAL;
	if (!fam_alloc(alignment, bytes, false, CALLER, &p))
		p = plain_memalign(alignment, bytes, internal(CALLER));
	errno = saved;
	if (!p)
		return ENOMEM;
	*p_p = p;
	return 0;
}

RUN_API void *valloc(size_t bytes)
{
	return aligned((size_t)sysconf(_SC_PAGESIZE), bytes, CALLER);
}

RUN_API void *pvalloc(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return aligned(page, (bytes + page - 1) & ~(page - 1), CALLER);
}
