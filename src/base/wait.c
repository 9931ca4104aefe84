/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait.h"

#include <errno.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"

void soda_wait_begin(struct soda_wait *w, const char *what)
{
	w->what = what;
	w->began_ns = w->told_ns = soda_now_ns();
}

static struct timespec at(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u),
				  .tv_nsec = (long)(ns % 1000000000u) };
}

struct timespec soda_wait_until(uint32_t ms)
{
	return at(soda_now_ns() + ms * SODA_MS_NS);
}

static struct timespec next_line(const struct soda_wait *w)
{
	return at(w->told_ns + SODA_WAIT_TELL_MS * SODA_MS_NS);
}

static double seconds(const struct soda_wait *w)
{
	return (double)(soda_now_ns() - w->began_ns) / 1e9;
}

static void tell(struct soda_wait *w)
{
	w->told_ns = soda_now_ns();
	soda_log_warning("a thread has waited for %.0f s for %s, and goes on waiting", seconds(w),
			 w->what);
}

void soda_wait_turn(struct soda_wait *w, pthread_cond_t *cond, pthread_mutex_t *lock)
{
	struct timespec until = next_line(w);

	if (pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
		return;
	pthread_mutex_unlock(lock);
	tell(w);
	pthread_mutex_lock(lock);
}

void soda_wait_futex(struct soda_wait *w, _Atomic uint32_t *word, uint32_t seen)
{
	uint64_t now = soda_now_ns(), until = w->told_ns + SODA_WAIT_TELL_MS * SODA_MS_NS;

	if (soda_futex_wait(word, seen, now < until ? (int64_t)(until - now) : 0) == -ETIMEDOUT)
		tell(w);
}

void soda_wait_end(const struct soda_wait *w)
{
	if (w->told_ns != w->began_ns)
		soda_log_info("the wait for %s has ended after %.0f s", w->what, seconds(w));
}

/*
 * pthread_timedjoin_np() uses the wall clock, which here decides only when a line is logged.  The
 * thread sanitizer of gcc 12 does not know pthread_clockjoin_np(), and would report races between
 * the thread that has ended and this one.
 */
void soda_wait_join(pthread_t thread, const char *what)
{
	struct soda_wait w;
	struct timespec until;

	soda_wait_begin(&w, what);
	for (;;) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += SODA_WAIT_TELL_MS / 1000;
		if (pthread_timedjoin_np(thread, NULL, &until) != ETIMEDOUT)
			break;
		tell(&w);
	}
	soda_wait_end(&w);
}

void soda_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}
