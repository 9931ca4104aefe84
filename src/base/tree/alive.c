/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What counts here of /proc/PID/stat. */
struct line {
	int pid;
	char state;
	long threads;
	unsigned long long started, stack; /* stack: 0 where it is not shown to this process */
};

/* Read the line of that process, "self" or a number. 0; 1: there is no such process; -errno. */
static int look(const char *process, struct line *out)
{
	char path[40], text[1024], *rest;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%s/stat", process);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 1 : -errno;
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n <= 0)
		return n == -ESRCH ? 1 : n < 0 ? (int)n : -EPROTO;
	text[n] = 0;
	rest = strrchr(text, ')'); /* the name before it may have anything in it */
	if (!rest || sscanf(text, "%d", &out->pid) != 1 ||
	    sscanf(rest,
		   ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d "
		   "%llu %*u %*d %*u %*u %*u %llu",
		   &out->state, &out->threads, &out->started, &out->stack) != 4)
		return -EPROTO;
	return 0;
}

/* Mixes both numbers (the finalizer of MurmurHash3, Appleby); never 0. */
static uint32_t mark_of(const struct line *l)
{
	uint64_t x = l->started * 0x9e3779b97f4a7c15u ^ l->stack;

	x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
	return (uint32_t)(x >> 32) | 1;
}

uint64_t soda_alive_self(void)
{
	struct line l;

	return look("self", &l) ? 0 : (uint64_t)(uint32_t)l.pid << 32 | mark_of(&l);
}

bool soda_alive(uint64_t who)
{
	char process[16];
	struct line l;
	int ret;

	snprintf(process, sizeof(process), "%d", soda_alive_pid(who));
	ret = look(process, &l);
	if (ret > 0) /* or its user is another one now, and /proc hides it */
		return !kill(soda_alive_pid(who), 0) || errno != ESRCH;
	if (ret)
		return true;
	/* a first thread that has ended before the others leaves a zombie, and has their memory */
	if (l.state == 'X' || (l.state == 'Z' && l.threads <= 1))
		return false;
	/* of a process that hides its addresses nothing can be said but that it is there */
	return !l.stack || mark_of(&l) == (uint32_t)who;
}
