/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shm: addresses, connecting, and the socket that a listener has.  The control connection is a UNIX
 * socket; with the answer of an OPEN may come the region's memfd, which is mapped here:
 *
 *   0              opened.bytes      whole 2 MiB
 *   | object, mr->map  |  zeros       | dirty map (WRITABLE only), mr->dirty_map
 *
 * Who listens is asked of the kernel, before anything is said: this user or root, the user of
 * SODA_SERVER_USER, or somebody who has to prove a key.  An abstract name is anybody's to take.
 *
 * A descriptor that is too small, or that could shrink under us, is refused: its
 * touch would be a SIGBUS that looks like one of our own faults.
 *
 * Data connections copy to and from the mapped memory (data.c); where the answer
 * of the HELLO brings a queue, the daemon is two-sided, and they use that
 * (client.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_fd.h"
#include "transport/shm/shm.h"
#include "transport/stream/stream.h"

enum { BACKLOG = 1024 };

int soda_shm_address(const char *rest, struct sockaddr_un *addr_p, socklen_t *bytes_p,
		     struct soda_why *why)
{
	size_t n = strlen(rest);

	if ((rest[0] != '/' && rest[0] != '@') || n < 2 || n >= sizeof(addr_p->sun_path)) {
		soda_why_set(why,
			     "\"shm://%.120s\" is not an address; expected shm:///PATH or "
			     "shm://@NAME, of at most %zu characters",
			     rest, sizeof(addr_p->sun_path) - 1);
		return -EINVAL;
	}
	*addr_p = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(addr_p->sun_path, rest, n);
	*bytes_p = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
	if (rest[0] == '@')
		addr_p->sun_path[0] = 0;
	else
		(*bytes_p)++;
	return 0;
}

/* Connecting */

static uint64_t backing_bytes(const struct soda_mr *mr)
{
	return (mr->bytes + SODA_BACKING_UNIT - 1) / SODA_BACKING_UNIT * SODA_BACKING_UNIT;
}

/* 0 or -EPROTO. */
static int check_memory(int fd, const struct soda_mr *mr, bool dirty, struct soda_why *why)
{
	uint64_t need = backing_bytes(mr) + (dirty ? soda_dirty_bytes(mr->bytes) : 0);
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
		soda_why_set(why,
			     "the server has passed memory that is not sealed against shrinking");
		return -EPROTO;
	}
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < need) {
		soda_why_set(why, "the server has passed less memory than it says");
		return -EPROTO;
	}
	return 0;
}

/* A child has no FAM: it must not keep the memory alive either. */
static void *map(int fd, uint64_t offset, uint64_t bytes, int prot)
{
	void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, (off_t)offset);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, bytes, MADV_DONTFORK);
	madvise(p, bytes, MADV_DONTDUMP);
	return p;
}

static int map_region(int fd, bool dirty, struct soda_mr *mr, struct soda_why *why)
{
	int prot = PROT_READ | (mr->writable ? PROT_WRITE : 0);
	int ret = check_memory(fd, mr, dirty, why);

	if (ret < 0)
		return ret;
	mr->map = map(fd, 0, mr->bytes, prot);
	if (mr->map && dirty)
		mr->dirty_map = map(fd, backing_bytes(mr), soda_dirty_bytes(mr->bytes),
				    PROT_READ | PROT_WRITE);
	if (mr->map && (mr->dirty_map || !dirty))
		return 0;
	ret = -errno;
	soda_why_set(why, "cannot map %llu bytes of the server's memory: %s",
		     (unsigned long long)mr->bytes, soda_strerror(ret));
	soda_conn_unmap_region(mr);
	return ret;
}

static int shm_open_region(struct soda_conn *conn, const struct soda_wire_open *open,
			   const char *name, struct soda_wire_opened *opened_p,
			   struct soda_mr *mr_p, int timeout_ms, struct soda_why *why)
{
	uint8_t head[SODA_WIRE_OPEN_MARKED_BYTES], reply[SODA_WIRE_OPENED_BYTES];
	struct soda_wire_opened opened;
	struct iovec iov[2];
	struct soda_mr mr;
	size_t bytes = 0;
	int fd = -1, ret;

	soda_open_body(open, name, head, iov);
	ret = soda_stream_call(conn, soda_stream_control(conn)->s, SODA_MSG_OPEN, iov, 2, reply,
			       sizeof(reply), &bytes, &fd, timeout_ms, why);
	if (ret == -EMSGSIZE)
		ret = -EPROTO;
	if (ret == 0)
		ret = soda_open_reply(open, !(open->flags & SODA_WIRE_READ_ONLY), reply, bytes,
				      &opened, &mr, why);
	if (ret == 0 && fd >= 0)
		ret = map_region(fd, open->flags & SODA_WIRE_WRITABLE, &mr, why);
	soda_fd_close(fd);
	if (ret == 0) {
		*opened_p = opened;
		*mr_p = mr;
	}
	return ret;
}

