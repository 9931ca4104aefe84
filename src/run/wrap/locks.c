/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that wait in the kernel at a word of memory (a futex): mutexes, conditions, read-write
 * locks, barriers, semaphores, of POSIX and of C11, and futex by syscall(2).  The C library ends
 * the process when the kernel cannot read the word; so the word's chunk is held while a thread may
 * wait.  Calls that only wake have no wrapper: either a waiter holds the chunk, or there is no
 * thread to wake.
 */
#include "run/core/run.h"
#include "run/wrap/near.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static bool concerns(const void *p, const void *caller)
{
	return run_hold_needed(p) && !run_is_ours(caller);
}

/*
 * Defines the wrapper of a call that may wait for `object`.  quick: an expression that tries
 * without waiting; only if that is EBUSY the object is held and the call made.
 */
#define WAITS(type, name, object, quick, PARAMS, ARGS)                                             \
	static int(*next_##name) PARAMS;                                                           \
	RUN_API int name PARAMS                                                                    \
	{                                                                                          \
		int ret;                                                                           \
                                                                                                   \
		RUN_NEXT(next_##name, #name);                                                      \
		if (!concerns(object, RUN_CALLER))                                                 \
			return next_##name ARGS;                                                   \
		ret = quick;                                                                       \
		if (ret != EBUSY)                                                                  \
			return ret;                                                                \
		run_hold(object, sizeof(type), #name);                                             \
		ret = next_##name ARGS;                                                            \
		run_unhold(object, sizeof(type));                                                  \
		return ret;                                                                        \
	}

#define TIME const struct timespec *restrict until

WAITS(pthread_mutex_t, pthread_mutex_lock, m, pthread_mutex_trylock(m), (pthread_mutex_t * m), (m))
WAITS(pthread_mutex_t, pthread_mutex_timedlock, m, pthread_mutex_trylock(m),
      (pthread_mutex_t *restrict m, TIME), (m, until))
WAITS(pthread_mutex_t, pthread_mutex_clocklock, m, pthread_mutex_trylock(m),
      (pthread_mutex_t *restrict m, clockid_t clock, TIME), (m, clock, until))
WAITS(pthread_rwlock_t, pthread_rwlock_rdlock, l, pthread_rwlock_tryrdlock(l),
      (pthread_rwlock_t * l), (l))
WAITS(pthread_rwlock_t, pthread_rwlock_timedrdlock, l, pthread_rwlock_tryrdlock(l),
      (pthread_rwlock_t *restrict l, TIME), (l, until))
WAITS(pthread_rwlock_t, pthread_rwlock_clockrdlock, l, pthread_rwlock_tryrdlock(l),
      (pthread_rwlock_t *restrict l, clockid_t clock, TIME), (l, clock, until))
WAITS(pthread_rwlock_t, pthread_rwlock_wrlock, l, pthread_rwlock_trywrlock(l),
      (pthread_rwlock_t * l), (l))
WAITS(pthread_rwlock_t, pthread_rwlock_timedwrlock, l, pthread_rwlock_trywrlock(l),
      (pthread_rwlock_t *restrict l, TIME), (l, until))
WAITS(pthread_rwlock_t, pthread_rwlock_clockwrlock, l, pthread_rwlock_trywrlock(l),
      (pthread_rwlock_t *restrict l, clockid_t clock, TIME), (l, clock, until))
/* these may have to wait for threads that an earlier call has woken */
WAITS(pthread_cond_t, pthread_cond_signal, c, EBUSY, (pthread_cond_t * c), (c))
WAITS(pthread_cond_t, pthread_cond_broadcast, c, EBUSY, (pthread_cond_t * c), (c))
WAITS(pthread_cond_t, pthread_cond_destroy, c, EBUSY, (pthread_cond_t * c), (c))
WAITS(pthread_barrier_t, pthread_barrier_wait, b, EBUSY, (pthread_barrier_t * b), (b))
WAITS(pthread_barrier_t, pthread_barrier_destroy, b, EBUSY, (pthread_barrier_t * b), (b))
WAITS(mtx_t, mtx_lock, m, EBUSY, (mtx_t * m), (m))
WAITS(mtx_t, mtx_timedlock, m, EBUSY, (mtx_t *restrict m, TIME), (m, until))
WAITS(cnd_t, cnd_signal, c, EBUSY, (cnd_t * c), (c))
WAITS(cnd_t, cnd_broadcast, c, EBUSY, (cnd_t * c), (c))

/* The objects that a call holds, and lets go of also when the thread is cancelled. */
struct waiting {
	void *object, *second;
	size_t bytes, second_bytes;
};

static void let_go(void *arg)
{
	struct waiting *h = arg;

	if (run_hold_needed(h->object))
		run_unhold(h->object, h->bytes);
	if (h->second && run_hold_needed(h->second))
		run_unhold(h->second, h->second_bytes);
}

static void take(struct waiting *h, const char *what)
{
	if (run_hold_needed(h->object))
		run_hold(h->object, h->bytes, what);
	if (h->second && run_hold_needed(h->second))
		run_hold(h->second, h->second_bytes, what);
}

/*
 * For calls that wait at a condition with its mutex, either of which may be local; a cancellation
 * point.
 */
#define WAITS_COND(cond, mutex, name, PARAMS, ARGS)                                                \
	static int(*next_##name) PARAMS;                                                           \
	RUN_API int name PARAMS                                                                    \
	{                                                                                          \
		struct waiting h = { c, m, sizeof(cond), sizeof(mutex) };                          \
		int ret;                                                                           \
                                                                                                   \
		RUN_NEXT(next_##name, #name);                                                      \
		if (!concerns(c, RUN_CALLER) && !concerns(m, RUN_CALLER))                          \
			return next_##name ARGS;                                                   \
		take(&h, #name);                                                                   \
		pthread_cleanup_push(let_go, &h);                                                  \
		ret = next_##name ARGS;                                                            \
		pthread_cleanup_pop(1);                                                            \
		return ret;                                                                        \
	}

WAITS_COND(pthread_cond_t, pthread_mutex_t, pthread_cond_wait,
	   (pthread_cond_t *restrict c, pthread_mutex_t *restrict m), (c, m))
WAITS_COND(pthread_cond_t, pthread_mutex_t, pthread_cond_timedwait,
	   (pthread_cond_t *restrict c, pthread_mutex_t *restrict m, TIME), (c, m, until))
WAITS_COND(pthread_cond_t, pthread_mutex_t, pthread_cond_clockwait,
	   (pthread_cond_t *restrict c, pthread_mutex_t *restrict m, clockid_t clock, TIME),
	   (c, m, clock, until))
WAITS_COND(cnd_t, mtx_t, cnd_wait, (cnd_t * c, mtx_t *m), (c, m))
WAITS_COND(cnd_t, mtx_t, cnd_timedwait, (cnd_t *restrict c, mtx_t *restrict m, TIME), (c, m, until))

static int try_semaphore(sem_t *s)
{
	int saved = errno, ret;

	pthread_testcancel();
	ret = sem_trywait(s);
	if (ret)
		errno = saved;
	return ret;
}

#define WAITS_SEM(name, PARAMS, ARGS)                                                              \
	static int(*next_##name) PARAMS;                                                           \
	RUN_API int name PARAMS                                                                    \
	{                                                                                          \
		struct waiting h = { s, NULL, sizeof(*s), 0 };                                     \
		int ret;                                                                           \
                                                                                                   \
		RUN_NEXT(next_##name, #name);                                                      \
		if (!concerns(s, RUN_CALLER))                                                      \
			return next_##name ARGS;                                                   \
		if (!try_semaphore(s))                                                             \
			return 0;                                                                  \
		take(&h, #name);                                                                   \
		pthread_cleanup_push(let_go, &h);                                                  \
		ret = next_##name ARGS;                                                            \
		pthread_cleanup_pop(1);                                                            \
		return ret;                                                                        \
	}

WAITS_SEM(sem_wait, (sem_t * s), (s))
WAITS_SEM(sem_timedwait, (sem_t *restrict s, TIME), (s, until))
WAITS_SEM(sem_clockwait, (sem_t *restrict s, clockid_t clock, TIME), (s, clock, until))

static int (*next_once)(pthread_once_t *, void (*)(void));

RUN_API int pthread_once(pthread_once_t *once, void (*fn)(void))
{
	struct waiting h = { once, NULL, sizeof(*once), 0 };
	int ret;

	RUN_NEXT(next_once, "pthread_once");
	if (!concerns(once, RUN_CALLER))
		return next_once(once, fn);
	take(&h, "pthread_once");
	pthread_cleanup_push(let_go, &h); /* fn may end the thread, or throw */
	ret = next_once(once, fn);
	pthread_cleanup_pop(1);
	return ret;
}

/* For calls that other languages and libraries make themselves: futexes, and those of rings.h. */
static long (*next_syscall)(long, ...);

RUN_API long syscall(long number, ...)
{
	long a[6], ret;
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++) /* as many as a system call can have, used or not */
		a[i] = va_arg(ap, long);
	va_end(ap);
	RUN_NEXT(next_syscall, "syscall");
	if (!run_is_ours(RUN_CALLER) && run_ring_call(number, a, RUN_CALLER, &ret))
		return ret;
	if (number != SYS_futex || !concerns((void *)a[0], RUN_CALLER))
		return next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	run_hold((void *)a[0], sizeof(uint32_t), "futex");
	ret = next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	run_unhold((void *)a[0], sizeof(uint32_t));
	return ret;
}
