/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libsoda-run.so, which `soda run` loads into a program: libsoda, and around it
 * the C library's functions that allocate memory, change mappings, and hand memory
 * to the kernel.  The program's calls come here; what concerns no fabric memory
 * is passed on.  Calls from this library itself are passed on in any case.
 *
 *   real.c     the functions that stand behind these, settings, start
 *   heap.c     malloc and its family: large blocks from soda_malloc's heap
 *   pool.c     pages for mappings, cut from few regions
 *   maps.c     mmap and what is done to mappings
 *   remap.c    mremap
 *   closed.c   what nobody may access
 *   bounce.c   a piece of local memory for a system call on fabric memory
 *   hold.c     chunks that stay for the length of a call
 *   calls.c    read, write and the like
 *   sockets.c  recv, send and the like
 *   ioctl.c    ioctl
 *   near.c     small arguments as local memory, for the next three
 *   arguments.c  stat, select and what else takes a structure
 *   addresses.c  connect, accept and the like
 *   paths.c    open, rename, posix_spawn and what else takes a name
 *   become.c   execve and its family: what the program becomes has fabric memory, too
 *   threads.c  affinity, scheduling, names
 *   messages.c  mq_send, msgsnd, semop and the like
 *   aio.c      aio_read and the like
 *   locks.c    pthread_mutex_lock and what else waits for a futex
 *   print.c    printf and puts
 *   polls.c    poll, epoll_wait and the like
 *   stdio.c    fread, fwrite and the like: the C library's own calls do not come by calls.c
 *   report.c   --stats
 *   samples.c  --report
 *   symbols.c  the names of callers
 */
#ifndef SODA_RUN_H
#define SODA_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "host_agent/core/agent.h"

#define RUN_API __attribute__((visibility("default")))
/* Of a function that is another one under a second name: off_t and off64_t are the same. */
#define RUN_SAME_AS(name) __attribute__((alias(#name)))

/* Settings, from the environment that `soda run` makes; constant after the start. */
struct run_settings {
	size_t threshold; /* of blocks and mappings that go to fabric memory */
	bool stats;
	int stats_fd; /* standard error, for the end; -1: none */
};

extern struct run_settings run_settings;

/* The address of a call is in this library: __builtin_return_address(0) of a wrapper. */
bool run_is_ours(const void *caller);
/* The address of a call is in the C library, which hands what it allocates to the kernel itself. */
bool run_is_libc(const void *caller);
/* The calling thread is inside the runtime, or has no business there: the C library's heap. */
extern __thread int run_inside __attribute__((tls_model("initial-exec")));

/*
 * The runtime runs, started if need be; false: the child of a fork, or the end of
 * the process.  Where it cannot start, one line and the end.
 */
bool run_ready(void);

static inline bool run_fam(const void *p)
{
	return soda_agent_owns(p);
}

/* Of a wrapper: where it was called from. */
#define RUN_CALLER __builtin_return_address(0)
/* p is in fabric memory, and the program has handed it over, not this library. */
static inline bool run_handed(const void *p, const void *caller)
{
	return run_fam(p) && !run_is_ours(caller);
}

/* Of programs that are compiled with _FORTIFY_SOURCE: there is no room for what they ask for. */
_Noreturn void __chk_fail(void);

/* The next function of that name after this library's. NULL: none. */
void *run_next(const char *name);
static inline void *run_resolved(void **slot, const char *name)
{
	if (!*slot)
		*slot = run_next(name);
	return *slot;
}
#define RUN_NEXT(fn, name) ((__typeof__(fn))run_resolved((void **)&(fn), (name)))

/* Pages for a mapping: whole chunks, zeros; NULL: there is no more. */
void *run_pool_map(size_t bytes);
/* Pages of the pool are mapped from now on, whether they were or not. */
void run_pool_claim(void *addr, size_t bytes);
/* Of whatever range of mapped pages; what is not of the pool is left alone. */
void run_pool_unmap(void *addr, size_t bytes);
/*
 * How many bytes from addr on, of a range in whole pages, are alike: mapped, or not.  What is not
 * of the pool is mapped.
 */
