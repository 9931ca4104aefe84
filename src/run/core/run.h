/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libsoda-run.so, which `soda run` loads into a program: libsoda, and around it *wrappers* of
 * the C library's functions that allocate memory, change mappings, and hand memory
 * to the kernel.  The program calls the wrappers; one whose arguments are not in fabric memory
 * calls the C library's function, and so does each that this library itself has called.
 *
 *   real.c     finds the wrapped functions; settings, start and end
 *   heap.c     malloc and its family: large blocks from soda_malloc's heap
 *   pool.c     pages for mappings, cut from few regions
 *   maps.c     mmap and what is done to mappings
 *   remap.c    mremap
 *   held.c     what stays resident for io_uring
 *   reserved.c heaps that stay local, of which it says so
 *   closed.c   chunks that mprotect() has made inaccessible
 *   bounce.c   local memory that stands in for fabric memory in a system call
 *   hold.c     chunks that stay resident for the length of a call
 *   calls.c    read, write and the like
 *   descriptors.c  close, dup2 and the like, which spare the runtime's descriptors
 *   sockets.c  recv, send and the like
 *   ioctl.c    ioctl
 *   stacks.c   sigaltstack, makecontext
 *   near.c     local copies of small arguments, for the next three
 *   arguments.c  stat, select and what else takes a structure
 *   addresses.c  connect, accept and the like
 *   paths.c    open, rename, posix_spawn and what else takes a name
 *   become.c   execve and its family: the program that this one becomes has fabric memory, too
 *   threads.c  affinity, scheduling, names
 *   forms.c    fortified forms, and what reaches the kernel inside of the C library
 *   stacks.c   sigaltstack, swapcontext and the like
 *   messages.c  mq_send, msgsnd, semop and the like
 *   aio.c      aio_read and the like
 *   rings.c    io_submit and its like; io_uring
 *   loader.c   dlopen
 *   locks.c    pthread_mutex_lock and others that wait at a futex
 *   print.c    printf and puts
 *   polls.c    poll, epoll_wait and the like
 *   stdio.c    fread, fwrite and the like, from which the C library calls no wrapper of calls.c
 *   local.c    --threshold auto: where small blocks go when local memory is full
 *   share.c    the page buffer that all processes of one `soda run` share, and what each of them
 * did report.c   --stats samples.c  --report symbols.c  the names of callers
 *
 * AS: async-signal-safe.
 */
#ifndef SODA_RUN_H
#define SODA_RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "host_agent/core/agent.h"

#define RUN_API __attribute__((visibility("default")))
/* Declares a second name of a function, as of those with off64_t, which is the same as off_t. */
#define RUN_SAME_AS(name) __attribute__((alias(#name)))

/* --io-uring: the answer to a program that asks for a ring. */
enum run_rings { RUN_RINGS_REFUSE, RUN_RINGS_ALLOW, RUN_RINGS_HOLD };

/* From the environment that `soda run` makes; constant after the start. */
struct run_settings {
	/* blocks and mappings of that many bytes or more go to fabric memory; local.c lowers it */
	_Atomic size_t threshold;
	bool stats; /* --stats */
	bool quiet; /* --quiet */
	enum run_rings rings;
	int stats_fd; /* standard error, for the end of the process; -1: none */
};

extern struct run_settings run_settings;

/* Whether a wrapper was called from this library; caller: RUN_CALLER. */
bool run_is_ours(const void *caller);
/*
 * Whether it was called from the C library, which passes memory that it allocates to the kernel
 * itself.
 */
bool run_is_libc(const void *caller);
/* Not 0: the calling thread is inside the runtime: its blocks come from the C library's heap. */
extern __thread int run_inside __attribute__((tls_model("initial-exec")));

/* Not 0: the calling thread's blocks are to be local, from the program's allocator. */
extern __thread int run_local __attribute__((tls_model("initial-exec")));

/*
 * The program has a malloc(), realloc() or free() of its own, in the executable or in a library
 * that comes before this one: no block is in fabric memory, because that free() could get it.
 * Constant after the start.
 */
extern bool run_others_heap;

/*
 * Start the runtime if it was not.  True: it runs.  False: this is the child of a fork, or the
 * process is ending.  If it cannot start, logs why and ends the process.
 */
bool run_ready(void);

static inline bool run_fam(const void *p)
{
	return soda_agent_owns(p);
}

/* In a wrapper: where it was called from. */
#define RUN_CALLER __builtin_return_address(0)
/* p is in fabric memory, and comes from the program, not from this library. */
static inline bool run_handed(const void *p, const void *caller)
{
	return run_fam(p) && !run_is_ours(caller);
}

/* Ends a program compiled with _FORTIFY_SOURCE: its buffer is too small for what it asks for. */
_Noreturn void __chk_fail(void);

