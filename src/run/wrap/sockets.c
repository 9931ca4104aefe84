/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recv, send and their family on buffers in fabric memory.  A message goes through a bounce buffer
 * of its size, because it must be sent or received as one; of a stream one call transfers as much
 * as the bounce buffer holds, as a program must expect that it gets less than it has asked for. The
 * kernel must have copied the bounce buffer when a call returns, so MSG_ZEROCOPY is refused.
 */
#include "run/core/run.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { MESSAGE_MAX = 4 << 20 };

static ssize_t (*next_recv)(int, void *, size_t, int);
static ssize_t (*next_send)(int, const void *, size_t, int);
static ssize_t (*next_recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
static ssize_t (*next_sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
static ssize_t (*next_recvmsg)(int, struct msghdr *, int);
static ssize_t (*next_sendmsg)(int, const struct msghdr *, int);

static int (*next_recvmmsg)(int, struct mmsghdr *, unsigned, int, struct timespec *);
static int (*next_sendmmsg)(int, struct mmsghdr *, unsigned, int);

static bool message_concerns(const struct msghdr *m, const void *caller)
{
	if (run_is_ours(caller))
		return false;
	if (run_fam(m) || run_fam(m->msg_name) || run_fam(m->msg_control) || run_fam(m->msg_iov))
		return true;
	for (size_t i = 0; i < m->msg_iovlen; i++)
		if (run_fam(m->msg_iov[i].iov_base))
			return true;
	return false;
}

static size_t length(const struct msghdr *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->msg_iovlen; i++)
		if (__builtin_add_overflow(n, m->msg_iov[i].iov_len, &n))
			return SIZE_MAX;
	return n;
}

/* Copy between the vector and the bounce buffer. */
static void copy(const struct msghdr *m, char *bounce, size_t bytes, bool out)
{
	for (size_t i = 0; i < m->msg_iovlen && bytes; i++) {
		size_t n = m->msg_iov[i].iov_len < bytes ? m->msg_iov[i].iov_len : bytes;

		if (out)
			memcpy(bounce, m->msg_iov[i].iov_base, n);
		else
			memcpy(m->msg_iov[i].iov_base, bounce, n);
		bounce += n;
		bytes -= n;
	}
}

/* A message header for the kernel, and what it points to, all of it local. */
struct local {
	struct msghdr m;
	struct iovec v;
	struct sockaddr_storage name;
	size_t control_bytes; /* size of a bounce buffer for msg_control; 0: it is the caller's */
};

/* Make the local header, with one buffer. false: no memory. */
static bool localise(struct local *l, const struct msghdr *m, char *bounce, size_t bytes, bool out)
{
	*l = (struct local){ .m = *m, .v = { bounce, bytes } };
	l->m.msg_iov = &l->v;
	l->m.msg_iovlen = 1;
	if (run_fam(m->msg_name)) {
		if (l->m.msg_namelen > sizeof(l->name))
			l->m.msg_namelen = sizeof(l->name);
		if (out)
			memcpy(&l->name, m->msg_name, l->m.msg_namelen);
		l->m.msg_name = &l->name;
	}
	if (run_fam(m->msg_control) && m->msg_controllen) {
		l->m.msg_control = run_bounce_get(m->msg_controllen, &l->control_bytes);
		if (!l->m.msg_control)
			return false;
		memcpy(l->m.msg_control, m->msg_control, m->msg_controllen);
	}
	return true;
}

/* Copy back what the kernel has filled in (m not NULL), and free the copies. */
static void end_local(struct local *l, struct msghdr *m)
{
	if (m && run_fam(m->msg_name))
		memcpy(m->msg_name, &l->name,
		       m->msg_namelen < l->m.msg_namelen ? m->msg_namelen : l->m.msg_namelen);
	if (!l->control_bytes)
		return;
	if (m)
		memcpy(m->msg_control, l->m.msg_control, l->m.msg_controllen);
	run_bounce_put(l->m.msg_control, l->control_bytes);
}

static bool is_stream(int fd)
{
	int type = 0, saved = errno;
	socklen_t n = sizeof(type);
	bool stream = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM;

	errno = saved;
	return stream;
}

static ssize_t recv_piece(int fd, struct msghdr *m, int flags, size_t want)
{
	size_t size;
	char *bounce = run_bounce_get(want, &size);
	struct local l;
	ssize_t n;

	if (!bounce || !localise(&l, m, bounce, want, false)) {
		run_bounce_put(bounce, size);
		errno = ENOMEM;
		return -1;
	}
	n = RUN_NEXT(next_recvmsg, "recvmsg")(fd, &l.m, flags);
	if (n >= 0) /* with MSG_TRUNC n is the length of the message, which may be more than there
		       is room */
		copy(m, bounce, (size_t)n < want ? (size_t)n : want, false);
	end_local(&l, n >= 0 ? m : NULL);
	if (n >= 0) {
		m->msg_flags = l.m.msg_flags;
		m->msg_namelen = l.m.msg_namelen;
		m->msg_controllen = l.m.msg_controllen;
	}
	run_bounce_put(bounce, size);
	return n;
}

static ssize_t recv_message(int fd, struct msghdr *m, int flags)
{
	size_t want = length(m), most = MESSAGE_MAX;

	/* with WAITALL all of it is waited for, so all of it needs room */
	if (is_stream(fd) && !(flags & MSG_WAITALL))
		most = RUN_BOUNCE;
	else if (flags & MSG_WAITALL)
		most = want;
	return recv_piece(fd, m, flags, want < most ? want : most);
}

/* Whether SO_ZEROCOPY is on: a program that had the socket before this one may have set it. */
static bool zero_copy(int fd)
{
	int on = 0, saved = errno;
	socklen_t n = sizeof(on);
	bool result = getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, &n) == 0 && on;

	errno = saved;
	return result;
}

