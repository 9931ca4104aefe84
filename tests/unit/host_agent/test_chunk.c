/* SPDX-License-Identifier: BSD-3-Clause */
/* The chunk word: legal transitions, settling, waiting, holding. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "host_agent/core/chunk.h"

enum { STATES = 9, THREADS = 4, ROUNDS = 20000 };

/* Rows: from; columns: to; in the order NONE ZERO REMOTE FETCHING CLEAN DIRTY BUSY LOST SHARED. */
static const char *const legal[STATES] = {
	/* NONE */ "xxx......",
	/* ZERO */ "xx.x.....",
	/* REMOTE */ "xxxx...xx",
	/* FETCHING */ ".xxxxx.xx",
	/* CLEAN */ "....xxx..",
	/* DIRTY */ ".....xx..",
	/* BUSY */ "xxx.xxxxx",
	/* LOST */ "xx.x...x.",
	/* SHARED */ "x.xx..x.x",
};

static const uint32_t flag_bits[] = { SODA_CW_WAITERS, SODA_CW_PINNED, SODA_CW_BACKED,
				      SODA_CW_SENDING, SODA_CW_QUEUED };
enum { FLAGS = sizeof(flag_bits) / sizeof(flag_bits[0]) };

static void legal_table(void **state)
{
	for (int from = 0; from < STATES; from++)
		for (int to = 0; to < STATES; to++)
			if (soda_chunk_legal(from, to) != (legal[from][to] == 'x'))
				fail_msg("%d -> %d is %s", from, to,
					 legal[from][to] == 'x' ? "refused" : "let through");
	assert_false(soda_chunk_legal(9, 0));
	assert_false(soda_chunk_legal(0, 9));
	assert_false(soda_chunk_legal(15, 15));
}

/* true: the swap ended in the assertion. */
static bool dies(uint32_t from, uint32_t to)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct soda_chunk c = { .word = from };
		struct rlimit none = { 0, 0 };
		uint32_t w = from;

		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		if (!freopen("/dev/null", "w", stderr))
			_exit(2);
		soda_chunk_swap(&c, &w, to);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void illegal_swap_is_caught(void **state)
{
#ifdef NDEBUG
	skip();
#endif
	assert_true(dies(SODA_CHUNK_DIRTY, SODA_CHUNK_REMOTE)); /* a dirty chunk dropped */
	assert_true(dies(SODA_CHUNK_CLEAN, SODA_CHUNK_REMOTE)); /* not without BUSY */
	assert_true(dies(SODA_CHUNK_REMOTE, SODA_CHUNK_CLEAN)); /* not without FETCHING */
	assert_true(dies(SODA_CHUNK_LOST, SODA_CHUNK_CLEAN));
	assert_false(dies(SODA_CHUNK_BUSY, SODA_CHUNK_REMOTE));
}

static void swap_needs_the_exact_word(void **state)
{
	struct soda_chunk c = { .word = SODA_CHUNK_CLEAN | SODA_CW_BACKED };
	uint32_t w = SODA_CHUNK_CLEAN;

	assert_false(soda_chunk_begin(&c, &w, SODA_CHUNK_BUSY));
	assert_int_equal(w, SODA_CHUNK_CLEAN | SODA_CW_BACKED); /* reloaded */
	while (!soda_chunk_begin(&c, &w, SODA_CHUNK_BUSY))	/* weak: may fail for nothing */
		;
	assert_int_equal(c.word, SODA_CHUNK_BUSY | SODA_CW_BACKED);
}

static void settle_keeps_flags(void **state)
{
	/* Every combination of flags, a hold count, a dirty mask that is replaced. */
	for (uint32_t m = 0; m < 1u << FLAGS; m++) {
		uint32_t flags = 3 * SODA_CW_HOLD_ONE;
		struct soda_chunk c;

		for (int i = 0; i < FLAGS; i++)
			flags |= m >> i & 1 ? flag_bits[i] : 0;
		atomic_init(&c.word, SODA_CHUNK_BUSY | flags | 0xa5a5u << SODA_CW_DIRTY_SHIFT);
		soda_chunk_settle(&c, SODA_CHUNK_DIRTY, 0x0f0f, 0, 0);
		assert_int_equal(c.word, SODA_CHUNK_DIRTY | (flags & ~SODA_CW_WAITERS) |
						 0x0f0fu << SODA_CW_DIRTY_SHIFT);
		soda_chunk_flags(&c, 0, 0);
		c.word = SODA_CHUNK_BUSY | flags;
		soda_chunk_settle(&c, SODA_CHUNK_CLEAN, 0, SODA_CW_SENDING, SODA_CW_QUEUED);
		assert_int_equal(c.word, SODA_CHUNK_CLEAN | SODA_CW_SENDING |
						 (flags & ~(SODA_CW_WAITERS | SODA_CW_QUEUED)));
	}
}

static void flags_leave_the_rest(void **state)
{
	struct soda_chunk c = { .word = SODA_CHUNK_DIRTY | 0x8001u << SODA_CW_DIRTY_SHIFT };
	uint32_t before;

	before = soda_chunk_flags(&c, SODA_CW_PINNED, 0);
	assert_int_equal(before, SODA_CHUNK_DIRTY | 0x8001u << SODA_CW_DIRTY_SHIFT);
	assert_int_equal(c.word, before | SODA_CW_PINNED);
	assert_int_equal(soda_chunk_flags(&c, 0, SODA_CW_PINNED), before | SODA_CW_PINNED);
	assert_int_equal(c.word, before);
	assert_int_equal(soda_chunk_dirty(c.word), 0x8001);
	assert_int_equal(soda_chunk_state(c.word), SODA_CHUNK_DIRTY);
}

