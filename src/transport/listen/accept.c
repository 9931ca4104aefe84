/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The acceptor: takes connections in, awaits the HELLO of each without ever
 * blocking on one, and hands them over.  Strangers cost 500 bytes and a
 * descriptor until the HELLO time-out; when there are too many of them, or no
 * descriptors are left, the one that has been silent longest goes.
 */
#include "transport/listen/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "transport/listen/prove.h"
#include "transport/stream/stream.h"

enum {
	ACCEPTS_A_TURN = 64,
	REFUSED_READS = 16,
	EVENTS = 64,
};

/* A connection that has not said HELLO yet. */
struct stranger {
	int fd;
	int passed_fd;	      /* came along, or -1 */
	struct soda_tls *tls; /* it comes by TLS; or NULL */
	bool shaking;	      /* whose handshake is not over */
	uint32_t got;
	uint64_t deadline_ns;
	struct stranger *next, *prev; /* oldest first */
	struct soda_peer_info info;
	struct soda_wire_hello hello; /* once it is complete */
	struct soda_prover *prover;   /* a proof is expected; or NULL */
	uint8_t in[SODA_WIRE_FRAME_BYTES + SODA_WIRE_HELLO_BYTES];
};

struct acceptor {
	struct soda_listener *l;
	int epoll;
	bool listening, stopped;
	uint64_t resume_ns; /* not listening for want of descriptors until then; 0: no */
	unsigned strangers_n;
	struct stranger *oldest, *newest;
};

void soda_refuse(struct soda_byte_stream s, int err, const char *reason)
{
	uint8_t head[SODA_WIRE_FRAME_BYTES], rest[4096];
	struct soda_wire_frame frame = { .type = SODA_MSG_REFUSED,
					 .status = (uint16_t)soda_status_from_errno(-err),
					 .length = (uint32_t)strlen(reason) };
	struct iovec iov[2] = { { head, sizeof(head) },
				{ (void *)(uintptr_t)reason, frame.length } };

	soda_wire_put_frame(head, &frame);
	soda_stream_send_once(s, iov, 2, -1);
	/*
	 * Closing with unread bytes resets the connection, and the reason is lost; but a peer
	 * that sends as fast as we read may not keep us.
	 */
	for (int i = 0; i < REFUSED_READS; i++)
		if (recv(s.fd, rest, sizeof(rest), MSG_DONTWAIT) != sizeof(rest))
			break;
}

int soda_welcome(struct soda_peer *peer, const struct soda_wire_welcome *welcome, int pass_fd)
{
	const struct soda_proved *proved = peer->info.proved;
	uint8_t out[SODA_WIRE_FRAME_BYTES + SODA_WIRE_WELCOME_BYTES + SODA_WIRE_MAC_BYTES];
	uint8_t *body = out + SODA_WIRE_FRAME_BYTES;
	uint32_t length = SODA_WIRE_WELCOME_BYTES + (proved ? SODA_WIRE_MAC_BYTES : 0);
	struct soda_wire_frame frame = { .type = SODA_MSG_OK, .length = length };
	struct iovec iov = { out, SODA_WIRE_FRAME_BYTES + length };
	struct soda_wire_welcome w = *welcome;
	ssize_t n, bytes = (ssize_t)iov.iov_len;
	int r;

	if (proved)
		w.version = SODA_WIRE_VERSION_PROVED;
	soda_wire_put_frame(out, &frame);
	soda_wire_put_welcome(body, &w);
	r = proved ? soda_welcome_mac(proved->key, body, body + SODA_WIRE_WELCOME_BYTES) : 0;
	peer->info.proved = NULL;
	if (r)
		return r;
	n = soda_stream_send_once(soda_peer_stream(peer), &iov, 1, pass_fd);
	return n == bytes ? 0 : n < 0 ? (int)n : -EIO;
}

/* Strangers */

static struct soda_byte_stream stream_of(const struct stranger *s)
{
	return (struct soda_byte_stream){ .fd = s->fd, .tls = s->tls };
}

