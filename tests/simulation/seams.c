/* SPDX-License-Identifier: BSD-3-Clause */
#include "fibers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "disk.h"
#include "net.h"
#include "nodes.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { FILES = 4096, WATCHED = 256 };

struct watch {
	int fd;
	struct epoll_event event;
};

static struct file {
	bool used;
	enum sim_process process;
	short (*ready)(void *arg);
	void *arg;
	uint64_t count;	       /* eventfd */
	struct watch *watches; /* epoll */
	int watches_n;
} files[FILES];

static unsigned no_memory[SIM_PROCESSES], no_descriptor[SIM_PROCESSES];

void sim_starve(enum sim_process p, unsigned memory, unsigned descriptors)
{
	no_memory[p] = memory;
	no_descriptor[p] = descriptors;
}

static bool lacks(const unsigned *table)
{
	unsigned n = table[sim_process()];

	return n && sim_below(1000) < n;
}

bool sim_lacks_descriptor(void)
{
	return lacks(no_descriptor);
}

bool sim_lacks_memory(void)
{
	return lacks(no_memory);
}

/* Descriptors */

static struct file *file_of(int fd)
{
	return fd >= SIM_FD && fd < SIM_FD + FILES && files[fd - SIM_FD].used ? &files[fd - SIM_FD]
									      : NULL;
}

int sim_fd_new(enum sim_process p, short (*ready)(void *arg), void *arg)
{
	for (int i = 0; i < FILES; i++)
		if (!files[i].used) {
			files[i] = (struct file){
				.used = true, .process = p, .ready = ready, .arg = arg
			};
			return SIM_FD + i;
		}
	return -EMFILE;
}

void sim_fd_close(int fd)
{
	struct file *f = file_of(fd);

	if (!f)
		return;
	free(f->watches);
	*f = (struct file){ .used = false };
	sim_fd_changed();
}

void sim_fd_changed(void)
{
	sim_wake(files, SIM_FIBERS);
}

void sim_fd_kill(enum sim_process p)
{
	for (int i = 0; i < FILES; i++)
		if (files[i].used && files[i].process == p)
			sim_fd_close(SIM_FD + i);
}

static short count_ready(void *arg)
{
	return ((struct file *)arg)->count ? POLLIN : 0;
}

int sim_eventfd(unsigned initial, int flags)
{
	int fd;

	sim_point();
	fd = sim_lacks_descriptor() ? -EMFILE : sim_fd_new(sim_process(), count_ready, NULL);
	if (fd < 0) {
		errno = EMFILE;
		return -1;
	}
	file_of(fd)->arg = file_of(fd);
	file_of(fd)->count = initial;
	return fd;
}

ssize_t sim_write(int fd, const void *data, size_t bytes)
{
	struct file *f = file_of(fd);

	sim_point();
	if (!f) {
		if (fd < SIM_FD)
			return write(fd, data, bytes);
		errno = EBADF;
		return -1;
	}
	f->count += *(const uint64_t *)data;
	sim_fd_changed();
	return (ssize_t)bytes;
}

ssize_t sim_read(int fd, void *data, size_t bytes)
{
	struct file *f = file_of(fd);

	sim_point();
	if (fd >= SIM_FD && sim_uffd_is(fd))
		return sim_uffd_read(data, bytes);
	if (!f && fd < SIM_FD)
		return read(fd, data, bytes);
	if (!f || !f->count) {
		errno = f ? EAGAIN : EBADF;
		return -1;
	}
	memcpy(data, &f->count, sizeof(f->count));
	f->count = 0;
	return sizeof(f->count);
}

int sim_close(int fd)
{
	sim_point();
	if (fd < SIM_FD)
		return close(fd);
	if (sim_disk_owns(fd))
		return sim_disk_close(fd);
	sim_fd_close(fd);
	return 0;
}