size_t run_pool_span(const void *addr, size_t bytes, bool *mapped_p);
/* Lengthen a mapping in place; false: no room. */
bool run_pool_extend(void *addr, size_t old, size_t bytes);

/* bytes as whole pages. */
static inline size_t run_pages(size_t bytes)
{
	return (bytes + 4095) & ~(size_t)4095;
}

/* Of maps.c: addr is in fabric memory, the caller is the program, and the runtime runs. */
bool run_concerns(const void *addr, const void *caller);
/* Anew over what is in fabric memory: zeros, with that protection. As mmap(2). */
void *run_map_over(void *addr, size_t bytes, int prot, int flags);
/*
 * The least protection of all pages in the range. *mixed_p: some are writable and some are not.
 */
int run_protection(const char *p, size_t bytes, bool *mixed_p);
/* Change it, of mapped pages. 0 or a negative error. */
int run_protect(char *addr, size_t bytes, int prot);
/* Mapped pages become zeros, whatever their protection, which stays. */
void run_zeros(char *addr, size_t bytes);

/*
 * Whole chunks that will be PROT_NONE: what is brought or guessed unasked spares them from now on.
 * false: no memory, they stay as they are.
 */
bool run_close(const char *addr, size_t bytes);
/*
 * The range gets another protection, or goes.  Chunks that lie in it in part become readable
 * before, if they were closed; the range itself is as it was.
 */
void run_open(const char *addr, size_t bytes);

/* addr lies in a chunk of the pool none of whose pages is mapped. AS. */
bool run_pool_holds_nothing(const void *addr);
/* soda_fill_allowed. AS. */
bool run_may_fill(uint32_t id);

/* The bytes of [addr, addr + bytes) that are in one region; 0: none. */
size_t run_piece(const void *addr, size_t bytes);

/* A piece of local memory, aligned to pages, of at least RUN_BOUNCE bytes. NULL: none. */
enum { RUN_BOUNCE = 256 << 10 };
void *run_bounce_get(size_t bytes, size_t *bytes_p);
void run_bounce_put(void *p, size_t bytes);

/*
 * Keep [addr, addr + bytes) resident and open for stores, so that the kernel can use it by itself;
 * as often unheld as held.  All that is held at once is a tenth of the page buffer: beyond that one
 * line that names `what`, and abort().  Asynchronous signals' handlers must not call them.
 */
void run_hold(void *addr, size_t bytes, const char *what);
void run_unhold(void *addr, size_t bytes);
/* It is fabric memory, and the kernel's own faults are nobody's. */
bool run_hold_needed(const void *p);

/* Free what the C library has allocated for the program. */
void run_free(void *p);
/* fwrite and write for the program, whatever memory it is. */
size_t run_fwrite(const void *p, size_t item, size_t n, FILE *f);
ssize_t run_write(int fd, const void *p, size_t n);
/* pread or, with `out`, pwrite for the program; at < 0: read or write. */
ssize_t run_transfer(int fd, void *p, size_t n, off_t at, bool out);

/* --stats: before the runtime runs, and once it does. */
void run_report_start(void);
void run_report_begin(void);
/* A block or mapping from that call. */
void run_report_site(const void *caller, const void *p, size_t bytes);
void run_report(void);
/* "function+0x12 (file)", or what there is of it. */
void run_symbol(const void *address, char *text, size_t bytes);

/*
 * become.c: the program starts, with the environment as `soda run` has made it; and it ends.
 * children: those keep that environment.
 */
void run_become_start(bool children);
void run_become_end(void);

/* --report: the memory for samples, if that descriptor is one; then from now on; and one now. */
void run_samples_open(int fd);
void run_samples_start(void);
/*
 * What the program becomes finds them, with this in its environment; NULL: there are none.  And
 * not any more: it has not become another one.
 */
char *run_samples_keep(void);
void run_samples_keep_not(void);
void run_samples_take(void);

#endif