/* The function of that name that a call would find without this library. NULL: there is none. */
void *run_next(const char *name);
/* The one that the program's calls find, unless that is ours. */
void *run_found(const char *name);
/* The same as run_next(), kept in *slot. */
static inline void *run_resolved(void **slot, const char *name)
{
	if (!*slot)
		*slot = run_next(name);
	return *slot;
}
/* The same, as a function of fn's type, kept in fn. */
#define RUN_NEXT(fn, name) ((__typeof__(fn))run_resolved((void **)&(fn), (name)))

/*
 * The mask for a call that waits with it, without the signals that faults are: a handler that runs
 * in the wait may touch fabric memory.  In room; NULL stays NULL.
 */
static inline const sigset_t *run_open_mask(const sigset_t *given, sigset_t *room)
{
	if (!given)
		return NULL;
	*room = *given;
	sigdelset(room, SIGBUS);
	sigdelset(room, SIGSEGV);
	return room;
}

/* Whether addr is in a pool, mapped or not. AS. */
bool run_pool_has(const void *addr);
/* Pages for a mapping: zeros, in chunks of their own; NULL: no memory. */
void *run_pool_map(size_t bytes);
/* Pages of the pool count as mapped from now on, whether they did before or not. */
void run_pool_claim(void *addr, size_t bytes);
/*
 * Chunks that were discarded while pages of them are mapped, of which the server still has a copy:
 * when they are unmapped it is told.  n may be 0; the first chunk may be no pool's.
 */
void run_pool_discarded(uint32_t first, uint32_t n);
/* Unmap the range's pages that are the pool's; it stops at an address that is not. */
void run_pool_unmap(void *addr, size_t bytes);
/*
 * *mapped_p: whether the page at addr is mapped; returns for how many bytes of the range, of whole
 * pages, the same is true.  Pages that are not the pool's count as mapped.
 */
size_t run_pool_span(const void *addr, size_t bytes, bool *mapped_p);
/* Lengthen a mapping in place; false: no room. */
bool run_pool_extend(void *addr, size_t old, size_t bytes);

/* bytes as whole pages. */
static inline size_t run_pages(size_t bytes)
{
	return (bytes + 4095) & ~(size_t)4095;
}

/*
 * maps.c: whether addr is in fabric memory, the caller is not this library, and the runtime runs.
 */
bool run_concerns(const void *addr, const void *caller);
/* Map zeros with that protection over pages in fabric memory. As mmap(2) with MAP_FIXED. */
void *run_map_over(void *addr, size_t bytes, int prot, int flags);
/*
 * The protection that all pages in the range have at least. *mixed_p: some are writable and some
 * not.
 */
int run_protection(const char *p, size_t bytes, bool *mixed_p);
/* Change the protection of mapped pages. 0 or a negative error. */
int run_protect(char *addr, size_t bytes, int prot);
/* Make mapped pages zeros, whatever their protection, which stays. */
void run_zeros(char *addr, size_t bytes);

/*
 * Mark whole chunks, which the caller will make PROT_NONE, as closed: from now on the runtime
 * neither fetches them ahead nor fills them.  false: no memory, and they are not marked.
 */
bool run_close(const char *addr, size_t bytes);
/*
 * The range is about to get another protection, or to be unmapped: its chunks count as closed no
 * more, and those that lie in it only in part become readable, if they were closed.
 */
void run_open(const char *addr, size_t bytes);

/*
 * Make mapped pages, of chunks that are not closed, resident for good, and open for stores as far
 * as they are writable. 0, or a negative error: a page cannot be had.
 */
int run_pin(char *addr, size_t bytes);

/*
 * held.c: the program has asked for a ring, and --io-uring=hold: all of its fabric memory is
 * resident now.  False: it cannot be, which the log says.
 */
bool run_rings_begin(void);
/* Whether it has begun, and memory that the program gets is to be local. */
bool run_rings_held(void);
/*
 * Pages of the range have become mapped, zeros, or accessible: where it has begun, they are
 * resident after this call.
 */
void run_rings_keep(void *addr, size_t bytes);

/*
 * reserved.c: the program has made a local mapping, or has changed the protection of local memory.
 */
void run_reserved_map(const void *p, size_t bytes, int prot, int flags);
void run_reserved_open(const void *p, size_t bytes, int prot);

/* Whether addr lies in a chunk of the pool of which no page is mapped. AS. */
bool run_pool_holds_nothing(const void *addr);
/* For soda_fill_allowed (host_agent/pages/install.h). AS. */
bool run_may_fill(uint32_t id);

/* How many bytes from addr on, at most `bytes`, are in one region; 0: addr is in none. */
size_t run_piece(const void *addr, size_t bytes);

/* A piece of local memory, aligned to pages, of at least RUN_BOUNCE bytes. NULL: none. */
enum { RUN_BOUNCE = 256 << 10 };
void *run_bounce_get(size_t bytes, size_t *bytes_p);
void run_bounce_put(void *p, size_t bytes);