static void droppable(void **state)
{
	static const uint32_t bars[] = { SODA_CW_PINNED, SODA_CW_SENDING, SODA_CW_QUEUED,
					 SODA_CW_HOLD_ONE };

	assert_true(soda_chunk_droppable(SODA_CHUNK_CLEAN));
	assert_true(soda_chunk_droppable(SODA_CHUNK_CLEAN | SODA_CW_BACKED | SODA_CW_WAITERS));
	for (size_t i = 0; i < sizeof(bars) / sizeof(bars[0]); i++)
		assert_false(soda_chunk_droppable(SODA_CHUNK_CLEAN | bars[i]));
	for (uint32_t s = 0; s < STATES; s++)
		assert_int_equal(soda_chunk_droppable(s), s == SODA_CHUNK_CLEAN);
}

static void hold_saturates(void **state)
{
	const uint32_t most = SODA_CW_HOLD / SODA_CW_HOLD_ONE;
	const uint32_t rest = SODA_CHUNK_DIRTY | SODA_CW_PINNED | SODA_CW_QUEUED | SODA_CW_DIRTY;
	struct soda_chunk c = { .word = rest };

	for (uint32_t i = 1; i <= most + 10; i++) {
		soda_chunk_hold(&c);
		assert_int_equal((c.word & SODA_CW_HOLD) / SODA_CW_HOLD_ONE, i < most ? i : most);
		assert_int_equal(c.word & ~SODA_CW_HOLD, rest); /* nothing spilled over */
	}
	for (uint32_t i = 0; i < most + 10; i++)
		soda_chunk_unhold(&c);
	assert_int_equal(c.word, rest);
}

static void wait_returns_at_once(void **state)
{
	for (uint32_t s = 0; s < STATES; s++) {
		struct soda_chunk c = { .word = s };

		if (s == SODA_CHUNK_FETCHING || s == SODA_CHUNK_BUSY)
			assert_int_equal(soda_chunk_wait(&c, 2000000), -ETIMEDOUT);
		else
			assert_int_equal(soda_chunk_wait(&c, -1), 0);
	}
}

static struct soda_chunk shared;
static _Atomic int woken;

static void *waiter(void *arg)
{
	int ret = soda_chunk_wait(&shared, 20000000000);

	atomic_fetch_add(&woken, 1);
	return (void *)(intptr_t)ret;
}

static void settle_wakes_all(void **state)
{
	pthread_t thread[THREADS];

	for (int k = 0; k < 20; k++) {
		atomic_store(&shared.word, k & 1 ? SODA_CHUNK_BUSY : SODA_CHUNK_FETCHING);
		atomic_store(&woken, 0);
		for (int i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&thread[i], NULL, waiter, NULL), 0);
		while (!(soda_chunk_load(&shared) & SODA_CW_WAITERS))
			usleep(100);
		/* Other changes of the word end nobody's wait. */
		soda_chunk_flags(&shared, SODA_CW_PINNED, 0);
		usleep(500);
		soda_chunk_hold(&shared);
		assert_int_equal(atomic_load(&woken), 0);
		soda_chunk_settle(&shared, SODA_CHUNK_CLEAN, 0, 0, 0);
		for (int i = 0; i < THREADS; i++) {
			void *ret;

			assert_int_equal(pthread_join(thread[i], &ret), 0);
			assert_null(ret);
		}
		assert_int_equal(shared.word, SODA_CHUNK_CLEAN | SODA_CW_PINNED | SODA_CW_HOLD_ONE);
	}
}

static uint64_t guarded; /* by the ownership of a BUSY chunk: a lost update is a lost count */

/* Own the chunk as a writer of its page does, with other flags and holds changing meanwhile. */
static void *owner(void *arg)
{
	uint32_t bit = 1u << (uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		uint32_t w = soda_chunk_load(&shared);

		soda_chunk_hold(&shared);
		for (;;) {
			if (soda_chunk_state(w) == SODA_CHUNK_BUSY) {
				soda_chunk_wait(&shared, -1);
				w = soda_chunk_load(&shared);
			} else if (soda_chunk_begin(&shared, &w, SODA_CHUNK_BUSY)) {
				break;
			}
		}
		guarded++;
		soda_chunk_settle(&shared, SODA_CHUNK_DIRTY, soda_chunk_dirty(w) ^ bit, 0, 0);
		soda_chunk_unhold(&shared);
	}
	return NULL;
}

static void *toggler(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		soda_chunk_flags(&shared, SODA_CW_PINNED, 0);
		soda_chunk_flags(&shared, 0, SODA_CW_PINNED);
	}
	return NULL;
}

static void concurrent_owners(void **state)
{
	pthread_t thread[THREADS + 1];

	atomic_store(&shared.word, SODA_CHUNK_DIRTY | SODA_CW_BACKED);
	guarded = 0;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, owner, (void *)i), 0);
	assert_int_equal(pthread_create(&thread[THREADS], NULL, toggler, NULL), 0);
	for (int i = 0; i <= THREADS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	assert_int_equal(guarded, THREADS * ROUNDS);
	/* Each thread flipped its bit an even number of times; every hold was undone. */
	assert_int_equal(shared.word, SODA_CHUNK_DIRTY | SODA_CW_BACKED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(legal_table),
		cmocka_unit_test(illegal_swap_is_caught),
		cmocka_unit_test(swap_needs_the_exact_word),
		cmocka_unit_test(settle_keeps_flags),
		cmocka_unit_test(flags_leave_the_rest),
		cmocka_unit_test(droppable),
		cmocka_unit_test(hold_saturates),
		cmocka_unit_test(wait_returns_at_once),
		cmocka_unit_test(settle_wakes_all),
		cmocka_unit_test(concurrent_owners),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
