/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When caching pays.  The paper's model: a request that goes to the server costs
 * S / B_net; one that is answered from the agent's memory S / B_intra, and all of
 * them travel over that part of the way too.  So caching pays when
 *
 *     h > R = B_net / B_intra
 *
 * h is taken net of waste: bytes fetched beyond those that were then hit take the
 * network from the misses, byte for byte.  With h and f the bytes hit and the bytes fetched,
 * as shares of the bytes asked for, gain = h - max(0, f - h), and caching is on while
 * gain > R.  A scan fetches each byte once (f = h), random access sixteen for the one that it
 * wants.
 *
 * For each owner, by windows of requests, as exponentially weighted means: h over the last
 * few, f - h over the last SODA_MODEL_FADE, because fetches come in bursts, before their
 * hits.  On above R + SODA_MODEL_MARGIN, off below R.  While on, the first bytes fetched, as
 * many as the ghosts had, are not held against it: a working set is fetched once.
 * An owner that is switched off soon after it was switched on (its ghost does not know what other
 * owners take of the cache) stays off the longer the more often this happens.
 */
#ifndef SODA_DPU_MODEL_H
#define SODA_DPU_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	SODA_MODEL_WINDOW = 32, /* requests */
	SODA_MODEL_FADE = 16,	/* windows, as the next two */
	SODA_MODEL_SOON = 16,
	SODA_MODEL_HOLD_MAX = 64,
};
#define SODA_MODEL_MARGIN 0.05

/* A bandwidth, as an exponentially weighted mean. Any thread. */
struct soda_rate {
	_Atomic uint64_t bytes_per_s; /* 0: not known */
	_Atomic uint64_t samples;
};

/* One request's bytes took ns. */
void soda_rate_note(struct soda_rate *rate, uint64_t bytes, uint64_t ns);
uint64_t soda_rate_get(const struct soda_rate *rate);

/* What the model compares, of one agent. Any thread. */
struct soda_model_rates {
	struct soda_rate net;	/* from the server to here, one request */
	struct soda_rate intra; /* from here to the host */
};

/* R; a negative number: one of the two rates is not known yet. */
double soda_model_ratio(const struct soda_model_rates *rates);

/* Of one owner. Locks: the caller's. Zeroed is the start: off. */
struct soda_model {
	bool on;
	uint32_t requests;	      /* in this window */
	double asked, hit, fetched;   /* bytes, in this window */
	double credit;		      /* bytes that may be fetched without being charged */
	double hit_rate, waste;	      /* means: h, f - h */
	double gain, ratio;	      /* compared at the last window's end */
	uint32_t hold;		      /* windows until caching may be switched on */
	uint32_t penalty;	      /* what hold becomes after the next short time of being on */
	uint64_t windows, on_windows; /* since the last switch */
	uint64_t switched_on, switched_off;
};

/*
 * One request of `asked` bytes, of which `hit` were hits; and `fetched` bytes of
 * prefetches that it caused: really while on, as ghosts while off.
 * True: caching was switched, and `fetched` of later calls is of the other kind.
 */
bool soda_model_note(struct soda_model *model, const struct soda_model_rates *rates, uint64_t asked,
		     uint64_t hit, uint64_t fetched);
/* After it was switched on: bytes that the ghosts had. */
void soda_model_credit(struct soda_model *model, uint64_t bytes);

#endif
