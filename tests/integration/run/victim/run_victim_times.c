/* SPDX-License-Identifier: BSD-3-Clause */
/* Times, timers, signals, and waits that end by the clock, of objects in fabric memory. */
#include "run_victim.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>

static struct timespec *soon(clockid_t clock, struct timespec *t)
{
	clock_gettime(clock, t);
	t->tv_nsec += 2000000;
	if (t->tv_nsec >= 1000000000) {
		t->tv_nsec -= 1000000000;
		t->tv_sec++;
	}
	return t;
}

/* Where nobody else lets go, each ends by its time. */
static void *try_for_a_while(void *arg)
{
	pthread_rwlock_t *lock = arg;
	struct timespec t;

	CHECK(AWAY(pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, soon(CLOCK_MONOTONIC, &t))) ==
	      ETIMEDOUT);
	CHECK(AWAY(pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, soon(CLOCK_MONOTONIC, &t))) ==
	      ETIMEDOUT);
	CHECK(AWAY(pthread_rwlock_timedwrlock(lock, soon(CLOCK_REALTIME, &t))) == ETIMEDOUT);
	return NULL;
}

static void check_posix(void)
{
	pthread_mutex_t *m = object(0);
	pthread_cond_t *c = object(1);
	pthread_rwlock_t *lock = object(2);
	sem_t *s = object(3);
	struct timespec t;
	pthread_t other;

	CHECK(!pthread_mutex_init(m, NULL) && !pthread_cond_init(c, NULL));
	CHECK(!pthread_rwlock_init(lock, NULL) && !sem_init(s, 0, 0));
	CHECK(!pthread_mutex_lock(m));
	CHECK(AWAY(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, soon(CLOCK_MONOTONIC, &t))) ==
	      ETIMEDOUT);
	CHECK(AWAY(pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, soon(CLOCK_MONOTONIC, &t))) ==
	      ETIMEDOUT);
	CHECK(!pthread_mutex_unlock(m));
	CHECK(AWAY(sem_clockwait(s, CLOCK_MONOTONIC, soon(CLOCK_MONOTONIC, &t))) < 0);
	CHECK(errno == ETIMEDOUT);
	CHECK(!pthread_rwlock_wrlock(lock));
	CHECK(!pthread_create(&other, NULL, try_for_a_while, lock) && !pthread_join(other, NULL));
	CHECK(!pthread_rwlock_unlock(lock));
}

static void check_c11(void)
{
	mtx_t *m = object(4);
	cnd_t *c = object(5);
	struct timespec t;

	CHECK(mtx_init(m, mtx_timed) == thrd_success && cnd_init(c) == thrd_success);
	CHECK(AWAY(mtx_timedlock(m, soon(CLOCK_REALTIME, &t))) == thrd_success);
	CHECK(AWAY(mtx_timedlock(m, soon(CLOCK_REALTIME, &t))) == thrd_timedout);
	CHECK(AWAY(cnd_timedwait(c, m, soon(CLOCK_REALTIME, &t))) == thrd_timedout);
	CHECK(AWAY(cnd_signal(c)) == thrd_success && mtx_unlock(m) == thrd_success);
}

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	caught = sig;
}

static void check_timers(void)
{
	struct itimerval *one = object(0), *old = object(1);
	struct itimerspec *spec = object(2), *before = object(3);
	struct timespec *never = object(4);
	struct sigevent *event = object(5);
	timer_t timer;

	*one = (struct itimerval){ .it_value = { 1000, 0 } };
	CHECK(!AWAY(setitimer(ITIMER_REAL, one, old)) && !old->it_value.tv_sec);
	memset(one, 0, sizeof(*one));
	CHECK(!AWAY(getitimer(ITIMER_REAL, one)) && one->it_value.tv_sec >= 900);
	memset(one, 0, sizeof(*one));
	CHECK(!AWAY(setitimer(ITIMER_REAL, one, old)) && old->it_value.tv_sec >= 900);
	never->tv_nsec = 0;
	CHECK(!AWAY(clock_getres(CLOCK_PROCESS_CPUTIME_ID, never)) && never->tv_nsec);
	*event = (struct sigevent){ .sigev_notify = SIGEV_NONE };
	CHECK(!AWAY(timer_create(CLOCK_MONOTONIC, event, &timer)));
	*spec = (struct itimerspec){ .it_value = { 1000, 0 } };
	CHECK(!AWAY(timer_settime(timer, 0, spec, before)) && !before->it_value.tv_sec);
	CHECK(!AWAY(timer_gettime(timer, before)) && before->it_value.tv_sec >= 900);
	CHECK(!timer_delete(timer));
	*never = (struct timespec){ -1, 0 };
	CHECK(AWAY(clock_settime(CLOCK_REALTIME, never)) < 0 && errno == EINVAL);
}

