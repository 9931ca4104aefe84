/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/movement/source.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum {
	SPANS = 512,	   /* of one process_vm_readv(), which takes at most 1024 */
	SEEN_NS = 1000000, /* that the process lives is asked again after so long */
};

/* System calls */

static int real_pidfd_open(pid_t pid)
{
	long fd = syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : (int)fd;
}

static int real_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, 0);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static ssize_t real_readv(pid_t pid, const struct iovec *local, unsigned long local_n,
			  const struct iovec *remote, unsigned long remote_n)
{
	ssize_t n = process_vm_readv(pid, local, local_n, remote, remote_n, 0);

	return n < 0 ? -errno : n;
}

struct soda_source_ops soda_source_ops = {
	.pidfd_open = real_pidfd_open,
	.ended = real_ended,
	.readv = real_readv,
};

/* The capability */

static int change_ptrace(bool on, bool *had_p)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	const uint32_t bit = 1u << CAP_SYS_PTRACE;

	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	*had_p = data[0].effective & bit;
	if (*had_p == on)
		return 0;
	data[0].effective ^= bit;
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int soda_source_renounce(bool *had_p)
{
	return change_ptrace(false, had_p);
}

void soda_source_resume(void)
{
	bool had;

	change_ptrace(true, &had);
}

/* Reading */

/* All of the bytes, or -EFAULT. */
static int read_all(pid_t pid, const struct iovec *local, unsigned local_n,
		    const struct iovec *remote, unsigned remote_n, uint64_t bytes)
{
	ssize_t got = soda_source_ops.readv(pid, local, local_n, remote, remote_n);

	return got < 0 ? (int)got : (uint64_t)got == bytes ? 0 : -EFAULT;
}

static int read_token(const struct soda_source *src)
{
	uint8_t found[SODA_MOVE_TOKEN_BYTES];
	struct iovec local = { found, sizeof(found) };
	struct iovec remote = { (void *)(uintptr_t)src->token_at, sizeof(found) };
	int ret = read_all(src->pid, &local, 1, &remote, 1, sizeof(found));

	if (ret == 0 && memcmp(found, src->token, sizeof(found)))
		ret = -EFAULT;
	return ret;
}

int soda_source_open(struct soda_source *src, pid_t pid, uint64_t token_at,
		     const uint8_t token[SODA_MOVE_TOKEN_BYTES])
{
	bool had;
	int ret;

	*src = (struct soda_source){ .pidfd = -1, .pid = pid, .token_at = token_at };
	memcpy(src->token, token, SODA_MOVE_TOKEN_BYTES);
	if (pid <= 0 || !token_at)
		return -ESRCH;
	src->pidfd = soda_source_ops.pidfd_open(pid);
	if (src->pidfd < 0)
		return src->pidfd == -ENOSYS ? -ENOTSUP : src->pidfd;
	ret = soda_source_renounce(&had);
	if (ret == 0) {
		ret = read_token(src);
		if (had)
			soda_source_resume();
	}
	/* the process that was read is the one of the pidfd only if that lives still */
	if (ret == 0)
		ret = soda_source_alive(src);
	if (ret < 0)
		soda_source_close(src);
	return ret == -ENOSYS ? -ENOTSUP : ret;
}

void soda_source_close(struct soda_source *src)
{
	if (src->pidfd >= 0)
		close(src->pidfd);
	src->pidfd = -1;
}

int soda_source_alive(struct soda_source *src)
{
	if (soda_source_ops.ended(src->pidfd))
		return -ESRCH;
	src->seen_ns = soda_now_ns();
	return 0;
}

int soda_source_begin(struct soda_source *src)
{
	if (soda_now_ns() - src->seen_ns < SEEN_NS)
		return 0;
	return soda_source_alive(src);
}

int soda_source_check(struct soda_source *src, bool proof)
{
	if (!proof && read_token(src) < 0)
		return -ESRCH;
	return soda_source_alive(src);
}

/* Whether a span continues the one before it on this side. */
static bool continues(const struct iovec *iov, const uint8_t *at)
{
	return (const uint8_t *)iov->iov_base + iov->iov_len == at;
}

/* One system call's worth: where it lies on both sides. */
struct batch {
	struct iovec local[SPANS + 1], remote[SPANS + 1];
	unsigned local_n, remote_n;
	uint64_t bytes;
};

static void add(struct batch *b, const struct soda_piece_span *span, uint8_t *to)
{
	if (b->local_n && continues(&b->local[b->local_n - 1], to))
		b->local[b->local_n - 1].iov_len += span->bytes;
	else
		b->local[b->local_n++] = (struct iovec){ to, span->bytes };
	b->remote[b->remote_n++] = (struct iovec){ (void *)(uintptr_t)span->from, span->bytes };
	b->bytes += span->bytes;
}

/* In the order of the list, process_vm_readv(2): the token behind the data. */
static int read_with_token(const struct soda_source *src, struct batch *b, bool *proof_p)
{
	uint8_t token[SODA_MOVE_TOKEN_BYTES];
	int ret;

	b->local[b->local_n++] = (struct iovec){ token, sizeof(token) };
	b->remote[b->remote_n++] =
		(struct iovec){ (void *)(uintptr_t)src->token_at, sizeof(token) };
	ret = read_all(src->pid, b->local, b->local_n, b->remote, b->remote_n,
		       b->bytes + sizeof(token));
	*proof_p = ret == 0 && !memcmp(token, src->token, sizeof(token));
	return ret;
}

int soda_source_read(const struct soda_source *src, struct soda_piece_walk *walk, uint8_t *dest,
		     uint64_t max, bool prove, struct soda_source_got *got_p)
{
	struct soda_source_got got = { 0 };
	struct soda_piece_span span;
	struct batch b;
	int ret = 0;

	b.local_n = b.remote_n = 0;
	b.bytes = 0;
	while (b.remote_n < SPANS && got.bytes < max &&
	       soda_piece_walk_next(walk, max - got.bytes, &span)) {
		if (soda_wire_piece_in_area(&walk->pieces[span.piece])) {
			memcpy(dest + span.offset, (const void *)(uintptr_t)span.from, span.bytes);
			got.shared += span.bytes;
		} else {
			add(&b, &span, dest + span.offset);
		}
		got.bytes += span.bytes;
	}
	if (b.remote_n && prove)
		ret = read_with_token(src, &b, &got.proof);
	else if (b.remote_n)
		ret = read_all(src->pid, b.local, b.local_n, b.remote, b.remote_n, b.bytes);
	*got_p = got;
	return ret;
}
