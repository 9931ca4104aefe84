/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that wait for words in fabric memory. */
#include "run_victim.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <poll.h>
#include <sys/time.h>
#include <sys/select.h>
#include <sys/epoll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>

enum { THREADS = 4, CHUNK = 64 << 10 };

/* Everything that threads wait for, each in another chunk; some across an edge of two. */
struct world {
	_Alignas(CHUNK) pthread_mutex_t mutex;
	char gap[CHUNK - 64];
	pthread_cond_t cond; /* begins before an edge and ends behind it */
	_Alignas(CHUNK) pthread_rwlock_t rwlock;
	_Alignas(CHUNK) pthread_barrier_t barrier;
	_Alignas(CHUNK) sem_t full;
	_Alignas(CHUNK) sem_t empty;
	_Alignas(CHUNK) pthread_mutex_t inherits;
	_Alignas(CHUNK) pthread_mutex_t shared;
	_Alignas(CHUNK) pthread_once_t once;
	_Alignas(CHUNK) mtx_t mtx;
	_Alignas(CHUNK) cnd_t cnd;
	_Alignas(CHUNK) _Atomic uint32_t word;
	_Alignas(CHUNK) uint64_t turn, counted[5];
};

static struct world *w;
static unsigned char *ballast; /* more than the page buffer */

static void press(unsigned seed)
{
	fill(ballast, 12 * MIB, seed);
}

static void soon(struct timespec *t, long ms)
{
	clock_gettime(CLOCK_REALTIME, t);
	t->tv_nsec += ms * 1000000;
	t->tv_sec += t->tv_nsec / 1000000000;
	t->tv_nsec %= 1000000000;
}

static _Atomic int once_ran;

static void on_once(void)
{
	atomic_fetch_add(&once_ran, 1);
}

static void count_under_locks(unsigned i)
{
	struct timespec t;

	CHECK(!pthread_mutex_lock(&w->mutex));
	w->counted[0]++;
	CHECK(!pthread_mutex_unlock(&w->mutex));
	soon(&t, 100000);
	CHECK(!pthread_mutex_timedlock(&w->inherits, &t));
	w->counted[1]++;
	CHECK(!pthread_mutex_unlock(&w->inherits));
	CHECK(!pthread_mutex_lock(&w->shared));
	w->counted[2]++;
	CHECK(!pthread_mutex_unlock(&w->shared));
	if (i % 4) {
		CHECK(!pthread_rwlock_rdlock(&w->rwlock));
		CHECK(w->counted[3] <= w->counted[0]);
	} else {
		CHECK(!pthread_rwlock_wrlock(&w->rwlock));
		w->counted[3]++;
	}
	CHECK(!pthread_rwlock_unlock(&w->rwlock));
	CHECK(mtx_lock(&w->mtx) == thrd_success);
	w->counted[4]++;
	CHECK(mtx_unlock(&w->mtx) == thrd_success);
}

/* Each in turn, by a condition: what has waited checks what the one before it left. */
static void in_turn(uint64_t me, bool c11)
{
	if (c11)
		CHECK(mtx_lock(&w->mtx) == thrd_success);
	else
		CHECK(!pthread_mutex_lock(&w->mutex));
	while (w->turn % THREADS != me) {
		if (c11)
			CHECK(cnd_wait(&w->cnd, &w->mtx) == thrd_success);
		else
			CHECK(!pthread_cond_wait(&w->cond, &w->mutex));
	}
	w->turn++;
	if (c11) {
		CHECK(cnd_broadcast(&w->cnd) == thrd_success);
		CHECK(mtx_unlock(&w->mtx) == thrd_success);
	} else {
		CHECK(!pthread_cond_broadcast(&w->cond));
		CHECK(!pthread_mutex_unlock(&w->mutex));
	}
}

static void *wait_for_all(void *arg)
{
	uint64_t me = (uintptr_t)arg;

	for (unsigned i = 0; i < 40; i++) {
		CHECK(!pthread_once(&w->once, on_once));
		count_under_locks(i);
		pthread_barrier_wait(&w->barrier);
		in_turn(me, false);
		pthread_barrier_wait(&w->barrier);
		in_turn(me, true);
		if (me % 2) {
			CHECK(!sem_wait(&w->full));
			CHECK(!sem_post(&w->empty));
		} else {
			CHECK(!sem_post(&w->full));
			CHECK(!sem_wait(&w->empty));
		}
		if (me == i % THREADS && i % 8 == 0)
			press(i);
	}
	return NULL;
}