static void send_one(void)
{
	CHECK(!kill(getpid(), SIGUSR2));
}

static void check_waits(void)
{
	sigset_t *set = object(0), *old = object(1);
	siginfo_t *info = object(2);
	int *sig = object(3), fd;
	struct signalfd_siginfo *told = object(4);

	CHECK(!sigemptyset(set) && !sigaddset(set, SIGUSR2));
	memset(old, 0xff, sizeof(*old));
	CHECK(!AWAY(sigprocmask(SIG_BLOCK, set, old)) && !sigismember(old, SIGUSR2));
	CHECK(!AWAY(pthread_sigmask(SIG_BLOCK, NULL, old)) && sigismember(old, SIGUSR2));
	send_one();
	CHECK(!AWAY(sigpending(old)) && sigismember(old, SIGUSR2));
	CHECK(!AWAY(sigwait(set, sig)) && *sig == SIGUSR2);
	send_one();
	CHECK(AWAY(sigwaitinfo(set, info)) == SIGUSR2 && info->si_pid == getpid());
	fd = AWAY(signalfd(-1, set, 0));
	CHECK(fd >= 0);
	send_one();
	CHECK(AWAY(read(fd, told, sizeof(*told))) == sizeof(*told) && told->ssi_signo == SIGUSR2);
	close(fd);
	CHECK(signal(SIGUSR2, on_signal) != SIG_ERR);
	send_one();
	CHECK(!caught && !sigemptyset(old) && AWAY(sigsuspend(old)) < 0 && errno == EINTR);
	CHECK(caught == SIGUSR2 && !AWAY(sigprocmask(SIG_UNBLOCK, set, NULL)));
	CHECK(signal(SIGUSR2, SIG_DFL) == on_signal);
}

/* How this thread runs, and as what. */
static void check_thread(void)
{
	struct sched_param *param = object(0);
	struct timespec *slice = object(1);
	cpu_set_t *cpus = object(2);
	char *called = object(3);
	uid_t *user = object(4);
	gid_t *group = object(7);

	CHECK(!AWAY(sched_getparam(0, param)) && !param->sched_priority);
	CHECK(!AWAY(sched_setparam(0, param)) && !AWAY(sched_setscheduler(0, SCHED_OTHER, param)));
	CHECK(!AWAY(pthread_setschedparam(pthread_self(), SCHED_OTHER, param)));
	slice->tv_sec = -1;
	CHECK(!AWAY(sched_rr_get_interval(0, slice)) && slice->tv_sec >= 0);
	CHECK(!AWAY(pthread_getaffinity_np(pthread_self(), sizeof(*cpus), cpus)) &&
	      CPU_COUNT(cpus));
	CHECK(!AWAY(pthread_setaffinity_np(pthread_self(), sizeof(*cpus), cpus)));
	strcpy(called, "a name");
	CHECK(!AWAY(pthread_setname_np(pthread_self(), called)));
	memset(called, 0, 10);
	CHECK(!AWAY(pthread_getname_np(pthread_self(), called, 100)) && !strcmp(called, "a name"));
	*user = user[16384] = user[32768] = 77777;
	CHECK(!AWAY(getresuid(user, user + 16384, user + 32768)));
	CHECK(*user == getuid() && user[16384] == geteuid() && user[32768] == geteuid());
	CHECK(!AWAY(getresgid(group, group + 16384, group + 32768)) && *group == getgid());
	CHECK(group[16384] == getegid());
}

static void check_stack(void)
{
	stack_t *stack = object(0), *old = object(1);

	*stack = (stack_t){ .ss_flags = SS_DISABLE };
	old->ss_flags = 77;
	CHECK(!AWAY(sigaltstack(stack, old)) && old->ss_flags != 77);
	CHECK(!AWAY(sigaltstack(old, NULL)));
}

void case_times(void)
{
	objects_make();
	check_posix();
	check_c11();
	check_timers();
	check_waits();
	check_thread();
	check_stack();
	objects_end();
}
