/* SPDX-License-Identifier: BSD-3-Clause */
/* The parent's side of a worker process. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "soda/bench/worker/worker.h"
#include "soda/stage/patience.h"

/* Never returns. The worker is this program again, started afresh. */
static void exec_worker(int fd)
{
	char number[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(number, sizeof(number), "%d", fd);
	execl("/proc/self/exe", "soda", "bench", ".worker", number, (char *)NULL);
	_exit(127);
}

static struct soda_patience_process process_of(const struct soda_bench_driver *driver,
					       char name[32])
{
	snprintf(name, 32, "the %s process", driver->name);
	return (struct soda_patience_process){ .pid = driver->pid, .name = name, .waits = true };
}

/* The worker has gone without an answer: say how it ended. */
static int report_death(struct soda_bench_driver *driver)
{
	char name[32];
	struct soda_patience_process process = process_of(driver, name);
	int status;

	close(driver->fd);
	status = soda_patience_end(&process, 0);
	driver->pid = 0;
	if (WIFSIGNALED(status))
		fprintf(stderr, "soda bench: the %s process was ended by signal %d (%s)\n",
			driver->name, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		fprintf(stderr, "soda bench: the %s process ended with status %d\n", driver->name,
			WEXITSTATUS(status));
	return -ECHILD;
}

static int say(struct soda_bench_driver *driver, const void *question, size_t bytes)
{
	return send(driver->fd, question, bytes, MSG_NOSIGNAL) == (ssize_t)bytes
		       ? 0
		       : report_death(driver);
}

static int hear(struct soda_bench_driver *driver, void *answer_p, size_t bytes, const char *what)
{
	char name[32];
	struct soda_patience_process process = process_of(driver, name);

	if (soda_patience_read(driver->fd, &process, what)) {
		kill(driver->pid, SIGKILL);
		return report_death(driver);
	}
	return recv(driver->fd, answer_p, bytes, 0) == (ssize_t)bytes ? 0 : report_death(driver);
}

int soda_bench_driver_start(struct soda_bench_driver *driver, const struct soda_bench_plan *plan,
			    struct soda_bench_ready *ready_p)
{
	int pair[2], err;

	if (!driver->name)
		driver->name = plan->floor ? "floor" : "SODA";
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		err = -errno;
		fprintf(stderr, "soda bench: socketpair: %s\n", strerror(-err));
		return err;
	}
	driver->pid = fork();
	if (driver->pid == 0)
		exec_worker(dup(pair[1])); /* dup: this one stays open over exec */
	err = driver->pid < 0 ? -errno : 0;
	close(pair[1]);
	driver->fd = pair[0];
	if (err) {
		close(pair[0]);
		driver->pid = 0;
		fprintf(stderr, "soda bench: fork: %s\n", strerror(-err));
		return err;
	}
	err = say(driver, plan, sizeof(*plan));
	if (!err)
		err = hear(driver, ready_p, sizeof(*ready_p), "its start");
	if (!err && ready_p->err) {
		fprintf(stderr, "soda bench: %s: %s\n", driver->name, ready_p->why);
		err = ready_p->err;
	}
	return err;
}

int soda_bench_driver_ask(struct soda_bench_driver *driver, uint32_t flags)
{
	return say(driver, &flags, sizeof(flags));
}

int soda_bench_driver_answer(struct soda_bench_driver *driver, struct soda_bench_sample *sample_p)
{
	int err = hear(driver, sample_p, sizeof(*sample_p), "the end of a round");

	if (!err && sample_p->err) {
		fprintf(stderr, "soda bench: %s: %s\n", driver->name, sample_p->why);
		err = sample_p->err;
	}
	return err;
}

int soda_bench_driver_round(struct soda_bench_driver *driver, uint32_t flags,
			    struct soda_bench_sample *sample_p)
{
	int err = soda_bench_driver_ask(driver, flags);

	return err ? err : soda_bench_driver_answer(driver, sample_p);
}

void soda_bench_driver_stop(struct soda_bench_driver *driver)
{
	char name[32];
	struct soda_patience_process process = process_of(driver, name);

	if (driver->pid <= 0)
		return;
	close(driver->fd);
	soda_patience_end(&process, 0);
	driver->pid = 0;
}

int soda_bench_drivers_round(struct soda_bench_driver *drivers, uint32_t n, uint32_t flags,
			     struct soda_bench_sample *samples_p)
{
	int err = 0;

	for (uint32_t i = 0; i < n && !err; i++)
		err = soda_bench_driver_ask(&drivers[i], flags);
	for (uint32_t i = 0; i < n && !err; i++)
		err = soda_bench_driver_answer(&drivers[i], &samples_p[i]);
	return err;
}

uint64_t soda_bench_samples_wall_ns(const struct soda_bench_sample *samples, uint32_t n)
{
	uint64_t began = UINT64_MAX, ended = 0;

	for (uint32_t i = 0; i < n; i++) {
		began = samples[i].began_ns < began ? samples[i].began_ns : began;
		ended = samples[i].ended_ns > ended ? samples[i].ended_ns : ended;
	}
	return ended > began ? ended - began : 0;
}