static const struct soda_conn_ops control_ops = {
	.close = soda_stream_control_close,
	.abort = soda_stream_control_abort,
	.fd = soda_stream_control_fd,
	.call = soda_stream_control_call,
	.call_fd = soda_stream_control_call_fd,
	.submit = soda_stream_control_submit,
	.submit_call = soda_stream_control_submit_call,
	.collect = soda_stream_control_collect,
	.open_region = shm_open_region,
};

static int connect_socket(const char *rest, uint64_t deadline_ns, struct soda_why *why)
{
	struct sockaddr_un addr;
	socklen_t bytes;
	int ret = soda_shm_address(rest, &addr, &bytes, why);
	int fd;

	if (ret < 0)
		return ret;
	fd = soda_fd_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	ret = fd < 0 ? -errno : soda_stream_connect(fd, &addr, bytes, deadline_ns);
	if (ret == 0)
		return fd;
	soda_why_set(why, "cannot connect to shm://%s: %s%s", rest, soda_strerror(ret),
		     ret == -EACCES ? "; the socket is not yours to use"
				    : "; is the server running there?");
	soda_fd_close(fd);
	return ret;
}

/* SODA_SERVER_USER, looked up once: a program may change its environment while others connect. */
static struct {
	pthread_once_t once;
	char text[64]; /* "": not given */
	uid_t uid;
	bool known;
} server_user = { .once = PTHREAD_ONCE_INIT };

static void find_server_user(void)
{
	const char *text = getenv("SODA_SERVER_USER");
	char memory[4096], *end;
	struct passwd entry, *found = NULL;
	unsigned long long number;

	if (!text || !*text)
		return;
	snprintf(server_user.text, sizeof(server_user.text), "%s", text);
	errno = 0;
	number = strtoull(text, &end, 10);
	if (!errno && !*end && *text >= '0' && *text <= '9' && number < (uid_t)-1) {
		server_user.uid = (uid_t)number;
		server_user.known = true;
	} else if (getpwnam_r(text, &entry, memory, sizeof(memory), &found) == 0 && found) {
		server_user.uid = found->pw_uid;
		server_user.known = true;
	}
}

/* 0, -EINVAL. */
static int check_server_user(const char *rest, struct soda_why *why)
{
	pthread_once(&server_user.once, find_server_user);
	if (!server_user.text[0] || server_user.known)
		return 0;
	soda_why_set(why,
		     "shm://%.100s: SODA_SERVER_USER is \"%s\", and this machine has no such user",
		     rest, server_user.text);
	return -EINVAL;
}

/* Who listens there, by the kernel's word: it was that user who called listen(2). 0, -EACCES. */
static int check_listener(int fd, const char *rest, const struct soda_conn_options *opt,
			  struct soda_why *why)
{
	struct ucred cred = { .uid = (uid_t)-1 };
	socklen_t bytes = sizeof(cred);

	if (soda_conn_proves(opt))
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) == 0 &&
	    (cred.uid == geteuid() || !cred.uid ||
	     (server_user.known && cred.uid == server_user.uid)))
		return 0;
	soda_why_set(why,
		     "shm://%.90s is user %u's, neither this program's (%u) nor root's: nothing is "
		     "sent there. Name whose server is meant in SODA_SERVER_USER, or let it prove "
		     "a key",
		     rest, (unsigned)cred.uid, (unsigned)geteuid());
	return -EACCES;
}

/* Owns both descriptors. */
static int create(int fd, int queue_fd, const char *rest, const struct soda_conn_options *opt,
		  struct soda_conn **conn_p, struct soda_why *why)
{
	int ret;

	if (opt->kind == SODA_CONN_CONTROL)
		ret = soda_stream_control_create(soda_plain(fd), &control_ops, SODA_SHM_PREFIX,
						 rest, opt, conn_p);
	else if (queue_fd < 0)
		ret = soda_shm_data_create(fd, rest, opt, conn_p);
	else
		ret = soda_shm_client_create(fd, queue_fd, rest, opt, conn_p, why);
	if (ret == -ENOMEM)
		soda_why_set(why, "shm://%s: no memory for a connection", rest);
	return ret;
}

static int shm_connect(const char *rest, const struct soda_wire_hello *hello,
		       const struct soda_conn_options *opt, struct soda_conn **conn_p,
		       struct soda_wire_welcome *welcome_p, struct soda_why *why)
{
	uint64_t deadline_ns = soda_deadline(opt->timeout_ms);
	struct soda_wire_hello introduction = *hello;
	bool data = opt->kind == SODA_CONN_DATA;
	int fd, queue_fd = -1, ret = check_server_user(rest, why);
	char peer[128];