static void make_mutex(pthread_mutex_t *m, bool shared, bool inherits)
{
	pthread_mutexattr_t attr;

	CHECK(!pthread_mutexattr_init(&attr));
	if (shared)
		CHECK(!pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	if (inherits)
		CHECK(!pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
	CHECK(!pthread_mutex_init(m, &attr));
}

static void make_world(void)
{
	w = aligned_alloc(CHUNK, 2 * MIB); /* large enough for fabric memory */
	ballast = malloc(BIG);
	CHECK(w && ballast && in_fam(w) && in_fam(ballast));
	CHECK((uintptr_t)&w->cond / CHUNK != ((uintptr_t)(&w->cond + 1) - 1) / CHUNK);
	memset(w, 0, sizeof(*w));
	make_mutex(&w->mutex, false, false);
	make_mutex(&w->inherits, false, true);
	make_mutex(&w->shared, true, false);
	CHECK(!pthread_cond_init(&w->cond, NULL) && !pthread_rwlock_init(&w->rwlock, NULL));
	CHECK(!pthread_barrier_init(&w->barrier, NULL, THREADS));
	CHECK(!sem_init(&w->full, 0, 0) && !sem_init(&w->empty, 0, 0));
	CHECK(mtx_init(&w->mtx, mtx_plain) == thrd_success && cnd_init(&w->cnd) == thrd_success);
	w->once = (pthread_once_t)PTHREAD_ONCE_INIT;
}

static void check_times(void)
{
	struct timespec t;

	soon(&t, 1);
	CHECK(sem_timedwait(&w->full, &t) && errno == ETIMEDOUT);
	CHECK(!pthread_mutex_lock(&w->mutex));
	CHECK(pthread_cond_timedwait(&w->cond, &w->mutex, &t) == ETIMEDOUT);
	CHECK(pthread_mutex_timedlock(&w->mutex, &t) == ETIMEDOUT);
	CHECK(!pthread_mutex_unlock(&w->mutex));
	CHECK(!pthread_rwlock_wrlock(&w->rwlock));
	CHECK(pthread_rwlock_timedrdlock(&w->rwlock, &t) != 0);
	CHECK(!pthread_rwlock_unlock(&w->rwlock));
}

void case_waits(void)
{
	pthread_t t[THREADS];

	make_world();
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, wait_for_all, (void *)i));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(t[i], NULL));
	CHECK(w->counted[0] == 40 * THREADS && w->counted[1] == 40 * THREADS);
	CHECK(w->counted[2] == 40 * THREADS && w->counted[3] == 10 * THREADS);
	CHECK(w->counted[4] == 40 * THREADS && w->turn == 80 * THREADS && once_ran == 1);
	check_times();
	CHECK(!pthread_barrier_destroy(&w->barrier) && !pthread_cond_destroy(&w->cond));
	free(w);
	free(ballast);
}

/* A waiter of each kind, until its thread sleeps in the kernel. */
static _Atomic int tid;

static void *wait_semaphore(void *arg)
{
	tid = (int)syscall(SYS_gettid);
	CHECK(!sem_wait(arg));
	return NULL;
}

static void *wait_condition(void *arg)
{
	CHECK(!pthread_mutex_lock(&w->mutex));
	tid = (int)syscall(SYS_gettid);
	while (!w->turn)
		CHECK(!pthread_cond_wait(&w->cond, &w->mutex));
	CHECK(!pthread_mutex_unlock(&w->mutex));
	return NULL;
}

static void *wait_word(void *arg)
{
	tid = (int)syscall(SYS_gettid);
	while (!atomic_load(&w->word))
		CHECK(!syscall(SYS_futex, &w->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) ||
		      errno == EAGAIN || errno == EINTR);
	return NULL;
}

/* In a futex on that address, as /proc says. */
static void await_sleep(const void *from, const void *to)
{
	char path[64], line[256];
	unsigned long number = 0, addr = 0;

	for (int i = 0; i < 6000; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
		f = tid ? fopen(path, "r") : NULL;
		if (f && fgets(line, sizeof(line), f) &&
		    sscanf(line, "%lu %lx", &number, &addr) == 2 && number == SYS_futex &&
		    addr >= (uintptr_t)from && addr < (uintptr_t)to) {
			fclose(f);
			return;
		}
		if (f)
			fclose(f);
		usleep(10000);
	}
	CHECK(!"asleep in a futex");
}

static bool resident(void *p)
{
	unsigned char yes;

	CHECK(!mincore((void *)((uintptr_t)p / PAGE * PAGE), 1, &yes));
	return yes & 1;
}

static pthread_t waiter(void *(*fn)(void *), void *arg, const void *from, size_t bytes)
{
	pthread_t t;

	tid = 0;
	CHECK(!pthread_create(&t, NULL, fn, arg));
	await_sleep(from, (const char *)from + bytes);
	return t;
}

