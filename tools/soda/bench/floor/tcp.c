/* SPDX-License-Identifier: BSD-3-Clause */
/* The floor's tcp link: a blocking connection and a staging chunk a faulting thread. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soda/bench/floor/link.h"
#include "soda/stage/patience.h"

/* Set before the threads start, then constant. */
static struct {
	int *fd;	  /* one a thread */
	uint8_t *staging; /* one chunk a thread */
	uint32_t chunk_bytes;
	uint32_t threads;
} tcp;

void soda_floor_tune(int fd)
{
	const int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5))
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

int soda_floor_send(int fd, struct iovec *iov, int n)
{
	while (n > 0) {
		struct msghdr message = { .msg_iov = iov, .msg_iovlen = (size_t)n };
		ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		while (n > 0 && (size_t)sent >= iov->iov_len) {
			sent -= (ssize_t)iov->iov_len;
			iov++;
			n--;
		}
		if (n > 0) {
			iov->iov_base = (uint8_t *)iov->iov_base + sent;
			iov->iov_len -= (size_t)sent;
		}
	}
	return 0;
}

int soda_floor_recv(int fd, void *data, size_t bytes)
{
	uint8_t *to = data;

	while (bytes > 0) {
		ssize_t got = recv(fd, to, bytes, MSG_WAITALL);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got == 0 ? -EPIPE : errno == EAGAIN ? -ETIMEDOUT : -errno;
		to += got;
		bytes -= (size_t)got;
	}
	return 0;
}

/* Every connect, send and receive of it fails when nothing at all has come for so long. */
static void bound(int fd)
{
	uint64_t ms = soda_patience_ms();
	struct timeval limit = { .tv_sec = (time_t)(ms / 1000),
				 .tv_usec = (suseconds_t)(ms % 1000 * 1000) };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int dial(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				       .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	soda_floor_tune(fd);
	bound(fd);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		int err = errno == EINPROGRESS ? -ETIMEDOUT : -errno;

		close(fd);
		return err;
	}
	return fd;
}

static void tcp_close(void)
{
	for (uint32_t i = 0; tcp.fd && i < tcp.threads; i++)
		if (tcp.fd[i] >= 0)
			close(tcp.fd[i]);
	free(tcp.fd);
	if (tcp.staging)
		munmap(tcp.staging, (size_t)tcp.threads * tcp.chunk_bytes);
	memset(&tcp, 0, sizeof(tcp));
}

static int tcp_open(const struct soda_floor_options *opt, const struct soda_floor_server *server)
{
	size_t bytes = (size_t)opt->threads * opt->chunk_bytes;

	tcp.fd = malloc(opt->threads * sizeof(*tcp.fd));
	if (!tcp.fd)
		return -ENOMEM;
	memset(tcp.fd, -1, opt->threads * sizeof(*tcp.fd));
	tcp.threads = opt->threads;
	tcp.chunk_bytes = opt->chunk_bytes;
	tcp.staging = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (tcp.staging == MAP_FAILED) {
		tcp.staging = NULL;
		tcp_close();
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < opt->threads; i++) {
		tcp.fd[i] = dial(server->port);
		if (tcp.fd[i] < 0) {
			int err = tcp.fd[i];

			tcp_close();
			return err;
		}
	}
	return 0;
}

static const void *tcp_fetch(unsigned thread, uint32_t chunk)
{
	struct soda_floor_request request = { .op = SODA_FLOOR_READ, .n = 1, .chunk = { chunk } };
	uint8_t *to = tcp.staging + (size_t)thread * tcp.chunk_bytes;
	int fd = tcp.fd[thread];
	int err = soda_floor_send(fd, &(struct iovec){ &request, sizeof(request) }, 1);

	if (!err)
		err = soda_floor_recv(fd, to, tcp.chunk_bytes);
	errno = -err;
	return err ? NULL : to;
}

static int tcp_post(unsigned thread, const uint8_t *base, const uint32_t *chunks, uint32_t n)
{
	struct soda_floor_request request = { .op = SODA_FLOOR_WRITE, .n = n };
	struct iovec iov[1 + SODA_FLOOR_BATCH] = { { &request, sizeof(request) } };

	for (uint32_t i = 0; i < n; i++) {
		request.chunk[i] = chunks[i];
		iov[1 + i].iov_base = (void *)(base + (uint64_t)chunks[i] * tcp.chunk_bytes);
		iov[1 + i].iov_len = tcp.chunk_bytes;
	}
	return soda_floor_send(tcp.fd[thread], iov, (int)n + 1);
}

static int tcp_wait(unsigned thread)
{
	uint32_t ack;

	return soda_floor_recv(tcp.fd[thread], &ack, sizeof(ack));
}

const struct soda_floor_link soda_floor_tcp = {
	.open = tcp_open,
	.fetch = tcp_fetch,
	.post = tcp_post,
	.wait = tcp_wait,
	.close = tcp_close,
};