static int look(struct pollfd *p, nfds_t n)
{
	int found = 0;

	for (nfds_t i = 0; i < n; i++) {
		struct file *f = p[i].fd < 0 ? NULL : file_of(p[i].fd);

		p[i].revents = 0;
		if (f)
			p[i].revents = f->ready(f->arg) &
				       (short)(p[i].events | POLLERR | POLLHUP | POLLNVAL);
		else if (p[i].fd >= 0)
			p[i].revents = POLLNVAL;
		found += p[i].revents != 0;
	}
	return found;
}

static uint64_t deadline_ms(int timeout_ms)
{
	return timeout_ms < 0 ? SIM_NEVER : sim_now() + (uint64_t)timeout_ms * SIM_MS;
}

int sim_poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
	uint64_t deadline = deadline_ms(timeout_ms);
	int found;

	sim_point();
	while (!(found = look(p, n)) && sim_now() < deadline)
		sim_wait(n ? (void *)files : NULL, deadline, "poll");
	return found;
}

static short never_ready(void *arg)
{
	return 0;
}

int sim_epoll_create1(int flags)
{
	int fd = sim_lacks_descriptor() ? -EMFILE : sim_fd_new(sim_process(), never_ready, NULL);

	if (fd < 0) {
		errno = EMFILE;
		return -1;
	}
	file_of(fd)->watches = calloc(WATCHED, sizeof(struct watch));
	return fd;
}

int sim_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	struct file *e = file_of(epoll);
	int i = 0;

	sim_point();
	if (!e || !file_of(fd)) {
		errno = EBADF;
		return -1;
	}
	while (i < e->watches_n && e->watches[i].fd != fd)
		i++;
	if (op == EPOLL_CTL_DEL) {
		if (i < e->watches_n)
			e->watches[i] = e->watches[--e->watches_n];
		return 0;
	}
	if (i == e->watches_n) {
		if (op == EPOLL_CTL_MOD || i == WATCHED) {
			errno = ENOENT;
			return -1;
		}
		e->watches_n++;
	}
	e->watches[i] = (struct watch){ fd, *event };
	sim_fd_changed();
	return 0;
}

static int epoll_look(struct file *e, struct epoll_event *events, int max)
{
	int n = 0;

	for (int i = 0; i < e->watches_n && n < max; i++) {
		struct file *f = file_of(e->watches[i].fd);
		uint32_t got;

		if (!f) { /* a closed descriptor is watched no more */
			e->watches[i--] = e->watches[--e->watches_n];
			continue;
		}
		got = (uint32_t)f->ready(f->arg) &
		      (e->watches[i].event.events | EPOLLERR | EPOLLHUP);
		if (!got)
			continue;
		events[n] = e->watches[i].event;
		events[n++].events = got;
	}
	return n;
}

int sim_epoll_wait(int epoll, struct epoll_event *events, int max, int timeout_ms)
{
	uint64_t deadline = deadline_ms(timeout_ms);
	struct file *e = file_of(epoll);
	int n;

	sim_point();
	while (!(n = epoll_look(e, events, max)) && sim_now() < deadline)
		sim_wait(files, deadline, "epoll_wait");
	return n;
}

/* Processes: the application, and whoever else connects without another number, lives. */
int sim_send_signal(pid_t pid, int number)
{
	errno = ESRCH;
	return pid == SIM_NET_PID ? 0 : -1;
}

/* Time */

int sim_clock_gettime(clockid_t clock, struct timespec *ts)
{
	sim_point();
	sim_spend(20);
	ts->tv_sec = (time_t)(sim_now() / SIM_S);
	ts->tv_nsec = (long)(sim_now() % SIM_S);
	return 0;
}

time_t sim_time(time_t *out)
{
	return (time_t)(sim_now() / SIM_S);
}

static uint64_t nanoseconds(const struct timespec *ts)
{
	return (uint64_t)ts->tv_sec * SIM_S + (uint64_t)ts->tv_nsec;
}

