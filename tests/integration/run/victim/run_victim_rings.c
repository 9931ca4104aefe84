/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers that the kernel makes while the program goes on: io_submit() and io_uring. */
#include "run_victim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

enum { DEEP = 32, PIECE = 256 << 10 };

/* libaio's functions, or system calls; each returns a negative error. */
struct calls {
	int (*setup)(int, aio_context_t *);
	int (*submit)(aio_context_t, long, struct iocb **);
	int (*events)(aio_context_t, long, long, struct io_event *, struct timespec *);
};

static int raw_setup(int n, aio_context_t *p)
{
	return syscall(SYS_io_setup, n, p) ? -errno : 0;
}

static int raw_submit(aio_context_t c, long n, struct iocb **v)
{
	long ret = syscall(SYS_io_submit, c, n, v);

	return ret < 0 ? -errno : (int)ret;
}

static int raw_events(aio_context_t c, long least, long n, struct io_event *p, struct timespec *t)
{
	long ret = syscall(SYS_io_getevents, c, least, n, p, t);

	return ret < 0 ? -errno : (int)ret;
}

/* All that the kernel is told lies in fabric memory, and nothing of it is resident. */
struct table {
	aio_context_t context;
	struct iocb cb[DEEP], *v[DEEP];
	struct io_event events[DEEP];
	struct timespec until;
	struct iovec vector[2];
};

static void away(void *p, size_t n)
{
	CHECK(!madvise(p, n, MADV_PAGEOUT));
}

static void prepare(struct table *t, unsigned i, int fd, unsigned char *p, bool out)
{
	t->v[i] = &t->cb[i];
	t->cb[i] = (struct iocb){
		.aio_data = 1000 + i,
		.aio_lio_opcode = out ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
		.aio_fildes = (uint32_t)fd,
		.aio_buf = (uintptr_t)(p + (size_t)i * PIECE),
		.aio_nbytes = PIECE,
		.aio_offset = (int64_t)i * PIECE,
	};
}

/* Each has come, once, with that result, and with what the program gave it. */
static void collect(const struct calls *calls, struct table *t, int n, int64_t result)
{
	uint64_t seen = 0;

	for (int got, had = 0; had < n; had += got) {
		t->until = (struct timespec){ 60, 0 };
		away(t, sizeof(*t));
		got = calls->events(t->context, 1, DEEP, t->events, &t->until);
		CHECK(got > 0);
		for (int i = 0; i < got; i++) {
			uint64_t which = t->events[i].data - 1000;

			CHECK(which < DEEP && !(seen >> which & 1));
			CHECK(t->events[i].obj == (uintptr_t)&t->cb[which]);
			CHECK(t->events[i].res == result);
			seen |= 1ull << which;
		}
	}
}

static void pass(const struct calls *calls, struct table *t, int fd, unsigned char *p, bool out)
{
	for (unsigned i = 0; i < DEEP; i++)
		prepare(t, i, fd, p, out);
	away(t, sizeof(*t));
	for (long done = 0, n; done < DEEP; done += n) {
		n = calls->submit(t->context, DEEP - done, t->v + done);
		CHECK(n > 0);
	}
	collect(calls, t, DEEP, PIECE);
	for (unsigned i = 0; i < DEEP; i++) /* they are the program's, as it has made them */
		CHECK(t->cb[i].aio_buf == (uintptr_t)(p + (size_t)i * PIECE) &&
		      t->cb[i].aio_fildes == (uint32_t)fd && t->cb[i].aio_nbytes == PIECE);
}

static void one(const struct calls *calls, struct table *t, int result)
{
	away(t, sizeof(*t));
	CHECK(calls->submit(t->context, 1, t->v) == 1);
	collect(calls, t, 1, result);
}

static void check_vectors(const struct calls *calls, struct table *t, int fd, unsigned char *p)
{
	memset(p, 0, DEEP * PIECE);
	prepare(t, 0, fd, p, false);
	t->vector[0] = (struct iovec){ p, PAGE };
	t->vector[1] = (struct iovec){ p + PAGE, PIECE };
	t->cb[0].aio_lio_opcode = IOCB_CMD_PREADV;
	t->cb[0].aio_buf = (uintptr_t)t->vector;
	t->cb[0].aio_nbytes = 2;
	one(calls, t, PIECE + PAGE);
	verify(p, PIECE + PAGE, 21);
	t->cb[0].aio_lio_opcode = IOCB_CMD_PWRITEV;
	one(calls, t, PIECE + PAGE);
}

