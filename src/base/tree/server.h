/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one private memory server of all processes of one `soda run` without --server.  `soda` starts
 * it when the first process asks, and says in the shared memory where it listens.
 *
 *   NONE --asked--> ASKED --up--> UP --asked, because it has died--> ASKED
 *                     +--failed--> FAILED --asked--> ASKED
 *
 * The server runs as long as somebody holds the pipe that it was started with (base/embedded.h):
 * `soda` does, and each process that uses the server, so that it ends with the last of them,
 * however they end.
 */
#ifndef SODA_BASE_TREE_SERVER_H
#define SODA_BASE_TREE_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soda_tree;

enum { SODA_TREE_PATH = 512, SODA_TREE_WHY = 512 };

struct soda_tree_server {
	_Atomic uint32_t state; /* futex: one of the states above, and how often it has changed */
	_Atomic uint32_t timeout_ms;  /* of who asked: how long the start may take */
	char keeper[48];	      /* path of what `soda` alone has open; constant */
	char program[SODA_TREE_PATH]; /* SODA_MEM_SERVER as `soda` has it, or ""; constant */
	_Atomic uint64_t network;     /* namespace of `soda`; 0: it starts no server */
	/* written while ASKED, by `soda` alone */
	uint64_t life_inode;
	char life[48];	   /* path of the pipe's end that `soda` has */
	char address[128]; /* where the server listens */
	char why[SODA_TREE_WHY];
};

/* For `soda`: before others map the memory.  program: SODA_MEM_SERVER, or NULL. */
void soda_tree_server_init(struct soda_tree *tree, int keeper_fd, const char *program);
/* Wait until somebody asks for a server, at most timeout_ms; how long its start may take, or 0. */
uint32_t soda_tree_server_asked(struct soda_tree *tree, int timeout_ms);
/* It listens at that address. The descriptor, which keeps it running, stays the caller's. */
void soda_tree_server_up(struct soda_tree *tree, const char *address, int life_fd);
/* It will never start one: each process has its own. */
void soda_tree_server_none(struct soda_tree *tree);
/* There is none, and why. */
void soda_tree_server_failed(struct soda_tree *tree, const char *why);

/*
 * For a process: where the server listens, and a descriptor, closed by exec, that keeps it running.
 * program: the server's as this process wants it, or NULL.  0; -ENOENT: there is none for this
 * process, because `soda` has ended or cannot be seen, or because it is in another network, or
 * wants another program; -ETIMEDOUT: `soda` has not answered for timeout_ms; -EIO, and the reason
 * in why: `soda` could not start it.
 */
int soda_tree_server_join(struct soda_tree *tree, const char *program, int timeout_ms,
			  char *address, size_t address_bytes, int *life_fd_p,
			  char why[SODA_TREE_WHY]);

#endif
