/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases of the whole runtime.  libsoda starts once a process, so that each case
 * is a child forked before it starts.  The child ends by returning or by exit();
 * a check that fails ends it with one line.  The parent judges: how it ended,
 * and what it wrote to stderr, where libsoda logs.
 *
 * A child that has not ended after its time is killed: a hang is a failure, and says where all
 * stood ("lib/proc.h").
 */
#ifndef SODA_TEST_HARNESS_H
#define SODA_TEST_HARNESS_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "lib/dice.h"
#include "soda.h"

enum { CASE_SECONDS = 180, CASE_ERR_MAX = 16384 };

struct outcome {
	int status; /* as from waitpid(2) */
	bool hung;
	double seconds;
	char err[CASE_ERR_MAX]; /* its stderr */
};

/* A case's child; `during` (may be NULL) runs in the parent meanwhile. */
struct trial {
	void (*child)(const void *arg);
	void (*during)(const void *arg);
	const void *arg;
	unsigned seconds; /* 0: CASE_SECONDS */
};

/* Run it to its end. SODA_* variables but MECHANISMS, MODE and EVICT are unset in the child. */
void trial_run(const struct trial *t, struct outcome *out);

/* Fail the running cmocka test, and show the child's stderr, unless... */
/* ... it exited with 0 and logged nothing; */
void expect_quiet_success(const struct outcome *out);
/* ... it exited with `code`; */
void expect_exit(const struct outcome *out, int code);
/* ... it was ended by the signal; */
void expect_signal(const struct outcome *out, int signal);
/* ... its stderr is exactly one line, which contains each of the words (NULL-terminated). */
void expect_one_line(const struct outcome *out, ...) __attribute__((sentinel));
/* ... its stderr contains the text. */
void expect_says(const struct outcome *out, const char *text);

/*
 * Run the cases of a program, and return how many failed.  SODA_TEST_ONLY: those of that name, with
 * wildcards; that there is none is a failure.  SODA_TEST_DRAW, a number: where the program runs
 * another way (its environment says so: a transport, an agent, redundancy, mechanisms...) a third
 * of its cases, and all of them in three numbers that follow each other.
 */
int run_cases(const char *group, const struct CMUnitTest *tests, size_t n, CMFixtureFunction set_up,
	      CMFixtureFunction tear_down);
#undef cmocka_run_group_tests
#define cmocka_run_group_tests(tests, set_up, tear_down)                                           \
	run_cases(#tests, tests, sizeof(tests) / sizeof((tests)[0]), set_up, tear_down)
#undef cmocka_run_group_tests_name
#define cmocka_run_group_tests_name(name, tests, set_up, tear_down)                                \
	run_cases(name, tests, sizeof(tests) / sizeof((tests)[0]), set_up, tear_down)
/* The number of SODA_TEST_DRAW, or 0: seeds of a program begin with the one after it. */
uint64_t drawn_number(void);

/* All of it: child(arg) must exit with 0 and log nothing. */
void expect_passes(void (*child)(const void *arg), const void *arg);

/*
 * Child and parent take turns: pass hands over, await waits for the other's
 * pass.  In the parent await returns false when the child has ended instead, or its time is over:
 * then `during` just returns, and the child is judged.
 */
void turn_pass(void);
bool turn_await(void);
/* For `during`: stop the child with all its threads, and let it go on. Its process id, or 0. */
pid_t child_stop(void);
void child_continue(void);
/* Zeroed memory that the children forked from now on share with the parent. */
void *shared_memory(size_t bytes);

/* For children. A failed check writes file, line and the message, and ends the process with 99. */
#define CHECK(cond, ...)                                                                           \
	do {                                                                                       \
		if (!(cond))                                                                       \
			check_failed(__FILE__, __LINE__, #cond, " " __VA_ARGS__);                  \
	} while (0)
#define CHECK_EQ(got, want)                                                                        \
	do {                                                                                       \
		long long got_ = (long long)(got), want_ = (long long)(want);                      \
		CHECK(got_ == want_, "%lld, expected %lld", got_, want_);                          \
	} while (0)

_Noreturn void check_failed(const char *file, int line, const char *cond, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* soda_init with a check; soda_alloc likewise. */
void start(const struct soda_config *cfg);
void *alloc_checked(size_t bytes);
struct soda_stats stats_now(void);
/*
 * start() with that buffer and so many threads, and an object of so many bytes with a pattern in
 * every 512 bytes; likewise its check, which is of the round that fill_pattern() has stored last.
 */
uint64_t *patterned_object(const char *server, const char *buffer, unsigned threads, size_t bytes);
void fill_pattern(uint64_t *words, size_t bytes, unsigned round);
void check_pattern(const uint64_t *words, size_t bytes, unsigned round);
/*
 * soda_alloc_file() is refused with an error that has that word in it.  A file that belongs to a
 * program, or an agent, that has ended just now is busy for a moment more: that is waited out.
 */
void expect_file_refused(const char *name, size_t bytes, unsigned flags, const char *word);

/*
 * The smallest buffer that this configuration takes, in bytes: what the error
 * message of a smaller one says.  Before soda_init.
 */
size_t smallest_buffer(struct soda_config cfg);
/* cfg->buffer = bytes, in a buffer of the caller's. */
void set_buffer(struct soda_config *cfg, size_t bytes, char text[32]);

/* Touch the word with a handler for the expected signal in place: the signal, or 0. */
int touch_signal(volatile uint64_t *word, bool store);

/* Threads 0..n-1 run fn(arg, index); returns when all have ended. */
void run_threads(unsigned n, void (*fn)(void *arg, unsigned index), void *arg);
/* Bind the calling thread to the index-th processor that it may use (modulo their number). */
void pin_to_processor(unsigned index);

double now_seconds(void);
void sleep_ms(unsigned ms);

/* smaps.c: what the kernel says that a process has in memory. */

/*
 * Resident bytes of the mappings that touch [from, to).  Exact only while the
 * process stands still: pages that move during the walk count twice or not at all.
 */
size_t smaps_rss(pid_t pid, uintptr_t from, uintptr_t to);
/* Resident bytes of the mappings whose line in smaps contains the name. */
size_t smaps_mapped(pid_t pid, const char *name);
/* Anonymous memory of the whole process. */
size_t smaps_anonymous(pid_t pid);

/*
 * Text of a round, to be found again and told from another round's: each 16 bytes are the mark, but
 * in odd pages, where `round` is not 0, their offset and the round.
 */
void fill_text(char *data, size_t bytes, const char mark[16], uint64_t round);
void check_text(const char *data, size_t bytes, const char mark[16], uint64_t round);

#endif
