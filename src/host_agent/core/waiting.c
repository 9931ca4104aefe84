/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/thread.h"

enum {
	TRIAL = 8, /* fetches of one trial; the first is not measured: the peer was not polling yet
		    */
	PATIENCE_MIN = 64,
	PATIENCE_MAX = 4096,
	WEIGHT_SHIFT = 3, /* of a new sample in the moving average */
};

void soda_waiting_init(struct soda_waiting *w)
{
	*w = (struct soda_waiting){ .until_trial = TRIAL, .patience = PATIENCE_MIN };
}

static void trial_begins(struct soda_waiting *w)
{
	w->trial_left = TRIAL;
	w->mean_ns[!w->polls] = 0;
}

/* The trial is over: use the way that was tried if it was faster by a sixteenth. */
static void trial_ends(struct soda_waiting *w)
{
	uint64_t now = w->mean_ns[w->polls], other = w->mean_ns[!w->polls];

	if (other && other < now - now / 16) {
		w->polls = !w->polls;
		w->patience = PATIENCE_MIN;
	} else if (w->patience < PATIENCE_MAX) {
		w->patience *= 2;
	}
	w->until_trial = w->patience;
}

bool soda_waiting_choose(struct soda_waiting *w, bool may_poll)
{
	if (!may_poll)
		return false;
	if (w->trial_left)
		return !w->polls;
	if (w->until_trial-- == 0) {
		trial_begins(w);
		return !w->polls;
	}
	return w->polls;
}

void soda_waiting_learn(struct soda_waiting *w, bool polled, uint64_t ns)
{
	bool on_trial = w->trial_left && polled != w->polls;
	uint64_t *mean = &w->mean_ns[polled];

	if (!(on_trial && w->trial_left == TRIAL)) {
		if (!*mean)
			*mean = ns;
		else /* at most four times the mean, so that one slow answer does not decide */
			*mean += ((int64_t)(ns < *mean * 4 ? ns : *mean * 4) - (int64_t)*mean) >>
				 WEIGHT_SHIFT;
	}
	if (on_trial && --w->trial_left == 0)
		trial_ends(w);
}
