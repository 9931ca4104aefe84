/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a thread waits for an answer: asleep, or polling for a short time first.
 * Waking a halted core costs more than the answer itself; polling on a loaded
 * machine takes the core from the peer that should answer.  No rule of thumb
 * tells the two apart for long, so the thread measures: most fetches use the way
 * that was faster lately, a few try the other.  The server polls only after a
 * request whose sender does, so one decision covers both ends.
 */
#ifndef SODA_HOST_WAITING_H
#define SODA_HOST_WAITING_H

#include <stdbool.h>
#include <stdint.h>

struct soda_waiting {
	uint64_t mean_ns[2];  /* moving averages: [0] asleep, [1] polling */
	uint32_t until_trial; /* fetches until the other way is tried */
	uint32_t trial_left;  /* of the trial under way */
	uint32_t patience;    /* fetches between trials; doubles when they do not pay */
	bool polls;	      /* the way in force */
};

void soda_waiting_init(struct soda_waiting *w);
/* Whether to poll for the next answer. may_poll: false where only one processor is ours. */
bool soda_waiting_choose(struct soda_waiting *w, bool may_poll);
/* The answer came after ns, awaited as chosen. */
void soda_waiting_learn(struct soda_waiting *w, bool polled, uint64_t ns);

#endif
