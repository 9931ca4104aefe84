/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floor's server: a bare process that holds the region.  Over tcp a blocking
 * thread a connection answers READs and WRITEs; over shm it only owns the memfd.
 * It ends when the client closes its end of the life pipe, or dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "soda/bench/floor/link.h"
#include "soda/stage/patience.h"

/* The server process's own; set before its threads start. */
static struct {
	uint8_t *memory;
	uint32_t chunk_bytes;
	uint32_t chunks;
} store;

static int serve_write(int fd, const struct soda_floor_request *request)
{
	const uint32_t ack = request->n;

	for (uint32_t i = 0; i < request->n; i++) {
		uint8_t *to = store.memory + (uint64_t)request->chunk[i] * store.chunk_bytes;
		int err = soda_floor_recv(fd, to, store.chunk_bytes);

		if (err)
			return err;
	}
	return soda_floor_send(fd, &(struct iovec){ (void *)&ack, sizeof(ack) }, 1);
}

static int serve_one(int fd)
{
	struct soda_floor_request request;
	int err = soda_floor_recv(fd, &request, sizeof(request));

	if (err)
		return err;
	if (request.n == 0 || request.n > SODA_FLOOR_BATCH)
		return -EPROTO;
	for (uint32_t i = 0; i < request.n; i++)
		if (request.chunk[i] >= store.chunks)
			return -EPROTO;
	if (request.op == SODA_FLOOR_WRITE)
		return serve_write(fd, &request);
	uint8_t *from = store.memory + (uint64_t)request.chunk[0] * store.chunk_bytes;
	return soda_floor_send(fd, &(struct iovec){ from, store.chunk_bytes }, 1);
}

static void *serve_connection(void *arg)
{
	int fd = (int)(intptr_t)arg;

	while (serve_one(fd) == 0)
		;
	close(fd);
	return NULL;
}

static void *accept_connections(void *arg)
{
	int listener = (int)(intptr_t)arg;

	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		pthread_t thread;

		if (fd < 0)
			_exit(1);
		soda_floor_tune(fd);
		if (pthread_create(&thread, NULL, serve_connection, (void *)(intptr_t)fd))
			_exit(1);
		pthread_detach(thread);
	}
}

/* Never returns. */
static void run(const struct soda_floor_options *opt, int memfd, int listener, int ready, int life)
{
	int flags = memfd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	uint64_t bytes = (opt->bytes + opt->chunk_bytes - 1) / opt->chunk_bytes * opt->chunk_bytes;
	pthread_t acceptor;
	char byte = 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "soda-floor");
	signal(SIGPIPE, SIG_IGN);
	store.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, memfd, 0);
	if (store.memory == MAP_FAILED)
		_exit(1);
	if (memfd < 0) /* as the memory server does */
		madvise(store.memory, bytes, MADV_HUGEPAGE);
	store.chunk_bytes = opt->chunk_bytes;
	store.chunks = (uint32_t)(bytes / opt->chunk_bytes);
	opt->fill((uint64_t *)(void *)store.memory, bytes / sizeof(uint64_t), opt->seed);
	if (listener >= 0 &&
	    pthread_create(&acceptor, NULL, accept_connections, (void *)(intptr_t)listener))
		_exit(1);
	if (write(ready, &byte, 1) != 1)
		_exit(1);
	while (read(life, &byte, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

static int listen_on_loopback(int *port_p)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	soda_floor_tune(fd);
	if (bind(fd, (struct sockaddr *)&address, bytes) || listen(fd, 128) ||
	    getsockname(fd, (struct sockaddr *)&address, &bytes)) {
		int err = -errno;

		close(fd);
		return err;
	}
	*port_p = ntohs(address.sin_port);
	return fd;
}

static int make_memfd(const struct soda_floor_options *opt)
{
	uint64_t bytes = (opt->bytes + opt->chunk_bytes - 1) / opt->chunk_bytes * opt->chunk_bytes;
	int fd = memfd_create("soda-floor", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* The client's half of the start: wait until the memory is filled. */
static int await_ready(int ready, struct soda_floor_server *server)
{
	struct soda_patience_process process = { .pid = server->pid, .name = "the floor's server" };
	char byte;

	if (soda_patience_read(ready, &process, "its memory to be filled"))
		kill(server->pid, SIGKILL);
	if (read(ready, &byte, 1) == 1)
		return 0;
	soda_floor_server_stop(server);
	return -ENOMEM;
}

int soda_floor_server_start(const struct soda_floor_options *opt,
			    struct soda_floor_server *server_p)
{
	struct soda_floor_server server = { .memfd = -1 };
	int ready[2] = { -1, -1 }, life[2] = { -1, -1 }, listener = -1, err = 0;

	if (opt->shm)
		err = server.memfd = make_memfd(opt);
	else
		err = listener = listen_on_loopback(&server.port);
	if (err < 0)
		return err;
	if (pipe2(ready, O_CLOEXEC) || pipe2(life, O_CLOEXEC) || (server.pid = fork()) < 0) {
		err = -errno;
		close_fd(server.memfd);
		close_fd(ready[1]);
		close_fd(life[1]);
		goto close_ours;
	}
	if (server.pid == 0) {
		close(ready[0]);
		close(life[1]);
		run(opt, server.memfd, listener, ready[1], life[0]);
	}
	server.life = life[1];
	close(ready[1]);
	err = await_ready(ready[0], &server);
	if (!err)
		*server_p = server;
close_ours:
	close_fd(ready[0]);
	close_fd(life[0]);
	close_fd(listener);
	return err;
}

void soda_floor_server_stop(struct soda_floor_server *server)
{
	if (server->pid <= 0)
		return;
	close(server->life);
	soda_patience_end(
		&(struct soda_patience_process){ .pid = server->pid, .name = "the floor's server" },
		0);
	close_fd(server->memfd);
	server->pid = 0;
	server->memfd = -1;
}
