/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pages/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/guard.h"
#include "host_agent/core/agent.h"
#include "host_agent/pages/signals.h"

static void on_sigsegv(int sig, siginfo_t *info, void *context)
{
	int saved = errno;

	/* si_code > 0: from the kernel, not from kill(2) */
	if (info->si_code > 0 && soda_agent_owns(info->si_addr))
		soda_guard_escape(context);
	errno = saved;
	soda_signals_chain(sig, info, context);
}

int soda_closed_start(void)
{
	struct sigaction sa = { .sa_sigaction = on_sigsegv, .sa_flags = SA_SIGINFO };

	sigemptyset(&sa.sa_mask);
	return soda_signals_take(SIGSEGV, &sa);
}

void soda_closed_stop(void)
{
	soda_signals_give_back(SIGSEGV);
}

/* Read the bytes by /proc/self/mem, as a debugger would, whatever their protection. */
static bool read_past(void *to, const void *from, size_t bytes)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDONLY | O_CLOEXEC);
	size_t done = 0;
	long n = fd < 0 ? -1 : 1;

	while (n > 0 && done < bytes) {
		n = syscall(SYS_pread64, fd, (char *)to + done, bytes - done,
			    (long)(uintptr_t)from + (long)done);
		done += n > 0 ? (size_t)n : 0;
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	return done == bytes;
}

void *soda_closed_copy(const void *from, size_t bytes)
{
	int saved = errno;
	void *to = (void *)syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

	if (to != MAP_FAILED && !read_past(to, from, bytes)) {
		syscall(SYS_munmap, to, bytes);
		to = MAP_FAILED;
	}
	errno = saved;
	return to == MAP_FAILED ? NULL : to;
}

void soda_closed_free(void *copy, size_t bytes)
{
	int saved = errno;

	if (copy)
		syscall(SYS_munmap, copy, bytes);
	errno = saved;
}