int sim_nanosleep(const struct timespec *ts, struct timespec *left)
{
	sim_sleep(nanoseconds(ts), "nanosleep");
	return 0;
}

int sim_sched_yield(void)
{
	sim_yield();
	return 0;
}

/* Two processors. */
int sim_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
	CPU_ZERO_S(bytes, set);
	CPU_SET_S(0, bytes, set);
	CPU_SET_S(1, bytes, set);
	return 0;
}

int sim_sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
	return 0;
}

int sim_sched_getcpu(void)
{
	return (int)sim_below(2);
}

long sim_sysconf(int name)
{
	return name == _SC_NPROCESSORS_ONLN ? 2 : sysconf(name);
}

ssize_t sim_getrandom(void *data, size_t bytes, unsigned flags)
{
	for (size_t at = 0; at < bytes; at++)
		((uint8_t *)data)[at] = (uint8_t)sim_random();
	return (ssize_t)bytes;
}

/* Raw system calls */

/* A word in a memfd has several addresses: what is the same for all of them. */
static struct mapping {
	char *at;
	size_t bytes;
	uint64_t file, offset;
} mappings[1024];

static const void *shared_word(const void *word)
{
	for (unsigned i = 0; i < 1024; i++) {
		const struct mapping *m = &mappings[i];
		uint64_t within = (uint64_t)((const char *)word - m->at);

		if (m->at && (const char *)word >= m->at && within < m->bytes)
			return (const void *)(uintptr_t)(1ull << 63 | m->file << 24 |
							 (m->offset + within));
	}
	return word;
}

static void note_mapping(void *at, size_t bytes, int fd, off_t offset)
{
	struct stat st;

	if (fstat(fd, &st))
		return;
	for (unsigned i = 0; i < 1024; i++)
		if (!mappings[i].at) {
			mappings[i] = (struct mapping){ at, bytes, st.st_ino, (uint64_t)offset };
			return;
		}
}

int sim_munmap(void *at, size_t bytes)
{
	for (unsigned i = 0; i < 1024; i++)
		if (mappings[i].at == at)
			mappings[i].at = NULL;
	return munmap(at, bytes);
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	const void *key =
		op & FUTEX_PRIVATE_FLAG ? (const void *)word : shared_word((const void *)word);

	sim_point();
	if ((op & FUTEX_CMD_MASK) == FUTEX_WAKE) {
		sim_wake(key, value > SIM_FIBERS ? SIM_FIBERS : value);
		return 0;
	}
	if (*(volatile uint32_t *)word != value) {
		errno = EAGAIN;
		return -1;
	}
	if (sim_wait(key, timeout ? sim_now() + nanoseconds(timeout) : SIM_NEVER, "a futex"))
		return 0;
	errno = ETIMEDOUT;
	return -1;
}

/*
 * The kernel copies pages of the process itself: one range, in which other threads store meanwhile,
 * as with parity; those are there, as nobody drops a chunk that is SENDING.
 */
static long copy_own(const struct iovec *to, const struct iovec *from)
{
	enum { AT_ONCE = 512 };

	for (size_t at = 0; at < from->iov_len; at += AT_ONCE) {
		size_t n = from->iov_len - at < AT_ONCE ? from->iov_len - at : AT_ONCE;

		sim_host_check_resident((char *)from->iov_base + at, n);
		memcpy((char *)to->iov_base + at, (char *)from->iov_base + at, n);
		sim_point();
	}
	return (long)from->iov_len;
}

