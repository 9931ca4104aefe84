/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda bench pool`: the program under test. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/lock.h"
#include "soda.h"
#include "soda/bench/pool/pool.h"

#define WHO "soda bench pool"

enum { PAGE = 4096, WORDS = PAGE / sizeof(uint64_t), THREADS_MAX = 64 };

struct field {
	const struct soda_bench_pool_plan *plan;
	struct soda_bench_pool_shared *shared;
	char *object;
	uint32_t *versions; /* of each page, in memory of this process's own; 0: lost */
	uint64_t pages;
};

struct task {
	pthread_t thread;
	struct field *field;
	uint32_t me;
	uint64_t ops, stall_ns, wrong, lost;
	struct soda_histogram *accesses; /* NULL: they are not counted */
};

static __thread sigjmp_buf jump;

static void lost_page(int sig)
{
	siglongjmp(jump, 1);
}

static uint64_t value_of(const struct field *f, uint64_t page)
{
	uint64_t x = f->plan->seed + (page << 32) + f->versions[page];

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 27);
}

/* The word of a page that is stored to and looked at. */
static volatile uint64_t *word_of(const struct field *f, uint64_t page)
{
	return (volatile uint64_t *)(f->object + page * PAGE) + page % WORDS;
}

/* Look at the page, and with `change` store its next version. */
static void touch(struct task *t, uint64_t page, bool change)
{
	struct field *f = t->field;
	uint64_t began;

	if (!f->versions[page])
		return;
	if (sigsetjmp(jump, 1)) {
		f->versions[page] = 0;
		t->lost += PAGE;
		return;
	}
	began = soda_now_ns();
	if (*word_of(f, page) != value_of(f, page))
		t->wrong += sizeof(uint64_t);
	if (change) {
		f->versions[page]++;
		*word_of(f, page) = value_of(f, page);
	}
	began = soda_now_ns() - began;
	t->stall_ns = began > t->stall_ns ? began : t->stall_ns;
	if (t->accesses)
		soda_histogram_record(t->accesses, began);
	t->ops++;
}

/* The page after *state, in the thread's part of the object. */
static uint64_t next(const struct task *t, uint64_t *state)
{
	uint64_t part = t->field->pages / t->field->plan->threads;

	return t->me * part + (*state)++ % part;
}

/* A page of each of whose chunks no other thread touches anything. */
static uint64_t draw(const struct task *t, uint64_t *state)
{
	const struct soda_bench_pool_plan *plan = t->field->plan;
	uint64_t in_chunk = plan->chunk_bytes / PAGE, chunks = t->field->pages / in_chunk, chunk;

	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	chunk = (*state >> 16) % (chunks / plan->threads) * plan->threads + t->me;
	return chunk * in_chunk + *state % in_chunk;
}

static void *work(void *arg)
{
	struct task *t = arg;
	uint64_t state = (t->field->plan->seed + 1) * 0x9e3779b97f4a7c15u + t->me;

	while (atomic_load(&t->field->shared->step) < SODA_BENCH_POOL_STOP)
		touch(t, t->field->plan->sequential ? next(t, &state) : draw(t, &state),
		      t->field->plan->stores);
	return NULL;
}

static uint64_t cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000u;
}

static int complain(const char *what)
{
	fprintf(stderr, WHO ": %s: %s\n", what, soda_last_error());
	return 1;
}

/* A server gives memory in pieces of 2M: where chunks are in pieces each has so much of a slab. */
static uint64_t slab_mib(const struct soda_bench_pool_plan *plan)
{
	bool whole = !strcmp(plan->redundancy, "none") || !strcmp(plan->redundancy, "mirror:2");
	uint64_t step = whole ? 2 : 16;
	uint64_t mib = (plan->bytes / 16 >> 20) / step * step;

	return mib < step ? step : mib > 64 ? 64 : mib;
}

/* The object, filled, on the servers. */
static int open_field(struct field *f)
{
	const struct soda_bench_pool_plan *plan = f->plan;
	struct soda_config cfg = SODA_CONFIG_INIT;
	char buffer[32], slab[32];

	/* all servers have some, also of a small object */
	snprintf(slab, sizeof(slab), "%lluM", (unsigned long long)slab_mib(plan));
	setenv("SODA_SLAB", slab, 0);
	snprintf(buffer, sizeof(buffer), "%llu", (unsigned long long)plan->buffer_bytes);
	setenv("SODA_REDUNDANCY", plan->redundancy, 1);
	unsetenv("SODA_DPU");
	signal(SIGBUS, lost_page);
	cfg.server = plan->servers;
	cfg.buffer = buffer;
	cfg.chunk_bytes = plan->chunk_bytes;
	cfg.threads = plan->threads;
	if (soda_init(&cfg))
		return complain("soda_init");
	f->pages = plan->bytes / PAGE;
	f->versions = calloc(f->pages, sizeof(*f->versions));
	f->object = soda_alloc(plan->bytes, 0);
	if (!f->object || !f->versions)
		return complain("soda_alloc");
	for (uint64_t page = 0; page < f->pages; page++) {
		f->versions[page] = 1;
		*word_of(f, page) = value_of(f, page);
	}
	return soda_sync(f->object, plan->bytes) ? complain("soda_sync") : 0;
}

/* Watch the copies until `until`, and until none is missing; how long any was, in *ns_p. */
static int watch(struct field *f, uint32_t until, uint64_t *ns_p)
{
	enum { LOOK_MS = 5, PATIENCE_MS = 300000 };
	uint64_t before = soda_now_ns(), stopped = 0, now;
	struct soda_stats st;

	for (;;) {
		soda_get_stats(&st, sizeof(st));
		atomic_store(&f->shared->missing, st.copies_missing);
		now = soda_now_ns();
		*ns_p += st.copies_missing ? now - before : 0;
		before = now;
		if (atomic_load(&f->shared->step) >= until) {
			stopped = stopped ? stopped : now;
			if (!st.copies_missing)
				return 0;
			if (now - stopped > PATIENCE_MS * 1000000ull)
				break;
		}
		poll(NULL, 0, LOOK_MS);
	}
	fprintf(stderr, WHO ": after %d s copies are still missing\n", PATIENCE_MS / 1000);
	return 1;
}

static void add(struct soda_bench_pool_load *to, const struct task *t)
{
	to->ops += t->ops;
	to->wrong += t->wrong;
	to->lost += t->lost;
	to->stall_ns = t->stall_ns > to->stall_ns ? t->stall_ns : to->stall_ns;
}

/* All of the object, once more. */
static void verify(struct field *f, struct soda_bench_pool_load *out)
{
	struct task t = { .field = f };

	for (uint64_t page = 0; page < f->pages; page++)
		touch(&t, page, false);
	out->wrong += t.wrong;
	out->lost += t.lost;
}

static int run_load(struct field *f, struct soda_bench_pool_load *out)
{
	struct task tasks[THREADS_MAX] = { 0 };
	uint32_t n = f->plan->threads;
	struct soda_stats before, after;
	uint64_t began = soda_now_ns(), cpu = cpu_ns();
	int ret;

	soda_get_stats(&before, sizeof(before));
	for (uint32_t i = 0; i < n; i++) {
		tasks[i].field = f;
		tasks[i].me = i;
		tasks[i].accesses = calloc(1, sizeof(*tasks[i].accesses));
		if (pthread_create(&tasks[i].thread, NULL, work, &tasks[i]))
			abort(); /* the driver waits for all of them */
	}
	ret = watch(f, SODA_BENCH_POOL_STOP, &out->rebuild_ns);
	for (uint32_t i = 0; i < n; i++) {
		pthread_join(tasks[i].thread, NULL);
		add(out, &tasks[i]);
		if (tasks[i].accesses)
			soda_histogram_merge(&f->shared->accesses, tasks[i].accesses);
		free(tasks[i].accesses);
	}
	out->ns = soda_now_ns() - began;
	out->cpu_ns = cpu_ns() - cpu;
	soda_get_stats(&after, sizeof(after));
	out->fetched = after.bytes_fetched - before.bytes_fetched;
	out->written = after.bytes_written_back - before.bytes_written_back;
	out->cleaned = after.bytes_cleaned - before.bytes_cleaned;
	out->rebuilt = after.rebuilt_bytes - before.rebuilt_bytes;
	out->expelled = after.copies_expelled - before.copies_expelled;
	return ret;
}

int soda_bench_pool_program(const struct soda_bench_pool_plan *plan,
			    struct soda_bench_pool_shared *shared)
{
	struct field f = { .plan = plan, .shared = shared };
	int ret = open_field(&f);

	if (ret)
		return ret;
	atomic_store(&shared->step, SODA_BENCH_POOL_READY);
	while (atomic_load(&shared->step) < SODA_BENCH_POOL_GO)
		poll(NULL, 0, 1);
	ret = run_load(&f, &shared->load);
	verify(&f, &shared->load);
	atomic_store(&shared->step, SODA_BENCH_POOL_DONE);
	soda_shutdown();
	free(f.versions);
	return ret;
}