static void stranger_unlink(struct acceptor *a, struct stranger *s)
{
	*(s->prev ? &s->prev->next : &a->oldest) = s->next;
	*(s->next ? &s->next->prev : &a->newest) = s->prev;
	a->strangers_n--;
}

static void stranger_drop(struct acceptor *a, struct stranger *s)
{
	stranger_unlink(a, s);
	soda_tls_close(s->tls);
	close(s->fd);
	if (s->passed_fd >= 0)
		close(s->passed_fd);
	soda_prover_end(s->prover);
	free(s);
}

static void reject(struct acceptor *a, struct stranger *s, int err, const char *reason)
{
	if (!s->shaking)
		soda_refuse(stream_of(s), err, reason);
	if (a->l->ops->rejected)
		a->l->ops->rejected(a->l->svc, s->info.address, reason);
	stranger_drop(a, s);
}

static void describe(struct stranger *s, const struct soda_listener *l,
		     const struct sockaddr_storage *from)
{
	struct ucred cred;
	socklen_t cred_bytes = sizeof(cred), group_bytes = sizeof(s->info.groups);

	s->info.local = l->local;
	s->info.uid = s->info.gid = (uid_t)-1;
	if (l->local) {
		if (getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_bytes) == 0) {
			s->info.uid = cred.uid;
			s->info.gid = cred.gid;
			s->info.pid = cred.pid;
		}
		if (getsockopt(s->fd, SOL_SOCKET, SO_PEERGROUPS, s->info.groups, &group_bytes) == 0)
			s->info.groups_n = (unsigned)(group_bytes / sizeof(s->info.groups[0]));
		snprintf(s->info.address, sizeof(s->info.address), "pid %d of uid %u",
			 (int)s->info.pid, (unsigned)s->info.uid);
	} else {
		/* the port lies at the same place in both families */
		soda_inet_format("tcp://", (const struct sockaddr *)from,
				 ntohs(((const struct sockaddr_in *)from)->sin_port),
				 s->info.address, sizeof(s->info.address));
	}
}

static void stranger_add(struct acceptor *a, int fd, const struct sockaddr_storage *from)
{
	struct stranger *s = calloc(1, sizeof(*s));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = s };

	if (!s || epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &ev) < 0) {
		free(s);
		close(fd);
		return;
	}
	if (a->strangers_n >= SODA_STRANGERS_MAX)
		reject(a, a->oldest, -EBUSY, "too many connections without a HELLO");
	s->fd = fd;
	s->passed_fd = -1;
	s->deadline_ns = soda_deadline(a->l->opt.hello_timeout_ms);
	s->prev = a->newest;
	*(a->newest ? &a->newest->next : &a->oldest) = s;
	a->newest = s;
	a->strangers_n++;
	if (!a->l->local)
		soda_inet_tune(fd);
	describe(s, a->l, from);
}

/* The HELLO is complete: to its thread. */
static void introduce(struct acceptor *a, struct stranger *s, const struct soda_wire_hello *hello)
{
	struct soda_why why = { "" };
	int ret;

	epoll_ctl(a->epoll, EPOLL_CTL_DEL, s->fd, NULL);
	if (hello->kind == SODA_CONN_CONTROL)
		ret = soda_control_start(a->l, stream_of(s), &s->info, hello, &why);
	else
		ret = a->l->plane->take(a->l, s->fd, s->passed_fd, &s->info, hello, &why);
	if (ret < 0) {
		/* not `rejected`: that was the daemon's or our own decision, not a bad HELLO */
		soda_refuse(stream_of(s), ret, why.text);
		stranger_drop(a, s);
		return;
	}
	if (hello->kind == SODA_CONN_CONTROL && s->passed_fd >= 0)
		close(s->passed_fd);
	if (hello->kind == SODA_CONN_DATA)
		soda_tls_close(s->tls); /* the kernel has it */
	stranger_unlink(a, s);
	soda_prover_end(s->prover);
	free(s);
}

