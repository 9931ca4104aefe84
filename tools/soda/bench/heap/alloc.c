/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocation and free of resident blocks.  Each thread keeps a set of blocks of one size, frees a
 * few and allocates as many anew, storing a word to each.  All of them fit in the page buffer.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "soda.h"
#include "soda/base/tool.h"
#include "soda/bench/heap/heap.h"
#include "soda/bench/worker/summary.h"
#include "soda/bench/worker/worker.h"

enum { THREADS_MAX = 64, BLOCKS_MAX = 4096, BLOCKS_LEAST = 16, BURST_MAX = 32, SLICE = 64 };

/* A thread's blocks: as many as fit, a power of two. */
static const uint64_t set_bytes = 16ull << 20;

/* soda_heap_plain(), once its library is there. */
static const struct soda_heap_ops *(*plain_ops)(void);

struct field {
	const struct soda_heap_ops *ops;
	uint32_t bytes, blocks, burst;
	uint64_t ns; /* how long */
	pthread_barrier_t together;
};

struct task {
	pthread_t thread;
	struct field *field;
	uint64_t pairs, ns; /* out */
	int err;
};

static bool fill(const struct field *f, void **blocks, uint32_t from, uint32_t n)
{
	for (uint32_t i = from; i < from + n; i++) {
		blocks[i] = f->ops->alloc(f->bytes);
		if (!blocks[i])
			return false;
		*(volatile uint64_t *)blocks[i] = i;
	}
	return true;
}

static void drain(const struct field *f, void **blocks, uint32_t from, uint32_t n)
{
	for (uint32_t i = from; i < from + n; i++)
		f->ops->release(blocks[i]);
}

/*
 * The bursts go through the set with a stride, so that what is freed together is of several ages.
 */
static bool churn(struct task *t, void **blocks)
{
	const struct field *f = t->field;
	uint32_t bursts = f->blocks / f->burst, at = 0;
	uint64_t began = soda_now_ns();

	do {
		for (int i = 0; i < SLICE; i++) {
			at = (at + 5) & (bursts - 1);
			drain(f, blocks, at * f->burst, f->burst);
			if (!fill(f, blocks, at * f->burst, f->burst))
				return false;
		}
		t->pairs += (uint64_t)SLICE * f->burst;
		t->ns = soda_now_ns() - began;
	} while (t->ns < f->ns);
	return true;
}

static void *work(void *arg)
{
	struct task *t = arg;
	void **blocks = calloc(BLOCKS_MAX, sizeof(*blocks));
	bool filled = blocks && fill(t->field, blocks, 0, t->field->blocks);

	pthread_barrier_wait(&t->field->together);
	if (!filled || !churn(t, blocks))
		t->err = -ENOMEM;
	else
		drain(t->field, blocks, 0, t->field->blocks);
	free(blocks);
	return NULL;
}

/* One side of a round: nanoseconds of a pair. */
static int measure(const struct soda_heap_ops *ops, const struct soda_heap_point *p, uint32_t ms,
		   double *ns_p)
{
	struct field f = { .ops = ops, .bytes = p->bytes, .ns = ms * 1000000ull };
	struct task tasks[THREADS_MAX] = { 0 };
	double sum = 0;
	int err = 0;

	for (f.blocks = BLOCKS_LEAST;
	     f.blocks < BLOCKS_MAX && 2ull * f.blocks * p->bytes <= set_bytes;)
		f.blocks *= 2;
	f.burst = f.blocks / 4 < BURST_MAX ? f.blocks / 4 : BURST_MAX;
	pthread_barrier_init(&f.together, NULL, p->threads);
	for (uint32_t i = 0; i < p->threads; i++) {
		tasks[i].field = &f;
		if (pthread_create(&tasks[i].thread, NULL, work, &tasks[i]))
			abort(); /* the others wait for it */
	}
	for (uint32_t i = 0; i < p->threads; i++) {
		pthread_join(tasks[i].thread, NULL);
		err = tasks[i].err ? tasks[i].err : err;
		sum += (double)tasks[i].ns / (double)(tasks[i].pairs ? tasks[i].pairs : 1);
	}
	pthread_barrier_destroy(&f.together);
	*ns_p = sum / p->threads;
	return err;
}

/* A round of both sides, which take turns in being first. */
static int round_of(const struct soda_heap_point *p, uint32_t round, uint32_t ms, double *ours_p,
		    double *plain_p)
{
	static const struct soda_heap_ops ours = { soda_malloc, soda_free };
	const struct soda_heap_ops *plain = plain_ops();
	int err = round % 2 ? measure(plain, p, ms, plain_p) : 0;

	err = err ? err : measure(&ours, p, ms, ours_p);
	if (!err && round % 2 == 0)
		err = measure(plain, p, ms, plain_p);
	return err;
}

static int measure_point(const struct soda_heap_point *p, uint32_t rounds, uint32_t ms,
			 struct soda_heap_cost *cost)
{
	double ours[SODA_BENCH_ROUNDS_MAX], plain[SODA_BENCH_ROUNDS_MAX];
	double ratio[SODA_BENCH_ROUNDS_MAX], unused;
	int err = round_of(p, 0, 1, &unused, &unused); /* memory is warm from here on */

