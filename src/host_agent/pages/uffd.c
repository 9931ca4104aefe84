/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_fd.h"

/* The headers of the oldest system that this builds on do not have these. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_FEATURE_POISON
#define UFFD_FEATURE_POISON (1 << 14)
struct uffdio_poison {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define UFFDIO_POISON _IOWR(UFFDIO, 0x08, struct uffdio_poison)
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef MADV_DONTNEED_LOCKED /* Linux 5.18 */
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { MAX_RANGES = 64 };

/* set by soda_uffd_open, then constant */
static struct soda_uffd_info uffd = { .fd = -1 };
static int self_pidfd = -1;
static int drop_advice = MADV_DONTNEED;
static struct iovec registered; /* set by the first soda_uffd_register, then constant */

/* An error that no userfaultfd gives, or that it gives as well as another file: see which it is. */
static void look_whose(int fd, int err)
{
	struct uffdio_range r = { .start = (uintptr_t)registered.iov_base, .len = SODA_WIRE_PAGE };

	if ((err != EBADF && err != ENOTTY && err != EINVAL && err != EPERM && err != EOPNOTSUPP) ||
	    !r.start || syscall(SYS_ioctl, fd, UFFDIO_WAKE, &r) == 0)
		return;
	if (uffd.fd == fd)
		soda_fds_end(fd);
}

/* ioctl without touching errno: 0 or negative errno.  Ends the process if the file is not ours. */
static int uffd_ioctl(unsigned long request, void *arg)
{
	int saved = errno, fd = uffd.fd;
	int ret = syscall(SYS_ioctl, fd, request, arg) < 0 ? -errno : 0;

	if (ret && fd >= 0)
		look_whose(fd, -ret);
	errno = saved;
	return ret;
}

/* Copy one piece. *done_p: how many bytes of it are installed now. */
static int copy_piece(char *dst, const char *src, size_t bytes, bool protect, size_t *done_p)
{
	struct uffdio_copy c = {
		.dst = (uintptr_t)dst,
		.src = (uintptr_t)src,
		.len = bytes,
		.mode = protect ? UFFDIO_COPY_MODE_WP : 0,
	};
	int ret = uffd_ioctl(UFFDIO_COPY, &c);

	*done_p = 0;
	if (ret == 0)
		*done_p = bytes;
	else if (c.copy > 0)
		*done_p = (size_t)c.copy; /* a signed count: cut short, go on from there */
	else if (ret == -EEXIST || c.copy == -EEXIST)
		*done_p = SODA_WIRE_PAGE;		   /* the first page is there: skip it */
	else if (ret == -ENOENT && bytes > SODA_WIRE_PAGE) /* more than one mapping: mprotect */
		return copy_piece(dst, src, SODA_WIRE_PAGE, protect, done_p);
	return *done_p || ret == -EAGAIN ? 0 : ret;
}

static int pager_copy(void *dst, const void *src, size_t bytes, bool protect)
{
	for (size_t at = 0, done; at < bytes; at += done) {
		int ret = copy_piece((char *)dst + at, (const char *)src + at, bytes - at, protect,
				     &done);
		if (ret)
			return ret;
	}
	return 0;
}

static int protect_range(void *addr, size_t bytes, bool on)
{
	struct uffdio_writeprotect wp = {
		.range = { .start = (uintptr_t)addr, .len = bytes },
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};
	int ret;

	do {
		ret = uffd_ioctl(UFFDIO_WRITEPROTECT, &wp);
	} while (ret == -EAGAIN);
	return ret;
}

static int pager_protect(void *addr, size_t bytes, bool on)
{
	int ret = protect_range(addr, bytes, on);

	if (ret != -ENOENT || bytes <= SODA_WIRE_PAGE)
		return ret;
	/* more than one mapping, as mprotect leaves them: before Linux 6.3 */
	ret = 0;
	for (size_t at = 0; at < bytes && !ret; at += SODA_WIRE_PAGE)
		ret = protect_range((char *)addr + at, SODA_WIRE_PAGE, on);
	return ret;
}