/* May this kind of connection come in this way? 0, or why not, in *reason_p. */
static int check_way(const struct acceptor *a, const struct stranger *s, const char **reason_p)
{
	if (s->tls && soda_tls_in_kernel(s->tls) != (s->hello.kind == SODA_CONN_DATA)) {
		*reason_p = "by TLS that the kernel carries come data connections, and they alone";
		return -EPROTO;
	}
	if (s->tls || a->l->local || !a->l->opt.tls_only)
		return 0;
	if (s->hello.kind == SODA_CONN_CONTROL) {
		*reason_p = "control connections to this server are by TLS only (SODA_TLS=on)";
		return -EACCES;
	}
	if (soda_inet_protected(s->fd, s->hello.features & SODA_FEATURE_SEALED))
		return 0;
	*reason_p =
		"data would travel in clear to another machine, which this server forbids (--tls "
		"require): SODA_TLS=require has the kernel encrypt it, SODA_SEAL=1 the program";
	return -EACCES;
}

/* Which version must it be? 0, -EPROTONOSUPPORT, -EACCES. */
static int check_version(uint32_t version, bool guarded, char reason[SODA_REASON_BYTES])
{
	if (version == (guarded ? SODA_WIRE_VERSION_PROVED : SODA_WIRE_VERSION))
		return 0;
	if (version == SODA_WIRE_VERSION) {
		snprintf(reason, SODA_REASON_BYTES,
			 "this server serves its tenants only: give SODA_TENANT and"
			 " SODA_KEY_FILE");
		return -EACCES;
	}
	if (version == SODA_WIRE_VERSION_PROVED) {
		snprintf(reason, SODA_REASON_BYTES,
			 "protocol version 2 proves tenants, which nobody here has: leave"
			 " SODA_KEY_FILE out, or name another server");
		return -EPROTONOSUPPORT;
	}
	snprintf(reason, SODA_REASON_BYTES,
		 "the server speaks protocol version %u, the client version %u",
		 guarded ? SODA_WIRE_VERSION_PROVED : SODA_WIRE_VERSION, version);
	return -EPROTONOSUPPORT;
}

int soda_hello_check(const void *in, size_t bytes, bool guarded, struct soda_wire_hello *hello,
		     char reason[SODA_REASON_BYTES])
{
	int ret;

	if (bytes < SODA_WIRE_HELLO_BYTES ||
	    soda_wire_get_hello(in, SODA_WIRE_HELLO_BYTES, hello) < 0 ||
	    hello->magic != SODA_WIRE_MAGIC) {
		snprintf(reason, SODA_REASON_BYTES, "this is not a SODA HELLO (magic)");
		return -EPROTO;
	}
	ret = check_version(hello->version, guarded, reason);
	if (ret)
		return ret;
	if (hello->kind == SODA_CONN_CONTROL || hello->kind == SODA_CONN_DATA)
		return 0;
	snprintf(reason, SODA_REASON_BYTES, "unknown kind of connection");
	return -EPROTO;
}

/* As a step. */
static int check_hello(struct acceptor *a, struct stranger *s)
{
	const uint8_t *said = s->in + SODA_WIRE_FRAME_BYTES;
	const struct soda_guard *guard = a->l->opt.guard;
	char reason[SODA_REASON_BYTES];
	const char *refused = reason;
	int ret = soda_hello_check(said, SODA_WIRE_HELLO_BYTES, guard, &s->hello, reason);

	if (ret == 0)
		ret = check_way(a, s, &refused);
	if (ret < 0) {
		reject(a, s, ret, refused);
		return -1;
	}
	if (!guard) {
		introduce(a, s, &s->hello);
		return -1;
	}
	s->prover = soda_prover_begin(guard, said);
	if (s->prover)
		return 1;
	reject(a, s, -ENOMEM, "the server has no memory for a connection more");
	return -1;
}

