/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that knows nothing of SODA and has the arrays of poll, epoll_wait and their like in
 * large blocks, which nobody has touched lately.  Exit 0, or a line and 99.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #cond,       \
				errno);                                                            \
			_exit(99);                                                                 \
		}                                                                                  \
	} while (0)

/* Away from here: what the kernel stores to is not resident. */
static void *cold(void *p)
{
	CHECK(!madvise(p, 2 * MIB, MADV_PAGEOUT));
	return p;
}

static void *block(void)
{
	void *p = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	memset(p, 0, 2 * MIB);
	return p;
}

static void check_poll(int readable, int quiet)
{
	const struct timespec soon = { 0, 1000000 };
	struct pollfd *fds = block();

	for (int i = 0; i < 2; i++) {
		fds[0] = (struct pollfd){ .fd = quiet, .events = POLLIN };
		fds[1] = (struct pollfd){ .fd = readable, .events = POLLIN };
		fds[2] = (struct pollfd){ .fd = -1, .revents = 77 };
		cold(fds);
		CHECK((i ? ppoll(fds, 3, &soon, NULL) : poll(fds, 3, -1)) == 1);
		CHECK(!fds[0].revents && fds[1].revents == POLLIN && !fds[2].revents);
	}
	CHECK(poll(cold(fds), 1, 1) == 0 && !fds[0].revents);
	CHECK(ppoll(cold(fds), 1, &soon, NULL) == 0);
	CHECK(!munmap(fds, 2 * MIB));
}

static void check_epoll(int readable, int quiet)
{
	struct epoll_event *events = block();
	int fd = epoll_create1(0);
	sigset_t none;

	CHECK(fd >= 0 && !sigemptyset(&none));
	events[0] = (struct epoll_event){ .events = EPOLLIN, .data.u64 = 1234567890123u };
	CHECK(!epoll_ctl(fd, EPOLL_CTL_ADD, readable, cold(events)));
	CHECK(!epoll_ctl(fd, EPOLL_CTL_ADD, quiet, cold(events)));
	for (int i = 0; i < 2; i++) {
		memset(events, 0, 10 * sizeof(*events));
		cold(events);
		CHECK((i ? epoll_pwait(fd, events, 10, -1, &none)
			 : epoll_wait(fd, events, 10, -1)) == 1);
		CHECK(events[0].events == EPOLLIN && events[0].data.u64 == 1234567890123u);
		CHECK(!events[1].events);
	}
	CHECK(epoll_wait(fd, cold(events), 0, 0) < 0 && errno == EINVAL);
	CHECK(epoll_wait(-1, cold(events), 1, 0) < 0 && errno == EBADF);
	CHECK(!close(fd) && !munmap(events, 2 * MIB));
}

int main(void)
{
	int readable[2], quiet[2];

	CHECK(!pipe(readable) && !pipe(quiet));
	CHECK(write(readable[1], "x", 1) == 1);
	check_poll(readable[0], quiet[0]);
	check_epoll(readable[0], quiet[0]);
	return 0;
}
