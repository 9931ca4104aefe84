/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Children of forks, which read their parent's fabric memory as it was at the fork: what was
 * resident and what was not, while the parent stores, discards, frees, forks again and ends.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/harness.h"
#include "lib/world.h"

enum { CHUNK = 65536, CHUNK_WORDS = CHUNK / 8, CHUNKS = 160, STEP = 64 };

static struct world world;

static void fill(uint64_t *fam, unsigned round)
{
	fill_pattern(fam, CHUNKS * CHUNK, round);
}

static void check_all(const uint64_t *fam, unsigned round)
{
	check_pattern(fam, CHUNKS * CHUNK, round);
}

static uint64_t *filled(void)
{
	return patterned_object(world.address, "4M", 3, CHUNKS * CHUNK);
}

static void expect_end(pid_t pid, int wanted)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(status == wanted, "status %x", status);
}

/* A child that waits until its parent writes to the pipe, or closes it. */
struct waiting {
	pid_t pid;
	int go;
};

static bool fork_waiting(struct waiting *w)
{
	int ends[2];
	char c;

	CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
	w->pid = fork();
	CHECK(w->pid >= 0, "%s", strerror(errno));
	w->go = ends[1];
	if (w->pid) {
		close(ends[0]);
		return false;
	}
	alarm(120);
	close(ends[1]);
	CHECK_EQ(read(ends[0], &c, 1), 1);
	return true;
}

static void let_go(struct waiting *w)
{
	CHECK_EQ(write(w->go, "", 1), 1);
	expect_end(w->pid, 0);
	close(w->go);
}

/* Chunks that are here and chunks that are not, at once. */
static void child_reads(const void *arg)
{
	uint64_t *fam = filled();

	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();

		if (!pid) {
			check_all(fam, 0);
			_exit(0);
		}
		expect_end(pid, 0);
		check_all(fam, 0);
	}
}

/* The parent stores to all of it first; the child stores, and neither sees the other's. */
static void child_stores(const void *arg)
{
	uint64_t *fam = filled();
	struct waiting w;

	if (fork_waiting(&w)) {
		check_all(fam, 0);
		fill(fam, 9);
		check_all(fam, 9);
		_exit(0);
	}
	fill(fam, 1);
	check_all(fam, 1);
	let_go(&w);
	check_all(fam, 1);
}

/* Each sees what there was at its own fork, in whatever order they look. */
static void child_many(const void *arg)
{
	uint64_t *fam = filled();
	struct waiting w[5];

	for (unsigned i = 0; i < 5; i++) {
		if (fork_waiting(&w[i])) {
			check_all(fam, i);
			_exit(0);
		}
		fill(fam, i + 1);
	}
	for (int i = 4; i >= 0; i -= 2)
		let_go(&w[i]);
	for (int i = 1; i < 5; i += 2)
		let_go(&w[i]);
	check_all(fam, 5);
}

/* Memory that the parent gives away is still the child's. */
static void child_freed(const void *arg)
{
	uint64_t *fam = filled(), *next;
	struct waiting w;

	if (fork_waiting(&w)) {
		check_all(fam, 0);
		_exit(0);
	}
	CHECK_EQ(soda_advise(fam, CHUNKS / 2 * CHUNK, SODA_DISCARD), 0);
	CHECK_EQ(fam[0], 0);
	soda_free(fam);
	next = alloc_checked(CHUNKS * CHUNK);
	fill(next, 4);
	let_go(&w);
	check_all(next, 4);
}

/* A child of the child, after the child has read a part and stored to another. */
static void child_again(const void *arg)
{
	uint64_t *fam = filled();
	struct waiting w, inner;

	if (fork_waiting(&w)) {
		for (size_t i = 0; i < 20 * CHUNK_WORDS; i += STEP)
			CHECK_EQ(fam[i], mix(i, 0));
		fam[0] = 77;
		if (fork_waiting(&inner)) {
			CHECK_EQ(fam[0], 77);
			fam[0] = mix(0, 0);
			check_all(fam, 0);
			_exit(0);
		}
		fam[0] = 78;
		let_go(&inner);
		CHECK_EQ(fam[0], 78);
		_exit(0);
	}
	fill(fam, 1);
	let_go(&w);
}

/* Two words far apart, of which a thread changes the first first. */
struct pair {
	uint64_t *a, *b;
};
static _Atomic bool pairs_end;

static void *count_up(void *arg)
{
	struct pair *p = arg;

	for (uint64_t n = 1; !atomic_load(&pairs_end); n++)
		for (size_t at = 0; at < 40 * CHUNK_WORDS; at += CHUNK_WORDS) {
			atomic_store((_Atomic uint64_t *)&p->a[at], n);
			atomic_store((_Atomic uint64_t *)&p->b[at], n);
		}
	return NULL;
}

/* While another thread stores, and chunks come and go. */
static void child_beside(const void *arg)
{
	uint64_t *fam = filled();
	struct pair p = { fam, fam + 80 * CHUNK_WORDS };
	pthread_t thread;

	memset(fam, 0, CHUNKS * CHUNK);
	CHECK_EQ(pthread_create(&thread, NULL, count_up, &p), 0);
	for (int i = 0; i < 40; i++) {
		pid_t pid = fork();

		if (!pid) {
			alarm(60);
			for (size_t at = 0; at < 40 * CHUNK_WORDS; at += CHUNK_WORDS)
				CHECK(p.a[at] >= p.b[at] && p.a[at] <= p.b[at] + 1, "%zu: %lu %lu",
				      at, (unsigned long)p.a[at], (unsigned long)p.b[at]);
			_exit(0);
		}
		expect_end(pid, 0);
	}
	atomic_store(&pairs_end, true);
	pthread_join(thread, NULL);
}