static int drop_range(void *addr, size_t bytes)
{
	int saved = errno;
	int ret = syscall(SYS_madvise, addr, bytes, drop_advice) ? -errno : 0;

	errno = saved;
	return ret == -ENOMEM ? 0
			      : ret; /* the range has a hole; what was mapped has been dropped */
}

/*
 * Before Linux 5.18 locked pages cannot be dropped, so none of ours may be locked: munlock all of
 * the range at once, because each piece would be a mapping of its own, and the kernel limits those.
 */
static void unlock_all(void)
{
	int saved = errno;

	if (drop_advice == MADV_DONTNEED)
		syscall(SYS_munlock, registered.iov_base, registered.iov_len);
	errno = saved;
}

/*
 * Drop a range again that the kernel refused, perhaps in the middle: page by page, to see how far
 * it comes.  Pages that were dropped before may be dropped once more.
 */
static int drop_slowly(const struct iovec *range, size_t *dropped_p)
{
	int ret;

	unlock_all();
	ret = drop_range(range->iov_base, range->iov_len);
	if (!ret) {
		*dropped_p += range->iov_len;
		return 0;
	}
	for (size_t at = 0; at < range->iov_len; at += SODA_WIRE_PAGE) {
		ret = drop_range((char *)range->iov_base + at, SODA_WIRE_PAGE);
		if (ret)
			return ret;
		*dropped_p += SODA_WIRE_PAGE;
	}
	return 0;
}

/* Drop ranges with one call; how many of them were dropped. */
static int drop_batch(const struct iovec *ranges, int n, size_t *dropped_p)
{
	int saved = errno, i = 0;
	long got = syscall(SYS_process_madvise, self_pidfd, ranges, n, drop_advice, 0);

	errno = saved;
	for (; i < n && got >= (long)ranges[i].iov_len; i++) {
		got -= (long)ranges[i].iov_len;
		*dropped_p += ranges[i].iov_len;
	}
	return i;
}

static int pager_drop(const struct iovec *ranges, int n, size_t *dropped_p)
{
	int i = 0, ret = 0;

	*dropped_p = 0;
	if (uffd.batch_drop && n > 1)
		i = drop_batch(ranges, n, dropped_p);
	for (; i < n && !ret; i++) {
		ret = drop_range(ranges[i].iov_base, ranges[i].iov_len);
		if (ret)
			ret = drop_slowly(&ranges[i], dropped_p);
		else
			*dropped_p += ranges[i].iov_len;
	}
	return ret;
}

static int pager_wake(void *addr, size_t bytes)
{
	struct uffdio_range r = { .start = (uintptr_t)addr, .len = bytes };

	return uffd_ioctl(UFFDIO_WAKE, &r);
}

static int pager_poison(void *addr, size_t bytes)
{
	/* A program may want to abort, with the reason, before its thread gets SIGBUS. */
	struct uffdio_poison p = { .range = { .start = (uintptr_t)addr, .len = bytes },
				   .mode = 1 /* UFFDIO_POISON_MODE_DONTWAKE */ };

	return uffd.poison ? uffd_ioctl(UFFDIO_POISON, &p) : -ENOTSUP;
}

/* Map one piece. *done_p: how many bytes of it are mapped now. */
static int map_piece(char *addr, size_t bytes, size_t *done_p)
{
	struct uffdio_continue c = { .range = { .start = (uintptr_t)addr, .len = bytes } };
	int ret = uffd_ioctl(UFFDIO_CONTINUE, &c);

	*done_p = 0;
	if (ret == 0)
		*done_p = bytes;
	else if (c.mapped > 0)
		*done_p = (size_t)c.mapped; /* a signed count, as of UFFDIO_COPY */
	else if (ret == -EEXIST || c.mapped == -EEXIST)
		*done_p = SODA_WIRE_PAGE;		   /* the first page is mapped: skip it */
	else if (ret == -ENOENT && bytes > SODA_WIRE_PAGE) /* more than one mapping: mprotect */
		return map_piece(addr, SODA_WIRE_PAGE, done_p);
	return *done_p || ret == -EAGAIN ? 0 : ret;
}

