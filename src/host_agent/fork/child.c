/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/fork/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "host_agent/core/helper.h"
#include "host_agent/object/region.h"
#include "host_agent/pages/signals.h"

enum {
	UNIT = 256 << 10, /* so much is brought at once, where it is away in a row */
	HIGH = 100,	  /* descriptors from there on */
	LOOK_MS = 1000,
};

_Atomic bool soda_child_protections;

static struct {
	_Atomic bool is;
	struct soda_lock asking;
	int sock;
	pid_t self;
	bool told;
} child = { .asking = SODA_LOCK_INIT(SODA_RANK_VIEWS), .sock = -1 };

static struct soda_chunk *chunk(uint32_t id)
{
	return &soda_agent.table[id];
}

static enum soda_chunk_state state(uint32_t id)
{
	return soda_chunk_state(soda_chunk_load(chunk(id)));
}

/* The child's own: its threads change it with the lock, and nobody waits for it. */
static void set(uint32_t id, enum soda_chunk_state to)
{
	atomic_store(&chunk(id)->word, (uint32_t)to);
}

/* The protection that the program gave a chunk that is away: `list` has no other use here. */
static void protect_later(uint32_t id, int prot)
{
	chunk(id)->list = (uint8_t)prot;
}

static uint64_t span(const struct soda_region *r, uint32_t first, uint32_t n)
{
	return ((uint64_t)(n - 1) << soda_agent.chunk_shift) +
	       soda_region_chunk_bytes(r, first + n - 1);
}

bool soda_child_has(const void *addr)
{
	return atomic_load_explicit(&child.is, memory_order_relaxed) && soda_agent_owns(addr);
}

int soda_fork_pair(int ends[2])
{
	int low[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, low))
		return -errno;
	for (int i = 0; i < 2; i++) {
		ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, HIGH);
		if (ends[i] >= 0)
			close(low[i]);
		else
			ends[i] = low[i];
	}
	return 0;
}

/* Asking */

/* Once: the log's lock may be another thread's of the parent for ever. */
static void tell(const char *why)
{
	char line[256];
	int n;

	if (child.told)
		return;
	child.told = true;
	n = snprintf(
		line, sizeof(line),
		"soda: process %d, the child of a fork, cannot read its parent's fabric memory "
		"any more: %s; it ends\n",
		(int)getpid(), why);
	(void)!write(STDERR_FILENO, line, (size_t)n);
}

static bool refused(int status)
{
	if (status == -ENODATA)
		tell("the parent has stored to more than it could keep for its children; a larger "
		     "page buffer keeps more");
	else
		tell(soda_strerror(status));
	return false;
}

static uint64_t patience_ms(void)
{
	/* the parent waits so long itself, and somewhat longer where it starts anew */
	return 2ull * soda_agent.settings.fault_timeout_ms + 10 * LOOK_MS;
}

/* All of it, in time.  The parent's end of the socket is closed when the parent ends. */
static bool receive(void *to, size_t bytes)
{
	uint64_t until = soda_now_ms() + patience_ms();
	size_t done = 0;

	while (done < bytes) {
		struct pollfd p = { .fd = child.sock, .events = POLLIN };
		long n = syscall(SYS_poll, &p, 1, LOOK_MS);

		if (n > 0)
			n = recv(child.sock, (char *)to + done, bytes - done, MSG_DONTWAIT);
		if (n > 0) {
			done += (size_t)n;
		} else if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
			continue;
		} else if (n < 0 || (p.revents & POLLIN)) {
			tell("the parent has ended, or has closed its descriptors");
			return false;
		} else if (soda_now_ms() > until) {
			tell("the parent does not answer");
			return false;
		}
	}
	return true;
}

static bool ask_piece(uint32_t id, uint32_t offset, uint32_t bytes, char *to)
{
	struct soda_fork_ask ask = { SODA_FORK_READ, id, offset, bytes };
	struct soda_fork_answer answer;

	if (child.sock < 0 || getpid() != child.self) {
		tell("it was not told where to ask");
		return false;
	}
	if (send(child.sock, &ask, sizeof(ask), MSG_NOSIGNAL) != sizeof(ask)) {
		tell("the parent has ended, or a descriptor of the library was closed");
		return false;
	}
	if (!receive(&answer, sizeof(answer)))
		return false;
	if (answer.status || answer.bytes != bytes)
		return refused(answer.status ? answer.status : -EPROTO);
	return receive(to, bytes);
}

static bool ask(uint32_t first, uint64_t bytes, char *to)
{
	for (uint64_t at = 0, n; at < bytes; at += n) {
		uint64_t offset = at & (soda_chunk_bytes() - 1);

		n = bytes - at < SODA_FORK_BYTES_MAX ? bytes - at : SODA_FORK_BYTES_MAX;
		if (!ask_piece(first + (uint32_t)(at >> soda_agent.chunk_shift), (uint32_t)offset,
			       (uint32_t)n, to + at))
			return false;
	}
	return true;
}