long sim_syscall(long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	switch (number) {
	case SYS_futex:
		return futex((_Atomic uint32_t *)a[0], (int)a[1], (uint32_t)a[2],
			     (const struct timespec *)a[3]);
	case SYS_gettid:
		return sim_id();
	case SYS_process_vm_readv:
		return copy_own((const struct iovec *)a[1], (const struct iovec *)a[3]);
	case SYS_tgkill:
		errno = ESRCH;
		return sim_alive((int)a[1]) ? 0 : -1;
	case SYS_rt_sigprocmask:
		if (a[2])
			memset((void *)a[2], 0, 8);
		return 0;
	case SYS_capget:
	case SYS_capset: /* nobody has one */
	case SYS_mlock2: /* nothing is swapped */
		return 0;
	case SYS_write:
		return sim_write((int)a[0], (const void *)a[1], (size_t)a[2]);
	case SYS_pwrite64:
		return sim_memfd_write((int)a[0], (const void *)a[1], (size_t)a[2], (off_t)a[3]);
	case SYS_read:
		return sim_read((int)a[0], (void *)a[1], (size_t)a[2]);
	case SYS_mincore:
		*(unsigned char *)a[2] = sim_host_has((const void *)a[0]);
		return 0;
	case SYS_fallocate:
		return sim_memfd_punch((int)a[0], (int)a[1], (off_t)a[2], (off_t)a[3]);
	case SYS_memfd_create:
		return sim_memfd_create((const char *)a[0], (unsigned)a[1]);
	case SYS_openat2:
		return sim_disk_openat2((int)a[0], (const char *)a[1], (const void *)a[2]);
	case SYS_madvise:
		return madvise((void *)a[0], (size_t)a[1], (int)a[2]);
	default:
		sim_fail("system call %ld is not simulated", number);
	}
}

/* Threads */

int sim_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
		       void *arg)
{
	struct sim_fiber *f;

	sim_point();
	f = sim_spawn(sim_process(), "thread", run, arg);
	if (!f)
		return EAGAIN;
	*thread = (pthread_t)f;
	return 0;
}

int sim_pthread_join(pthread_t thread, void **result_p)
{
	void *result = sim_join((struct sim_fiber *)thread);

	if (result_p)
		*result_p = result;
	return 0;
}

int sim_pthread_timedjoin_np(pthread_t thread, void **result_p, const struct timespec *until)
{
	return sim_pthread_join(thread, result_p);
}

int sim_pthread_clockjoin_np(pthread_t thread, void **result_p, clockid_t clock,
			     const struct timespec *until)
{
	return sim_pthread_join(thread, result_p);
}

int sim_pthread_detach(pthread_t thread)
{
	sim_detach((struct sim_fiber *)thread);
	return 0;
}

pthread_t sim_pthread_self(void)
{
	return (pthread_t)sim_self();
}

int sim_pthread_setname_np(pthread_t thread, const char *name)
{
	sim_rename((struct sim_fiber *)thread, name);
	return 0;
}

int sim_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	if (old)
		sigemptyset(old);
	return 0;
}

int sim_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	return 0;
}

int sim_atexit(void (*fn)(void))
{
	return 0;
}

/* The first word of a mutex: who holds it, or 0. */
static uint32_t *holder(pthread_mutex_t *m)
{
	return (uint32_t *)(void *)m;
}

int sim_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *attr)
{
	memset(m, 0, sizeof(*m));
	return 0;
}

int sim_pthread_mutex_destroy(pthread_mutex_t *m)
{
	if (*holder(m))
		sim_fail("a mutex is destroyed that a thread holds");
	return 0;
}

int sim_pthread_mutex_lock(pthread_mutex_t *m)
{
	sim_point();
	while (*holder(m)) {
		if (*holder(m) == (uint32_t)sim_id())
			sim_fail("DEADLOCK: a thread locks a mutex that it holds");
		sim_wait(m, SIM_NEVER, "a mutex");
	}
	*holder(m) = (uint32_t)sim_id();
	return 0;
}

int sim_pthread_mutex_trylock(pthread_mutex_t *m)
{
	sim_point();
	if (*holder(m))
		return EBUSY;
	*holder(m) = (uint32_t)sim_id();
	return 0;
}