/* A stranger whose HELLO is complete goes on with its proof. */
static int stranger_proves(struct acceptor *a, struct stranger *s)
{
	struct soda_prover_why why = { "", "" };
	int ret = soda_prover_speaks(s->prover, stream_of(s), &why);

	if (ret == 0)
		return 1;
	if (ret == -EAGAIN)
		return 0;
	if (ret > 0) {
		s->info.proved = soda_prover_proved(s->prover);
		introduce(a, s, &s->hello);
		return -1;
	}
	if (a->l->ops->rejected)
		a->l->ops->rejected(a->l->svc, s->info.address,
				    *why.log ? why.log : "closed within its proof");
	if (*why.peer)
		soda_refuse(stream_of(s), ret, why.peer);
	stranger_drop(a, s);
	return -1;
}

/* The first bytes are there: are they TLS? 0: they are not, or there are none yet. */
static int look(struct acceptor *a, struct stranger *s)
{
	uint8_t first;

	if (!a->l->opt.tls || a->l->local || recv(s->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1 ||
	    !soda_tls_begins(first))
		return 0;
	s->shaking = true;
	return soda_tls_accept(a->l->opt.tls, s->fd, &s->tls);
}

/* 1: it may go on at once; 0: with the next bytes; -1: it is gone, and so below. */
static int stranger_shakes(struct acceptor *a, struct stranger *s)
{
	char why[SODA_TLS_WHY];
	int ret = soda_tls_handshake(s->tls, why);

	if (ret == 0) {
		s->shaking = false;
		return 1;
	}
	if (ret == -EAGAIN)
		return 0;
	/* libssl has said so to the peer, with an alert */
	reject(a, s, ret, *why ? why : "closed within its TLS handshake");
	return -1;
}

static int take_bytes(struct acceptor *a, struct stranger *s)
{
	struct soda_wire_frame frame;
	ssize_t n = soda_stream_recv_once(stream_of(s), s->in + s->got, sizeof(s->in) - s->got,
					  a->l->plane->takes_fd ? &s->passed_fd : NULL);

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0) {
		/* a connection that says nothing at all is a port check, no offence */
		if (s->got && a->l->ops->rejected)
			a->l->ops->rejected(a->l->svc, s->info.address, "closed within its HELLO");
		stranger_drop(a, s);
		return -1;
	}
	s->got += (uint32_t)n;
	if (s->got < SODA_WIRE_FRAME_BYTES)
		return 1;
	soda_wire_get_frame(s->in, &frame);
	if (!s->tls && soda_tls_begins(s->in[0]))
		reject(a, s, -EPROTONOSUPPORT,
		       "TLS is not served here: leave SODA_TLS out, or give the server --tls on");
	else if (frame.type != SODA_MSG_HELLO || frame.length < 8 ||
		 frame.length > SODA_WIRE_MAX_CONTROL)
		reject(a, s, -EPROTO, "a connection begins with a SODA HELLO");
	else if (s->got >= SODA_WIRE_FRAME_BYTES + 8 && frame.length != SODA_WIRE_HELLO_BYTES)
		return check_hello(
			a, s); /* another version's, or nonsense: magic and version are there */
	else if (s->got == sizeof(s->in))
		return check_hello(a, s);
	else
		return 1;
	return -1;
}

/* One step. */
static int stranger_step(struct acceptor *a, struct stranger *s)
{
	if (s->shaking)
		return stranger_shakes(a, s);
	return s->prover ? stranger_proves(a, s) : take_bytes(a, s);
}

static void stranger_speaks(struct acceptor *a, struct stranger *s)
{
	int on;

	if (!s->got && !s->tls && look(a, s) < 0) {
		reject(a, s, -ENOMEM, "the server has no memory for a connection more");
		return;
	}
	/* what TLS has taken from the socket does not make that readable again */
	do {
		on = stranger_step(a, s);
	} while (on > 0 && s->tls);
}

static void drop_silent(struct acceptor *a)
{
	uint64_t now = soda_now_ns();

	while (a->oldest && a->oldest->deadline_ns <= now)
		reject(a, a->oldest, -ETIMEDOUT, "no HELLO within the time-out");
}

/* Accepting */

static void listen_again(struct acceptor *a, bool on)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };

	if (on == a->listening)
		return;
	epoll_ctl(a->epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, a->l->fd, &ev);
	a->listening = on;
}

