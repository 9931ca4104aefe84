/* SPDX-License-Identifier: BSD-3-Clause */
/* shm: addresses, and the side that listens.  All else of that side is in server*.c. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/shm/server.h"
#include "transport/shm/shm.h"

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

static int bind_and_listen(int fd, const struct sockaddr_un *addr, socklen_t bytes)
{
	int ret = bind(fd, (const struct sockaddr *)addr, bytes);

	if (ret < 0 && errno == EADDRINUSE && addr->sun_path[0] && is_stale(addr, bytes)) {
		unlink(addr->sun_path);
		ret = bind(fd, (const struct sockaddr *)addr, bytes);
	} else if (ret < 0 && errno == EADDRINUSE) {
		return -EADDRINUSE;
	}
	if (ret < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return 0;
}

int soda_shm_listen(const char *rest, const struct soda_service *ops, void *svc,
		    const struct soda_listener_options *opt, struct soda_listener **listener_p,
		    struct soda_why *why)
{
	struct sockaddr_un addr;
	char address[128];
	socklen_t bytes;
	int ret = soda_shm_address(rest, &addr, &bytes, why);
	int fd;

	if (ret < 0)
		return ret;
	snprintf(address, sizeof(address), SODA_SHM_PREFIX "%s", rest);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ret = fd < 0 ? -errno : bind_and_listen(fd, &addr, bytes);
	if (ret < 0) {
		soda_why_set(why, "cannot listen on %s: %s%s", address, soda_strerror(ret),
			     ret == -EADDRINUSE ? "; another server runs there" : "");
		if (fd >= 0)
			close(fd);
		return ret;
	}
	ret = soda_listener_create(fd, address, true,
				   ops->request ? &soda_queue_plane : &soda_stream_plane, ops, svc,
				   opt, listener_p, why);
	if (addr.sun_path[0] && ret == 0)
		memcpy((*listener_p)->path, addr.sun_path, sizeof((*listener_p)->path));
	else if (addr.sun_path[0])
		unlink(addr.sun_path);
	return ret;
}
