/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads that run one at a time, on a clock of their own.
 *
 * A thread of the simulated programs is a fiber: a stack of its own inside of one real
 * thread.  It runs until it comes to a point: every atomic operation (the simulated code is
 * compiled for ThreadSanitizer, whose calls points.c answers), every lock, wait, system
 * call, message and page operation.  There the seed decides who goes on.  Time passes by
 * little steps at points, and by leaps when everybody sleeps.
 *
 * The programs' own thread-local variables are swapped with the fibers; errno too.
 */
#ifndef SODA_SIM_FIBERS_H
#define SODA_SIM_FIBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who a fiber, a connection or a descriptor belongs to: what ends, and stops, together. */
enum { SIM_SERVERS = 7, SIM_HOSTS = 4 };
/*
 * The servers of a pool have the numbers from SIM_SERVER on; programs beside the first, which
 * several/ has, those from SIM_HOST2 on.
 */
enum sim_process {
	SIM_WORLD,
	SIM_HOST,
	SIM_AGENT,
	SIM_SERVER,
	SIM_HOST2 = SIM_SERVER + SIM_SERVERS,
	SIM_PROCESSES = SIM_HOST2 + SIM_HOSTS - 1
};

/* It has a host agent. */
static inline bool sim_is_host(enum sim_process p)
{
	return p == SIM_HOST || p >= SIM_HOST2;
}

enum { SIM_STACK = 256 << 10, SIM_FIBERS = 320 };

#define SIM_NEVER UINT64_MAX
#define SIM_US 1000ull
#define SIM_MS 1000000ull
#define SIM_S 1000000000ull

struct sim_fiber;

/* Stacks, for all seeds that follow in children. Once. */
void sim_prepare(void);
/* Every decision follows from it. */
void sim_seed(uint64_t seed);
/*
 * Run `main` and what it starts to the end of `main`, in this process. slow: points between
 * two decisions, on average; stalls: of 10,000 decisions, how many put the running fiber to
 * sleep for a while, as a busy machine would.
 */
void sim_run(unsigned slow, unsigned stalls, void (*main)(void *), void *arg);

/* The calling fiber's process, and another one's for what follows (only the world changes). */
enum sim_process sim_process(void);
struct sim_fiber *sim_self(void);
int sim_id(void);

/* Threads. NULL: no more of them. */
struct sim_fiber *sim_spawn(enum sim_process p, const char *name, void *(*run)(void *), void *arg);
void sim_rename(struct sim_fiber *f, const char *name);
void *sim_join(struct sim_fiber *f);
/* Nobody joins it: its place is free when it ends. */
void sim_detach(struct sim_fiber *f);
/* Whether the thread with this id (sim_id) lives. */
bool sim_alive(int id);

/* A place where another thread may go on. */
void sim_yield(void);
extern int64_t sim_countdown;
static inline void sim_point(void)
{
	if (--sim_countdown < 0)
		sim_yield();
}

/* No point is one until it is over. */
void sim_hold(bool held);

uint64_t sim_now(void);
/* A little time passes: a clock was read, bytes were copied. */
void sim_spend(uint64_t ns);
/* Until a wake of the key (or for no reason, sometimes); false: the deadline came first. */
bool sim_wait(const void *key, uint64_t deadline_ns, const char *what);
/* Wake up to n that wait for the key; which ones the seed decides. */
void sim_wake(const void *key, unsigned n);
void sim_sleep(uint64_t ns, const char *what);
/* Call fn(arg) then, in no fiber's place: it must not wait. */
void sim_at(uint64_t when_ns, void (*fn)(void *), void *arg);

/* SIGSTOP and SIGCONT of a process, and kill -9: its fibers are never heard of again. */
void sim_stop(enum sim_process p, bool stopped);
bool sim_stopped(enum sim_process p);
void sim_kill(enum sim_process p);

/* Decisions about what happens, apart from those of who goes on. */
uint64_t sim_random(void);
static inline uint64_t sim_below(uint64_t n)
{
	return n ? sim_random() % n : 0;
}
static inline uint64_t sim_between(uint64_t low, uint64_t high)
{
	return low + sim_below(high - low + 1);
}
static inline bool sim_chance(unsigned percent)
{
	return sim_below(100) < percent;
}

/* A line of what happens: nothing, or kept and printed where the seed fails, or printed at once. */
enum sim_notes { SIM_NOTES_NONE, SIM_NOTES_KEPT, SIM_NOTES_PRINTED };
extern enum sim_notes sim_notes;
void sim_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "file.c:12" of a return address; takes long. */
const char *sim_place(const void *address);
/* An atomic variable whose changes are noted; NULL: none. */
extern const volatile void *sim_watched;
/* The seed fails. Says what, prints the last lines and who waits for what, ends the process. */
_Noreturn void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Called by sim_fail, to print more; or NULL. */
extern void (*sim_at_failure)(void);
/* Nobody has to sleep past this time, else it is a hang. */
void sim_limit(uint64_t until_ns);
uint64_t sim_decisions(void);

/*
 * seams.c: the functions of the C library that the simulated programs call and that would wait,
 * tell the time, or touch what several processes share.  seams.syms gives each program's calls of
 * them to the functions of the same name with sim_ before it.
 */

/* Descriptors of the simulation: numbers that the kernel does not give. */
enum { SIM_FD = 1 << 20 };

/* ready: what of poll(2)'s events there is now. */
int sim_fd_new(enum sim_process p, short (*ready)(void *arg), void *arg);
void sim_fd_close(int fd);
/* Something may be ready that was not. */
void sim_fd_changed(void);
/* The process is gone, and so are its descriptors. */
void sim_fd_kill(enum sim_process p);

/* Of 1,000 allocations of the process, and of 1,000 descriptors that it wants, how many fail. */
void sim_starve(enum sim_process p, unsigned memory, unsigned descriptors);
bool sim_lacks_descriptor(void);
bool sim_lacks_memory(void);

#endif
