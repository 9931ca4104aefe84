/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/fork/serve.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/run.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/thread.h"
#include "host_agent/fault/fault.h"
#include "host_agent/fork/child.h"
#include "host_agent/fork/views.h"
#include "host_agent/pages/mapping.h"

enum { READERS_MAX = 256, TRIES = 1000, REGIONS_MS = 1000 };

void (*soda_forks_child)(void);

/* A process that may ask. */
struct reader {
	int fd;
	uint32_t view;
};

/* Guarded by `lock`: forks add readers, the thread takes them away. */
static struct {
	struct soda_lock lock;
	struct reader readers[READERS_MAX];
	uint32_t n;
	int wake[2]; /* the thread polls [0] */
	bool runs;
} serving = { .lock = SODA_LOCK_INIT(SODA_RANK_READERS), .wake = { -1, -1 } };

/* The fork that the thread has under way, with soda_regions_lock or the child's lock. */
static __thread struct {
	enum { NO_FORK, OF_PARENT, OF_CHILD } kind;
	bool open; /* the range is inherited */
	uint32_t view;
	int mine, theirs; /* ends of the socket pair; -1: there is none */
	sigset_t mask;
} forking __attribute__((tls_model("initial-exec")));

/* Reading */

/* The program has made it PROT_NONE. -EAGAIN: it is not there any more. */
static int read_closed(const struct iovec *from, char *to)
{
	void *copy = soda_closed_copy(from->iov_base, from->iov_len);

	if (!copy)
		return -EAGAIN;
	memcpy(to, copy, from->iov_len);
	soda_closed_free(copy, from->iov_len);
	return 0;
}

/*
 * The chunk's present content, by a system call: the object may be freed meanwhile.  -EAGAIN: it
 * went again before it was read.
 */
static int read_now(struct soda_thread *t, uint32_t id, uint32_t offset, uint32_t bytes, char *to)
{
	struct soda_region *r = soda_region_of(id);
	struct iovec from = { soda_chunk_address(id) + offset, bytes }, local = { to, bytes };
	int ret;

	if (!r)
		return -EFAULT;
	ret = soda_fault_touch(t, r, id);
	if (ret)
		return ret;
	if (syscall(SYS_process_vm_readv, getpid(), &local, 1, &from, 1, 0) == (long)bytes)
		return 0;
	if (errno != EFAULT)
		return -errno;
	return soda_chunk_is_closed(id) ? read_closed(&from, to) : -EAGAIN;
}

/* As of the view: kept, or as it is now and still not kept after it was read. */
static int read_chunk(struct soda_thread *t, uint32_t view, uint32_t id, uint32_t offset,
		      uint32_t bytes, char *to)
{
	int ret = -EAGAIN, found;

	for (int i = 0; ret == -EAGAIN && i < TRIES; i++) {
		found = soda_views_find(view, id, offset, bytes, to);
		if (found)
			return found < 0 ? found : 0;
		ret = read_now(t, id, offset, bytes, to);
		found = soda_views_find(view, id, offset, bytes, to);
		if (found)
			return found < 0 ? found : 0;
		if (ret == -EAGAIN)
			syscall(SYS_sched_yield);
	}
	return ret == -EAGAIN ? -EACCES : ret; /* the parent itself may not read it any more */
}

static int read_all(struct soda_thread *t, uint32_t view, const struct soda_fork_ask *ask, char *to)
{
	uint64_t offset = ask->offset;
	uint32_t id = ask->id;
	int ret = 0;

	if (!ask->bytes || ask->bytes > SODA_FORK_BYTES_MAX || offset >= soda_chunk_bytes() ||
	    ((uint64_t)id << soda_agent.chunk_shift) + offset + ask->bytes > soda_agent.bytes)
		return -EINVAL;
	for (uint32_t at = 0, n; at < ask->bytes && !ret; at += n, id++, offset = 0) {
		n = ask->bytes - at;
		if (n > soda_chunk_bytes() - offset)
			n = (uint32_t)(soda_chunk_bytes() - offset);
		ret = read_chunk(t, view, id, (uint32_t)offset, n, to + at);
	}
	return ret;
}

/* Readers */

static bool add_locked(int fd, uint32_t view)
{
	uint64_t one = 1;

	if (serving.n == READERS_MAX)
		return false;
	serving.readers[serving.n++] = (struct reader){ fd, view };
	(void)!write(serving.wake[1], &one, sizeof(one));
	return true;
}

