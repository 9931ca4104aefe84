/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading the memory of a client's process, and how the agent is sure whose memory that is.
 *
 * The client says where in its memory a random token lies.  soda_source_open() opens a pidfd of the
 * process that the kernel has for the client's socket, and reads the token there: that process is
 * the client.  After a get soda_source_check() reads the token again, and then asks the pidfd
 * whether the process still lives: then all reads before were of that process, which had executed
 * no other program, and had not taken the token back (the library does before it gives a ticket
 * up).
 *
 * Never by CAP_SYS_PTRACE: the kernel's rule for processes of one user decides (ptrace(2), "access
 * mode checking").  Threads that read have given that capability up.
 *
 * The system calls go through soda_source_ops, which tests replace.
 */
#ifndef SODA_DPU_AGENT_SOURCE_H
#define SODA_DPU_AGENT_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "wire/movement.h"

struct soda_source {
	int pidfd;	  /* -1: closed */
	uint64_t seen_ns; /* when it was last asked, and the process lived */
	pid_t pid;
	uint64_t token_at;
	uint8_t token[SODA_MOVE_TOKEN_BYTES];
};

struct soda_source_ops {
	int (*pidfd_open)(pid_t pid);
	/* 1: the process has ended; 0: it lives; negative errno */
	int (*ended)(int pidfd);
	/* As process_vm_readv(2), but a negative errno. */
	ssize_t (*readv)(pid_t pid, const struct iovec *local, unsigned long local_n,
			 const struct iovec *remote, unsigned long remote_n);
};
extern struct soda_source_ops soda_source_ops;

/*
 * Make sure that the process `pid` has the token, and may be read. -ESRCH: there is no such
 * process; -EPERM: it may not be read; -EFAULT: the token is not there; -ENOTSUP: the kernel has no
 * pidfd, or no process_vm_readv, or a filter forbids it.
 */
int soda_source_open(struct soda_source *src, pid_t pid, uint64_t token_at,
		     const uint8_t token[SODA_MOVE_TOKEN_BYTES]);
void soda_source_close(struct soda_source *src);

/* Whether the process lives: 0, or -ESRCH. */
int soda_source_alive(struct soda_source *src);
/*
 * Before a get: the same; a process that has lived after the last get, a moment ago, is not asked
 * again.  soda_source_check() says that it has lived all the time.
 */
int soda_source_begin(struct soda_source *src);
/* What soda_source_read() has got. */
struct soda_source_got {
	uint64_t bytes;	 /* 0: the walk was at its end */
	uint64_t shared; /* of these, copied out of areas */
	bool proof;	 /* the token was read behind them, and was there */
};

/*
 * Read what the walk yields into dest, at most about `max` bytes, which is no more than 1 GiB: of
 * pieces in areas, whose `from` is an address of the agent's (areas.h), by copying; else out of the
 * process.  -EFAULT: a part cannot be read; -ESRCH, -EPERM.  The calling thread has given
 * CAP_SYS_PTRACE up.
 *
 * prove: the token is read behind the data, in the same system call, if there is one; where it
 * cannot be read, that is -EFAULT, as of data.
 */
int soda_source_read(const struct soda_source *src, struct soda_piece_walk *walk, uint8_t *dest,
		     uint64_t max, bool prove, struct soda_source_got *got_p);
/*
 * After a get: 0; -ESRCH: what was read is not to be shown.  proof: the last read has found the
 * token.
 */
int soda_source_check(struct soda_source *src, bool proof);

/*
 * Take CAP_SYS_PTRACE out of the calling thread's effective capabilities. *had_p: it was there.
 * Errors of capset(2): then the thread must not read.
 */
int soda_source_renounce(bool *had_p);
/* Put it back. */
void soda_source_resume(void);

#endif
