/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A target: a program, server or agent that `soda top` shows.  Each target has a thread that asks
 * it for counters again and again, so that a target that does not answer does not delay the others.
 *
 *   asking -> here <-> gone       gone: the target did not answer; the thread goes on asking
 */
#ifndef SODA_TOP_TARGET_H
#define SODA_TOP_TARGET_H

#include <pthread.h>
#include <stdbool.h>

#include "soda/base/source.h"
#include "soda/watch/views.h"

enum { SODA_TOP_HISTORY = 160 };

enum soda_top_state { SODA_TOP_ASKING, SODA_TOP_HERE, SODA_TOP_GONE };

struct soda_top_timing {
	uint32_t interval_ms, timeout_ms;
};

struct soda_top_target {
	const char *name; /* constant, and the next two */
	char label[96];	  /* the name, and of a process its program's */
	struct soda_top_timing timing;
	struct soda_stat_source source; /* the thread's */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake; /* CLOCK_MONOTONIC */
	bool stop;	     /* guarded by lock, and so below */
	bool paused;	     /* answers are not taken */
	unsigned answers;    /* so far, failures included */
	enum soda_top_state state;
	struct soda_why why; /* gone */
	struct soda_top_pair pair;
	const struct soda_top_view *view; /* NULL: not known yet */
	double columns[SODA_TOP_COLUMNS];
	double values[SODA_TOP_ROWS_MAX];
	float history[SODA_TOP_ROWS_MAX][SODA_TOP_HISTORY]; /* oldest first */
	int history_n;
};

/* name: borrowed. 0, -EINVAL (not a target; why), -EAGAIN, -ENOMEM. */
int soda_top_target_start(struct soda_top_target *t, const char *name,
			  const struct soda_top_timing *timing, struct soda_why *why);
/* paused: drop answers, so that the values stay as they are; else take them again. */
void soda_top_target_pause(struct soda_top_target *t, bool paused);
/* End the thread, which may take a time-out, and free what start took. */
void soda_top_target_stop(struct soda_top_target *t);

/*
 * The targets when the command line names none: programs of this machine that use SODA, and the
 * addresses in SODA_SERVER and SODA_DPU; at most max names, which the caller frees.  Returns how
 * many.
 */
int soda_top_find(char **names, int max);

#endif