/*
 * Keep [addr, addr + bytes) resident and open for stores, so that the kernel can use it without a
 * fault; each run_hold() needs a run_unhold().  At most a tenth of the page buffer can be held at
 * once: beyond that an error is logged, which names `what`, and abort() called.  Not for signal
 * handlers.
 */
void run_hold(void *addr, size_t bytes, const char *what);
void run_unhold(void *addr, size_t bytes);
/* Open pages of pinned chunks for stores, likewise; the program may store to all of them. */
void run_open_pinned(char *addr, size_t bytes);
/* Whether p is fabric memory, and nobody serves faults that the kernel takes on it. */
bool run_hold_needed(const void *p);

/* Free a block that the C library has allocated for the program. */
void run_free(void *p);
/* fwrite and write for the program, of any memory. */
size_t run_fwrite(const void *p, size_t item, size_t n, FILE *f);
ssize_t run_write(int fd, const void *p, size_t n);
/* pread or, with `out`, pwrite for the program; at < 0: read or write. */
ssize_t run_transfer(int fd, void *p, size_t n, off_t at, bool out);
/* preadv2 or, with `out`, pwritev2 for the program, through local memory. */
struct iovec;
ssize_t run_transfer_vector(int fd, const struct iovec *v, int n, off_t at, int flags, bool out);

/* --stats: before the runtime runs, and once it does. */
void run_report_start(void);
void run_report_begin(void);
/* Note a block or mapping that the program got from its call at `caller`. */
void run_report_site(const void *caller, const void *p, size_t bytes);
/* Print the statistics, or leave them to `soda`, where it prints those of all processes. */
void run_report(void);
/* How long the program runs by now; *cpu_ns_p: the processor time of its threads. AS. */
uint64_t run_report_lived_ns(uint64_t *cpu_ns_p);
/* Most fabric memory reserved at once, of what run_report_site() saw and of what is now. */
uint64_t run_report_peak(void);

/*
 * local.c: --threshold auto, where all processes may have that many bytes of local memory; before
 * there are threads.  asked: the program is about to get so many bytes of local memory.
 */
void run_local_start(uint64_t bytes);
void run_local_asked(size_t bytes);
/*
 * Anonymous memory of this process that is resident now, without the page buffer, which has a limit
 * of its own; -1: /proc does not tell.
 */
int64_t run_local_bytes(void);

/*
 * Who the program's children are: they get no fabric memory, nor does what it becomes by exec; that
 * gets it; children do, too.
 */
enum run_children { RUN_CHILDREN_NONE, RUN_CHILDREN_EXEC, RUN_CHILDREN_ALL };

/*
 * share.c: the program starts, and is one of those that share that memory.  0 or a negative error:
 * it has none of it.
 */
int run_share_open(const char *name);
/* The runtime runs: start the thread that gives to others what they need more. */
void run_share_start(void);
/* join.c: likewise, the thread that looks for servers that are new in the pool, where it has any.
 */
struct soda_tree;
void run_join_start(struct soda_tree *tree);
/*
 * Where `soda` prints the statistics of all processes, write those of this one down for it: the
 * numbers alone (AS), or, at the end, `told`, too.  false: this process prints its own.
 */
bool run_share_note(const char *told);
/* How many bytes all of them may have resident; 0: each process has a page buffer of its own. */
uint64_t run_share_budget(void);
/*
 * Note how much local memory this process has. Returns what all of them have; of those that have
 * ended it counts nothing.
 */
int64_t run_share_local(int64_t bytes);
/*
 * Whether a line about this program is the first one of all these processes, which may start it
 * often. Another one whose name hashes to the same bit counts as the same.
 */
bool run_share_first(const char *program);
/*
 * The call of the program's that led to the one at `caller`, where that is in a language's own
 * library, as operator new's is; else `caller`.  It may allocate, by the calling thread.
 */
const void *run_beyond_runtime(const void *caller);
/*
 * Write "function+0x12 (file)", or as much of that as is known; a C++ function as in its source,
 * where the program has the C++ library.
 */
void run_symbol(const void *address, char *text, size_t bytes);

/*
 * become.c: start: the program starts, with the environment that `soda run` has made.  end: the
 * program ends.
 */
void run_become_start(enum run_children children);
void run_become_end(void);

/* --report: map the memory for samples, if the descriptor is one. */
void run_samples_open(int fd);
/* Start a thread that takes samples. */
void run_samples_start(void);
/*
 * Before an execve: make the descriptor of the samples stay open; returns the environment variable
 * that names it to the next program, or NULL: there are no samples.  keep_not: the execve has
 * failed.
 */
char *run_samples_keep(void);
void run_samples_keep_not(void);
/* Take a sample now. */
void run_samples_take(void);

#endif
