/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs of this folder share: the loops around soda_msg.h that each of them would
 * write, and the line that each prints.  An error ends the process with soda_msg's sentence: when
 * one rank ends, the others are told.
 */
#ifndef EXAMPLES_MESSAGES_RANKS_H
#define EXAMPLES_MESSAGES_RANKS_H

#include <soda_msg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called for each message to this rank; must not push: it runs while a push waits for room. */
typedef void take_fn(void *arg, const struct soda_message *m);

struct ranks {
	const char *program;
	struct soda_msg_job *job;
	unsigned rank, n;
	take_fn *take;
	void *arg;
	bool over;			     /* the phase is */
	double began;			     /* seconds, of a clock that only runs forward */
	double processors_began, processors; /* seconds of processors, until ranks_seconds() */
};

/* Join the job that the environment names. take may be changed between phases. */
void ranks_start(struct ranks *r, const char *program, take_fn *take, void *arg);
/* Start the clock of ranks_report() when all ranks are here. */
void ranks_ready(struct ranks *r);

/* Push, and take messages while there is no room. */
void ranks_push(struct ranks *r, unsigned rank, const void *data, size_t bytes);
/* Take all messages that are here. False: the phase is over. */
bool ranks_take(struct ranks *r);
/* I have pushed my last: take until all ranks' messages of this phase have been taken. */
void ranks_finish(struct ranks *r);
void ranks_begin(struct ranks *r); /* a phase; the first one has begun */

/* Over all ranks, which must all call it; between phases. */
int64_t ranks_sum(struct ranks *r, int64_t mine);
int64_t ranks_max(struct ranks *r, int64_t mine);
/* A sum that does not wait, in a phase too; false: not yet, ask again with the same number. */
bool ranks_try_sum(struct ranks *r, int64_t mine, int64_t *all_p);
/* Until one of SODA_MSG_PULL... is there. */
void ranks_wait(struct ranks *r, unsigned what);

/* Stop the clocks of ranks_report(): the time, and that of processors. */
double ranks_seconds(struct ranks *r);
/*
 * Leave the job, between phases; rank 0 prints what was done, in which time, with how many
 * messages, and how much time of processors, libsoda-msg's threads included.  wrong: of this rank's
 * results, those that are not as one process computes them, or -1: nobody looked. The exit status:
 * 1 if anything is wrong on any rank.
 */
int ranks_report(struct ranks *r, const char *what, double seconds, int64_t wrong);

_Noreturn void ranks_die(const char *program, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* realloc that does not fail. */
void *ranks_realloc(void *p, size_t n, size_t each);

/*
 * Random bits number `at` of a stream: who asks, and in which order, makes no difference.
 * SplitMix64's mixer (Steele, Lea, Flood, OOPSLA 2014), twice.
 */
uint64_t random_bits(uint64_t stream, uint64_t at);

#endif
