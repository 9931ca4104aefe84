/* SPDX-License-Identifier: BSD-3-Clause */
/* A mutex on a futex, after Drepper, "Futexes Are Tricky" (2011), mutex 3. */
#include "base/lock.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"

enum { SPINS = 100 };

static __thread uint32_t held_ranks __attribute__((tls_model("initial-exec")));

static void check_order(const struct soda_lock *lock)
{
#ifdef SODA_DEBUG
	assert(lock->rank && "lock used before soda_lock_init");
	assert((held_ranks >> lock->rank) == 0 && "lock order violated");
#endif
}

static void note_held(const struct soda_lock *lock)
{
	held_ranks |= 1u << lock->rank;
}

static void note_released(const struct soda_lock *lock)
{
	held_ranks &= ~(1u << lock->rank);
}

uint32_t soda_lock_mine(void)
{
	return held_ranks;
}

uint64_t soda_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int futex_wait(_Atomic uint32_t *word, int op, uint32_t expected, int64_t timeout_ns)
{
	struct timespec ts = { .tv_sec = timeout_ns / 1000000000,
			       .tv_nsec = timeout_ns % 1000000000 };
	int saved = errno;
	long ret = syscall(SYS_futex, word, op, expected, timeout_ns < 0 ? NULL : &ts, NULL, 0);
	int err = ret < 0 ? errno : 0;

	errno = saved;
	return err == EAGAIN || err == ETIMEDOUT ? -err : 0;
}

static void futex_wake(_Atomic uint32_t *word, int op, int count)
{
	int saved = errno;

	syscall(SYS_futex, word, op, count, NULL, NULL, 0);
	errno = saved;
}

int soda_futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
	return futex_wait(word, FUTEX_WAIT_PRIVATE, expected, timeout_ns);
}

void soda_futex_wake(_Atomic uint32_t *word, int count)
{
	futex_wake(word, FUTEX_WAKE_PRIVATE, count);
}

int soda_futex_wait_shared(_Atomic uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
	return futex_wait(word, FUTEX_WAIT, expected, timeout_ns);
}

void soda_futex_wake_shared(_Atomic uint32_t *word, int count)
{
	futex_wake(word, FUTEX_WAKE, count);
}

/*
 * api_lock is held across calls to servers, whose poll() and recvmsg() are points of cancellation:
 * a thread that was cancelled there would keep it for ever.  Guarded by api_lock.
 */
static int cancel_before;

static void took(struct soda_lock *lock)
{
	note_held(lock);
	if (lock->rank == SODA_RANK_API)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_before);
}

void soda_lock_init(struct soda_lock *lock, enum soda_lock_rank rank)
{
	atomic_init(&lock->word, 0);
	lock->rank = rank;
}

static bool take_free(struct soda_lock *lock)
{
	uint32_t expected = 0;

	/* acquire: pairs with the release in soda_lock_release */
	return atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1,
						       memory_order_acquire, memory_order_relaxed);
}

bool soda_lock_try(struct soda_lock *lock)
{
	if (!take_free(lock))
		return false;
	took(lock);
	return true;
}

bool soda_lock_acquire_until(struct soda_lock *lock, uint64_t deadline_ns)
{
	check_order(lock);
	for (int i = 0; i < SPINS; i++) {
		if (take_free(lock)) {
			took(lock);
			return true;
		}
		soda_cpu_relax();
	}
	while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0) {
		int64_t left = -1;

		if (deadline_ns != UINT64_MAX) {
			uint64_t now = soda_now_ns();

			if (now >= deadline_ns)
				return false;
			left = (int64_t)(deadline_ns - now);
		}
		soda_futex_wait(&lock->word, 2, left);
	}
	took(lock);
	return true;
}

void soda_lock_acquire(struct soda_lock *lock)
{
	soda_lock_acquire_until(lock, UINT64_MAX);
}

void soda_lock_release(struct soda_lock *lock)
{
	int cancel = lock->rank == SODA_RANK_API ? cancel_before : PTHREAD_CANCEL_DISABLE;

	note_released(lock);
	if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
		soda_futex_wake(&lock->word, 1);
	if (cancel != PTHREAD_CANCEL_DISABLE)
		pthread_setcancelstate(cancel, NULL);
}