static ssize_t send_message(int fd, const struct msghdr *m, int flags)
{
	size_t want = length(m), size;
	struct local l;
	char *bounce;
	ssize_t n;

	if (flags & MSG_ZEROCOPY && zero_copy(fd)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	bounce = run_bounce_get(want < MESSAGE_MAX || !is_stream(fd) ? want : MESSAGE_MAX, &size);
	if (!bounce || !localise(&l, m, bounce, want < size ? want : size, true)) {
		run_bounce_put(bounce, size);
		errno = ENOMEM;
		return -1;
	}
	copy(m, bounce, l.v.iov_len, true);
	n = RUN_NEXT(next_sendmsg, "sendmsg")(fd, &l.m, flags);
	end_local(&l, NULL);
	run_bounce_put(bounce, size);
	return n;
}

static ssize_t recv_any(int fd, struct msghdr *m, int flags, const void *caller)
{
	return message_concerns(m, caller) ? recv_message(fd, m, flags)
					   : RUN_NEXT(next_recvmsg, "recvmsg")(fd, m, flags);
}

static ssize_t send_any(int fd, const struct msghdr *m, int flags, const void *caller)
{
	return message_concerns(m, caller) ? send_message(fd, m, flags)
					   : RUN_NEXT(next_sendmsg, "sendmsg")(fd, m, flags);
}

RUN_API ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	return recv_any(fd, m, flags, RUN_CALLER);
}

RUN_API ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	return send_any(fd, m, flags, RUN_CALLER);
}

static bool messages_concern(const struct mmsghdr *v, unsigned n, const void *caller)
{
	if (run_is_ours(caller))
		return false;
	for (unsigned i = 0; i < n; i++)
		if (run_fam(&v[i]) || message_concerns(&v[i].msg_hdr, caller))
			return true;
	return false;
}

/* In nanoseconds; no more than fit. */
static int64_t nanoseconds(const struct timespec *t)
{
	return (t->tv_sec < 9000000000 ? t->tv_sec : 9000000000) * 1000000000 + t->tv_nsec;
}

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return nanoseconds(&t);
}

/*
 * One message after the other. As in the kernel, the time-out is looked at only after each message.
 */
static int recv_messages(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
	int64_t end = timeout ? now() + nanoseconds(timeout) : 0, left = 1;
	unsigned i;

	for (i = 0; i < n && left > 0; i++) {
		ssize_t got = recv_any(fd, &v[i].msg_hdr, flags & ~MSG_WAITFORONE, NULL);

		if (got < 0)
			return i ? (int)i : -1;
		v[i].msg_len = (unsigned)got;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		left = timeout ? end - now() : 1;
		if (timeout && left >= 0)
			*timeout = (struct timespec){ left / 1000000000, left % 1000000000 };
	}
	return (int)i;
}