/* Bringing */

/* How many chunks from `first` on are away in the same way, and come at once. */
static uint32_t run_from(const struct soda_region *r, uint32_t first)
{
	uint32_t most = UNIT >> soda_agent.chunk_shift, n = 1;

	while (n < most && first + n < r->first + r->chunks &&
	       state(first + n) == SODA_CHUNK_REMOTE &&
	       chunk(first + n)->list == chunk(first)->list)
		n++;
	return n;
}

/* The caller has the lock. */
static bool bring_run(const struct soda_region *r, uint32_t first)
{
	uint32_t n = run_from(r, first);
	uint64_t bytes = span(r, first, n);
	char *p = (char *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
	int prot = chunk(first)->list;

	if (p == MAP_FAILED) {
		tell("there is no memory, or no mapping (vm.max_map_count), left");
		return false;
	}
	if (!ask(first, bytes, p)) {
		syscall(SYS_munmap, p, bytes);
		return false;
	}
	if (prot != (PROT_READ | PROT_WRITE))
		syscall(SYS_mprotect, p, bytes, prot);
	if ((char *)syscall(SYS_mremap, p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
			    soda_chunk_address(first)) == MAP_FAILED) {
		syscall(SYS_munmap, p, bytes);
		tell("there is no mapping left (vm.max_map_count)");
		return false;
	}
	for (uint32_t i = 0; i < n; i++)
		set(first + i, SODA_CHUNK_DIRTY);
	return true;
}

bool soda_child_bring(const void *addr, size_t bytes)
{
	uint32_t id = soda_chunk_of(addr), last = soda_chunk_of((const char *)addr + bytes - 1);
	int saved = errno;
	sigset_t mask;
	bool good = true;

	soda_signals_block(&mask);
	soda_lock_acquire(&child.asking);
	for (; bytes && good && id <= last; id++)
		if (state(id) == SODA_CHUNK_REMOTE)
			good = bring_run(soda_region_of(id), id);
	soda_lock_release(&child.asking);
	soda_signals_restore(&mask);
	errno = saved;
	return good;
}

/*
 * Whether the instruction may try again.  Not for a page that is here, unless another thread may
 * just have brought it: then the second fault on it is the program's own.
 */
static bool serve(const char *addr)
{
	static __thread const char *tried __attribute__((tls_model("initial-exec")));
	uint32_t id = soda_chunk_of(addr);
	const struct soda_region *r = soda_region_of(id);

	if (!r || id < r->first || id >= r->first + r->chunks)
		return false;
	if (state(id) == SODA_CHUNK_LOST) {
		tell("it was lost before the fork");
		return false;
	}
	if (state(id) == SODA_CHUNK_REMOTE) {
		tried = NULL;
		return chunk(id)->list != PROT_NONE && soda_child_bring(addr, 1);
	}
	if (tried == addr)
		return false;
	tried = addr;
	return true;
}

static void on_sigsegv(int sig, siginfo_t *info, void *context)
{
	int saved = errno;

	/* si_code > 0: from the kernel, not from kill(2) */
	if (info->si_code > 0 && soda_child_has(info->si_addr) && serve(info->si_addr)) {
		errno = saved;
		return;
	}
	errno = saved;
	soda_signals_chain(sig, info, context);
}

void soda_child_zero(char *addr, size_t bytes)
{
	uint64_t size = soda_chunk_bytes();
	char *end = addr + bytes;

	for (char *p = addr, *next; p < end; p = next) {
		uint32_t id = soda_chunk_of(p);
		char *stop;

		next = soda_chunk_address(id) + size;
		stop = next < end ? next : end;
		if (state(id) == SODA_CHUNK_REMOTE && (p > soda_chunk_address(id) || stop < next) &&
		    !soda_child_bring(p, 1))
			continue; /* stays away: a touch of it is the end */
		if (state(id) == SODA_CHUNK_REMOTE) {
			syscall(SYS_mprotect, p, (size_t)(stop - p), chunk(id)->list);
			set(id, SODA_CHUNK_ZERO);
		}
		syscall(SYS_madvise, p, (size_t)(stop - p), MADV_DONTNEED);
	}
}

/* Beginning */

/*
 * The kernel's pages of a chunk that a thread of the parent was bringing or dropping: all of them
 * are there, or what is there is brought anew.
 */
static bool is_here(const struct soda_region *r, uint32_t id)
{
	uint32_t bytes = soda_region_chunk_bytes(r, id), n = 0;
	unsigned char here[512];

	if (bytes / SODA_WIRE_PAGE > sizeof(here) ||
	    syscall(SYS_mincore, soda_chunk_address(id), (size_t)bytes, here))
		return false;
	for (uint32_t i = 0; i < bytes / SODA_WIRE_PAGE; i++)
		n += here[i] & 1;
	return n == bytes / SODA_WIRE_PAGE;
}

/* Say in the table what the chunk is for the child. */
static void settle(const struct soda_region *r, uint32_t id)
{
	switch (state(id)) {
	case SODA_CHUNK_CLEAN:
	case SODA_CHUNK_DIRTY:
		set(id, SODA_CHUNK_DIRTY);
		return;
	case SODA_CHUNK_FETCHING:
	case SODA_CHUNK_BUSY:
		set(id, is_here(r, id) ? SODA_CHUNK_DIRTY : SODA_CHUNK_REMOTE);
		break;
	case SODA_CHUNK_REMOTE:
	case SODA_CHUNK_SHARED:
		set(id, SODA_CHUNK_REMOTE);
		break;
	default:
		return;
	}
	protect_later(id, soda_region_prot(r));
}

static bool is_away(uint32_t id)
{
	return state(id) == SODA_CHUNK_REMOTE || state(id) == SODA_CHUNK_LOST;
}

static int settle_all(struct soda_region *r, void *arg)
{
	/* The pages of an object in the node's store are other processes', too. */
	if (r->shared &&
	    mmap(soda_chunk_address(r->first), r->span, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -errno;
	for (uint32_t id = r->first; id < r->first + r->chunks; id++)
		settle(r, id);
	return 0;
}

/* Close what is away. */
static int close_away(struct soda_region *r, void *arg)
{
	uint32_t end = r->first + r->chunks;

	for (uint32_t id = r->first, n; id < end; id += n) {
		bool away = is_away(id);

		for (n = 1; id + n < end && is_away(id + n) == away; n++)
			;
		if (away && mprotect(soda_chunk_address(id), span(r, id, n), PROT_NONE))
			return -errno;
	}
	return 0;
}

/* A line of /proc/self/maps: its chunks that are away get that protection when they come. */
static void note_protection(const char *line)
{
	unsigned long from, to;
	char r, w;

	if (sscanf(line, "%lx-%lx %c%c", &from, &to, &r, &w) != 4 || !soda_agent_owns((void *)from))
		return;
	for (uint32_t id = soda_chunk_of((void *)from); id <= soda_chunk_of((void *)(to - 1));
	     id++) {
		const struct soda_region *region = soda_region_of(id);

		if (!region) { /* whole granules are no object's */
			id |= (1u << (SODA_GRANULE_SHIFT - soda_agent.chunk_shift)) - 1;
			continue;
		}
		if (!region->shared && state(id) == SODA_CHUNK_REMOTE)
			protect_later(id, (r == 'r' ? PROT_READ : 0) | (w == 'w' ? PROT_WRITE : 0));
	}
}

/* Where the program has changed the protection of fabric memory. */
static bool note_protections(void)
{
	char text[4096];
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t have = 0;
	ssize_t n;

	if (fd < 0)
		return false;
	while ((n = syscall(SYS_read, fd, text + have, sizeof(text) - 1 - have)) > 0) {
		char *line = text, *end;

		have += (size_t)n;
		text[have] = '\0';
		for (; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			note_protection(line);
		}
		have -= (size_t)(line - text);
		memmove(text, line, have);
	}
	syscall(SYS_close, fd);
	return n == 0;
}

bool soda_child_begin(int sock)
{
	struct sigaction sa = { .sa_sigaction = on_sigsegv, .sa_flags = SA_SIGINFO };

	sigemptyset(&sa.sa_mask);
	soda_lock_init(&child.asking, SODA_RANK_VIEWS);
	child.sock = sock;
	child.self = getpid();
	if (soda_regions_each(settle_all, NULL) ||
	    (atomic_load(&soda_child_protections) && !note_protections()) ||
	    soda_regions_each(close_away, NULL) || soda_signals_take(SIGSEGV, &sa))
		return false;
	child.sock = soda_fd_own(sock); /* from now on: soda_fds_forget() came before */
	atomic_store(&child.is, true);
	return true;
}

/* Forks of the child */

static bool pass(int fd)
{
	struct soda_fork_ask ask = { .kind = SODA_FORK_JOIN };
	struct iovec v = { &ask, sizeof(ask) };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { { 0 } };
	struct msghdr m = { .msg_iov = &v,
			    .msg_iovlen = 1,
			    .msg_control = control.bytes,
			    .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	return sendmsg(child.sock, &m, MSG_NOSIGNAL) == sizeof(ask);
}

int soda_child_fork(void)
{
	int ends[2], sock = -1;

	soda_lock_acquire(&child.asking);
	if (child.sock < 0 || getpid() != child.self || soda_fork_pair(ends))
		return -1;
	if (pass(ends[1]))
		sock = ends[0];
	else
		close(ends[0]);
	close(ends[1]);
	return sock;
}

void soda_child_forked(int sock)
{
	if (sock >= 0)
		close(sock);
	soda_lock_release(&child.asking);
}

void soda_child_again(int sock)
{
	if (child.sock >= 0)
		close(child.sock);
	soda_fds_forget();
	child.sock = soda_fd_own(sock);
	child.self = getpid();
	soda_lock_release(&child.asking);
}
