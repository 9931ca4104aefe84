/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/stage/patience.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum {
	DEFAULT_MS = 20000,
	LOOK_MS = 200,
	END_LOOK_MS = 2,
	STILL_PART = 1000, /* of the time: less is the housekeeping of a process that waits */
	ALONE_TIMES = 2,   /* soda_patience_ms(): a busy machine gives it no turn for a while */
	WAITS_TIMES = 3	   /* more than the two that a wait of its own may last */
};

uint64_t soda_patience_ms(void)
{
	const char *text = getenv("SODA_BENCH_PATIENCE");
	double seconds = text ? strtod(text, NULL) : 0;

	return seconds > 0 && seconds < 1e6 ? (uint64_t)(seconds * 1000) : DEFAULT_MS;
}

static uint64_t ns_of(clockid_t clock)
{
	struct timespec t = { 0 };

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now_ms(void)
{
	return ns_of(CLOCK_MONOTONIC) / 1000000;
}

/* 0: it has ended, or never was. */
static uint64_t cpu_ns(pid_t pid)
{
	clockid_t clock;

	return clock_getcpuclockid(pid, &clock) ? 0 : ns_of(clock);
}

int soda_patience_read(int fd, const struct soda_patience_process *process, const char *what)
{
	uint64_t patience = (process->waits ? WAITS_TIMES : ALONE_TIMES) * soda_patience_ms();
	uint64_t began = now_ms(), since = began;
	uint64_t cpu = cpu_ns(process->pid), used;
	struct pollfd in = { .fd = fd, .events = POLLIN };
	int n;

	for (;;) {
		n = poll(&in, 1, LOOK_MS);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		used = cpu_ns(process->pid) - cpu;
		if (used / 1000000 >= patience / STILL_PART + 1) {
			cpu += used;
			since = now_ms();
		}
		if (now_ms() - since >= patience)
			break;
	}
	fprintf(stderr,
		"soda: %s (process %d) stands still: waited %.1f s for %s, the last %.1f s "
		"of it without any work of its\n",
		process->name, (int)process->pid, (double)(now_ms() - began) / 1e3, what,
		(double)(now_ms() - since) / 1e3);
	return -ETIMEDOUT;
}

int soda_patience_end(const struct soda_patience_process *process, uint64_t more_ms)
{
	uint64_t limit = soda_patience_ms() + more_ms, began = now_ms();
	bool killed = false;
	int status = 0;

	for (;;) {
		pid_t ended = waitpid(process->pid, &status, killed ? 0 : WNOHANG);

		if (ended == process->pid)
			return status;
		if (ended < 0 && errno != EINTR)
			return 0;
		if (!killed && now_ms() - began >= limit) {
			fprintf(stderr,
				"soda: %s (process %d) has not ended within %.1f s; killed\n",
				process->name, (int)process->pid, (double)limit / 1e3);
			kill(process->pid, SIGKILL);
			killed = true;
		} else if (!killed) {
			poll(NULL, 0, END_LOOK_MS);
		}
	}
}