	if (ret < 0)
		return ret;
	fd = connect_socket(rest, deadline_ns, why);
	if (fd < 0)
		return fd;
	ret = check_listener(fd, rest, opt, why);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	introduction.features |= SODA_FEATURE_QUEUE;
	snprintf(peer, sizeof(peer), SODA_SHM_PREFIX "%s", rest);
	ret = soda_stream_hello(soda_plain(fd), peer, &introduction, opt,
				data && opt->hand_over ? opt->uffd : -1, deadline_ns, welcome_p,
				data ? &queue_fd : NULL, why);
	if (ret < 0) {
		soda_fd_close(queue_fd);
		soda_fd_close(fd);
		return ret;
	}
	return create(fd, queue_fd, rest, opt, conn_p, why);
}

/* Listening */

/* A socket file that nobody listens on is left over from a server that was killed. */
static bool is_stale(const struct sockaddr_un *addr, socklen_t bytes)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)addr, bytes) < 0 &&
		     errno == ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return stale;
}

/* A file at the path may go if it is a stale socket of this user's. NULL, or the reason why not. */
static const char *may_replace(const struct sockaddr_un *addr, socklen_t bytes)
{
	struct stat st;

	if (!addr->sun_path[0])
		return "another server runs there";
	if (lstat(addr->sun_path, &st) < 0)
		return "what lies there cannot be looked at";
	if (!S_ISSOCK(st.st_mode))
		return "what lies there is no socket, and stays: name another path";
	if (st.st_uid != geteuid())
		return "the socket that lies there is another user's, and stays";
	return is_stale(addr, bytes) ? NULL : "another server runs there";
}

/* Which file bind(2) has made: the next server may put its own there while this one drains. */
static void note_file(const struct sockaddr_un *addr, struct soda_socket_file *file_p)
{
	struct stat st;

	if (!addr->sun_path[0] || lstat(addr->sun_path, &st) < 0)
		return;
	memcpy(file_p->path, addr->sun_path, sizeof(file_p->path));
	file_p->dev = st.st_dev;
	file_p->ino = st.st_ino;
}

/* 0; negative errno, with why where something is in the way. */
static int bind_and_listen(int fd, const struct sockaddr_un *addr, socklen_t bytes,
			   const char *address, struct soda_socket_file *file_p,
			   struct soda_why *why)
{
	int ret = bind(fd, (const struct sockaddr *)addr, bytes);

	if (ret < 0 && errno == EADDRINUSE) {
		const char *in_the_way = may_replace(addr, bytes);

		if (in_the_way) {
			soda_why_set(why, "cannot listen on %s: %s; %s", address,
				     soda_strerror(-EADDRINUSE), in_the_way);
			return -EADDRINUSE;
		}
		unlink(addr->sun_path);
		ret = bind(fd, (const struct sockaddr *)addr, bytes);
	}
	if (ret == 0)
		note_file(addr, file_p);
	if (ret == 0 && listen(fd, BACKLOG) == 0)
		return 0;
	ret = -errno;
	soda_why_set(why, "cannot listen on %s: %s", address, soda_strerror(ret));
	return ret;
}

static int shm_listen(const char *rest, const struct soda_service *ops, void *svc,
		      const struct soda_listener_options *opt, struct soda_listener **listener_p,
		      struct soda_why *why)
{
	struct soda_socket_file file = { .path = "" };
	struct sockaddr_un addr;
	char address[128];
	socklen_t bytes;
	int ret = soda_shm_address(rest, &addr, &bytes, why);
	int fd;

	if (ret < 0)
		return ret;
	snprintf(address, sizeof(address), SODA_SHM_PREFIX "%s", rest);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		ret = -errno;
		soda_why_set(why, "cannot listen on %s: %s", address, soda_strerror(ret));
		return ret;
	}
	ret = bind_and_listen(fd, &addr, bytes, address, &file, why);
	if (ret < 0) {
		soda_socket_file_remove(&file);
		close(fd);
		return ret;
	}
	ret = soda_listener_create(fd, address, true,
				   ops->request ? &soda_queue_plane : &soda_stream_plane, ops, svc,
				   opt, listener_p, why);
	if (ret == 0)
		(*listener_p)->file = file;
	else
		soda_socket_file_remove(&file);
	return ret;
}

const struct soda_transport soda_tp_shm = {
	.prefix = SODA_SHM_PREFIX,
	.proves = true,
	.connect = shm_connect,
	.listen = shm_listen,
};