/* The end of the file, an eventfd, what has no data, and what is refused. */
static void check_rest(const struct calls *calls, struct table *t, int fd, unsigned char *p)
{
	int event = eventfd(0, 0), ends[2];
	uint64_t n;

	prepare(t, 0, fd, p, false);
	t->cb[0].aio_offset = DEEP * PIECE;
	t->cb[0].aio_flags = IOCB_FLAG_RESFD;
	t->cb[0].aio_resfd = (uint32_t)event;
	one(calls, t, 0);
	CHECK(read(event, &n, sizeof(n)) == sizeof(n) && n == 1);
	prepare(t, 0, fd, p, false);
	t->cb[0].aio_lio_opcode = IOCB_CMD_FSYNC;
	t->cb[0].aio_buf = t->cb[0].aio_nbytes = 0;
	t->cb[0].aio_offset = 0;
	one(calls, t, 0);
	prepare(t, 0, 999, p, false);
	CHECK(calls->submit(t->context, 1, t->v) == -EBADF);
	CHECK(!pipe(ends) && write(ends[1], "hello", 5) == 5);
	prepare(t, 0, ends[0], p, false);
	CHECK(calls->submit(t->context, 1, t->v) == -EINVAL);
	CHECK(calls->submit(t->context, 0, t->v) == 0);
	close(ends[0]);
	close(ends[1]);
	close(event);
}

static void check(const struct calls *calls, int fd, int plain)
{
	unsigned char *p = aligned_alloc(PAGE, DEEP * PIECE),
		      *q = aligned_alloc(PAGE, DEEP * PIECE);
	struct table *t = aligned_alloc(PAGE, MIB);

	CHECK(p && q && t && in_fam(p) && in_fam(q) && in_fam(t));
	memset(t, 0, sizeof(*t));
	away(t, sizeof(*t));
	CHECK(!calls->setup(DEEP, &t->context) && t->context);
	fill(p, DEEP * PIECE, 21);
	pass(calls, t, fd, p, true);
	CHECK(pread(plain, q, DEEP * PIECE, 0) == DEEP * PIECE);
	verify(q, DEEP * PIECE, 21);
	memset(q, 0, DEEP * PIECE);
	pass(calls, t, fd, q, false);
	verify(q, DEEP * PIECE, 21);
	check_vectors(calls, t, fd, q);
	check_rest(calls, t, fd, q);
	CHECK(!syscall(SYS_io_destroy, t->context));
	free(p);
	free(q);
	free(t);
}

/* libaio's and liburing's, which come late, or not at all. */
#define LATE __attribute__((weak))
LATE int io_setup(int n, aio_context_t *p);
LATE int io_submit(aio_context_t c, long n, struct iocb **v);
LATE int io_getevents(aio_context_t c, long least, long n, struct io_event *p, struct timespec *t);
LATE int io_pgetevents(aio_context_t c, long least, long n, struct io_event *p, struct timespec *t,
		       sigset_t *mask);
LATE int io_uring_queue_init(unsigned n, void *ring, unsigned flags);
LATE int io_uring_queue_init_params(unsigned n, void *ring, struct io_uring_params *params);
LATE int io_uring_queue_init_mem(unsigned n, void *ring, struct io_uring_params *params, void *at,
				 size_t bytes);
LATE int io_uring_setup(unsigned n, struct io_uring_params *params);

/* The mask lies in fabric memory, too. */
static int wait_masked(aio_context_t c, long least, long n, struct io_event *p, struct timespec *t)
{
	static sigset_t *mask;

	if (!mask) {
		mask = aligned_alloc(PAGE, MIB);
		CHECK(mask && in_fam(mask) && !sigemptyset(mask));
	}
	away(mask, PAGE);
	return io_pgetevents(c, least, n, p, t, mask);
}

/* A file for transfers past the page cache, where the file system has them. */
static int open_direct(char *name, int *plain_p)
{
	int fd;

	*plain_p = mkstemp(name);
	CHECK(*plain_p >= 0);
	fd = open(name, O_RDWR | O_DIRECT);
	if (fd < 0)
		fd = open(name, O_RDWR);
	unlink(name);
	CHECK(fd >= 0);
	return fd;
}