/* The child's statistics, while the parent's handler had faults in hand at the fork. */
static void child_counts(const void *arg)
{
	uint64_t *fam = filled();
	struct pair p = { fam, fam + 80 * CHUNK_WORDS };
	struct soda_stats s;
	pthread_t thread;

	atomic_store(&pairs_end, false);
	CHECK_EQ(pthread_create(&thread, NULL, count_up, &p), 0);
	for (int i = 0; i < 40; i++) {
		pid_t pid = fork();

		if (!pid) {
			CHECK_EQ(soda_get_stats(&s, sizeof(s)), 0);
			_exit(s.faults == 0);
		}
		expect_end(pid, 0);
	}
	atomic_store(&pairs_end, true);
	pthread_join(thread, NULL);
}

/* Who has no way to ask ends: no zeros, no line of anybody else. */
static void child_closed(const void *arg)
{
	uint64_t *fam = filled();
	pid_t pid = fork();

	if (!pid) {
		close(STDERR_FILENO);
		for (int fd = 3; fd < 4096; fd++)
			close(fd);
		for (size_t i = 0; i < CHUNKS * CHUNK_WORDS; i += STEP)
			if (fam[i] != mix(i, 0))
				_exit(1);
		_exit(2);
	}
	expect_end(pid, SIGSEGV);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid)
		_exit(touch_signal(fam, false) != SIGSEGV);
	expect_end(pid, 0);
	check_all(fam, 0);
}

/* The parent has ended: one line, and the end. */
static void child_alone(const void *arg)
{
	uint64_t *fam;
	int ends[2];
	char c;
	pid_t pid;

	/* whose end is awaited here, so that what it says is heard */
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	pid = fork();
	CHECK(pid >= 0, "%s", strerror(errno));
	if (pid) {
		while (wait(NULL) > 0)
			;
		return;
	}
	fam = filled();
	CHECK_EQ(pipe(ends), 0);
	pid = fork();
	CHECK(pid >= 0, "%s", strerror(errno));
	if (pid)
		_exit(0);
	close(ends[1]);
	CHECK_EQ(read(ends[0], &c, 1), 0); /* the parent's end */
	check_all(fam, 0);
	_exit(0);
}

/*
 * May: children | forks, and ends before its child has read all | the child ends by SIGSEGV,
 * and a line: "the parent has ended"
 */
static void test_alone(void **state)
{
	struct trial t = { .child = child_alone };
	struct outcome out;

	trial_run(&t, &out);
	expect_says(&out, "the parent has ended");
}

/* More is stored than can be kept: said at both ends, and no zeros. */
static void child_beyond(const void *arg)
{
	const size_t words = (80u << 20) / 8;
	uint64_t *fam;
	struct waiting w;
	int status;

	fam = patterned_object(world.address, "4M", 3, words * 8);
	if (fork_waiting(&w)) {
		for (size_t i = 0; i < words; i += CHUNK_WORDS)
			if (fam[i] != mix(i, 0))
				_exit(1);
		_exit(2);
	}
	for (size_t i = 0; i < words; i += CHUNK_WORDS)
		fam[i] = mix(i, 1);
	CHECK_EQ(write(w.go, "", 1), 1);
	CHECK_EQ(waitpid(w.pid, &status, 0), w.pid);
	CHECK_EQ(status, SIGSEGV);
	for (size_t i = 0; i < words; i += CHUNK_WORDS)
		CHECK_EQ(fam[i], mix(i, 1));
}

/* The children take a second together; a child that waits for a handler takes five. */
static void test_counts(void **state)
{
	struct trial t = { .child = child_counts, .seconds = 60 };
	struct outcome out;

	trial_run(&t, &out);
	expect_quiet_success(&out);
}

/*
 * May: children | forks, and stores to more than can be kept for the child | the child ends
 * by SIGSEGV, and a line: "children of forks cannot read on"
 */
static void test_beyond(void **state)
{
	struct trial t = { .child = child_beyond };
	struct outcome out;

	trial_run(&t, &out);
	expect_exit(&out, 0);
	expect_says(&out, "children of forks cannot read on");
	expect_says(&out, "the parent has stored to more than it could keep");
}

#define PASSES(name)                                                                               \
	static void test_##name(void **state)                                                      \
	{                                                                                          \
		expect_passes(child_##name, NULL);                                                 \
	}

/* Promise R8. */
/* May: children | forks, and the child reads and stores | served */
PASSES(reads)
/* Promise R8. */
PASSES(stores)
/*
 * May: children | forks several times, and each child sees what was there at its fork |
 * served
 */
PASSES(many)
/* May: children | forks, and frees what its child has not read | served */
PASSES(freed)
/* May: children | forks, and its child forks | served */
PASSES(again)
/* May: children | forks while other threads fault and store | served */
PASSES(beside)
/*
 * May: children | forks, and the child closes the library's descriptors | the child ends by
 * SIGSEGV
 */
PASSES(closed)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),  cmocka_unit_test(test_stores),
		cmocka_unit_test(test_many),   cmocka_unit_test(test_freed),
		cmocka_unit_test(test_again),  cmocka_unit_test(test_beside),
		cmocka_unit_test(test_closed), cmocka_unit_test(test_alone),
		cmocka_unit_test(test_beyond), cmocka_unit_test(test_counts),
	};

	return WORLD_RUN("forks", &world, false, tests);
}
