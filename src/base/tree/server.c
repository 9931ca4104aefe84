/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/tree/server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/tree/tree.h"

/* The low bits of `state`; the others count its changes, so that no change is taken for another. */
enum { NONE, ASKED, UP, FAILED, STATES };

static uint32_t after(uint32_t state, uint32_t next)
{
	return (state / STATES + 1) * STATES + next;
}

static void wake(struct soda_tree_server *s)
{
	syscall(SYS_futex, &s->state, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void sleep_while(struct soda_tree_server *s, uint32_t state, int timeout_ms)
{
	struct timespec ts = { .tv_sec = timeout_ms / 1000,
			       .tv_nsec = timeout_ms % 1000 * 1000000 };

	syscall(SYS_futex, &s->state, FUTEX_WAIT, state, &ts, NULL, 0);
}

/* 0: it cannot be told. A server of another network is not to be reached by its address. */
static uint64_t network(void)
{
	struct stat st;

	return stat("/proc/self/ns/net", &st) ? 0 : st.st_ino;
}

void soda_tree_server_init(struct soda_tree *tree, int keeper_fd, const char *program)
{
	struct soda_tree_server *s = &tree->server;

	snprintf(s->keeper, sizeof(s->keeper), "/proc/%d/fd/%d", getpid(), keeper_fd);
	snprintf(s->program, sizeof(s->program), "%s", program ? program : "");
	atomic_store(&s->network, network());
}

uint32_t soda_tree_server_asked(struct soda_tree *tree, int timeout_ms)
{
	struct soda_tree_server *s = &tree->server;
	uint32_t state = atomic_load(&s->state);

	if (state % STATES != ASKED)
		sleep_while(s, state, timeout_ms);
	return atomic_load(&s->state) % STATES == ASKED ? atomic_load(&s->timeout_ms) : 0;
}

void soda_tree_server_none(struct soda_tree *tree)
{
	atomic_store(&tree->server.network, 0);
}

static void answer(struct soda_tree_server *s, uint32_t next)
{
	atomic_store(&s->state, after(atomic_load(&s->state), next));
	wake(s);
}

void soda_tree_server_up(struct soda_tree *tree, const char *address, int life_fd)
{
	struct soda_tree_server *s = &tree->server;
	struct stat st;

	if (fstat(life_fd, &st)) {
		soda_tree_server_failed(tree, strerror(errno));
		return;
	}
	s->life_inode = st.st_ino;
	snprintf(s->life, sizeof(s->life), "/proc/%d/fd/%d", getpid(), life_fd);
	snprintf(s->address, sizeof(s->address), "%s", address);
	answer(s, UP);
}

void soda_tree_server_failed(struct soda_tree *tree, const char *why)
{
	snprintf(tree->server.why, sizeof(tree->server.why), "%s", why);
	answer(&tree->server, FAILED);
}

/* Ask for a server, if it is as it was. */
static void ask(struct soda_tree_server *s, uint32_t state, int timeout_ms)
{
	atomic_store(&s->timeout_ms, (uint32_t)timeout_ms);
	if (atomic_compare_exchange_strong(&s->state, &state, after(state, ASKED)))
		wake(s);
}

/* Whether that path is still the pipe that `soda` has open. */
static bool still_there(const struct soda_tree_server *seen)
{
	struct stat st;

	return !stat(seen->life, &st) && S_ISFIFO(st.st_mode) && st.st_ino == seen->life_inode;
}

/*
 * Open the pipe. -ENXIO: the server has died; -ENOENT: `soda` has.  The server has seen the end of
 * the pipe where nobody had it open for a moment: not if `soda` has it before and after.
 */
static int hold(const struct soda_tree_server *seen, int *life_fd_p)
{
	int fd = still_there(seen) ? open(seen->life, O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;

	struct pollfd p = { .fd = fd };

	if (fd < 0)
		return -ENOENT;
	if (!still_there(seen) || poll(&p, 1, 0)) { /* POLLERR: nobody reads it any more */
		close(fd);
		return p.revents ? -ENXIO : -ENOENT;
	}
	*life_fd_p = fd;
	return 0;
}

/* What `soda` has said last, whole; its state. */
static uint32_t look(struct soda_tree_server *s, struct soda_tree_server *seen)
{
	uint32_t state;

	do {
		state = atomic_load(&s->state);
		memcpy(seen, s, sizeof(*seen));
		atomic_thread_fence(memory_order_seq_cst);
	} while (state != atomic_load(&s->state));
	return state;
}

int soda_tree_server_join(struct soda_tree *tree, const char *program, int timeout_ms,
			  char *address, size_t address_bytes, int *life_fd_p,
			  char why[SODA_TREE_WHY])
{
	struct soda_tree_server *s = &tree->server, seen;
	uint64_t deadline = soda_now_ns() + (uint64_t)timeout_ms * SODA_MS_NS;
	uint64_t its = atomic_load(&s->network);
	uint32_t first = atomic_load(&s->state);

	if (!its || its != network() || strcmp(s->program, program ? program : ""))
		return -ENOENT;
	do {
		uint32_t state = look(s, &seen);
		int ret = state % STATES == UP ? hold(&seen, life_fd_p) : 0;

		if (ret == -ENOENT || access(s->keeper, F_OK))
			return -ENOENT;
		if (state % STATES == UP && !ret) {
			snprintf(address, address_bytes, "%s", seen.address);
			return 0;
		}
		if (state % STATES == FAILED && state != first) {
			memcpy(why, seen.why, SODA_TREE_WHY);
			return -EIO;
		}
		if (state % STATES == ASKED)
			sleep_while(s, state, SODA_RUN_SERVER_LOOK_MS);
		else
			ask(s, state, timeout_ms);
	} while (soda_now_ns() < deadline);
	return -ETIMEDOUT;
}
