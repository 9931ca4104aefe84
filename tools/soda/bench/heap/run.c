/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs under `soda run`, and the same without, in turns. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "soda/base/tool.h"
#include "soda/bench/heap/heap.h"
#include "soda/bench/worker/summary.h"
#include "soda/bench/worker/worker.h"

enum { ARGS_MAX = 16, OUTPUT_MAX = 64 };

/* Never returns.  args: "soda" stands for this program itself. */
static void become(const char *const *args, int out)
{
	const char *name = args[0];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(out, STDOUT_FILENO);
	unsetenv("SODA_SERVER");
	unsetenv("SODA_DPU");
	unsetenv("SODA_BUFFER");
	if (strcmp(name, "soda") == 0)
		execv("/proc/self/exe", (char *const *)(uintptr_t)args);
	else
		execvp(name, (char *const *)(uintptr_t)args);
	fprintf(stderr, "soda bench heap: %s: %s\n", name, strerror(errno));
	_exit(127);
}

static void collect(int fd, char output[OUTPUT_MAX])
{
	ssize_t n;

	memset(output, 0, OUTPUT_MAX);
	for (size_t used = 0; (n = read(fd, output + used, OUTPUT_MAX - 1 - used)) > 0;)
		used += (size_t)n;
}

/* Run a command to its end: its seconds, and the beginning of its output. */
static int run(const char *const *args, double *s_p, char output[OUTPUT_MAX])
{
	int ends[2], status;
	double began;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	began = (double)soda_now_ns() / 1e9;
	pid = fork();
	if (pid == 0)
		become(args, ends[1]);
	close(ends[1]);
	collect(ends[0], output);
	close(ends[0]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -errno;
	*s_p = (double)soda_now_ns() / 1e9 - began;
	if (status == 0)
		return 0;
	fprintf(stderr, "soda bench heap: %s %s ended with %s %d\n", args[0],
		args[1] ? args[1] : "", WIFSIGNALED(status) ? "signal" : "status",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return -ECHILD;
}

static int compare(const char *const *plain, const char *const *ours, uint32_t rounds,
		   struct soda_heap_pair *out)
{
	double a[SODA_BENCH_ROUNDS_MAX], b[SODA_BENCH_ROUNDS_MAX];
	double more[SODA_BENCH_ROUNDS_MAX], ratio[SODA_BENCH_ROUNDS_MAX];
	char theirs_said[OUTPUT_MAX], ours_said[OUTPUT_MAX];

	for (uint32_t i = 0; i <= rounds; i++) { /* the first of each fills the page cache */
		uint32_t at = i ? i - 1 : 0;
		int err = run(plain, &a[at], theirs_said);

		err = err ? err : run(ours, &b[at], ours_said);
		if (err)
			return err;
		if (strcmp(theirs_said, ours_said) != 0) {
			fprintf(stderr, "soda bench heap: %s: the results differ: %s, %s\n",
				plain[0], theirs_said, ours_said);
			return -EILSEQ;
		}
		more[at] = b[at] - a[at];
		ratio[at] = b[at] / a[at];
	}
	*out = (struct soda_heap_pair){ .s = soda_bench_median(b, rounds),
					.plain_s = soda_bench_median(a, rounds),
					.more_s = soda_bench_median(more, rounds),
					.ratio = soda_bench_median(ratio, rounds) };
	return 0;
}

int soda_heap_start(uint32_t rounds, struct soda_heap_pair *out)
{
	static const char *const plain[] = { "true", NULL };
	static const char *const ours[] = { "soda", "run", "--", "true", NULL };

	return compare(plain, ours, rounds, out);
}

int soda_heap_fit(uint64_t bytes, uint32_t rounds, struct soda_heap_pair *out)
{
	char self[512], size[32], buffer[32];
	const char *const plain[] = { self, "bench", ".sort", size, NULL };
	const char *const ours[] = { "soda", "run",   "--mem", buffer, "--",
				     self,   "bench", ".sort", size,   NULL };
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return -errno;
	self[n] = 0;
	snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
	snprintf(buffer, sizeof(buffer), "%llu", (unsigned long long)(3 * bytes + (64u << 20)));
	return compare(plain, ours, rounds, out);
}

static uint64_t next_number(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/* By one byte of the keys, from one array to the other. */
static void sort_by(const uint64_t *from, uint64_t *to, size_t n, unsigned shift)
{
	size_t at[257] = { 0 };

	for (size_t i = 0; i < n; i++)
		at[(from[i] >> shift & 255) + 1]++;
	for (int i = 0; i < 255; i++)
		at[i + 1] += at[i];
	for (size_t i = 0; i < n; i++)
		to[at[from[i] >> shift & 255]++] = from[i];
}

int soda_heap_sort_program(uint64_t bytes)
{
	size_t n = bytes / sizeof(uint64_t);
	uint64_t *a = malloc(bytes), *b = malloc(bytes), x = 88172645463325252u, sum = 0;
	bool sorted = a && b && n;

	if (!sorted)
		return SODA_EXIT_FAILED;
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < n; i++)
			a[i] = next_number(&x);
		for (unsigned shift = 0; shift < 64; shift += 16) {
			sort_by(a, b, n, shift);
			sort_by(b, a, n, shift + 8);
		}
		for (size_t i = 0; i < n; i++) {
			sorted &= i == 0 || a[i - 1] <= a[i];
			sum = sum * 31 + a[i];
		}
	}
	printf("%s %016llx\n", sorted ? "sorted" : "not sorted", (unsigned long long)sum);
	free(a);
	free(b);
	return sorted ? SODA_EXIT_OK : SODA_EXIT_FAILED;
}