void case_submit(void)
{
	struct calls calls = { raw_setup, raw_submit, raw_events };
	char name[] = "/var/tmp/soda-run-XXXXXX";
	int plain, fd = open_direct(name, &plain);

	check(&calls, fd, plain);
	check(&calls, plain, plain);
	if (dlopen("libaio.so.1", RTLD_NOW | RTLD_GLOBAL)) {
		check(&(struct calls){ io_setup, io_submit, io_getevents }, fd, plain);
		check(&(struct calls){ io_setup, io_submit, wait_masked }, fd, plain);
	} else {
		CHECK(!io_setup || io_setup(1, NULL) == -ENOSYS);
	}
	close(fd);
	close(plain);
}

/* The answer to a program that asks for rings, by a system call and as one that has liburing. */
static int ask(void)
{
	struct io_uring_params params = { 0 };
	long fd = syscall(SYS_io_uring_setup, 4, &params);

	if (fd < 0)
		return errno;
	close((int)fd);
	return 0;
}

static int ask_liburing(void)
{
	struct io_uring_params params = { 0 };
	char ring[4096] __attribute__((aligned(16)));
	int ret;

	dlopen("liburing.so.2", RTLD_NOW | RTLD_GLOBAL);
	ret = -io_uring_queue_init(4, ring, 0);
	CHECK(-io_uring_queue_init_params(4, ring, &params) == ret);
	return ret;
}

void case_refused(void)
{
	struct io_uring_params params = { 0 };

	CHECK(malloc(BIG));
	CHECK(ask() == ENOSYS && ask_liburing() == ENOSYS);
	/* what older ones of it do not have */
	CHECK(io_uring_setup(4, &params) == -ENOSYS);
	CHECK(io_uring_queue_init_mem(4, NULL, &params, NULL, 0) == -ENOSYS);
}

/* As the kernel answers, which may have none either. */
void case_allowed(void)
{
	CHECK(malloc(BIG));
	CHECK(ask() == ask_liburing() || !dlopen("liburing.so.2", RTLD_NOW));
}

/* A ring of our own, by system calls alone */

enum { HELD = 16 * MIB };

struct ring {
	int fd;
	unsigned char *queues;
	struct io_uring_sqe *entries;
	struct io_uring_params params;
};

static _Atomic uint32_t *word(const struct ring *r, uint32_t offset)
{
	return (_Atomic uint32_t *)(void *)(r->queues + offset);
}

/* False: the kernel has no rings for us. */
static bool ring_open(struct ring *r)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
	size_t bytes;

	*r = (struct ring){ .fd = -1 };
	r->fd = (int)syscall(SYS_io_uring_setup, DEEP, &r->params);
	if (r->fd < 0)
		return false;
	CHECK(r->params.features & IORING_FEAT_SINGLE_MMAP);
	bytes = r->params.cq_off.cqes + r->params.cq_entries * sizeof(struct io_uring_cqe);
	r->queues = mmap(NULL, bytes, prot, flags, r->fd, IORING_OFF_SQ_RING);
	r->entries = mmap(NULL, r->params.sq_entries * sizeof(*r->entries), prot, flags, r->fd,
			  IORING_OFF_SQES);
	CHECK(r->queues != MAP_FAILED && r->entries != MAP_FAILED);
	return true;
}

static void ring_put(struct ring *r, int opcode, int fd, unsigned char *p, off_t at)
{
	_Atomic uint32_t *tail = word(r, r->params.sq_off.tail);
	uint32_t slot = *tail & *word(r, r->params.sq_off.ring_mask);

	r->entries[slot] = (struct io_uring_sqe){ .opcode = (uint8_t)opcode,
						  .fd = fd,
						  .addr = (uintptr_t)p,
						  .len = PIECE,
						  .off = (uint64_t)at };
	word(r, r->params.sq_off.array)[slot] = slot;
	++*tail;
}

static void ring_take(struct ring *r)
{
	_Atomic uint32_t *head = word(r, r->params.cq_off.head);
	uint32_t slot = *head & *word(r, r->params.cq_off.ring_mask);
	const struct io_uring_cqe *cqes = (void *)(r->queues + r->params.cq_off.cqes);

	CHECK(*head != *word(r, r->params.cq_off.tail));
	CHECK(cqes[slot].res == PIECE);
	++*head;
}

