/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a thread waits for an answer: asleep, or polling for a short time first.
 * Waking a halted core can take longer than the answer itself; polling on a loaded
 * machine takes the core from the peer that should answer.  No fixed rule
 * tells which is better, so the thread measures: most fetches use the way
 * that was faster lately, a few try the other.  The server polls only after a
 * request whose sender polls, so one decision is for both ends.
 */
#ifndef SODA_HOST_WAITING_H
#define SODA_HOST_WAITING_H

#include <stdbool.h>
#include <stdint.h>

struct soda_waiting {
	uint64_t mean_ns[2];  /* moving averages: [0] asleep, [1] polling */
	uint32_t until_trial; /* fetches until the other way is tried */
	uint32_t trial_left;  /* fetches left in the trial under way; 0: none is */
	uint32_t patience;    /* fetches between trials; doubles when a trial does not pay */
	bool polls;	      /* the way that most fetches use */
};

void soda_waiting_init(struct soda_waiting *w);
/* Whether to poll for the next answer. may_poll: false: never. */
bool soda_waiting_choose(struct soda_waiting *w, bool may_poll);
/* An answer came after ns; polled: what soda_waiting_choose() had returned. */
void soda_waiting_learn(struct soda_waiting *w, bool polled, uint64_t ns);

#endif