static int pager_map(void *addr, size_t bytes)
{
	for (size_t at = 0, done; at < bytes; at += done) {
		int ret = map_piece((char *)addr + at, bytes - at, &done);

		if (ret)
			return ret;
	}
	return 0;
}

const struct soda_page_ops soda_uffd_page_ops = {
	.copy = pager_copy,
	.protect = pager_protect,
	.drop = pager_drop,
	.wake = pager_wake,
	.poison = pager_poison,
	.map = pager_map,
};

static int open_syscall(int flags)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags);

	return fd < 0 ? -errno : fd;
}

static int open_device(int flags)
{
	int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	int fd;

	if (dev < 0)
		return -errno;
	fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK | flags);
	if (fd < 0)
		fd = -errno;
	close(dev);
	return fd;
}

static bool refused(int fd)
{
	return fd == -EPERM || fd == -EACCES || fd == -ENOSYS;
}

/*
 * In inline mode faults of system calls are never served, so the least privilege
 * will do.  Otherwise the most capable way comes first.
 */
static int open_any(bool kernel_faults, struct soda_uffd_info *info)
{
	int fd = -EPERM;

	info->how = "userfaultfd(2)";
	info->user_only = !kernel_faults;
	if (kernel_faults)
		fd = open_syscall(0);
	if (refused(fd)) {
		info->user_only = true;
		if (kernel_faults) {
			int dev = open_device(0);
			if (dev >= 0) {
				info->how = "/dev/userfaultfd";
				info->user_only = false;
				return dev;
			}
		}
		fd = open_syscall(UFFD_USER_MODE_ONLY);
	}
	if (fd == -EINVAL) /* before Linux 5.11 */
		fd = open_syscall(0);
	if (refused(fd)) { /* by a filter of system calls */
		int dev = open_device(UFFD_USER_MODE_ONLY);

		if (dev >= 0) {
			info->how = "/dev/userfaultfd";
			return dev;
		}
	}
	return fd;
}

/* A number that stands behind a word in a small file of /proc; -1: it is not there. */
static int proc_number(const char *path, const char *word)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), number = -1;
	char text[4096];
	const char *at;
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	at = strstr(text, word);
	if (at && sscanf(at + strlen(word), "%d", &number) != 1)
		number = -1;
	return number;
}

/* A sentence about who refuses the system call. */
static const char *refuser(void)
{
	if (proc_number("/proc/self/status", "\nSeccomp:") > 0)
		return "a seccomp filter forbids the call: allow userfaultfd in the container's "
		       "profile";
	if (proc_number("/proc/sys/vm/unprivileged_userfaultfd", "") == 0)
		return "vm.unprivileged_userfaultfd is 0, which before Linux 5.11 forbids it: "
		       "sysctl -w vm.unprivileged_userfaultfd=1";
	return "a security module, or the kernel, forbids it to this user";
}

static int explain(int err, struct soda_why *why)
{
	bool hidden = err == -ENOSYS && proc_number("/proc/self/status", "\nSeccomp:") > 0;
	const char *device = access("/dev/userfaultfd", F_OK)
				     ? "there is no /dev/userfaultfd (Linux 6.1) either"
				     : "or give access to /dev/userfaultfd: setfacl -m u:USER:rw "
				       "/dev/userfaultfd";

	if (err == -EPERM || err == -EACCES || hidden)
		snprintf(why->text, sizeof(why->text), "userfaultfd is refused (%s): %s; %s",
			 soda_strerror(err), refuser(), device);
	else if (err == -ENOSYS)
		snprintf(why->text, sizeof(why->text),
			 "the kernel has no userfaultfd: it must be built with CONFIG_USERFAULTFD");
	else
		snprintf(why->text, sizeof(why->text), "userfaultfd failed: %s",
			 soda_strerror(err));
	return err;
}

static int handshake(int fd, uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };

	return ioctl(fd, UFFDIO_API, &api) ? -errno : 0;
}