/* The whole file, from or to p, all requests of a round at once, and the program works beside. */
static void ring_pass(struct ring *r, int opcode, int fd, unsigned char *p)
{
	static unsigned char *other;
	int n = HELD / PIECE < DEEP ? HELD / PIECE : DEEP;

	if (!other)
		other = malloc(4 * MIB);
	for (int first = 0; first < HELD / PIECE; first += n) {
		for (int i = first; i < first + n; i++)
			ring_put(r, opcode, fd, p + (size_t)i * PIECE, (off_t)i * PIECE);
		CHECK(syscall(SYS_io_uring_enter, r->fd, n, 0, 0, NULL, 0) == n);
		fill(other, 4 * MIB, (unsigned)first);
		CHECK(syscall(SYS_io_uring_enter, r->fd, 0, n, IORING_ENTER_GETEVENTS, NULL, 0) >=
		      0);
		for (int i = 0; i < n; i++)
			ring_take(r);
		verify(other, 4 * MIB, (unsigned)first);
	}
}

/* Mappings that were held stay so when they become zeros, accessible, longer. */
static void check_held_mapping(struct ring *r, int fd, unsigned char *p)
{
	CHECK(!madvise(p, HELD, MADV_DONTNEED));
	CHECK(!p[0] && !p[HELD - 1]);
	ring_pass(r, IORING_OP_READ, fd, p);
	verify(p, HELD, 31);
	CHECK(!madvise(p, HELD, MADV_DONTNEED) && !mprotect(p, HELD, PROT_NONE));
	CHECK(!mprotect(p, HELD, PROT_READ | PROT_WRITE));
	ring_pass(r, IORING_OP_READ, fd, p);
	verify(p, HELD, 31);
	CHECK(!munlock(p, HELD));
	away(p, HELD);
	ring_pass(r, IORING_OP_WRITE, fd, p);
	p = mremap(p, HELD, 2 * HELD, MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED && !p[HELD] && !p[2 * HELD - 1]);
	ring_pass(r, IORING_OP_READ, fd, p + HELD);
	verify(p, HELD, 31);
	verify(p + HELD, HELD, 31);
	CHECK(!munmap(p, 2 * HELD));
}

/* Blocks and mappings that are larger than the page buffer, and away when the ring comes. */
void case_rings_held(void)
{
	char name[] = "/var/tmp/soda-run-XXXXXX";
	int plain, fd = open_direct(name, &plain), status;
	unsigned char *q = aligned_alloc(PAGE, HELD), *p = mmap(NULL, HELD, PROT_READ | PROT_WRITE,
								MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ring r;
	pid_t child;

	CHECK(q && in_fam(q) && p != MAP_FAILED && in_fam(p));
	fill(p, HELD, 31);
	away(p, HELD);
	if (!ring_open(&r)) {
		CHECK(errno == ENOSYS || errno == EPERM);
		puts("no rings here");
		return;
	}
	CHECK(!in_fam(malloc(BIG)) && !in_fam(realloc(malloc(BIG), 2 * BIG)));
	ring_pass(&r, IORING_OP_WRITE, fd, p);
	ring_pass(&r, IORING_OP_READ, fd, q);
	verify(q, HELD, 31);
	child = fork();
	if (!child) {
		struct ring mine;

		fill(q, HELD, 5);
		CHECK(ring_open(&mine));
		ring_pass(&mine, IORING_OP_READ, fd, q);
		verify(q, HELD, 31);
		verify(p, HELD, 31);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
	q = realloc(q, 2 * HELD);
	CHECK(q && !in_fam(q));
	verify(q, HELD, 31);
	free(q);
	check_held_mapping(&r, fd, p);
	puts("held");
}

/* The child of a fork asks for a ring first: what it got from its parent is brought to it. */
void case_rings_child(void)
{
	char name[] = "/var/tmp/soda-run-XXXXXX";
	int plain, fd = open_direct(name, &plain), status;
	unsigned char *p = aligned_alloc(PAGE, HELD);
	pid_t child;

	CHECK(p && in_fam(p));
	fill(p, HELD, 31);
	away(p, HELD);
	child = fork();
	if (!child) {
		struct ring r;

		if (!ring_open(&r))
			_exit(0);
		ring_pass(&r, IORING_OP_WRITE, fd, p);
		memset(p, 0, HELD);
		ring_pass(&r, IORING_OP_READ, fd, p);
		verify(p, HELD, 31);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
	verify(p, HELD, 31);
}
