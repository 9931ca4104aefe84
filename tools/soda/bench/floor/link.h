/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floor's private header: the pager (pager.c) between the kernel (kernel.c) and a link (tcp.c,
 * shm.c) to the server process (server.c).
 */
#ifndef SODA_FLOOR_LINK_H
#define SODA_FLOOR_LINK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "soda/bench/floor/floor.h"

enum soda_floor_op { SODA_FLOOR_READ = 1, SODA_FLOOR_WRITE = 2 };

/* One request; a WRITE is followed by n chunks, answered by four bytes; a READ by a chunk. */
struct soda_floor_request {
	uint32_t op;
	uint32_t n;
	uint32_t chunk[SODA_FLOOR_BATCH];
};

struct soda_floor_server {
	pid_t pid;
	int life;  /* closing it ends the server */
	int port;  /* tcp */
	int memfd; /* shm; else -1 */
};

/* Returns when the server's memory is filled. */
int soda_floor_server_start(const struct soda_floor_options *opt,
			    struct soda_floor_server *server_p);
void soda_floor_server_stop(struct soda_floor_server *server);

/*
 * fetch, post and wait are called by thread number `thread` only, in its signal
 * handler too: raw system calls, no allocation.
 */
struct soda_floor_link {
	int (*open)(const struct soda_floor_options *opt, const struct soda_floor_server *server);
	/* The chunk's bytes, valid until the thread's next call; NULL and errno. */
	const void *(*fetch)(unsigned thread, uint32_t chunk);
	/* Send n chunks, found at base; wait awaits the acknowledgement of the oldest post. */
	int (*post)(unsigned thread, const uint8_t *base, const uint32_t *chunks, uint32_t n);
	int (*wait)(unsigned thread);
	void (*close)(void);
};

extern const struct soda_floor_link soda_floor_tcp, soda_floor_shm;

/* All of it, blocking; 0 or negative errno (-EPIPE: end of file; -ETIMEDOUT: nothing for as long as
 * the client's side is patient). */
int soda_floor_send(int fd, struct iovec *iov, int n);
int soda_floor_recv(int fd, void *data, size_t bytes);

/* A userfaultfd over the region, which nobody has touched. 0 or negative errno. */
int soda_floor_kernel_open(const struct soda_floor_options *opt, uint8_t *base, uint64_t bytes);
void soda_floor_kernel_close(void);

/* In the signal handler; what fails ends the process. */
void soda_floor_copy(uint32_t chunk, const uint8_t *from);
void soda_floor_protect(uint32_t chunk, bool on);
void soda_floor_drop(const uint32_t *chunks, uint32_t n); /* at most SODA_FLOOR_BATCH */
void soda_floor_die(const char *what) __attribute__((noreturn));
/* The server does not do its part. err: negative. */
void soda_floor_lost(const char *what, int err) __attribute__((noreturn));

/* No delay, and not the congestion control that halves loopback throughput. */
void soda_floor_tune(int fd);

#endif
