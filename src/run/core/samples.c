/* SPDX-License-Identifier: BSD-3-Clause */
/* --report: a thread takes samples of the counters, into memory that `soda run` shares. */
#include "run/core/run.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "base/run.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/thread.h"

static const int64_t interval_least_ns = 5000000;

static struct soda_run_samples *shared;
static int shared_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held to add a sample */
static int64_t interval_ns;
static uint64_t start_ns;

void run_samples_open(int fd)
{
	struct stat st;
	void *p;

	if (fstat(fd, &st) || st.st_size != sizeof(*shared))
		return;
	p = (void *)syscall(SYS_mmap, NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    0);
	if (p == MAP_FAILED)
		return;
	if (((struct soda_run_samples *)p)->magic != SODA_RUN_SAMPLES_MAGIC) {
		syscall(SYS_munmap, p, sizeof(*shared));
		return;
	}
	shared_fd = soda_fd_own(fcntl(fd, F_DUPFD_CLOEXEC, 100));
	close(fd);
	syscall(SYS_madvise, p, sizeof(*shared), MADV_DONTFORK);
	shared = p;
	atomic_store(&shared->n, 0); /* the program before the execve may have left some */
}

char *run_samples_keep(void)
{
	static char variable[40];

	if (!shared || shared_fd < 0 || fcntl(shared_fd, F_SETFD, 0))
		return NULL;
	snprintf(variable, sizeof(variable), "SODA_RUN_SAMPLES=%d", shared_fd);
	return variable;
}

void run_samples_keep_not(void)
{
	if (shared && shared_fd >= 0)
		fcntl(shared_fd, F_SETFD, FD_CLOEXEC);
}

static void look(struct soda_run_sample *s)
{
	const struct soda_buffer *b = &soda_agent.buffer;

	*s = (struct soda_run_sample){
		.at_ns = soda_now_ns() - start_ns,
		.reserved = atomic_load(&soda_agent.fam_bytes),
		.resident = (uint64_t)soda_buffer_used(b) * soda_chunk_bytes(),
		.buffer = (uint64_t)b->limit * soda_chunk_bytes(),
		.faults = soda_threads_sum(SODA_CNT_FAULTS),
		.zero_fills = soda_threads_sum(SODA_CNT_ZERO_FILLS),
		.fetched = soda_threads_sum(SODA_CNT_BYTES_FETCHED),
		.written = soda_threads_sum(SODA_CNT_BYTES_WRITTEN),
		.stalled_ns = soda_threads_sum(SODA_CNT_STALLED_NS),
	};
}

/*
 * The memory is full: keep every second sample, and take them half as often. Returns how many are
 * left.
 */
static uint32_t thin_out(void)
{
	uint32_t n = SODA_RUN_SAMPLES / 2;

	for (uint32_t i = 1; i < n; i++)
		shared->samples[i] = shared->samples[2 * i];
	interval_ns *= 2;
	return n;
}

void run_samples_take(void)
{
	uint32_t n;

	if (!shared)
		return;
	pthread_mutex_lock(&lock);
	n = atomic_load(&shared->n);
	if (n == SODA_RUN_SAMPLES)
		n = thin_out();
	look(&shared->samples[n]);
	atomic_store(&shared->n, n + 1);
	pthread_mutex_unlock(&lock);
}

static void *run(void *arg)
{
	run_inside++; /* this thread is the runtime's */
	for (;;) {
		struct timespec pause;

		run_samples_take();
		pause = (struct timespec){ interval_ns / 1000000000, interval_ns % 1000000000 };
		nanosleep(&pause, NULL);
	}
	return NULL;
}

void run_samples_start(void)
{
	pthread_t thread;

	if (!shared)
		return;
	start_ns = soda_now_ns();
	interval_ns = interval_least_ns;
	if (soda_helper_start(&thread, "soda-report", run, NULL))
		soda_log_warning("soda run: no thread for --report: it shows the end alone");
}