static bool add(int fd, uint32_t view)
{
	bool done;

	soda_lock_acquire(&serving.lock);
	done = add_locked(fd, view);
	soda_lock_release(&serving.lock);
	return done;
}

static void end_reader(struct reader reader)
{
	soda_lock_acquire(&serving.lock);
	for (uint32_t i = 0; i < serving.n; i++)
		if (serving.readers[i].fd == reader.fd) {
			serving.readers[i] = serving.readers[--serving.n];
			break;
		}
	soda_lock_release(&serving.lock);
	close(reader.fd);
	soda_views_leave(reader.view);
}

/* A request, with the descriptor that may come with it, or -1. false: none, or half of one. */
static bool receive(int fd, struct soda_fork_ask *ask, int *passed_p)
{
	struct iovec v = { ask, sizeof(*ask) };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *c;
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*passed_p = -1;
	c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(passed_p, CMSG_DATA(c), sizeof(*passed_p));
	return n == (ssize_t)sizeof(*ask);
}

static bool answer(struct soda_thread *t, struct reader reader, const struct soda_fork_ask *ask,
		   char *memory)
{
	struct soda_fork_answer a = { 0 };
	struct iovec v[2] = { { &a, sizeof(a) }, { memory, 0 } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	a.status = read_all(t, reader.view, ask, memory);
	if (!a.status)
		a.bytes = ask->bytes;
	v[1].iov_len = a.bytes;
	return sendmsg(reader.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) ==
	       (ssize_t)(sizeof(a) + a.bytes);
}

/* false: the reader has ended, or does not keep to what was agreed. */
static bool serve(struct soda_thread *t, struct reader reader, char *memory)
{
	struct soda_fork_ask ask;
	bool good;
	int fd;

	good = receive(reader.fd, &ask, &fd);
	if (good && ask.kind == SODA_FORK_JOIN && fd >= 0) {
		soda_views_join(reader.view);
		if (add(fd, reader.view))
			return true;
		soda_views_leave(reader.view);
	} else if (good && ask.kind == SODA_FORK_READ && fd < 0) {
		return answer(t, reader, &ask, memory);
	}
	if (fd >= 0)
		close(fd);
	return good && ask.kind == SODA_FORK_JOIN;
}

static uint32_t collect(struct pollfd polls[READERS_MAX + 1], struct reader now[READERS_MAX])
{
	uint32_t n;

	soda_lock_acquire(&serving.lock);
	n = serving.n;
	memcpy(now, serving.readers, n * sizeof(*now));
	soda_lock_release(&serving.lock);
	polls[0] = (struct pollfd){ .fd = serving.wake[0], .events = POLLIN };
	for (uint32_t i = 0; i < n; i++)
		polls[i + 1] = (struct pollfd){ .fd = now[i].fd, .events = POLLIN };
	return n;
}

static void *serve_all(void *arg)
{
	static struct pollfd polls[READERS_MAX + 1];
	static struct reader now[READERS_MAX];
	static char memory[SODA_FORK_BYTES_MAX];
	struct soda_thread *t = soda_thread_internal();
	uint64_t ignored;
	uint32_t n;

	for (;;) {
		n = collect(polls, now);
		if (poll(polls, n + 1, -1) < 0)
			continue;
		if (polls[0].revents)
			(void)!read(serving.wake[0], &ignored, sizeof(ignored));
		for (uint32_t i = 0; i < n; i++)
			if (polls[i + 1].revents && (!t || !serve(t, now[i], memory)))
				end_reader(now[i]);
	}
	return NULL;
}

/* soda_regions_lock is held. */
static bool start_serving(void)
{
	pthread_t thread;

	if (serving.runs)
		return true;
	if (serving.wake[0] < 0 && soda_fork_pair(serving.wake))
		return false;
	soda_run_local(1); /* the heap is closed during a fork */
	serving.runs = !soda_helper_start(&thread, "soda-forks", serve_all, NULL);
	soda_run_local(-1);
	if (serving.runs)
		pthread_detach(thread);
	return serving.runs;
}

/* Keeping */

static void keep_chunk(struct soda_thread *t, uint32_t id, char *memory, uint32_t bytes)
{
	int ret = -EAGAIN;

	for (int i = 0; ret == -EAGAIN && i < TRIES && soda_views_want(id); i++)
		ret = read_now(t, id, 0, bytes, memory);
	if (!ret)
		soda_views_keep(id, memory);
	else
		soda_views_lose(id);
}

void soda_forks_keep(uint32_t first, uint32_t n)
{
	struct soda_thread *t = NULL;
	char *memory = NULL;

	for (uint32_t id = first; id < first + n; id++) {
		const struct soda_region *r;

		if (!soda_views_want(id) || !(r = soda_region_of(id)))
			continue;
		if (!memory) {
			t = soda_thread_self();
			memory = (char *)syscall(SYS_mmap, NULL, soda_chunk_bytes(),
						 PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
		}
		if (!t || memory == MAP_FAILED)
			soda_views_lose(id);
		else
			keep_chunk(t, id, memory, soda_region_chunk_bytes(r, id));
	}
	if (memory && memory != MAP_FAILED)
		syscall(SYS_munmap, memory, soda_chunk_bytes());
}

/* Forks */

static int close_store(struct soda_region *r, void *arg)
{
	return r->shared ? madvise(soda_chunk_address(r->first), r->span, MADV_DONTFORK) : 0;
}

/* The child inherits what is resident of everything but the node's store. */
static bool open_range(void)
{
	return !madvise(soda_agent.base, soda_agent.bytes, MADV_DOFORK) &&
	       !soda_regions_each(close_store, NULL);
}

static void before_parent(void)
{
	int ends[2];

	forking.view = soda_views_fork();
	forking.open = open_range();
	if (!forking.view)
		return;
	if (forking.open && start_serving() && !soda_fork_pair(ends)) {
		forking.mine = ends[0];
		forking.theirs = ends[1];
		if (add(forking.mine, forking.view))
			return;
		close(forking.mine);
		close(forking.theirs);
		forking.mine = forking.theirs = -1;
	}
	soda_views_leave(forking.view);
}

/* Not SIGBUS: what the C library touches before the fork may be fabric memory. */
static void block_signals(void)
{
	sigset_t mask;

	sigfillset(&mask);
	sigdelset(&mask, SIGSEGV);
	sigdelset(&mask, SIGBUS);
	soda_signals_swap(&mask, &forking.mask);
}

static void before(void)
{
	uint32_t life = atomic_load(&soda_agent.life);

	forking.kind = NO_FORK;
	forking.mine = forking.theirs = -1;
	if (life == SODA_LIFE_FORKED && soda_child_has(soda_agent.base)) {
		block_signals();
		forking.kind = OF_CHILD;
		forking.theirs = soda_child_fork();
	} else if (life == SODA_LIFE_RUNNING && atomic_load(&soda_agent.fam_bytes)) {
		block_signals();
		soda_regions_lock();
		forking.kind = OF_PARENT;
		before_parent();
	}
}

static void in_parent(void)
{
	sigset_t mask = forking.mask;

	if (forking.kind == OF_CHILD) {
		soda_child_forked(forking.theirs);
	} else if (forking.kind == OF_PARENT) {
		madvise(soda_agent.base, soda_agent.bytes, MADV_DONTFORK);
		soda_views_forked();
		if (forking.theirs >= 0)
			close(forking.theirs);
		soda_regions_unlock();
	} else {
		return;
	}
	soda_signals_restore(&mask);
}

/* The sockets that the parent answers on are not this process's. */
static void forget_readers(void)
{
	for (uint32_t i = 0; i < serving.n; i++)
		close(serving.readers[i].fd);
	for (int i = 0; i < 2; i++)
		if (serving.wake[i] >= 0)
			close(serving.wake[i]);
	serving.n = 0;
	serving.wake[0] = serving.wake[1] = -1;
	serving.runs = false;
	soda_lock_init(&serving.lock, SODA_RANK_READERS);
	soda_views_forget();
}

bool soda_forks_in_child(void)
{
	bool begun;

	if (forking.kind != OF_PARENT)
		return false;
	forget_readers();
	begun = forking.open && soda_child_begin(forking.theirs);
	if (!begun && forking.theirs >= 0)
		close(forking.theirs);
	return begun;
}

static void in_child(void)
{
	sigset_t mask = forking.mask;

	if (forking.kind == OF_PARENT)
		soda_regions_unlock();
	if (forking.kind == OF_CHILD)
		soda_child_again(forking.theirs);
	else if (soda_forks_child)
		soda_forks_child();
	if (forking.kind != NO_FORK)
		soda_signals_restore(&mask);
	forking.kind = NO_FORK;
}

/* Early, so that these are the last before a fork and the first after it. */
__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before, in_parent, in_child);
}