/* No descriptors: the longest silent stranger gives its own, else wait for better times. */
static void make_room(struct acceptor *a, int err)
{
	if (a->oldest) {
		reject(a, a->oldest, -EBUSY, "the server is out of descriptors");
		return;
	}
	if (!a->resume_ns)
		soda_log_warning("%s: cannot accept connections: %s; raise the limit of open files",
				 a->l->address, soda_strerror(err));
	a->resume_ns = soda_deadline(SODA_NO_DESCRIPTORS_MS);
	listen_again(a, false);
}

static void accept_some(struct acceptor *a)
{
	for (int i = 0; i < ACCEPTS_A_TURN; i++) {
		struct sockaddr_storage from = { 0 };
		socklen_t from_bytes = sizeof(from);
		int fd = accept4(a->l->fd, (struct sockaddr *)&from, &from_bytes, SOCK_CLOEXEC);
		int err = errno;

		if (fd >= 0) {
			stranger_add(a, fd, &from);
			continue;
		}
		if (err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS)
			make_room(a, err);
		if (err != EINTR && err != ECONNABORTED)
			return;
	}
}

/* Who connects from now on is refused, and who already waits is told. */
static void stop_listening(struct acceptor *a)
{
	int fd;

	listen_again(a, false);
	a->resume_ns = 0;
	shutdown(a->l->fd, SHUT_RDWR);
	while ((fd = accept4(a->l->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		soda_refuse(soda_plain(fd), -ESHUTDOWN, "the server is shutting down");
		close(fd);
	}
}

/* 0, or what to stop. */
static int look_at_orders(struct acceptor *a)
{
	uint64_t count;
	int stop;

	/* before looking: what is ordered behind our back then wakes once more */
	if (read(a->l->wake_fd, &count, sizeof(count)) < 0)
		count = 0;
	stop = atomic_load(&a->l->stop);
	if (stop && !a->stopped) {
		a->stopped = true;
		stop_listening(a);
	}
	return stop;
}

static int patience_ms(const struct acceptor *a)
{
	uint64_t until = a->oldest ? a->oldest->deadline_ns : SODA_NO_DEADLINE;

	if (a->resume_ns && a->resume_ns < until)
		until = a->resume_ns;
	return soda_deadline_ms(until);
}

static void accept_loop(struct acceptor *a)
{
	struct epoll_event events[EVENTS];
	int stop = SODA_STOP_NOT;

	while (stop != SODA_STOP_ALL) {
		int n = epoll_wait(a->epoll, events, EVENTS, patience_ms(a));
		bool knock = false;

		/* all strangers first: what follows may drop one that is in these events */
		for (int i = 0; i < n; i++) {
			if (!events[i].data.ptr)
				knock = true;
			else if (events[i].data.ptr == a->l)
				stop = look_at_orders(a);
			else
				stranger_speaks(a, events[i].data.ptr);
		}
		drop_silent(a);
		if (stop == SODA_STOP_NOT && a->resume_ns && a->resume_ns <= soda_now_ns()) {
			a->resume_ns = 0;
			listen_again(a, true);
		}
		if (knock && a->listening)
			accept_some(a);
	}
}

void *soda_acceptor_main(void *arg)
{
	struct acceptor a = { .l = arg, .epoll = epoll_create1(EPOLL_CLOEXEC) };
	struct epoll_event wake = { .events = EPOLLIN, .data.ptr = arg };

	pthread_setname_np(pthread_self(), "soda-accept");
	if (a.epoll < 0 || epoll_ctl(a.epoll, EPOLL_CTL_ADD, a.l->wake_fd, &wake) < 0) {
		soda_log_error("%s: cannot accept connections: %s", a.l->address,
			       soda_strerror(errno));
	} else {
		listen_again(&a, true);
		accept_loop(&a);
	}
	while (a.oldest)
		stranger_drop(&a, a.oldest);
	if (a.epoll >= 0)
		close(a.epoll);
	return NULL;
}