	for (uint32_t i = 0; i < rounds && !err; i++) {
		err = round_of(p, i, ms, &ours[i], &plain[i]);
		ratio[i] = err ? 0 : ours[i] / plain[i];
	}
	if (err) {
		fprintf(stderr, "soda bench heap: blocks of %u bytes: %s\n", p->bytes,
			soda_last_error());
		return err;
	}
	cost->ns = soda_bench_median(ours, rounds);
	cost->plain_ns = soda_bench_median(plain, rounds);
	cost->ratio = soda_bench_median(ratio, rounds);
	return 0;
}

/* The other side's library, beside this program or where it is installed. */
static bool find_plain(char path[PATH_MAX])
{
	static const char *const places[] = { "libsoda-bench-jemalloc.so", SODA_BENCH_JEMALLOC,
					      NULL };

	return soda_tool_find(places, path);
}

/*
 * The library that soda_heap_plain() is in.  No command of `soda` but this process loads it,
 * because the loader has to have room for what it keeps for each thread.
 */
static int load_plain(void)
{
	char path[PATH_MAX];
	void *library = find_plain(path) ? dlopen(path, RTLD_NOW) : NULL;

	if (library)
		*(void **)&plain_ops = dlsym(library, "soda_heap_plain");
	if (plain_ops)
		return 0;
	fprintf(stderr, "soda bench heap: jemalloc cannot be loaded: %s\n",
		library ? "it is not in that library" : dlerror());
	return -ENOENT;
}

int soda_heap_measure_program(uint32_t rounds, uint32_t ms, unsigned n, char **argv)
{
	struct soda_config cfg = SODA_CONFIG_INIT;
	int err = load_plain();

	unsetenv("SODA_SERVER");
	unsetenv("SODA_DPU");
	cfg.buffer = "1G"; /* all that is in use, and what waits for its decay */
	if (!err && (err = soda_init(&cfg)))
		fprintf(stderr, "soda bench heap: %s\n", soda_last_error());
	for (unsigned i = 0; i < n && !err; i++) {
		struct soda_heap_point point = { (uint32_t)strtoul(argv[2 * i], NULL, 10),
						 (uint32_t)strtoul(argv[2 * i + 1], NULL, 10) };
		struct soda_heap_cost cost;

		err = measure_point(&point, rounds, ms, &cost);
		if (!err && write(STDOUT_FILENO, &cost, sizeof(cost)) != (ssize_t)sizeof(cost))
			err = -EPIPE;
	}
	return err ? SODA_EXIT_FAILED : SODA_EXIT_OK;
}

/* In the child: room in the loader for a library that comes late, which it has at its start alone.
 */
static void make_room(void)
{
	static const char room[] = "glibc.rtld.optional_static_tls=8192";
	const char *had = getenv("GLIBC_TUNABLES");
	char all[4096];

	snprintf(all, sizeof(all), "%s%s%s", had ? had : "", had && *had ? ":" : "", room);
	setenv("GLIBC_TUNABLES", all, 1);
}

/* Add a word, or, where that is NULL, a number. */
static void add(char **argv, unsigned *used, const char *word, uint32_t number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	argv[*used] = strdup(word ? word : text);
	if (!argv[(*used)++])
		_exit(SODA_EXIT_FAILED);
}

/* In the child: become the process under test, which writes what it measures to `out`. */
static _Noreturn void become(const struct soda_heap_point *points, unsigned n, uint32_t rounds,
			     uint32_t ms, int out)
{
	char **argv = calloc(2 * (size_t)n + 6, sizeof(*argv));
	unsigned used = 0;

	if (!argv)
		_exit(SODA_EXIT_FAILED);
	add(argv, &used, "soda", 0);
	add(argv, &used, "bench", 0);
	add(argv, &used, ".heap", 0);
	add(argv, &used, NULL, rounds);
	add(argv, &used, NULL, ms);
	for (unsigned i = 0; i < n; i++) {
		add(argv, &used, NULL, points[i].bytes);
		add(argv, &used, NULL, points[i].threads);
	}
	make_room();
	if (dup2(out, STDOUT_FILENO) >= 0)
		execv("/proc/self/exe", argv);
	fprintf(stderr, "soda bench heap: %s\n", strerror(errno));
	_exit(SODA_EXIT_FAILED);
}

int soda_heap_measure(const struct soda_heap_point *points, unsigned n, uint32_t rounds,
		      uint32_t ms, struct soda_heap_cost *costs)
{
	int ends[2], status = 0;
	char path[PATH_MAX];
	unsigned got = 0;
	pid_t pid;

	if (!find_plain(path)) {
		fputs("soda bench heap: this build has no jemalloc (libjemalloc-dev)\n", stderr);
		return -ENOENT;
	}
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		become(points, n, rounds, ms, ends[1]);
	}
	close(ends[1]);
	while (got < n && pid > 0 &&
	       read(ends[0], &costs[got], sizeof(costs[got])) == (ssize_t)sizeof(costs[got]))
		got++;
	close(ends[0]);
	if (pid > 0)
		waitpid(pid, &status, 0);
	if (pid > 0 && WIFSIGNALED(status))
		fprintf(stderr, "soda bench heap: the process under test ended by signal %d\n",
			WTERMSIG(status));
	return got == n && status == 0 ? 0 : -ECHILD;
}