/* The features that this kernel offers; a descriptor can shake hands only once. */
static uint64_t offered(int flags)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = open_syscall(flags);

	if (fd < 0)
		fd = open_syscall(UFFD_USER_MODE_ONLY);
	if (fd < 0)
		fd = open_device(0);
	if (fd < 0)
		fd = open_device(UFFD_USER_MODE_ONLY);
	if (fd < 0)
		return 0;
	if (ioctl(fd, UFFDIO_API, &api))
		api.features = 0;
	close(fd);
	return api.features;
}

/* Whether the kernel has an advice that drops locked pages, too. */
static bool probe_drop_locked(void)
{
	char *p = mmap(NULL, SODA_WIRE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	bool works;

	if (p == MAP_FAILED)
		return false;
	*p = 1;
	works = madvise(p, SODA_WIRE_PAGE, MADV_DONTNEED_LOCKED) == 0 && *p == 0;
	munmap(p, SODA_WIRE_PAGE);
	return works;
}

/* A batch of DONTNEED on oneself works since Linux 6.13; ask for one on pages of our own. */
static bool probe_batch_drop(void)
{
	size_t page = SODA_WIRE_PAGE;
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec v[2];
	bool works;

	if (p == MAP_FAILED)
		return false;
	self_pidfd = soda_fd_own((int)syscall(SYS_pidfd_open, getpid(), 0));
	p[0] = p[page] = 1;
	v[0] = (struct iovec){ p, page };
	v[1] = (struct iovec){ p + page, page };
	works = self_pidfd >= 0 &&
		syscall(SYS_process_madvise, self_pidfd, v, 2, drop_advice, 0) ==
			(long)(2 * page) &&
		p[0] == 0 && p[page] == 0;
	munmap(p, 2 * page);
	return works;
}

int soda_uffd_open(bool sigbus, bool plain, bool kernel_faults, struct soda_uffd_info *info,
		   struct soda_why *why)
{
	struct soda_uffd_info in = { .fd = -1 };
	uint64_t have, want = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
	int fd, ret;

	soda_fds_start();
	have = offered(kernel_faults ? 0 : UFFD_USER_MODE_ONLY);
	if (sigbus)
		want |= UFFD_FEATURE_SIGBUS;
	else
		want |= have & UFFD_FEATURE_THREAD_ID;
	if (!plain)
		want |= have & (UFFD_FEATURE_POISON | UFFD_FEATURE_MINOR_SHMEM);
	in.thread_id = want & UFFD_FEATURE_THREAD_ID;
	in.poison = want & UFFD_FEATURE_POISON;
	in.minor = want & UFFD_FEATURE_MINOR_SHMEM;
	fd = open_any(kernel_faults, &in);
	if (fd < 0)
		return explain(fd, why);
	ret = handshake(fd, want);
	if (ret) {
		close(fd);
		snprintf(why->text, sizeof(why->text),
			 "this kernel's userfaultfd has no write-protect faults%s (needs Linux "
			 "5.7): %s",
			 sigbus ? " or no SIGBUS mode" : "", soda_strerror(ret));
		return -ENOTSUP;
	}
	in.fd = soda_fd_own(fd);
	drop_advice = !plain && probe_drop_locked() ? MADV_DONTNEED_LOCKED : MADV_DONTNEED;
	in.batch_drop = !plain && probe_batch_drop();
	uffd = in;
	*info = in;
	return 0;
}

int soda_uffd_register(void *addr, size_t bytes)
{
	struct uffdio_register r = {
		.range = { .start = (uintptr_t)addr, .len = bytes },
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP,
	};

	if (!registered.iov_base)
		registered = (struct iovec){ addr, bytes };
	return uffd_ioctl(UFFDIO_REGISTER, &r);
}

int soda_uffd_register_shared(void *addr, size_t bytes)
{
	struct uffdio_register r = {
		.range = { .start = (uintptr_t)addr, .len = bytes },
		.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR,
	};

	return uffd_ioctl(UFFDIO_REGISTER, &r);
}

void soda_uffd_close(void)
{
	int fd = uffd.fd;

	uffd.fd = -1; /* a thread that still asks it must not take it for lost */
	soda_fd_close(fd);
	soda_fd_close(self_pidfd);
	self_pidfd = -1;
	registered = (struct iovec){ NULL, 0 };
}