RUN_API int recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
	if (messages_concern(v, n, RUN_CALLER) || run_fam(timeout))
		return recv_messages(fd, v, n, flags, timeout);
	return RUN_NEXT(next_recvmmsg, "recvmmsg")(fd, v, n, flags, timeout);
}

RUN_API int sendmmsg(int fd, struct mmsghdr *v, unsigned n, int flags)
{
	if (!messages_concern(v, n, RUN_CALLER))
		return RUN_NEXT(next_sendmmsg, "sendmmsg")(fd, v, n, flags);
	for (unsigned i = 0; i < n; i++) {
		ssize_t put = send_any(fd, &v[i].msg_hdr, flags, NULL);

		if (put < 0)
			return i ? (int)i : -1;
		v[i].msg_len = (unsigned)put;
	}
	return (int)n;
}

static ssize_t recv_to(int fd, void *p, size_t n, int flags, void *name, socklen_t *name_bytes)
{
	struct iovec v = { p, n };
	struct msghdr m = { .msg_name = name,
			    .msg_namelen = name_bytes ? *name_bytes : 0,
			    .msg_iov = &v,
			    .msg_iovlen = 1 };
	ssize_t r = recv_message(fd, &m, flags);

	if (r >= 0 && name_bytes)
		*name_bytes = m.msg_namelen;
	return r;
}

/* On a stream, a blocking send returns only when all is sent. */
static ssize_t send_from(int fd, const void *p, size_t n, int flags, const void *name,
			 socklen_t name_bytes)
{
	size_t done = 0;
	ssize_t r = 0;

	do {
		struct iovec v = { (char *)(uintptr_t)p + done, n - done };
		struct msghdr m = { .msg_name = (void *)(uintptr_t)name,
				    .msg_namelen = name_bytes,
				    .msg_iov = &v,
				    .msg_iovlen = 1 };
		size_t want = n - done;

		r = send_message(fd, &m, flags);
		if (r > 0)
			done += (size_t)r;
		if (r <= 0 || (size_t)r >= want || (size_t)r < MESSAGE_MAX)
			break;
	} while (done < n);
	return done ? (ssize_t)done : r;
}

RUN_API ssize_t recv(int fd, void *p, size_t n, int flags)
{
	return run_handed(p, RUN_CALLER) ? recv_to(fd, p, n, flags, NULL, NULL)
					 : RUN_NEXT(next_recv, "recv")(fd, p, n, flags);
}

RUN_API ssize_t send(int fd, const void *p, size_t n, int flags)
{
	return run_handed(p, RUN_CALLER) ? send_from(fd, p, n, flags, NULL, 0)
					 : RUN_NEXT(next_send, "send")(fd, p, n, flags);
}

RUN_API ssize_t recvfrom(int fd, void *restrict p, size_t n, int flags,
			 struct sockaddr *restrict name, socklen_t *restrict name_bytes)
{
	return run_handed(p, RUN_CALLER) || run_handed(name, RUN_CALLER)
		       ? recv_to(fd, p, n, flags, name, name_bytes)
		       : RUN_NEXT(next_recvfrom, "recvfrom")(fd, p, n, flags, name, name_bytes);
}

RUN_API ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *name,
		       socklen_t name_bytes)
{
	return run_handed(p, RUN_CALLER) || run_handed(name, RUN_CALLER)
		       ? send_from(fd, p, n, flags, name, name_bytes)
		       : RUN_NEXT(next_sendto, "sendto")(fd, p, n, flags, name, name_bytes);
}

ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *p, size_t n, size_t room, int flags, struct sockaddr *name,
		       socklen_t *name_bytes);

RUN_API ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags)
{
	if (n > room)
		__chk_fail();
	return run_fam(p) ? recv_to(fd, p, n, flags, NULL, NULL)
			  : RUN_NEXT(next_recv, "recv")(fd, p, n, flags);
}

RUN_API ssize_t __recvfrom_chk(int fd, void *p, size_t n, size_t room, int flags,
			       struct sockaddr *name, socklen_t *name_bytes)
{
	if (n > room)
		__chk_fail();
	return run_fam(p) ? recv_to(fd, p, n, flags, name, name_bytes)
			  : RUN_NEXT(next_recvfrom, "recvfrom")(fd, p, n, flags, name, name_bytes);
}