/* What somebody waits for stays, whatever else is used; and its thread is woken, or cancelled. */
void case_held(void)
{
	pthread_t a, b, c, d;

	make_world();
	a = waiter(wait_semaphore, &w->full, &w->full, sizeof(w->full));
	b = waiter(wait_condition, NULL, &w->cond, sizeof(w->cond));
	c = waiter(wait_word, NULL, &w->word, sizeof(w->word));
	d = waiter(wait_semaphore, &w->empty, &w->empty, sizeof(w->empty));
	for (unsigned i = 0; i < 4; i++) {
		fill(ballast, BIG, i);
		verify(ballast, BIG, i);
	}
	CHECK(resident(&w->full) && resident(&w->cond) && resident(&w->mutex));
	CHECK(resident((char *)(&w->cond + 1) - 1) && resident((void *)&w->word));
	CHECK(!pthread_cancel(d) && !pthread_join(d, NULL));
	CHECK(!sem_post(&w->full) && !pthread_join(a, NULL));
	CHECK(!pthread_mutex_lock(&w->mutex));
	w->turn = 1;
	CHECK(!pthread_cond_signal(&w->cond) && !pthread_mutex_unlock(&w->mutex));
	CHECK(!pthread_join(b, NULL));
	atomic_store(&w->word, 1);
	CHECK(syscall(SYS_futex, &w->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) >= 0);
	CHECK(!pthread_join(c, NULL));
	/* nobody waits: they go like any other */
	for (unsigned i = 0; i < 6; i++) {
		fill(ballast, BIG, i);
		verify(ballast, BIG, i);
	}
	CHECK(!resident(&w->full) || !resident(&w->empty) || !resident((void *)&w->word));
}

/* More of them than the page buffer has room for: the end, with one line. */
void case_too_many(void)
{
	enum { WAITERS = 80 }; /* more than a tenth of 8 MiB in chunks of 16 KiB */
	char *all = aligned_alloc(CHUNK, WAITERS * (size_t)CHUNK);
	pthread_t t[WAITERS];

	CHECK(all && in_fam(all));
	for (int i = 0; i < WAITERS; i++) {
		sem_t *s = (sem_t *)(all + i * CHUNK);

		CHECK(!sem_init(s, 0, 0));
		CHECK(!pthread_create(&t[i], NULL, wait_semaphore, s));
	}
	for (int i = 0; i < WAITERS; i++)
		CHECK(!pthread_join(t[i], NULL)); /* never: the abort is sooner */
}

static volatile unsigned char *volatile rung_fam;
static volatile sig_atomic_t rings;

/* Over another part each time, which is not resident. */
static void ring(int sig)
{
	unsigned char *p = (unsigned char *)rung_fam;

	verify(p, BIG, 5);
	rings++;
}

static void ring_soon(void)
{
	struct itimerval soon = { .it_value = { .tv_usec = 1000 } };

	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
}

static void *touch_all(void *arg)
{
	verify(arg, BIG, 5);
	return NULL;
}

/* Waits that block all signals but one, and that one's handler touches fabric memory. */
void case_masks(void)
{
	unsigned char *p = malloc(BIG);
	struct sigaction act = { .sa_handler = ring };
	struct timespec long_time = { .tv_sec = 100 };
	struct epoll_event event;
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	sigset_t but_alarm, all;
	pthread_attr_t attr;
	pthread_t thread;

	CHECK(p && epoll >= 0);
	fill(p, BIG, 5);
	rung_fam = p;
	sigfillset(&act.sa_mask);
	CHECK(!sigaction(SIGALRM, &act, NULL));
	sigemptyset(&but_alarm);
	sigaddset(&but_alarm, SIGALRM);
	CHECK(!sigprocmask(SIG_BLOCK, &but_alarm, NULL));
	sigfillset(&all);
	sigfillset(&but_alarm);
	sigdelset(&but_alarm, SIGALRM);
	ring_soon();
	CHECK(sigsuspend(&but_alarm) == -1 && errno == EINTR);
	ring_soon();
	CHECK(ppoll(NULL, 0, &long_time, &but_alarm) == -1 && errno == EINTR);
	ring_soon();
	CHECK(pselect(0, NULL, NULL, NULL, &long_time, &but_alarm) == -1 && errno == EINTR);
	ring_soon();
	CHECK(epoll_pwait(epoll, &event, 1, 100000, &but_alarm) == -1 && errno == EINTR);
	ring_soon();
	CHECK((epoll_pwait2(epoll, &event, 1, &long_time, &but_alarm) == -1 && errno == EINTR) ||
	      errno == ENOSYS);
	CHECK(rings >= 4);
	CHECK(!pthread_attr_init(&attr));
	CHECK(!pthread_attr_setsigmask_np(&attr, &all));
	CHECK(!pthread_create(&thread, &attr, touch_all, p));
	CHECK(!pthread_join(thread, NULL));
	close(epoll);
	free(p);
}

static pthread_once_t *once_at;

static void leave_once(void)
{
	pthread_exit(NULL);
}

static void *begin_once(void *arg)
{
	pthread_once(arg, leave_once);
	return arg; /* not reached */
}

/* A function that is run once ends its thread, in more chunks than could be kept for waits. */
void case_once(void)
{
	enum { MANY = 200, APART = 1 << 17 };
	char *p = calloc(MANY, APART);
	pthread_t thread;
	void *result;

	CHECK(p && in_fam(p));
	for (int i = 0; i < MANY; i++) {
		once_at = (pthread_once_t *)(void *)(p + (size_t)i * APART);
		*once_at = PTHREAD_ONCE_INIT;
		CHECK(!pthread_create(&thread, NULL, begin_once, once_at));
		CHECK(!pthread_join(thread, &result) && !result);
	}
	free(p);
}