int sim_pthread_mutex_unlock(pthread_mutex_t *m)
{
	if (*holder(m) != (uint32_t)sim_id())
		sim_fail("a mutex is unlocked by a thread that does not hold it");
	*holder(m) = 0;
	sim_wake(m, 1);
	sim_point();
	return 0;
}

int sim_pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *attr)
{
	memset(c, 0, sizeof(*c));
	return 0;
}

int sim_pthread_cond_destroy(pthread_cond_t *c)
{
	return 0;
}

static int cond_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t deadline)
{
	bool woken;

	if (*holder(m) != (uint32_t)sim_id())
		sim_fail("a condition is awaited without its mutex");
	*holder(m) = 0;
	sim_wake(m, 1);
	woken = sim_wait(c, deadline, "a condition");
	sim_pthread_mutex_lock(m);
	return woken ? 0 : ETIMEDOUT;
}

int sim_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	return cond_wait(c, m, SIM_NEVER);
}

int sim_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until)
{
	return cond_wait(c, m, nanoseconds(until));
}

int sim_pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock,
			       const struct timespec *until)
{
	return cond_wait(c, m, nanoseconds(until));
}

int sim_pthread_cond_signal(pthread_cond_t *c)
{
	sim_wake(c, 1);
	sim_point();
	return 0;
}

int sim_pthread_cond_broadcast(pthread_cond_t *c)
{
	sim_wake(c, SIM_FIBERS);
	sim_point();
	return 0;
}

/* The first word: readers, or minus one. */
int sim_pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
	int *word = (int *)(void *)l;

	sim_point();
	while (*word < 0)
		sim_wait(l, SIM_NEVER, "a lock to read");
	++*word;
	return 0;
}

int sim_pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
	int *word = (int *)(void *)l;

	sim_point();
	while (*word)
		sim_wait(l, SIM_NEVER, "a lock to write");
	*word = -1;
	return 0;
}

int sim_pthread_rwlock_unlock(pthread_rwlock_t *l)
{
	int *word = (int *)(void *)l;

	*word -= *word < 0 ? -1 : 1;
	sim_wake(l, SIM_FIBERS);
	return 0;
}

/* Memory */

void *sim_malloc(size_t bytes)
{
	return lacks(no_memory) ? NULL : malloc(bytes);
}

void *sim_calloc(size_t n, size_t bytes)
{
	return lacks(no_memory) ? NULL : calloc(n, bytes);
}

void *sim_aligned_alloc(size_t alignment, size_t bytes)
{
	return lacks(no_memory) ? NULL : aligned_alloc(alignment, bytes);
}

/* A huge page takes longer to clear than a seed has. */
int sim_madvise(void *addr, size_t bytes, int advice)
{
	return advice == MADV_HUGEPAGE || advice == MADV_NOHUGEPAGE ? 0
								    : madvise(addr, bytes, advice);
}

/* What covers pages of an object is not there to be touched: that would be SIGBUS to all of us. */
void *sim_mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	uint64_t file = flags & MAP_FIXED && flags & MAP_SHARED ? sim_memfd_file(fd) : 0;
	void *at;

	if (file && sim_is_host(sim_process())) {
		sim_host_share(addr, bytes, file, (uint64_t)offset);
		return mmap(addr, bytes, PROT_READ | PROT_WRITE, flags, fd, offset);
	}
	if (sim_is_host(sim_process()) && flags & MAP_FIXED &&
	    sim_host_map(addr, bytes, flags & MAP_SHARED) && flags & MAP_SHARED)
		return addr;
	at = mmap(addr, bytes, prot, flags, fd, offset);
	if (at != MAP_FAILED && flags & MAP_SHARED && fd >= 0)
		note_mapping(at, bytes, fd, offset);
	return at;
}

/* What a program closes to itself stays open to the simulation, which is its kernel, too. */
int sim_mprotect(void *addr, size_t bytes, int prot)
{
	return mprotect(addr, bytes, prot == PROT_READ ? PROT_READ | PROT_WRITE : prot);
}
