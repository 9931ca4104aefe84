/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All programs lie in one address space; what tells them apart is which of their memory is not
 * there, and who has ended. Reading takes time, a few hundred bytes after the other, while the
 * program goes on.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "dpu_agent/movement/source.h"
#include "movement.h"
#include "net.h"

enum { STRIDE = 16, PART = 512, AWAY = 32, PIDFDS = 4096 };

static int pid_of_fd[PIDFDS];

static struct {
	char *at;
	size_t bytes;
} away[AWAY];

void move_source_begin(enum sim_process p)
{
	static int lives;

	sim_net_who[p].pid = ++lives * STRIDE + (int)p;
}

void move_source_killed(enum sim_process p)
{
	sim_net_who[p].pid = 0;
}

static bool lives(pid_t pid)
{
	return sim_net_who[pid % STRIDE].pid == pid;
}

void move_source_unmap(void *at, size_t bytes)
{
	unsigned i = 0;

	while (i < AWAY && away[i].at)
		i++;
	if (i == AWAY || mprotect(at, bytes, PROT_NONE))
		sim_fail("the simulation is wrong: memory cannot be taken away");
	away[i].at = at;
	away[i].bytes = bytes;
}

void move_source_map(void *at, size_t bytes)
{
	for (unsigned i = 0; i < AWAY; i++)
		if (away[i].at == at)
			away[i].at = NULL;
	if (mprotect(at, bytes, PROT_READ | PROT_WRITE))
		sim_fail("the simulation is wrong: memory cannot be had again");
}

static bool is_there(const char *at, size_t bytes)
{
	for (unsigned i = 0; i < AWAY; i++)
		if (away[i].at && at < away[i].at + away[i].bytes && at + bytes > away[i].at)
			return false;
	return true;
}

static short never_ready(void *arg)
{
	return 0;
}

static int pidfd_open(pid_t pid)
{
	int fd;

	sim_point();
	if (!lives(pid))
		return -ESRCH;
	fd = sim_lacks_descriptor() ? -EMFILE : sim_fd_new(SIM_AGENT, never_ready, NULL);
	if (fd >= 0)
		pid_of_fd[fd - SIM_FD] = pid;
	return fd;
}

static int ended(int pidfd)
{
	sim_point();
	return !lives(pid_of_fd[pidfd - SIM_FD]);
}

/* What follows at either side. */
struct side {
	const struct iovec *iov;
	unsigned long n;
	size_t within;
};

static size_t left(const struct side *s)
{
	return s->n ? s->iov->iov_len - s->within : 0;
}

static char *at(const struct side *s)
{
	return (char *)s->iov->iov_base + s->within;
}

static void advance(struct side *s, size_t bytes)
{
	s->within += bytes;
	while (s->n && s->within == s->iov->iov_len) {
		s->iov++;
		s->n--;
		s->within = 0;
	}
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* A page that somebody else has to bring, who stands still. */
static void perhaps_wait(void)
{
	if (sim_below(10000) < move_plan.slow_read)
		sim_sleep(sim_between(1, 6000) * SIM_MS, "a page of a program's");
}

static ssize_t read_some(pid_t pid, const struct iovec *local, unsigned long local_n,
			 const struct iovec *remote, unsigned long remote_n)
{
	struct side to = { local, local_n, 0 }, from = { remote, remote_n, 0 };
	ssize_t done = 0;
	size_t bytes;

	while ((bytes = least(PART, least(left(&to), left(&from))))) {
		sim_point();
		perhaps_wait();
		if (!move_plan.readable)
			return -EPERM;
		if (!lives(pid))
			return done ? done : -ESRCH;
		if (!is_there(at(&from), bytes))
			return done ? done : -EFAULT;
		memcpy(at(&to), at(&from), bytes);
		sim_spend(bytes / 8);
		advance(&to, bytes);
		advance(&from, bytes);
		done += (ssize_t)bytes;
	}
	return done;
}

const struct soda_source_ops move_source_ops = {
	.pidfd_open = pidfd_open,
	.ended = ended,
	.readv = read_some,
};
